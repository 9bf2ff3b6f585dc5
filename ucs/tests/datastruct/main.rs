//! The behaviour of `ucs::datastruct`, a module for each structure.

#[path = "../../testing/alone.rs"]
#[cfg(not(miri))]
mod alone;
mod arbiter;
mod callbackq;
mod mpool;
#[cfg(not(miri))]
mod mpool_leaks;
#[path = "../../testing/page.rs"]
mod page;
#[path = "../../testing/property.rs"]
mod property;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a test may take; Miri is a thousand times slower.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 120 });

/// Runs a test body; fails if it has not ended in time.
fn watched(body: impl FnOnce() + Send + 'static) {
    let (done, watchdog) = mpsc::channel();
    let test = thread::spawn(move || {
        body();
        // The watchdog may have given up.
        _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = watchdog.recv_timeout(LIMIT) {
        panic!("the test did not end within {LIMIT:?}");
    }
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}
