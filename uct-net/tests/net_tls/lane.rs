//! Lanes inside TLS: what goes over them, what a host on the path sees, back pressure, and how they end.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::certificates::Authority;
use crate::support::path::{Harm, Path};
use crate::support::random::{Random, polled};
use crate::support::spans::Spans;
use crate::support::tls_lane::{HERE, confidential, only_tcp};
use crate::support::{self, LIMIT, LOOPBACK, pair_of, seed, serve, with};
use tracing::level_filters::LevelFilter;
use uct_core::{AmId, Error as Status};
use uct_net::local::{Connection, Listener, Net};
use uct_net::{Error, NetOptions, Tls, Wait};

/// What is sent all the time, and must not be seen.
const MARKER: &[u8; 16] = b"<secret-content>";

fn marked(length: usize) -> Vec<u8> {
    MARKER.repeat(length / MARKER.len() + 1)[..length].to_vec()
}

fn is_wrapped(connection: &Connection) {
    let explanation = connection.explanation();
    assert_eq!(explanation.chosen, "tcp/lo inside TLS");
    let words = explanation.to_string();
    assert!(words.contains("connected over tcp/lo inside TLS"), "{words}");
}

#[test]
fn every_operation_works_inside_tls_and_a_host_on_the_path_reads_none() {
    let large = marked(3_000_000);
    let expected = large.clone();
    let mut on_the_path = None;
    pair_of(
        &only_tcp(),
        confidential(),
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            is_wrapped(&connection);
            let memory = connection.allocate(1 << 20)?;
            connection.share(&memory).await?;
            for length in [1, 100, 20_000, 300_000, 3_000_000] {
                assert!(*connection.recv().within(LIMIT).await? == expected[..length], "{length}");
                connection.send(&expected[..length]).await?;
            }
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"written");
            assert_eq!(memory.load_u64(8), 42);
            let mut read = vec![0; 600_000];
            memory.read(1000, &mut read);
            assert!(read == expected[..600_000]);
            connection.send(b"read").await?;
            let mut stream = connection.into_stream();
            let (mut came, mut buffer) = (Vec::new(), vec![0; 10_000]);
            loop {
                match poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
                    0 => break,
                    count => came.extend_from_slice(&buffer[..count]),
                }
            }
            assert!(came == expected);
            stream.connection().close().within(LIMIT).await
        },
        async |net, address| {
            let path = on_the_path.insert(Path::before(&address));
            let connection = net.connect(&path.address).within(LIMIT).await?;
            is_wrapped(&connection);
            assert!(connection.tls_peer().is_some());
            let remote = connection.shared().await?;
            for length in [1, 100, 20_000, 300_000, 3_000_000] {
                connection.send(&large[..length]).within(LIMIT).await?;
                assert!(*connection.recv().within(LIMIT).await? == large[..length], "{length}");
            }
            let local = connection.allocate(600_000)?;
            local.write(0, &large[..600_000]);
            connection.put(local.slice(..), &remote, 1000).await?;
            assert_eq!(connection.fetch_add(&remote, 8, 40).await?, 0);
            assert_eq!(connection.fetch_add(&remote, 8, 2).await?, 40);
            connection.flush().await?;
            let back = connection.allocate(600_000)?;
            connection.get(back.slice(..), &remote, 1000).await?;
            assert!(back.to_vec()[..600_000] == large[..600_000]);
            connection.send(b"written").await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"read");
            let mut stream = connection.into_stream();
            let mut rest = &*large;
            while !rest.is_empty() {
                let most = rest.len().min(65_536);
                let count = poll_fn(|context| stream.poll_write(context, &rest[..most])).await?;
                rest = &rest[count..];
            }
            poll_fn(|context| stream.poll_shutdown(context)).await?;
            stream.connection().close().within(LIMIT).await
        },
    );
    let path = on_the_path.expect("it was called");
    assert!(path.bytes() > 9_000_000, "all went past it");
    assert!(!path.has_seen(&MARKER[..]), "the contents were seen");
    assert!(!path.has_seen_like(begins_in_clear), "a frame or a hello was seen");
}

