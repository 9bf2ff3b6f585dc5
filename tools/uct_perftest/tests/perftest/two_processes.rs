//! Server and client in two processes, as they end well and as they do not.

use std::future::IntoFuture;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::port::free_port;
use crate::support::process::start;
use crate::support::{ended, parse, perftest, resources, results, server};
use uct_core::configuration::Sources;
use uct_core::{Context, DeviceKind};
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};

#[test]
fn every_transport_that_connects_processes_does() {
    for resource in resources().into_iter().filter(|resource| resource.kind != DeviceKind::Myself) {
        for test in ["am_lat", "am_bw", "put_bw", "fadd", "connect", "await_lat", "stream_bw"] {
            let port = free_port();
            let (transport, device) = (&resource.transport, &resource.device);
            let options = format!("-x {transport} -d {device} -t {test}");
            let server = server(port, &options);
            let ended = ended(&format!("-p {port} localhost {options} -n 50 -w 5 --json"));
            let document = parse(&ended.success());
            assert_eq!(document["test"], test);
            assert!(results(&document)[0]["cpu"]["server_ns"].as_f64().unwrap() > 0.0);
            assert!(server.end().success().contains(&format!("Serving {test} on {resource}")));
        }
    }
}

#[test]
fn the_client_alone_says_what_is_measured_and_the_best_of_both_is_taken() {
    let port = free_port();
    let server = server(port, "");
    let printed = ended(&format!("-p {port} localhost -n 50 -w 5 -t am_bw -s 8:100 --explain")).success();
    assert!(
        printed.contains("CHOSEN ") && printed.contains("8 short:") && printed.contains("100 "),
        "{printed}"
    );
    server.end().success();
}

#[test]
fn a_server_turns_strangers_away_and_serves_the_client_that_comes_then() {
    let port = free_port();
    let server = server(port, "--set log_level=uct_net=debug,warn");
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 64], b"UCT", b""] {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stranger.write_all(garbage);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    // What a client sends first, without addresses: one that leaves, and one that stays and stops.
    let counted = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    let field = |tag: u8, bytes: &[u8]| [&[tag, 0x80][..], &counted(bytes)].concat();
    let hello = [field(1, b"uct_perftest 3"), field(2, b"UCTA\x01\0\0")].concat();
    let hello = [&b"UCTN\x06\x01\0\0"[..], &counted(&hello)].concat();
    let [mut leaves, mut stays] = [0; 2].map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap());
    leaves.write_all(&hello).unwrap();
    drop(leaves);
    stays.write_all(&hello).unwrap();
    let refused = connected(port, b"another program").unwrap_err();
    assert!(refused.reason.contains("not a uct_perftest of this version"), "{refused}");
    ended(&format!("-p {port} localhost -n 20 -w 5")).success();
    let ended = server.end();
    let count = |words| ended.stderr.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count("a caller was dropped"), 4, "{}", ended.stderr);
    assert_eq!(count("was rejected: it is not") + count("a client failed"), 2, "{}", ended.stderr);
    ended.success();
}

/// Connects to a server as a program with these private data; the connection and what drives it.
fn connected(port: u16, private: &[u8]) -> uct_net::Result<(Net, Connection)> {
    let context = Context::builder().sources(Sources::default()).build().unwrap();
    let net = Net::new(&context, NetOptions::default())?;
    let connect = net.connect(format!("127.0.0.1:{port}")).private(private);
    let connection = net.block_on(connect.into_future())?;
    Ok((net, connection))
}

