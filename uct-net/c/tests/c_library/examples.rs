//! The examples in C and C++, each between two processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::compiled::{Place, library, run, sources};
use crate::skip::skip;

/// A program that is ended with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The variables that decide about the transport.
type Settings<'a> = &'a [(&'a str, &'a str)];

fn program(path: &Path, settings: Settings) -> Command {
    let mut program = Command::new(path);
    program.envs(settings.iter().copied()).env("UCT_CALIBRATION", "off");
    program
}

/// Runs one example over one transport: what both sides have printed.
fn both(place: &Path, example: &str, client: &str, settings: Settings) -> (String, String) {
    let path = place.join(example);
    let mut server = program(&path, settings);
    let at = if settings[0].1 == "tcp" {
        "127.0.0.1:0".to_owned()
    } else {
        format!("unix:{}", place.join("socket").display())
    };
    let mut server = Running(server.arg(at).stdout(Stdio::piped()).spawn().expect("the example starts"));
    let mut lines =
        BufReader::new(server.0.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let first = lines.next().expect("the first line of the server");
    let address = first.strip_prefix("listening on ").expect("where it listens").to_owned();
    let printed = run(program(&path, settings).arg(address).arg(client));
    let mut rest: Vec<String> = Vec::new();
    for line in lines {
        let is_last = line.contains("has gone");
        rest.push(line);
        if is_last {
            break;
        }
    }
    if example != "echo" {
        assert!(server.0.wait().expect("an end").success());
    }
    (rest.join("\n"), printed)
}

#[test]
fn the_examples_run_between_two_processes_over_shared_memory_tcp_and_verbs() {
    let place = Place::new();
    for example in ["echo.c", "put_get.c", "blocks.c", "tour.cc"] {
        if place.compile(&sources().join("examples").join(example)).is_none() {
            return;
        }
    }
    let plugins = library().with_file_name("");
    let verbs = [
        ("UCT_TLS", "rc_verbs"),
        ("UCT_IB_LIBRARY", "soft"),
        ("UCT_MODULE_DIR", plugins.to_str().expect("UTF-8")),
        ("UCT_RC_VERBS_TIMEOUT", "250ms"),
        ("UCT_RC_VERBS_PEER_TIMEOUT", "15s"),
    ];
    let mut all: Vec<Settings> = vec![&[("UCT_TLS", "posix")], &[("UCT_TLS", "tcp")]];
    if plugins.join("libuct_rc_verbs.so").exists() {
        all.push(&verbs);
    } else {
        skip("rc_verbs", "the plugin of rc_verbs is not built: cargo build -p uct-rc-verbs-plugin");
    }
    for settings in all {
        let transport = settings[0].1;
        let (server, client) = both(place.path(), "echo", "hello there", settings);
        assert_eq!(client, "hello there\n");
        assert!(server.contains(&format!("a client over {transport}/")), "{server}");
        assert!(server.contains("a client has gone: "), "{server}");
        let (server, client) = both(place.path(), "put_get", "user", settings);
        assert_eq!(client, "the owner has written \"from the owner\"\ncounted from 2\n");
        assert_eq!(server, "the user has written \"from the user\" and counted to 3");
        let (server, client) = both(place.path(), "blocks", "get", settings);
        assert_eq!(client, "256 blocks, 8388608 bytes\n");
        assert_eq!(server, "notified: all are read");
        let (server, client) = both(place.path(), "tour", "hello from C++", settings);
        assert_eq!(client, "hello from C++\nput and got\n");
        assert_eq!(server, "all have moved: d c b a");
    }
}

#[test]
fn the_first_program_of_the_page_runs_as_it_is_written_there() {
    let page = sources().join("../../docs/c.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let mut blocks = page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let program = blocks.find(|block| block.contains("int main")).expect("a program");
    let place = Place::new();
    let Some(program) = place.compile_text("first", program) else { return };
    let mut server = Running(Command::new(&program).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines =
        BufReader::new(server.0.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let first = lines.next().expect("the first line");
    let address = first.strip_prefix("now start: first ").expect("where it listens");
    let printed = run(Command::new(&program).arg(address));
    assert!(printed.ends_with(": hello\n"), "{printed}");
    assert_eq!(format!("{}\n", lines.next().expect("the message")), printed);
    assert!(server.0.wait().expect("an end").success());
}
