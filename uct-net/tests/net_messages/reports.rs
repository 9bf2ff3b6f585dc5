//! What reports of connections contain, for a program and for `uct_info --attach`.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{self, LIMIT, LOOPBACK, pair_of, patient, serve, transports};
use uct_core::Context;
use uct_core::attach::{ConnectionReport, IfaceReport, Sent, Snapshot};
use uct_core::configuration::{FileSource, Sources};
use uct_net::local::{Connection, Net, RemoteMemory};
use uct_net::{Block, Blocks};

/// A context whose program sees its workers.
fn reporting() -> Context {
    let env = std::env::vars_os().filter(|(name, _)| name == "UCT_MODULE_DIR").collect();
    let sources = Sources { file: FileSource::None, env, overrides: Default::default() };
    Context::builder().sources(sources).reports().build().expect("a context")
}

/// A report, while this thread drives its net.
async fn report(context: &Context, net: &Net) -> Snapshot {
    let context = context.clone();
    let reporter = thread::spawn(move || context.report().expect("it was asked for"));
    while !reporter.is_finished() {
        net.sleep(Duration::from_millis(1)).await;
    }
    reporter.join().expect("no panic")
}

fn connections(snapshot: &Snapshot) -> Vec<&ConnectionReport> {
    let reports = snapshot.workers.iter().filter_map(|worker| worker.report.as_ref());
    reports.flat_map(|report| &report.connections).collect()
}

/// The connection to a peer, or the one to any other.
fn to<'a>(snapshot: &'a Snapshot, peer: &str, is_it: bool) -> &'a ConnectionReport {
    let found = connections(snapshot).into_iter().find(|connection| (connection.peer == peer) == is_it);
    found.unwrap_or_else(|| panic!("no such connection: {snapshot:#?}"))
}

/// Operations and bytes of some kinds.
fn count(sent: &[Sent], kind: &str) -> (u64, u64) {
    let of_kind = sent.iter().filter(|sent| sent.kind.starts_with(kind));
    of_kind.fold((0, 0), |(operations, bytes), sent| (operations + sent.operations, bytes + sent.bytes))
}

/// The interface of a connection that carried out something for its peer, if it counts that.
fn serving<'a>(snapshot: &'a Snapshot, connection: &ConnectionReport) -> &'a IfaceReport {
    let reports = snapshot.workers.iter().filter_map(|worker| worker.report.as_ref());
    let mut reports =
        reports.filter(|report| report.connections.iter().any(|it| it.number == connection.number));
    let report = reports.next().expect("it has a worker");
    report.interfaces.iter().find(|iface| iface.number == connection.interface).expect("an interface")
}

