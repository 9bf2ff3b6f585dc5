//! Many connections at once and one after the other, with attackers beside: all are served, and everything is given back.

mod attackers;
mod beside;
mod other_user;

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::alone::is_alone;
use crate::support::raw::Raw;
use crate::support::{self, LIMIT, child, net, pair, raw};
use attackers::Attackers;
use beside::{HONEST, Proof, serve_all, serves};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_net::NetOptions;
use uct_net::local::{Incoming, Listener, Net};

const TRANSPORTS: [&str; 2] = ["posix/memory", "tcp/lo"];

/// Whether the attacks have their full size.
fn is_long() -> bool {
    std::env::var_os("UCT_TEST_HOSTILE").is_some()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Bytes of this process in memory, without pages of files.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let kilobytes = |name| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of kilobytes")
    };
    1024 * (kilobytes("RssAnon:") + kilobytes("RssShmem:"))
}

fn options() -> NetOptions {
    NetOptions { handshake_timeout: LIMIT, connect_timeout: LIMIT, max_half_open: 64, ..support::patient() }
}

/// So many calls at a time. With more of them than its queue has places, the system resets some.
const CALLS: usize = 1000;

/// How many connections this process is to serve over tcp, if it is the listener's.
const SERVED: &str = "UCT_NET_TEST_SERVED";

/// Permits this process as many descriptors as so many connections need, as far as the system does. Returns how many connections there
/// may be: a listener leaves a third of the descriptors to other sources, and some to other purposes.
fn permit(connections: usize) -> usize {
    let wanted = (connections * 2) as u64;
    let limits = getrlimit(Resource::Nofile);
    let most = limits.maximum.unwrap_or(u64::MAX);
    let current = limits.current.unwrap_or(u64::MAX).max(wanted.min(most));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limits }).expect("up to the maximum");
    let possible = (current / 2) as usize;
    if possible < connections {
        println!(
            "{possible} connections instead of {connections}: the hard limit is {most} descriptors (ulimit -Hn)"
        );
    }
    connections.min(possible)
}

/// Accepts so many connections and echoes a message over each.
async fn serve(listener: &mut Listener, count: usize) -> uct_net::Result {
    let mut connections = Vec::new();
    while connections.len() < count {
        connections.push(listener.accept().await?.accept().await?);
    }
    for connection in &connections {
        let message = connection.recv().within(LIMIT).await?;
        connection.send(&message).await?;
    }
    for connection in &connections {
        assert!(connection.recv().within(LIMIT).await.expect_err("the end").is_closed_by_peer());
    }
    Ok(())
}

/// Opens so many connections, with attackers beside, and has a message echoed over each.
async fn call(net: &Net, address: &str, transport: &str, count: usize) -> uct_net::Result {
    let (start, before) = (Instant::now(), resident());
    let attackers = Attackers::of_any_kind(address);
    let calls = (0..count).map(|_| net.connect(address).require(transport).into_future());
    let connecting = stream::iter(calls).buffer_unordered(CALLS.min(count)).try_collect();
    let connections: Vec<_> = net.within(LIMIT * 10, connecting).await.expect("connected in time")?;
    let each = resident().saturating_sub(before) / count as u64;
    println!(
        "{transport}: {count} connections in {:.1?}, {each} bytes of this process each",
        start.elapsed()
    );
    for (number, connection) in connections.iter().enumerate() {
        connection.send(&number.to_le_bytes()).await?;
    }
    for (number, connection) in connections.iter().enumerate() {
        assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
    }
    drop(attackers);
    for connection in &connections {
        connection.close().within(LIMIT).await?;
    }
    Ok(())
}

#[test]
fn many_connections_at_once_over_shared_memory_are_served_with_attackers_beside() {
    if !is_alone() {
        return;
    }
    let count = if is_long() { 10_000 } else { 1000 };
    pair(
        options(),
        async move |_net, mut listener| serve(&mut listener, count).await,
        async move |net, address| call(net, &address, "posix/memory", count).await,
    );
}

