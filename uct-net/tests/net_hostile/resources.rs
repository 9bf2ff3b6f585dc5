//! A server of each flavour to which its peers leave no descriptor, or no memory: it goes on with the connections that it has, and takes callers
//! again when there is room. Each server is a process of its own, whose limits this one changes.

use std::future::pending;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::copy::copy_program;
use crate::support::{LIMIT, LOOPBACK, child, context, net, patient, skip};
use futures_util::future::{Either, FutureExt, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_net::{NetOptions, local};

/// The flavour of the server that this process is.
const FLAVOUR: &str = "UCT_NET_TEST_FLAVOUR";
/// The flavour for any thread, where there is none for it.
const THREADLESS: &str = "threadless";
/// A user that has no other process.
const USER: u32 = 61_235;
/// Up to so many descriptors more than it has are permitted to a server.
const SPARE: u64 = 20;
/// Bytes of memory that are not enough for a message of 64 MiB, and for all else.
const TOO_LITTLE: u64 = 8 << 20;
/// What a server may have more or less of.
const DESCRIPTORS: &str = "descriptors";
const MEMORY: &str = "memory";
/// How long a caller tries that may be in vain.
const ATTEMPT: Duration = Duration::from_millis(500);

/// A server in a process of its own.
struct Server {
    process: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: Option<thread::JoinHandle<String>>,
    address: String,
}

impl Server {
    fn start(flavour: &str) -> Server {
        let mut command = child::program(a_server_of_its_own);
        command.env(FLAVOUR, flavour);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let errors = process.stderr.take().expect("piped");
        let errors = thread::spawn(move || std::io::read_to_string(errors).expect("text"));
        let commands = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut server = Server { process, commands, output, errors: Some(errors), address: String::new() };
        server.address = server.answer("listening ");
        server
    }

    /// What follows `word` in the line that begins with it.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("text");
            assert!(count > 0, "the server has ended: {}", self.end());
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.to_owned();
            }
        }
    }

    /// Permits it so much more of something than it has; `None`: as much as the system does.
    fn permit(&mut self, what: &str, spare: Option<u64>) {
        let spare = spare.map_or("all".to_owned(), |spare| spare.to_string());
        writeln!(self.commands, "{what} {spare}").expect("it reads");
        self.answer("permitted ");
    }

    /// Ends it. Returns what it wrote to its standard error.
    fn end(&mut self) -> String {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.errors.take().map_or(String::new(), |errors| errors.join().expect("its errors"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let errors = self.end();
        if thread::panicking() {
            println!("the server's errors: {errors}");
        }
    }
}

/// Carries out what the parent requests of this process.
fn obey() {
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let (what, spare) = line.split_once(' ').expect("what, and how much");
        let resource = if what == DESCRIPTORS { Resource::Nofile } else { Resource::As };
        let limits = getrlimit(resource);
        let current = spare.parse().map_or(limits.maximum, |spare| match resource {
            // The limit is one of numbers: ahead of it so many are free.
            Resource::Nofile => (0..).filter(|number| !is_open(*number)).nth(spare),
            _ => Some(mapped() + spare as u64),
        });
        setrlimit(resource, Rlimit { current, ..limits }).expect("up to the maximum");
        println!("\npermitted {current:?}");
    }
}

/// Bytes of the address space that are in use.
fn mapped() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("memory of this process");
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number first");
    pages * rustix::param::page_size() as u64
}

fn is_open(number: u64) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}

#[test]
fn a_server_of_its_own() {
    let Ok(flavour) = std::env::var(FLAVOUR) else { return };
    if flavour == THREADLESS {
        return match uct_net::Net::new(&context(), patient()) {
            Ok(_) => println!("\nit has a thread"),
            Err(error) => println!("\nrefused: {error}"),
        };
    }
    thread::spawn(obey);
    match &*flavour {
        "local" => serve_in_one_thread(),
        _ => serve_in_threads(),
    }
}

/// Options of a server that callers may take the last descriptor from.
fn greedy() -> NetOptions {
    NetOptions { reserved_descriptors: 0, ..patient() }
}

/// Each call of a handle is a `block_on` of its own, in several threads.
fn serve_in_threads() {
    let net = uct_net::Net::new(&context(), greedy()).expect("a net");
    let mut listener = net.block_on(net.listen(LOOPBACK)).expect("it listens");
    println!("\nlistening {}", listener.address());
    loop {
        let incoming = net.block_on(listener.accept()).expect("a caller");
        let net = net.clone();
        thread::spawn(move || {
            let Ok(connection) = net.block_on(incoming.accept()) else { return };
            while let Ok(message) = net.block_on(connection.recv()) {
                if net.block_on(connection.send(&message)).is_err() {
                    return;
                }
            }
        });
    }
}

