//! Forks of a program with a listener and connections: a child is refused all that is its parent's, and whatever it calls, drops or
//! ends with, the parent's listeners, connections and timers go on. Both flavours.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::alone::is_alone;
#[cfg(feature = "tls")]
use crate::support::tls_lane;
use crate::support::{self, LIMIT, LOOPBACK, context, patient};
use uct_conformance::in_child;
use uct_core::Error as Status;
use uct_net::local::Net as LocalNet;
use uct_net::{Error, NetOptions, Result};

const TRANSPORTS: [&str; 2] = ["tcp/lo", "posix/memory"];

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

/// A call of the peer's. With TLS a path has no name that a certificate could be for.
async fn call(
    net: &LocalNet,
    place: &str,
    transport: &str,
    has_tls: bool,
) -> Result<uct_net::local::Connection> {
    let connect = net.connect(place).require(transport);
    #[cfg(feature = "tls")]
    let connect = if has_tls { connect.server_name(tls_lane::HERE) } else { connect };
    let _ = has_tls;
    connect.await
}

/// Whether there is TLS.
#[cfg(feature = "tls")]
fn has_tls(options: &NetOptions) -> bool {
    options.tls.is_some()
}

#[cfg(not(feature = "tls"))]
fn has_tls(_options: &NetOptions) -> bool {
    false
}

/// Calls both listeners: the first one over tcp and posix ahead of the fork, and each of them again when a message says that it is over.
fn peer(places: [String; 2], options: NetOptions) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let has_tls = has_tls(&options);
        let net = support::net(options);
        net.block_on(async {
            let mut connections = Vec::new();
            for transport in TRANSPORTS {
                let connection = call(&net, &places[0], transport, has_tls).await?;
                connection.send(b"ahead of the fork").await?;
                connections.push(connection);
            }
            for connection in &connections {
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
            }
            for (place, transport) in places.iter().zip(TRANSPORTS) {
                let connection = call(&net, place, transport, has_tls).await?;
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

/// The task of a runtime drops a listener a moment after its handle.
fn wait_until_gone(path: &Path) {
    let begun = Instant::now();
    while path.exists() {
        assert!(begun.elapsed() < LIMIT, "the path is left");
        std::thread::sleep(Duration::from_millis(1));
    }
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
    ($flavour:ident, $net:path, $listener:path, $connection:path, $options:expr, $make:expr) => {
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
                let options = $options;
                let net: Net = $make(&context(), options.clone()).expect("a net");
                let by_path = format!("unix:{}", path.display());
                let (listeners, connections, peer) = net.block_on(async {
                    let mut listener = net.listen(LOOPBACK).await.expect("a listener");
                    let of_path = net.listen(&by_path).await.expect("a listener");
                    let peer = peer([listener.address().to_string(), by_path], options);
                    let mut connections = Vec::new();
                    for _ in TRANSPORTS {
                        let incoming = net.within(LIMIT, listener.accept()).await.expect("a caller in time");
                        connections.push(incoming.expect("a caller").accept().await.expect("connected"));
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
                wait_until_gone(&path);
                peer.join().expect("the peer's thread");
            }

            #[test]
            fn the_parent_goes_on_when_a_child_drops_everything() {
                if !is_alone() {
                    return;
                }
                case(Child::Drops, false);
            }

            #[test]
            fn the_parent_goes_on_when_a_child_exits() {
                if !is_alone() {
                    return;
                }
                case(Child::Exits, false);
            }

            #[test]
            fn a_child_is_refused_every_call_and_the_parent_goes_on() {
                if !is_alone() {
                    return;
                }
                case(Child::Calls, false);
            }

            #[test]
            fn so_it_is_when_the_fork_is_inside_of_block_on() {
                if !is_alone() {
                    return;
                }
                case(Child::Calls, true);
                case(Child::Exits, true);
            }
        }
    };
}

of_flavour!(
    local,
    uct_net::local::Net,
    uct_net::local::Listener,
    uct_net::local::Connection,
    patient(),
    Net::new
);
of_flavour!(threads, uct_net::Net, uct_net::Listener, uct_net::Connection, patient(), Net::new);
#[cfg(feature = "tokio")]
of_flavour!(in_tokio, uct_net::Net, uct_net::Listener, uct_net::Connection, patient(), net_in_tokio);
#[cfg(feature = "tls")]
of_flavour!(
    inside_tls,
    uct_net::local::Net,
    uct_net::local::Listener,
    uct_net::local::Connection,
    tls_lane::confidential(),
    Net::new
);

/// A net that a task of a runtime drives. The runtime outlives the tests, since one that ends in a child waits for its threads.
#[cfg(feature = "tokio")]
fn net_in_tokio(context: &uct_core::Context, options: NetOptions) -> Result<uct_net::Net> {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    let runtime = RUNTIME
        .get_or_init(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime"));
    let _inside = runtime.enter();
    uct_net::Net::in_tokio(context, options)
}

/// A child that needs a net makes one of its own, and is called by its parent.
#[test]
fn a_child_makes_a_net_of_its_own() {
    if !is_alone() {
        return;
    }
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