/// The first eight bytes of a frame of the handshake, or of the hello of `tcp`. Its first four alone are among nine million random ones now and then.
fn begins_in_clear(bytes: &[u8]) -> bool {
    (bytes.starts_with(b"UCTN") && bytes[6..8] == [0, 0])
        || (bytes.starts_with(b"UCTt") && bytes[5] == 0 && bytes[7] == 0)
}

#[test]
fn a_lane_within_the_machine_is_preferred_and_tcp_is_in_the_explanation() {
    pair_of(
        &with(&[]),
        confidential(),
        async |_net, mut listener| {
            for _ in 0..2 {
                listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            }
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(&address).await?;
            assert!(connection.explanation().chosen.ends_with("/memory"), "{}", connection.explanation());
            connection.send(b"near").await?;
            connection.close().await?;
            let connection = net.connect(&address).require("tcp/lo").await?;
            is_wrapped(&connection);
            connection.send(b"far").await?;
            connection.close().await
        },
    );
}

#[test]
fn over_a_unix_socket_it_works_as_well() {
    let path = std::env::temp_dir().join(format!("uct-net-tls-lane-{}", std::process::id()));
    let (place, options) = (format!("unix:{}", path.display()), confidential());
    let echo = async |_net: &Net, mut listener: Listener| {
        let connection = listener.accept().await?.accept().await?;
        let message = connection.recv().within(LIMIT).await?;
        connection.send(&message).await?;
        connection.close().within(LIMIT).await
    };
    let (server, address) = serve(&only_tcp(), options.clone(), &place, echo);
    let net = Net::new(&only_tcp(), options).expect("a net");
    net.block_on(async {
        let connection = net.connect(address).server_name(HERE).within(LIMIT).await?;
        is_wrapped(&connection);
        connection.send(&marked(100_000)).await?;
        assert!(*connection.recv().within(LIMIT).await? == marked(100_000));
        connection.close().within(LIMIT).await
    })
    .expect("the client's side");
    server.join().expect("the server's thread");
}

#[test]
fn a_side_that_would_send_in_clear_finds_no_lane() {
    let authority = Authority::new("ours");
    let (server, client) = (authority.issue(HERE), authority.client(None));
    let made: [fn() -> Tls; 2] = [Tls::confidential, Tls::handshake_only];
    for at in [0, 1] {
        let server = NetOptions { tls: Some(made[at]().server(server.server())), ..support::patient() };
        let client = NetOptions { tls: Some(made[1 - at]().client(client.clone())), ..support::patient() };
        let server_side = async |_net: &Net, mut listener: Listener| {
            let error = listener.accept().await?.accept().await.expect_err("no lane");
            assert!(error.to_string().contains("the peer gave up"), "{error}");
            Ok(())
        };
        let (serving, address) = serve(&only_tcp(), server, LOOPBACK, server_side);
        let net = Net::new(&only_tcp(), client).expect("a net");
        let error = net.block_on(net.connect(address).within(LIMIT).into_future()).expect_err("no lane");
        assert_eq!(error.status, Status::UNREACHABLE, "{error}");
        let theirs = if at == 0 { "the peer has \"tcp+tls/" } else { "the peer has \"tcp/" };
        assert!(error.to_string().contains(theirs), "{error}");
        serving.join().expect("the server's thread");
    }
}

