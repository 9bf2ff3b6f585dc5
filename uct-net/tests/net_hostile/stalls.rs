//! Peers that stop in the middle of the handshake: each stage has its limit, the error names it, and others are served. And callers that a
//! listener drops in the middle of it.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

#[cfg(feature = "tls")]
use crate::support::certificates;
use crate::support::raw::Raw;
use crate::support::{self, LIMIT, LOOPBACK, net, pair, raw};
use uct_net::{NetOptions, Stage};

fn options() -> NetOptions {
    NetOptions {
        handshake_timeout: Duration::from_millis(200),
        lane_timeout: Duration::from_millis(150),
        max_half_open: 8,
        ..support::patient()
    }
}

/// The error of a listener whose caller does so much and then nothing.
fn server_with(caller: impl FnOnce(String) + Send + 'static) -> uct_net::Error {
    server_of(options(), caller)
}

fn server_of(options: NetOptions, caller: impl FnOnce(String) + Send + 'static) -> uct_net::Error {
    let net = net(options);
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let address = listener.address();
        let (ends, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            caller(address);
            let _ = ended.recv_timeout(LIMIT);
        });
        let accepting = async { listener.accept().await?.accept_with(vec![7; 60_000]).await };
        let error =
            net.within(Duration::from_secs(20), accepting).await.expect("a limit").expect_err("it stalls");
        drop(ends);
        // Until the thread is gone, whoever waits there is answered.
        while !thread.is_finished() {
            net.sleep(Duration::from_millis(1)).await;
        }
        thread.join().expect("the caller's thread");
        error
    })
}

#[test]
fn a_caller_that_stalls_ends_at_the_limit_of_its_stage() {
    let expect = |error: uct_net::Error, parts: &[&str]| {
        assert!(error.is_timeout(), "{error}");
        for part in parts {
            assert!(error.to_string().contains(part), "{error}: expected {part}");
        }
    };
    let hello = server_with(|address| {
        let raw = Raw::new();
        let call = raw.call(&address, "tcp/lo");
        std::thread::sleep(Duration::from_millis(400));
        drop(call);
    });
    expect(hello, &["handshake", "choose a transport", "200ms (handshake_timeout)"]);
    let lane = server_with(|address| {
        let connection = Raw::new().call(&address, "posix/memory").open();
        std::thread::sleep(Duration::from_millis(500));
        drop(connection);
    });
    expect(lane, &["handshake", "use the lane", "300ms (twice lane_timeout)"]);
    let silent_lane = server_with(|address| {
        let mut connection = Raw::new().call(&address, "posix/memory").open();
        connection.call.socket.write_all(&raw::frame(raw::CONNECTED, b"")).expect("sent");
        std::thread::sleep(Duration::from_millis(500));
    });
    expect(silent_lane, &["open a lane", "no message came over the lane", "150ms (lane_timeout)"]);
}

/// Each proposal comes in time, and is answered at once.
#[test]
fn lanes_that_do_not_exist_renew_no_limit() {
    const STEP: Duration = Duration::from_secs(2);
    const PACE: Duration = Duration::from_millis(900);
    let error = server_of(NetOptions { handshake_timeout: STEP, ..options() }, |address| {
        let mut call = Raw::new().call(&address, "posix/memory");
        call.names_no_interface();
        call.propose(raw::LANE);
        while let Ok((raw::UNABLE, _)) = call.raw.read(&mut call.socket) {
            std::thread::sleep(PACE);
            call.propose(raw::LANE);
        }
    });
    assert!(error.is_timeout() && error.to_string().contains("within 4s, the limit of all steps"), "{error}");
}

#[test]
fn a_caller_that_reads_nothing_ends_at_the_limit() {
    let error = server_with(|address| {
        // Ahead of the call, whose limit is 200 ms: it opens the transports.
        let hello = Raw::new().hello_body();
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        // Small segments and a small buffer: the listener's system takes little on its own.
        socket.set_tcp_mss(500).expect("set");
        socket.set_recv_buffer_size(1).expect("set");
        let address: std::net::SocketAddr = address.parse().expect("an address");
        socket.connect(&address.into()).expect("the listener lives");
        (&socket).write_all(&raw::frame(raw::HELLO, &hello)).expect("sent");
        std::thread::sleep(Duration::from_millis(700));
    });
    assert!(
        error.to_string().contains("take what this side sends within 200ms (handshake_timeout)"),
        "{error}"
    );
}

#[test]
fn a_caller_whose_lane_was_open_gets_an_abort_when_the_handshake_ends() {
    let error = server_with(move |address| {
        let mut connection = Raw::new().call(&address, "posix/memory").open();
        let window = connection.window_of_mine();
        assert_eq!(connection.send(raw::PROBE, window, b""), Ok(()));
        assert_eq!(connection.receive().expect("an answer").0, raw::PROBE_REPLY);
        // A client that has this answer holds a connection. It must not wait for ever on it.
        if let Some(reason) = connection.aborted() {
            assert!(reason.contains("did not complete the handshake"), "{reason}");
        }
    });
    assert!(error.is_timeout(), "{error}");
}

