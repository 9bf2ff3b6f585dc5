//! A segment that a peer has lent, mapped here.
//!
//! Used by keys, which are bound to it, by channels, which receive it, and by the cache, which keeps it mapped. Built on mappings.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::memory::populate::map_present;
use ucs::sync::fixed::{AtomicBool, AtomicU64};

use crate::io::Mapping;

/// Bytes that are mapped at once, from one look at the clock to the next.
const PIECE: usize = 2 << 20;
/// How long one call maps pages at most, but for its last piece. Other peers are served afterwards.
const TURN: Duration = Duration::from_micros(500);
/// How long the first use of a key waits for its pages at most. The kernel maps the rest as it is accessed.
const PATIENCE: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) mapping: Mapping,
    pub(crate) is_writable: bool,
    /// For the cache, which alone accesses it.
    pub(super) place: Place,
}

/// What the cache knows of a segment. It lies in the segment, so that a key is bound without a search. Relaxed throughout: only the thread of
/// the interface accesses it.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// When a key was last bound to it, or when it has arrived, in nanoseconds.
    pub(super) used: AtomicU64,
    /// It is in the cache, and a key was bound to it. The limits apply.
    pub(super) is_kept: AtomicBool,
}

/// A segment whose pages are being mapped, a piece at a time.
#[derive(Debug)]
pub(crate) struct Populating {
    segment: Arc<Lent>,
    rest: Range<usize>,
    limit: Deadline,
}

impl Populating {
    pub(crate) fn new(segment: Arc<Lent>) -> Populating {
        let rest = 0..segment.mapping.length();
        Populating { segment, rest, limit: Deadline::after(PATIENCE) }
    }

    /// Maps further pages. Returns the segment when that is done, or has taken too long.
    pub(crate) fn advance(&mut self) -> Option<Arc<Lent>> {
        let turn = Deadline::after(TURN);
        while !self.rest.is_empty() && !self.limit.expired() {
            if turn.expired() {
                return None;
            }
            let length = self.rest.len().min(PIECE);
            // SAFETY: within the mapping.
            let start = unsafe { self.segment.mapping.base().add(self.rest.start) };
            self.rest.start += length;
            if let Err(error) = map_present(start, length) {
                ucs::log::debug!("memory of a peer is mapped as it is accessed: {error}");
                break;
            }
        }
        Some(Arc::clone(&self.segment))
    }
}

impl Lent {
    pub(crate) fn new(mapping: Mapping, is_writable: bool) -> Lent {
        Lent { mapping, is_writable, place: Place::default() }
    }
}