#[test]
fn a_sender_waits_while_the_peer_does_not_read_and_continues_afterwards() {
    const LENGTH: usize = 64 << 10;
    const MOST: usize = 64 << 20;
    // So much credit limits nothing.
    let options = NetOptions { window: 1 << 30, ..confidential() };
    let (sender, receiver) = mpsc::channel();
    pair_of(
        &only_tcp(),
        options,
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            connection.send(b"begin").await?;
            let count: usize = loop {
                let message = connection.recv().within(LIMIT).await?;
                if message.len() != LENGTH {
                    break message.len();
                }
                sender.send(message[0]).expect("it is counted");
            };
            assert_eq!(count, 1);
            drop(sender);
            connection.close().within(LIMIT).await
        },
        async |net, address| {
            let path = Path::before(&address);
            let connection = net.connect(&path.address).within(LIMIT).await?;
            connection.recv().within(LIMIT).await?;
            path.stall(true);
            let mut sent = 0_usize;
            loop {
                let message = vec![sent as u8; LENGTH];
                let sending = std::pin::pin!(connection.send(&message));
                match net.within(Duration::from_secs(1), sending).await {
                    Some(outcome) => outcome?,
                    // It is withdrawn, or continues.
                    None => break,
                }
                sent += 1;
                assert!(sent * LENGTH < MOST, "{sent} messages are somewhere in this process");
            }
            assert!(sent > 0);
            path.stall(false);
            connection.send(b"!").within(LIMIT).await?;
            connection.close().within(LIMIT).await?;
            // The peer's library has all; the application has when it has answered.
            let mut came: Vec<u8> = Vec::new();
            loop {
                match receiver.try_recv() {
                    Ok(first) => came.push(first),
                    Err(mpsc::TryRecvError::Empty) => net.sleep(Duration::from_millis(1)).await,
                    Err(mpsc::TryRecvError::Disconnected) => break,
                }
            }
            assert!((sent..=sent + 1).contains(&came.len()), "{sent} were sent, {} came", came.len());
            assert!(came.iter().enumerate().all(|(at, first)| *first == at as u8));
            Ok(())
        },
    );
}

#[test]
fn asleep_no_wake_up_is_lost() {
    const ROUNDS: u64 = 3000;
    let options = NetOptions { wait: Wait::Sleep, ..confidential() };
    pair_of(
        &only_tcp(),
        options.clone(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            for _ in 0..ROUNDS {
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
            }
            connection.close().within(LIMIT).await
        },
        async |net, address| {
            let connection = net.connect(address).within(LIMIT).await?;
            is_wrapped(&connection);
            for round in 0..ROUNDS {
                // Now and then more than one record, or than a socket takes.
                let length = [8, 8, 30_000, 8, 500_000][(round % 997 % 5) as usize];
                let message = vec![round as u8; length];
                connection.send(&message).within(LIMIT).await?;
                assert!(*connection.recv().within(LIMIT).await? == *message, "round {round}");
            }
            connection.close().within(LIMIT).await
        },
    );
    // Both flavours are one engine; its driver is another one here.
    let (left, right) = (
        uct_net::Net::new(&only_tcp(), options.clone()).expect("a net"),
        uct_net::Net::new(&only_tcp(), options).expect("a net"),
    );
    let mut listener = left.block_on(left.listen("127.0.0.1:0")).expect("it listens");
    let address = listener.address().to_owned();
    let serving = thread::spawn(move || {
        // The net's own thread drives: no thread is in `block_on` of the net.
        let echo = async move {
            let connection = listener.accept().await?.accept().await?;
            for _ in 0..ROUNDS {
                let message = connection.recv().await?;
                connection.send(&message).await?;
            }
            connection.close().await
        };
        left.block_on(echo)
    });
    let echoed = right.block_on(async {
        let connection = right.connect(&address).await?;
        assert_eq!(connection.explanation().chosen, "tcp/lo inside TLS");
        for round in 0..ROUNDS {
            connection.send(&round.to_le_bytes()).await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, &round.to_le_bytes());
        }
        connection.close().within(LIMIT).await
    });
    echoed.expect("the client's side");
    serving.join().expect("the server's thread").expect("the server's side");
}

