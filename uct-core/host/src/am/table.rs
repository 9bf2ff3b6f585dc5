//! The handler table that the host fills and the transport reads.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::rc::Rc;

use ucs::log::Limited;
use uct_abi::{UCT_AM_IDS, UCT_OK, UctAmCallback, UctAmTable, UctStatus};

use super::AmId;

/// A [`UctAmTable`], followed by what the arguments of ids without a handler point to.
#[repr(C)]
pub(crate) struct AmTable {
    callbacks: [Cell<UctAmCallback>; UCT_AM_IDS],
    arguments: [Cell<*mut c_void>; UCT_AM_IDS],
    /// Limits the warnings of messages without a handler: their number is up to the peers.
    unhandled: Limited,
}

const _: () = assert!(
    offset_of!(AmTable, unhandled) >= size_of::<UctAmTable>()
        && offset_of!(AmTable, arguments) == offset_of!(UctAmTable, arguments)
);

impl AmTable {
    pub(super) fn new(log_rate: u32) -> Rc<AmTable> {
        let table = Rc::new(AmTable {
            callbacks: [unhandled as UctAmCallback; UCT_AM_IDS].map(Cell::new),
            arguments: [std::ptr::null_mut(); UCT_AM_IDS].map(Cell::new),
            unhandled: Limited::new(log_rate),
        });
        (0..UCT_AM_IDS as u8).for_each(|id| table.clear(AmId(id)));
        table
    }

    /// Drops messages of an id from now on.
    pub(super) fn clear(&self, id: AmId) {
        self.set(id, unhandled, (&raw const self.unhandled).cast_mut().cast());
    }

    pub(super) fn set(&self, id: AmId, callback: UctAmCallback, argument: *mut c_void) {
        let index = usize::from(id.get());
        self.callbacks[index].set(callback);
        self.arguments[index].set(argument);
    }
}

/// One of [`UctAmTable::callbacks`].
unsafe extern "C" fn unhandled(
    argument: *mut c_void,
    _data: *mut c_void,
    length: usize,
    _flags: u32,
) -> UctStatus {
    // SAFETY: `AmTable::clear` set the argument together with this callback, and the table outlives the transport's calls.
    let limited = unsafe { &*argument.cast::<Limited>() };
    if let Some(left_out) = limited.admit() {
        ucs::log::warn!(
            length,
            "an active message arrived for an id without a handler and was dropped{left_out}"
        );
    }
    UCT_OK
}
