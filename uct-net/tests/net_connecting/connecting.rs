//! Addresses, private data, refusals, and the text of each failure.

use std::time::{Duration, Instant};

use crate::support::{self, LIMIT, net, pair};
use uct_core::Error as Status;
use uct_core::select::{Operation, Request};
use uct_net::local::Net;
use uct_net::{NetOptions, Stage};

#[test]
fn private_data_cross_both_ways_and_are_seen_before_the_connection_is_taken() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let incoming = listener.accept().await?;
            assert_eq!(incoming.private(), b"who I am");
            assert!(incoming.peer().starts_with("127.0.0.1:"), "{}", incoming.peer());
            let connection = incoming.accept_with(vec![9; 60_000]).await?;
            connection.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).private("who I am").await?;
            assert_eq!(connection.private(), vec![9; 60_000]);
            connection.send(b"seen").await
        },
    );
}

#[test]
fn a_rejected_caller_gets_the_reason_and_the_next_one_is_accepted() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            listener.accept().await?.reject("not on a Sunday").await?;
            drop(listener.accept().await?);
            listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| {
            let error = net.connect(&address).await.expect_err("rejected");
            assert_eq!(error.status, Status::REJECTED);
            assert!(error.to_string().contains("not on a Sunday"), "{error}");
            let error = net.connect(&address).await.expect_err("dropped");
            assert_eq!(error.status, Status::REJECTED);
            net.connect(&address).await?.send(b"third").await
        },
    );
}

#[test]
fn of_several_requests_one_that_a_transport_can_meet_decides() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let incoming = listener.accept().await?;
            assert!(incoming.accept().await.is_err(), "no transport sends 1 GiB inline");
            listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| {
            let impossible = Request::new(Operation::AmShort, 1 << 30);
            let error = net.connect(&address).request(impossible).await.expect_err("impossible");
            assert_eq!(error.stage, Stage::Choose);
            let possible = Request::new(Operation::AmBcopy, 64);
            let connection = net.connect(&address).request(impossible).request(possible).request(impossible);
            let connection = connection.await?;
            assert!(connection.explanation().ours.chosen().is_some());
            connection.send(b"possible").await
        },
    );
}

#[test]
fn a_unix_path_is_an_address_and_is_gone_with_its_listener() {
    let directory = std::env::temp_dir().join(format!("uct-net-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("listener");
    let address = format!("unix:{}", path.display());
    let (sender, receiver) = std::sync::mpsc::channel();
    let server_address = address.clone();
    let server = std::thread::spawn(move || {
        let net = net(support::patient());
        net.block_on(async {
            let mut listener = net.listen(server_address).await?;
            assert_eq!(listener.port(), None);
            sender.send(()).expect("the client waits");
            for _ in 0..2 {
                listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            }
            Ok::<_, uct_net::Error>(())
        })
    });
    receiver.recv_timeout(LIMIT).expect("the server listens");
    let net = net(support::patient());
    net.block_on(async {
        net.connect(&address).await?.send(b"over a path").await?;
        // Over tcp the socket at the path becomes the lane.
        let connection = net.connect(&address).require("tcp").await?;
        connection.send(b"over its socket").await?;
        connection.close().within(LIMIT).await
    })
    .expect("connected");
    drop(net);
    server.join().expect("the server's thread").expect("the server's side");
    assert!(!path.exists());
    std::fs::remove_dir(&directory).expect("empty");
}

#[test]
fn a_path_is_listened_to_again_after_its_program_was_killed_and_what_is_anothers_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    // As a program leaves it that is killed.
    drop(std::os::unix::net::UnixListener::bind(path("left")).expect("it is free"));
    std::fs::write(path("file"), "text").expect("a file");
    let net = net(support::patient());
    net.block_on(async {
        let left = format!("unix:{}", path("left").display());
        let listener = net.listen(&left).await.expect("nobody listens there");
        let error = net.listen(&left).await.expect_err("the first one listens");
        assert_eq!((error.stage, error.status), (Stage::Listen, Status::BUSY));
        assert!(error.to_string().contains("another program listens there: choose another"), "{error}");
        let error = net.listen(format!("unix:{}", path("file").display())).await.expect_err("a file");
        assert!(error.to_string().contains("a regular file is there: remove it"), "{error}");
        let missing = net.listen(format!("unix:{}", path("no/such").display())).await;
        assert!(missing.expect_err("no directory").to_string().contains("make the directory first"));
        // The name is another's by now.
        std::fs::remove_file(path("left")).expect("removed");
        let _successor = net.listen(&left).await.expect("the name is free");
        drop(listener);
        assert!(path("left").exists());
    });
    assert_eq!(std::fs::read(path("file")).expect("it stays"), b"text");
    assert!(!path("left").exists());
}

#[test]
fn a_name_is_looked_up() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            listener.accept().await?.accept().await?.recv().within(LIMIT).await.map(|_| ())
        },
        async |net, address| {
            let port = address.rsplit(':').next().expect("a port");
            net.connect(format!("localhost:{port}")).await?.send(b"by name").await
        },
    );
}

