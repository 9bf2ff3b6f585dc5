//! Transfers of blocks: what moves, when the peer is notified, and what becomes of the rest.

use std::future::poll_fn;
use std::task::Poll;

use crate::support::random::Random;
use crate::support::seed;
use crate::support::{self, LIMIT, LOOPBACK, child, pair, rounds, transports};
use uct_core::{Error as Status, Memory};
use uct_net::local::Connection;
use uct_net::{Block, Blocks, Result, Stride};

/// Bytes that each side shares.
const SHARED: usize = 1 << 20;

/// The byte at an offset of a memory of this colour.
fn shade(colour: u8, offset: usize) -> u8 {
    (offset as u8).wrapping_mul(31).wrapping_add((offset >> 8) as u8) ^ colour
}

/// Fills memory with a colour.
fn paint(memory: &Memory, colour: u8) {
    let bytes: Vec<u8> = (0..memory.len()).map(|offset| shade(colour, offset)).collect();
    memory.write(0, &bytes);
}

/// The bytes of a block at its target, and what they are if it has moved from memory of a colour.
fn at(memory: &Memory, (target, source): (u64, u64), length: u64, colour: u8) -> (Vec<u8>, Vec<u8>) {
    let mut found = vec![0; length as usize];
    memory.read(target as usize, &mut found);
    (found, (0..length as usize).map(|offset| shade(colour, source as usize + offset)).collect())
}

/// Blocks of lengths from nothing on, that overlap nowhere, in an order of their own on each side.
fn scattered(random: &mut Random, count: usize) -> Blocks {
    let place = SHARED / count;
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.below(end as u64 + 1) as usize);
    }
    let block = |(local, remote): (usize, usize)| {
        let length = match random.below(8) {
            0 => 0,
            1 => 1,
            2 => place as u64,
            _ => random.below(place as u64 + 1),
        };
        Block { local: (local * place) as u64, remote: (remote * place) as u64, length }
    };
    order.into_iter().enumerate().map(block).collect()
}

/// A server that shares memory of a colour, and then does `rest` with it.
async fn sharing(
    listener: &mut uct_net::local::Listener,
    colour: u8,
    rest: impl AsyncFnOnce(&Connection, Memory) -> Result<()>,
) -> Result<()> {
    let connection = listener.accept().await?.accept().await?;
    let memory = connection.allocate(SHARED)?;
    paint(&memory, colour);
    connection.share(&memory).await?;
    rest(&connection, memory).await
}

