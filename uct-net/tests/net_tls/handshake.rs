//! TLS for the handshake: which peers are admitted, the reason of each refusal, what a host on the path sees, which transports are permitted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::certificates::Authority;
use crate::support::logged_listener::LoggedListener;
use crate::support::relay::Relay;
use crate::support::spans::{Spans, names};
use crate::support::{self, LIMIT, context, net, pair_with};
use tracing::level_filters::LevelFilter;
use uct_core::{DeviceKind, Error as Status};
use uct_net::local::{Connect, Net};
use uct_net::{Error, NetOptions, Result, Stage, Tls};

const HERE: &str = "127.0.0.1";
/// What a host on the path must not see.
const PRIVATE: &[u8] = b"private data of the client";

fn with(tls: Tls) -> NetOptions {
    NetOptions { tls: Some(tls), ..support::patient() }
}

/// Options of a server, and of a client that trusts it.
fn trusting(tls: impl Fn() -> Tls) -> (NetOptions, NetOptions) {
    let authority = Authority::new("ours");
    let server = with(tls().server(authority.issue(HERE).server()));
    (server, with(tls().client(authority.client(None))))
}

/// Whether a listener lets in a caller with these options.
fn call(listener: &LoggedListener, options: NetOptions, add: impl FnOnce(Connect) -> Connect) -> Result {
    let net = net(options);
    net.block_on(async {
        let connection = add(net.connect(&listener.address)).within(LIMIT).await?;
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"welcome");
        Ok(())
    })
}

fn refused(listener: &LoggedListener, options: NetOptions) -> Error {
    call(listener, options, |connect| connect).expect_err("refused")
}

fn expect(error: &Error, parts: &[&str]) {
    for part in parts {
        assert!(error.to_string().contains(part), "{error}: expected {part:?}");
    }
}

#[test]
fn handshake_only_connects_over_every_transport_and_confidential_over_those_of_the_machine_and_tcp_inside_tls()
 {
    for (tls, is_near) in [(Tls::handshake_only as fn() -> Tls, false), (Tls::confidential, true)] {
        let (server, client) = trusting(tls);
        let near =
            |name: &String| ["posix/", "sysv/", "cma/", "tcp/"].iter().any(|near| name.starts_with(near));
        let inside = |name: &str| if is_near && name.starts_with("tcp/") { " inside TLS" } else { "" };
        for transport in support::transports().into_iter().filter(|name| !is_near || near(name)) {
            pair_with(
                (server.clone(), client.clone()),
                async |_net, mut listener| {
                    let connection = listener.accept().await?.accept_with(vec![3; 60_000]).await?;
                    let message = connection.recv().within(LIMIT).await?;
                    connection.send(&message).await?;
                    connection.close().within(LIMIT).await
                },
                async |net, address| {
                    let connect = net.connect(address).require(&transport).private(vec![4; 60_000]);
                    let connection = connect.within(LIMIT).await?;
                    let chosen = format!("{transport}{}", inside(&transport));
                    assert_eq!(connection.explanation().chosen, chosen);
                    assert_eq!(connection.private(), vec![3; 60_000]);
                    let message = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>();
                    connection.send(&message).await?;
                    assert!(*connection.recv().within(LIMIT).await? == *message);
                    Ok(())
                },
            );
        }
    }
}