#[test]
fn sends_and_receives_that_are_dropped_lose_nothing_and_double_nothing() {
    let seed = seed::printed() | 1;
    let numbered = |number: u64, length: u64| {
        let mut message = number.to_le_bytes().to_vec();
        message.extend((0..length).map(|at| (at * 7 + number) as u8));
        message
    };
    pair_of(
        &only_tcp(),
        NetOptions { window: 16_384, ..confidential() },
        async move |net, mut listener| {
            let mut random = Random(seed ^ 2);
            let connection = listener.accept().await?.accept().await?;
            let mut came = Vec::new();
            loop {
                let received = match random.below(4) {
                    0 => net.within(Duration::from_micros(random.below(300)), connection.recv()).await,
                    _ => polled(random.below(20), connection.recv()).await,
                };
                let Some(received) = received else { continue };
                let received = received?;
                let number = u64::from_le_bytes(received[..8].try_into().expect("eight bytes"));
                if number == u64::MAX {
                    let sent =
                        received[8..].chunks(8).map(|n| u64::from_le_bytes(n.try_into().expect("eight")));
                    for sent in sent {
                        assert!(came.contains(&sent), "message {sent} was sent and is lost");
                    }
                    return Ok(());
                }
                assert!(*received == *numbered(number, received.len() as u64 - 8), "{number} is damaged");
                assert!(came.last().is_none_or(|last| *last < number), "{number} comes twice or late");
                came.push(number);
            }
        },
        async move |net, address| {
            let mut random = Random(seed);
            let connection = net.connect(address).within(LIMIT).await?;
            let mut sent = Vec::new();
            for number in 0..1000 {
                let length = if random.below(8) == 0 { random.below(60_000) } else { random.below(500) };
                let message = numbered(number, length);
                let done = match random.below(3) {
                    0 => polled(random.below(4), connection.send(&message)).await.transpose()?.is_some(),
                    1 => connection
                        .send(&message)
                        .within(Duration::from_micros(random.below(200)))
                        .await
                        .is_ok(),
                    _ => connection.send(&message).within(LIMIT).await.map(|()| true)?,
                };
                if done {
                    sent.push(number);
                }
            }
            let mut last = u64::MAX.to_le_bytes().to_vec();
            last.extend(sent.iter().flat_map(|number| number.to_le_bytes()));
            connection.send(&last).within(LIMIT).await?;
            connection.close().within(LIMIT).await
        },
    );
}

#[test]
fn what_was_sent_last_arrives_whichever_way_a_side_ends() {
    const COUNT: usize = 200;
    for way in 0..3 {
        let options = confidential();
        let receive_all = async |_net: &Net, mut listener: Listener| {
            let connection = listener.accept().await?.accept().await?;
            for at in 0..COUNT {
                assert_eq!(connection.recv().within(LIMIT).await?[0], at as u8);
            }
            let end = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            Ok(())
        };
        let (server, address) = serve(&only_tcp(), options.clone(), LOOPBACK, receive_all);
        let send_all = async |connection: &Connection| {
            for at in 0..COUNT {
                connection.send(&vec![at as u8; 1 + at * 20]).within(LIMIT).await?;
            }
            Ok::<_, Error>(())
        };
        let net = Net::new(&only_tcp(), options).expect("a net");
        net.block_on(async {
            let connection = net.connect(address).within(LIMIT).await?;
            send_all(&connection).await?;
            match way {
                0 => connection.close().within(LIMIT).await?,
                1 => drop(connection),
                _ => {
                    let closing = polled(3, connection.close()).await;
                    drop(closing);
                }
            }
            Ok::<_, Error>(())
        })
        .expect("the client's side");
        drop(net);
        server.join().expect("the server's thread");
    }
}

#[test]
fn what_a_future_has_sent_leaves_although_the_net_is_not_driven_afterwards() {
    let (came, has_come) = mpsc::channel();
    let options = confidential();
    let receive = async move |_net: &Net, mut listener: Listener| {
        let connection = listener.accept().await?.accept().await?;
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"sent");
        came.send(()).expect("it is awaited");
        connection.recv().within(LIMIT).await.expect_err("the end");
        Ok(())
    };
    let (server, address) = serve(&only_tcp(), options.clone(), LOOPBACK, receive);
    let net = Net::new(&only_tcp(), options).expect("a net");
    let connection = net.block_on(net.connect(address).within(LIMIT).into_future()).expect("a connection");
    net.block_on(connection.send(b"sent")).expect("sent");
    has_come.recv_timeout(LIMIT).expect("it comes while this thread waits for it");
    drop(connection);
    drop(net);
    server.join().expect("the server's thread");
}