/// Each end of a connection over tcp has a descriptor, so the listener is a process of its own.
#[test]
fn many_connections_at_once_over_tcp_are_served_with_attackers_beside() {
    if !is_alone() {
        return;
    }
    let count = permit(if is_long() { 10_000 } else { 1000 });
    let mut server = child::start(the_listener_over_tcp, (SERVED, &count.to_string()));
    let (port, _output) = child::line(&mut server.0, "port");
    let net = net(options());
    net.block_on(call(&net, &format!("127.0.0.1:{port}"), "tcp/lo", count)).expect("the client's side");
    assert!(server.0.wait().expect("it ends").success(), "the listener's process failed");
}

#[test]
fn the_listener_over_tcp() {
    let Ok(count) = std::env::var(SERVED) else { return };
    let count = permit(count.parse().expect("a number"));
    let net = net(options());
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await?;
        println!("port {}", listener.port().expect("a port"));
        serve(&mut listener, count).await
    })
    .expect("the server's side");
}

#[test]
fn connections_one_after_the_other_leave_nothing_behind() {
    if !is_alone() {
        return;
    }
    let count: usize = if is_long() { 10_000 } else { 300 };
    for transport in TRANSPORTS {
        let (sender, receiver) = mpsc::channel();
        pair(
            options(),
            async move |net, mut listener| {
                let mut before = 0;
                for number in 0..count {
                    let connection = listener.accept().await?.accept().await?;
                    assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
                    if number == 100 {
                        before = descriptors();
                    }
                    // Some are closed, and some just dropped.
                    if number % 2 == 0 {
                        connection.close().within(LIMIT).await?;
                    }
                }
                // What lingers does so for a second at most.
                net.sleep(Duration::from_millis(1500)).await;
                let after = descriptors();
                assert!(
                    after <= before + 40,
                    "{before} descriptors before, {after} after {count} connections"
                );
                sender.send(()).expect("the client waits");
                listener.accept().await?.accept().await.map(|_| ())
            },
            async move |net, address| {
                let attackers = Attackers::of_any_kind(&address);
                for number in 0..count {
                    let connection = net.connect(&address).require(transport).await?;
                    connection.send(&number.to_le_bytes()).await?;
                    if number % 3 == 0 {
                        connection.close().within(LIMIT).await?;
                    }
                }
                drop(attackers);
                while receiver.try_recv().is_err() {
                    net.sleep(Duration::from_millis(1)).await;
                }
                // The lower bits of a token are the connection's place in the table.
                let connection = Raw::new().call(&address, transport).connect();
                let place = connection.token.header & 0xff_ffff;
                assert!(place < 32, "{place} connections were kept");
                Ok(())
            },
        );
    }
}

#[test]
fn callers_beyond_the_limit_wait_in_the_queue_of_the_system() {
    if !is_alone() {
        return;
    }
    let net = net(options());
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let raw = Raw::new();
        let callers: Vec<TcpStream> = (0..500).map(|_| raw.hello(&listener.address())).collect();
        let before = descriptors();
        let mut taken: Vec<Incoming> = Vec::new();
        for _ in 0..20 {
            taken.push(listener.accept().await.expect("a caller"));
        }
        let more = descriptors() - before;
        let most = taken.len() + options().max_half_open;
        assert!(more <= most, "{more} descriptors for callers, expected {most} at most");
        drop(callers);
    });
}

/// Callers in a listener's queue that say nothing.
fn silent(address: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).expect("the queue has room")).collect()
}

#[test]
fn a_caller_whose_first_step_has_arrived_gives_way_to_none_of_those_that_come_at_once() {
    const PLACES: usize = 8;
    if !is_alone() {
        return;
    }
    let options = NetOptions { max_half_open: PLACES, ..options() };
    let net = uct_net::Net::new(&support::context(), options).expect("a net");
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let address = listener.address().to_owned();
        // Until callers give way at once.
        let _first = silent(&address, PLACES + 1);
        assert!(net.within(Duration::from_millis(1200), listener.accept()).await.is_none());
        for _ in 0..HONEST {
            let mut honest = TcpStream::connect(&address).expect("the queue has room");
            assert!(net.within(Duration::from_millis(20), listener.accept()).await.is_none());
            honest.write_all(&first_step()).expect("sent");
            let _others = silent(&address, 10 * PLACES);
            let served = net.within(LIMIT, listener.accept()).await.expect("it is not dropped");
            let own = honest.local_addr().expect("an address").to_string();
            assert_eq!(served.expect("a caller").peer(), own);
        }
    });
}

