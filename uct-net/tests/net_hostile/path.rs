//! A host on the path of a lane inside TLS that changes, repeats, drops, adds or cuts what passes: both sides fail with a reason, and
//! neither takes it for an orderly end. Peers that break off inside TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::certificates::{Authority, Identity};
use crate::support::logged_listener::LoggedListener;
use crate::support::path::{Harm, Path};
use crate::support::tls_lane::{HERE, confidential, only_tcp};
use crate::support::{self, LIMIT, net, pair_of};
use futures_util::future::join;
use uct_net::local::{Connection, Net};
use uct_net::rustls::pki_types::ServerName;
use uct_net::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use uct_net::{Error, NetOptions, Stage, Tls};

/// It has a reason, and is no end that the peer wanted.
fn is_failure(error: &Error) {
    assert!(!error.is_closed_by_peer() && !error.is_timeout(), "{error}");
    assert!(!error.reason.is_empty());
}

#[test]
fn harm_on_the_path_is_an_error_of_both_sides() {
    let harms = [
        (Harm::Flip, 100, "TLS fails", "the peer ends TLS"),
        (Harm::Flip, 2_000_000, "TLS fails", "the peer ends TLS"),
        (Harm::Replay, 100, "TLS fails", "the peer ends TLS"),
        (Harm::Drop, 100, "TLS fails", "the peer ends TLS"),
        (Harm::Insert, 100, "TLS fails", "the peer ends TLS"),
        (Harm::Truncate, 100, "without close_notify", ""),
        (Harm::Truncate, 2_000_000, "without close_notify", ""),
        (Harm::Reset, 100, "", ""),
    ];
    for (harm, length, at_server, at_client) in harms {
        let (sender, receiver) = mpsc::channel();
        pair_of(
            &only_tcp(),
            confidential(),
            async move |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"first");
                connection.send(b"second").await?;
                // Whole messages may come that were sent before the harm was done.
                let error = loop {
                    match connection.recv().within(LIMIT).await {
                        Ok(message) => assert!(message.iter().all(|byte| *byte == 7)),
                        Err(error) => break error,
                    }
                };
                is_failure(&error);
                assert!(error.to_string().contains(at_server), "{harm:?}: {error}");
                is_failure(&connection.closed().await);
                sender.send(error.to_string()).expect("it is awaited");
                Ok(())
            },
            async |net, address| {
                let path = Path::before(&address);
                let connection = net.connect(&path.address).within(LIMIT).await?;
                connection.send(b"first").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"second");
                path.do_harm(harm);
                let error = loop {
                    if let Err(error) = connection.send(&vec![7; length]).within(LIMIT).await {
                        break error;
                    }
                    if harm == Harm::Drop || harm == Harm::Reset {
                        // What follows reveals what was dropped.
                        continue;
                    }
                    break connection.recv().within(LIMIT).await.expect_err("nothing is sent");
                };
                is_failure(&error);
                assert!(error.to_string().contains(at_client), "{harm:?}: {error}");
                let error = connection.close().within(LIMIT).await.expect_err("it has failed");
                is_failure(&error);
                println!(
                    "{harm:?}: the server: {}; the client: {error}",
                    receiver.recv_timeout(LIMIT).expect("the server's error")
                );
                Ok(())
            },
        );
    }
}

#[test]
fn a_cut_in_the_middle_of_the_end_is_no_orderly_end() {
    pair_of(
        &only_tcp(),
        confidential(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            connection.send(b"ready").await?;
            is_failure(&connection.recv().within(LIMIT).await.expect_err("the end of the peer is cut off"));
            Ok(())
        },
        async |net, address| {
            let path = Path::before(&address);
            let connection = net.connect(&path.address).within(LIMIT).await?;
            connection.recv().within(LIMIT).await?;
            path.do_harm(Harm::Truncate);
            is_failure(&connection.close().within(LIMIT).await.expect_err("it is not confirmed"));
            Ok(())
        },
    );
}