#[test]
fn both_flavours_know_the_peer_by_its_certificate() {
    let authority = Authority::new("ours");
    let (server, client) = (authority.issue(HERE), authority.issue("client.test"));
    let both = with(
        Tls::confidential().server(authority.strict_server(&server)).client(authority.client(Some(&client))),
    );
    pair_with(
        (both.clone(), both.clone()),
        async move |_net, mut listener| {
            let incoming = listener.accept().await?;
            let peer = incoming.tls_peer().expect("TLS").clone();
            assert_eq!(peer.certificates, [client.certificate]);
            assert_eq!(peer.protocol, None);
            let connection = incoming.accept().await?;
            assert_eq!(connection.tls_peer(), Some(&peer), "it is still known once they are connected");
            connection.recv().within(LIMIT).await.map(|_| ())
        },
        async move |net, address| {
            let connection = net.connect(address).await?;
            assert_eq!(connection.tls_peer().expect("TLS").certificates, [server.certificate]);
            connection.send(b"known").await
        },
    );
    let left = uct_net::Net::new(&context(), both.clone()).expect("a net");
    let mut listener = left.block_on(left.listen("127.0.0.1:0")).expect("it listens");
    let address = listener.address().to_owned();
    let accepting = std::thread::spawn({
        let left = left.clone();
        move || {
            left.block_on(async {
                let incoming = listener.accept().await?;
                let peer = incoming.tls_peer().cloned();
                let connection = incoming.accept().await?;
                connection.send(b"known").await?;
                connection.close().await?;
                // A server of streams meets its callers once they are connected.
                let stream = listener.into_streams().next().await;
                assert_eq!(stream.connection().tls_peer(), peer.as_ref());
                Ok::<_, Error>(peer)
            })
        }
    });
    let right = uct_net::Net::new(&context(), both).expect("a net");
    let received = right.block_on(async {
        let connection = right.connect(&address).server_name(HERE).await?;
        let message = connection.recv().await.map(|message| message.to_vec())?;
        let again = right.connect(&address).server_name(HERE).await?;
        assert_eq!(again.tls_peer(), connection.tls_peer(), "the same server");
        Ok::<_, Error>(message)
    });
    assert_eq!(received, Ok(b"known".to_vec()));
    let peer = accepting.join().expect("the server's thread").expect("a connection").expect("TLS");
    assert_eq!(peer.certificates.len(), 1);
}

#[test]
fn confidential_excludes_what_leaves_the_machine_and_the_explanation_has_the_reason() {
    let (server, client) = trusting(Tls::confidential);
    let listener = LoggedListener::new(server);
    call(&listener, client.clone(), |connect| connect).expect("over shared memory");
    let error = call(&listener, client.clone(), |connect| connect.require("none")).expect_err("no such one");
    expect(
        &error,
        &["none is required", "Tls::confidential permits no transport that leaves the machine but tcp"],
    );
    assert_eq!(error.stage, Stage::Choose);
    let is_near = |kind| matches!(kind, DeviceKind::Myself | DeviceKind::SharedMemory);
    let permitted = net(client.clone());
    assert!(permitted.ifaces().iter().all(|iface| is_near(iface.resource().kind) || iface.adopts()));

    // A peer that would send in clear finds no address to send to.
    let authority = Authority::new("ours");
    let listener = LoggedListener::new(with(Tls::confidential().server(authority.issue(HERE).server())));
    let client = with(Tls::handshake_only().client(authority.client(None)));
    let error = call(&listener, client, |connect| connect.require("tcp")).expect_err("the server has none");
    expect(&error, &["tcp is required", "the peer has"]);
    assert!(!error.hint.expect("a hint").contains("tcp/"));
}

#[test]
fn a_certificate_that_is_not_accepted_is_an_error_of_both_sides_in_words() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let client = |authority: &Authority| with(Tls::confidential().client(authority.client(None)));
    let listener_with = |server| LoggedListener::new(with(Tls::confidential().server(server)));

    let listener = listener_with(authority.issue(HERE).server());
    let error = refused(&listener, client(&other));
    expect(
        &error,
        &["handshake", "the peer's certificate is not accepted", "UnknownIssuer", "need the root"],
    );
    assert_eq!(error.status, Status::REJECTED);
    listener.wait_for_log("the peer does not accept the certificate of this side: UnknownCA");
    let misnamed = call(&listener, client(&authority), |connect| connect.server_name("db.test"));
    expect(&misnamed.expect_err("another name"), &["not valid for name \"db.test\"", "Connect::server_name"]);
    call(&listener, client(&authority), |connect| connect).expect("let in, after all of that");

    let listener = listener_with(authority.issue_until(HERE, 2002).server());
    let error = refused(&listener, client(&authority));
    expect(&error, &["the peer's certificate is not accepted", "certificate expired", "compare the clocks"]);
    listener.wait_for_log("CertificateExpired");

    let listener = listener_with(authority.strict_server(&authority.issue(HERE)));
    let error = refused(&listener, client(&authority));
    expect(&error, &["the peer requires a certificate of this side", "with_client_auth_cert"]);
    listener.wait_for_log("the peer presents no certificate, and this side requires one");
    let unknown = other.issue("client.test");
    let error = refused(&listener, with(Tls::confidential().client(authority.client(Some(&unknown)))));
    expect(&error, &["the peer does not accept the certificate of this side"]);
    listener.wait_for_log("the peer's certificate is not accepted");
    let known = authority.issue("client.test");
    let known = with(Tls::confidential().client(authority.client(Some(&known))));
    call(&listener, known, |connect| connect).expect("let in");
}

