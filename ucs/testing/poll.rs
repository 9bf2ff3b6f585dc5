//! Polling that sleeps while there are no events, so that it does not take the processor from what is waited for.
//! Used by the tests of several crates, which include this file by its path.

use std::time::{Duration, Instant};

/// So many calls without an event in a row, before it sleeps between them: what is about to come is polled for.
const PATIENT: u32 = 1000;
const NAP: Duration = Duration::from_micros(200);

/// Calls `progress` until `done`, for at most `limit`; whether it was done. `progress` returns a number of events.
pub fn poll_until(
    limit: Duration,
    mut progress: impl FnMut() -> u32,
    mut done: impl FnMut() -> bool,
) -> bool {
    let start = Instant::now();
    let mut idle = 0;
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        idle = if progress() > 0 { 0 } else { idle + 1 };
        if idle > PATIENT {
            std::thread::sleep(NAP);
        }
    }
    true
}