#[test]
fn an_abort_arrives_with_its_reason() {
    pair_of(
        &only_tcp(),
        confidential(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"before");
            connection.abort("enough of it");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).within(LIMIT).await?;
            connection.send(b"before").await?;
            let error = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(error.to_string().contains("enough of it"), "{error}");
            Ok(())
        },
    );
}

#[test]
fn a_host_that_passes_nothing_on_does_not_hold_up_the_end() {
    let (sender, receiver) = mpsc::channel::<()>();
    let (has_begun, begun) = mpsc::channel();
    pair_of(
        &only_tcp(),
        NetOptions { window: 1 << 30, ..confidential() },
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await?;
            has_begun.send(()).expect("it is awaited");
            // The server does not read until the client is gone.
            receiver.recv_timeout(LIMIT).expect("the client ends");
            drop(connection);
            Ok(())
        },
        async move |net, address| {
            let path = Path::before(&address);
            let connection = net.connect(&path.address).within(LIMIT).await?;
            connection.send(b"begin").await?;
            while begun.try_recv().is_err() {
                net.sleep(Duration::from_millis(1)).await;
            }
            path.stall(true);
            let message = vec![0; 64 << 10];
            while net.within(Duration::from_millis(300), connection.send(&message)).await.is_some() {}
            let closed = connection.close().within(Duration::from_millis(10)).await.expect_err("it cannot");
            assert!(closed.is_timeout(), "{closed}");
            drop(connection);
            sender.send(()).expect("the server waits");
            path.stall(false);
            Ok(())
        },
    );
}

/// Sets a handler of [`ID`] that raises the flag which is returned.
fn arrival(connection: &Connection) -> Rc<Cell<bool>> {
    let has_come = Rc::new(Cell::new(false));
    let flag = Rc::clone(&has_come);
    connection.iface().set_am_handler(ID, move |_message| flag.set(true));
    has_come
}

/// An id of the application's own messages.
const ID: AmId = AmId::new(5).unwrap();

#[test]
fn a_loop_of_worker_progress_moves_a_lane_with_an_empty_block_on_and_not_without() {
    let options = confidential();
    let reply = async |net: &Net, mut listener: Listener| {
        let connection = listener.accept().await?.accept().await?;
        let has_come = arrival(&connection);
        connection.send(b"ready").await?;
        while !has_come.get() {
            net.sleep(Duration::from_millis(1)).await;
        }
        connection.endpoint().am_short(ID, 0, b"back").expect("there is room");
        assert!(connection.recv().within(LIMIT).await.expect_err("the end").is_closed_by_peer());
        Ok(())
    };
    let (server, address) = serve(&only_tcp(), options.clone(), LOOPBACK, reply);
    let net = Net::new(&only_tcp(), options).expect("a net");
    let connection = net.block_on(net.connect(&address)).expect("a connection");
    let has_come = arrival(&connection);
    net.block_on(connection.recv()).expect("the server is ready");
    connection.endpoint().am_short(ID, 0, b"there").expect("there is room");
    for _ in 0..10_000 {
        net.worker().progress();
    }
    assert!(!has_come.get(), "nothing has moved the lane");
    let begun = std::time::Instant::now();
    while !has_come.get() {
        assert!(begun.elapsed() < LIMIT, "the lane does not move");
        net.worker().progress();
        net.block_on(async {});
    }
    net.block_on(connection.close()).expect("closed");
    server.join().expect("the server's thread");
}

/// Whether a process has the TCP socket open whose peer has this port.
fn is_open_towards(port: &str) -> bool {
    let suffix = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("/proc is mounted");
    table.lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        // The peer's address, and the inode.
        columns[2].ends_with(&suffix) && columns.get(9).is_some_and(|inode| *inode != "0")
    })
}

