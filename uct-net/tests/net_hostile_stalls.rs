//! Peers that stop in the middle of the handshake: each stage has its limit, the error names it, and others are served.

#[path = "support/raw.rs"]
mod raw;
mod support;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use raw::Raw;
use support::{LIMIT, net, pair};
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
