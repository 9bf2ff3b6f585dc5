//! The behaviour of `ucs::datastruct`, a module for each structure.

mod arbiter;
mod callbackq;
mod mpool;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs a test body; fails if it has not ended after 20 seconds.
fn watched(body: impl FnOnce() + Send + 'static) {
    let (done, watchdog) = mpsc::channel();
    let test = thread::spawn(move || {
        body();
        // The watchdog may have given up.
        _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = watchdog.recv_timeout(Duration::from_secs(20)) {
        panic!("the test did not end within 20 seconds");
    }
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}
