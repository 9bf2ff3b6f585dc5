//! Futures that are dropped wherever they wait, and connections that end while something waits: nothing is lost without an error,
//! nothing comes twice, and no side waits for ever.

use std::task::Poll;
use std::time::Duration;

use crate::support::random::{Random, polled};
use crate::support::{self, LIMIT, net, pair, rounds, seed, transports};
use uct_net::NetOptions;

fn message(number: u64, length: usize) -> Vec<u8> {
    let mut message = number.to_le_bytes().to_vec();
    message.extend((0..length).map(|at| (at as u64 * 7 + number) as u8));
    message
}

#[test]
fn sends_and_receives_that_are_dropped_lose_nothing_and_double_nothing() {
    let seed = seed::printed() | 1;
    for transport in transports() {
        pair(
            NetOptions { window: 16_384, ..support::patient() },
            async move |net, mut listener| {
                let mut random = Random(seed ^ 2);
                let connection = listener.accept().await?.accept().await?;
                let mut came = Vec::new();
                loop {
                    let received = if random.below(4) == 0 {
                        let limit = Duration::from_micros(random.below(300));
                        net.within(limit, connection.recv()).await
                    } else {
                        polled(random.below(20), connection.recv()).await
                    };
                    let Some(received) = received else { continue };
                    let received = received?;
                    let number = u64::from_le_bytes(received[..8].try_into().expect("eight bytes"));
                    if number == u64::MAX {
                        let sent =
                            received[8..].chunks(8).map(|n| u64::from_le_bytes(n.try_into().expect("eight")));
                        for sent in sent {
                            assert!(came.contains(&sent), "message {sent} was sent and is lost");
                        }
                        return Ok(());
                    }
                    assert!(*received == *message(number, received.len() - 8), "message {number} is damaged");
                    assert!(
                        came.last().is_none_or(|last| *last < number),
                        "message {number} comes twice or late"
                    );
                    came.push(number);
                }
            },
            async move |net, address| {
                let mut random = Random(seed);
                let connection = net.connect(address).require(&*transport).await?;
                let mut sent = Vec::new();
                for number in 0..rounds(1500) {
                    let length = if random.below(8) == 0 { random.below(60_000) } else { random.below(500) };
                    let message = message(number, length as usize);
                    let done = match random.below(3) {
                        0 => polled(random.below(4), connection.send(&message)).await.transpose()?.is_some(),
                        1 => {
                            let limit = Duration::from_micros(random.below(200));
                            connection.send(&message).within(limit).await.is_ok()
                        }
                        _ => connection.send(&message).within(LIMIT).await.map(|()| true)?,
                    };
                    if done {
                        sent.push(number);
                    }
                }
                let mut last = u64::MAX.to_le_bytes().to_vec();
                last.extend(sent.iter().flat_map(|number| number.to_le_bytes()));
                connection.send(&last).within(LIMIT).await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn connects_and_accepts_that_are_dropped_end_the_wait_of_the_peer() {
    let seed = seed::printed() | 1;
    for transport in transports() {
        pair(
            NetOptions { handshake_timeout: Duration::from_secs(30), ..support::patient() },
            async move |_net, mut listener| {
                let mut random = Random(seed ^ 4);
                loop {
                    let Some(incoming) = polled(random.below(2000), listener.accept()).await else {
                        continue;
                    };
                    let incoming = incoming?;
                    if incoming.private() == b"last" {
                        let connection = incoming.accept().await?;
                        return connection.recv().within(LIMIT).await.map(|_| ());
                    }
                    if let Some(Ok(connection)) = polled(random.below(1500), incoming.accept()).await {
                        let end = connection.recv().within(LIMIT).await.expect_err("the peer sends nothing");
                        assert!(!end.is_timeout(), "the peer is gone without an error: {end}");
                    }
                }
            },
            async move |net, address| {
                let mut random = Random(seed);
                for round in 0..rounds(60) {
                    let connecting = net.connect(&address).require(&*transport);
                    let polls = if round % 2 == 0 { random.below(1500) } else { u64::MAX };
                    let Some(Ok(connection)) = polled(polls, connecting.into_future()).await else {
                        continue;
                    };
                    let _ = connection.close().within(LIMIT).await.inspect_err(|error| {
                        assert!(!error.is_timeout(), "the peer is gone without an error: {error}");
                    });
                }
                let connection = net.connect(&address).require(&*transport).private("last").await?;
                connection.send(b"end").await
            },
        );
    }
}

#[test]
fn operations_on_remote_memory_that_are_dropped_keep_their_memory() {
    let seed = seed::printed() | 1;
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(1 << 16)?;
                memory.write(0, &[3; 1 << 16]);
                connection.share(&memory).await?;
                connection.recv().within(LIMIT).await?;
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let mut random = Random(seed);
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let limits = *connection.iface().attributes();
                let most = limits.put.max_zcopy.min(limits.get.max_zcopy).min(1 << 15);
                for _ in 0..rounds(300) {
                    let local = connection.allocate(1 << 15)?;
                    local.write(0, &[3; 1 << 15]);
                    let length = 1 + random.below(most as u64) as usize;
                    let (slice, polls) = (local.slice(..length), random.below(3));
                    match random.below(4) {
                        0 => drop(polled(polls, connection.get(slice, &remote, 0)).await.transpose()?),
                        1 => drop(polled(polls, connection.put(slice, &remote, 0)).await.transpose()?),
                        2 => drop(polled(polls, connection.fetch_add(&remote, 0, 0)).await.transpose()?),
                        _ => drop(polled(polls, connection.flush()).await.transpose()?),
                    }
                }
                connection.flush().await?;
                let local = connection.allocate(1 << 15)?;
                connection.get(local.slice(..most), &remote, 0).await?;
                assert!(local.to_vec()[..most].iter().all(|byte| *byte == 3), "over {transport}");
                connection.send(b"done").await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn more_memory_may_be_shared_than_the_window_takes_at_once() {
    pair(
        NetOptions { window: 4096, ..support::patient() },
        async |net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            for _ in 0..60 {
                net.within(LIMIT, connection.shared()).await.expect("the peer shares it")?;
            }
            connection.close().within(LIMIT).await
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            let memory = connection.allocate(64)?;
            for _ in 0..60 {
                net.within(LIMIT, connection.share(&memory)).await.expect("there is room for it")?;
            }
            net.within(LIMIT, connection.closed()).await.expect("the end");
            Ok(())
        },
    );
}

#[test]
fn a_message_that_waits_when_the_peer_closes_was_not_sent() {
    for transport in transports() {
        pair(
            NetOptions { window: 4096, ..support::patient() },
            async |net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                net.sleep(Duration::from_millis(50)).await;
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(transport).await?;
                let mut sent = 0;
                let error = loop {
                    match connection.send(&[1; 100]).within(LIMIT).await {
                        Ok(()) => sent += 1,
                        Err(error) => break error,
                    }
                };
                assert!(sent <= 4096 / 164, "{sent} messages, and the peer takes {}", 4096 / 164);
                assert!(error.is_closed_by_peer(), "{error}");
                Ok(())
            },
        );
    }
}

#[test]
fn a_connection_closes_once_the_message_ahead_of_the_end_is_taken_back() {
    pair(
        NetOptions { window: 4096, ..support::patient() },
        async |net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            // Does not read, and is there.
            let end = net.within(LIMIT, connection.closed()).await.expect("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            while connection.send(&[1; 100]).within(Duration::from_millis(20)).await.is_ok() {}
            let long = [2; 2000];
            let mut waiting = Some(Box::pin(connection.send(&long).within(Duration::from_millis(50))));
            let mut closing = Box::pin(connection.close().within(LIMIT));
            std::future::poll_fn(|context| {
                if let Some(send) = &mut waiting
                    && let Poll::Ready(outcome) = send.as_mut().poll(context)
                {
                    outcome.expect_err("there is no room");
                    waiting = None;
                }
                closing.as_mut().poll(context)
            })
            .await
        },
    );
}

#[test]
fn a_reader_that_is_too_late_gets_an_error_that_the_rest_is_lost() {
    for transport in transports() {
        pair(
            NetOptions { window: 4096, ..support::patient() },
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let other = listener.accept().await?.accept().await?;
                for _ in 0..10 {
                    connection.send(&[1; 100]).await?;
                }
                let rest = polled(100, connection.send(&[2; 20_000])).await;
                assert!(rest.is_none(), "more than the window");
                drop(connection);
                other.recv().within(LIMIT).await.map(|_| ())
            },
            async move |net, address| {
                let connection = net.connect(&address).require(&*transport).await?;
                let other = net.connect(&address).require(&*transport).await?;
                // Longer than the end of a connection may take.
                net.sleep(Duration::from_millis(1500)).await;
                for _ in 0..10 {
                    assert_eq!(*connection.recv().within(LIMIT).await?, [1; 100]);
                }
                let error =
                    connection.recv().within(LIMIT).await.expect_err("the rest was not taken in time");
                assert!(!error.is_timeout(), "over {transport} without an error: {error}");
                assert!(!error.is_closed_by_peer(), "the message was lost: {error}");
                other.send(b"seen").await
            },
        );
    }
}

#[test]
fn an_orderly_end_stays_one_when_the_peer_is_gone() {
    for transport in transports() {
        let (sender, receiver) = std::sync::mpsc::channel();
        pair(
            support::patient(),
            async move |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for number in 0..3_u8 {
                    connection.send(&[number]).await?;
                }
                connection.close().within(LIMIT).await?;
                drop(connection);
                sender.send(()).expect("the client waits");
                Ok(())
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                // Driven until the peer's endpoint, its interfaces and its thread are gone.
                while receiver.try_recv().is_err() {
                    net.sleep(Duration::from_millis(1)).await;
                }
                net.sleep(Duration::from_millis(300)).await;
                for number in 0..3_u8 {
                    assert_eq!(*connection.recv().within(LIMIT).await?, [number], "over {transport}");
                }
                let end = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "over {transport}: {end}");
                assert!(connection.closed().await.is_closed_by_peer());
                assert!(connection.send(b"x").await.expect_err("the end").is_closed_by_peer());
                Ok(())
            },
        );
    }
}

#[test]
fn a_message_outlives_its_connection_and_its_net() {
    for transport in transports() {
        let kept = std::cell::RefCell::new(Vec::new());
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for number in 0..40_u8 {
                    connection.send(&vec![number; 4000]).within(LIMIT).await?;
                }
                connection.close().within(LIMIT).await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                for _ in 0..40 {
                    let message = connection.recv().within(LIMIT).await?;
                    kept.borrow_mut().push(message);
                }
                Ok(())
            },
        );
        for (number, message) in kept.into_inner().iter().enumerate() {
            assert!(message.len() == 4000 && message.iter().all(|byte| usize::from(*byte) == number));
        }
    }
    drop(net(support::patient()));
}
