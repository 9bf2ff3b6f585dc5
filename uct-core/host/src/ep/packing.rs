//! The closure that packs a message, as it is passed through the transport, and how it may fail.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{ptr, slice};

use ucs::{Error, Result};
use uct_abi::{UCT_IFACE_ATTR_PACK_NONE, UCT_PACK_NONE};

use crate::attr::IfaceAttr;

/// A pack closure that is passed through the transport.
pub(super) struct Packing<'a, F> {
    pack: Option<F>,
    buffer: &'a PackBuffer,
}

/// The buffer into which closures pack messages of one kind on one interface.
pub(super) struct PackBuffer {
    /// Its bytes.
    capacity: usize,
    /// What the transport gets in place of a length if there is no message: [`UCT_PACK_NONE`], or the length of an empty
    /// message where the plugin does not know that.
    no_message: usize,
}

impl PackBuffer {
    /// A buffer of so many bytes of an interface with these attributes.
    #[inline]
    pub(super) fn new(capacity: usize, attributes: &IfaceAttr) -> PackBuffer {
        let knows_none = attributes.flags & UCT_IFACE_ATTR_PACK_NONE != 0;
        PackBuffer { capacity, no_message: if knows_none { UCT_PACK_NONE } else { 0 } }
    }

    /// Its bytes: the length of the longest message.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

/// Why a closure has no message.
enum Failure {
    Panic(Box<dyn Any + Send>),
    /// It returned so many bytes for a buffer of so many.
    TooLong(usize, usize),
}

thread_local! {
    /// The failure of a pack closure, passed around the transport's frames. Not a part of the packing: most closures do not
    /// fail, and so need not know where to.
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
}

impl<F: FnOnce(&mut [u8]) -> usize> Packing<'_, F> {
    /// Has `call` pass the closure to the transport, and reports how it failed. `call` returns what was packed.
    #[inline]
    pub(super) fn run(
        pack: F,
        buffer: &PackBuffer,
        call: impl FnOnce(*mut c_void) -> Result<usize>,
    ) -> Result<usize> {
        let answer = call(Packing::new(pack, buffer).argument());
        // As in `Ep::am_bcopy`.
        if !answer.is_ok_and(|length| length > 0) {
            end()?;
        }
        answer
    }

    #[inline]
    pub(super) fn new(pack: F, buffer: &PackBuffer) -> Packing<'_, F> {
        Packing { pack: Some(pack), buffer }
    }

    /// The argument of [`Packing::write`].
    #[inline]
    pub(super) fn argument(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }

    pub(super) unsafe extern "C" fn write(destination: *mut c_void, argument: *mut c_void) -> usize {
        // SAFETY: `argument` is what a transport is given with this function.
        let packing = unsafe { &mut *argument.cast::<Packing<'_, F>>() };
        // What needs no drop may stay where it was.
        let pack = if needs_drop::<F>() {
            packing.pack.take()
        } else {
            // SAFETY: a transport packs once (`UctPack`), so this is the only one that is used.
            unsafe { ptr::read(&raw const packing.pack) }
        };
        // SAFETY: as above: it was there.
        let pack = unsafe { pack.unwrap_unchecked() };
        let PackBuffer { capacity, .. } = *packing.buffer;
        // SAFETY: the transport offers initialised memory of at least `max_bcopy` bytes (`UctPack`).
        let buffer = unsafe { slice::from_raw_parts_mut(destination.cast::<u8>(), capacity) };
        match catch_unwind(AssertUnwindSafe(|| pack(buffer))) {
            Ok(length) if length <= capacity => length,
            Ok(length) => packing.buffer.fail(Failure::TooLong(length, capacity)),
            Err(panic) => packing.buffer.fail(Failure::Panic(panic)),
        }
    }
}

impl PackBuffer {
    /// Keeps a failure for [`end`]. Returns what the transport gets in place of a length.
    #[cold]
    #[inline(never)]
    fn fail(&self, failure: Failure) -> usize {
        FAILURE.set(Some(failure));
        self.no_message
    }
}

/// Reports the failure of a closure, if there was one: resumes its panic.
#[cold]
#[inline(never)]
pub(super) fn end() -> Result {
    match FAILURE.take() {
        None => Ok(()),
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        Some(Failure::TooLong(length, capacity)) => {
            ucs::log::debug!(
                "INVALID_PARAM: a pack closure returned {length} bytes for a buffer of {capacity} (max_bcopy); nothing was sent"
            );
            Err(Error::INVALID_PARAM)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the transport gets of a closure, and its failure.
    fn packed<F: FnOnce(&mut [u8]) -> usize>(pack: F, buffer: &PackBuffer) -> (usize, Result) {
        let mut bytes = [0_u8; 4];
        let mut packing = Packing::new(pack, buffer);
        // SAFETY: the buffer has as many bytes as it says, and the argument is that of a closure which was not called yet.
        let length = unsafe { Packing::<F>::write(bytes.as_mut_ptr().cast(), packing.argument()) };
        (length, end())
    }

    #[test]
    fn a_plugin_that_cannot_send_nothing_changes_nothing_for_others() {
        let current = PackBuffer { capacity: 4, no_message: UCT_PACK_NONE };
        let old = PackBuffer { capacity: 4, no_message: 0 };
        for (buffer, nothing) in [(&current, UCT_PACK_NONE), (&old, 0), (&current, UCT_PACK_NONE)] {
            assert_eq!(packed(|bytes| bytes.len() + 1, buffer), (nothing, Err(Error::INVALID_PARAM)));
            assert_eq!(packed(|bytes| bytes.len(), buffer), (4, Ok(())));
        }
    }
}
