//! Lanes inside TLS that end give their descriptors back.

use std::time::Duration;

use crate::support::alone::is_alone;
use crate::support::tls_lane::{confidential, only_tcp};
use crate::support::{LIMIT, pair_of};

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
            let begun = std::time::Instant::now();
            while descriptors() > before + 60 {
                net.sleep(Duration::from_millis(10)).await;
                assert!(begun.elapsed() < LIMIT, "{} descriptors, {before} before", descriptors());
            }
            Ok(())
        },
    );
    assert!(descriptors() <= before + 8, "{} descriptors, {before} before", descriptors());
}