/// Connects two sides through a relay, which flips a bit of the byte with this number of what the client sends. Returns how many bytes the client
/// sent, and the results of the client and of the server.
fn connect_through_relay(flipped: Option<usize>) -> (usize, Result<(), Error>, Result<(), Error>) {
    let (sender, receiver) = mpsc::channel();
    let options = NetOptions {
        handshake_timeout: Duration::from_secs(3),
        lane_timeout: Duration::from_secs(3),
        ..confidential()
    };
    let server_options = options.clone();
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let server = thread::spawn(move || {
        let net = Net::new(&only_tcp(), server_options).expect("a net");
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await.expect("it listens");
            sender.send(listener.address()).expect("it is awaited");
            while !ended.load(Ordering::Relaxed) {
                // Only this may be broken off without a loss: a request that is dropped is rejected.
                let Some(incoming) = net.within(Duration::from_millis(20), listener.accept()).await else {
                    continue;
                };
                let connection = incoming?.accept().await?;
                while connection.recv().within(LIMIT).await.is_ok() {}
                return Err(connection.closed().await);
            }
            Ok(())
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("it listens");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = listener.local_addr().expect("an address");
    let relay = thread::spawn(move || {
        let mut near = listener.accept().expect("a caller").0;
        let mut far = TcpStream::connect(address).expect("the listener lives");
        let (mut near_too, mut far_too) =
            (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
        let back = thread::spawn(move || {
            std::io::copy(&mut far_too, &mut near_too)
                .map(drop)
                .and_then(|()| near_too.shutdown(std::net::Shutdown::Write))
        });
        let (mut sent, mut chunk) = (0, [0; 1 << 16]);
        while let Ok(length @ 1..) = near.read(&mut chunk) {
            if let Some(byte) =
                flipped.and_then(|at| at.checked_sub(sent)).and_then(|at| chunk[..length].get_mut(at))
            {
                *byte ^= 0x80;
            }
            sent += length;
            if far.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = far.shutdown(std::net::Shutdown::Write);
        let _ = back.join();
        sent
    });
    let net = Net::new(&only_tcp(), options).expect("a net");
    let client = net.block_on(async {
        let connection = net.connect(there).within(LIMIT).await?;
        for _ in 0..10 {
            connection.send(b"hello").within(LIMIT).await?;
        }
        connection.close().within(LIMIT).await
    });
    drop(net);
    over.store(true, Ordering::Relaxed);
    (relay.join().expect("the relay's thread"), client, server.join().expect("the server's thread"))
}

#[test]
fn a_bit_that_is_flipped_anywhere_between_the_first_byte_and_the_end_is_an_error_of_both() {
    let (length, client, server) = connect_through_relay(None);
    client.expect("no byte is changed");
    assert!(server.expect_err("the client closes").is_closed_by_peer());
    // The number of bytes may vary by those that the two sides acknowledge at the end.
    for part in 0..6 {
        let at = length * part / 7;
        let (_, client, server) = connect_through_relay(Some(at));
        let error = client.expect_err("a bit was changed");
        assert!(!error.is_closed_by_peer(), "byte {at} of {length}: {error}");
        if let Err(error) = server {
            assert!(!error.is_closed_by_peer(), "byte {at} of {length}: {error}");
        }
    }
}

/// A peer of another make: TLS over a socket, and the bytes of the test.
fn raw(
    address: &str,
    authority: &Authority,
) -> uct_net::rustls::StreamOwned<uct_net::rustls::ClientConnection, TcpStream> {
    let name = uct_net::rustls::pki_types::ServerName::try_from(HERE).expect("a name");
    let session = uct_net::rustls::ClientConnection::new(std::sync::Arc::new(authority.client(None)), name);
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(LIMIT)).expect("set");
    uct_net::rustls::StreamOwned::new(session.expect("settings"), socket)
}

#[test]
fn peers_that_stop_anywhere_are_hung_up_on_and_honest_ones_are_served() {
    let authority = Authority::new("ours");
    let tls = Tls::confidential().server(authority.issue(HERE).server());
    let options = NetOptions {
        tls: Some(tls),
        handshake_timeout: Duration::from_secs(1),
        max_half_open: 4,
        ..support::patient()
    };
    let (sender, receiver) = mpsc::channel();
    let server = thread::spawn(move || {
        let net = Net::new(&only_tcp(), options).expect("a net");
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address()).expect("it is awaited");
            loop {
                if let Ok(connection) = listener.accept().await?.accept().await {
                    connection.send(b"welcome").await?;
                    return connection.close().within(LIMIT).await;
                }
            }
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("it listens");
    for sent in [&b""[..], b"UCTN", b"UCTN\x06\x01\0\0\xff\xff\x03\0"] {
        let mut stream = raw(&address, &authority);
        let _ = stream.write_all(sent).and_then(|()| stream.flush());
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let client =
        NetOptions { tls: Some(Tls::confidential().client(authority.client(None))), ..support::patient() };
    let net = Net::new(&only_tcp(), client).expect("a net");
    net.block_on(async {
        let connection = net.connect(address).within(LIMIT).await?;
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"welcome");
        Ok::<_, Error>(())
    })
    .expect("an honest caller is served");
    server.join().expect("the server's thread").expect("the server's side");
}

#[test]
fn a_lane_whose_connection_is_gone_has_its_place_until_it_has_ended() {
    let options = confidential();
    let tls = options.tls.clone().map(|tls| tls.close_timeout(LIMIT * 60));
    let client = options.clone();
    let options = NetOptions { tls, max_connections: 1, ..options };
    let (sender, receiver) = mpsc::channel();
    let (gone, is_gone) = mpsc::channel();
    let server = thread::spawn(move || {
        let net = Net::new(&only_tcp(), options).expect("a net");
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address()).expect("it is awaited");
            listener.accept().await?.accept().await?.abort("enough");
            // What is over is forgotten meanwhile.
            net.sleep(Duration::from_millis(200)).await;
            gone.send(()).expect("it is awaited");
            let refused = listener.accept().await?.accept().await.expect_err("the place is taken");
            assert!(refused.to_string().contains("max_connections"), "{refused}");
            loop {
                if let Ok(connection) = listener.accept().await?.accept().await {
                    return connection.send(b"welcome").await;
                }
            }
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("it listens");
    let keeper = Net::new(&only_tcp(), client.clone()).expect("a net");
    let kept = keeper.block_on(keeper.connect(&address)).expect("a connection");
    // Nothing drives this net from here on, so its socket stays open.
    is_gone.recv_timeout(LIMIT).expect("the connection is gone");
    let net = Net::new(&only_tcp(), client).expect("a net");
    let refused = net.block_on(net.connect(&address)).map(drop).expect_err("the place is taken");
    assert!(refused.to_string().contains("max_connections"), "{refused}");
    drop((kept, keeper));
    let begun = std::time::Instant::now();
    net.block_on(async {
        let connection = loop {
            match net.connect(&address).await {
                Ok(connection) => break connection,
                Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
            }
        };
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"welcome");
        Ok::<_, Error>(())
    })
    .expect("a caller is served once the lane has ended");
    server.join().expect("the server's thread").expect("the server's side");
}

/// A program that ends TLS on both sides, and passes on what is inside. Returns its address, and a thread with what the caller has told it.
fn ends_tls(listener: &str, near: ServerConfig, far: ClientConfig) -> (String, thread::JoinHandle<Vec<u8>>) {
    let called = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = called.local_addr().expect("an address").to_string();
    let far_socket = TcpStream::connect(listener).expect("it listens");
    let relay = thread::spawn(move || {
        let near_socket = called.accept().expect("a caller").0;
        let name = ServerName::try_from(HERE).expect("a name");
        let near = ServerConnection::new(Arc::new(near)).expect("settings");
        let far = ClientConnection::new(Arc::new(far), name).expect("settings");
        for socket in [&near_socket, &far_socket] {
            socket.set_read_timeout(Some(Duration::from_millis(2))).expect("set");
        }
        let (mut near, mut far) = (StreamOwned::new(near, near_socket), StreamOwned::new(far, far_socket));
        let (mut told, mut chunk) = (Vec::new(), [0; 1 << 14]);
        loop {
            match near.read(&mut chunk) {
                Ok(count @ 1..) => {
                    told.extend_from_slice(&chunk[..count]);
                    if far.write_all(&chunk[..count]).and_then(|()| far.flush()).is_err() {
                        return told;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return told,
            }
            match far.read(&mut chunk) {
                Ok(count @ 1..) => {
                    if near.write_all(&chunk[..count]).and_then(|()| near.flush()).is_err() {
                        return told;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return told,
            }
        }
    });
    (address, relay)
}

/// The error of a client whose listener is behind such a program, what that one was told, and the listener's log once it has these words.
fn calls_behind(
    (authority, own): (&Authority, &Identity),
    key: Option<&[u8]>,
    near: ServerConfig,
    words: &str,
) -> (Error, Vec<u8>, String) {
    let keyed =
        |tls| NetOptions { shared_key: key.map(<[u8]>::to_vec), tls: Some(tls), ..support::patient() };
    let listener = LoggedListener::new(keyed(Tls::confidential().server(own.server())));
    let (address, relay) = ends_tls(&listener.address, near, authority.client(None));
    let net = net(keyed(Tls::confidential().client(authority.client(None))));
    let error = net.block_on(net.connect(address).private(*b"for the listener").into_future());
    let told = relay.join().expect("the relay's thread");
    (error.expect_err("it is no peer"), told, listener.wait_for_log(words))
}

#[test]
fn a_program_that_ends_tls_with_a_certificate_of_its_own_is_told_nothing() {
    let (authority, other) = (Authority::new("ours"), Authority::new("ours"));
    let own = authority.issue(HERE);
    let (error, told, _) = calls_behind((&authority, &own), None, other.issue(HERE).server(), "hung up");
    assert!(error.to_string().contains("the peer's certificate is not accepted"), "{error}");
    assert_eq!(told, b"");
}

#[test]
fn a_program_that_ends_tls_with_a_certificate_that_is_accepted_passes_no_proof_of_a_key_on() {
    let authority = Authority::new("ours");
    let own = authority.issue(HERE);
    let key: &[u8] = b"a key of both of them";
    let (error, told, _) =
        calls_behind((&authority, &own), Some(key), authority.issue(HERE).server(), "hung up");
    assert!(error.to_string().contains("does not know the shared key"), "{error}");
    assert!(!told.windows(16).any(|bytes| bytes == b"for the listener"), "it was told private data");
}

/// A host that passes on the bytes of two callers, and from some time on what the listener sends one of them to the other.
struct Crossing {
    address: String,
    is_crossed: Arc<AtomicBool>,
}

impl Crossing {
    fn before(listener: &str, is_crossed: bool) -> Crossing {
        let called = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = called.local_addr().expect("an address").to_string();
        let is_crossed = Arc::new(AtomicBool::new(is_crossed));
        let (listener, crossed) = (listener.to_owned(), Arc::clone(&is_crossed));
        thread::spawn(move || {
            let far = [0; 2].map(|_| TcpStream::connect(&listener).expect("it listens"));
            let near = [0; 2].map(|_| called.accept().expect("a caller").0);
            let copy = |socket: &TcpStream| socket.try_clone().expect("a copy");
            for number in [0, 1] {
                let (mut from, mut to) = (copy(&near[number]), copy(&far[number]));
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                let (mut from, mut to) = (copy(&far[number]), [copy(&near[number]), copy(&near[1 - number])]);
                let crossed = Arc::clone(&crossed);
                thread::spawn(move || {
                    let mut chunk = [0; 1 << 14];
                    while let Ok(count @ 1..) = from.read(&mut chunk) {
                        let to = &mut to[usize::from(crossed.load(Ordering::Relaxed))];
                        if to.write_all(&chunk[..count]).is_err() {
                            break;
                        }
                    }
                    to.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Write)));
                });
            }
        });
        Crossing { address, is_crossed }
    }
}

#[test]
fn records_of_another_session_end_the_handshake_of_both() {
    let authority = Authority::new("ours");
    let with = |tls| NetOptions { tls: Some(tls), ..support::patient() };
    let listener = LoggedListener::new(with(Tls::confidential().server(authority.issue(HERE).server())));
    let crossing = Crossing::before(&listener.address, true);
    let call = || {
        let net = net(with(Tls::confidential().client(authority.client(None))));
        net.block_on(net.connect(&crossing.address).into_future()).expect_err("it is no peer")
    };
    let errors = thread::scope(|scope| {
        let other = scope.spawn(call);
        [call(), other.join().expect("the other client's thread")]
    });
    for error in errors {
        is_failure(&error);
        assert!(error.stage == Stage::Handshake && error.to_string().contains("TLS fails"), "{error}");
    }
    // The clients say in clear that they end, which the listener expects encrypted.
    listener.wait_for_log("TLS fails");
}

#[test]
fn records_of_another_session_end_both_lanes() {
    pair_of(
        &only_tcp(),
        confidential(),
        async |_net, mut listener| {
            let mut connections = Vec::new();
            for _ in 0..2 {
                connections.push(listener.accept().await?.accept().await?);
            }
            let echo = async |connection: &Connection| loop {
                match connection.recv().within(LIMIT).await {
                    Ok(message) => connection.send(&message).await.unwrap_or_default(),
                    Err(error) => return error,
                }
            };
            let errors = join(echo(&connections[0]), echo(&connections[1])).await;
            is_failure(&errors.0);
            is_failure(&errors.1);
            Ok(())
        },
        async |net, address| {
            let crossing = Crossing::before(&address, false);
            let connect = || net.connect(&crossing.address).into_future();
            let connections = join(connect(), connect()).await;
            let connections = [connections.0?, connections.1?];
            for is_crossed in [false, true] {
                crossing.is_crossed.store(is_crossed, Ordering::Relaxed);
                for connection in &connections {
                    let _ = connection.send(b"to be sent back").within(LIMIT).await;
                }
                for connection in &connections {
                    let received = connection.recv().within(LIMIT).await;
                    match is_crossed {
                        false => assert_eq!(&*received?, b"to be sent back"),
                        true => is_failure(&received.expect_err("it is of another session")),
                    }
                }
            }
            Ok(())
        },
    );
}