#[test]
fn every_failure_has_its_stage_the_address_and_a_remedy() {
    let net = net(support::patient());
    let fails = |address: &str| {
        let address = address.to_owned();
        net.block_on(async { net.connect(address).within(Duration::from_secs(20)).await })
            .expect_err("no such peer")
    };

    let error = fails("127.0.0.1:1");
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::UNREACHABLE));
    assert!(
        error.to_string().contains("127.0.0.1:1") && error.to_string().contains("start the server first")
    );

    let error = fails("127.0.0.1");
    assert_eq!(error.stage, Stage::Resolve);
    assert!(error.to_string().contains("it names no port"), "{error}");

    let error = fails("no-such-host.invalid:7000");
    assert_eq!(error.stage, Stage::Resolve, "{error}");

    let error = fails("unix:/no/such/path");
    assert_eq!(error.stage, Stage::Dial);
    assert!(error.to_string().contains("there is no such path"), "{error}");

    let in_use = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = in_use.local_addr().expect("an address").to_string();
    let error = net.block_on(net.listen(&address)).expect_err("in use");
    assert_eq!((error.stage, error.status), (Stage::Listen, Status::BUSY));
    assert!(error.to_string().contains("choose another port"), "{error}");

    let error = net.block_on(net.listen("192.0.2.1:0")).expect_err("not ours");
    assert!(error.to_string().contains("no interface of this machine"), "{error}");
}

#[test]
fn a_call_comes_from_the_address_that_is_given() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            for from in ["127.0.0.2:", "127.0.0.1:"] {
                let incoming = listener.accept().await?;
                assert!(incoming.peer().starts_with(from), "{}, expected {from}", incoming.peer());
                let connection = incoming.accept().await?;
                connection.send(&connection.recv().within(LIMIT).await?).await?;
            }
            Ok(())
        },
        async |net, address| {
            for from in [Some("127.0.0.2:0"), None] {
                let mut connect = net.connect(&address).require("tcp/lo");
                if let Some(from) = from {
                    connect = connect.from(from.parse().expect("an address"));
                }
                let connection = connect.await?;
                connection.send(b"there").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"there");
            }
            Ok(())
        },
    );
}

#[test]
fn an_address_that_cannot_be_called_from_is_an_error_with_a_remedy() {
    let net = net(support::patient());
    let fails = |address: &str, from: &str| {
        let connect = net.connect(address).from(from.parse().expect("an address"));
        net.block_on(connect).expect_err("it cannot be called from there")
    };
    let error = fails("127.0.0.1:1", "192.0.2.1:0");
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::INVALID_ADDR));
    assert!(
        error.to_string().contains("from 192.0.2.1:0") && error.to_string().contains("ip addr"),
        "{error}"
    );
    for address in ["[::1]:7000", "unix:/run/x"] {
        let error = fails(address, "127.0.0.1:0");
        assert_eq!((error.stage, error.status), (Stage::Resolve, Status::INVALID_ADDR));
        assert!(error.to_string().contains("of another family"), "{error}");
    }
}

#[test]
fn a_call_of_a_silent_listener_ends_at_the_limit() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let net = net(support::patient());
    let limit = Duration::from_millis(100);
    let begun = Instant::now();
    let error = net.block_on(async { net.connect(&address).within(limit).await }).expect_err("silent");
    assert!(begun.elapsed() >= limit);
    assert_eq!(error.status, Status::TIMED_OUT);
    assert!(error.to_string().contains(&address), "{error}");

    let options = NetOptions { handshake_timeout: limit, ..support::patient() };
    let net = support::net(options);
    let error = net.block_on(async { net.connect(&address).await }).expect_err("silent");
    assert!(error.to_string().contains("handshake_timeout"), "{error}");
}

#[test]
fn a_transport_that_one_side_does_not_have_is_not_chosen_and_the_reason_is_the_peer() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server_context = support::with(&[("tls", "tcp")]);
    let server = std::thread::spawn(move || {
        let net = Net::new(&server_context, support::patient()).expect("a net");
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address()).expect("the client waits");
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await?;
            for _ in 0..3 {
                let refused = listener.accept().await?.accept().await;
                assert!(refused.is_err());
            }
            Ok::<_, uct_net::Error>(())
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("the server listens");
    let net = net(support::patient());
    net.block_on(async {
        let connection = net.connect(&address).await?;
        let explanation = connection.explanation().to_string();
        assert!(connection.explanation().chosen.starts_with("tcp/"), "{explanation}");
        assert!(explanation.contains("the peer offers no posix"), "{explanation}");
        assert!(explanation.contains("the peer:\n"), "{explanation}");
        connection.send(b"over tcp").await?;

        let error = net.connect(&address).require("posix").await.expect_err("the peer has none");
        assert_eq!(error.stage, Stage::Choose);
        assert!(error.to_string().contains("posix is required"), "{error}");
        assert!(error.to_string().contains("the peer has \"tcp/"), "{error}");
        assert!(!error.reason.contains("no device here has the name"), "{error}");
        for wrong in ["posx", "tcp/posx"] {
            let error = net.connect(&address).require(wrong).await.expect_err("there is none");
            let words =
                format!("{wrong} is required: no transport and no device here has the name {wrong}; ");
            assert!(error.reason.starts_with(&words), "{error}");
        }
        Ok::<_, uct_net::Error>(())
    })
    .expect("the client's side");
    server.join().expect("the server's thread").expect("the server's side");
}

