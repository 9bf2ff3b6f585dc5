//! Large messages, which the receiver reads from the sender's memory: whole and in order with others, taken back or not, and with peers
//! that leave in the middle.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use crate::support::random::{Random, polled};
use crate::support::raw::Raw;
use crate::support::{self, LIMIT, pair, pair_of, raw, rounds, seed, skip, transports, with};
use futures_util::future::join_all;
use uct_core::Capabilities;
use uct_net::{NetOptions, Result};

/// Longer messages are offered; what fits into one message of the transport is sent so anyway.
const FROM: &str = "20k";

fn message(number: u64, length: usize) -> Vec<u8> {
    let mut message = number.to_le_bytes().to_vec();
    message.extend((0..length).map(|at| (at as u64 * 7 + number) as u8));
    message
}

#[test]
fn messages_around_the_limit_come_whole_and_in_order() {
    for transport in transports() {
        for from in ["1", "20k", "inf"] {
            let wanted = transport.clone();
            const LENGTHS: [usize; 10] =
                [0, 20_471, 20_472, 20_473, 100, 1 << 20, 3, 300_000, 300_001, 5_000_000];
            pair_of(
                &with(&[("rndv_thresh", from)]),
                support::patient(),
                async |_net, mut listener| {
                    let connection = listener.accept().await?.accept().await?;
                    let mut all = Vec::new();
                    for (number, length) in LENGTHS.into_iter().enumerate() {
                        let came = connection.recv().within(LIMIT).await?;
                        assert!(*came == *message(number as u64, length), "{length} bytes");
                        all.push(came);
                    }
                    for message in all {
                        connection.send(&message).within(LIMIT).await?;
                    }
                    connection.close().within(LIMIT).await
                },
                async move |net, address| {
                    let connection = net.connect(address).require(wanted).await?;
                    // All of them wait at once, and leave in this order.
                    let messages: Vec<_> =
                        LENGTHS.iter().zip(0..).map(|(length, number)| message(number, *length)).collect();
                    let mut sends: Vec<_> =
                        messages.iter().map(|message| Box::pin(connection.send(message))).collect();
                    std::future::poll_fn(|context| {
                        sends.retain_mut(|send| match send.as_mut().poll(context) {
                            std::task::Poll::Pending => true,
                            std::task::Poll::Ready(outcome) => {
                                outcome.expect("sent");
                                false
                            }
                        });
                        if sends.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
                    })
                    .await;
                    for message in &messages {
                        assert!(*connection.recv().within(LIMIT).await? == **message, "it comes back");
                    }
                    Ok(())
                },
            );
        }
    }
}

/// Parts of one memory, at once and in order with messages that are copied: short ones, large ones, and ones that only a copy can send.
#[test]
fn slices_of_memory_are_sent_as_messages() {
    const RANGES: [(usize, usize); 8] = [
        (0, 8),
        (8, 100_000),
        (100_000, 100_000),
        (1, 300_000),
        (64, 20_473),
        (0, 1 << 20),
        (5, 1000),
        (0, 200_000),
    ];
    for transport in transports() {
        for from in ["1", FROM, "inf"] {
            let wanted = transport.clone();
            pair_of(
                &with(&[("rndv_thresh", from)]),
                support::patient(),
                async |_net, mut listener| {
                    let connection = listener.accept().await?.accept().await?;
                    let bytes = message(7, (1 << 20) - 8);
                    for (start, end) in RANGES {
                        let came = connection.recv().within(LIMIT).await?;
                        assert!(*came == bytes[start..end], "{start}..{end}");
                    }
                    let came = connection.recv().within(LIMIT).await?;
                    let blocks: Vec<u8> =
                        bytes.chunks(100).flat_map(|block| &block[..60]).take(60_000).copied().collect();
                    assert!(*came == *blocks, "a strided slice");
                    connection.send(b"all").within(LIMIT).await?;
                    connection.close().within(LIMIT).await
                },
                async move |net, address| {
                    let connection = net.connect(address).require(&*wanted).await?;
                    let memory = connection.allocate(1 << 20)?;
                    memory.write(0, &message(7, (1 << 20) - 8));
                    let sends = RANGES.map(|(start, end)| connection.send_slice(memory.slice(start..end)));
                    let strided = connection.send_slice(memory.slice(..).strided(60, 100, 1000));
                    // What is in flight keeps it.
                    let sends = join_all(sends.into_iter().chain([strided]));
                    for outcome in sends.await {
                        outcome?;
                    }
                    assert_eq!(*connection.recv().within(LIMIT).await?, *b"all");
                    Ok(())
                },
            );
        }
    }
}

