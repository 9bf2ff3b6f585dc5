//! Lanes inside TLS that end give their descriptors back.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use uct_net::NetOptions;

use crate::support::alone::is_alone;
use crate::support::tls_lane::{confidential, only_tcp};
use crate::support::{LIMIT, pair_of};

/// Lanes, and the descriptors of each on one side: the socket, and a pair of sockets.
const LANES: usize = 10;
const EACH: usize = 3;

#[test]
fn many_connections_share_a_thread_and_leave_no_descriptor() {
    if !is_alone() {
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("a directory").count();
    let before = descriptors();
    pair_of(
        &only_tcp(),
        confidential(),
        async |_net, mut listener| {
            for _ in 0..3 {
                let mut connections = Vec::new();
                for _ in 0..20 {
                    connections.push(listener.accept().await?.accept().await?);
                }
                for connection in &connections {
                    let message = connection.recv().within(LIMIT).await?;
                    connection.send(&message).await?;
                }
                for connection in connections {
                    connection.closed().await;
                }
            }
            Ok(())
        },
        async |net, address| {
            for _ in 0..3 {
                let mut connections = Vec::new();
                for _ in 0..20 {
                    connections.push(net.connect(&address).within(LIMIT).await?);
                }
                for (at, connection) in connections.iter().enumerate() {
                    connection.send(&[at as u8; 1000]).await?;
                }
                for (at, connection) in connections.iter().enumerate() {
                    assert_eq!(&*connection.recv().within(LIMIT).await?, &[at as u8; 1000]);
                }
                for connection in connections {
                    connection.close().within(LIMIT).await?;
                }
            }
            // Both sides have ended: the sockets are closed.
            let begun = Instant::now();
            while descriptors() > before + 60 {
                net.sleep(Duration::from_millis(10)).await;
                assert!(begun.elapsed() < LIMIT, "{} descriptors, {before} before", descriptors());
            }
            Ok(())
        },
    );
    assert!(descriptors() <= before + 8, "{} descriptors, {before} before", descriptors());
}

#[test]
fn lanes_of_connections_that_are_gone_give_their_descriptors_back_though_the_peer_keeps_its_own() {
    if !is_alone() {
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("a directory").count();
    let options = confidential();
    let tls = options.tls.clone().map(|tls| tls.close_timeout(Duration::from_millis(100)));
    let (gone, is_gone) = mpsc::channel();
    pair_of(
        &only_tcp(),
        NetOptions { tls, ..options },
        async move |net, mut listener| {
            let mut connections = Vec::new();
            for _ in 0..LANES {
                connections.push(listener.accept().await?.accept().await?);
            }
            let open = descriptors();
            for connection in connections {
                connection.abort("enough");
            }
            let begun = Instant::now();
            while descriptors() > open - LANES * EACH {
                net.sleep(Duration::from_millis(10)).await;
                assert!(
                    begun.elapsed() < LIMIT,
                    "{} descriptors, {open} while they were open",
                    descriptors()
                );
            }
            gone.send(()).expect("the client waits");
            Ok(())
        },
        async move |net, address| {
            let mut connections = Vec::new();
            for _ in 0..LANES {
                connections.push(net.connect(&address).within(LIMIT).await?);
            }
            // Nothing drives this side meanwhile, as if its program had stopped.
            is_gone.recv_timeout(2 * LIMIT).expect("the lanes have ended");
            Ok(())
        },
    );
}