#[test]
fn a_side_with_tls_and_one_without_each_name_the_cause() {
    let (server, client) = trusting(Tls::confidential);
    for place in ["127.0.0.1:0".to_owned(), unix_path("mixed")] {
        let named = |connect: Connect| connect.server_name(HERE);
        let listener = LoggedListener::at(place.clone(), server.clone());
        let error = refused(&listener, support::patient());
        let no_tls = "the peer does not use TLS, which this side requires";
        expect(&error, &["the peer rejected the connection: \"", no_tls, "on both sides or on neither"]);
        assert_eq!(error.status, Status::REJECTED);
        listener.wait_for_log("the peer does not use TLS, which this side requires");
        call(&listener, client.clone(), named).expect("let in");
        drop(listener);

        let listener = LoggedListener::at(place, support::patient());
        let error = call(&listener, client.clone(), named).expect_err("no TLS there");
        expect(
            &error,
            &[
                "ahead of TLS",
                "the peer begins TLS, which this side does not use",
                "on both sides or on neither",
            ],
        );
        listener.wait_for_log("the peer begins TLS, which this side does not use");
        call(&listener, support::patient(), |connect| connect).expect("let in");
    }
}

#[test]
fn other_protocols_at_a_port_with_tls_are_named() {
    // What is refused is logged when the caller has hung up, or at the limit.
    let (listener, client) = impatient();
    let mut browser = TcpStream::connect(&listener.address).expect("it listens");
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    listener.wait_for_log("the peer begins with \"GET /\", expected TLS");
    drop(browser);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mail = std::thread::spawn(move || {
        let mut caller = listener.accept().expect("a caller").0;
        caller.write_all(b"220 mail.test ESMTP\r\n").expect("sent");
        let _ = caller.read_to_end(&mut Vec::new());
        let caller = listener.accept().expect("a caller").0;
        drop(caller);
    });
    let net = net(client);
    let mut errors = Vec::new();
    for _ in 0..2 {
        errors.push(net.block_on(net.connect(&address).within(LIMIT).into_future()).expect_err("no TLS"));
    }
    expect(&errors[0], &["the peer begins with \"220 m\", expected TLS", "another protocol"]);
    expect(&errors[1], &["it may not use TLS"]);
    mail.join().expect("the listener's thread");
}

#[test]
fn settings_that_do_not_fit_are_errors_before_anything_is_sent() {
    let (server, client) = trusting(Tls::confidential);
    let error = Net::new(&context(), with(Tls::confidential())).expect_err("no settings");
    expect(&error, &["tls has no settings", "Tls::client, Tls::server or both"]);
    assert_eq!(error.status, Status::INVALID_PARAM);
    let of = |options: &NetOptions| net(options.clone());
    let (server, client, plain) = (of(&server), of(&client), of(&support::patient()));
    let error = client.block_on(client.listen("127.0.0.1:0")).expect_err("a client's settings");
    expect(&error, &["tls has no settings for a server; give Tls::server"]);
    let connect = |net: &Net, address: &str, name: Option<&str>| {
        let connect = net.connect(address);
        let connect = name.into_iter().fold(connect, Connect::server_name);
        net.block_on(connect.into_future()).expect_err("refused")
    };
    expect(&connect(&server, "127.0.0.1:1", None), &["tls has no settings for a client; give Tls::client"]);
    expect(&connect(&plain, "127.0.0.1:1", Some("db.test")), &["\"db.test\" is given, and there is no TLS"]);
    expect(&connect(&client, "unix:/run/none", None), &["a path has no name", "Connect::server_name"]);
    expect(
        &connect(&client, "127.0.0.1:1", Some("a b")),
        &["\"a b\" is no name that a certificate can be for"],
    );
    assert!(!format!("{:?}", client).is_empty());
}