#[test]
fn a_connection_reports_what_both_sides_have_sent() {
    for transport in transports() {
        let context = reporting();
        let (done, is_done) = mpsc::channel();
        let required = transport.clone();
        let server = async move |net: &Net, mut listener: uct_net::local::Listener| {
            let connection = listener.accept().await?.accept().await?;
            let memory = connection.allocate(1 << 16)?;
            connection.share(&memory).await?;
            for _ in 0..3 {
                assert_eq!(connection.recv().await?.len(), 100);
            }
            connection.send(b"all of it").await?;
            while is_done.try_recv().is_err() {
                net.sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        };
        let seen = context.clone();
        pair_of(&context, patient(), server, async |net, address| {
            let connection = net.connect(&address).require(&required).await?;
            let remote = connection.shared().await?;
            let local = connection.allocate(4096)?;
            for _ in 0..3 {
                connection.send(&[1; 100]).await?;
            }
            connection.put(local.slice(..1000), &remote, 0).await?;
            connection.get(local.slice(..2000), &remote, 0).await?;
            connection.fetch_add(&remote, 8, 1).await?;
            connection.flush().await?;
            assert_eq!(&*connection.recv().await?, b"all of it");
            let snapshot = report(&seen, net).await;
            let (near, far) = (to(&snapshot, &address, true), to(&snapshot, &address, false));
            assert_eq!(format!("{}/{}", near.transport, near.device), transport);
            assert_eq!((&*near.state, &*far.state, &near.failure), ("open", "open", &None));
            assert_eq!((near.in_flight, near.waiting_ns, near.unread), (0, None, 0), "{near:#?}");
            assert_eq!(near.transfers, []);
            assert!(near.number != far.number && near.peer_pid.is_none() && !near.inside_tls);
            // What one side has sent is what the other one has received, envelopes and all.
            for (here, there) in [(near, far), (far, near)] {
                let received = (there.received, there.received_bytes);
                assert_eq!(count(&here.sent, "am_"), received, "over {transport}: {near:#?} {far:#?}");
            }
            assert!(far.received >= 3 && far.received_bytes >= 300, "{far:#?}");
            assert_eq!(count(&near.sent, "put"), (1, 1000));
            assert_eq!(count(&near.sent, "get"), (1, 2000));
            assert_eq!(count(&near.sent, "atomic"), (1, 8));
            // Where a device, the kernel or the peer itself accesses the memory, nothing is counted.
            let served = serving(&snapshot, far).served.as_deref();
            let is_counted = ["tcp", "ud_verbs"].contains(&&*near.transport);
            assert_eq!(served.is_some(), is_counted, "over {transport}");
            if let Some(served) = served {
                let kinds = ["put", "get", "atomic"].map(|kind| count(served, kind));
                assert_eq!(kinds, [(1, 1000), (1, 2000), (1, 8)], "over {transport}");
            }
            done.send(()).expect("the server waits");
            Ok(())
        });
    }
}

/// Connects to a server in a thread that shares memory, and then does not drive its net before `go_on` is sent.
fn with_deaf_server(
    transport: &str,
    client: impl AsyncFnOnce(&Context, &Net, (&Connection, &RemoteMemory), &mpsc::Sender<()>),
) {
    let context = reporting();
    let ((go_on, goes_on), (deaf, is_deaf)) = (mpsc::channel::<()>(), mpsc::channel());
    let (thread, address) =
        serve(&support::context(), patient(), LOOPBACK, async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let memory = connection.allocate(1 << 20)?;
            connection.share(&memory).await?;
            assert_eq!(&*connection.recv().await?, b"deaf");
            deaf.send(()).expect("the client waits");
            goes_on.recv_timeout(LIMIT).expect("the client goes on");
            while connection.recv().await.is_ok() {}
            Ok(())
        });
    let net = Net::new(&context, patient()).expect("a net");
    let connected = net.block_on(async {
        let connection = net.connect(&address).require(transport).await?;
        let remote = connection.shared().await?;
        connection.send(b"deaf").await?;
        is_deaf.recv_timeout(LIMIT).expect("the server has the message");
        client(&context, &net, (&connection, &remote), &go_on).await;
        connection.close().await
    });
    connected.expect("the client's side");
    thread.join().expect("the server's thread");
}

#[test]
fn what_the_peer_does_not_answer_is_in_flight_since_it_was_begun() {
    const STEP: Duration = Duration::from_millis(50);
    let tcp =
        transports().into_iter().find(|transport| transport.starts_with("tcp/")).expect("it is required");
    with_deaf_server(&tcp, async |context, net, (connection, remote), go_on| {
        let local = connection.allocate(1 << 20).expect("memory");
        // Its future is dropped, and it goes on.
        let get = connection.get(local.slice(..100), remote, 0);
        assert!(net.within(STEP, get).await.is_none(), "nobody carries it out");
        let blocks: Blocks =
            (0..10).map(|at| Block { local: at * 200, remote: at * 200, length: 100 }).collect();
        let transfer = connection.get_blocks(&local, remote, &blocks).start().expect("it starts");
        let first = report(context, net).await;
        net.sleep(STEP).await;
        let second = report(context, net).await;
        let [first, second] = [&first, &second].map(|snapshot| connections(snapshot)[0]);
        assert_eq!((first.in_flight, second.in_flight), (2, 2), "{second:#?}");
        let [first_age, second_age] =
            [first, second].map(|it| Duration::from_nanos(it.waiting_ns.expect("it waits")));
        assert!(first_age > Duration::ZERO && second_age >= first_age + STEP, "{first_age:?} {second_age:?}");
        let [moving] = &second.transfers[..] else { panic!("one transfer: {second:#?}") };
        assert_eq!((&*moving.kind, moving.blocks, moving.bytes, moving.moved), ("get", 10, 1000, 0));
        assert!(Duration::from_nanos(moving.age_ns) >= STEP);
        go_on.send(()).expect("the server waits");
        transfer.await.expect("all blocks move");
        connection.flush().await.expect("it ends");
        let last = report(context, net).await;
        let last = connections(&last)[0];
        assert_eq!((last.in_flight, last.waiting_ns, &last.transfers[..]), (0, None, &[][..]), "{last:#?}");
    });
}

