//! Handlers of a binding to C, which get a message as a pointer.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;

use uct_abi::{UCT_AM_DESC, UCT_AM_SHARED, UCT_INPROGRESS, UCT_OK, UctStatus};

use super::AmId;
use super::handlers::{Entry, Owned};
use super::message::AmMessage;
use crate::iface::{Iface, IfaceInner};
use crate::stats::{Count, Counter};
use crate::worker::WorkerInner;

/// What such a handler is called with.
struct Handler<F> {
    received: Counter,
    id: AmId,
    /// The interface that owns the handler.
    iface: NonNull<IfaceInner>,
    /// Its worker, cached.
    worker: NonNull<WorkerInner>,
    function: F,
}

impl<F> Owned for Handler<F> {
    fn received(&self) -> Count {
        self.received.get()
    }
}

/// Sets a handler as [`Iface::set_am_handler`] does, which is called with the data of a message, their length, and whether it may keep them. Data
/// that the peer can write are copied first. It returns whether it keeps the data: then they, and
/// [`crate::IfaceOptions::rx_headroom`] bytes ahead of them, are its own until [`crate::raw::release`]. It does not panic.
pub fn set_raw_am_handler(
    iface: &Iface,
    id: AmId,
    function: impl Fn(*mut c_void, usize, bool) -> bool + 'static,
) {
    let inner = &*iface.inner;
    let handler = Box::new(Handler {
        received: Counter::default(),
        id,
        iface: NonNull::from(inner),
        worker: NonNull::from(&*inner.worker),
        function,
    });
    let entry = Entry::raw(&handler);
    // SAFETY: the functions of the entry are called with the handler that goes with it.
    let replaced = unsafe { inner.handlers.set(id, entry, handler) };
    inner.drop_handlers(replaced);
}

impl Entry {
    fn raw<F: Fn(*mut c_void, usize, bool) -> bool + 'static>(handler: &Handler<F>) -> Entry {
        Entry { callback: deliver::<F>, argument: (&raw const *handler).cast_mut().cast() }
    }
}

/// One of [`uct_abi::UctAmTable::callbacks`].
unsafe extern "C" fn deliver<F: Fn(*mut c_void, usize, bool) -> bool + 'static>(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the handler lives until its interface is closed (`HandlerTable`), which is not while it runs.
    let handler = unsafe { &*argument.cast::<Handler<F>>() };
    handler.received.add(length);
    if flags & UCT_AM_SHARED != 0 {
        return deliver_copy(handler, data, length, flags);
    }
    let may_keep = flags & UCT_AM_DESC != 0;
    // SAFETY: the interface holds its worker, and so does what is left of an interface that the handler has closed.
    let worker = unsafe { handler.worker.as_ref() };
    let keeps = worker.call_binding(|| (handler.function)(data, length, may_keep));
    if keeps && may_keep { UCT_INPROGRESS } else { UCT_OK }
}

/// As [`deliver`], for data that the peer can write.
#[cold]
#[inline(never)]
fn deliver_copy<F: Fn(*mut c_void, usize, bool) -> bool + 'static>(
    handler: &Handler<F>,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the interface owns the handler, and is not closed while a handler runs (`WorkerInner::close`).
    let iface = unsafe { handler.iface.as_ref() };
    let data = NonNull::new(data.cast::<u8>()).unwrap_or(NonNull::dangling());
    let kept = Cell::new(false);
    let message = AmMessage::new(handler.id, data, length, flags, iface, &kept);
    let copy = message.as_ptr().cast_mut().cast();
    iface.worker.call_binding(|| (handler.function)(copy, length, false));
    UCT_OK
}
