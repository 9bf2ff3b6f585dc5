//! A host on the path of a lane inside TLS that changes, repeats, drops, adds or cuts what passes: both sides fail with a reason, and
//! neither takes it for an orderly end. Peers that break off inside TLS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::certificates::Authority;
use crate::support::path::{Harm, Path};
use crate::support::tls_lane::{HERE, confidential, only_tcp};
use crate::support::{self, LIMIT, pair_of};
use uct_net::local::Net;
use uct_net::{Error, NetOptions, Tls};

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
    for sent in [&b""[..], b"UCTN", b"UCTN\x05\x01\0\0\xff\xff\x03\0"] {
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
