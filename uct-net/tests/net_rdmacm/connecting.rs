//! Connections by rdmacm: every lane, both flavours, the text of each failure, and futures that are dropped on the way. On a machine with
//! an RDMA device; the others skip them.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

#[cfg(feature = "tls")]
use crate::support::certificates;
use crate::support::random::{Random, polled};
use crate::support::rdmacm::{CM, devices, host, machine, pair};
use crate::support::{self, LIMIT, child, patient, rdmacm, seed};
use uct_core::Error as Status;
use uct_net::local::{Connection, Net};
use uct_net::{Error, NetOptions, Stage, Wait};

fn both(options: NetOptions) -> (NetOptions, NetOptions) {
    (options.clone(), options)
}

fn expect(error: &Error, parts: &[&str]) {
    for part in parts {
        assert!(error.to_string().contains(part), "{error}: expected {part:?}");
    }
}

/// Sends back what comes until the peer closes.
async fn echo(connection: Connection) -> uct_net::Result {
    loop {
        match connection.recv().within(LIMIT).await {
            Ok(message) => connection.send(&message).await?,
            Err(error) if error.is_closed_by_peer() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn every_lane_is_chosen_over_the_first_one_with_messages_and_private_data_both_ways() {
    let Some(machine) = machine() else { return };
    // The last one is an endpoint of its own: the connection leads over the other device.
    let other = if rdmacm::is_pair() { "rc_verbs/mlx5_1:1" } else { "tcp" };
    let lanes = ["rc_verbs", "tcp", "posix", other];
    // Without a proof the handshake opens no connection of tcp.
    let keyed = NetOptions { shared_key: Some(b"a key of both of them".to_vec()), ..patient() };
    pair(
        &machine,
        both(keyed),
        async move |_net, mut listener| {
            for lane in lanes {
                let incoming = listener.accept().await?;
                assert_eq!(incoming.private(), vec![4; 60_000], "{lane}");
                let connection = incoming.accept_with(vec![3; 60_000]).await?;
                if lane == "rc_verbs" {
                    assert_eq!(connection.explanation().chosen, format!("rc_verbs/{}", devices().1));
                }
                echo(connection).await?;
            }
            Ok(())
        },
        async move |net, address| {
            for lane in lanes {
                let connection = net.connect(&address).by(CM).require(lane).private(vec![4; 60_000]).await?;
                assert_eq!(connection.private(), vec![3; 60_000], "{lane}");
                let explanation = connection.explanation();
                assert!(explanation.chosen.starts_with(lane), "{explanation}");
                assert!(explanation.tried.is_empty(), "{explanation}");
                if lane == "rc_verbs" {
                    assert_eq!(explanation.chosen, format!("rc_verbs/{}", devices().0));
                }
                for length in [0, 1, 100, 5000, 300_000] {
                    let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                    connection.send(&message).await?;
                    assert!(*connection.recv().within(LIMIT).await? == *message, "{length} over {lane}");
                }
                connection.close().within(LIMIT).await?;
            }
            Ok(())
        },
    );
}

#[test]
fn memory_and_streams_work_over_the_lane_that_rdmacm_has_made() {
    let Some(machine) = machine() else { return };
    pair(
        &machine,
        both(patient()),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let memory = connection.allocate(4096)?;
            memory.write(100, b"from the server");
            connection.share(&memory).await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"look");
            assert_eq!(memory.load_u64(8), 42);
            let mut stream = connection.into_stream();
            let mut buffer = [0; 100];
            let mut came = Vec::new();
            while let count @ 1.. = poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
                came.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(came, vec![7; 10_000]);
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).by(CM).require("rc_verbs").await?;
            let remote = net.within(LIMIT, connection.shared()).await.expect("in time")?;
            let local = connection.allocate(64)?;
            connection.get(local.slice(..15), &remote, 100).await?;
            assert_eq!(&local.to_vec()[..15], b"from the server");
            assert_eq!(connection.fetch_add(&remote, 8, 42).await?, 0);
            connection.flush().await?;
            connection.send(b"look").await?;
            let mut stream = connection.into_stream();
            let mut rest = &[7; 10_000][..];
            while !rest.is_empty() {
                let count = poll_fn(|context| stream.poll_write(context, rest)).await?;
                rest = &rest[count..];
            }
            poll_fn(|context| stream.poll_shutdown(context)).await?;
            stream.connection().close().within(LIMIT).await
        },
    );
}

