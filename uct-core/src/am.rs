//! Active messages on the receiving side: ids, handlers, and messages that are kept.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::offset_of;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use ucs::log::Limited;
use uct_abi::{
    UCT_AM_DESC, UCT_AM_IDS, UCT_INPROGRESS, UCT_OK, UctAmCallback, UctAmRunCallback, UctAmTable, UctStatus,
};

use crate::iface::IfaceInner;
use crate::stats::{Count, Counter};
use crate::worker::WorkerInner;

/// The number of a kind of active message: 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct AmId(u8);

impl AmId {
    /// How many ids there are.
    pub const COUNT: usize = UCT_AM_IDS;

    /// The id of a number; `None` from 32 on.
    pub const fn new(id: u8) -> Option<AmId> {
        if (id as usize) < UCT_AM_IDS { Some(AmId(id)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A received message, as its handler sees it: `&[u8]` of all that was sent, the 8-byte header of a short one included.
///
/// The data are the transport's and gone when the handler returns, unless it keeps the message.
pub struct AmMessage<'a> {
    data: NonNull<u8>,
    length: usize,
    flags: u32,
    iface: &'a IfaceInner,
    kept: &'a Cell<bool>,
}

impl<'a> AmMessage<'a> {
    /// The first 8 bytes as the header of a short message; `None` if there are fewer.
    #[inline]
    pub fn header(&self) -> Option<u64> {
        self.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// What follows the header of a short message; empty if there is none.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.get(size_of::<u64>()..).unwrap_or(&[])
    }

    /// Keeps the message beyond the handler. Where the transport can, the data stay where they are, else they are
    /// copied: either way they are writable, with [`crate::IfaceOptions::rx_headroom`] bytes ahead of them.
    pub fn keep(self) -> KeptMessage {
        let headroom = self.iface.rx_headroom;
        let place = if self.flags & UCT_AM_DESC != 0 {
            self.kept.set(true);
            Place::Descriptor { iface: self.iface.share(), data: self.data }
        } else {
            let mut copy = vec![0; headroom];
            copy.extend_from_slice(&self);
            Place::Copy(copy)
        };
        KeptMessage { place, headroom, length: self.length }
    }
}

impl Deref for AmMessage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the transport delivers readable data that nobody writes until the handler returns (`UctAmCallback`).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.length) }
    }
}

impl fmt::Debug for AmMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmMessage").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A message that outlives its handler. Dropping it gives the transport its memory back; keeping many of them may
/// leave the transport without buffers, which its senders see as `NO_RESOURCE`.
pub struct KeptMessage {
    place: Place,
    headroom: usize,
    length: usize,
}

enum Place {
    Descriptor { iface: Rc<IfaceInner>, data: NonNull<u8> },
    Copy(Vec<u8>),
}

impl KeptMessage {
    /// Whether the data are still where the transport received them.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.place, Place::Descriptor { .. })
    }

    /// The bytes ahead of the data and the data, all writable.
    pub fn with_headroom(&mut self) -> (&mut [u8], &mut [u8]) {
        let (headroom, length) = (self.headroom, self.length);
        let whole = match &mut self.place {
            Place::Copy(copy) => copy.as_mut_slice(),
            Place::Descriptor { data, .. } => {
                // SAFETY: `rx_headroom` bytes ahead of the data are the keeper's (`UctAmCallback`).
                let start = unsafe { data.sub(headroom) };
                // SAFETY: headroom and data are the keeper's until they are released, and borrowed through `self`.
                unsafe { slice::from_raw_parts_mut(start.as_ptr(), headroom + length) }
            }
        };
        whole.split_at_mut(headroom)
    }
}

impl Deref for KeptMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Copy(copy) => &copy[self.headroom..],
            // SAFETY: the data are the keeper's until they are released.
            Place::Descriptor { data, .. } => unsafe { slice::from_raw_parts(data.as_ptr(), self.length) },
        }
    }
}

impl Drop for KeptMessage {
    fn drop(&mut self) {
        if let Place::Descriptor { iface, data } = &self.place {
            if iface.worker.check_process().is_err() {
                // The place is the parent's, which gives it back itself.
                return;
            }
            IfaceInner::let_go(iface);
            let release = iface.ops.release.expect("the loader fills every slot");
            // SAFETY: the handler kept the data, and this is their only owner; the interface is open, since it is held.
            unsafe { release(iface.raw(), data.as_ptr().cast()) };
        }
    }
}

