//! A peer process that is killed: a receive and a wait for the end fail with a reason.

use std::io::Write;
use std::process::Stdio;

use crate::support::{self, LIMIT, child, net};

const ADDRESS: &str = "UCT_NET_KILLED_ADDRESS";
const TRANSPORT: &str = "UCT_NET_KILLED_TRANSPORT";

/// The process that is killed: this program, by the name of this test and with an address.
#[test]
fn the_peer_that_is_killed() {
    let (Ok(address), Ok(transport)) = (std::env::var(ADDRESS), std::env::var(TRANSPORT)) else { return };
    let net = net(support::patient());
    net.block_on(async {
        let connection = net.connect(address).require(transport).await.expect("the parent listens");
        connection.send(b"alive").await.expect("sent");
        let _ = std::io::stdout().flush();
        connection.recv().within(LIMIT).await
    })
    .expect_err("it is killed before");
}

#[test]
fn a_peer_that_is_killed_is_noticed_by_recv_and_by_closed() {
    for transport in ["posix/memory", "tcp/lo"] {
        for receives in [true, false] {
            let net = net(support::patient());
            net.block_on(async {
                let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
                let mut child = child::program(the_peer_that_is_killed)
                    .env(ADDRESS, listener.address())
                    .env(TRANSPORT, transport)
                    .stdout(Stdio::null())
                    .spawn()
                    .expect("a child");
                let connection =
                    listener.accept().await.expect("a caller").accept().await.expect("connected");
                assert_eq!(&*connection.recv().within(LIMIT).await.expect("it lives"), b"alive");
                child.kill().expect("killed");
                child.wait().expect("gone");
                let begun = std::time::Instant::now();
                let error = if receives {
                    connection.recv().within(LIMIT).await.expect_err("it is dead")
                } else {
                    net.within(LIMIT, connection.closed()).await.expect("it is noticed")
                };
                println!("{transport}: {error} after {:?}", begun.elapsed());
                assert!(!error.is_timeout() && !error.is_closed_by_peer(), "over {transport}: {error}");
                assert!(connection.send(b"x").await.is_err());
            });
        }
    }
}
