//! What surrounds a program: signals, SIGPIPE with its default effect, an exit right behind a send, programs that it starts, probes of an
//! orchestrator, a port that is listened to again, a system without /proc and /sys.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::alone::is_alone;
use crate::support::{self, LIMIT, LOOPBACK, child, net, patient, skip};
use uct_net::local::{Connection, Listener, Net};
use uct_net::{NetOptions, Wait};

/// Where the other process listens, in a process that a test starts.
const ADDRESS: &str = "UCT_NET_SURROUNDINGS_ADDRESS";
const TRANSPORTS: [&str; 2] = ["tcp/lo", "posix/memory"];

fn address() -> Option<String> {
    std::env::var(ADDRESS).ok()
}

async fn accept(net: &Net, listener: &mut Listener) -> Connection {
    let incoming = net.within(LIMIT, listener.accept()).await.expect("a caller in time");
    incoming.expect("a caller").accept().await.expect("connected")
}

/// Sends messages back until the peer closes the connection.
async fn echo(connection: &Connection) {
    loop {
        match connection.recv().within(LIMIT).await {
            Ok(message) => connection.send(&message).await.expect("sent back"),
            Err(error) if error.is_closed_by_peer() => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends messages over a connection, and gets each back.
async fn converse(connection: &Connection, count: u32) {
    for number in 0..count {
        connection.send(&number.to_le_bytes()).await.expect("sent");
        let message = connection.recv().within(LIMIT).await.expect("a response");
        assert_eq!(*message, number.to_le_bytes(), "over {}", connection.explanation().chosen);
    }
    connection.close().await.expect("closed");
}

/// Does so over each transport.
fn converse_over_each(net: &Net, address: &str, count: u32) {
    net.block_on(async {
        for transport in TRANSPORTS {
            let connection = net.connect(address).require(transport).await.expect("it listens");
            converse(&connection, count).await;
        }
    });
}

/// Listens, has `command` run with the address, and sends back what it sends over each of its connections.
fn serve(mut command: Command, connections: usize) {
    let net = net(patient());
    net.block_on(async {
        let mut listener = net.listen(LOOPBACK).await.expect("a listener");
        let mut running =
            child::Running(command.env(ADDRESS, listener.address()).spawn().expect("it starts"));
        for _ in 0..connections {
            echo(&accept(&net, &mut listener).await).await;
        }
        assert!(running.0.wait().expect("it ends").success());
    });
}

/// This program, with one of its tests.
fn program(test: impl Fn()) -> Command {
    let mut command = child::program(test);
    command.stdout(Stdio::null());
    command
}

/// In a process of its own: a peer that is killed.
#[test]
fn the_killed() {
    if address().is_none() {
        return;
    }
    let net = net(patient());
    net.block_on(async {
        let mut listener = net.listen(LOOPBACK).await.expect("a listener");
        println!("listens at {}", listener.address());
        accept(&net, &mut listener).await.closed().await;
    });
}

/// In a process of its own: writes to a peer that is killed, as a program in C does, in which SIGPIPE ends the process.
#[test]
fn the_writer() {
    if address().is_none() {
        return;
    }
    // SAFETY: no code of this process relies on this signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let net = net(patient());
    for transport in TRANSPORTS {
        let mut peer = child::start(the_killed, (ADDRESS, "-"));
        let (there, _rest) = child::line(&mut peer.0, "listens at");
        net.block_on(async {
            let connection = net.connect(there).require(transport).await.expect("it listens");
            peer.0.kill().expect("it lives");
            while connection.send(&[1; 100_000]).within(LIMIT).await.is_ok() {}
            let end = net.within(LIMIT, connection.closed()).await.expect("it is noticed");
            assert!(!end.is_closed_by_peer(), "over {transport}: {end}");
        });
    }
}

#[test]
fn a_peer_that_is_gone_raises_no_signal() {
    let status = program(the_writer).env(ADDRESS, "-").status().expect("it starts");
    assert!(status.success(), "{status}");
}

/// In a process of its own: sends and receives while a signal interrupts it each 500 microseconds, and every sleep.
#[test]
fn the_interrupted() {
    let Some(address) = address() else { return };
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: all zero is a set of no flags and no masked signals. Without SA_RESTART system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the handler does nothing, and both places are ours.
    let set = unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let interval = libc::timeval { tv_sec: 0, tv_usec: 500 };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: reads one setting, which is ours.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    for wait in [Wait::Sleep, NetOptions::default().wait] {
        converse_over_each(&net(NetOptions { wait, ..patient() }), &address, 300);
    }
}

#[test]
fn signals_interrupt_nothing() {
    serve(program(the_interrupted), 2 * TRANSPORTS.len());
}

/// In a process of its own: sends, drops all and exits.
#[test]
fn the_hurried() {
    let Some(address) = address() else { return };
    let net = net(patient());
    net.block_on(async {
        for transport in TRANSPORTS {
            let connection = net.connect(&address).require(transport).await.expect("it listens");
            for number in 0..100_u32 {
                connection.send(&number.to_le_bytes()).await.expect("sent");
            }
            connection.send(&[7; 1 << 20]).await.expect("sent");
        }
    });
    drop(net);
    std::process::exit(0);
}

#[test]
fn what_was_sent_right_before_an_exit_arrives() {
    let net = net(patient());
    net.block_on(async {
        let mut listener = net.listen(LOOPBACK).await.expect("a listener");
        let mut command = program(the_hurried);
        let mut running =
            child::Running(command.env(ADDRESS, listener.address()).spawn().expect("it starts"));
        for _ in TRANSPORTS {
            let connection = accept(&net, &mut listener).await;
            for number in 0..100_u32 {
                let message = connection.recv().within(LIMIT).await.expect("a message");
                assert_eq!(*message, number.to_le_bytes());
            }
            assert_eq!(connection.recv().within(LIMIT).await.expect("the long one").len(), 1 << 20);
            let end = connection.recv().within(LIMIT).await.expect_err("it has exited");
            assert!(end.is_closed_by_peer(), "{end}");
        }
        assert!(running.0.wait().expect("it ends").success());
    });
}

/// The descriptors of a program that is started now.
fn inherited() -> String {
    let output = Command::new("sh").args(["-c", "ls -l /proc/self/fd | grep -v ' /proc/'"]).output();
    let listed = String::from_utf8(output.expect("sh starts").stdout).expect("text");
    let targets = listed.lines().filter_map(|line| line.split_once(" -> ").map(|(_, target)| target));
    targets.filter(|target| !target.starts_with("pipe:")).collect::<Vec<_>>().join("\n")
}

#[test]
fn programs_that_are_started_inherit_no_descriptor() {
    if !is_alone() {
        return;
    }
    let before = inherited();
    let directory = tempfile::tempdir().expect("a directory");
    let path = format!("unix:{}", directory.path().join("listener").display());
    support::pair(
        patient(),
        async |net, mut listener| {
            let _of_path = net.listen(path).await?;
            let (over_tcp, over_memory) =
                (accept(net, &mut listener).await, accept(net, &mut listener).await);
            over_tcp.recv().within(LIMIT).await?;
            over_memory.recv().within(LIMIT).await.map(|_| ())
        },
        async |net, address| {
            let over_tcp = net.connect(&address).require(TRANSPORTS[0]).await?;
            let over_memory = net.connect(&address).require(TRANSPORTS[1]).await?;
            assert_eq!(inherited(), before);
            over_tcp.send(b"over").await?;
            over_memory.send(b"over").await
        },
    );
}

#[test]
fn a_port_is_listened_to_again_at_once() {
    let server = net(patient());
    let mut place = LOOPBACK.to_owned();
    for _ in 0..3 {
        let client = std::sync::mpsc::channel();
        let thread = server.block_on(async {
            let mut listener = server.listen(&place).await.expect("the port is free");
            place = listener.address();
            let (address, ended) = (place.clone(), client.0);
            let thread = std::thread::spawn(move || {
                let net = net(patient());
                net.block_on(async {
                    let connection = net.connect(address).require("tcp/lo").await.expect("it listens");
                    let end = net.within(LIMIT, connection.closed()).await.expect("it closes");
                    ended.send(end.is_closed_by_peer()).expect("the test waits");
                });
            });
            // This side closes first: its end of the connection stays in TIME_WAIT.
            accept(&server, &mut listener).await.close().await.expect("closed");
            thread
        });
        assert_eq!(client.1.recv_timeout(LIMIT), Ok(true));
        thread.join().expect("the client's thread");
    }
}

#[test]
fn probes_of_an_orchestrator_disturb_no_caller() {
    let server = net(patient());
    server.block_on(async {
        let mut listener = server.listen(LOOPBACK).await.expect("a listener");
        let address = listener.address();
        let prober = std::thread::spawn(move || {
            for _ in 0..50 {
                drop(TcpStream::connect(&address).expect("it listens"));
            }
            let mut health = TcpStream::connect(&address).expect("it listens");
            health.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n").expect("sent");
            health.set_read_timeout(Some(LIMIT)).expect("a limit");
            // It is hung up on, with or without an answer.
            let _ = health.read_to_end(&mut Vec::new());
            converse_over_each(&net(patient()), &address, 3);
        });
        for _ in TRANSPORTS {
            echo(&accept(&server, &mut listener).await).await;
        }
        prober.join().expect("the prober");
    });
}

/// In a process of its own: by whatever transport there is.
#[test]
fn the_caller() {
    let Some(address) = address() else { return };
    let net = net(patient());
    net.block_on(async {
        converse(&net.connect(address).await.expect("it listens"), 10).await;
    });
}

#[test]
fn a_system_without_proc_and_sys_is_enough() {
    let hide = "mount -t tmpfs none /proc && mount -t tmpfs none /sys";
    let hidden = |work: &str, program: &Command| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", &format!("{hide} && {work}"), "sh"]);
        command.arg(program.get_program()).args(program.get_args()).stdout(Stdio::null());
        command
    };
    if !skip::is_root("hide /proc and /sys") {
        return;
    }
    if !hidden("true", &program(the_caller)).status().is_ok_and(|status| status.success()) {
        skip::skip("root", "unshare --mount, or mount, is not permitted here");
        return;
    }
    serve(hidden("exec \"$@\"", &program(the_caller)), 1);
}
