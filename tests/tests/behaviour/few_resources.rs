//! The tools and `uct_hello_world` with few descriptors, little memory, no more threads, and outputs that are full: they do what they can, or end
//! with a readable error; none panics, none is ended by a signal, and a server whose descriptors idle callers took serves afterwards.

use crate::copy::copy_program;
use crate::port;
use crate::process::{self, Ended, Running, run, start};
use crate::programs;
use crate::skip;

#[allow(dead_code, reason = "a part of it is for other tests")]
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

const INFO: &str = "uct_info";
const PERFTEST: &str = "uct_perftest";
const HELLO: &str = "uct_hello_world";
/// A user that has no other process.
const USER: u32 = 61_234;
/// Up to so many descriptors more than it has are permitted to a server.
const SPARE: usize = 20;
/// How long a server is waited for to begin.
const LIMIT: Duration = Duration::from_secs(60);

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| programs::build(&[INFO, PERFTEST, HELLO]))
}

fn command(program: &str, arguments: &[&str]) -> Command {
    process::command(directory().join(program), arguments)
}

/// A program under a limit: `nofile`, `as`, `memlock` or `nproc`. The C library reserves 64 MiB of addresses for each thread that allocates
/// while another one does, so which call fails for want of them would depend on the processors: it has one arena.
fn limited((limit, value): (&str, u64), program: &Path, arguments: &[&str]) -> Command {
    let mut command = process::command("prlimit", &[&format!("--{limit}={value}")]);
    command.arg(program).args(arguments).env("MALLOC_ARENA_MAX", "1");
    command
}

/// It has ended by itself, with a reason if it failed.
#[track_caller]
fn is_orderly(ended: &Ended, what: &str) {
    let Ended { code, stdout, stderr } = ended;
    let is_failure_with_reason = *code == Some(1) && !stderr.trim().is_empty();
    // The system's loader has failed; it says so.
    let is_unloaded = *code == Some(127) && stderr.contains("error while loading");
    let is_expected = *code == Some(0) || is_failure_with_reason || is_unloaded;
    assert!(is_expected && !stderr.contains("panicked"), "{what} ended with {code:?}: {stdout}{stderr}");
}

#[test]
fn programs_with_few_descriptors_do_what_they_can_or_say_why_not() {
    let calls: [(&str, &[&str]); 4] = [
        (INFO, &["-d"]),
        (INFO, &["--doctor"]),
        (PERFTEST, &["-l", "-n", "100", "-w", "10", "--timeout", "10"]),
        (HELLO, &["-t", "tcp", "-d", "lo", "-p", "0", "--timeout", "0.01"]),
    ];
    for (program, arguments) in calls {
        let mut codes = Vec::new();
        for descriptors in 3..30 {
            let ended = run(&mut limited(("nofile", descriptors), &directory().join(program), arguments));
            is_orderly(&ended, &format!("{program} {arguments:?} with {descriptors} descriptors"));
            codes.push(ended.code);
        }
        println!("{program} {arguments:?}: {codes:?}");
        assert_ne!(codes[0], Some(0), "the limit has an effect");
    }
}

/// The numbers of a process's descriptors.
fn descriptors(process: u32) -> Vec<usize> {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
    open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn permit(process: &Running, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(process.id().cast_signed());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).expect("a child of this process").current
}

