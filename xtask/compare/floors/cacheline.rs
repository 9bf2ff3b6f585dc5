//! The floor of shared memory latency: a cache line that goes to another core and back.
//! Prints nanoseconds one way, the median of batches: of as many as the argument says, of 5000 without an argument. Compiled by
//! `cargo xtask compare`; needs std, and taskset.

use std::hint::spin_loop;
use std::process::{Command, Stdio};
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

/// Keeps this thread on a processor: the scheduler may put both on one, and then a line goes over once in a time slice.
fn stay_on(processor: &str) {
    let thread = std::fs::read_link("/proc/thread-self").expect("this thread");
    let thread = thread.file_name().expect("its number");
    let mut taskset = Command::new("taskset");
    taskset.args(["-p", "-c", processor]).arg(thread).stdout(Stdio::null());
    assert!(taskset.status().is_ok_and(|status| status.success()), "taskset -p -c {processor} failed");
}

fn main() {
    let batches = match std::env::args().nth(1).map_or(Ok(BATCHES), |count| count.parse()) {
        Ok(count @ 1..) => count,
        _ => {
            eprintln!("cacheline: expected a number of batches");
            std::process::exit(2);
        }
    };
    let echo = std::thread::spawn(move || {
        stay_on("1");
        for turn in 1..=BATCH * batches as u64 {
            // SYNC: pairs with the Release store of the main thread.
            while THERE.0.load(Ordering::Acquire) != turn {
                spin_loop();
            }
            // SYNC: pairs with the Acquire load of the main thread.
            BACK.0.store(turn, Ordering::Release);
        }
    });
    stay_on("0");
    let start = Instant::now();
    let mut nanoseconds = Vec::with_capacity(batches);
    let mut turn = 0;
    for _ in 0..batches {
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
    println!("{:.1}", nanoseconds[batches / 2]);
}