fn serve_in_one_thread() {
    let net = net(greedy());
    let mut listener = net.block_on(net.listen(LOOPBACK).into_future()).expect("it listens");
    println!("\nlistening {}", listener.address());
    // None of them ends it.
    let mut clients = FuturesUnordered::from_iter([pending().boxed_local()]);
    loop {
        // What is dropped unfinished loses no caller.
        if let Either::Left((incoming, _)) = net.block_on(select(pin!(listener.accept()), clients.next())) {
            clients.push(echo(incoming.expect("a caller")).boxed_local());
        }
    }
}

async fn echo(incoming: local::Incoming) {
    let Ok(connection) = incoming.accept().await else { return };
    while let Ok(message) = connection.recv().await {
        if connection.send(&message).await.is_err() {
            return;
        }
    }
}

/// A message there and back.
async fn exchange(connection: &local::Connection, number: u64) {
    connection.send(&number.to_le_bytes()).within(LIMIT).await.expect("the server takes it");
    let message = connection.recv().within(LIMIT).await.expect("the server replies");
    assert_eq!(*message, number.to_le_bytes());
}

/// A message for which the server has no memory ends its own connection at most, with a reason; others go on.
fn burden(flavour: &str) {
    let mut server = Server::start(flavour);
    let address = server.address.clone();
    let net = net(patient());
    let message = vec![7; 64 << 20];
    net.block_on(async {
        let served = net.connect(&address).await.expect("a connection");
        exchange(&served, 0).await;
        for transport in ["posix/memory", "cma/memory", "tcp/lo"] {
            for spare in [TOO_LITTLE, 40 << 20, 72 << 20, 100 << 20] {
                let Ok(large) = net.connect(&address).require(transport).await else {
                    println!("no {transport} here");
                    continue;
                };
                exchange(&large, spare).await;
                server.permit(MEMORY, Some(spare));
                let sent = async {
                    large.send(&message).within(LIMIT).await?;
                    large.recv().within(LIMIT).await.map(|reply| assert_eq!(reply.len(), message.len()))
                };
                let outcome = sent.await.map_err(|error| error.to_string());
                println!("{flavour}, {transport}, {spare} bytes: {outcome:?}");
                assert!(spare > TOO_LITTLE || outcome.is_err_and(|reason| reason.contains("no memory")));
                exchange(&served, spare).await;
                server.permit(MEMORY, None);
                drop(large);
                exchange(&net.connect(&address).await.expect("there is room again"), spare).await;
            }
        }
    });
    let errors = server.end();
    assert!(!errors.contains("panicked") && !errors.contains("memory allocation"), "{errors}");
}

fn starve(flavour: &str) {
    let mut server = Server::start(flavour);
    let address = server.address.clone();
    let net = net(patient());
    net.block_on(async {
        let mut served = Vec::new();
        for transport in ["posix/memory", "tcp/lo", "tcp/lo"] {
            served.push(net.connect(&address).require(transport).await.expect("a connection"));
        }
        for spare in 0..=SPARE {
            server.permit(DESCRIPTORS, Some(spare));
            // With a few descriptors a handshake comes to its end or to an error, and without one it does not begin.
            let transport = ["posix/memory", "tcp/lo"][spare as usize % 2];
            let made = net.connect(&address).require(transport).within(ATTEMPT).await;
            if let Err(error) = &made {
                println!("{flavour}, {spare} descriptors, {transport}: {error}");
            }
            drop(made);
            let callers: Vec<TcpStream> =
                (0..spare + 2).map(|_| TcpStream::connect(&address).expect("the system's queue")).collect();
            for connection in &served {
                exchange(connection, spare).await;
            }
            drop(callers);
            server.permit(DESCRIPTORS, None);
            let another = net.connect(&address).await.expect("there is room again");
            exchange(&another, spare).await;
            for connection in &served {
                exchange(connection, spare).await;
            }
        }
    });
    let errors = server.end();
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn a_server_for_any_thread_goes_on_without_descriptors() {
    starve("any");
}

#[test]
fn a_server_of_one_thread_goes_on_without_descriptors() {
    starve("local");
}

#[test]
fn a_net_without_a_thread_of_its_own_is_a_readable_error() {
    let directory = std::env::temp_dir().join(format!("uct-net-threadless-{}", std::process::id()));
    let own = std::env::current_exe().expect("this program has a path");
    // Another user may not reach the program where it lies.
    copy_program(own, &directory);
    // The process may have no second thread. Root is exempt from that limit.
    let mut command = Command::new("prlimit");
    command.arg("--nproc=1").arg(&directory).args(child::program(a_server_of_its_own).get_args());
    command.arg("--test-threads=1").env(FLAVOUR, THREADLESS).current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    let output = command.output();
    std::fs::remove_file(&directory).expect("it was made here");
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            return skip::skip("root", format_args!("this user may not become another one: {error}"));
        }
    };
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success() && !stderr.contains("panicked"), "{stdout}{stderr}");
    assert!(stdout.contains("refused: ") && stdout.contains("no thread to drive it"), "{stdout}{stderr}");
}

#[test]
fn a_server_for_any_thread_goes_on_without_memory() {
    burden("any");
}

#[test]
fn a_server_of_one_thread_goes_on_without_memory() {
    burden("local");
}
