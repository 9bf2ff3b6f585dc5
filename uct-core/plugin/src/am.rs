//! The way of a received message to the application: one indirect call through the host's handler table.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;

use uct_abi::{UCT_AM_DESC, UCT_AM_IDS, UCT_AM_SHARED, UCT_INPROGRESS, UctAmCallback, UctAmTable};

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
pub struct AmHandlers(NonNull<UctAmTable>);

impl AmHandlers {
    /// Of the host's table; `None` if it is null. For the tables of [`crate::define_plugin!`], and for tests of a transport.
    ///
    /// # Safety
    /// `table` stays valid as long as the value is used, and is used by this thread alone, which the host promises for
    /// the life of an interface (`UctIfaceParams`).
    pub unsafe fn new(table: *mut UctAmTable) -> Option<AmHandlers> {
        NonNull::new(table).map(AmHandlers)
    }

    /// Delivers `length` bytes at `data`, which the handler may not keep.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes and not written until the call returns.
    #[inline(always)]
    pub unsafe fn deliver(&self, id: u8, data: *const u8, length: usize) {
        // SAFETY: the caller's promise; without the descriptor flag the data are only read.
        unsafe { self.call(id, data.cast_mut(), length, 0) };
    }

    /// Delivers `length` bytes at `data` to which another process can write at any time: the host copies what is read of them.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes until the call returns.
    #[inline]
    pub unsafe fn deliver_shared(&self, id: u8, data: *const u8, length: usize) {
        // SAFETY: the caller's promise; the flag states what else may happen to the data.
        unsafe { self.call(id, data.cast_mut(), length, UCT_AM_SHARED) };
    }

    /// Delivers `length` bytes at `data`, which the handler may keep.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes, preceded by `rx_headroom` writable bytes, and nothing but the handler
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

    /// The place of a callback, for any number: those that have come by a wire may be wrong.
    #[inline(always)]
    fn entry(&self, id: u8) -> NonNull<UctAmCallback> {
        // SAFETY: the table begins with UCT_AM_IDS callbacks, and this is one of them.
        unsafe { self.0.cast::<UctAmCallback>().add(usize::from(id) % UCT_AM_IDS) }
    }
}

/// Delivers consecutive messages, most of which have the same id.
///
/// The handler of the previous message is used as long as the id is the same. The processor predicts that comparison, so it starts
/// on later messages before the cache line with this one's id has arrived.
pub struct AmRun {
    handlers: AmHandlers,
    id: u8,
    entry: NonNull<UctAmCallback>,
}

impl AmRun {
    /// A run whose first message probably has this id.
    #[inline]
    pub fn new(handlers: AmHandlers, id: u8) -> AmRun {
        AmRun { handlers, id, entry: handlers.entry(id) }
    }

    /// As [`AmHandlers::deliver`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn deliver(&mut self, id: u8, data: *const u8, length: usize) {
        if id != self.id {
            self.change(id);
        }
        // SAFETY: the caller's promise, and the entry is one of the table's; without the descriptor flag the data are only read.
        unsafe { call(self.entry, data.cast_mut(), length, 0) };
    }

    /// The next message has another id. A call, so that the compiler does not use a conditional move, which waits for the id.
    #[cold]
    #[inline(never)]
    fn change(&mut self, id: u8) {
        (self.id, self.entry) = (id, self.handlers.entry(id));
    }

    /// The id of the last message.
    pub fn id(&self) -> u8 {
        self.id
    }
}

const _: () =
    assert!(offset_of!(UctAmTable, callbacks) == 0 && size_of::<UctAmCallback>() == size_of::<*mut c_void>());

/// Where the argument lies that goes with a callback.
///
/// # Safety
/// The entry is one of `callbacks` of the host's table.
#[inline(always)]
unsafe fn argument_of(entry: NonNull<UctAmCallback>) -> NonNull<*mut c_void> {
    // SAFETY: the lists are as long as each other, with entries of one size.
    unsafe { entry.byte_add(offset_of!(UctAmTable, arguments)) }.cast()
}

/// Calls a handler.
///
/// # Safety
/// The entry is one of `callbacks` of the host's table; data and flags as for [`AmHandlers::deliver`] or
/// [`AmHandlers::deliver_desc`].
#[inline(always)]
unsafe fn call(entry: NonNull<UctAmCallback>, data: *mut u8, length: usize, flags: u32) -> i32 {
    // SAFETY: the caller's promise.
    let argument = unsafe { argument_of(entry) };
    // SAFETY: the host keeps every argument valid and changes it only between calls (`UctAmTable`).
    let argument = unsafe { argument.read() };
    // SAFETY: as the argument.
    let callback = unsafe { entry.read() };
    // SAFETY: the callback goes with its argument (`UctAmTable`); the data are as the caller promised.
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

    fn argument(sum: &Cell<usize>) -> *mut c_void {
        std::ptr::from_ref(sum).cast_mut().cast()
    }

    #[test]
    fn a_run_calls_the_handler_that_each_id_has_by_then() {
        let sums = [const { Cell::new(0usize) }; UCT_AM_IDS + 1];
        let mut table = UctAmTable {
            callbacks: [add; UCT_AM_IDS],
            arguments: std::array::from_fn(|id| argument(&sums[id])),
        };
        let table = &raw mut table;
        // SAFETY: the table outlives the run.
        let handlers = unsafe { AmHandlers::new(table) }.expect("a table");
        let mut run = AmRun::new(handlers, 3);
        for (id, length) in [(5, 1), (5, 2), (31, 4), (5, 8)] {
            // SAFETY: as many bytes are readable.
            unsafe { run.deliver(id, [0; 8].as_ptr(), length) };
            assert_eq!(run.id(), id);
        }
        assert_eq!((sums[3].get(), sums[5].get(), sums[31].get()), (0, 11, 4));
        // SAFETY: the table is this test's, and nobody reads it meanwhile.
        unsafe { (*table).arguments[5] = argument(&sums[UCT_AM_IDS]) };
        // SAFETY: as many bytes are readable.
        unsafe { run.deliver(5, [0; 8].as_ptr(), 7) };
        assert_eq!((sums[5].get(), sums[UCT_AM_IDS].get()), (11, 7), "its handler was replaced");
    }
}