/// Callers that stall, each until the limit of its stage.
const STALLED: usize = 10;
/// The only limit that is to be reached: what has to come in time has [`LIMIT`].
const SHORT: Duration = Duration::from_millis(50);

/// Takes callers that stall at this stage.
async fn take_stalled(listener: &mut Listener, stage: &str) -> uct_net::Result {
    for _ in 0..STALLED {
        let error = listener.accept().await?.accept().await.expect_err("the caller stalls");
        assert!(error.is_timeout() && error.to_string().contains(stage), "{error}: expected {stage}");
    }
    Ok(())
}

#[test]
fn descriptors_are_given_back_by_callers_that_stall_and_by_nets() {
    if !is_alone() {
        return;
    }
    drop(net(options()));
    let before = descriptors();
    // Callers that are silent after their first frame. It has arrived before the listener looks.
    let (sender, receiver) = mpsc::channel();
    pair(
        NetOptions { handshake_timeout: SHORT, ..options() },
        async move |_net, mut listener| {
            receiver.recv_timeout(LIMIT).expect("the callers have called");
            take_stalled(&mut listener, "choose a transport").await
        },
        async move |_net, address| {
            let raw = Raw::new();
            let stalled: Vec<_> = (0..STALLED).map(|_| raw.hello(&address)).collect();
            sender.send(()).expect("the listener waits");
            // Held until the listener is done with them: it closes its end.
            for mut caller in stalled {
                while raw.read(&mut caller).is_ok() {}
            }
            Ok(())
        },
    );
    // Callers that open a lane and send nothing over it.
    pair(
        NetOptions { lane_timeout: SHORT, ..options() },
        async |_net, mut listener| take_stalled(&mut listener, "use the lane").await,
        async move |_net, address| {
            let raw = Raw::new();
            let open = |_| raw.call(&address, "posix/memory").open().call.socket;
            for mut caller in (0..STALLED).map(open).collect::<Vec<_>>() {
                while raw.read(&mut caller).is_ok() {}
            }
            Ok(())
        },
    );
    let after = descriptors();
    assert!(after <= before, "{before} descriptors before, {after} after");
}

#[test]
fn a_listener_without_descriptors_lets_its_callers_wait_and_serves_them_later() {
    if !is_alone() {
        return;
    }
    let net = net(options());
    let mut listener = net.block_on(net.listen("127.0.0.1:0")).expect("a listener");
    let raw = Raw::new();
    let _caller = raw.hello(&listener.address());
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors() as u64 + 64), ..limits }).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let early = net.block_on(net.within(Duration::from_millis(350), listener.accept()));
    setrlimit(Resource::Nofile, limits).unwrap();
    drop(taken);
    assert!(early.is_none(), "{early:?}");
    let later = net.block_on(net.within(LIMIT, listener.accept()));
    later.expect("an answer in time").expect("the caller that waited");
}

/// What a caller sends that reaches the second step of the handshake, in which the listener is to choose with it.
fn first_step() -> Vec<u8> {
    raw::frame(raw::HELLO, &Raw::new().hello_body())
}

/// How many of these callers a listener has answered, or hung up on.
fn answered(callers: &[TcpStream]) -> usize {
    callers.iter().filter(|caller| caller.peek(&mut [0]).is_ok()).count()
}

/// Most callers that a task takes before others have a turn.
const MOST: usize = 128;

/// Callers in the queue of a listener: they have said the first step, and say nothing more.
fn queued(address: &str) -> Vec<TcpStream> {
    let words = first_step();
    let call = |_| {
        let mut caller = TcpStream::connect(address).expect("the queue has room");
        caller.write_all(&words).expect("sent");
        caller.set_nonblocking(true).expect("set");
        caller
    };
    (0..permit(CALLS)).map(call).collect()
}