#[test]
fn confidential_refuses_connection_managers_on_both_sides_before_anything_is_sent() {
    let (server, client) = trusting(Tls::confidential);
    // The called peer would see it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("an address").to_string();
    let threads = |options: &NetOptions| uct_net::Net::new(&context(), options.clone()).expect("a net");
    let (connects, listens) = (net(client.clone()), net(server.clone()));
    let (connects_threads, listens_threads) = (threads(&client), threads(&server));
    let errors = [
        (Stage::Dial, connects.block_on(connects.connect(&address).by("rdmacm")).expect_err("in clear")),
        (
            Stage::Dial,
            connects_threads.block_on(connects_threads.connect(&address).by("rdmacm")).expect_err("in clear"),
        ),
        (Stage::Listen, listens.block_on(listens.listen("127.0.0.1:0").by("rdmacm")).expect_err("in clear")),
        (
            Stage::Listen,
            listens_threads
                .block_on(listens_threads.listen("127.0.0.1:0").by("rdmacm"))
                .expect_err("in clear"),
        ),
    ];
    for (stage, error) in errors {
        assert_eq!((error.stage, error.status), (stage, Status::UNSUPPORTED), "{error}");
        expect(
            &error,
            &["by(\"rdmacm\") cannot be confidential: Tls::confidential permits no", "leave by out"],
        );
    }
    let called = listener.accept().expect_err("there is no caller");
    assert_eq!(called.kind(), std::io::ErrorKind::WouldBlock);
}

/// What a host on the path sees of a connection over a transport: the private data, the magic of the protocol, and the message.
fn seen(tls: fn() -> Tls, transport: &'static str) -> [bool; 3] {
    let (server, client) = trusting(tls);
    let message = b"a message of the application, to be found";
    let mut relay = None;
    pair_with(
        (server, client),
        async move |_net, mut listener| {
            let incoming = listener.accept().await?;
            assert_eq!(incoming.private(), PRIVATE);
            let connection = incoming.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, message);
            connection.close().within(LIMIT).await
        },
        async |net, address| {
            let on_the_path = relay.insert(Relay::before(&address));
            let connect = net.connect(&on_the_path.address).require(transport).private(PRIVATE);
            let connection = connect.within(LIMIT).await?;
            connection.send(message).await?;
            connection.recv().within(LIMIT).await.expect_err("the end");
            Ok(())
        },
    );
    let relay = relay.expect("it was called");
    [PRIVATE, b"UCTN", message].map(|bytes| relay.has_seen(bytes))
}

#[test]
fn a_host_on_the_path_sees_no_handshake_and_sees_the_messages_of_handshake_only_alone() {
    assert_eq!(seen(Tls::confidential, "posix/memory"), [false, false, false]);
    assert_eq!(seen(Tls::confidential, "tcp/lo"), [false, false, false]);
    assert_eq!(seen(Tls::handshake_only, "posix/memory"), [false, false, false]);
    // The handshake's socket is the lane afterwards, without TLS.
    assert_eq!(seen(Tls::handshake_only, "tcp/lo"), [false, false, true]);
}

#[test]
fn a_shared_key_is_proved_inside_of_tls() {
    let (server, client) = trusting(Tls::confidential);
    let keyed =
        |options: &NetOptions, key: u8| NetOptions { shared_key: Some(vec![key; 32]), ..options.clone() };
    let listener = LoggedListener::new(keyed(&server, 1));
    call(&listener, keyed(&client, 1), |connect| connect).expect("let in");
    expect(&refused(&listener, keyed(&client, 2)), &["does not know the shared key"]);
    expect(&refused(&listener, client), &["requires a shared key"]);
}

/// A listener with a short limit.
fn impatient() -> (LoggedListener, NetOptions) {
    let (server, client) = trusting(Tls::confidential);
    let brief = Duration::from_secs(1);
    (LoggedListener::new(NetOptions { handshake_timeout: brief, max_half_open: 4, ..server }), client)
}

/// The first bytes of a client.
fn client_hello() -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reading = std::thread::spawn(move || {
        let mut caller = listener.accept().expect("a caller").0;
        let mut header = [0; 5];
        caller.read_exact(&mut header).expect("a record");
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        caller.read_exact(&mut body).expect("a record");
        [&header[..], &body].concat()
    });
    let net = net(trusting(Tls::confidential).1);
    net.block_on(net.connect(address).within(LIMIT).into_future()).expect_err("it hangs up");
    reading.join().expect("the listener's thread")
}