/// The error of a client whose listener does so much and then nothing.
fn client_of(
    limit: Duration,
    transport: &str,
    listens: impl FnOnce(&Raw, &mut TcpStream) + Send + 'static,
) -> uct_net::Error {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let (ends, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let raw = Raw::new();
        let mut caller = socket.accept().expect("a caller").0;
        listens(&raw, &mut caller);
        let _ = ended.recv_timeout(LIMIT);
    });
    let net = net(options());
    let error = net.block_on(async { net.connect(address).require(transport).within(limit).await });
    drop(ends);
    thread.join().expect("the listener's thread");
    error.expect_err("it stalls")
}

fn ready(caller: &mut TcpStream) {
    caller.write_all(&raw::frame(raw::READY, &raw::first_end())).expect("sent");
}

#[test]
fn a_listener_that_stalls_ends_the_call_at_the_limit_of_its_stage() {
    let error = client_of(LIMIT, "posix/memory", |raw, caller| drop(raw.read(caller)));
    assert!(error.to_string().contains("take the connection within 200ms (handshake_timeout)"), "{error}");
    let no_message = "no message came over the lane within 150ms (lane_timeout)";
    let error = client_of(LIMIT, "posix/memory", |raw, caller| assert_eq!(raw.welcome(caller), raw::DIRECT));
    assert!(error.to_string().contains(no_message), "{error}");
    assert_eq!(error.stage, Stage::Choose);
    // Every lane after the first one is answered on the socket.
    let second = |raw: &Raw, caller: &mut TcpStream| {
        assert_eq!(raw.welcome(caller), raw::DIRECT);
        caller.write_all(&raw::frame(raw::UNABLE, &raw::field(raw::REASON, b"not that one"))).expect("sent");
        assert_eq!(raw.read(caller).expect("a frame").0, raw::LANE);
    };
    let error = client_of(LIMIT, "memory", second);
    assert!(error.to_string().contains("end of the lane within 200ms (handshake_timeout)"), "{error}");
    let error = client_of(LIMIT, "memory", move |raw, caller| {
        second(raw, caller);
        ready(caller);
        // The next one, or the end, when no message came over it.
        raw.read(caller).expect("a frame");
    });
    assert!(error.is_timeout() || error.to_string().contains(no_message), "{error}");
    let error = client_of(LIMIT, "posix/memory", |raw, caller| {
        assert_eq!(raw.welcome(caller), raw::DIRECT);
        caller.write_all(&raw::frame(raw::UNABLE, &raw::field(raw::REASON, b"not that one"))).expect("sent");
    });
    assert!(error.to_string().contains("the peer: \"not that one\""), "{error}");
    assert_eq!(error.stage, Stage::Choose);

    // The socket itself is to be the lane.
    let error = client_of(LIMIT, "tcp/lo", |raw, caller| assert_eq!(raw.welcome(caller), raw::TAKEOVER));
    assert!(error.to_string().contains(no_message), "{error}");
    assert_eq!(error.stage, Stage::Open);
    let error = client_of(LIMIT, "tcp/lo", |raw, caller| {
        raw.welcome(caller);
        // No frame follows: it is no hello of the transport.
        ready(caller);
    });
    assert!(error.to_string().contains("does not use this protocol"), "{error}");

    let error = client_of(Duration::from_millis(100), "posix/memory", |raw, caller| {
        assert_eq!(raw.welcome(caller), raw::DIRECT)
    });
    assert_eq!((error.stage, error.is_timeout()), (Stage::Handshake, true), "{error}");
    assert!(error.to_string().contains("not connected within 100ms"), "{error}");
}

#[test]
fn limits_as_long_as_there_are_do_no_harm() {
    let options = NetOptions {
        handshake_timeout: Duration::MAX,
        lane_timeout: Duration::MAX,
        connect_timeout: Duration::MAX,
        ..support::patient()
    };
    pair(
        options,
        async |net, mut listener| {
            let incoming = net.within(Duration::MAX, listener.accept()).await.expect("no limit")?;
            incoming.accept().await?.recv().within(Duration::MAX).await.map(|_| ())
        },
        async |net, address| net.connect(address).await?.send(b"x").within(Duration::MAX).await,
    );
}

#[test]
fn silent_callers_in_all_places_delay_honest_ones_by_no_more_than_the_limit() {
    pair(
        options(),
        async |_net, mut listener| {
            listener.accept().await?.accept().await?.recv().within(LIMIT).await.map(|_| ())
        },
        async |net, address| {
            let silent: Vec<TcpStream> = (0..options().max_half_open * 3)
                .map(|_| TcpStream::connect(&address).expect("queued"))
                .collect();
            // Longer than they may take, one lot after the other.
            let patient = support::net(NetOptions { handshake_timeout: LIMIT, ..support::patient() });
            patient
                .block_on(async { patient.connect(&address).within(LIMIT).await?.send(b"served").await })?;
            drop((silent, net));
            Ok(())
        },
    );
}

