//! From the transport's call to the application's handler.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use uct_abi::{UCT_INPROGRESS, UCT_OK, UctStatus};

use super::AmId;
use super::handlers::{Entry, Owned};
use super::message::AmMessage;
use super::placer::Placer;
use crate::iface::{Iface, IfaceInner};
use crate::stats::{Count, Counter};
use crate::worker::WorkerInner;

impl Iface {
    /// Sets the handler that is called with every message of `id`, in place of an earlier one; for all interfaces of a worker see
    /// [`crate::Worker::set_am_handler`]. It runs inside
    /// [`crate::Worker::progress`] (of `self`: inside the send) and may call everything, sends included.
    ///
    /// The interface owns the handler. One that owns the interface or an endpoint of it keeps the interface open until
    /// [`Iface::clear_am_handlers`]: capture a [`Weak`](std::rc::Weak) reference to what has them, and use [`AmMessage::iface`].
    pub fn set_am_handler(&self, id: AmId, handler: impl Fn(AmMessage<'_>) + 'static) {
        let handler = Box::new(Handler {
            received: Counter::default(),
            id,
            iface: NonNull::from(&*self.inner),
            worker: NonNull::from(&*self.inner.worker),
            function: handler,
        });
        let entry = Entry::of(&handler);
        // SAFETY: the functions of the entry are called with the handler that goes with it.
        let replaced = unsafe { self.inner.handlers.set(id, entry, handler) };
        self.inner.drop_handlers(replaced);
    }

    /// Offers long messages of the id to `placer`, in place of an earlier one and its id. What has begun is known to the earlier one alone: the new one
    /// is asked for names that it does not know.
    ///
    /// Of the transports that come with this library `tcp` offers messages of 48 KiB and more, once it has seen one; others have each message
    /// whole in memory before anybody can say where it goes.
    pub fn set_am_placer(&self, id: AmId, placer: Rc<dyn Placer>) {
        self.inner.handlers.placer().set(1 << id.get(), Some(placer));
    }

    /// Offers messages to no placer any more. The rest of one that has begun is received to nowhere.
    pub fn clear_am_placer(&self) {
        self.inner.handlers.placer().clear();
    }
}

/// What a handler is called with.
struct Handler<F> {
    received: Counter,
    id: AmId,
    /// The interface that owns the handler.
    iface: NonNull<IfaceInner>,
    /// Its worker, cached.
    worker: NonNull<WorkerInner>,
    function: F,
}

impl Entry {
    fn of<F: Fn(AmMessage<'_>) + 'static>(handler: &Handler<F>) -> Entry {
        Entry { callback: deliver::<F>, argument: (&raw const *handler).cast_mut().cast() }
    }
}

impl<F> Owned for Handler<F> {
    fn received(&self) -> Count {
        self.received.get()
    }
}

/// One of [`uct_abi::UctAmTable::callbacks`].
unsafe extern "C" fn deliver<F: Fn(AmMessage<'_>) + 'static>(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the handler lives until its interface is closed (`HandlerTable`), which is not while it runs.
    let handler = unsafe { &*argument.cast::<Handler<F>>() };
    handler.received.add(length);
    let kept = Cell::new(false);
    // SAFETY: the interface owns the handler, and is not closed while a handler runs (`WorkerInner::close`).
    let iface = unsafe { handler.iface.as_ref() };
    let data = NonNull::new(data.cast::<u8>()).unwrap_or(NonNull::dangling());
    let message = AmMessage::new(handler.id, data, length, flags, iface, &kept);
    // SAFETY: the interface holds its worker, and so does what is left of an interface that the handler has dropped.
    unsafe { handler.worker.as_ref() }.call_application(|| (handler.function)(message));
    if kept.get() { UCT_INPROGRESS } else { UCT_OK }
}
