//! What awaited messages take of the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use crate::support::{LIMIT, pair, patient};
use uct_core::BufferPool;
use uct_net::local::{Connection, Message};
use uct_net::{Blocks, NetOptions, Result, Stride, Wait};

/// The system's allocator, which counts for each thread how often it was asked, also for a kilobyte or more, and what is not freed.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LARGE: Cell<u64> = const { Cell::new(0) };
    static IN_USE: Cell<isize> = const { Cell::new(0) };
}

fn count(size: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LARGE.set(LARGE.get() + u64::from(size >= 1024));
    IN_USE.set(IN_USE.get() + size as isize);
}

fn count_free(size: usize) {
    IN_USE.set(IN_USE.get() - size as isize);
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: the caller's promise; the memory is of this allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_free(layout.size());
        count(size);
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 200;
/// Rounds ahead of those that count: tables and buffers grow.
const WARM_UP: usize = 200;

/// The future's output, and how many allocations of this thread it took.
async fn counted<T>(future: impl Future<Output = T>) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let output = future.await;
    (output, ALLOCATIONS.get() - before)
}

#[test]
fn sending_and_receiving_a_small_message_allocate_nothing() {
    pair(
        NetOptions { wait: Wait::Spin, ..patient() },
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            for _ in 0..WARM_UP + ROUNDS {
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
            }
            assert!(connection.closed().await.is_closed_by_peer());
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).require("posix").await?;
            let (mut sent, mut received) = (0, u64::MAX);
            for round in 0..WARM_UP + ROUNDS {
                let (outcome, allocations) = counted(connection.send(&[1; 8])).await;
                outcome?;
                sent += if round < WARM_UP { 0 } else { allocations };
                // The answer is there when this thread asks, in most rounds: waiting takes more.
                std::thread::sleep(Duration::from_micros(200));
                let (message, allocations) = counted(connection.recv()).await;
                assert_eq!(*message?, [1; 8]);
                received = received.min(allocations);
            }
            assert_eq!(sent, 0, "allocations of {ROUNDS} messages that were sent");
            assert_eq!(received, 0, "allocations of a message that was received");
            Ok(())
        },
    );
}

#[test]
fn moving_the_same_blocks_again_allocates_nothing() {
    // Where blocks are in flight behind the start, a request for room is one.
    for (transport, most) in [("posix", 0), ("tcp", 1)] {
        pair(
            NetOptions { wait: Wait::Spin, ..patient() },
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(1 << 20)?;
                connection.share(&memory).await?;
                while connection.notified().await.is_ok() {}
                Ok(())
            },
            async |net, address| {
                let connection = net.connect(address).require(transport).await?;
                let (remote, local) = (connection.shared().await?, connection.allocate(1 << 20)?);
                let blocks = Blocks::from(Stride {
                    count: 256,
                    length: 1024,
                    local: 0,
                    local_stride: 2048,
                    remote: 0,
                    remote_stride: 4096,
                });
                let new = connection.put_blocks(&local, &remote, &blocks);
                let mut transfer = new.start()?;
                let mut fewest = u64::MAX;
                for _ in 0..20 {
                    (&mut transfer).await?;
                    let before = ALLOCATIONS.get();
                    transfer.again()?;
                    fewest = fewest.min(ALLOCATIONS.get() - before);
                }
                transfer.await?;
                assert!(fewest <= most, "{fewest} allocations of posting blocks again over {transport}");
                Ok(())
            },
        );
    }
}

/// Messages that the server sends for each request: more than may stay in buffers of the transport.
const BURST: usize = 64;

/// The length of a message of a burst. Memory of a long one may be that of a short one next.
fn length(round: usize, index: usize) -> usize {
    8000 - (round * 7 + index * 101) % 3000
}

fn byte(round: usize, index: usize) -> u8 {
    (round * 31 + index) as u8
}

/// Sends bursts of messages until the client has gone.
async fn serve_bursts(connection: Connection, length: fn(usize, usize) -> usize) -> Result {
    for round in 0.. {
        match connection.recv().within(LIMIT).await {
            Err(error) if error.is_closed_by_peer() => break,
            request => request?,
        };
        for index in 0..BURST {
            connection.send(&vec![byte(round, index); length(round, index)]).await?;
        }
    }
    Ok(())
}

/// Requests a burst, and holds it.
async fn burst(connection: &Connection, held: &mut Vec<Message>) -> Result {
    connection.send(&[1]).await?;
    for _ in 0..BURST {
        held.push(connection.recv().within(LIMIT).await?);
    }
    Ok(())
}

#[test]
fn bursts_of_large_messages_are_received_in_the_memory_of_those_before() {
    // Whole ones, and some that come in parts.
    let lengths: [fn(usize, usize) -> usize; 2] =
        [length, |round, index| if index % 16 == 0 { 70_000 } else { length(round, index) }];
    for (transport, length) in ["posix", "tcp"].into_iter().zip(lengths) {
        pair(
            patient(),
            async move |_net, mut listener| {
                serve_bursts(listener.accept().await?.accept().await?, length).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(transport).await?;
                let mut held = Vec::with_capacity(BURST);
                let mut large = 0;
                for round in 0..20 {
                    let before = LARGE.get();
                    burst(&connection, &mut held).await?;
                    for (index, message) in held.drain(..).enumerate() {
                        let expected = byte(round, index);
                        assert_eq!(message.len(), length(round, index), "{transport}");
                        assert!(message.iter().all(|byte| *byte == expected), "{transport}: of another");
                    }
                    large += if round < 10 { 0 } else { LARGE.get() - before };
                }
                // A queue grows when more of a burst than before arrives at once.
                assert!(large < 10, "{transport}: {large} allocations for 10 bursts of {BURST} messages");
                Ok(())
            },
        );
    }
}

#[test]
fn what_is_kept_of_messages_that_were_dropped_is_bounded() {
    for transport in ["posix", "tcp"] {
        pair(
            patient(),
            async |_net, mut listener| serve_bursts(listener.accept().await?.accept().await?, length).await,
            async move |net, address| {
                let connection = net.connect(address).require(transport).await?;
                let mut held = Vec::with_capacity(16 * BURST);
                burst(&connection, &mut held).await?;
                held.clear();
                let before = IN_USE.get() - net.worker().buffers().spare_bytes() as isize;
                for _ in 0..16 {
                    burst(&connection, &mut held).await?;
                }
                let bytes: usize = held.iter().map(|message| message.len()).sum();
                assert!(bytes > 2 * BufferPool::MAX_SPARE, "enough of them: {bytes}");
                held.clear();
                let kept = net.worker().buffers().spare_bytes();
                assert!(
                    kept > BufferPool::MAX_SPARE / 2 && kept <= BufferPool::MAX_SPARE,
                    "{transport}: {kept}"
                );
                let rest = IN_USE.get() - before - kept as isize;
                assert!(rest < 64 << 10, "{transport}: {rest} bytes beside what is kept");
                Ok(())
            },
        );
    }
}

#[test]
fn the_bytes_that_an_application_takes_are_its_own() {
    pair(
        patient(),
        async |_net, mut listener| serve_bursts(listener.accept().await?.accept().await?, length).await,
        async |net, address| {
            let connection = net.connect(address).require("posix").await?;
            let mut held = Vec::new();
            burst(&connection, &mut held).await?;
            let taken: Vec<Vec<u8>> = held.drain(..).map(Message::into_vec).collect();
            burst(&connection, &mut held).await?;
            for (index, bytes) in taken.iter().enumerate() {
                assert_eq!(*bytes, vec![byte(0, index); length(0, index)]);
            }
            Ok(())
        },
    );
}
