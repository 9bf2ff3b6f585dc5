//! Peers that complete the handshake and then break the protocol: each ends its own connection, with the reason on both sides,
//! and an honest connection of the same thread goes on.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::logged_listener::LoggedListener;
use crate::support::namespaces::{Cable, FAR};
use crate::support::raw::{Raw, RawConnection};
use crate::support::{self, LIMIT, LOOPBACK, log, net, raw, seed, skip};
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};

const TRANSPORTS: [&str; 2] = ["posix/memory", "tcp/lo"];
/// What an honest peer grants at first.
const WINDOW: u32 = 256 << 10;

fn options() -> NetOptions {
    NetOptions { window: 65_536, max_message: 40_000, ..support::patient() }
}

/// A server with an honest connection and one of a peer that does `harm`; `check` sees the server's end of the latter. The honest
/// one exchanges messages before, meanwhile and afterwards.
fn attacked(
    harm: impl Fn(&mut RawConnection) + Copy,
    check: impl AsyncFn(Connection) + Send + Copy + 'static,
) {
    for transport in TRANSPORTS {
        let (sender, receiver) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let net = net(options());
            net.block_on(async {
                let mut listener = net.listen("127.0.0.1:0").await?;
                sender.send(listener.address()).expect("the client waits");
                let honest = listener.accept().await?.accept().await?;
                assert_eq!(&*honest.recv().within(LIMIT).await?, b"before");
                honest.send(b"seen").await?;
                let harmed = listener.accept().await?.accept().await?;
                check(harmed).await;
                assert_eq!(&*honest.recv().within(LIMIT).await?, b"meanwhile");
                honest.send(b"goes on").await?;
                let end = honest.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "{end}");
                Ok::<_, uct_net::Error>(())
            })
            .expect("the server's side");
        });
        let address = receiver.recv_timeout(LIMIT).expect("the server listens");
        let client = net(support::patient());
        let honest = client.block_on(async {
            let honest = client.connect(&address).require(transport).await?;
            honest.send(b"before").await?;
            assert_eq!(&*honest.recv().within(LIMIT).await?, b"seen");
            Ok::<_, uct_net::Error>(honest)
        });
        let honest = honest.expect("an honest connection");
        let raw = Raw::new();
        let mut hostile = raw.call(&address, transport).connect();
        harm(&mut hostile);
        client
            .block_on(async {
                honest.send(b"meanwhile").await?;
                assert_eq!(&*honest.recv().within(LIMIT).await?, b"goes on", "over {transport}");
                honest.close().within(LIMIT).await
            })
            .expect("the honest connection goes on");
        server.join().expect("the server's thread");
    }
}

/// As [`attacked`]; both sides get `reason`.
fn ends(harm: impl Fn(&mut RawConnection) + Copy, reason: &'static str) {
    attacked(
        |hostile| {
            harm(hostile);
            if let Some(text) = hostile.aborted() {
                assert!(text.contains(reason), "{text:?}, expected {reason:?}");
            }
        },
        async move |harmed| {
            let error = harmed.closed().await;
            assert!(error.to_string().contains(reason), "{error}, expected {reason:?}");
            assert!(harmed.send(b"x").await.is_err());
        },
    );
}

#[test]
fn a_peer_that_grants_more_than_its_window_ends_its_connection() {
    for granted in [WINDOW + 1, WINDOW * 2, 1 << 30] {
        ends(
            move |hostile| {
                let _ = hostile.send(raw::CREDIT, granted, b"");
            },
            "granted more than its window",
        );
    }
}

#[test]
fn a_peer_that_sends_more_than_it_has_credit_for_ends_its_connection() {
    ends(
        |hostile| {
            for _ in 0..65_536 / 1064 + 1 {
                let _ = hostile.send(raw::LAST, WINDOW, &[0; 1000]);
            }
        },
        "more than it had credit for",
    );
}

#[test]
fn parts_without_end_are_bounded() {
    ends(
        |hostile| {
            for _ in 0..200 {
                let _ = hostile.send(raw::PART, WINDOW, &[0; 1000]);
            }
        },
        ": max_message is ",
    );
}

