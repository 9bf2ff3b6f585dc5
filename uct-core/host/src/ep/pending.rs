//! The pending queue: operations that wait until the transport has resources again.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use ucs::{Error, Result, Status};
use uct_abi::{
    UCT_ERR_NO_RESOURCE, UCT_INPROGRESS, UCT_OK, UCT_PENDING_PRIVATE, UctEp, UctEpOps, UctPendingReq,
    UctStatus,
};

use super::{Ep, EpInner};

/// What a pending request returns when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// It is done; forget it.
    Done,
    /// It did a part; keep it and continue with others.
    Again,
    /// Resources are still missing; keep it and stop serving this endpoint for now.
    Wait,
}

/// A queued request. The boundary's part comes first, so that a pointer to it is a pointer to the whole.
#[repr(C)]
struct Request<F> {
    header: Header,
    function: F,
}

#[repr(C)]
struct Header {
    abi: UctPendingReq,
    /// The endpoint, which purges its requests before it goes.
    ep: *const EpInner,
    /// Frees the whole.
    free: unsafe fn(*mut Header),
}

impl Ep {
    /// Queues `request` until the transport has resources again; then progress calls it, in order, and fairly among the
    /// endpoints. Meanwhile sends of the endpoint answer `NO_RESOURCE`, so that nothing overtakes; those of the
    /// request itself go through.
    ///
    /// # Errors
    /// [`Error::BUSY`], with the request: resources are there, retry now. The error of a failed endpoint.
    pub fn pending_add<F>(&self, request: F) -> Result<(), (Error, F)>
    where
        F: FnMut(&Ep) -> Pending + 'static,
    {
        let ep = &*self.inner;
        let request = Box::new(Request {
            header: Header {
                abi: UctPendingReq { func: serve::<F>, reserved: [0; UCT_PENDING_PRIVATE / 8] },
                ep: Rc::as_ptr(&self.inner),
                free: free::<F>,
            },
            function: request,
        });
        let slot = slot!(ep.pending_add);
        let raw = Box::into_raw(request);
        // SAFETY: the endpoint is alive; the request stays where it is until it was served or purged.
        let status = unsafe { slot(ep.raw.get(), raw.cast()) };
        if status == UCT_OK
            && let Some(observed) = ep.iface.observed()
        {
            observed.pending_added(1);
        }
        Status::from_raw(status).into_result().map_err(|error| {
            // SAFETY: the transport did not take the request.
            let request = unsafe { Box::from_raw(raw) };
            (error, request.function)
        })
    }

    /// Drops all queued requests without calling them; returns how many there were.
    pub fn pending_purge(&self) -> usize {
        let ep = &*self.inner;
        // SAFETY: the endpoint is alive.
        ep.purged(unsafe { purge(ep.ops.get(), ep.raw.get()) })
    }
}

/// # Safety
/// `raw` is a living endpoint of the table's transport.
pub(super) unsafe fn purge(ops: &UctEpOps, raw: *mut UctEp) -> usize {
    unsafe extern "C" fn forget(request: *mut UctPendingReq, argument: *mut c_void) {
        let header = request.cast::<Header>();
        // SAFETY: every request of this host is the first part of a `Header`, and no longer queued.
        let release = unsafe { (*header).free };
        // SAFETY: the function goes with the request.
        unsafe { release(header) };
        // SAFETY: the argument is the counter below.
        unsafe { *argument.cast::<usize>() += 1 };
    }
    let mut count = 0_usize;
    let slot = ops.pending_purge.expect("the loader fills every slot");
    // SAFETY: the caller's promise, and callback and argument belong together.
    unsafe { slot(raw, forget, (&raw mut count).cast()) };
    count
}

unsafe fn free<F>(header: *mut Header) {
    // SAFETY: the request was made in `pending_add` with this type, and nothing else has it.
    drop(unsafe { Box::from_raw(header.cast::<Request<F>>()) });
}

unsafe extern "C" fn serve<F: FnMut(&Ep) -> Pending>(request: *mut UctPendingReq) -> UctStatus {
    let whole = request.cast::<Request<F>>();
    // SAFETY: the request was made in `pending_add` with this type.
    let ep = unsafe { (*whole).header.ep };
    // SAFETY: the endpoint is alive while it has requests; the count stays as it is, since this value is never dropped.
    let ep = ManuallyDrop::new(Ep { inner: unsafe { Rc::from_raw(ep) } });
    let mut answer = Pending::Done;
    ep.inner.iface.worker.call_application(|| {
        // SAFETY: the transport serves one request once at a time.
        let function = unsafe { &mut (*whole).function };
        answer = function(&ep);
    });
    match answer {
        Pending::Done => {
            if let Some(observed) = ep.inner.iface.observed() {
                observed.pending_removed(1);
            }
            // SAFETY: the transport forgets the request with this answer.
            unsafe { free::<F>(whole.cast()) };
            UCT_OK
        }
        Pending::Again => UCT_INPROGRESS,
        Pending::Wait => UCT_ERR_NO_RESOURCE,
    }
}
