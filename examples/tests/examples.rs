//! Every example runs, over every transport that is found, and prints what it promises.

#[path = "../../uct-net/tests/support/child.rs"]
mod child;
#[path = "../../uct-net/tests/support/namespaces.rs"]
mod namespaces;
#[path = "../../ucs/testing/skip.rs"]
mod skip;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use namespaces::Cable;

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
fn output(child: Child) -> String {
    let (succeeds, stdout, stderr) = ended(child);
    assert!(succeeds, "{stdout}\n{stderr}");
    assert_eq!(stderr, "", "standard error; the output was:\n{stdout}");
    stdout
}

/// Whether it succeeded, in time, and what it printed: its output, and its errors.
#[track_caller]
fn ended(mut child: Child) -> (bool, String, String) {
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
    let status = status.unwrap_or_else(|| panic!("not within {LIMIT:?}\n{stdout}\n{stderr}"));
    (status.success(), stdout, stderr)
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

/// Starts the first side with one transport, then as many others as it asks for; returns what each printed, the first side first.
#[track_caller]
fn sides(program: &str, transport: &str, others: usize) -> Vec<String> {
    let mut first = example(program, &[]).env("UCT_TLS", transport).spawn().unwrap();
    let line = line(first.stdout.as_mut().unwrap());
    assert!(line.starts_with("now start"), "{line}");
    let address = line.split_whitespace().last().unwrap();
    // The first side has one transport; the others take it from all of theirs.
    let others: Vec<Child> = (0..others).map(|_| example(program, &[address]).spawn().unwrap()).collect();
    let mut printed: Vec<String> = others.into_iter().map(output).collect();
    printed.insert(0, output(first));
    printed
}

/// Runs it over each transport: the first side has to print `first`, and each of the others `other`.
#[track_caller]
fn over_each_transport(program: &str, others: usize, first: &str, other: &str) {
    for (transport, device) in to_other_processes() {
        let printed = sides(program, &transport, others);
        assert!(printed[0].contains(first), "{transport}: {first:?} is missing in\n{}", printed[0]);
        for printed in &printed[1..] {
            assert!(printed.contains(&format!("over {transport}/{device}\n")), "{transport}: {printed}");
            assert!(printed.contains(other), "{transport}: {other:?} is missing in\n{printed}");
        }
    }
}

#[test]
fn put_and_get_reach_the_memory_of_another_process() {
    let owner = "the memory now begins with \"what the initiator put\"";
    let initiator = "the memory begins with \"what the owner wrote\"";
    over_each_transport(env!("CARGO_BIN_EXE_put_get"), 1, owner, initiator);
}

#[test]
fn a_transfer_moves_scattered_blocks_and_notifies_their_owner() {
    let initiator = "256 blocks, 8388608 bytes over ";
    over_each_transport(env!("CARGO_BIN_EXE_transfer"), 1, "notified: all are read\n", initiator);
}

#[test]
fn no_ticket_of_the_counter_is_drawn_twice() {
    let owner = "3 programs drew 300 tickets, each of them once";
    over_each_transport(env!("CARGO_BIN_EXE_atomic_counter"), 3, owner, "");
}

#[test]
fn a_sleeping_receiver_gets_every_message() {
    over_each_transport(env!("CARGO_BIN_EXE_sleeping_receiver"), 1, "5 messages within ", "");
}

#[test]
fn two_connections_receive_into_one_queue() {
    let receiver = "1000 messages of each";
    over_each_transport(env!("CARGO_BIN_EXE_shared_receive_queue"), 2, receiver, "");
}

#[test]
fn an_event_loop_of_its_own_carries_lines_both_ways() {
    let program = env!("CARGO_BIN_EXE_own_event_loop");
    for (transport, _) in to_other_processes() {
        let start = |arguments: &[&str]| {
            example(program, arguments).env("UCT_TLS", &transport).stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut first = start(&[]);
        let line = line(first.stdout.as_mut().unwrap());
        let mut second = start(&[line.split_whitespace().last().unwrap()]);
        let type_in = |side: &mut Child, text: &str| side.stdin.as_mut().unwrap().write_all(text.as_bytes());
        type_in(&mut first, "hello\n").unwrap();
        type_in(&mut second, "good morning\n").unwrap();
        // Each is asleep by now, most likely; the end of one input leaves the other direction open.
        std::thread::sleep(Duration::from_millis(100));
        drop(second.stdin.take());
        std::thread::sleep(Duration::from_millis(100));
        type_in(&mut first, "still there?\n").unwrap();
        drop(first.stdin.take());
        assert_eq!(output(second), "hello\nstill there?\n", "{transport}");
        assert_eq!(output(first), "good morning\n", "{transport}");
    }
}

/// A server that runs until it is dropped, and how its clients reach it.
struct Server {
    child: Child,
    lines: Receiver<String>,
    address: String,
}

impl Server {
    fn start(program: &str, arguments: &[&str], transport: &str) -> Server {
        Server::spawn(example(program, arguments).env("UCT_TLS", transport))
    }

    fn spawn(command: &mut Command) -> Server {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let first = lines.recv_timeout(LIMIT).unwrap();
        let address = first.split_whitespace().last().unwrap().to_owned();
        Server { child, lines, address }
    }

    /// Waits for a line with these words.
    #[track_caller]
    fn prints(&self, words: &str) {
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|line: &String| line.contains(words)) {
            seen.push(self.lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {seen:?}")));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn one_server_echoes_to_many_clients_at_once() {
    for (transport, device) in to_other_processes() {
        let server = Server::start(env!("CARGO_BIN_EXE_echo_server"), &["127.0.0.1:0"], &transport);
        let client = || example(env!("CARGO_BIN_EXE_connect"), &[&server.address]).spawn().unwrap();
        let clients: Vec<Child> = (0..5).map(|_| client()).collect();
        for client in clients {
            let printed = output(client);
            assert!(printed.contains(&format!("connected over {transport}/{device}\n")), "{printed}");
            assert!(printed.contains("the peer says hello\n"), "{printed}");
        }
        (0..5).for_each(|_| server.prints("1 messages, "));
    }
}

#[test]
fn a_key_value_server_serves_many_clients_over_each_transport_and_ends_in_time() {
    const SECONDS: u64 = 6;
    let program = env!("CARGO_BIN_EXE_key_value");
    let begin = Instant::now();
    let seconds = SECONDS.to_string();
    let mut server = Server::start(program, &["serve", "127.0.0.1:0", &seconds], "posix,tcp");
    // A client that connects, asks for nothing, and never takes notice of the end.
    let silent = uct_net::local::Net::new(&uct_core::Context::builder().build().unwrap(), Default::default());
    let silent = silent.unwrap();
    let connection = silent.block_on(silent.connect(&server.address).require("tcp").into_future()).unwrap();

    let long = "x".repeat(100_000);
    let transports = [("posix", "posix/memory"), ("tcp", "tcp/lo")];
    let start = |(transport, _): (&str, _), number: usize| {
        let key = format!("{transport}{number}");
        let requests = ["put", &key, &long, "get", &key, "put", &key, "", "put", "common", transport];
        let mut client = example(program, &[&[&*server.address][..], &requests].concat());
        (key, client.env("UCT_TLS", transport).spawn().unwrap())
    };
    let clients: Vec<_> = transports.iter().flat_map(|&it| (0..3).map(move |i| (it, i))).collect();
    let clients: Vec<_> = clients.into_iter().map(|(it, i)| (it.1, start(it, i))).collect();
    for (resource, (key, client)) in clients {
        let expected =
            format!("over {resource}\n{key}: stored\n{key} = {long}\n{key}: stored\ncommon: stored\n");
        assert_eq!(output(client), expected);
    }
    // What one transport stored, the other one reads.
    for (transport, resource) in transports {
        let requests = [&*server.address, "get", "posix0", "get", "tcp2", "get", "none"];
        let printed = run(program, &requests, Some(transport));
        assert_eq!(printed, format!("over {resource}\nposix0 = \ntcp2 = \nnone: missing\n"));
    }

    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(" of a processor")) {
        lines.push(server.lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {lines:?}")));
    }
    let status = loop {
        match server.child.try_wait().unwrap() {
            None if begin.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(5)),
            status => break status,
        }
    };
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    let ended = begin.elapsed();
    assert_eq!(lines.iter().filter(|line| line.ends_with("closed by the client")).count(), 8, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("close (") && line.contains("not within 1s")), "{lines:?}");
    let last = lines.last().unwrap();
    let used: u64 = last.split_whitespace().nth(5).unwrap().parse().unwrap();
    assert!(last.starts_with("7 keys after ") && used < 1_000_000, "it slept while idle: {last}");
    assert!((SECONDS..SECONDS + 10).contains(&ended.as_secs()), "{ended:?}: {lines:?}");
    drop(connection);
}

/// A client of the cache, over one transport.
fn cache(pool: &Server, transport: &str, words: &[&str]) -> Command {
    let words = [&words[..1], &[&*pool.address], &words[1..]].concat();
    let mut command = example(env!("CARGO_BIN_EXE_kv_cache"), &words);
    command.env("UCT_TLS", transport);
    command
}

/// A cache with 2048 blocks of 32 KiB.
fn cache_pool() -> Server {
    let words = ["serve", "127.0.0.1:0", "64", "32"];
    Server::start(env!("CARGO_BIN_EXE_kv_cache"), &words, "posix,cma,tcp")
}

#[test]
fn workers_read_from_the_cache_what_prefill_wrote_over_any_transport() {
    let pool = cache_pool();
    let at_once = |clients: [(&str, &[&str]); 3], blocks: [usize; 3]| {
        let started = clients.map(|(transport, words)| cache(&pool, transport, words).spawn().unwrap());
        for ((client, (transport, _)), blocks) in started.into_iter().zip(clients).zip(blocks) {
            let printed = output(client);
            let expected = format!(": {blocks} blocks over {transport}/");
            assert!(printed.contains(&expected), "{printed}");
        }
    };
    let prefill: [(&str, &[&str]); 3] =
        [("posix", &["prefill", "a:256"]), ("cma", &["prefill", "b:1024"]), ("tcp", &["prefill", "c:768"])];
    at_once(prefill, [256, 1024, 768]);
    // Every block belongs to one of the three.
    let (succeeds, _, why) = ended(cache(&pool, "posix", &["prefill", "d:1"]).spawn().unwrap());
    assert!(!succeeds && why.contains("d:1: refused"), "{why}");
    let decode: [(&str, &[&str]); 3] =
        [("tcp", &["decode", "a"]), ("posix", &["decode", "b"]), ("cma", &["decode", "c"])];
    at_once(decode, [256, 1024, 768]);
    // Every block is free, and none of them twice.
    let printed = output(cache(&pool, "posix", &["prefill", "d:2048"]).spawn().unwrap());
    assert!(printed.ends_with("; 0 blocks are free\n"), "{printed}");
    let printed = output(cache(&pool, "cma", &["decode", "d"]).spawn().unwrap());
    assert!(printed.ends_with("; 2048 blocks are free\n"), "{printed}");
}

#[test]
fn a_client_of_the_cache_that_is_killed_in_its_transfer_takes_nothing_of_the_others() {
    const VICTIM: &str = "KV_CACHE_VICTIM";
    if let Ok(words) = std::env::var(VICTIM) {
        let words: Vec<&str> = words.split(' ').collect();
        return stop_within_a_transfer(words[0], words[1], words[2]);
    }
    let this = a_client_of_the_cache_that_is_killed_in_its_transfer_takes_nothing_of_the_others;
    for transport in ["posix", "cma", "tcp"] {
        let pool = cache_pool();
        output(cache(&pool, transport, &["prefill", "a:1024", "b:512"]).spawn().unwrap());
        pool.prints("client 0: ");
        // One reads, the other one writes.
        let victim = |request| {
            let words = format!("{} {transport} {request}", pool.address);
            let mut victim = child::start(this, (VICTIM, &words));
            let (moved, _) = child::line(&mut victim.0, "moved");
            let moved: usize = moved.parse().unwrap();
            assert!((1..512).contains(&moved), "{moved} blocks");
            victim
        };
        let victims = [victim("a"), victim("c:512")];
        let printed = output(cache(&pool, transport, &["decode", "b"]).spawn().unwrap());
        assert!(printed.ends_with("; 512 blocks are free\n"), "{transport}: {printed}");
        // What is being read is nobody else's.
        let (succeeds, _, why) = ended(cache(&pool, transport, &["decode", "a"]).spawn().unwrap());
        assert!(!succeeds && why.contains("a: refused"), "{why}");
        for (victim, number) in victims.into_iter().zip(1..) {
            drop(victim);
            pool.prints(&format!("client {number}: "));
        }
        let printed = output(cache(&pool, transport, &["decode", "a"]).spawn().unwrap());
        assert!(
            printed.contains("a: 1024 blocks ") && printed.ends_with("; 2048 blocks are free\n"),
            "{printed}"
        );
    }
}

/// A client of the cache that has moved some blocks of a request when it stops. It neither ends nor makes progress.
fn stop_within_a_transfer(address: &str, transport: &str, request: &str) {
    let net = uct_net::local::Net::new(&uct_core::Context::builder().build().unwrap(), Default::default());
    let net = net.unwrap();
    let (connection, transfer) = net.block_on(async {
        let connection = net.connect(address).require(transport).await.unwrap();
        let pool = connection.shared().await.unwrap();
        connection.send(request.as_bytes()).await.unwrap();
        let blocks = uct_net::Blocks::from_bytes(&connection.recv().await.unwrap()).unwrap();
        let memory = connection.allocate(blocks.bytes() as usize).unwrap();
        let transfer = match request.contains(':') {
            true => connection.put_blocks(&memory, &pool, &blocks),
            false => connection.get_blocks(&memory, &pool, &blocks),
        };
        let transfer = transfer.notify(b"never").start().unwrap();
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if transfer.moved() > 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        (connection, transfer)
    });
    println!("\nmoved {}", transfer.moved());
    std::thread::sleep(LIMIT);
    drop((connection, transfer));
}

#[test]
fn streams_of_tokio_bring_back_what_was_sent() {
    for (transport, device) in to_other_processes() {
        let program = env!("CARGO_BIN_EXE_tokio_echo");
        let server = Server::start(program, &[], &transport);
        let mut client = example(program, &[&server.address]).stdin(Stdio::piped()).spawn().unwrap();
        let text = "some lines\n".repeat(10_000);
        let mut input = client.stdin.take().unwrap();
        let written = text.clone();
        let writer = std::thread::spawn(move || input.write_all(written.as_bytes()).unwrap());
        assert_eq!(output(client), format!("over {transport}/{device}\n{text}"));
        writer.join().unwrap();
        server.prints("110000 bytes");
    }
}

#[test]
fn a_server_is_known_by_its_certificate_and_over_transports_of_the_machine_alone() {
    let program = env!("CARGO_BIN_EXE_tls_handshake");
    let file = std::env::temp_dir().join(format!("uct-tls-handshake-{}.der", std::process::id()));
    let file = file.to_str().unwrap();
    let mut server = example(program, &[file]).spawn().unwrap();
    let first = line(server.stdout.as_mut().unwrap());
    let address = first.split_whitespace().last().unwrap();
    let printed = run(program, &[file, address], None);
    std::fs::remove_file(file).unwrap();
    let over = printed.lines().next().unwrap().strip_prefix("over ").unwrap();
    assert!(over.ends_with("/memory"), "{printed}");
    assert!(printed.contains("the server says hello\n"), "{printed}");
    assert!(output(server).contains(&format!("a client over {over}")));
}

#[test]
fn hyper_answers_over_shared_memory_and_over_each_other_transport() {
    for (transport, device) in to_other_processes() {
        let program = env!("CARGO_BIN_EXE_hyper_shm");
        let server = Server::start(program, &[], &transport);
        let which: &[&str] = if transport == "posix" { &[] } else { &[&transport] };
        let printed = run(program, &[&[&*server.address], which].concat(), None);
        let expected = format!("over {transport}/{device}\n200 OK: you asked for /news\n");
        assert_eq!(printed, expected);
        server.prints(&format!("a client over {transport}/{device}"));
    }
}

#[test]
fn the_steps_of_rdma_cm_come_in_their_order() {
    let program = env!("CARGO_BIN_EXE_rdma_cm_walk");
    let which = ["-t", "tcp", "-d", "lo"];
    let mut server = example(program, &which).spawn().unwrap();
    let own = line(server.stdout.as_mut().unwrap());
    assert_eq!(own, "tcp for the connection, tcp/lo for the data");
    let line = line(server.stdout.as_mut().unwrap());
    let client = example(program, &[&which[..], &[line.split_whitespace().last().unwrap()]].concat());
    let client = { client }.spawn().unwrap();
    let steps = |printed: String| -> Vec<String> {
        printed.lines().map(|line| line.split([':', ' ']).next().unwrap().to_owned()).collect()
    };
    let (client, server) = (output(client), output(server));
    assert!(client.contains("holds \"what the client reads \""), "{client}");
    assert!(server.contains("holds \"what the client writes\""), "{server}");
    assert_eq!(steps(client), ["tcp", "RESOLVED", "CONNECTED", "READ", "DISCONNECTED"]);
    assert_eq!(steps(server), ["REQUEST", "NOTIFIED", "WRITE", "DISCONNECTED"]);
}

#[test]
fn a_client_finds_a_server_by_its_address() {
    for (transport, device) in to_other_processes() {
        let server = Server::start(env!("CARGO_BIN_EXE_listen"), &["127.0.0.1:0"], &transport);
        // The server has one transport, and the client takes it from all of its own.
        let printed = run(env!("CARGO_BIN_EXE_connect"), &[&server.address], None);
        server.prints("the peer closed the connection");
        assert!(printed.contains(&format!("connected over {transport}/{device}\n")), "{printed}");
        assert!(printed.contains("the peer says hello\n"), "{printed}");
    }
}

/// Two network namespaces in place of two machines: the programs and their default address are the same, only settings differ.
#[test]
fn a_client_in_another_network_namespace_finds_a_server_at_the_default_address() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let on_cable = |program: &str, arguments: &[&str]| {
        let mut command = example(program, arguments);
        command.env("UCT_TLS", "tcp").env("UCT_NET_DEVICES", namespaces::DEVICE);
        command
    };
    let cable = Cable::new();
    let mut listen = on_cable(env!("CARGO_BIN_EXE_listen"), &[]);
    let server = cable.far(move || Server::spawn(&mut listen)).join().unwrap();
    assert_eq!(server.address, "[::]:7000");
    let place = format!("{}:7000", namespaces::FAR);
    let mut connect = on_cable(env!("CARGO_BIN_EXE_connect"), &[&place]);
    let printed = output(cable.near(move || connect.spawn().unwrap()).join().unwrap());
    for why in ["connected over tcp/cable\n", "CHOSEN    tcp/cable ", "REJECTED  posix ", "UCT_TLS"] {
        assert!(printed.contains(why), "{why:?} is missing in\n{printed}");
    }
    assert_eq!(printed.matches("CHOSEN    tcp/cable ").count(), 2, "both sides explain:\n{printed}");
    assert!(printed.ends_with("the peer says hello\n"), "{printed}");
    for why in ["connected over tcp/cable", "CHOSEN    tcp/cable ", "the peer closed the connection"] {
        server.prints(why);
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
    let receiver = "200000 messages, in order";
    over_each_transport(env!("CARGO_BIN_EXE_pending_queue"), 1, receiver, "200000 messages, ");
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

/// The port that the first line names.
fn port(stdout: &mut ChildStdout) -> String {
    let line = line(stdout);
    line.strip_prefix("waiting on port ").unwrap_or_else(|| panic!("no port: {line}")).to_owned()
}

/// The first line, read byte by byte, so that the rest stays in the pipe.
fn line(stdout: &mut ChildStdout) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stdout).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