#[test]
fn a_flood_of_shared_memory_ends_its_connection() {
    ends(
        |hostile| {
            for _ in 0..100 {
                let _ = hostile.send(raw::SHARE, WINDOW, &[0; 100]);
            }
        },
        "shared more memory",
    );
    ends(
        |hostile| {
            let _ = hostile.send(raw::SHARE, WINDOW, &[0; 3]);
        },
        "shared memory is malformed",
    );
    // Keys that are none would take more memory than the window.
    ends(
        |hostile| {
            let _ = hostile.send(raw::SHARE, WINDOW, &[0; 2000]);
        },
        "shared memory is malformed",
    );
    ends(
        |hostile| {
            let _ = hostile.send(raw::OFFER, WINDOW, &[0; 2000]);
        },
        "offer is malformed",
    );
}

#[test]
fn a_flood_of_notifications_ends_its_connection() {
    ends(
        |hostile| {
            let _ = hostile.send(raw::NOTIFY, WINDOW, &[0; 1025]);
        },
        "notification is too long",
    );
    ends(
        |hostile| {
            for _ in 0..100 {
                let _ = hostile.send(raw::NOTIFY, WINDOW, &[0; 1024]);
            }
        },
        "more than it had credit for",
    );
}

#[test]
fn a_second_probe_ends_its_connection() {
    ends(
        |hostile| {
            let _ = hostile.send(raw::PROBE, WINDOW, b"");
        },
        "second probe",
    );
}

#[test]
fn a_message_after_the_end_ends_its_connection() {
    ends(
        |hostile| {
            let _ = hostile.send(raw::FIN, WINDOW, &[0]);
            let _ = hostile.send(raw::LAST, WINDOW, b"more");
        },
        "sent a message after its end",
    );
}

#[test]
fn an_unknown_kind_ends_its_connection() {
    for kind in [0, 14, 255] {
        ends(
            move |hostile| {
                let _ = hostile.send(kind, WINDOW, b"");
            },
            "not of this protocol",
        );
    }
    ends(
        |hostile| {
            let _ = hostile.send_to(hostile.token, raw::LAST, b"");
        },
        "not of this protocol",
    );
}

/// Those of an interface of tcp.
fn sockets_of(net: &Net) -> u64 {
    let tcp = net.ifaces().iter().find(|iface| iface.resource().to_string() == "tcp/lo").expect("tcp");
    let counters = tcp.transport_counters();
    counters.into_iter().find(|(name, _)| name == "connections").expect("a counter").1
}

/// They break the protocol, and keep their sockets.
#[test]
fn callers_whose_connections_are_over_hold_no_sockets_of_the_listener() {
    const CALLERS: usize = 12;
    let options = NetOptions { max_connections: 4, ..options() };
    let (server, address) =
        support::serve(&support::context(), options, LOOPBACK, async |net, mut listener| {
            for _ in 0..CALLERS {
                listener.accept().await?.accept().await?.closed().await;
            }
            let are_closed = async {
                while sockets_of(net) > 0 {
                    net.sleep(Duration::from_millis(1)).await;
                }
            };
            assert!(net.within(LIMIT, are_closed).await.is_some(), "{} are open", sockets_of(net));
            Ok(())
        });
    let raw = Raw::new();
    let break_off = |_| {
        let mut hostile = raw.call(&address, "tcp/lo").connect();
        assert_eq!(hostile.send(0, WINDOW, b""), Ok(()));
        assert!(hostile.aborted().is_some_and(|reason| reason.contains("not of this protocol")));
        hostile
    };
    let held: Vec<RawConnection> = (0..CALLERS).map(break_off).collect();
    server.join().expect("the server's thread");
    drop(held);
}

/// Words that forge a line of a log, clear a terminal, turn the direction of writing and hide, over and over again.
fn hostile_words() -> String {
    let words =
        "no\nERROR uct_net: all is lost\r\x1b[2J\x1b]0;x\x07\u{9b}A\u{202e}\u{2028}\u{200b}\u{e0041}\u{feff}";
    words.repeat((32 << 10) / words.len())
}

/// Text that was made of such words is short, and nothing of it moves a cursor, hides, or begins a line.
#[track_caller]
fn assert_harmless(text: &str, most_lines: usize) {
    assert!(text.lines().count() <= most_lines, "{} lines: {text:.4000}", text.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() < 3000, "{} characters: {line:.4000}", line.chars().count());
        assert!(!line.starts_with("ERROR"), "{line}");
        let is_harmless =
            |shown: char| !shown.is_control() && (shown.is_ascii() || "→–…\u{fffd}".contains(shown));
        assert_eq!(line.chars().find(|&shown| !is_harmless(shown)), None, "{line:?}");
    }
}