#[test]
fn a_full_queue_of_a_unix_listener_is_waited_for() {
    let path = std::env::temp_dir().join(format!("uct-net-full-{}", std::process::id()));
    let listener =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&socket2::SockAddr::unix(&path).expect("an address")).expect("bound");
    listener.listen(0).expect("listens");
    let first = std::os::unix::net::UnixStream::connect(&path).expect("the queue takes one");
    let net = net(support::patient());
    let address = format!("unix:{}", path.display());
    let error = net.block_on(async { net.connect(address).within(Duration::from_millis(100)).await });
    let error = error.expect_err("no listener accepts");
    std::fs::remove_file(&path).expect("a socket");
    drop(first);
    assert!(error.is_timeout() && error.stage == Stage::Dial, "{error}");
}

/// What a caller is told that a listener drops.
const GAVE_WAY: &str = "its place was needed, or the listener has ended; try again";

/// Passes on the bytes of the next caller over a connection to a listener.
fn pass_on(called: TcpListener, far: TcpStream) {
    std::thread::spawn(move || {
        let near = called.accept().expect("a caller").0;
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        };
        let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
        std::thread::spawn(move || copy(near_too, far_too));
        copy(far, near);
    });
}

/// The error of a caller that is dropped with its listener when that one was polled so often; `None` if they were connected before.
fn dropped_after(polls: usize, options: &NetOptions, transport: &'static str) -> Option<uct_net::Error> {
    let server = net(options.clone());
    let mut listener = server.block_on(server.listen(LOOPBACK)).expect("a listener");
    let called = TcpListener::bind(LOOPBACK).expect("a port");
    let address = called.local_addr().expect("an address");
    // From now on it has a caller.
    pass_on(called, TcpStream::connect(listener.address()).expect("it listens"));
    let options = options.clone();
    let client = std::thread::spawn(move || {
        let net = net(options);
        net.block_on(async {
            let connection = net.connect(address).require(transport).await?;
            connection.send(b"there").await?;
            connection.recv().within(LIMIT).await.map(|_| ())
        })
    });
    let connected = {
        let mut accepting = pin!(async { listener.accept().await?.accept().await });
        let mut left = polls;
        server.block_on(std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            accepting.as_mut().poll(context).map(Some)
        }))
    };
    drop(listener);
    let connected = connected.map(|connected| connected.expect("an honest caller"));
    server.block_on(async {
        if let Some(connection) = &connected {
            connection.send(b"too").await.expect("it is sent");
        }
        while !client.is_finished() {
            server.sleep(Duration::from_millis(1)).await;
        }
    });
    let outcome = client.join().expect("the client's thread");
    assert!(connected.is_none() || outcome.is_ok(), "{outcome:?}");
    outcome.err()
}

/// What callers are told that are dropped in each step of the handshake.
fn dropped_anywhere(options: NetOptions) -> Vec<String> {
    let mut told = Vec::new();
    for transport in ["posix/memory", "tcp/lo"] {
        let errors = (1..1000).map_while(|polls| dropped_after(polls, &options, transport));
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert!(errors.len() < 999, "they are never connected: {errors:?}");
        println!("{transport}: {errors:#?}");
        told.extend(errors);
    }
    assert!(!told.is_empty());
    told
}

#[test]
fn a_caller_that_is_dropped_in_any_step_is_told_why() {
    let keyed = NetOptions { shared_key: Some(vec![7; 32]), ..support::patient() };
    for options in [support::patient(), keyed] {
        for error in dropped_anywhere(options) {
            assert!(error.contains(GAVE_WAY), "{error}");
        }
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_caller_that_is_dropped_before_or_after_tls_is_told_why() {
    let authority = certificates::Authority::new("ours");
    let tls = uct_net::Tls::confidential().server(authority.issue("127.0.0.1").server());
    let tls = tls.client(authority.client(None));
    let told = dropped_anywhere(NetOptions { tls: Some(tls), ..support::patient() });
    // While TLS is being set up there is nothing that a peer would understand.
    let untold: Vec<_> = told.iter().filter(|error| !error.contains(GAVE_WAY)).collect();
    assert!(untold.iter().all(|error| error.contains("the peer hung up")), "{untold:?}");
    let is_before = |error: &&String| error.contains("ahead of TLS");
    assert!(told.iter().any(|error| is_before(&error)), "{told:?}");
    assert!(told.iter().any(|error| error.contains(GAVE_WAY) && !is_before(&error)), "{told:?}");
}
