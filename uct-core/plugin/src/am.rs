//! The way of a received message to the application: one indirect call through the host's handler table.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;

use uct_abi::{
    UCT_AM_DESC, UCT_AM_IDS, UCT_AM_SHARED, UCT_INPROGRESS, UctAmCallback, UctAmRunCallback, UctAmTable,
};

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
    /// Of the host's table; `None` if it is null. For the tables of [`crate::export_plugin!`], and for tests of a transport.
    ///
    /// # Safety
    /// `table` stays valid as long as the value is used, and is used by this thread alone, which the host promises for
    /// the life of an interface (`UctIfaceParams`).
    pub unsafe fn new(table: *mut UctAmTable) -> Option<AmHandlers> {
        NonNull::new(table).map(AmHandlers)
    }

    /// Whether a handler of the interface is running.
    #[inline]
    pub fn is_running(&self) -> bool {
        // SAFETY: the table is valid (`AmHandlers::new`).
        let running = unsafe { running_of(self.0) };
        // SAFETY: this thread alone changes it (`AmHandlers::new`).
        unsafe { running.read() > 0 }
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

    /// Delivers `length` bytes at `data` to which another process can write at any time: the host copies what is read of them.
    ///
    /// # Safety
    /// `data` is readable for `length` bytes until the call returns.
    #[inline]
    pub unsafe fn deliver_shared(&self, id: u8, data: *const u8, length: usize) {
        // SAFETY: the caller's promise; the flag says what else may happen to the data.
        unsafe { self.call(id, data.cast_mut(), length, UCT_AM_SHARED) };
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

    /// The place of a callback, for any number: those that have come by a wire may be wrong.
    #[inline(always)]
    fn entry(&self, id: u8) -> NonNull<UctAmCallback> {
        // SAFETY: the table begins with UCT_AM_IDS callbacks, and this is one of them.
        unsafe { self.0.cast::<UctAmCallback>().add(usize::from(id) % UCT_AM_IDS) }
    }

    /// Changes how many handlers are running.
    #[inline(always)]
    fn count(&self, change: impl FnOnce(u32) -> u32) {
        // SAFETY: the table is valid (`AmHandlers::new`).
        let running = unsafe { running_of(self.0) };
        // SAFETY: whoever counts does it on this thread (`AmHandlers::new`).
        let count = unsafe { running.read() };
        // SAFETY: as above.
        unsafe { running.write(change(count)) };
    }
}

/// # Safety
/// The table is valid.
#[inline(always)]
unsafe fn running_of(table: NonNull<UctAmTable>) -> NonNull<u32> {
    // SAFETY: a field of it.
    unsafe { table.byte_add(offset_of!(UctAmTable, running)) }.cast()
}

/// Delivers messages that come one behind the other, most of which have the same id.
///
/// Whose handler is called does not depend on the message then, but on a comparison that the processor predicts: it goes on to
/// later messages while the line with this one's id is still on its way.
///
/// What is compared is a mark: the id, or another byte that a transport has at hand, of which those that are equal go with equal
/// ids.
///
/// From [`AmRun::new`] until it is dropped a handler counts as running, once for all of them.
pub struct AmRun {
    handlers: AmHandlers,
    mark: u8,
    entry: NonNull<UctAmCallback>,
}

impl AmRun {
    /// The first message probably has this id, and this mark.
    #[inline(always)]
    pub fn new(handlers: AmHandlers, id: u8, mark: u8) -> AmRun {
        handlers.count(|running| running + 1);
        AmRun { handlers, mark, entry: handlers.entry(id) }
    }

    /// As [`AmHandlers::deliver`]. The id is asked for if the mark is another than that of the message before.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn deliver(&mut self, mark: u8, id: impl FnOnce() -> u8, data: *const u8, length: usize) {
        if mark != self.mark {
            (self.mark, self.entry) = (mark, other(self.handlers, id()));
        }
        // SAFETY: the entry is one of the table's.
        let argument = unsafe { argument_of(self.entry) };
        // SAFETY: as in `call`.
        let argument = unsafe { argument.read() };
        // SAFETY: the lists are as long as each other, with entries of one size.
        let callback = unsafe { self.entry.byte_add(IN_RUN) }.cast::<UctAmRunCallback>();
        // SAFETY: as in `call`.
        let callback = unsafe { callback.read() };
        // SAFETY: the callback goes with its argument (`UctAmTable`); the data are as the caller promised.
        unsafe { callback(argument, data.cast(), length) };
    }
}

/// A call, so that the compiler does not make an instruction of it that waits for the id.
#[cold]
#[inline(never)]
fn other(handlers: AmHandlers, id: u8) -> NonNull<UctAmCallback> {
    handlers.entry(id)
}

impl Drop for AmRun {
    #[inline(always)]
    fn drop(&mut self) {
        self.handlers.count(|running| running - 1);
    }
}

/// From one of `callbacks` to that of the same id for a run, in bytes.
const IN_RUN: usize = offset_of!(UctAmTable, in_run);
const _: () = assert!(
    offset_of!(UctAmTable, callbacks) == 0
        && size_of::<UctAmCallback>() == size_of::<*mut c_void>()
        && size_of::<UctAmRunCallback>() == size_of::<*mut c_void>()
);

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
    unsafe extern "C" fn add_in_run(argument: *mut c_void, _: *const c_void, length: usize) {
        // SAFETY: the table below has cells that outlive the messages.
        let sum = unsafe { &*argument.cast::<Cell<usize>>() };
        sum.set(sum.get() + length);
    }

    unsafe extern "C" fn dropped(_: *mut c_void, _: *mut c_void, _: usize, _: u32) -> i32 {
        0
    }

    fn argument(sum: &Cell<usize>) -> *mut c_void {
        std::ptr::from_ref(sum).cast_mut().cast()
    }

    #[test]
    fn a_run_calls_the_handler_that_each_id_has_by_then() {
        let sums = [const { Cell::new(0usize) }; UCT_AM_IDS + 1];
        let mut table = UctAmTable {
            callbacks: [dropped; UCT_AM_IDS],
            arguments: std::array::from_fn(|id| argument(&sums[id])),
            in_run: [add_in_run; UCT_AM_IDS],
            running: 0,
        };
        let table = &raw mut table;
        // SAFETY: the table outlives the run.
        let handlers = unsafe { AmHandlers::new(table) }.expect("a table");
        let mut run = AmRun::new(handlers, 3, 103);
        // SAFETY: as above, and nobody writes it meanwhile; as below.
        assert_eq!(unsafe { (*table).running }, 1);
        for (id, length) in [(5, 1), (5, 2), (31, 4), (5, 8)] {
            // SAFETY: as many bytes are readable.
            unsafe { run.deliver(100 + id, || id, [0; 8].as_ptr(), length) };
        }
        assert_eq!((sums[3].get(), sums[5].get(), sums[31].get()), (0, 11, 4));
        // SAFETY: the table is this test's, and nobody reads it meanwhile.
        unsafe { (*table).arguments[5] = argument(&sums[UCT_AM_IDS]) };
        // SAFETY: as many bytes are readable.
        unsafe { run.deliver(105, || panic!("the mark is known"), [0; 8].as_ptr(), 7) };
        assert_eq!((sums[5].get(), sums[UCT_AM_IDS].get()), (11, 7), "its handler was replaced");
        drop(run);
        // SAFETY: as above.
        assert_eq!(unsafe { (*table).running }, 0);
    }
}
