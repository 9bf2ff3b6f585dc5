//! What "done" means, and what is ordered with what: the table of docs/net.md, over every transport.
//!
//! The two sides signal to each other beside the connection, so that no order of the lane hides what is missing.

use std::pin::pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::support::{self, LIMIT, pair, rounds, transports};
use futures_util::FutureExt;
use futures_util::future::{join, join_all, join3};
use uct_core::Memory;
use uct_net::Result;
use uct_net::local::{Connection, Net, RemoteMemory};

const SHARED: usize = 256 << 10;
/// Where words for atomics are.
const WORD: usize = 8;

/// The byte at an offset in a round.
fn shade(round: u64, offset: usize) -> u8 {
    (offset as u8).wrapping_mul(37).wrapping_add((offset >> 8) as u8) ^ (round as u8).wrapping_mul(91)
}

fn bytes(round: u64, length: usize) -> Vec<u8> {
    (0..length).map(|offset| shade(round, offset)).collect()
}

/// Waits for a signal of another thread while the net is driven, and leaves the net alone after it.
async fn signalled<T>(net: &Net, signals: &Receiver<T>) -> T {
    let signal = async {
        loop {
            if let Ok(signal) = signals.try_recv() {
                return signal;
            }
            net.sleep(Duration::from_micros(50)).await;
        }
    };
    net.within(LIMIT, signal).await.expect("the other side goes on")
}

/// Lengths of a put that a transport can take at once.
fn lengths(connection: &Connection) -> Vec<usize> {
    let most = connection.iface().attributes().put.max_zcopy.min(SHARED);
    [1, 100, 4000, 70_000, SHARED].into_iter().map(|length| length.min(most)).collect()
}

/// Over each transport: `put` has the bytes of a round taken effect, by its return. The owner of the memory then reads it without progress.
fn taken_effect(put: impl AsyncFn(&Net, &Connection, (&Memory, usize), &RemoteMemory) -> Result<()>) {
    for transport in transports() {
        let (done, signals) = mpsc::channel::<(u64, usize)>();
        pair(
            support::patient(),
            async move |net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(SHARED)?;
                connection.share(&memory).await?;
                loop {
                    let (round, length) = signalled(net, &signals).await;
                    if length == 0 {
                        return connection.close().within(LIMIT).await;
                    }
                    let mut found = vec![0; length];
                    memory.read(0, &mut found);
                    assert!(found == bytes(round, length), "{length} bytes of round {round}, done too early");
                    connection.send(b"seen").await?;
                }
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = net.within(LIMIT, connection.shared()).await.expect("it is shared")?;
                let local = connection.allocate(SHARED)?;
                let lengths = lengths(&connection);
                for round in 0..rounds(100) {
                    let length = lengths[round as usize % lengths.len()];
                    local.write(0, &bytes(round, length));
                    put(net, &connection, (&local, length), &remote).await?;
                    // It may be used again.
                    local.write(0, &vec![0xee; length]);
                    done.send((round, length)).expect("the owner waits");
                    assert_eq!(&*connection.recv().within(LIMIT).await?, b"seen");
                }
                done.send((0, 0)).expect("the owner waits");
                connection.closed().await;
                Ok(())
            },
        );
    }
}

#[test]
fn a_put_that_is_done_has_taken_effect() {
    taken_effect(async |net, connection, (local, length), remote| {
        net.within(LIMIT, connection.put(local.slice(..length), remote, 0)).await.expect("it ends")
    });
}

#[test]
fn a_flush_that_is_done_has_puts_taken_effect_whose_futures_were_dropped() {
    taken_effect(async |net, connection, (local, length), remote| {
        let started = || connection.endpoint().counters().put.operations;
        let before = started();
        let mut put = pin!(connection.put(local.slice(..length), remote, 0));
        // At its first polls it may wait for its turn.
        while started() == before {
            match put.as_mut().now_or_never() {
                Some(done) => return done,
                None => net.sleep(Duration::from_micros(50)).await,
            }
        }
        net.within(LIMIT, connection.flush()).await.expect("it ends")
    });
}

