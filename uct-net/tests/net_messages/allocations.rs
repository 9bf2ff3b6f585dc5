//! What an awaited message takes of the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use crate::support::{LIMIT, pair, patient};
use uct_net::Wait;

/// The system's allocator, which counts for each thread how often it was asked.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the memory is of this allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
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
        uct_net::NetOptions { wait: Wait::Spin, ..patient() },
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
