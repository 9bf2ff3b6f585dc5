//! The floor of shared memory latency: a cache line that goes to another core and back.
//! Prints nanoseconds one way, the median of batches. Compiled by `cargo xtask compare`; needs std alone.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BATCH: u64 = 200;
const BATCHES: usize = 5000;
/// Time limit for a peer that never replies.
const LIMIT: Duration = Duration::from_secs(20);

#[repr(align(128))]
struct Line(AtomicU64);

static THERE: Line = Line(AtomicU64::new(0));
static BACK: Line = Line(AtomicU64::new(0));

fn main() {
    let echo = std::thread::spawn(|| {
        for turn in 1..=BATCH * BATCHES as u64 {
            // SYNC: pairs with the Release store of the main thread.
            while THERE.0.load(Ordering::Acquire) != turn {
                spin_loop();
            }
            // SYNC: pairs with the Acquire load of the main thread.
            BACK.0.store(turn, Ordering::Release);
        }
    });
    let start = Instant::now();
    let mut nanoseconds = Vec::with_capacity(BATCHES);
    let mut turn = 0;
    for _ in 0..BATCHES {
        let batch = Instant::now();
        for _ in 0..BATCH {
            turn += 1;
            // SYNC: pairs with the Acquire load of the echo.
            THERE.0.store(turn, Ordering::Release);
            // SYNC: pairs with the Release store of the echo.
            while BACK.0.load(Ordering::Acquire) != turn {
                spin_loop();
            }
        }
        nanoseconds.push(batch.elapsed().as_nanos() as f64 / (2 * BATCH) as f64);
        if start.elapsed() > LIMIT {
            eprintln!("cacheline: not done after {} s: are there two processors?", LIMIT.as_secs());
            std::process::exit(1);
        }
    }
    if echo.join().is_err() {
        std::process::exit(1);
    }
    nanoseconds.sort_by(f64::total_cmp);
    println!("{:.1}", nanoseconds[BATCHES / 2]);
}
