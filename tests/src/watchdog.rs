//! Ends a run in which a case hangs, with a line that names the case.
//!
//! For the runner, and tests with a `main` of their own. Built on the standard library. A thread cannot be ended from outside, so the process is.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// While it is there, the time runs.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Ends the process with the name of `what` unless this is dropped within `limit`.
    pub fn new(what: String, limit: Duration) -> Watchdog {
        let (alive, dropped) = mpsc::channel::<()>();
        thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("\n{what} hangs: not done after {} s; the run is ended", limit.as_secs());
                std::process::abort();
            }
        });
        Watchdog { _alive: alive }
    }
}