#[test]
fn a_hundred_clients_are_served_by_one_thread() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let mut connections = Vec::new();
            for _ in 0..100 {
                connections.push(listener.accept().await?.accept().await?);
            }
            for (number, connection) in connections.iter().enumerate() {
                assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
                connection.send(&number.to_le_bytes()).await?;
            }
            Ok(())
        },
        async |net, address| {
            let mut connections = Vec::new();
            for _ in 0..100 {
                connections.push(net.connect(&address).await?);
            }
            for (number, connection) in connections.iter().enumerate() {
                connection.send(&number.to_le_bytes()).await?;
            }
            for (number, connection) in connections.iter().enumerate() {
                assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
            }
            Ok(())
        },
    );
}

#[test]
fn a_shared_key_admits_peers_that_know_it_and_reveals_nothing_to_others() {
    let with_key = |key: &str| NetOptions { shared_key: Some(key.into()), ..support::patient() };
    pair(
        with_key("sixteen bytes or more"),
        async |_net, mut listener| {
            // Callers without the key never get here.
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"known");
            Ok(())
        },
        async |net, address| {
            let refused = |options: NetOptions| {
                let keyless = support::net(options);
                keyless.block_on(async { keyless.connect(&address).await }).expect_err("refused")
            };
            let error = refused(with_key("sixteen other bytes"));
            assert_eq!(error.status, Status::REJECTED);
            assert!(error.to_string().contains("does not know the shared key"), "{error}");
            let error = refused(support::patient());
            assert!(error.to_string().contains("requires a shared key"), "{error}");
            net.connect(&address).await?.send(b"known").await
        },
    );
    pair(
        support::patient(),
        async |_net, mut listener| listener.accept().await?.accept().await.map(|_| ()),
        async |net, address| {
            let careful = support::net(with_key("sixteen bytes or more"));
            let error =
                careful.block_on(async { careful.connect(&address).await }).expect_err("no key there");
            assert!(error.to_string().contains("has no shared key"), "{error}");
            net.connect(&address).await.map(|_| ())
        },
    );
    let context = support::context();
    let options = with_key("short");
    assert!(!format!("{options:?}").contains("short"), "a key is not printed");
    let error = uct_net::local::Net::new(&context, options).expect_err("too short");
    assert!(error.to_string().contains("at least 16 bytes"), "{error}");
}

#[test]
fn a_connection_manager_that_is_not_there_is_an_error_that_names_those_that_are() {
    let context = support::context();
    let net = Net::new(&context, support::patient()).expect("a net");
    let threads = uct_net::Net::new(&context, support::patient()).expect("a net");
    for name in ["rdmacm", "rdmcm"] {
        let connects = [
            net.block_on(net.connect("127.0.0.1:1").by(name)).expect_err("not there"),
            threads.block_on(threads.connect("127.0.0.1:1").by(name)).expect_err("not there"),
        ];
        let listens = [
            net.block_on(net.listen("127.0.0.1:0").by(name)).expect_err("not there"),
            threads.block_on(threads.listen("127.0.0.1:0").by(name)).expect_err("not there"),
        ];
        for (stage, error) in connects
            .map(|error| (Stage::Dial, error))
            .into_iter()
            .chain(listens.map(|error| (Stage::Listen, error)))
        {
            assert_eq!(error.stage, stage);
            assert!(error.peer.starts_with("127.0.0.1:"), "{error}");
            // Where there is one: it has no device, no library, or no device on loopback.
            if context.connection_managers().contains(&name) {
                assert!([Status::NO_DEVICE, Status::UNSUPPORTED].contains(&error.status), "{error}");
                continue;
            }
            assert_eq!(error.status, Status::INVALID_PARAM);
            let known = context.connection_managers().join(", ");
            assert!(known.contains("tcp"));
            let expected = format!("no connection manager {name:?}; there is {known}");
            assert!(error.reason.contains(&expected), "{error}");
            assert!(error.hint.expect("a remedy").contains("rdmacm is a plugin"));
        }
    }
    let error = net.block_on(net.connect("127.0.0.1:1").by("tcp")).expect_err("needless");
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::UNSUPPORTED));
    assert!(error.to_string().contains("leave it out"), "{error}");
    let error = net.block_on(net.listen("127.0.0.1:0").by("tcp")).expect_err("needless");
    assert_eq!((error.stage, error.status), (Stage::Listen, Status::UNSUPPORTED));
}