#[test]
fn messages_are_received_in_memory_of_the_application_whichever_way_they_come() {
    const LENGTHS: [usize; 12] =
        [0, 8, 300_000, 100, 1 << 20, 300_000, 5000, 300_001, 40_000, 3_000_000, 5_000_000, 900_000];
    for transport in transports() {
        for from in [FROM, "inf"] {
            let wanted = transport.clone();
            pair_of(
                &with(&[("rndv_thresh", from)]),
                support::patient(),
                async |_net, mut listener| {
                    let connection = listener.accept().await?.accept().await?;
                    let mut target = vec![0; 5_000_000];
                    for round in 0..2 {
                        for (number, length) in LENGTHS.into_iter().enumerate() {
                            let expected = message(number as u64, length.saturating_sub(8));
                            let expected = &expected[..length];
                            if length > 8 {
                                let mut small = vec![1; length - 1];
                                let error = connection.recv_into(&mut small).within(LIMIT).await;
                                let error = error.expect_err("no room");
                                assert_eq!(error.status, uct_core::Error::MESSAGE_TRUNCATED, "{error}");
                                assert!(small.iter().all(|byte| *byte == 1), "nothing of it is there");
                            }
                            if length > 0 && number % 4 == round {
                                // One that is given up, or forgotten, holds nothing back.
                                let mut given_up = Box::pin(connection.recv_into(&mut []));
                                drop(polled(1, given_up.as_mut()).await);
                                if round == 0 {
                                    drop(given_up);
                                } else {
                                    std::mem::forget(given_up);
                                }
                                assert!(*connection.recv().within(LIMIT).await? == *expected);
                            } else {
                                let came = connection.recv_into(&mut target).within(LIMIT).await?;
                                assert!(target[..came] == *expected, "{length} bytes");
                            }
                        }
                    }
                    let end = connection.recv_into(&mut target).within(LIMIT).await.expect_err("the end");
                    assert!(end.is_closed_by_peer(), "{end}");
                    Ok(())
                },
                async move |net, address| {
                    let connection = net.connect(address).require(wanted).await?;
                    for _ in 0..2 {
                        for (number, length) in LENGTHS.into_iter().enumerate() {
                            let message = message(number as u64, length.saturating_sub(8));
                            connection.send(&message[..length]).within(LIMIT).await?;
                        }
                    }
                    connection.close().within(LIMIT).await
                },
            );
        }
    }
}

/// Where the peer can read it in place it finds what the memory holds by then, which shows that nothing was copied.
#[test]
fn a_large_slice_is_read_in_the_senders_memory() {
    const LENGTH: usize = 200_000;
    for transport in transports() {
        let wanted = transport.clone();
        let (rests, is_at_rest) = mpsc::channel();
        let (changed, is_changed) = mpsc::channel();
        pair_of(
            &with(&[("rndv_thresh", FROM)]),
            support::patient(),
            async move |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                connection.recv().within(LIMIT).await?;
                // This thread makes no progress until the sender has changed its memory.
                rests.send(()).expect("the sender waits");
                let in_place = is_changed.recv_timeout(LIMIT).expect("the sender has changed its memory");
                let came = connection.recv().within(LIMIT).await?;
                assert!(
                    *came == [1 + u8::from(in_place); LENGTH],
                    "in place: {in_place}, it came as {}",
                    came[0]
                );
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*wanted).await?;
                connection.send(b"here").within(LIMIT).await?;
                is_at_rest.recv_timeout(LIMIT).expect("the receiver rests");
                let memory = connection.allocate(LENGTH)?;
                memory.fill(0, LENGTH, 1);
                let mut send = pin!(connection.send_slice(memory.slice(..LENGTH)));
                let at_once = poll_fn(|context| Poll::Ready(send.as_mut().poll(context))).await;
                memory.fill(0, LENGTH, 2);
                let iface = connection.iface();
                let native = iface.capabilities().difference(iface.emulated());
                let in_place = native.contains(Capabilities::GET_ZCOPY);
                assert!(in_place || !wanted.starts_with("posix"), "shared memory is read in place");
                changed.send(in_place).expect("the receiver waits");
                match at_once {
                    Poll::Ready(outcome) => outcome?,
                    Poll::Pending => send.await?,
                }
                assert!(connection.closed().await.is_closed_by_peer());
                Ok(())
            },
        );
    }
}

