//! The table of handlers that host and transport share.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::rc::Rc;

use ucs::log::Limited;
use uct_abi::{UCT_AM_IDS, UCT_OK, UctAmCallback, UctAmRunCallback, UctAmTable, UctStatus};

use super::AmId;

/// A [`UctAmTable`], which host and transport both change, and behind it what the arguments of ids without a handler point to.
#[repr(C)]
pub(crate) struct AmTable {
    callbacks: [Cell<UctAmCallback>; UCT_AM_IDS],
    arguments: [Cell<*mut c_void>; UCT_AM_IDS],
    in_run: [Cell<UctAmRunCallback>; UCT_AM_IDS],
    pub(super) running: Cell<u32>,
    /// Limits the warnings of messages without a handler: their number is up to the peers.
    unhandled: Limited,
}

const _: () = assert!(
    offset_of!(AmTable, unhandled) >= size_of::<UctAmTable>()
        && offset_of!(AmTable, arguments) == offset_of!(UctAmTable, arguments)
        && offset_of!(AmTable, in_run) == offset_of!(UctAmTable, in_run)
        && offset_of!(AmTable, running) == offset_of!(UctAmTable, running)
);

impl AmTable {
    pub(super) fn new(log_rate: u32) -> Rc<AmTable> {
        let table = Rc::new(AmTable {
            callbacks: [unhandled as UctAmCallback; UCT_AM_IDS].map(Cell::new),
            arguments: [std::ptr::null_mut(); UCT_AM_IDS].map(Cell::new),
            in_run: [unhandled_in_run as UctAmRunCallback; UCT_AM_IDS].map(Cell::new),
            running: Cell::new(0),
            unhandled: Limited::new(log_rate),
        });
        (0..UCT_AM_IDS as u8).for_each(|id| table.clear(AmId(id)));
        table
    }

    /// Drops messages of an id from now on.
    pub(super) fn clear(&self, id: AmId) {
        self.set(id, unhandled, unhandled_in_run, (&raw const self.unhandled).cast_mut().cast());
    }

    pub(super) fn set(
        &self,
        id: AmId,
        callback: UctAmCallback,
        in_run: UctAmRunCallback,
        argument: *mut c_void,
    ) {
        let index = usize::from(id.get());
        self.callbacks[index].set(callback);
        self.in_run[index].set(in_run);
        self.arguments[index].set(argument);
    }

    /// Whether a handler runs, or a transport is in the midst of a run of messages.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get() > 0
    }
}

/// One of [`UctAmTable::callbacks`].
unsafe extern "C" fn unhandled(
    argument: *mut c_void,
    _data: *mut c_void,
    length: usize,
    _flags: u32,
) -> UctStatus {
    // SAFETY: `AmTable::clear` set the argument together with this callback.
    unsafe { warn_of_unhandled(argument, length) };
    UCT_OK
}

/// One of [`UctAmTable::in_run`].
unsafe extern "C" fn unhandled_in_run(argument: *mut c_void, _data: *const c_void, length: usize) {
    // SAFETY: as in `unhandled`.
    unsafe { warn_of_unhandled(argument, length) };
}

/// # Safety
/// The argument is the one that [`AmTable::clear`] sets, and the table is there.
unsafe fn warn_of_unhandled(argument: *mut c_void, length: usize) {
    // SAFETY: the caller's promise; the host shares the limit with nobody but this thread, and only reads it.
    let limited = unsafe { &*argument.cast::<Limited>() };
    if let Some(left_out) = limited.admit() {
        tracing::warn!(
            length,
            "an active message arrived for an id without a handler and was dropped{left_out}"
        );
    }
}