#[test]
fn a_message_that_has_not_left_is_in_flight() {
    let tcp =
        transports().into_iter().find(|transport| transport.starts_with("tcp/")).expect("it is required");
    with_deaf_server(&tcp, async |context, net, (connection, _remote), go_on| {
        // More than the window of the peer.
        let message = vec![1; 8 << 20];
        let mut send = std::pin::pin!(connection.send(&message).into_future());
        assert!(net.within(Duration::from_millis(20), send.as_mut()).await.is_none(), "the window is full");
        net.sleep(Duration::from_millis(20)).await;
        let seen = report(context, net).await;
        let seen = connections(&seen)[0];
        assert_eq!((seen.in_flight, &*seen.state), (1, "open"), "{seen:#?}");
        assert!(seen.waiting_ns >= Some(20_000_000), "{seen:#?}");
        go_on.send(()).expect("the server waits");
        send.await.expect("it is sent");
        let seen = report(context, net).await;
        assert_eq!(connections(&seen)[0].in_flight, 0);
    });
}

#[test]
fn connections_of_the_flavour_for_any_thread_are_reported_in_every_state() {
    let context = reporting();
    let net = || uct_net::Net::new(&context, patient()).expect("a net");
    let (left, right) = (net(), net());
    let mut listener = left.block_on(left.listen(LOOPBACK)).expect("it listens");
    let address = listener.address().to_owned();
    let accepting = thread::spawn({
        let left = left.clone();
        move || left.block_on(async { listener.accept().await?.accept().await }).expect("a connection")
    });
    let there = right.block_on(right.connect(&address).into_future()).expect("a connection");
    let here = accepting.join().expect("the server's thread");
    right.block_on(there.send(b"one").into_future()).expect("it is sent");
    let snapshot = || context.report().expect("it was asked for");
    // The thread of a net receives it in its own time.
    let deadline = std::time::Instant::now() + LIMIT;
    while to(&snapshot(), &address, false).unread != 1 {
        assert!(std::time::Instant::now() < deadline, "{:#?}", snapshot());
    }
    let seen = snapshot();
    let (near, far) = (to(&seen, &address, true), to(&seen, &address, false));
    assert_eq!((&*near.state, &*far.state, far.in_flight), ("open", "open", 0));
    assert_eq!(&*left.block_on(here.recv().into_future()).expect("a message"), b"one");
    assert_eq!(to(&snapshot(), &address, false).unread, 0);
    there.abort("that is enough");
    while to(&snapshot(), &address, false).state != "failed" {
        assert!(std::time::Instant::now() < deadline, "{:#?}", snapshot());
    }
    let seen = snapshot();
    let failure = to(&seen, &address, false).failure.clone().expect("it has failed");
    assert!(failure.contains("that is enough"), "{failure}");
    drop((here, there));
    while !connections(&snapshot()).is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:#?}", snapshot());
    }
}

#[test]
fn the_process_at_the_other_end_of_a_unix_path_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = format!("unix:{}", directory.path().join("listener").display());
    let context = reporting();
    let (thread, address) = serve(&context, patient(), &place, async |_net, mut listener| {
        let connection = listener.accept().await?.accept().await?;
        while connection.recv().await.is_ok() {}
        Ok(())
    });
    let net = Net::new(&context, patient()).expect("a net");
    let connected = net.block_on(async {
        let connection = net.connect(&address).await?;
        // The server may not have returned its side yet.
        let named = async || {
            let seen = report(&context, &net).await;
            let pids = connections(&seen).into_iter().map(|connection| connection.peer_pid);
            pids.collect::<Vec<_>>() == [Some(std::process::id()); 2]
        };
        let named = net.within(LIMIT, async { while !named().await {} }).await;
        assert!(named.is_some(), "{:#?}", report(&context, &net).await);
        connection.close().await
    });
    connected.expect("the client's side");
    thread.join().expect("the server's thread");
}