#[test]
fn sends_and_receives_of_large_messages_that_are_dropped_lose_nothing_and_double_nothing() {
    let seed = seed::printed() | 1;
    for transport in transports() {
        pair_of(
            &with(&[("rndv_thresh", FROM)]),
            NetOptions { window: 65_536, ..support::patient() },
            async move |net, mut listener| {
                let mut random = Random(seed ^ 2);
                let connection = listener.accept().await?.accept().await?;
                let mut came = Vec::new();
                let mut target = vec![0; 300_000];
                loop {
                    let receive: Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> = if random.below(2) == 0 {
                        Box::pin(async { Ok(connection.recv().await?.into_vec()) })
                    } else {
                        Box::pin(async {
                            let length = connection.recv_into(&mut target).await?;
                            Ok(target[..length].to_vec())
                        })
                    };
                    let received = if random.below(4) == 0 {
                        net.within(Duration::from_micros(random.below(300)), receive).await
                    } else {
                        polled(random.below(20), receive).await
                    };
                    let Some(received) = received else { continue };
                    let received = received?;
                    let number = u64::from_le_bytes(received[..8].try_into().expect("eight bytes"));
                    if number == u64::MAX {
                        for sent in received[8..].chunks(8) {
                            let sent = u64::from_le_bytes(sent.try_into().expect("eight"));
                            assert!(came.contains(&sent), "message {sent} was sent and is lost");
                        }
                        return Ok(());
                    }
                    assert!(*received == *message(number, received.len() - 8), "message {number} is damaged");
                    assert!(came.last().is_none_or(|last| *last < number), "{number} comes twice or late");
                    came.push(number);
                }
            },
            async move |net, address| {
                let mut random = Random(seed);
                let connection = net.connect(address).require(&*transport).await?;
                let mut sent = Vec::new();
                for number in 0..rounds(400) {
                    let most = if random.below(2) == 0 { 200_000 } else { 500 };
                    let message = message(number, random.below(most) as usize);
                    let send: Pin<Box<dyn Future<Output = Result>>> = if random.below(2) == 0 {
                        let memory = connection.allocate(message.len())?;
                        memory.write(0, &message);
                        Box::pin(connection.send_slice(memory.slice(..message.len())))
                    } else {
                        Box::pin(connection.send(&message))
                    };
                    let done = match random.below(3) {
                        0 => polled(random.below(6), send).await.transpose()?.is_some(),
                        1 => {
                            let limit = Duration::from_micros(random.below(300));
                            net.within(limit, send).await.transpose()?.is_some()
                        }
                        _ => send.await.map(|()| true)?,
                    };
                    if done {
                        sent.push(number);
                    }
                }
                let mut last = u64::MAX.to_le_bytes().to_vec();
                last.extend(sent.iter().flat_map(|number: &u64| number.to_le_bytes()));
                connection.send(&last).within(LIMIT).await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

/// Each round ends in another way while a large message is under way: either side gives up its futures, its connection, or both.
#[test]
fn connections_that_end_in_the_middle_of_a_large_message_end_on_both_sides() {
    let count = rounds(40);
    let seed = seed::printed() | 1;
    for transport in transports() {
        pair_of(
            &with(&[("rndv_thresh", FROM)]),
            support::patient(),
            async move |_net, mut listener| {
                let mut random = Random(seed ^ 8);
                for _ in 0..count {
                    let connection = listener.accept().await?.accept().await?;
                    let received = polled(random.below(60), connection.recv()).await;
                    if let Some(Ok(received)) = &received {
                        assert!(
                            **received == *message(1, received.len() - 8),
                            "it is whole or does not come"
                        );
                    }
                    match random.below(4) {
                        0 => connection.abort("enough"),
                        1 => drop(connection.close().within(Duration::from_micros(random.below(500))).await),
                        2 => drop(connection),
                        _ => while connection.recv().within(LIMIT).await.is_ok() {},
                    }
                }
                Ok(())
            },
            async move |net, address| {
                let mut random = Random(seed);
                for _ in 0..count {
                    let connection = net.connect(&address).require(&*transport).await?;
                    let message = message(1, 30_000 + random.below(2_000_000) as usize);
                    let sent = polled(random.below(60), connection.send(&message)).await;
                    match random.below(4) {
                        0 => connection.abort("enough"),
                        1 => drop(connection.close().within(Duration::from_micros(random.below(500))).await),
                        2 => drop(connection),
                        _ => {
                            let closed = connection.close().within(LIMIT).await;
                            assert!(
                                !closed.is_err_and(|error| error.is_timeout()),
                                "the peer is gone without an error: {sent:?}"
                            );
                        }
                    }
                }
                Ok(())
            },
        );
    }
}

#[test]
fn a_close_waits_until_a_large_message_is_read_or_its_limit_ends() {
    for transport in transports() {
        let (sender, receiver) = std::sync::mpsc::channel();
        pair_of(
            &with(&[("rndv_thresh", FROM)]),
            NetOptions { window: 65_536, ..support::patient() },
            async move |net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                // Not read, and ahead of the large one: it has to wait, for it is longer than the window.
                while receiver.try_recv().is_err() {
                    net.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(*connection.recv().within(LIMIT).await?, [1; 100]);
                assert_eq!(connection.recv().within(LIMIT).await?.len(), 1_000_000);
                assert!(connection.recv().within(LIMIT).await.expect_err("the end").is_closed_by_peer());
                Ok(())
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                connection.send(&[1; 100]).await?;
                let sent = polled(100, connection.send(&vec![2; 1_000_000])).await;
                assert!(sent.is_none(), "it was not read");
                let error = connection.close().within(Duration::from_millis(30)).await.expect_err("not read");
                assert!(error.is_timeout(), "{error}");
                sender.send(()).expect("the server waits");
                connection.close().within(LIMIT).await
            },
        );
    }
}

/// Whether large messages are offered over this transport.
fn is_read_natively(transport: &str) -> bool {
    let net = support::net(support::patient());
    let mut ifaces = net.ifaces().iter().filter(|iface| iface.resource().to_string() == transport);
    ifaces.any(|iface| {
        iface.capabilities().difference(iface.emulated()).contains(uct_core::Capabilities::GET_ZCOPY)
    })
}

#[test]
fn a_peer_may_want_a_large_message_in_parts_and_is_sent_nothing_ahead_of_it() {
    if !is_read_natively("posix/memory") {
        return skip::skip("cma", "the kernel permits no copies between processes, so nothing is offered");
    }
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let large = message(1, 1_000_000);
            let mut first = Box::pin(connection.send(&large));
            let mut second = Box::pin(connection.send(b"behind it"));
            let (mut is_first, mut is_second) = (false, false);
            std::future::poll_fn(|context| {
                is_first = is_first || first.as_mut().poll(context).is_ready();
                is_second = is_second || second.as_mut().poll(context).is_ready();
                assert!(is_first || !is_second, "it was overtaken");
                if is_second { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            connection.recv().within(LIMIT).await.map(drop).or(Ok(()))
        },
        async move |_net, address| {
            let mut peer = Raw::new().call(&address, "posix/memory").connect();
            let mut granted = peer.window_of_mine();
            let (kind, description) = peer.receive().expect("an offer");
            assert_eq!(kind, raw::OFFER);
            assert_eq!(u64::from_le_bytes(description[8..16].try_into().expect("eight")), 1_000_008);
            granted += description.len() as u32 + 64;
            assert_eq!(peer.send(raw::IN_PARTS, granted, b""), Ok(()));
            let mut came = Vec::new();
            loop {
                let (kind, part) = peer.receive().expect("a part");
                granted = granted.wrapping_add(part.len() as u32 + 64);
                came.extend_from_slice(&part);
                if kind == raw::LAST {
                    break;
                }
                assert_eq!(kind, raw::PART);
                assert_eq!(peer.send(raw::CREDIT, granted, b""), Ok(()));
            }
            assert!(came == message(1, 1_000_000));
            assert_eq!(peer.receive().expect("the next one"), (raw::LAST, b"behind it".to_vec()));
            assert_eq!(peer.send(raw::LAST, granted, b"all"), Ok(()));
            Ok(())
        },
    );
}

/// Where the peer's progress carries out gets, its requests cost more than a copy of what is short, and memory for what is long is not taken ahead.
#[test]
fn over_tcp_messages_of_512_kilobytes_to_a_megabyte_are_offered_and_no_others() {
    for (length, expected) in
        [(500 << 10, raw::PART), (512 << 10, raw::OFFER), (1 << 20, raw::OFFER), ((1 << 20) + 1, raw::PART)]
    {
        pair(
            support::patient(),
            async move |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let ended = connection.send(&vec![1; length]).within(LIMIT).await;
                ended.map(drop).or(Ok(()))
            },
            async move |_net, address| {
                let mut peer = Raw::new().call(&address, "tcp/lo").connect();
                assert_eq!(peer.receive().expect("a message").0, expected, "{length} bytes");
                assert_eq!(peer.send(raw::ABORT, peer.window_of_mine(), b""), Ok(()));
                Ok(())
            },
        );
    }
}

#[test]
fn over_tcp_no_memory_is_taken_for_what_a_peer_only_offers() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"then so");
            Ok(())
        },
        async |_net, address| {
            let mut peer = Raw::new().call(&address, "tcp/lo").connect();
            let window = peer.window_of_mine();
            assert_eq!(peer.send(raw::OFFER, window, &offer(4096, 60 << 20)), Ok(()));
            assert_eq!(peer.receive().expect("an answer").0, raw::IN_PARTS);
            assert_eq!(peer.send(raw::LAST, window, b"then so"), Ok(()));
            peer.receive();
            Ok(())
        },
    );
}

