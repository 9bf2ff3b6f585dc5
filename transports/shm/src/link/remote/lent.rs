//! A segment that a peer has lent, mapped here.
//!
//! Used by keys, which are bound to it, by channels, which receive it, and by the cache, which keeps it mapped. Built on mappings.

use ucs::sync::fixed::{AtomicBool, AtomicU64};

use crate::io::Mapping;

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

impl Lent {
    pub(crate) fn new(mapping: Mapping, is_writable: bool) -> Lent {
        Lent { mapping, is_writable, place: Place::default() }
    }
}