#[test]
fn the_end_of_a_lane_waits_for_the_peer_up_to_close_timeout() {
    let options = confidential();
    let client = options.clone();
    let (sender, receiver) = mpsc::channel();
    let server = thread::spawn(move || {
        // The one with the long limit begins first, so it would also end first if both had the same limit.
        let nets = [LIMIT * 60, Duration::from_millis(1)].map(|limit| {
            let tls = options.tls.clone().map(|tls| tls.close_timeout(limit));
            Net::new(&only_tcp(), NetOptions { tls, ..options.clone() }).expect("a net")
        });
        let ports = nets.each_ref().map(|net| {
            net.block_on(async {
                let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
                sender.send(listener.address()).expect("it is awaited");
                let incoming = listener.accept().await.expect("a caller");
                let port = incoming.peer().rsplit_once(':').expect("a port").1.to_owned();
                let connection = incoming.accept().await.expect("a connection");
                connection.send(b"ready").await.expect("sent");
                // What was sent ahead of the harm is delivered.
                connection.recv().within(LIMIT).await.expect("the message");
                let error = connection.recv().within(LIMIT).await.expect_err("a record that was not sent");
                assert!(error.to_string().contains("TLS fails"), "{error}");
                port
            })
        });
        let begun = std::time::Instant::now();
        while is_open_towards(&ports[1]) {
            assert!(begun.elapsed() < LIMIT, "the lane with the short limit does not end");
            for net in &nets {
                net.block_on(net.sleep(Duration::from_millis(1)));
            }
        }
        assert!(is_open_towards(&ports[0]), "the lane with the long limit has ended");
    });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let path = Path::before(&receiver.recv_timeout(LIMIT).expect("the server listens"));
        let net = Net::new(&only_tcp(), client.clone()).expect("a net");
        let connection = net.block_on(net.connect(&path.address)).expect("a connection");
        // Nothing else of this side is under way when the harm is done.
        net.block_on(connection.recv().within(LIMIT)).expect("the server is ready");
        path.do_harm(Harm::Insert);
        net.block_on(connection.send(b"followed by something else")).expect("sent");
        // From here on the net is not driven, so this side does not end its lane.
        clients.push((net, connection));
    }
    server.join().expect("the server's thread");
    for (net, connection) in clients {
        connection.abort("over");
        drop(net);
    }
}

#[test]
fn the_spans_of_both_sides_name_the_lane_as_the_explanation_does() {
    let (server, client) = (Spans::default(), Spans::default());
    let seen = server.clone();
    let _guard = client.see(LevelFilter::DEBUG);
    pair_of(
        &only_tcp(),
        confidential(),
        async move |_net, mut listener| {
            seen.see_always(LevelFilter::DEBUG);
            listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| net.connect(&address).await?.send(b"seen").await,
    );
    for spans in [client, server] {
        assert_eq!(spans.connection().0.fields["lane"], "tcp/lo inside TLS");
    }
}

/// In a runtime of tokio, by whichever driver, bytes both ways at once.
#[cfg(feature = "tokio")]
#[test]
fn in_a_runtime_a_stream_carries_all_while_drivers_sleep() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let sent: Vec<u8> = (0..2_000_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let options = NetOptions { wait: Wait::Sleep, ..confidential() };
    let (sender, receiver) = mpsc::channel();
    let server_options = options.clone();
    let server = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let net = uct_net::Net::in_tokio(&only_tcp(), server_options).expect("a net");
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address().to_owned()).expect("it is awaited");
            let stream = listener.accept().await?.accept().await?.into_stream();
            let (mut reads, mut writes) = tokio::io::split(stream);
            tokio::io::copy(&mut reads, &mut writes).await?;
            writes.shutdown().await
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("it listens");
    let net = Net::new(&only_tcp(), options).expect("a net");
    let received = runtime().block_on(net.run_until(async {
        let connection = net.connect(address).await?;
        is_wrapped(&connection);
        let (mut reads, mut writes) = tokio::io::split(connection.into_stream());
        let writing = async {
            for chunk in sent.chunks(70_001) {
                writes.write_all(chunk).await?;
            }
            writes.shutdown().await
        };
        let mut bytes = Vec::new();
        let (written, read) = tokio::join!(writing, reads.read_to_end(&mut bytes));
        written?;
        read?;
        Ok::<_, std::io::Error>(bytes)
    }));
    let received = received.expect("a driver").expect("the client's side");
    assert!(received == sent, "{} of {} bytes came back", received.len(), sent.len());
    server.join().expect("the server's thread").expect("the server's side");
}