/// The error of an honest server about a peer that does so.
fn refused(hostile: impl FnOnce(&mut raw::RawConnection) + Send + 'static) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    pair(
        NetOptions { max_message: 10_000_000, ..support::patient() },
        async move |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let error = connection.recv().within(LIMIT).await.expect_err("it broke the protocol");
            sender.send(error.to_string()).expect("the test waits");
            Ok(())
        },
        async move |_net, address| {
            let mut peer = Raw::new().call(&address, "posix/memory").connect();
            hostile(&mut peer);
            while peer.receive().is_some_and(|(kind, _)| kind != raw::ABORT) {}
            Ok(())
        },
    );
    receiver.recv_timeout(LIMIT).expect("an error")
}

fn offer(address: u64, length: u64) -> Vec<u8> {
    [&address.to_le_bytes()[..], &length.to_le_bytes(), &[9; 48]].concat()
}

#[test]
fn offers_that_break_the_protocol_end_their_connection() {
    const WINDOW: u32 = 256 << 10;
    let expect = |error: String, what: &str| assert!(error.contains(what), "{error}: expected {what}");
    expect(refused(|peer| assert_eq!(peer.send(raw::OFFER, WINDOW, b"short"), Ok(()))), "offer is malformed");
    let wraps = offer(u64::MAX, 2);
    expect(
        refused(move |peer| assert_eq!(peer.send(raw::OFFER, WINDOW, &wraps), Ok(()))),
        "offer is malformed",
    );
    let long = offer(4096, 10_000_001);
    expect(
        refused(move |peer| assert_eq!(peer.send(raw::OFFER, WINDOW, &long), Ok(()))),
        "the peer sent a message of 10000001 bytes: max_message is 10000000",
    );
    expect(refused(|peer| assert_eq!(peer.send(raw::TAKEN, WINDOW, b""), Ok(()))), "offer that was not made");
    expect(
        refused(|peer| assert_eq!(peer.send(raw::IN_PARTS, WINDOW, b""), Ok(()))),
        "offer that was not made",
    );
    let in_the_middle = offer(4096, 100);
    let error = refused(move |peer| {
        assert_eq!(peer.send(raw::PART, WINDOW, b"a part"), Ok(()));
        assert_eq!(peer.send(raw::OFFER, WINDOW, &in_the_middle), Ok(()));
    });
    expect(error, "in the middle of another");
}

#[test]
fn memory_that_a_peer_has_no_key_for_is_asked_for_in_parts() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"then so");
            Ok(())
        },
        async |_net, address| {
            let mut peer = Raw::new().call(&address, "posix/memory").connect();
            let window = peer.window_of_mine();
            assert_eq!(peer.send(raw::OFFER, window, &offer(4096, 100_000)), Ok(()));
            assert_eq!(peer.receive().expect("an answer").0, raw::IN_PARTS);
            assert_eq!(peer.send(raw::LAST, window, b"then so"), Ok(()));
            peer.receive();
            Ok(())
        },
    );
}
