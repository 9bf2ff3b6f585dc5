//! From the transport's call to the application's handler.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use uct_abi::{UCT_INPROGRESS, UCT_OK, UctStatus};

use super::AmId;
use super::handlers::{Entry, Owned};
use super::message::AmMessage;
use super::table::AmTable;
use crate::iface::{Iface, IfaceInner};
use crate::stats::{Count, Counter};
use crate::worker::WorkerInner;

impl Iface {
    /// Has `handler` called with every message of `id`, in place of the handler so far. It runs inside
    /// [`crate::Worker::progress`] (of `self`: inside the send) and may call anything, also send.
    pub fn set_am_handler(&self, id: AmId, handler: impl Fn(AmMessage<'_>) + 'static) {
        let table = &self.inner.handlers;
        let handler = Box::new(Handler {
            received: Counter::default(),
            table: NonNull::from(table.as_table()),
            iface: NonNull::from(&*self.inner),
            worker: NonNull::from(&*self.inner.worker),
            function: handler,
        });
        let entry = Entry::of(&handler);
        // SAFETY: the functions of the entry are called with the handler that goes with it.
        let replaced = unsafe { table.set(id, entry, handler) };
        self.inner.drop_handlers(replaced);
    }
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

impl Entry {
    fn of<F: Fn(AmMessage<'_>) + 'static>(handler: &Handler<F>) -> Entry {
        let argument = (&raw const *handler).cast_mut().cast();
        Entry { callback: deliver::<F>, in_run: deliver_in_run::<F>, argument }
    }
}

impl<F> Owned for Handler<F> {
    fn received(&self) -> Count {
        self.received.get()
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
        let message = AmMessage::new(data, length, flags, iface, &kept);
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
