//! A worker that waits leaves its processor to others where nothing happens, and only there.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::Duration;

use uct_core::configuration::Sources;
use uct_core::{Context, Worker};

const LONG: Duration = Duration::from_secs(20);

thread_local! {
    static YIELDS: Cell<u32> = const { Cell::new(0) };
}

/// Replaces that of the C library in the whole program, which `std` calls: counts, and yields.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    YIELDS.set(YIELDS.get() + 1);
    rustix::thread::sched_yield();
    0
}

/// How often progress without an end yields in `rounds`, of which each `busy`th has something to do.
fn yields(worker: &Worker, rounds: u32, busy: Option<u32>) -> u32 {
    let handle = worker.handle();
    let mut round = 0;
    let before = YIELDS.get();
    let is_done = worker.progress_until(LONG, || {
        round += 1;
        if busy.is_some_and(|busy| round % busy == 0) {
            handle.submit(|_| {}).expect("the worker is there");
        }
        round > rounds
    });
    assert!(is_done);
    YIELDS.get() - before
}

#[test]
fn a_worker_yields_after_64_rounds_in_which_nothing_happened() {
    let context = Context::builder().sources(Sources::default().set("modules", "self")).build();
    let worker = Worker::new(&context.expect("a context")).expect("a worker");
    std::thread::yield_now();
    assert_eq!(YIELDS.take(), 1, "yields are counted");
    for (rounds, expected) in [(63, 0), (64, 1), (127, 1), (640, 10)] {
        assert_eq!(yields(&worker, rounds, None), expected, "{rounds} rounds");
    }
    for busy in [1, 2, 64] {
        assert_eq!(yields(&worker, 640, Some(busy)), 0, "something to do each {busy} rounds");
    }
    assert_eq!(yields(&worker, 65 * 4, Some(65)), 4);
}