#[test]
fn the_flavour_for_threads_connects_and_listens_by_rdmacm_as_well() {
    let Some(machine) = machine() else { return };
    let new = || uct_net::Net::new(&machine.context, patient()).expect("a net");
    let (left, right) = (new(), new());
    let mut listener = left.block_on(left.listen(format!("{}:0", host())).by(CM)).expect("it listens");
    let address = listener.address().to_owned();
    let server = std::thread::spawn(move || {
        left.block_on(async {
            for _ in 0..3 {
                let connection = listener.accept().await?.accept_with("welcome").await?;
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
                let end = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "{end}");
            }
            Ok::<_, Error>(())
        })
    });
    for lane in ["rc_verbs", "posix", "rc_verbs"] {
        let connection = right.block_on(right.connect(&address).by(CM).require(lane)).expect("connected");
        assert_eq!(connection.private(), b"welcome");
        // No thread is in `block_on` any more: the net's own one drives it.
        let outcome = std::thread::spawn(move || {
            let waits = async {
                connection.send(b"hello").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"hello");
                connection.close().within(LIMIT).await
            };
            wait(waits)
        });
        outcome.join().expect("the thread").expect("it is driven");
    }
    server.join().expect("the server's thread").expect("the server's side");
}

/// Waits in a thread that drives nothing.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(LIMIT);
    }
}

#[test]
fn one_listener_takes_callers_of_both_kinds_on_one_port() {
    let Some(machine) = machine() else { return };
    pair(
        &machine,
        both(patient()),
        async |_net, mut listener| {
            for _ in 0..6 {
                echo(listener.accept().await?.accept().await?).await?;
            }
            Ok(())
        },
        async |net, address| {
            for round in 0..6 {
                let connect = net.connect(&address);
                let connection = if round % 2 == 0 { connect.by(CM).await? } else { connect.await? };
                connection.send(b"hello").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"hello");
                connection.close().within(LIMIT).await?;
            }
            Ok(())
        },
    );
}

#[test]
fn a_caller_that_is_rejected_gets_the_reason_and_an_aborted_one_as_well() {
    let Some(machine) = machine() else { return };
    pair(
        &machine,
        both(patient()),
        async |_net, mut listener| {
            listener.accept().await?.reject("not on a Sunday").await?;
            drop(listener.accept().await?);
            let connection = listener.accept().await?.accept().await?;
            let error = connection.recv().within(LIMIT).await.expect_err("aborted");
            expect(&error, &["aborted by the peer: \"out of paper\""]);
            Ok(())
        },
        async |net, address| {
            let error = net.connect(&address).by(CM).await.expect_err("rejected");
            assert_eq!((error.stage, error.status), (Stage::Handshake, Status::REJECTED));
            expect(&error, &["not on a Sunday"]);
            let error = net.connect(&address).by(CM).await.expect_err("dropped");
            assert_eq!(error.status, Status::REJECTED, "{error}");
            let connection = net.connect(&address).by(CM).require("rc_verbs").await?;
            connection.abort("out of paper");
            Ok(())
        },
    );
}

const KILLED: &str = "UCT_NET_RDMACM_KILLED";

/// The process that is killed: this program, by the name of this test and with an address.
#[test]
fn the_peer_that_is_killed() {
    let Ok(address) = std::env::var(KILLED) else { return };
    let net = support::net(patient());
    net.block_on(async {
        let connection = net.connect(address).by(CM).require("rc_verbs").await.expect("the parent listens");
        connection.send(b"alive").await.expect("sent");
        connection.recv().within(LIMIT).await
    })
    .expect_err("it is killed before");
}

#[test]
fn the_kernel_of_a_peer_that_is_killed_ends_the_connection() {
    let Some(machine) = machine() else { return };
    let net = Net::new(&machine.context, patient()).expect("a net");
    net.block_on(async {
        let mut listener = net.listen(format!("{}:0", host())).by(CM).await.expect("it listens");
        let mut child = child::program(the_peer_that_is_killed)
            .env(KILLED, listener.address())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        let connection = listener.accept().await.expect("a caller").accept().await.expect("connected");
        assert_eq!(&*connection.recv().within(LIMIT).await.expect("it lives"), b"alive");
        child.kill().expect("killed");
        child.wait().expect("gone");
        // The transport alone would notice later, by the keepalive of an idle endpoint.
        let error = net.within(LIMIT, connection.closed()).await.expect("it is noticed");
        assert_eq!(error.status, Status::CONNECTION_RESET, "{error}");
        expect(&error, &["the peer's rdmacm connection has ended"]);
        assert!(connection.send(b"x").await.is_err());
    });
}