impl fmt::Debug for KeptMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptMessage").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A [`UctAmTable`], which host and transport both change, and behind it what the arguments of ids without a handler point to.
#[repr(C)]
pub(crate) struct AmTable {
    callbacks: [Cell<UctAmCallback>; UCT_AM_IDS],
    arguments: [Cell<*mut c_void>; UCT_AM_IDS],
    in_run: [Cell<UctAmRunCallback>; UCT_AM_IDS],
    running: Cell<u32>,
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
    fn new(log_rate: u32) -> Rc<AmTable> {
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
    fn clear(&self, id: AmId) {
        self.set(id, unhandled, unhandled_in_run, (&raw const self.unhandled).cast_mut().cast());
    }

    fn set(&self, id: AmId, callback: UctAmCallback, in_run: UctAmRunCallback, argument: *mut c_void) {
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

/// The handlers of an interface. Who takes one away sees to it that it is dropped no earlier than no transport is on the stack,
/// since it may be running.
pub(crate) struct HandlerTable {
    table: Rc<AmTable>,
    owned: RefCell<Vec<(AmId, Box<dyn Owned>)>>,
    /// What the handlers that were taken away had received.
    received: Cell<Count>,
}

/// What a handler is called with.
struct Handler<F> {
    received: Counter,
    /// The table it is in.
    table: NonNull<AmTable>,
    /// The interface that owns the handler.
    iface: NonNull<IfaceInner>,
    /// Its worker, at hand.
    worker: NonNull<WorkerInner>,
    function: F,
}

/// A handler of whatever type.
pub(crate) trait Owned {
    /// What it has received.
    fn received(&self) -> Count;
}

impl<F> Owned for Handler<F> {
    fn received(&self) -> Count {
        self.received.get()
    }
}

impl HandlerTable {
    /// A table without handlers, which warns of at most `log_rate` messages a second.
    pub(crate) fn new(log_rate: u32) -> HandlerTable {
        HandlerTable { table: AmTable::new(log_rate), owned: RefCell::default(), received: Cell::default() }
    }

    /// The table as the transport has it.
    pub(crate) fn as_ptr(&self) -> *mut UctAmTable {
        Rc::as_ptr(&self.table).cast_mut().cast()
    }

    /// The table, for the worker, which asks whether a handler runs.
    pub(crate) fn table(&self) -> Rc<AmTable> {
        Rc::clone(&self.table)
    }

    /// Installs a handler; answers the one that it replaces, to be dropped once that does not run.
    pub(crate) fn set<F>(&self, iface: &IfaceInner, id: AmId, function: F) -> Option<Box<dyn Owned>>
    where
        F: Fn(AmMessage<'_>) + 'static,
    {
        let handler = Box::new(Handler {
            received: Counter::default(),
            table: NonNull::from(&*self.table),
            iface: NonNull::from(iface),
            worker: NonNull::from(&*iface.worker),
            function,
        });
        let argument = (&raw const *handler).cast_mut().cast();
        self.table.set(id, deliver::<F>, deliver_in_run::<F>, argument);
        let replaced = self.take_one(id);
        self.owned.borrow_mut().push((id, handler));
        replaced
    }

    /// Takes the handler of an id, which the table has no more. What it has received stays counted.
    fn take_one(&self, id: AmId) -> Option<Box<dyn Owned>> {
        let mut owned = self.owned.borrow_mut();
        let index = owned.iter().position(|(of, _)| *of == id)?;
        let (_, handler) = owned.swap_remove(index);
        self.received.set(self.received.get() + handler.received());
        Some(handler)
    }

    /// Takes the handlers, and shares the table, which a transport reads until it is closed.
    pub(crate) fn take(&mut self) -> HandlerTable {
        let owned = RefCell::new(self.owned.take());
        HandlerTable { table: self.table(), owned, received: self.received.clone() }
    }

    /// Removes all handlers; answers what is to be dropped once none of them runs.
    pub(crate) fn clear_all(&self) -> Vec<Box<dyn Owned>> {
        (0..UCT_AM_IDS as u8).filter_map(|id| self.clear(AmId(id))).collect()
    }

    /// What all handlers have received.
    pub(crate) fn received(&self) -> Count {
        let owned = self.owned.borrow();
        owned.iter().fold(self.received.get(), |sum, (_, handler)| sum + handler.received())
    }

    /// Removes a handler, as [`HandlerTable::set`] does: messages of its id are dropped from now on.
    pub(crate) fn clear(&self, id: AmId) -> Option<Box<dyn Owned>> {
        self.table.clear(id);
        self.take_one(id)
    }
}

impl<F: Fn(AmMessage<'_>)> Handler<F> {
    /// Calls the application. `running` of the table is counted up meanwhile: the transport is on the stack.
    #[inline(always)]
    fn call(&self, data: *mut c_void, length: usize, flags: u32) -> UctStatus {
        self.received.add(length);
        let kept = Cell::new(false);
        // SAFETY: the interface owns the handler, and is not closed while a handler runs (`WorkerInner::close`).
        let iface = unsafe { self.iface.as_ref() };
        let data = NonNull::new(data.cast::<u8>()).unwrap_or(NonNull::dangling());
        let message = AmMessage { data, length, flags, iface, kept: &kept };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.function)(message))) {
            // SAFETY: the interface holds its worker, and so does what is left of an interface that the handler has dropped.
            unsafe { self.worker.as_ref() }.keep_panic(panic);
        }
        if kept.get() { UCT_INPROGRESS } else { UCT_OK }
    }
}

/// One of [`UctAmTable::callbacks`].
unsafe extern "C" fn deliver<F: Fn(AmMessage<'_>) + 'static>(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the handler lives until its interface is closed (`HandlerTable`), which is not while it runs.
    let handler = unsafe { &*argument.cast::<Handler<F>>() };
    // SAFETY: as the handler itself.
    let running = unsafe { &handler.table.as_ref().running };
    running.set(running.get() + 1);
    let status = handler.call(data, length, flags);
    running.set(running.get() - 1);
    status
}

/// One of [`UctAmTable::in_run`]: the transport counts.
unsafe extern "C" fn deliver_in_run<F: Fn(AmMessage<'_>) + 'static>(
    argument: *mut c_void,
    data: *const c_void,
    length: usize,
) {
    // SAFETY: as in `deliver`.
    let handler = unsafe { &*argument.cast::<Handler<F>>() };
    // Without the descriptor flag the data are only read.
    handler.call(data.cast_mut(), length, 0);
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
