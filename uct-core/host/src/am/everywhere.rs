//! Handlers of a worker: each of its interfaces has them, also one that is opened later.

#![forbid(unsafe_code)]

use std::any::Any;
use std::rc::Rc;

use super::AmId;
use super::message::AmMessage;
use crate::iface::{Iface, IfaceInner};
use crate::worker::{Install, Worker};

/// A handler, for as many interfaces as there are.
struct Shared<F> {
    id: AmId,
    handler: Rc<F>,
}

impl<F: Fn(AmMessage<'_>) + 'static> Install for Shared<F> {
    fn install(&self, object: Rc<dyn Any>) {
        let Some(iface) = iface(object) else { return };
        let handler = Rc::clone(&self.handler);
        iface.set_am_handler(self.id, move |message| handler(message));
    }
}

/// The interface that an object of a worker is, if it is one.
fn iface(object: Rc<dyn Any>) -> Option<Iface> {
    object.downcast::<IfaceInner>().ok().map(|inner| Iface { inner })
}

impl Worker {
    /// Sets the handler that is called with every message of `id` from all interfaces of the worker, including those that are opened later. It
    /// replaces the earlier handler of each interface; [`Iface::set_am_handler`] afterwards replaces it for that interface.
    /// [`AmMessage::iface`] is the interface that received a message.
    ///
    /// Worker and interfaces own the handler. One that owns the worker, an interface or an endpoint keeps them for ever, until
    /// [`Worker::clear_am_handlers`]: capture a [`Weak`](std::rc::Weak) reference to what has them.
    pub fn set_am_handler(&self, id: AmId, handler: impl Fn(AmMessage<'_>) + 'static) {
        let handler: Rc<dyn Install> = Rc::new(Shared { id, handler: Rc::new(handler) });
        self.inner.objects().into_iter().for_each(|object| handler.install(object));
        drop(self.inner.replace_handler(id.get(), Some(handler)));
    }

    /// Drops messages of `id` from now on, whichever interface receives them.
    pub fn clear_am_handler(&self, id: AmId) {
        drop(self.inner.replace_handler(id.get(), None));
        self.inner.objects().into_iter().filter_map(iface).for_each(|iface| iface.clear_am_handler(id));
    }

    /// Removes all handlers of all its interfaces, and drops what they hold.
    pub fn clear_am_handlers(&self) {
        (0..AmId::COUNT as u8).filter_map(AmId::new).for_each(|id| self.clear_am_handler(id));
    }
}