#[test]
fn an_orderly_end_stays_one_when_the_peer_is_gone() {
    let Some(machine) = machine() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    pair(
        &machine,
        both(patient()),
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            connection.send(b"last").await?;
            connection.close().within(LIMIT).await?;
            drop(connection);
            sender.send(()).expect("the client waits");
            Ok(())
        },
        async move |net, address| {
            let connection = net.connect(address).by(CM).require("rc_verbs").await?;
            while receiver.try_recv().is_err() {
                net.sleep(Duration::from_millis(1)).await;
            }
            net.sleep(Duration::from_millis(300)).await;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"last");
            let end = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            assert!(connection.closed().await.is_closed_by_peer());
            Ok(())
        },
    );
}

/// rdma_cm's disconnect and the messages of the endpoint have no order: while the client looks at neither, both arrive.
#[test]
fn what_the_peer_sent_before_the_disconnect_comes_ahead_of_it() {
    /// More than one poll of the receive queue takes.
    const LAST: u32 = 24;
    /// Enough for the endpoint's window to become as long.
    const AHEAD: u32 = 2000;
    let Some(machine) = machine() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let sleepy = NetOptions { wait: Wait::Sleep, ..patient() };
    pair(
        &machine,
        (patient(), sleepy),
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            for number in 0..AHEAD {
                connection.send(&number.to_ne_bytes()).within(LIMIT).await?;
            }
            // The client is asleep, and so is its connection manager: it looks for events first when it wakes.
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"now");
            for number in 0..LAST {
                connection.send(&number.to_ne_bytes()).within(LIMIT).await?;
            }
            connection.abort("out of paper");
            drop(connection);
            sender.send(()).expect("the client waits");
            Ok(())
        },
        async move |net, address| {
            let connection = net.connect(address).by(CM).require("rc_verbs").await?;
            for number in 0..AHEAD {
                assert_eq!(*connection.recv().within(LIMIT).await?, number.to_ne_bytes());
            }
            net.sleep(Duration::from_millis(20)).await;
            connection.send(b"now").await?;
            receiver.recv_timeout(LIMIT).expect("the server has ended");
            std::thread::sleep(Duration::from_millis(500));
            for number in 0..LAST {
                assert_eq!(*connection.recv().within(LIMIT).await?, number.to_ne_bytes());
            }
            let error = connection.recv().within(LIMIT).await.expect_err("the end");
            expect(&error, &["aborted by the peer: \"out of paper\""]);
            Ok(())
        },
    );
}

#[test]
fn every_failure_has_its_stage_the_address_and_a_remedy() {
    let Some(machine) = machine() else { return };
    let net = Net::new(&machine.context, patient()).expect("a net");
    let fails = |address: &str| net.block_on(net.connect(address).by(CM)).expect_err("no such peer");
    let address = format!("{}:1", host());
    let error = fails(&address);
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::NOT_CONNECTED));
    expect(&error, &[&address, "no program listens on this port of the peer's rdma_cm", "start the server"]);
    let error = fails("127.0.0.1:7000");
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::NO_DEVICE));
    expect(&error, &["127.0.0.1:7000", "an address of a network device that has an RDMA device"]);

    let refused = |address: &str| net.block_on(net.listen(address).by(CM)).expect_err("no such place");
    let error = refused("127.0.0.1:0");
    assert_eq!((error.stage, error.status), (Stage::Listen, Status::NO_DEVICE));
    expect(&error, &["an address of a network device that has an RDMA device"]);
    // Another program listens on this port of rdma_cm, and none on that of TCP.
    let worker = uct_core::Worker::new(&machine.context).expect("a worker");
    let cm = worker.open_cm(CM).expect("it is there");
    let place = format!("{}:0", host()).parse().expect("an address");
    let other = cm.listen(place, None, |_request| ()).expect("it listens");
    let taken = other.address().expect("it listens").to_string();
    let error = refused(&taken);
    assert_eq!((error.stage, error.status), (Stage::Listen, Status::BUSY));
    expect(&error, &[&taken, "another program listens on this port of rdma_cm"]);
    assert!(std::net::TcpListener::bind(&taken).is_ok(), "the refused listener keeps no port");
}