/// A connection without a word, to a server that may not have begun yet.
fn idle_caller(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(socket) => return socket,
            Err(error) => assert!(begun.elapsed() < LIMIT, "port {port}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server to which idle callers leave so many descriptors, down to none, serves when they have gone and there is room.
fn starve(program: &str, for_server: &[&str], for_client: &[&str]) {
    for spare in 0..=SPARE {
        let port = port::free_port();
        let number = port.to_string();
        let chosen: &[&str] = [&["-t", "tcp"][..], &["-t", "posix"]][spare % 2];
        let chosen = if program == HELLO { chosen } else { &[] };
        let mut server = command(program, &[&["-p", &number], for_server, chosen].concat());
        let server = start(server.args(["--timeout", "60"]));
        drop(idle_caller(port));
        let open = descriptors(server.id());
        let limit = (0..).filter(|number| !open.contains(number)).nth(spare).expect("there is a number");
        let before = permit(&server, Some(limit as u64));
        let callers: Vec<TcpStream> = (0..spare + 4).map(|_| idle_caller(port)).collect();
        // It takes as many as it can. How many that are is its own affair.
        for _ in 0..10 {
            if descriptors(server.id()).len() >= limit {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(callers);
        permit(&server, before);
        let mut client = command(program, &[&["-p", &number], for_client, chosen].concat());
        let client = run(client.args(["--timeout", "60"]));
        let server = server.end();
        let what = format!("{program} with {spare} descriptors");
        assert_eq!((client.code, server.code), (Some(0), Some(0)), "{what}: {client:?} {server:?}");
        is_orderly(&server, &what);
    }
}

#[test]
fn a_server_of_uct_perftest_serves_after_idle_callers_have_taken_its_descriptors() {
    starve(PERFTEST, &[], &["127.0.0.1", "-n", "100", "-w", "10"]);
}

#[test]
fn a_server_of_uct_hello_world_serves_after_idle_callers_have_taken_its_descriptors() {
    starve(HELLO, &[], &["-n", "127.0.0.1"]);
}

#[test]
fn a_message_for_which_there_is_no_memory_is_an_error_that_says_so() {
    let limit = ("as", 128 << 20);
    let perftest = directory().join(PERFTEST);
    for (transport, test) in [("self", "put_bw"), ("posix", "get_bw"), ("posix", "stream_bw")] {
        let arguments = ["-l", "-x", transport, "-t", test, "-s", "192m", "-n", "1", "-w", "0"];
        let ended = run(&mut limited(limit, &perftest, &arguments));
        assert!(ended.code == Some(1) && says_memory(&ended), "{test} over {transport}: {ended:?}");
    }
    // A client that asks for more than the server has.
    let port = port::free_port();
    let number = port.to_string();
    let server = start(&mut limited(limit, &perftest, &["-p", &number, "--timeout", "60"]));
    drop(idle_caller(port));
    let arguments =
        ["127.0.0.1", "-p", &number, "-t", "put_bw", "-s", "192m", "-n", "1", "-w", "0", "--timeout", "60"];
    let client = run(&mut command(PERFTEST, &arguments));
    let server = server.end();
    for (side, ended) in [("client", &client), ("server", &server)] {
        is_orderly(ended, side);
        assert!(ended.code == Some(1) && says_memory(ended), "{side}: {ended:?}");
    }
}

/// Whether its error is one about memory.
fn says_memory(ended: &Ended) -> bool {
    ["cannot allocate", "no memory"].iter().any(|words| ended.stderr.contains(words))
}

/// Programs where another user can start them, and that user; or nobody's, if this one is no root.
struct Others {
    directory: tempfile::TempDir,
    is_root: bool,
}

impl Others {
    fn new() -> Others {
        let directory = tempfile::tempdir().expect("a directory");
        let access = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), access).expect("its owner's choice");
        for program in [INFO, PERFTEST, HELLO] {
            copy_program(self::directory().join(program), directory.path().join(program));
        }
        Others { directory, is_root: rustix::process::geteuid().is_root() }
    }

    /// Runs a program as a user whom the system holds to the limit; `None` if this one may not become another.
    fn run(&self, limit: (&str, u64), program: &str, arguments: &[&str]) -> Option<Ended> {
        let mut command = limited(limit, &self.directory.path().join(program), arguments);
        command.current_dir("/");
        if self.is_root {
            command.uid(USER).gid(USER);
            let mut probe = Command::new("true");
            if probe.uid(USER).gid(USER).status().is_err() {
                skip::skip("root", "this user may not become another one");
                return None;
            }
        }
        Some(run(&mut command))
    }
}

#[test]
fn programs_that_may_start_no_thread_say_so() {
    let others = Others::new();
    // What needs no thread succeeds.
    let calls: [(&str, &[&str], i32); 6] = [
        (INFO, &["-d"], 0),
        (PERFTEST, &["-l", "-x", "self", "-n", "100", "-w", "10"], 0),
        (PERFTEST, &["-l", "-x", "posix", "-n", "100", "-w", "10"], 1),
        (PERFTEST, &["localhost", "-p", "1", "--timeout", "10"], 1),
        (INFO, &["--calibrate", "-t", "posix"], 1),
        (HELLO, &["-t", "tcp", "-d", "lo", "-p", "0", "--timeout", "0.01"], 1),
    ];
    for (program, arguments, code) in calls {
        let Some(ended) = others.run(("nproc", 1), program, arguments) else { return };
        is_orderly(&ended, &format!("{program} {arguments:?} without threads"));
        assert_eq!(ended.code, Some(code), "{program} {arguments:?}: {ended:?}");
        let needs_thread = code == 1 && program != HELLO;
        assert!(!needs_thread || ended.stderr.contains("thread"), "{program} {arguments:?}: {ended:?}");
    }
}

#[test]
fn programs_that_may_lock_no_memory_do_what_they_can() {
    let others = Others::new();
    let calls: [(&str, &[&str]); 3] =
        [(INFO, &["-d"]), (INFO, &["--doctor"]), (PERFTEST, &["-l", "-x", "posix", "-n", "100", "-w", "10"])];
    for (program, arguments) in calls {
        let Some(ended) = others.run(("memlock", 0), program, arguments) else { return };
        is_orderly(&ended, &format!("{program} {arguments:?} without locked memory"));
    }
}

#[test]
fn programs_whose_outputs_are_full_end_by_themselves() {
    let full =
        || Stdio::from(File::options().write(true).open("/dev/full").expect("a device of every system"));
    let calls: [(&str, &[&str]); 5] = [
        (INFO, &["-d"]),
        (INFO, &["-d", "-t", "none"]),
        (PERFTEST, &["-l", "-x", "self", "-s", "8,1g", "-n", "100", "-w", "10", "-v"]),
        (HELLO, &["-t", "none"]),
        (HELLO, &["-t", "tcp", "-d", "lo", "-p", "0", "--timeout", "0.01"]),
    ];
    for (program, arguments) in calls {
        let mut command = command(program, arguments);
        // Each has lines of the log, too.
        command.env("UCT_LOG_LEVEL", "debug").stdout(full()).stderr(full());
        let code = command.status().expect("it starts").code();
        assert!(matches!(code, Some(0 | 1)), "{program} {arguments:?} ended with {code:?}");
    }
}