#[test]
fn blocks_of_every_length_move_both_ways_and_the_peer_is_notified_once() {
    let seed = seed::printed();
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                sharing(&mut listener, 1, async |connection, memory| {
                    assert_eq!(&*connection.notified().await?, b"read");
                    // What was read may be changed again.
                    paint(&memory, 9);
                    connection.send(b"painted").await?;
                    let notice = connection.notified().await?.to_vec();
                    let blocks = Blocks::from_bytes(&notice[7..]).expect("a description");
                    assert_eq!(notice[..7], *b"written");
                    for (number, block) in blocks.iter().enumerate() {
                        let (found, expected) = at(&memory, (block.remote, block.local), block.length, 7);
                        assert!(found == expected, "block {number}, notified early");
                    }
                    connection.send(b"seen").await?;
                    let error = connection.notified().await.expect_err("it is notified once");
                    assert!(error.is_closed_by_peer(), "{error}");
                    Ok(())
                })
                .await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let local = connection.allocate(SHARED)?;
                let mut random = Random(seed);
                let blocks = scattered(&mut random, 300);
                let transfer = connection.get_blocks(&local, &remote, &blocks).notify(b"read").start()?;
                let receipt = net.within(LIMIT, transfer).await.expect("it ends")?;
                assert_eq!((receipt.blocks, receipt.bytes), (300, blocks.bytes()));
                assert_eq!(*receipt.over, *connection.explanation().chosen);
                assert!(receipt.posted <= receipt.elapsed);
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"painted");
                for block in blocks.iter() {
                    let (found, expected) = at(&local, (block.local, block.remote), block.length, 1);
                    assert!(found == expected, "{block:?} over {transport}");
                }
                paint(&local, 7);
                let blocks = scattered(&mut random, 40);
                let notice = [b"written", &blocks.to_bytes()[..]].concat();
                let transfer = connection.put_blocks(&local, &remote, &blocks).notify(&notice).start()?;
                net.within(LIMIT, transfer).await.expect("it ends")?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"seen");
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn neighbours_and_blocks_longer_than_an_operation_move_whole() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                sharing(&mut listener, 3, async |connection, _memory| {
                    connection.recv().within(LIMIT).await.map(drop)
                })
                .await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let local = connection.allocate(SHARED)?;
                let neighbours = Stride {
                    count: 4096,
                    length: 100,
                    local: 0,
                    local_stride: 100,
                    remote: 500,
                    remote_stride: 100,
                };
                let whole = Block { local: 409_600, remote: 0, length: 600_000 };
                let operations = connection.endpoint().counters().get.operations;
                let transfer = connection
                    .get_blocks(&local, &remote, &neighbours.into())
                    .and(&local, &remote, &Blocks::from_iter([whole]))
                    .start()?;
                net.within(LIMIT, transfer).await.expect("it ends")?;
                let operations = connection.endpoint().counters().get.operations - operations;
                // Each datagram of `ud_verbs` takes forty of them.
                assert!(operations < 500, "{operations} operations: neighbours go together");
                for (target, source, length) in [(0, 500, 409_600), (409_600, 0, 600_000)] {
                    let (found, expected) = at(&local, (target, source), length, 3);
                    assert!(found == expected, "over {transport}");
                }
                connection.send(b"done").await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn blocks_of_a_key_that_ends_fail_and_the_others_move() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memories = [2, 4, 6].map(|colour| {
                    let memory = connection.allocate(SHARED).expect("memory");
                    paint(&memory, colour);
                    memory
                });
                for memory in &memories {
                    connection.share(memory).await?;
                }
                connection.recv().within(LIMIT).await?;
                let [_first, revoked, _last] = memories;
                drop(revoked);
                connection.send(b"revoked").await?;
                connection.notified().await.expect_err("not all have moved");
                Ok(())
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let mut remotes = Vec::new();
                for _ in 0..3 {
                    remotes.push(connection.shared().await?);
                }
                let local = connection.allocate(3 * SHARED)?;
                connection.send(b"revoke").await?;
                connection.recv().within(LIMIT).await?;
                let every_eighth = |part: u64| {
                    Blocks::from(Stride {
                        count: 100,
                        length: 1000,
                        local: part * SHARED as u64,
                        local_stride: 8000,
                        remote: 24,
                        remote_stride: 8000,
                    })
                };
                let mut transfer = connection
                    .get_blocks(&local, &remotes[0], &every_eighth(0))
                    .and(&local, &remotes[1], &every_eighth(1))
                    .and(&local, &remotes[2], &every_eighth(2))
                    .notify(b"never")
                    .start()?;
                let failed =
                    net.within(LIMIT, &mut transfer).await.expect("it ends").expect_err("a key has ended");
                let moved = transfer.outcome();
                if transport.starts_with("rc_verbs") {
                    // A key that the device refuses ends the connection, as with single operations.
                    assert!(moved.count() <= 300);
                    return Ok(());
                }
                let numbers: Vec<usize> = moved.missing().map(|(number, _)| number).collect();
                assert_eq!(numbers, (100..200).collect::<Vec<_>>(), "over {transport}: {failed}");
                assert!(moved.missing().all(|(_, status)| status == Status::INVALID_PARAM));
                assert!(failed.to_string().contains("200 of 300 blocks moved: "), "{failed}");
                for (part, colour) in [(0, 2), (2, 6)] {
                    for block in every_eighth(part).iter() {
                        let (found, expected) = at(&local, (block.local, block.remote), block.length, colour);
                        assert!(found == expected, "{block:?} over {transport}");
                    }
                }
                connection.close().within(LIMIT).await
            },
        );
    }
}

/// Lets the net have a turn.
async fn turn() {
    let mut is_over = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[test]
fn a_transfer_that_is_cancelled_anywhere_says_what_has_moved() {
    let seed = seed::printed();
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                sharing(&mut listener, 5, async |connection, _memory| {
                    loop {
                        // Those that came too late to be cancelled.
                        if connection.notified().await.is_err() {
                            return Ok(());
                        }
                    }
                })
                .await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let mut random = Random(seed);
                for round in 0..rounds(40) {
                    let local = connection.allocate(SHARED)?;
                    let blocks = scattered(&mut random, 200);
                    let transfer = connection.get_blocks(&local, &remote, &blocks).notify(b"late").start()?;
                    for _ in 0..random.below(40) {
                        turn().await;
                    }
                    let moved = net.within(LIMIT, transfer.cancel()).await.expect("it ends");
                    assert_eq!(moved.len(), 200);
                    assert_eq!(moved.count() + moved.missing().count(), 200);
                    // No operation is in flight: what is written now stays.
                    let before = local.to_vec();
                    for (number, block) in blocks.iter().enumerate() {
                        if moved.status(number).is_ok() {
                            let (found, expected) = at(&local, (block.local, block.remote), block.length, 5);
                            assert!(found == expected, "round {round}, block {number} over {transport}");
                        }
                    }
                    for _ in 0..20 {
                        turn().await;
                    }
                    assert!(
                        local.to_vec() == before,
                        "round {round}: a block was in flight over {transport}"
                    );
                }
                connection.close().within(LIMIT).await
            },
        );
    }
}

/// Address and transport for the process that is killed.
const OWNED_BY: &str = "UCT_NET_BLOCKS_OWNER";

