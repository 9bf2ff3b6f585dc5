//! The example, as two processes over each transport.

use std::path::Path;
use std::process::Command;

use crate::port::free_port;
use crate::program::{Program, finish, has_plugin, library, start};
use crate::skip::skip;

const EXAMPLE: &str = "examples/hello_uct.c";
const TEXT: &str = "Hello from a program of UCT's vocabulary";

/// The program of the same name in Rust.
const RUST: &str = "uct_hello_world";

/// A server and a client that sends in this way.
#[track_caller]
fn says_hello(program: &Program, transport: &str, device: &str, how: &str) {
    let port = free_port().to_string();
    let side = |arguments: &[&str]| {
        let mut side = program.command();
        side.args(["-t", transport, "-d", device, "-p", &port, how]).args(arguments);
        start(&mut side)
    };
    let server = side(&[]);
    let client = side(&["-n", "127.0.0.1"]);
    let what = format!("{transport}/{device} {how}");
    finish(client, &format!("client, {what}"));
    let printed = finish(server, &format!("server, {what}"));
    assert!(printed.contains(TEXT), "{what}: {printed}");
}

/// The example and the program in Rust, of which one is the server.
#[track_caller]
fn says_hello_to_rust(program: &Program, rust: &Path, (transport, device): (&str, &str), rust_serves: bool) {
    let port = free_port().to_string();
    let side = |mut side: Command, further: &[&str]| {
        side.args(["-t", transport, "-d", device, "-p", &port]).args(further);
        side.env("UCT_IB_LIBRARY", "soft").env("SOFTVERBS_NAME", "soft0");
        start(&mut side)
    };
    let in_rust = || {
        let mut command = Command::new(rust);
        command
            .args(["--ucx", "--timeout", "120"])
            .env("UCT_MODULE_DIR", library().parent().expect("a directory"));
        command
    };
    let what = format!("{transport}/{device}, server in Rust: {rust_serves}");
    let client = ["-n", "127.0.0.1"];
    let (server, client, text) = match rust_serves {
        true => (side(in_rust(), &[]), side(program.command(), &client), TEXT),
        false => (side(program.command(), &[]), side(in_rust(), &client), "ABCDEFGHIJKLMNO"),
    };
    finish(client, &format!("client, {what}"));
    let printed = finish(server, &format!("server, {what}"));
    assert!(printed.contains(text), "{what}: {printed}");
}

#[test]
fn the_program_in_rust_talks_to_the_example() {
    let Some(program) = Program::compile(EXAMPLE) else { return };
    let rust = library().parent().and_then(Path::parent).expect("a directory").join(RUST);
    if !rust.exists() {
        return skip(RUST, format_args!("{} is not there: cargo build", rust.display()));
    }
    for on in [("posix", "memory"), ("tcp", "lo"), ("rc_verbs", "soft0:1"), ("ud_verbs", "soft0:1")] {
        for rust_serves in [false, true] {
            says_hello_to_rust(&program, &rust, on, rust_serves);
        }
    }
}

#[test]
fn the_example_talks_to_itself_within_a_process() {
    let Some(program) = Program::compile(EXAMPLE) else { return };
    for how in ["-i", "-b", "-z"] {
        let printed = program.run(&["-t", "self", "-d", "memory", how]);
        assert!(printed.contains(TEXT), "{how}: {printed}");
    }
}

#[test]
fn two_processes_talk_over_posix_and_tcp_in_each_way() {
    let Some(program) = Program::compile(EXAMPLE) else { return };
    for (transport, device) in [("posix", "memory"), ("tcp", "lo")] {
        for how in ["-i", "-b", "-z"] {
            says_hello(&program, transport, device, how);
        }
    }
}

#[test]
fn two_processes_talk_over_a_verbs_device_in_software_in_each_way() {
    let Some(program) = Program::compile(EXAMPLE) else { return };
    for transport in ["rc_verbs", "ud_verbs"] {
        if has_plugin(transport) {
            ["-i", "-b", "-z"].into_iter().for_each(|how| says_hello(&program, transport, "soft0:1", how));
        }
    }
}