#[test]
fn the_address_that_is_called_from_decides_the_device() {
    let Some(machine) = machine() else { return };
    let source = "10.7.0.1";
    pair(
        &machine,
        both(patient()),
        async move |_net, mut listener| {
            let incoming = listener.accept().await?;
            assert!(incoming.peer().starts_with(&format!("{source}:")), "{}", incoming.peer());
            echo(incoming.accept().await?).await
        },
        async move |net, address| {
            let connect = |from: &str| net.connect(&address).by(CM).from(from.parse().expect("an address"));
            let connection = connect(&format!("{source}:0")).require("rc_verbs").await?;
            assert_eq!(connection.explanation().chosen, format!("rc_verbs/{}", devices().0));
            connection.send(b"from there").await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"from there");
            connection.close().within(LIMIT).await?;
            let error = connect("192.0.2.1:0").await.expect_err("this machine does not have it");
            assert_eq!((error.stage, error.status), (Stage::Dial, Status::INVALID_ADDR));
            expect(&error, &["the source address is not one of this machine's", "ip addr"]);
            let error = connect("127.0.0.1:0").await.expect_err("no device has it");
            assert_eq!((error.stage, error.status), (Stage::Dial, Status::NO_DEVICE));
            Ok(())
        },
    );
}

#[test]
fn without_the_transport_that_it_connects_it_is_an_error_on_both_sides() {
    let Some(machine) = machine() else { return };
    let few = support::with(&[("tls", "tcp,posix")]);
    pair(
        &machine,
        both(patient()),
        async |net, mut listener| {
            let incoming = net.within(Duration::from_millis(500), listener.accept()).await;
            assert!(incoming.is_none(), "the caller has no endpoint to call with");
            Ok(())
        },
        async move |_net, address| {
            let net = Net::new(&few, patient()).expect("a net");
            let error = net.block_on(net.connect(&address).by(CM)).expect_err("nothing to call with");
            assert_eq!((error.stage, error.status), (Stage::Dial, Status::UNREACHABLE));
            expect(&error, &["rc_verbs is needed on mlx5_0:1", "uct_info -d"]);
            Ok(())
        },
    );
}

#[test]
fn a_shared_key_admits_peers_that_know_it_and_reveals_nothing_to_others() {
    let Some(machine) = machine() else { return };
    let with_key = |key: &str| NetOptions { shared_key: Some(key.into()), ..patient() };
    let context = machine.context.clone();
    pair(
        &machine,
        both(with_key("sixteen bytes or more")),
        async |_net, mut listener| {
            // Callers without the key never get here.
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"known");
            Ok(())
        },
        async |net, address| {
            let refused = |options: NetOptions| {
                let caller = Net::new(&context, options).expect("a net");
                caller.block_on(caller.connect(&address).by(CM)).expect_err("refused")
            };
            let error = refused(with_key("sixteen other bytes"));
            assert_eq!(error.status, Status::REJECTED);
            expect(&error, &["does not know the shared key"]);
            let error = refused(patient());
            assert_eq!(error.status, Status::REJECTED);
            expect(&error, &["requires a shared key"]);
            net.connect(&address).by(CM).require("rc_verbs").await?.send(b"known").await
        },
    );
}

#[test]
fn connects_and_accepts_that_are_dropped_end_the_wait_of_the_peer() {
    let Some(machine) = machine() else { return };
    let seed = seed::printed() | 1;
    pair(
        &machine,
        both(patient()),
        async move |_net, mut listener| {
            let mut random = Random(seed ^ 4);
            loop {
                let Some(incoming) = polled(random.below(5000), listener.accept()).await else { continue };
                let incoming = incoming?;
                if incoming.private() == b"last" {
                    return incoming.accept().await?.recv().within(LIMIT).await.map(|_| ());
                }
                if let Some(Ok(connection)) = polled(random.below(5000), incoming.accept()).await {
                    let end = connection.recv().within(LIMIT).await.expect_err("the peer sends nothing");
                    assert!(!end.is_timeout(), "the peer is gone without an error: {end}");
                }
            }
        },
        async move |net, address| {
            let mut random = Random(seed);
            for round in 0..24 {
                let lane = if round % 4 < 2 { "rc_verbs" } else { "posix" };
                let connecting = net.connect(&address).by(CM).require(lane);
                // Resolving, the request, the handshake and the lane take some thousand polls each.
                let polls = match round % 4 {
                    0 | 2 => 1 << random.below(16),
                    _ => u64::MAX,
                };
                let Some(Ok(connection)) = polled(polls, connecting.into_future()).await else { continue };
                let _ = connection.close().within(LIMIT).await.inspect_err(|error| {
                    assert!(!error.is_timeout(), "the peer is gone without an error: {error}");
                });
            }
            let connection = net.connect(&address).by(CM).private("last").await?;
            connection.send(b"end").await
        },
    );
}