/// The process that is killed: this program, by the name of this test.
#[test]
fn the_owner_of_blocks_that_is_killed() {
    let Ok(value) = std::env::var(OWNED_BY) else { return };
    let (address, transport) = value.split_once(' ').expect("an address and a transport");
    let net = support::net(support::patient());
    let owner = async {
        let connection = net.connect(address).require(transport).await?;
        let memory = connection.allocate(SHARED)?;
        paint(&memory, 8);
        connection.share(&memory).await?;
        connection.recv().within(LIMIT).await
    };
    net.block_on(owner).expect_err("it is killed before");
}

#[test]
fn a_peer_that_is_killed_in_the_middle_ends_the_transfer() {
    for transport in ["posix/memory", "tcp/lo"] {
        let net = support::net(support::patient());
        let killed = async {
            let mut listener = net.listen(LOOPBACK).await?;
            let value = format!("{} {transport}", listener.address());
            let owner = child::start(the_owner_of_blocks_that_is_killed, (OWNED_BY, &value));
            let connection = listener.accept().await?.accept().await?;
            let remote = net.within(LIMIT, connection.shared()).await.expect("it is shared")?;
            let local = connection.allocate(SHARED)?;
            let all = Blocks::from(Stride {
                count: 1000,
                length: 1000,
                local: 0,
                local_stride: 1010,
                remote: 0,
                remote_stride: 1000,
            });
            let mut transfer = connection.get_blocks(&local, &remote, &all).notify(b"never").start()?;
            let mut owner = Some(owner);
            for round in 0.. {
                assert!(round < 100_000, "it is not noticed over {transport}");
                match net.within(LIMIT, &mut transfer).await.expect("it ends") {
                    Ok(_) => transfer.again()?,
                    Err(failed) => {
                        assert_eq!(failed.status, Status::CONNECTION_RESET, "{failed}");
                        let moved = transfer.outcome();
                        for (number, block) in all.iter().enumerate() {
                            if moved.status(number).is_ok() {
                                let (found, expected) =
                                    at(&local, (block.local, block.remote), block.length, 8);
                                assert!(found == expected, "block {number}");
                            }
                        }
                        break;
                    }
                }
                if round == 3 {
                    drop(owner.take());
                }
            }
            assert!(transfer.again().is_err(), "the connection has failed");
            Ok::<_, uct_net::Error>(())
        };
        net.block_on(killed).expect("the side that lives");
    }
}

#[test]
fn what_cannot_be_moved_is_refused_in_words() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            sharing(&mut listener, 1, async |connection, _memory| {
                connection.recv().within(LIMIT).await.map(drop)
            })
            .await
        },
        async |net, address| {
            let connection = net.connect(address).require("tcp/lo").await?;
            let remote = connection.shared().await?;
            let local = connection.allocate(4096)?;
            let one = |local, remote, length| Blocks::from_iter([Block { local, remote, length }]);
            for (blocks, reason) in [
                (one(4000, 0, 97), "a block ends at 4097, beyond the 4096 bytes of the local memory"),
                (one(0, SHARED as u64, 1), "beyond the 1048576 bytes of what the peer shared"),
                (one(u64::MAX, 0, 5), "bytes of the local memory"),
            ] {
                let refused =
                    connection.get_blocks(&local, &remote, &blocks).start().expect_err("out of range");
                assert_eq!(refused.status, Status::OUT_OF_RANGE);
                assert!(refused.to_string().contains(reason), "{refused}");
            }
            let good = one(0, 0, 8);
            let refused = connection.get_blocks(&local, &remote, &good).notify(&[0; 1025]).start();
            assert!(refused.expect_err("too long").to_string().contains("at most 1024 are sent"));
            let elsewhere = net.worker().open("self", "memory").expect("self").memory_domain().clone();
            let other = elsewhere.register(vec![0; 64], uct_core::Access::ALL).expect("memory");
            let refused = connection.get_blocks(&other, &remote, &good).start().expect_err("other memory");
            assert_eq!(refused.status, Status::INVALID_PARAM);
            // A description of a few bytes, which may be a peer's.
            let endless = Stride {
                count: usize::MAX,
                length: 0,
                local: 0,
                local_stride: 0,
                remote: 0,
                remote_stride: 0,
            };
            let endless = Blocks::from_bytes(&Blocks::from(endless).to_bytes()).expect("a description");
            let new = connection.get_blocks(&local, &remote, &endless).and(&local, &remote, &endless);
            let refused = new.start().expect_err("too many");
            assert_eq!(refused.status, Status::INVALID_PARAM);
            assert!(refused.to_string().contains("at most 16777216 are moved at once"), "{refused}");
            // A transfer of nothing is over at once.
            let none = connection.get_blocks(&local, &remote, &Blocks::from_iter([])).start()?.await?;
            assert_eq!((none.blocks, none.bytes), (0, 0));
            connection.send(b"done").await?;
            connection.close().within(LIMIT).await
        },
    );
}
