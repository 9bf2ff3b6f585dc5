//! The report of a process, as bytes over its socket.
//!
//! For `group`, which asks, and `process`, which answers. Built on the clock of the system.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Questions that were answered, to all peers together.
    pub answered: u64,
    /// The same for the peer, of those that are alive, with the fewest.
    pub least_answered: u64,
    /// And for the one in the middle.
    pub median_answered: u64,
    /// Kilobytes in use before there was any peer, pages of files not counted.
    pub memory_alone: u64,
    /// Kilobytes in use now.
    pub memory: u64,
    /// The same, of a page that several processes map only a part.
    pub share: u64,
    /// How often an error handler was called.
    pub failures: u64,
    /// The peer that the first failure was about.
    pub failed: u64,
    /// When the first was told of, as [`now`] says it.
    pub failed_at: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// How often it slept.
    pub sleeps: u64,
}

impl Report {
    /// As bytes.
    pub fn pack(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers can be written")
    }

    /// From bytes.
    pub fn unpack(bytes: &[u8]) -> Result<Report, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("a report of {} bytes: {error}", bytes.len()))
    }
}

/// Nanoseconds on a clock that all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The value in the middle; 0 of none.
pub fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