#[test]
fn a_message_behind_a_put_that_was_awaited_comes_after_its_bytes() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(SHARED)?;
                connection.share(&memory).await?;
                for round in 0..rounds(100) {
                    let length = u32::from_le_bytes(
                        connection.recv().within(LIMIT).await?[..].try_into().expect("a length"),
                    ) as usize;
                    let mut found = vec![0; length];
                    memory.read(0, &mut found);
                    assert!(found == bytes(round, length), "{length} bytes of round {round}");
                    connection.send(b"seen").await?;
                }
                connection.close().within(LIMIT).await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = net.within(LIMIT, connection.shared()).await.expect("it is shared")?;
                let local = connection.allocate(SHARED)?;
                let lengths = lengths(&connection);
                for round in 0..rounds(100) {
                    let length = lengths[round as usize % lengths.len()];
                    local.write(0, &bytes(round, length));
                    connection.put(local.slice(..length), &remote, 0).await?;
                    connection.send(&(length as u32).to_le_bytes()).await?;
                    assert_eq!(&*connection.recv().within(LIMIT).await?, b"seen");
                }
                connection.closed().await;
                Ok(())
            },
        );
    }
}

#[test]
fn messages_come_in_the_order_in_which_their_futures_were_polled_first() {
    // More than a task may do without a pause.
    const GROUPS: u32 = 20;
    const AT_ONCE: u32 = 30;
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for number in 0..GROUPS * AT_ONCE {
                    assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
                }
                connection.close().within(LIMIT).await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                for group in 0..GROUPS {
                    let numbers: Vec<[u8; 4]> =
                        (group * AT_ONCE..(group + 1) * AT_ONCE).map(u32::to_le_bytes).collect();
                    let sends = numbers.iter().map(|number| connection.send(number));
                    let sent = net.within(LIMIT, join_all(sends)).await.expect("they end");
                    sent.into_iter().collect::<Result<Vec<()>>>()?;
                }
                connection.closed().await;
                Ok(())
            },
        );
    }
}

#[test]
fn messages_and_shared_memory_come_in_the_order_in_which_their_futures_were_polled_first() {
    for transport in transports() {
        pair(
            support::patient(),
            async |net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for round in 0..rounds(20) {
                    assert_eq!(connection.recv().within(LIMIT).await?.len(), 1 << 20, "the large one");
                    assert_eq!(*connection.recv().within(LIMIT).await?, round.to_le_bytes());
                    // It was shared ahead of that message.
                    let shared = connection.shared().now_or_never();
                    let remote = shared.expect("what was shared ahead of a message is here with it")?;
                    assert_eq!(remote.len(), SHARED as u64);
                    let local = connection.allocate(64)?;
                    let got = connection.get(local.slice(..64), &remote, 0);
                    net.within(LIMIT, got).await.expect("it ends")?;
                    assert_eq!(local.to_vec()[..64], bytes(round, 64), "a get that is done has the bytes");
                    connection.send(b"next").await?;
                }
                connection.close().within(LIMIT).await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let large = vec![3; 1 << 20];
                for round in 0..rounds(20) {
                    let memory = connection.allocate(SHARED)?;
                    memory.write(0, &bytes(round, 64));
                    let number = round.to_le_bytes();
                    let (first, second, third) =
                        (connection.send(&large), connection.share(&memory), connection.send(&number));
                    let all = net.within(LIMIT, join3(first, second, third)).await.expect("they end");
                    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok(), "{all:?}");
                    assert_eq!(&*connection.recv().within(LIMIT).await?, b"next");
                }
                connection.closed().await;
                Ok(())
            },
        );
    }
}

#[test]
fn many_operations_at_once_have_each_their_own_result() {
    const AT_ONCE: usize = 40;
    for transport in transports() {
        let (done, signals): (Sender<()>, Receiver<()>) = mpsc::channel();
        pair(
            support::patient(),
            async move |net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(SHARED)?;
                connection.share(&memory).await?;
                signalled(net, &signals).await;
                assert_eq!(memory.load_u64(WORD), AT_ONCE as u64, "what was fetched has taken effect");
                connection.close().within(LIMIT).await
            },
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = net.within(LIMIT, connection.shared()).await.expect("it is shared")?;
                let local = connection.allocate(AT_ONCE * 64)?;
                let adds = (0..AT_ONCE).map(|_| connection.fetch_add(&remote, WORD as u64, 1));
                let gets = (0..AT_ONCE)
                    .map(|place| connection.get(local.slice(place * 64..place * 64 + 64), &remote, 4096));
                let both = join(join_all(adds), join_all(gets));
                let (adds, gets) = net.within(LIMIT, both).await.expect("they end");
                let mut old: Vec<u64> = adds.into_iter().collect::<Result<_>>()?;
                old.sort_unstable();
                assert_eq!(old, (0..AT_ONCE as u64).collect::<Vec<_>>(), "over {transport}");
                gets.into_iter().collect::<Result<Vec<()>>>()?;
                done.send(()).expect("the owner waits");
                connection.closed().await;
                Ok(())
            },
        );
    }
}
