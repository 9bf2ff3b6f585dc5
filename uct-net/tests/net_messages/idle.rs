//! A thousand connections that carry nothing wake no thread and take no processor time.

use std::collections::BTreeMap;
use std::fs;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::support::alone::is_alone;
use crate::support::{LIMIT, patient, with};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_net::Result;
use uct_net::local::{Connection, Net};

const CONNECTIONS: usize = 1000;
/// Calls at a time.
const CALLS: usize = 100;
/// Descriptors for each connection, of which both ends are in this process, at most.
const DESCRIPTORS: usize = 5;
/// How long no thread runs once all of them sleep.
const IDLE: Duration = Duration::from_secs(2);
/// One of so many spans of that length has to pass without any activity. On a busy machine a thread may not have gone to sleep yet.
const SPANS: usize = 10;

/// Keeps the nets as they are until the process has been looked at.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    fn open(&self) {
        let mut gate = self.0.lock().expect("no panic");
        gate.0 = true;
        gate.1.drain(..).for_each(Waker::wake);
    }

    async fn wait(&self) {
        poll_fn(|context| {
            let mut gate = self.0.lock().expect("no panic");
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// What the system has counted of each thread but this one: processor time in ns, and how often it was given a processor.
fn activity() -> BTreeMap<String, (u64, u64)> {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tasks = fs::read_dir("/proc/self/task").expect("the system tells").flatten();
    let tasks = tasks.map(|task| task.file_name().to_string_lossy().into_owned());
    let others = tasks.filter(|task| *task != own);
    others.map(|task| (task.clone(), counted(&task))).collect()
}

fn counted(task: &str) -> (u64, u64) {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{task}/{file}")).expect("it lives");
    let schedstat = read("schedstat");
    let time = schedstat.split_whitespace().next().and_then(|time| time.parse().ok()).expect("a time");
    let status = read("status");
    let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    (time, switches.map(|(_, count)| count.trim().parse::<u64>().expect("a number")).sum())
}

/// Waits for a span in which no other thread ran.
fn wait_for_sleep() {
    let mut seen = vec![activity()];
    for _ in 0..SPANS {
        thread::sleep(IDLE);
        let now = activity();
        if seen.last() == Some(&now) {
            return;
        }
        seen.push(now);
    }
    panic!(
        "threads run in each of {SPANS} spans of {IDLE:?}; processor time and switches of each thread: {seen:#?}"
    );
}

async fn serve(
    net: &Net,
    count: usize,
    address: mpsc::Sender<String>,
    (ready, gate): (mpsc::Sender<()>, Gate),
) -> Result {
    let mut listener = net.listen("127.0.0.1:0").await?;
    address.send(listener.address()).expect("the client waits");
    let mut connections = Vec::new();
    while connections.len() < count {
        connections.push(listener.accept().await?.accept().await?);
    }
    ready.send(()).expect("the test waits");
    gate.wait().await;
    for connection in &connections {
        let message = connection.recv().within(LIMIT).await?;
        connection.send(&message).await?;
    }
    let end = connections[0].closed().await;
    assert!(end.is_closed_by_peer(), "{end}");
    Ok(())
}

async fn call(
    net: &Net,
    (count, transport): (usize, &str),
    address: &str,
    (ready, gate): (mpsc::Sender<()>, Gate),
) -> Result {
    let calls = (0..count).map(|_| net.connect(address).require(transport).into_future());
    let connections: Vec<Connection> = stream::iter(calls).buffer_unordered(CALLS).try_collect().await?;
    ready.send(()).expect("the test waits");
    gate.wait().await;
    // They work all the same.
    for connection in &connections {
        connection.send(b"still here").await?;
    }
    for connection in &connections {
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"still here");
    }
    Ok(())
}

/// As many as there are descriptors for, after the soft limit was raised.
fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised");
    limit.maximum.map_or(CONNECTIONS, |limit| CONNECTIONS.min(limit as usize / DESCRIPTORS))
}

#[test]
fn idle_connections_wake_no_thread() {
    if !is_alone() {
        return;
    }
    let count = connections();
    for transport in ["posix/memory", "tcp/lo"] {
        let gate = Gate::default();
        let (ready, is_ready) = mpsc::channel();
        let (address, listening) = mpsc::channel();
        // Wake-ups that are asked for: a keepalive probe, and the end of the limits of connecting, which are one timer of the interface.
        let context = with(&[
            ("tcp.keepalive_interval", "inf"),
            ("tcp.connect_timeout", "1h"),
            ("tcp.hello_timeout", "1h"),
        ]);
        let server = thread::spawn({
            let (context, ready, gate) = (context.clone(), ready.clone(), gate.clone());
            move || {
                let net = Net::new(&context, patient()).expect("a net");
                net.block_on(serve(&net, count, address, (ready, gate)))
            }
        });
        let address = listening.recv_timeout(LIMIT).expect("the server listens");
        let client = thread::spawn({
            let gate = gate.clone();
            move || {
                let net = Net::new(&context, patient()).expect("a net");
                net.block_on(call(&net, (count, transport), &address, (ready, gate)))
            }
        });
        for _ in 0..2 {
            is_ready.recv_timeout(LIMIT).expect("both sides have all connections");
        }
        wait_for_sleep();
        let threads = activity().len();
        gate.open();
        client.join().expect("the client's thread").expect("the client's side");
        server.join().expect("the server's thread").expect("the server's side");
        println!("{transport}: {count} connections, {threads} threads slept for {IDLE:?}");
    }
}