/// A list of one interface's addresses, as a peer may make them up.
fn addresses(device: &str, transport: &str) -> Vec<u8> {
    let named = |name: &str| [&[name.len() as u8], name.as_bytes()].concat();
    let address = [&[1, transport.len() as u8, 0, 0], transport.as_bytes()].concat();
    [&b"UCTA\x01\x01\0"[..], &named(device), &address].concat()
}

#[test]
fn the_reason_of_an_abort_moves_no_cursor() {
    attacked(
        |hostile| {
            let _ = hostile.send(raw::ABORT, WINDOW, b"a\x1b[2Jb\nc\r\x07\xff\xe2\x80\xae");
        },
        async |harmed| {
            let error = harmed.closed().await.to_string();
            assert!(error.contains(r#"aborted by the peer: "a\u{1b}[2Jb\nc\r\u{7}"#), "{error:?}");
            assert_harmless(&error, 1);
        },
    );
}

/// What a listener does with a caller.
type Listens<'a> = &'a dyn Fn(&Raw, &mut TcpStream);

#[test]
fn what_a_listener_says_is_shown_in_its_quotes_and_cut() {
    let refuse = |raw: &Raw, caller: &mut TcpStream| {
        assert_eq!(raw.read(caller).expect("a frame").0, raw::HELLO);
        let refused = raw::frame(raw::REFUSED, &raw::field(raw::REASON, hostile_words().as_bytes()));
        caller.write_all(&refused).expect("sent");
    };
    let name = |device: &'static str, transport: &'static str| {
        move |raw: &Raw, caller: &mut TcpStream| {
            assert_eq!(raw.read(caller).expect("a frame").0, raw::HELLO);
            let fields = [
                raw::field(raw::PRIVATE, b""),
                raw::field(raw::ADDRESSES, &addresses(device, transport)),
                raw::field(raw::EXPLANATION, b""),
                raw::first_end(),
            ];
            caller.write_all(&raw::frame(raw::WELCOME, &fields.concat())).expect("sent");
        }
    };
    // It opens no lane, and says so at length.
    let unable = |raw: &Raw, caller: &mut TcpStream| {
        assert_eq!(raw.read(caller).expect("a frame").0, raw::HELLO);
        let lines = vec![b'\n'; 240_000];
        let fields = [raw.hello_body(), raw::field(raw::EXPLANATION, &lines), raw::first_end()];
        caller.write_all(&raw::frame(raw::WELCOME, &fields.concat())).expect("sent");
        while raw.read(caller).expect("a frame").0 != raw::UNABLE {
            let unable = raw::frame(raw::UNABLE, &raw::field(raw::REASON, hostile_words().as_bytes()));
            caller.write_all(&unable).expect("sent");
        }
    };
    let shown = r#""no\nERROR uct_net: all is lost\r\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}A\u{202e}\u{2028}\u{200b}\u{e0041}\u{feff}no\n"#;
    let cases: [(Listens<'_>, &str); 4] = [
        (&refuse, shown),
        (&name("eth0\u{202e}\n", "tcp"), r#""eth0\u{202e}\n" is no device's name"#),
        (&name("lo", "t\ncp"), r#""t\ncp" is no transport's name"#),
        (&unable, shown),
    ];
    for (listens, part) in cases {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let (log, subscriber) = log::recorded();
        let error = std::thread::scope(|scope| {
            let client = scope.spawn(move || {
                tracing::subscriber::with_default(subscriber, || {
                    let net = net(options());
                    let call = net.connect(address).require("memory").within(LIMIT).into_future();
                    net.block_on(call).map(|_| ())
                })
            });
            let raw = Raw::new();
            listens(&raw, &mut socket.accept().expect("a caller").0);
            client.join().expect("no panic").expect_err("it has no lane").to_string()
        });
        assert!(error.contains(part), "{error}");
        assert_harmless(&error, 1);
        assert_harmless(&log.text(), 8);
    }
}

#[test]
fn what_a_caller_says_is_shown_in_its_quotes_and_cut() {
    let listener = LoggedListener::new(options());
    let say_hello = |addresses: &[u8]| {
        let mut socket = TcpStream::connect(&listener.address).expect("it listens");
        let hello = [raw::field(raw::PRIVATE, b""), raw::field(raw::ADDRESSES, addresses)].concat();
        socket.write_all(&raw::frame(raw::HELLO, &hello)).expect("sent");
        let _ = socket.read(&mut [0]);
    };
    say_hello(&addresses("lo", &"x\n\u{202e}".repeat(40)));
    say_hello(&addresses("\x1b[2J", "tcp"));
    listener.wait_for_log(r#""x\n\u{202e}x\n\u{202e}"#);
    assert_harmless(&listener.wait_for_log(r#""\u{1b}[2J" is no device's name"#), 100);

    let net = net(options());
    let error = net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let address = listener.address();
        let caller = std::thread::spawn(move || {
            let raw = Raw::new();
            let mut socket = raw.hello(&address);
            assert_eq!(raw.read(&mut socket).expect("a frame").0, raw::WELCOME);
            let unable = raw::frame(raw::UNABLE, &raw::field(raw::REASON, hostile_words().as_bytes()));
            socket.write_all(&unable).expect("sent");
            let _ = socket.read(&mut [0]);
        });
        let incoming = listener.accept().await.expect("a caller");
        let error = incoming.accept().await.expect_err("it gave up").to_string();
        caller.join().expect("no panic");
        error
    });
    assert!(error.contains(r#"the peer gave up: "no\nERROR uct_net: all is lost\r"#), "{error}");
    assert_harmless(&error, 1);
}

#[test]
fn floods_of_ends_answers_credit_and_strays_harm_no_other_connection() {
    attacked(
        |hostile| {
            for number in 0..20_000_u64 {
                let sent = match number % 5 {
                    0 => hostile.send(raw::CREDIT, number as u32, b""),
                    1 => hostile.send(raw::PROBE_REPLY, WINDOW, b""),
                    2 => hostile.send(7, WINDOW, b""),
                    3 => hostile.send_bytes(number << 24, &[raw::LAST, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]),
                    // All of the header is right, and what is behind it is none of a connection's.
                    _ => hostile.send_bytes(hostile.token.header, &[raw::ABORT; 9][..number as usize % 10]),
                };
                assert_eq!(sent, Ok(()));
            }
            assert_eq!(hostile.send(raw::LAST, WINDOW, b"after the flood"), Ok(()));
            for _ in 0..2000 {
                let _ = hostile.send(raw::FIN, WINDOW, &[0]);
            }
        },
        async |harmed| {
            assert_eq!(&*harmed.recv().within(LIMIT).await.expect("it did no harm"), b"after the flood");
            harmed.recv().within(LIMIT).await.expect_err("the end, or too many of them");
        },
    );
}

/// With `UCT_TEST_HOSTILE` it is 1 GiB of them.
#[test]
fn guesses_of_a_token_leave_a_warning_with_their_number() {
    const LENGTH: u64 = 16;
    let bytes: u64 = if std::env::var_os("UCT_TEST_HOSTILE").is_some() { 1 << 30 } else { 3 << 20 };
    for transport in TRANSPORTS {
        let listener = LoggedListener::new(options());
        let mut hostile = Raw::new().call(&listener.address, transport).connect();
        let own = hostile.token;
        for number in 0..bytes / LENGTH {
            // Each half of the secret is wrong in turn; the index is right.
            let (header, rest) = match number % 2 {
                0 => (own.header ^ (number + 1) << 24, own.rest),
                _ => (own.header, own.rest ^ (number as u32 % 0xff_ffff + 1)),
            };
            let guess = raw::Token { header, rest };
            assert_eq!(hostile.send_to(guess, raw::ABORT, &[0; 4]), Ok(()));
        }
        listener.wait_for_log("65536 messages were for no connection of this side");
        assert_eq!(hostile.receive(), Some((raw::LAST, b"welcome".to_vec())), "its own connection goes on");
    }
}

fn keyed() -> NetOptions {
    NetOptions { shared_key: Some(b"a key of both of them".to_vec()), ..support::patient() }
}

/// The server takes nothing of that, and says so at most.
#[track_caller]
fn is_refused(raw: &Raw, server: &mut TcpStream, what: &str) {
    let answer = raw.read(server).map(|(what, _)| what);
    assert!(matches!(answer, Err(_) | Ok(raw::REFUSED)), "frame {answer:?} for {what}");
}

/// A program that has no key, between two that have it: `relay` gets the frames of both. Returns the client's error.
fn between(relay: impl FnOnce(&Raw, &mut TcpStream, &mut TcpStream)) -> uct_net::Error {
    let listener = LoggedListener::new(keyed());
    let called = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = called.local_addr().expect("an address").to_string();
    let client = std::thread::spawn(move || {
        let net = net(keyed());
        net.block_on(net.connect(address)).expect_err("it is no peer")
    });
    let mut caller = called.accept().expect("the client calls").0;
    let mut server = TcpStream::connect(&listener.address).expect("the listener lives");
    let raw = Raw::new();
    for what in [raw::ASK, raw::CHALLENGE, raw::ANSWER] {
        let is_servers = what == raw::CHALLENGE;
        let (from, to) = if is_servers { (&mut server, &mut caller) } else { (&mut caller, &mut server) };
        raw.pass_on(what, from, to, |_| {});
    }
    relay(&raw, &mut caller, &mut server);
    drop((caller, server));
    client.join().expect("the client's thread")
}

#[test]
fn a_relay_of_the_proof_sends_no_frame_of_its_own() {
    between(|raw, _, server| {
        raw.send_hello(server);
        is_refused(raw, server, "a caller without the key");
    });
}

#[test]
fn a_relay_of_the_proof_changes_and_repeats_no_frame() {
    let change = |body: &mut Vec<u8>| {
        let middle = body.len() / 2;
        body[middle] ^= 1;
    };
    between(|raw, caller, server| {
        raw.pass_on(raw::HELLO, caller, server, change);
        is_refused(raw, server, "a Hello that was changed");
    });
    let error = between(|raw, caller, server| {
        raw.pass_on(raw::HELLO, caller, server, change);
        raw.pass_on(raw::REFUSED, server, caller, |_| {});
        assert!(raw.read(caller).is_err(), "it goes on");
    });
    assert!(error.to_string().contains("rejected the connection: \"a frame is not the peer's"), "{error}");
    let error = between(|raw, caller, server| {
        raw.pass_on(raw::HELLO, caller, server, |_| {});
        raw.pass_on(raw::WELCOME, server, caller, change);
        let answer = raw.read(caller).map(|(what, _)| what);
        assert!(answer.is_err(), "frame {answer:?} for a Welcome that was changed");
    });
    assert!(error.to_string().contains("not the peer's, or not in its order"), "{error}");
    between(|raw, caller, server| {
        let hello = raw.pass_on(raw::HELLO, caller, server, |_| {});
        raw.pass_on(raw::WELCOME, server, caller, |_| {});
        std::io::Write::write_all(server, &hello).expect("sent");
        is_refused(raw, server, "a Hello that was repeated");
    });
}

/// A small generator of its own, so that a seed repeats a run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn random_messages_harm_no_other_connection() {
    let seed = seed::printed() | 1;
    for round in 0..8 {
        attacked(
            move |hostile| {
                let mut state = seed.wrapping_mul(2 * round + 1);
                for _ in 0..500 {
                    let kind = (random(&mut state) % 14) as u8;
                    let granted =
                        if random(&mut state).is_multiple_of(8) { random(&mut state) as u32 } else { WINDOW };
                    let length = (random(&mut state) % 3000) as usize;
                    let _ = hostile.send(kind, granted, &vec![random(&mut state) as u8; length]);
                }
                let _ = hostile.send(raw::ABORT, WINDOW, b"enough");
            },
            async |harmed| {
                while harmed.recv().within(LIMIT).await.is_ok() {}
            },
        );
    }
}

#[test]
fn a_listener_connects_to_no_one_at_the_word_of_a_caller() {
    let listener = LoggedListener::new(options());
    let elsewhere = TcpListener::bind("127.0.0.2:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("set");
    let Ok(SocketAddr::V4(address)) = elsewhere.local_addr() else { panic!("an address") };
    for what in [raw::DIRECT, raw::LANE, raw::OVER, raw::TAKEOVER] {
        let mut call = Raw::new().call(&listener.address, "tcp/lo");
        call.listens_at(address);
        call.propose(what);
        match what {
            raw::DIRECT | raw::LANE => {
                let (answer, body) = call.answer();
                let text = String::from_utf8_lossy(&body).into_owned();
                assert!(
                    answer == raw::UNABLE && text.contains("has not proved who it is"),
                    "{answer}: {text}"
                );
                assert!(text.contains("shared_key"), "{text}");
            }
            // The socket of the call becomes the lane; it ends with the call.
            raw::OVER => assert_eq!(call.answer().0, raw::READY),
            _ => call.raw.settle(),
        }
        let called = elsewhere.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(called, Err(ErrorKind::WouldBlock), "frame {what}");
    }
}

/// The interfaces that a frame names, but for those of networks.
fn memory_in(body: &[u8]) -> Vec<String> {
    let ifaces = raw::named(body).ifaces.into_iter();
    let near = ["self", "posix", "sysv", "cma"];
    ifaces.map(|iface| iface.address.transport).filter(|name| near.contains(&name.as_str())).collect()
}

/// Shared memory of one machine, and a network between two addresses. Only a proof leads from one to the other: without it a caller is not told
/// of the memory, and one that knows of it is refused.
#[test]
fn memory_of_a_machine_is_for_callers_of_that_machine() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let cable = Cable::new();
    let ((address_to, address), (socket_to, socket)) = (mpsc::channel(), mpsc::channel::<TcpStream>());
    let far = cable.far(move || {
        let listener = LoggedListener::at(format!("{FAR}:0"), options());
        address_to.send(listener.address.clone()).expect("the near end waits");
        let socket = socket.recv_timeout(LIMIT).expect("a socket of the near end");
        // A caller of this machine is told.
        let raw = Raw::new();
        let theirs = raw.call(&listener.address, "posix/memory").theirs;
        // This one has memory of the listener's machine, and calls from elsewhere.
        let (socket, welcome) = raw.welcome_over(socket);
        let told = memory_in(&welcome);
        let mut call = raw.call_to((socket, welcome), "posix/memory", theirs);
        call.propose(raw::LANE);
        let (answer, body) = call.answer();
        (told, answer, String::from_utf8_lossy(&body).into_owned(), call.explanation)
    });
    let near = cable.near(move || {
        let address = address.recv_timeout(LIMIT).expect("the far end listens");
        socket_to.send(TcpStream::connect(address).expect("it listens")).expect("the far end waits");
    });
    near.join().expect("the near end");
    let (told, answer, refusal, explanation) = far.join().expect("the far end");
    assert!(told.is_empty(), "the Welcome names {told:?}");
    assert_eq!(answer, raw::UNABLE, "{refusal}");
    for text in [refusal, explanation] {
        assert!(text.contains("the peer's address is not of this machine"), "{text}");
    }
}

#[test]
fn a_client_uses_no_memory_at_the_word_of_a_listener_elsewhere_and_names_none_to_it() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let cable = Cable::new();
    let ((address_to, address), (socket_to, socket)) = (mpsc::channel(), mpsc::channel::<TcpStream>());
    let far = cable.far(move || {
        let listener = TcpListener::bind((FAR, 0)).expect("a port");
        address_to.send(listener.local_addr().expect("an address").to_string()).expect("the near end waits");
        socket_to.send(listener.accept().expect("a caller").0).expect("the near end waits");
    });
    let near = cable.near(move || {
        let address = address.recv_timeout(LIMIT).expect("the far end listens");
        let hostile = std::thread::spawn(move || {
            let mut caller = socket.recv_timeout(LIMIT).expect("the client calls");
            // It has memory of the client's machine.
            let raw = Raw::new();
            (raw.answer_hello(&mut caller), raw.read(&mut caller).expect("a frame").0)
        });
        let net = net(support::patient());
        let error = net.block_on(net.connect(address)).expect_err("the listener goes away");
        (hostile.join().expect("the listener's thread"), error.to_string())
    });
    far.join().expect("the far end");
    let ((hello, chosen), error) = near.join().expect("the near end");
    assert_eq!(chosen, raw::TAKEOVER, "{error}");
    assert!(memory_in(&hello).is_empty(), "the Hello names {:?}", memory_in(&hello));
}

/// The same two ends with a key, which each proves to the other.
#[test]
fn a_peer_elsewhere_that_knows_the_key_may_use_memory_of_this_machine() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let cable = Cable::new();
    let keyed = || NetOptions { shared_key: Some(b"a key of both of them".to_vec()), ..support::patient() };
    let (address_to, address) = mpsc::channel();
    let far = cable.far(move || {
        let net = net(keyed());
        net.block_on(async {
            let mut listener = net.listen(format!("{FAR}:0")).await?;
            address_to.send(listener.address()).expect("the near end waits");
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"through memory");
            Ok::<_, uct_net::Error>(())
        })
    });
    let near = cable.near(move || {
        let net = net(keyed());
        net.block_on(async {
            let address = address.recv_timeout(LIMIT).expect("the far end listens");
            let connection = net.connect(address).require("posix").await?;
            connection.send(b"through memory").await?;
            connection.close().within(LIMIT).await
        })
    });
    assert_eq!(near.join().expect("the near end"), Ok(()));
    assert_eq!(far.join().expect("the far end"), Ok(()));
}
