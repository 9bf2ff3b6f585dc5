//! The first lane: its client does not wait for the server's end, so messages may come ahead of the frame that names the lane.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use crate::support::raw::{Call, Raw};
use crate::support::{self, LIMIT, net, raw};
use uct_net::local::Incoming;
use uct_net::{NetOptions, Result};

const WINDOW: u32 = 256 << 10;

/// What the server makes of a caller that has had the Welcome and does as `client` does.
fn served<T: Send + 'static>(
    transport: &str,
    client: impl FnOnce(Call),
    server: impl AsyncFnOnce(Incoming) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let net = net(NetOptions { window: 65_536, ..support::patient() });
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            sender.send(listener.address()).expect("the client waits");
            server(listener.accept().await?).await
        })
    });
    let address = receiver.recv_timeout(LIMIT).expect("the server listens");
    client(Raw::new().call(&address, transport));
    thread.join().expect("the server's thread")
}

#[test]
fn messages_ahead_of_the_frame_are_kept_until_the_lane_is_open() {
    let client = |call: Call| {
        let mut connection = call.open_early();
        assert_eq!(connection.send(raw::PROBE, WINDOW, b""), Ok(()));
        assert_eq!(connection.send(raw::LAST, WINDOW, b"early"), Ok(()));
        connection.call.raw.settle();
        connection.call.propose(raw::DIRECT);
        assert_eq!(connection.receive().expect("an answer").0, raw::PROBE_REPLY);
        connection.call.socket.write_all(&raw::frame(raw::CONNECTED, b"")).expect("sent");
        assert_eq!(connection.receive(), Some((raw::LAST, b"seen".to_vec())));
    };
    let served = served("posix/memory", client, async |incoming| {
        let connection = incoming.accept().await?;
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"early");
        connection.send(b"seen").await
    });
    assert_eq!(served, Ok(()));
}

#[test]
fn more_than_the_window_ahead_of_the_frame_ends_the_connection() {
    let client = |call: Call| {
        let mut connection = call.open_early();
        assert_eq!(connection.send(raw::PROBE, WINDOW, b""), Ok(()));
        for _ in 0..20 {
            // It may have ended already.
            let _ = connection.send(raw::LAST, WINDOW, &[1; 8000]);
        }
        connection.call.raw.settle();
        connection.call.propose(raw::DIRECT);
        if let Some(reason) = connection.aborted() {
            assert!(reason.contains("credit"), "{reason}");
        }
    };
    let served = served("posix/memory", client, async |incoming| {
        let connection = incoming.accept().await?;
        for _ in 0..20 {
            connection.recv().within(LIMIT).await?;
        }
        Ok(())
    });
    let error = served.expect_err("it broke the protocol");
    assert!(error.to_string().contains("hung up") || error.to_string().contains("broke"), "{error}");
}

#[test]
fn a_second_lane_is_none_without_waiting() {
    let client = |mut call: Call| {
        call.propose(raw::DIRECT);
        call.propose(raw::DIRECT);
        let _ = call.socket.read_to_end(&mut Vec::new());
    };
    let served = served("posix/memory", client, async |incoming| incoming.accept().await.map(|_| ()));
    let error = served.expect_err("it is out of order");
    assert!(error.to_string().contains("the peer sent Direct out of order"), "{error}");
}

#[test]
fn a_caller_of_another_version_is_refused_in_words() {
    let net = net(support::patient());
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let address = listener.address();
        let caller = std::thread::spawn(move || {
            let mut caller = TcpStream::connect(address).expect("the listener lives");
            caller.write_all(b"UCTN\x05\x01\0\0\x08\0\0\0\0\0\0\0\0\0\0\0").expect("sent");
            let mut received = Vec::new();
            caller.read_to_end(&mut received).expect("an end");
            received
        });
        while !caller.is_finished() {
            let accepted = net.within(std::time::Duration::from_millis(2), listener.accept()).await;
            assert!(accepted.is_none(), "it is let in");
        }
        let received = caller.join().expect("the caller's thread");
        assert_eq!(received[..6], *b"UCTN\x06\x03", "a refusal in the format of its version");
        let received = String::from_utf8_lossy(&received).into_owned();
        assert!(
            received.contains("the peer has version 5, this side version 6; update the older one"),
            "{received:?}"
        );
    });
}