#[test]
fn a_limit_of_the_whole_attempt_holds_and_an_attempt_that_is_over_leaves_nothing() {
    let Some(machine) = machine() else { return };
    let net = Net::new(&machine.context, patient()).expect("a net");
    // No machine has this address of the network, so that the stage of the address takes all of the limit.
    let limit = Duration::from_millis(300);
    let error =
        net.block_on(net.connect("10.7.0.77:7000").by(CM).within(limit)).expect_err("no such machine");
    assert!(error.is_timeout() && error.stage == Stage::Dial, "{error}");
    let options = NetOptions { handshake_timeout: limit, ..patient() };
    let net = Net::new(&machine.context, options).expect("a net");
    let error = net.block_on(net.connect("10.7.0.77:7000").by(CM)).expect_err("no such machine");
    assert!(error.stage == Stage::Dial, "{error}");
    expect(&error, &["10.7.0.77:7000"]);
}

#[cfg(feature = "tls")]
#[test]
fn a_confidential_side_neither_calls_nor_listens_by_rdmacm_as_its_data_would_be_in_clear() {
    use uct_net::Tls;
    let Some(machine) = machine() else { return };
    let authority = certificates::Authority::new("ours");
    let with = |tls: Tls| NetOptions { tls: Some(tls), ..patient() };
    let issued = authority.issue(host());
    let client = with(Tls::confidential().client(authority.client(None)));
    let confidential = with(Tls::confidential().server(issued.server()));
    let context = machine.context.clone();
    pair(
        &machine,
        (with(Tls::handshake_only().server(issued.server())), client),
        async |net, mut listener| {
            let incoming = net.within(Duration::from_millis(500), listener.accept()).await;
            assert!(incoming.is_none(), "there is no caller");
            Ok(())
        },
        async |net, address| {
            let error = net.connect(&address).by(CM).require("posix").await.expect_err("confidential");
            assert_eq!((error.stage, error.status), (Stage::Dial, Status::UNSUPPORTED));
            expect(&error, &["by(\"rdmacm\") cannot be confidential", "leave by out"]);
            let other = Net::new(&context, confidential).expect("a net");
            let error =
                other.block_on(other.listen(format!("{}:0", host())).by(CM)).expect_err("confidential");
            assert_eq!((error.stage, error.status), (Stage::Listen, Status::UNSUPPORTED));
            expect(&error, &["by(\"rdmacm\") cannot be confidential"]);
            Ok(())
        },
    );
}

#[cfg(feature = "tls")]
#[test]
fn tls_of_the_handshake_goes_over_the_first_lane() {
    use uct_net::Tls;
    let Some(machine) = machine() else { return };
    let authority = certificates::Authority::new("ours");
    let with = |tls: Tls| NetOptions { tls: Some(tls), ..patient() };
    let server = with(Tls::handshake_only().server(authority.issue(host()).server()));
    let client = with(Tls::handshake_only().client(authority.client(None)));
    let untrusted = with(Tls::handshake_only().client(certificates::Authority::new("other").client(None)));
    let context = machine.context.clone();
    pair(
        &machine,
        (server, client),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept_with(vec![3; 60_000]).await?;
            echo(connection).await
        },
        async |net, address| {
            let other = Net::new(&context, untrusted).expect("a net");
            let error = other.block_on(other.connect(&address).by(CM)).expect_err("not trusted");
            expect(&error, &["certificate is not accepted"]);
            let connection =
                net.connect(&address).by(CM).require("rc_verbs").private(vec![4; 60_000]).await?;
            assert_eq!(connection.private(), vec![3; 60_000]);
            assert!(connection.tls_peer().is_some());
            connection.send(b"hello").await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"hello");
            connection.close().within(LIMIT).await
        },
    );
}
