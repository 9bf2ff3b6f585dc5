//! Forks of a program with a listener and connections: a child is refused all that is its parent's, and whatever it calls, drops or
//! ends with, the parent's listeners, connections and timers go on. Both flavours.

mod support;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use support::{LIMIT, LOOPBACK, context, patient};
use uct_conformance::in_child;
use uct_core::Error as Status;
use uct_net::{Error, Result};

/// What the child does with what it has of its parent's, before it drops all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    /// Nothing.
    Drops,
    /// Nothing, and it drops nothing: it ends by `exit`, which runs what a program has left for its end.
    Exits,
    /// All calls that there are.
    Calls,
}

/// Calls both listeners: one connection each over tcp and posix, before the fork, and again when a message says that it is over.
fn peer(places: [String; 2]) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let net = support::net(patient());
        net.block_on(async {
            let mut connections = Vec::new();
            for transport in ["tcp/lo", "posix/memory"] {
                let connection = net.connect(&places[0]).require(transport).await?;
                connection.send(b"ahead of the fork").await?;
                connections.push(connection);
            }
            for connection in &connections {
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
            }
            for place in &places {
                let connection = net.connect(place).await?;
                connection.send(b"a new caller").await?;
                connection.close().await?;
            }
            for connection in connections {
                connection.close().await?;
            }
            Ok::<_, Error>(())
        })
        .expect("the peer");
    })
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// The call was refused since the object is the parent's.
fn refused<T>(what: &str, outcome: Result<T>) {
    let Err(error) = outcome else { panic!("{what} is not refused") };
    by_fork(what, &error);
}

fn by_fork(what: &str, error: &Error) {
    assert_eq!(error.status, Status::INVALID_PARAM, "{what}: {error}");
    assert!(error.to_string().contains("before the process forked"), "{what}: {error}");
}

