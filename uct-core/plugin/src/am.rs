//! The way of a received message to the application: one indirect call through the host's handler table.

use std::ffi::c_void;
use std::ptr::NonNull;

use uct_abi::{UCT_AM_DESC, UCT_AM_IDS, UCT_INPROGRESS, UctAmHandler};

/// What the handler did with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is done with them.
    Consumed,
    /// It keeps them until it calls [`crate::Iface::release`] with the same pointer.
    Kept,
}

/// The handler table of an interface.
#[derive(Clone, Copy)]
pub struct AmHandlers(NonNull<UctAmHandler>);

impl AmHandlers {
    /// # Safety
    /// `table` has [`UCT_AM_IDS`] entries that stay valid as long as the value is used, which the host promises for
    /// the life of an interface (`UctIfaceParams`).
    pub(crate) unsafe fn new(table: *const UctAmHandler) -> Option<AmHandlers> {
        NonNull::new(table.cast_mut()).map(AmHandlers)
    }

    /// Delivers `length` bytes at `data`, which the handler may not keep.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes and written by nobody until the call returns.
    #[inline(always)]
    pub unsafe fn deliver(&self, id: u8, data: *const u8, length: usize) {
        // SAFETY: the caller's promise; without the descriptor flag the data are only read.
        unsafe { self.call(id, data.cast_mut(), length, 0) };
    }

    /// Delivers `length` bytes at `data`, which the handler may keep.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes, preceded by `rx_headroom` writable bytes, and nobody but the handler
    /// touches either until the call returns [`Disposition::Consumed`], or until the data are released.
    #[inline(always)]
    pub unsafe fn deliver_desc(&self, id: u8, data: *mut u8, length: usize) -> Disposition {
        // SAFETY: the caller's promise.
        if unsafe { self.call(id, data, length, UCT_AM_DESC) } == UCT_INPROGRESS {
            Disposition::Kept
        } else {
            Disposition::Consumed
        }
    }

    #[inline(always)]
    unsafe fn call(&self, id: u8, data: *mut u8, length: usize, flags: u32) -> i32 {
        // SAFETY: the caller's promise, and the entry is one of the table's.
        unsafe { call(self.entry(id), data, length, flags) }
    }

    #[inline(always)]
    fn entry(&self, id: u8) -> NonNull<UctAmHandler> {
        const ENTRY: usize = size_of::<UctAmHandler>();
        let offset = usize::from(id) * ENTRY % (UCT_AM_IDS * ENTRY);
        // SAFETY: the table has UCT_AM_IDS entries (`AmHandlers::new`), and the offset is that of one of them.
        unsafe { self.0.byte_add(offset) }
    }
}

/// Delivers messages that come one behind the other, most of which have the same id.
///
/// Whose handler is called does not depend on the message then, but on a comparison that the processor predicts: it goes on to
/// later messages while the line with this one's id is still on its way.
pub struct AmRun {
    handlers: AmHandlers,
    id: u8,
    entry: NonNull<UctAmHandler>,
}

impl AmRun {
    /// The first message probably has this id.
    #[inline(always)]
    pub fn new(handlers: AmHandlers, id: u8) -> AmRun {
        AmRun { handlers, id, entry: handlers.entry(id) }
    }

    /// The id of the last message; that of `new` if there was none.
    #[inline(always)]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// As [`AmHandlers::deliver`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn deliver(&mut self, id: u8, data: *const u8, length: usize) {
        if id != self.id {
            (self.id, self.entry) = (id, other(self.handlers, id));
        }
        // SAFETY: the caller's promise, and the entry is one of the table's; without the descriptor flag the data are only read.
        unsafe { call(self.entry, data.cast_mut(), length, 0) };
    }
}

/// A call, so that the compiler does not make an instruction of it that waits for the id.
#[cold]
#[inline(never)]
fn other(handlers: AmHandlers, id: u8) -> NonNull<UctAmHandler> {
    handlers.entry(id)
}

/// # Safety
/// The entry is one of the host's table; data and flags as for [`AmHandlers::deliver`] or [`AmHandlers::deliver_desc`].
#[inline(always)]
unsafe fn call(entry: NonNull<UctAmHandler>, data: *mut u8, length: usize, flags: u32) -> i32 {
    // SAFETY: the host keeps every entry valid and changes it only between calls (`UctAmHandler`).
    let UctAmHandler { callback, argument } = unsafe { entry.read() };
    // SAFETY: the callback goes with its argument (`UctAmHandler`); the data are as the caller promised.
    unsafe { callback(argument, data.cast::<c_void>(), length, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Adds the length to the argument.
    unsafe extern "C" fn add(argument: *mut c_void, _: *mut c_void, length: usize, _: u32) -> i32 {
        // SAFETY: the table below has cells that outlive the messages.
        let sum = unsafe { &*argument.cast::<Cell<usize>>() };
        sum.set(sum.get() + length);
        0
    }

    #[test]
    fn a_run_calls_the_handler_that_each_id_has_by_then() {
        let sums = [const { Cell::new(0usize) }; UCT_AM_IDS + 1];
        let entry = |sum: &Cell<usize>| UctAmHandler {
            callback: add,
            argument: std::ptr::from_ref(sum).cast_mut().cast(),
        };
        let mut table: Vec<UctAmHandler> = sums[..UCT_AM_IDS].iter().map(entry).collect();
        let table = table.as_mut_ptr();
        // SAFETY: the table is as long as it has to be, and outlives the run.
        let handlers = unsafe { AmHandlers::new(table) }.expect("a table");
        let mut run = AmRun::new(handlers, 3);
        for (id, length) in [(5, 1), (5, 2), (31, 4), (5, 8)] {
            // SAFETY: as many bytes are readable.
            unsafe { run.deliver(id, [0; 8].as_ptr(), length) };
        }
        assert_eq!((run.id(), sums[3].get(), sums[5].get(), sums[31].get()), (5, 0, 11, 4));
        // SAFETY: the entry is one of the table's.
        let fifth = unsafe { table.add(5) };
        // SAFETY: as above, and nobody reads it meanwhile.
        unsafe { fifth.write(entry(&sums[UCT_AM_IDS])) };
        // SAFETY: as many bytes are readable.
        unsafe { run.deliver(5, [0; 8].as_ptr(), 7) };
        assert_eq!((sums[5].get(), sums[UCT_AM_IDS].get()), (11, 7), "its handler was replaced");
    }
}