#[test]
fn a_caller_that_stalls_anywhere_in_tls_is_hung_up_on_at_the_limit() {
    let hello = client_hello();
    let (listener, client) = impatient();
    let begun = Instant::now();
    let mut callers = Vec::new();
    for length in [0, 3, 5, hello.len() / 2, hello.len()] {
        let mut caller = TcpStream::connect(&listener.address).expect("it listens");
        caller.write_all(&hello[..length]).expect("sent");
        callers.push(caller);
    }
    for mut caller in callers {
        caller.set_read_timeout(Some(LIMIT)).expect("set");
        // An answer to the whole hello may come first.
        let _ = caller.read_to_end(&mut Vec::new());
        assert!(begun.elapsed() >= Duration::from_secs(1));
    }
    let log = listener.wait_for_log("did not complete TLS within 1s (handshake_timeout)");
    assert!(!log.contains("panicked"), "{log}");

    // A byte now and then does not prolong it: the limit is for all of TLS.
    let mut slow = TcpStream::connect(&listener.address).expect("it listens");
    let begun = Instant::now();
    let sent = hello.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(&[**byte]).is_ok() && begun.elapsed() < LIMIT
    });
    assert!(sent.count() < hello.len(), "it was taken to the end");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    call(&listener, client, |connect| connect).expect("honest callers are served");
}

#[test]
fn a_caller_that_is_refused_and_does_not_hang_up_is_hung_up_on() {
    let (listener, client) = impatient();
    let mut silent = Vec::new();
    for _ in 0..6 {
        let mut caller = TcpStream::connect(&listener.address).expect("it listens");
        caller.write_all(b"UCTN\x06\x01\0\0\0\0\0\0").expect("sent");
        caller.set_read_timeout(Some(LIMIT)).expect("set");
        silent.push(caller);
    }
    for caller in &mut silent {
        let mut received = Vec::new();
        let _ = caller.read_to_end(&mut received);
        let received = String::from_utf8_lossy(&received).into_owned();
        assert!(received.contains("does not use TLS, which this side requires"), "{received:?}");
    }
    // None of them has hung up.
    call(&listener, client, |connect| connect).expect("honest callers are served");
    drop(silent);
}

#[test]
fn a_listener_that_stalls_in_tls_ends_the_call_at_the_limit() {
    for sent in [&b""[..], b"\x16\x03\x03", b"\x16\x03\x03\x00\x7a\x02\x00"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stalling = std::thread::spawn(move || {
            let mut caller = listener.accept().expect("a caller").0;
            caller.write_all(sent).expect("sent");
            let _ = caller.read_to_end(&mut Vec::new());
        });
        let client = trusting(Tls::confidential).1;
        let net = net(NetOptions { handshake_timeout: Duration::from_millis(200), ..client });
        let error = net.block_on(net.connect(address).within(LIMIT).into_future()).expect_err("it stalls");
        assert!(error.is_timeout(), "{error}");
        expect(&error, &["handshake", "complete TLS within 200ms (handshake_timeout)"]);
        stalling.join().expect("the listener's thread");
    }
}

#[test]
fn records_without_end_end_the_handshake() {
    let authority = Authority::new("ours");
    let listener = LoggedListener::new(with(Tls::confidential().server(authority.issue(HERE).server())));
    let name = uct_net::rustls::pki_types::ServerName::try_from(HERE).expect("a name");
    let settings = std::sync::Arc::new(authority.client(None));
    let session = uct_net::rustls::ClientConnection::new(settings, name).expect("settings");
    let socket = TcpStream::connect(&listener.address).expect("it listens");
    let mut stream = uct_net::rustls::StreamOwned::new(session, socket);
    // A frame of many bytes, each in a record of its own.
    let header = [b"UCTN\x06\x01\0\0".as_slice(), &200_000_u32.to_le_bytes()].concat();
    let sent = header
        .iter()
        .chain(std::iter::repeat_n(&0, 200_000))
        .take_while(|byte| stream.write_all(&[**byte]).and_then(|()| stream.flush()).is_ok());
    assert!(sent.count() < 200_000, "each was taken");
    listener.wait_for_log("more than 4096 records");
}

fn unix_path(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("uct-net-tls-{name}-{}", std::process::id()));
    format!("unix:{}", path.display())
}

#[test]
fn tls_is_a_span_of_its_own_in_that_of_the_connection() {
    let (server, client) = (Spans::default(), Spans::default());
    let seen = server.clone();
    let _guard = client.see(LevelFilter::DEBUG);
    pair_with(
        trusting(Tls::handshake_only),
        async move |_net, mut listener| {
            seen.see_always(LevelFilter::DEBUG);
            listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| net.connect(&address).await?.send(b"seen").await,
    );
    assert_eq!(names(&client.connection().1), ["resolve", "dial", "tls", "handshake", "established"]);
    assert_eq!(names(&server.connection().1), ["tls", "hello", "handshake", "established"]);
}
