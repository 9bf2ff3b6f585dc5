//! Every example runs, over every transport that is found, and prints what it promises.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long one example may take.
const LIMIT: Duration = Duration::from_secs(180);

/// An example, with the loopback device alone and nothing else of the caller's settings but where plugins are.
fn example(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UCT_") && name != "UCT_MODULE_DIR" {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("UCT_NET_DEVICES", "lo").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its output, after it ended well and in time, without a word on its standard error.
#[track_caller]
fn output(mut child: Child) -> String {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            pipe.map(std::io::read_to_string).transpose().ok().flatten().unwrap_or_default()
        })
    };
    let stdout = read(stdout.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let stderr = read(stderr.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{stdout}\n{stderr}");
    assert_eq!(stderr, "", "standard error; the output was:\n{stdout}");
    stdout
}

#[track_caller]
fn run(program: &str, arguments: &[&str], transport: Option<&str>) -> String {
    let mut command = example(program, arguments);
    if let Some(transport) = transport {
        command.env("UCT_TLS", transport);
    }
    output(command.spawn().unwrap())
}

/// The transports that lead to another process, with their devices, as the explanation names them.
fn to_other_processes() -> Vec<(String, String)> {
    let explanation = run(env!("CARGO_BIN_EXE_choose_and_explain"), &["am_bcopy", "64"], None);
    let usable = explanation.lines().filter(|line| line.starts_with("CHOSEN") || line.starts_with("USABLE"));
    let names = usable.filter_map(|line| line.split_whitespace().nth(1)?.split_once('/'));
    let mut names: Vec<_> = names.map(|(name, device)| (name.to_owned(), device.to_owned())).collect();
    names.retain(|(name, _)| name != "self");
    names.sort_unstable();
    names.dedup();
    assert!(!names.is_empty(), "no transport leads to another process:\n{explanation}");
    names
}

#[track_caller]
fn over_each_transport(program: &str, expected: &[&str]) {
    for (transport, _) in to_other_processes() {
        let output = run(program, &[], Some(&transport));
        assert!(output.contains(&format!("using {transport}/")), "{transport}: {output}");
        for expected in expected {
            assert!(output.contains(expected), "{transport}: {expected:?} is missing in\n{output}");
        }
    }
}

#[test]
fn put_and_get_reach_the_memory_of_another_process() {
    let expected = [
        "initiator: the memory begins with \"what the owner wrote\"",
        "owner:     the memory now begins with \"what the initiator put\"",
    ];
    over_each_transport(env!("CARGO_BIN_EXE_put_get"), &expected);
}

#[test]
fn no_ticket_of_the_counter_is_drawn_twice() {
    over_each_transport(env!("CARGO_BIN_EXE_atomic_counter"), &["drew 300 tickets, each of them once"]);
}

#[test]
fn a_sleeping_receiver_gets_every_message() {
    over_each_transport(env!("CARGO_BIN_EXE_sleeping_receiver"), &["receiver: 5 messages"]);
}

#[test]
fn a_client_finds_a_server_by_its_address() {
    for (transport, device) in to_other_processes() {
        let mut server = example(env!("CARGO_BIN_EXE_listen"), &["127.0.0.1:0"]);
        let mut server = server.env("UCT_TLS", &transport).spawn().unwrap();
        let lines = lines_of(server.stdout.take().unwrap());
        let first = lines.recv_timeout(LIMIT).unwrap();
        let address = first.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first}"));
        // The server has one transport, and the client takes it from all of its own.
        let printed = run(env!("CARGO_BIN_EXE_connect"), &[address], None);
        let mut served = Vec::new();
        while !served.last().is_some_and(|line: &String| line.contains("the peer closed the connection")) {
            served.push(lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {served:?}")));
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(printed.contains(&format!("connected over {transport}/{device}\n")), "{printed}");
        assert!(printed.contains("the peer says hello\n"), "{printed}");
    }
}

/// The lines of a process, as they come.
fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sends, receives) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sends.send(line))
    });
    receives
}

#[test]
fn a_pending_queue_keeps_the_order() {
    let expected = ["sender:   200000 messages", "receiver: 200000 messages, in order"];
    over_each_transport(env!("CARGO_BIN_EXE_pending_queue"), &expected);
}

#[test]
fn messages_are_kept_in_place() {
    let output = run(env!("CARGO_BIN_EXE_kept_messages"), &[], None);
    assert_eq!(output.matches("kept in place").count(), 3, "{output}");
    assert!(output.ends_with("done 2: fold\n"), "{output}");
}

#[test]
fn a_choice_is_explained() {
    let output = run(env!("CARGO_BIN_EXE_choose_and_explain"), &[], None);
    assert!(output.contains("CHOSEN    self/memory"), "{output}");
    assert!(output.contains("to a peer without addresses: "), "{output}");
    assert!(output.contains("REJECTED  self  "), "{output}");
    let failed = example(env!("CARGO_BIN_EXE_choose_and_explain"), &["am_shrot"]).output().unwrap();
    assert!(!failed.status.success());
    assert!(String::from_utf8_lossy(&failed.stderr).contains("expected one of am_short"));
}

#[test]
fn a_plugin_takes_the_place_of_what_is_built_in() {
    // Cargo leaves the plugins of dependencies beside this test.
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let output = run(env!("CARGO_BIN_EXE_static_or_plugin"), &[directory.to_str().unwrap()], None);
    assert!(output.contains("5 bytes by self/memory from: built in\n"), "{output}");
    let file = directory.join("libuct_self.so");
    assert!(output.contains(&format!("5 bytes by self/memory from: {}\n", file.display())), "{output}");
}

#[test]
fn the_classic_walk_runs_over_each_transport() {
    let program = env!("CARGO_BIN_EXE_rc_send_read_write");
    for (transport, device) in to_other_processes() {
        let which = ["-t", &transport, "-d", &device];
        let mut server = example(program, &[&which[..], &["-p", "0"]].concat()).spawn().unwrap();
        let port = port(server.stdout.as_mut().unwrap());
        let client = example(program, &[&which[..], &["-n", "127.0.0.1", "-p", &port]].concat());
        let client = { client }.spawn().unwrap();
        let (client, server) = (output(client), output(server));
        assert!(client.contains("SEND:       received \"what the server sends\""), "{transport}: {client}");
        assert!(client.contains("holds \"what the client reads \""), "{transport}: {client}");
        assert!(server.contains("holds \"what the client writes\""), "{transport}: {server}");
    }
}

/// Reads the port from the first line, byte by byte, so that the rest stays in the pipe.
fn port(stdout: &mut ChildStdout) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stdout).read_line(&mut line).unwrap();
    line.trim().strip_prefix("waiting on port ").unwrap_or_else(|| panic!("no port: {line}")).to_owned()
}
