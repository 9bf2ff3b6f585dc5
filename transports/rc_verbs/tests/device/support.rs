//! Connected endpoints on whatever devices there are.

use std::sync::MutexGuard;

use uct_core::{Error, Worker};

#[path = "../../../ib/testing/endpoints.rs"]
mod endpoints;
pub use endpoints::*;

pub const TRANSPORT: &str = "rc_verbs";

/// As [`endpoints::devices`]; from the first call on a panic of the plugin ends the program.
pub fn devices() -> Option<(MutexGuard<'static, ()>, Vec<String>)> {
    crate::panics::end_the_program();
    endpoints::devices()
}

/// As [`devices`], for what needs two whose packets cross.
pub fn pair() -> Option<(MutexGuard<'static, ()>, Vec<String>)> {
    let found = devices()?;
    if found.1.len() < 2 {
        eprintln!("SKIPPED: it needs two devices that are connected by a cable");
        return None;
    }
    Some(found)
}

impl Link {
    /// Sends a message, with progress while there is no room.
    pub fn send(&self, worker: &Worker) -> Result<(), Error> {
        self.send_with(|| {
            worker.progress();
        })
    }

    /// As [`Link::send`], with progress of whatever kind.
    pub fn send_with(&self, progress: impl Fn()) -> Result<(), Error> {
        patiently(progress, || self.ep.am_short(ID, 0, b"message"))
    }
}

/// Moves both sides on until `done`; panics if that takes too long.
#[track_caller]
pub fn until(left: &Side, right: &Side, what: &str, done: impl FnMut() -> bool) {
    endpoints::until(&[left, right], what, done);
}

/// A counter of the transport.
#[track_caller]
pub fn counter(side: &Side, name: &str) -> u64 {
    let counters = side.iface.transport_counters();
    counters.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no counter {name}")).1
}
