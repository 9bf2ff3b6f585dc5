//! An interface in its worker's queue: whether progress calls it, and when it asks for that.
//! Built on `WorkerInner`; used by `iface`. A transport knows it as `UctHostIface`.

use std::cell::Cell;
use std::rc::Rc;

use ucs::datastruct::callbackq::CallbackId;
use uct_abi::{UctHostIface, UctIface, UctProgress};

use super::WorkerInner;

/// One for each interface. It stays until the transport has closed the interface.
pub(crate) struct Driven {
    worker: Rc<WorkerInner>,
    id: Cell<Option<CallbackId>>,
}

impl Driven {
    pub(crate) fn new(worker: &Rc<WorkerInner>) -> Rc<Driven> {
        Rc::new(Driven { worker: Rc::clone(worker), id: Cell::new(None) })
    }

    /// What a transport calls [`request`] with.
    pub(crate) fn as_host_iface(&self) -> *mut UctHostIface {
        (&raw const *self).cast_mut().cast()
    }

    /// Has progress call the interface.
    ///
    /// # Safety
    /// `progress` may be called with `iface` until [`Driven::disable`].
    pub(crate) unsafe fn enable(
        &self,
        progress: unsafe extern "C" fn(*mut UctIface) -> u32,
        iface: *mut UctIface,
    ) {
        if self.is_enabled() {
            return;
        }
        // SAFETY: the types differ only in what the pointer is called.
        let callback = unsafe {
            std::mem::transmute::<unsafe extern "C" fn(*mut UctIface) -> u32, UctProgress>(progress)
        };
        // SAFETY: the caller's promise.
        self.id.set(Some(unsafe { self.worker.add_progress(callback, iface.cast()) }));
    }

    pub(crate) fn disable(&self) {
        if let Some(id) = self.id.take() {
            self.worker.remove_own_progress(id);
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.id.get().is_some()
    }
}

/// `UctHost::progress_request`.
pub(crate) unsafe extern "C" fn request(iface: *mut UctHostIface) {
    // SAFETY: a plugin names what its interface was opened with, which stays until `close` has returned.
    let driven = unsafe { &*iface.cast::<Driven>() };
    if let Some(id) = driven.id.get() {
        driven.worker.queue.activate(id);
    }
}
