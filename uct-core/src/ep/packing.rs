//! The closure that packs a message, on its way through the transport, and how it may fail.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{ptr, slice};
use ucs::sync::fixed::{AtomicBool, Ordering};

use ucs::{Error, Result};
use uct_abi::{UCT_IFACE_ATTR_PACK_NONE, UCT_PACK_NONE};

use crate::attr::IfaceAttr;

/// A pack closure that is passed through the transport.
pub(super) struct Packing<F> {
    pack: Option<F>,
    /// Bytes of the transport's buffer.
    capacity: usize,
}

/// Whether a plugin is in use that does not know [`UCT_PACK_NONE`]. A closure that fails does not know its endpoint, since all others
/// would pay for that, so this is for the whole process.
static HAS_OLD_PLUGIN: AtomicBool = AtomicBool::new(false);

/// Notes what the plugin of an interface knows. Ahead of its first endpoint.
pub(crate) fn note(attributes: &IfaceAttr) {
    if attributes.flags & UCT_IFACE_ATTR_PACK_NONE == 0 {
        HAS_OLD_PLUGIN.store(true, Ordering::Relaxed);
    }
}

/// Why a closure has no message.
enum Failure {
    Panic(Box<dyn Any + Send>),
    /// It returned so many bytes for a buffer of so many.
    TooLong(usize, usize),
}

thread_local! {
    /// The failure of a pack closure, on its way around the transport's frames. Not a part of the packing: most closures do not
    /// fail, and so need not know where to.
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
}

impl<F: FnOnce(&mut [u8]) -> usize> Packing<F> {
    /// Has `call` pass the closure to the transport, and reports how it failed. `call` returns what was packed.
    #[inline]
    pub(super) fn run(
        pack: F,
        capacity: usize,
        call: impl FnOnce(*mut c_void) -> Result<usize>,
    ) -> Result<usize> {
        let answer = call(Packing::new(pack, capacity).argument());
        // As in `Ep::am_bcopy`.
        if !answer.is_ok_and(|length| length > 0) {
            end()?;
        }
        answer
    }

    #[inline]
    pub(super) fn new(pack: F, capacity: usize) -> Packing<F> {
        Packing { pack: Some(pack), capacity }
    }

    /// The argument of [`Packing::write`].
    #[inline]
    pub(super) fn argument(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }

    pub(super) unsafe extern "C" fn write(destination: *mut c_void, argument: *mut c_void) -> usize {
        // SAFETY: `argument` is what a transport is given with this function.
        let packing = unsafe { &mut *argument.cast::<Packing<F>>() };
        // What needs no drop may stay where it was.
        let pack = if needs_drop::<F>() {
            packing.pack.take()
        } else {
            // SAFETY: a transport packs once (`UctPack`), so this is the only one that is used.
            unsafe { ptr::read(&raw const packing.pack) }
        };
        // SAFETY: as above: it was there.
        let pack = unsafe { pack.unwrap_unchecked() };
        let capacity = packing.capacity;
        // SAFETY: the transport offers initialised memory of at least `max_bcopy` bytes (`UctPack`).
        let buffer = unsafe { slice::from_raw_parts_mut(destination.cast::<u8>(), capacity) };
        match catch_unwind(AssertUnwindSafe(|| pack(buffer))) {
            Ok(length) if length <= capacity => length,
            Ok(length) => fail(Failure::TooLong(length, capacity)),
            Err(panic) => fail(Failure::Panic(panic)),
        }
    }
}

/// Keeps a failure for [`end`]; returns what the transport is given in place of a length: [`UCT_PACK_NONE`], or an empty message
/// where a plugin does not know that.
#[cold]
#[inline(never)]
fn fail(failure: Failure) -> usize {
    FAILURE.set(Some(failure));
    if HAS_OLD_PLUGIN.load(Ordering::Relaxed) { 0 } else { UCT_PACK_NONE }
}

/// Reports the failure of a closure, if there was one: goes on with its panic.
#[cold]
#[inline(never)]
pub(super) fn end() -> Result {
    match FAILURE.take() {
        None => Ok(()),
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        Some(Failure::TooLong(length, capacity)) => {
            tracing::debug!(
                "INVALID_PARAM: a pack closure returned {length} bytes for a buffer of {capacity} (max_bcopy); nothing was sent"
            );
            Err(Error::INVALID_PARAM)
        }
    }
}