#[test]
fn a_peer_that_talks_nonsense_ends_a_server_with_one_line() {
    for (message, words) in [
        // A message out of order, an empty one, one of no kind, and a plan that is no plan.
        (&[3][..], "expected Plan"),
        (&[], "empty"),
        (&[200, 1, 2], "kind 200"),
        (b"\x01{}", "Plan cannot be parsed"),
        (
            b"\x01{\"test\":\"am_lat\",\"wait\":\"poll\",\"window\":0,\"outstanding\":0,\"cases\":[]}",
            "plan is invalid",
        ),
    ] {
        let port = free_port();
        let server = server(port, "");
        let (net, connection) = connected(port, b"uct_perftest 3").unwrap();
        net.block_on(connection.send(message)).unwrap();
        let line = server.end().failure();
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn a_peer_that_is_killed_ends_the_other_side_soon_and_with_a_reason() {
    // What notices a death is the transport; what is made of it is the test's. So one transport has all tests, the others have two.
    let victims = [
        ("am_lat", "server"),
        ("put_bw", "client"),
        ("am_bw", "client"),
        ("put_lat", "server"),
        ("connect", "server"),
        ("await_lat", "client"),
        ("stream_bw", "server"),
    ];
    let others = resources().into_iter().filter(|resource| resource.kind != DeviceKind::Myself);
    for (index, resource) in others.enumerate() {
        let tests = if index == 0 { victims.len() } else { 2 };
        for (test, victim) in &victims[..tests] {
            let port = free_port();
            let mut server = server(port, "");
            let (transport, device) = (&resource.transport, &resource.device);
            let line = format!(
                "-p {port} localhost -x {transport} -d {device} -t {test} -n 1000000000 -f --timeout 90"
            );
            let mut client = start(&mut perftest(&line));
            std::thread::sleep(Duration::from_millis(700));
            let killed = Instant::now();
            let left = if *victim == "server" {
                server.kill();
                client
            } else {
                client.kill();
                server
            };
            let ended = left.end();
            let after = killed.elapsed();
            assert!(after < Duration::from_secs(60), "{resource} {test}: noticed after {after:?}: {ended:?}");
            let line = ended.failure();
            assert!(line.starts_with("uct_perftest: "), "{line}");
        }
    }
}

#[test]
fn a_peer_that_stops_ends_the_other_side_when_its_patience_is_over() {
    for test in ["am_lat", "connect", "await_lat", "stream_bw"] {
        let port = free_port();
        let server = server(port, "--timeout 60");
        let stop = |signal: &str| {
            let pid = server.id().to_string();
            assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        };
        let line = format!("-p {port} localhost -t {test} -n 1000000000 -f --timeout 1");
        let client = start(&mut perftest(&line));
        std::thread::sleep(Duration::from_millis(700));
        stop("-STOP");
        let line = client.end().failure();
        // A handshake that stops has a limit for each step.
        let words = ["--timeout", "connection failed", "within 1"];
        assert!(words.iter().any(|words| line.contains(words)), "{test}: {line}");
        stop("-CONT");
        server.end().failure();
    }
}

#[test]
fn what_cannot_be_is_one_line_that_says_what_to_do() {
    let port = free_port();
    let line = ended(&format!("-p {port} localhost -n 5")).failure();
    assert!(line.contains("no server") && line.contains(&format!("uct_perftest -p {port}")), "{line}");

    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let line = ended(&format!("-p {port}")).failure();
    assert!(line.contains(&port.to_string()) && line.contains("-p"), "{line}");

    let line = ended(&format!("-p {} --timeout 0.3", free_port())).failure();
    assert!(line.contains("no client came") && line.contains("--timeout"), "{line}");

    for (arguments, words) in [
        ("-l -x slef", "did you mean \"self\""),
        ("-l -x self -d memroy", "did you mean \"memory\""),
        ("-l -d nowhere", "no device \"nowhere\""),
        ("-l -x self -D short -s 1m", "-D"),
        ("-l -t fadd -s 16", "4 or 8 bytes"),
        ("-l -t put_lat -s 0", "at least 1 byte"),
        ("-l -t put_lat -E event", "-E poll"),
        ("-l -t am_bw -W 1", "-W 1"),
        ("-l -t await_lat -D short", "leave -D out"),
        ("-l -t stream_lat -s 0", "at least 1 byte"),
        ("-p 1 --plot x.svg", "--plot"),
        ("-l -x self -n 5 --plot /nonexistent/x.svg", "/nonexistent/x.svg"),
        ("-p 1 --by tcp", "leave it out"),
        ("-p 1 127.0.0.1 --by tcp", "leave it out"),
        ("-p 1 127.0.0.1 --by nonesuch", "nonesuch"),
        ("-l --set nonsense=1", "nonsense"),
        ("--compare /nonexistent/a /nonexistent/b", "/nonexistent/a"),
    ] {
        let line = ended(arguments).failure();
        assert!(line.contains(words), "{arguments}: {line}");
    }
    for arguments in [
        "-t am",
        "-s 8..",
        "-n 0",
        "-l host",
        "-l --by tcp",
        "-E sometimes",
        "--timeout 0",
        "-c x",
        "-D long",
    ] {
        let ended = ended(arguments);
        assert_eq!(ended.code, Some(2), "{arguments}: {ended:?}");
    }
}

#[test]
fn a_transport_that_one_side_lacks_is_told_on_both_and_the_server_goes_on() {
    let port = free_port();
    let server = server(port, "-x tcp");
    let line = ended(&format!("-p {port} localhost -n 5 -x posix")).failure();
    assert!(line.contains("no transport for am_"), "{line}");
    ended(&format!("-p {port} localhost -n 5 -x tcp")).success();
    let server = server.end();
    let words = "the peer gave up: \"no transport for am_";
    assert_eq!(server.stderr.matches(words).count(), 1, "{}", server.stderr);
    server.success();
}