macro_rules! of_flavour {
    ($flavour:ident, $net:path, $listener:path, $connection:path) => {
        mod $flavour {
            use super::*;
            use $connection as Connection;
            use $listener as Listener;
            use $net as Net;

            /// What a parent has when it forks.
            struct Parent {
                net: Net,
                listeners: RefCell<Vec<Listener>>,
                connections: Vec<Connection>,
                path: PathBuf,
            }

            fn calls(parent: &Parent) {
                let net = &parent.net;
                net.block_on(async {
                    refused("connect", net.connect(LOOPBACK).await);
                    refused("connect to a path", net.connect("unix:/no/such/path").await);
                    refused("listen", net.listen(LOOPBACK).await);
                    for mut listener in parent.listeners.take() {
                        refused("accept", listener.accept().await);
                    }
                    for connection in &parent.connections {
                        // The parent's message is there.
                        refused("recv", connection.recv().await);
                        refused("recv within", connection.recv().within(LIMIT).await);
                        refused("send", connection.send(b"x").await);
                        refused("send", connection.send(&[0; 100_000]).await);
                        refused("allocate", connection.allocate(8));
                        refused("shared", connection.shared().await);
                        refused("flush", connection.flush().await);
                        by_fork("closed", &connection.closed().await);
                        refused("close", connection.close().await);
                        connection.abort("by a child");
                    }
                    net.sleep(Duration::from_millis(20)).await;
                    let never = std::future::pending::<()>();
                    assert!(net.within(Duration::from_millis(20), never).await.is_none());
                });
            }

            fn case(child: Child, is_inside: bool) {
                let directory = directory();
                let path = directory.path().join("listener");
                let net = Net::new(&context(), patient()).expect("a net");
                let by_path = format!("unix:{}", path.display());
                let (listeners, connections, peer) = net.block_on(async {
                    let mut listener = net.listen(LOOPBACK).await.expect("a listener");
                    let of_path = net.listen(&by_path).await.expect("a listener");
                    let peer = peer([listener.address().to_string(), by_path]);
                    let mut connections = Vec::new();
                    for _ in 0..2 {
                        connections.push(
                            listener.accept().await.expect("a caller").accept().await.expect("connected"),
                        );
                    }
                    (RefCell::new(vec![listener, of_path]), connections, peer)
                });
                let mut parent = Parent { net, listeners, connections, path };
                let work = |parent: &Parent| match child {
                    Child::Drops => {}
                    Child::Exits => std::process::exit(0),
                    Child::Calls => calls(parent),
                };
                if is_inside {
                    parent.net.block_on(async { in_child((), |()| work(&parent)) });
                } else {
                    parent = in_child(parent, work);
                }
                let Parent { net, listeners, connections, path } = parent;
                let mut listeners = listeners.into_inner();
                assert!(path.exists(), "the child has removed the path");
                net.block_on(async {
                    net.sleep(Duration::from_millis(1)).await;
                    for connection in &connections {
                        let message = connection.recv().within(LIMIT).await.expect("sent ahead of the fork");
                        assert_eq!(&*message, b"ahead of the fork");
                        connection.send(b"after the fork").await.expect("sent");
                        let message = connection.recv().within(LIMIT).await.expect("a response");
                        assert_eq!(&*message, b"after the fork");
                    }
                    for listener in &mut listeners {
                        let incoming = net.within(LIMIT, listener.accept()).await.expect("a caller in time");
                        let connection = incoming.expect("a caller").accept().await.expect("connected");
                        let message = connection.recv().within(LIMIT).await.expect("a message");
                        assert_eq!(&*message, b"a new caller");
                    }
                    for connection in connections {
                        let end = connection.recv().within(LIMIT).await.expect_err("it closes");
                        assert!(end.is_closed_by_peer(), "{end}");
                    }
                });
                drop((listeners, net));
                assert!(!path.exists(), "the path is left");
                peer.join().expect("the peer's thread");
            }

            #[test]
            fn the_parent_goes_on_when_a_child_drops_everything() {
                case(Child::Drops, false);
            }

            #[test]
            fn the_parent_goes_on_when_a_child_exits() {
                case(Child::Exits, false);
            }

            #[test]
            fn a_child_is_refused_every_call_and_the_parent_goes_on() {
                case(Child::Calls, false);
            }

            #[test]
            fn so_it_is_when_the_fork_is_inside_of_block_on() {
                case(Child::Calls, true);
                case(Child::Exits, true);
            }
        }
    };
}

of_flavour!(local, uct_net::local::Net, uct_net::local::Listener, uct_net::local::Connection);
of_flavour!(threads, uct_net::Net, uct_net::Listener, uct_net::Connection);

/// A child that needs a net makes one of its own, and is called by its parent.
#[test]
fn a_child_makes_a_net_of_its_own() {
    let (there, here) = std::os::unix::net::UnixStream::pair().expect("a pair");
    here.set_read_timeout(Some(LIMIT)).expect("a limit");
    let parent = uct_net::Net::new(&context(), patient()).expect("a net");
    // The parent's side runs in a thread, since `in_child` waits for the end of the child.
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader};
        let mut address = String::new();
        BufReader::new(here).read_line(&mut address).expect("an address");
        let served = parent.block_on(async {
            let connection = parent.connect(address.trim()).await?;
            connection.send(b"to the child").await?;
            connection.close().await
        });
        drop(parent);
        done.send(served).expect("the test waits");
    });
    in_child(there, |there| {
        use std::io::Write;
        let net = uct_net::local::Net::new(&context(), patient()).expect("a net in the child");
        net.block_on(async {
            let mut listener = net.listen(LOOPBACK).await.expect("a listener");
            let mut there = there;
            writeln!(there, "{}", listener.address()).expect("sent");
            let connection = listener.accept().await.expect("a caller").accept().await.expect("connected");
            assert_eq!(&*connection.recv().within(LIMIT).await.expect("a message"), b"to the child");
        });
    });
    is_done.recv_timeout(LIMIT).expect("in time").expect("the parent's side");
    thread.join().expect("the parent's thread");
}