#[test]
fn a_task_that_accepts_lets_others_go_on_whatever_the_queue_has() {
    if !is_alone() {
        return;
    }
    let server = uct_net::Net::new(&support::context(), options()).expect("a net");
    let mut listener = server.block_on(server.listen("127.0.0.1:0")).expect("a listener");
    let callers = queued(listener.address());
    let (begun, mut taken, mut in_a_row) = (Instant::now(), 0, 0);
    while taken < callers.len() {
        assert!(begun.elapsed() < LIMIT, "{taken} of {} were taken", callers.len());
        match listener.poll_accept(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(incoming) => drop(incoming.expect("a caller")),
            Poll::Pending => {
                in_a_row = 0;
                continue;
            }
        }
        taken += 1;
        in_a_row += 1;
        assert!(in_a_row <= MOST, "{in_a_row} in a row");
    }
}

#[test]
fn a_poll_of_streams_begins_a_bounded_number_of_connections_whatever_the_queue_has() {
    if !is_alone() {
        return;
    }
    let server = uct_net::Net::new(&support::context(), options()).expect("a net");
    let mut streams = server.block_on(server.listen("127.0.0.1:0")).expect("a listener").into_streams();
    let callers = queued(streams.address());
    let count = callers.len();
    // At first the places are full, and then each caller takes the place of one before it.
    let (begun, mut before) = (Instant::now(), 0);
    while before < count {
        assert!(begun.elapsed() < LIMIT, "{before} of {count} are answered");
        let polled = streams.poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "none of them goes on");
        let now = answered(&callers);
        assert!(now - before <= MOST, "{} at once", now - before);
        before = now;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process of another user.
#[test]
fn another_user() {
    other_user::play();
}

/// Descriptors that the process may have which is a listener that one source holds all connections to.
const PERMITTED: &str = "UCT_NET_TEST_PERMITTED";

#[test]
fn a_listener_with_few_descriptors() {
    let Ok(permitted) = std::env::var(PERMITTED) else { return };
    let limits = getrlimit(Resource::Nofile);
    let current = Some(permitted.parse().expect("a number"));
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).expect("fewer than it has");
    let net = net(options());
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        println!("port {}", listener.port().expect("a port"));
        serve_all(&net, &mut listener, || false).await;
    });
}

#[test]
fn a_source_that_holds_all_the_connections_it_can_leaves_room_for_others() {
    if !is_alone() {
        return;
    }
    let mut server = child::start(a_listener_with_few_descriptors, (PERMITTED, "200"));
    let (port, _output) = child::line(&mut server.0, "port");
    let (net, address) = (net(options()), format!("127.0.0.1:{port}"));
    let used = |source: &str, transport| {
        let source = Some(source.parse().expect("an address"));
        serves((&net, Proof::Nothing), &address, source, transport)
    };
    net.block_on(async {
        let mut held = Vec::new();
        let refusal = loop {
            match used("127.0.0.1:0", "tcp/lo").await {
                Ok(connection) => held.push(connection),
                Err(error) => break error,
            }
            assert!(held.len() < 200, "as many connections as descriptors");
        };
        let files = std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).expect("/proc").count();
        println!("{} connections, {files} descriptors, then {refusal}", held.len());
        assert!(refusal.to_string().contains("max_connections_per_source"), "{refusal}");
        for number in 0..HONEST {
            let transport = TRANSPORTS[number % 2];
            let connection = used("127.0.0.2:0", transport).await;
            connection.expect("another source has room").close().await.expect("closed");
        }
        // They are there, and their source has room again when they go.
        for connection in &held {
            connection.send(b"there").await.expect("it is connected");
            assert_eq!(*connection.recv().within(LIMIT).await.expect("an echo"), *b"there");
        }
        held.pop().expect("a connection").close().within(LIMIT).await.expect("closed");
        let begun = Instant::now();
        while let Err(error) = used("127.0.0.1:0", "tcp/lo").await {
            assert!(begun.elapsed() < LIMIT, "{error}");
        }
    });
}
