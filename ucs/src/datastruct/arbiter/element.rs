//! The header of one piece of queued work.
//!
//! For whatever waits in a group, a pending request above all. No dependencies. The group links its elements.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::ArbiterGroup;

/// The part of a piece of work by which a group holds it: two words, to be embedded.
///
/// All bytes zero is a valid element that is not queued. The pointer given to a push comes back in the callback as it
/// was, so a pointer that may be used for the whole piece of work stays one.
#[repr(C)]
pub struct ArbiterElement {
    /// The element behind it; the last one points to the first. Null if not queued.
    pub(super) next: Cell<*const ArbiterElement>,
    /// The group that holds it; null if not queued.
    pub(super) group: Cell<*const ArbiterGroup>,
}

// It must fit the bytes that a pending request leaves to its transport, with room for the transport's own.
const _: () = assert!(size_of::<ArbiterElement>() <= 24 && align_of::<ArbiterElement>() <= 8);

impl ArbiterElement {
    /// An element that is not queued.
    pub const fn new() -> ArbiterElement {
        ArbiterElement { next: Cell::new(ptr::null()), group: Cell::new(ptr::null()) }
    }

    /// Whether a group holds it. Not while it is being dispatched or purged.
    #[inline]
    pub fn is_queued(&self) -> bool {
        !self.group.get().is_null()
    }

    /// The group that holds it.
    #[inline]
    pub fn group(&self) -> Option<NonNull<ArbiterGroup>> {
        NonNull::new(self.group.get().cast_mut())
    }

    /// Forgets that it was queued.
    #[inline]
    pub(super) fn reset(&self) {
        self.next.set(ptr::null());
        self.group.set(ptr::null());
    }
}

impl Default for ArbiterElement {
    fn default() -> ArbiterElement {
        ArbiterElement::new()
    }
}
