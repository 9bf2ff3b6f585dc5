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
