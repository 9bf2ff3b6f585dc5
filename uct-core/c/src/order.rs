//! Flush, fence, and requests that wait for room.

use std::ffi::{c_int, c_uint, c_void};

use ucs::Status;
use uct_abi::{UCT_FLUSH_CANCEL, UCT_FLUSH_REMOTE, UctCompletion, UctPendingReq};
use uct_core::raw::{self, Class};

use crate::call::guarded;
use crate::ep::{Ep, slot};
use crate::iface::Iface;
use crate::types::PurgeCallback;
use crate::vector::invalid;

const IO_ERROR: c_int = Status::IO_ERROR.raw();
/// `UCT_FLUSH_FLAG_*`.
const FLAG_CANCEL: c_uint = 1 << 0;
const FLAG_REMOTE: c_uint = 1 << 1;

/// The flags of the boundary, whose numbers are others.
fn flush_flags(flags: c_uint) -> u32 {
    let cancel = if flags & FLAG_CANCEL != 0 { UCT_FLUSH_CANCEL } else { 0 };
    let remote = if flags & FLAG_REMOTE != 0 { UCT_FLUSH_REMOTE } else { 0 };
    cancel | remote
}

/// `uct_iface_flush`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_flush(
    iface: *const Iface,
    flags: c_uint,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let iface = unsafe { &*iface };
    let _inside = iface.worker.enter();
    guarded(IO_ERROR, || {
        // SAFETY: the completion is null, or valid until it is called.
        let status = unsafe { raw::flush_iface(&iface.inner, flush_flags(flags), completion) };
        status.unwrap_or_else(|error| error.status().raw())
    })
}

/// `uct_ep_flush`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_flush(
    ep: *const Ep,
    flags: c_uint,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let _inside = ep.iface.worker.enter();
    let (ops, inner) = ep.slots();
    let slot = slot!(ops.flush);
    // SAFETY: the endpoint is alive; the completion is null, or valid until it is called.
    let status = unsafe { slot(inner, flush_flags(flags), completion) };
    guarded(IO_ERROR, || raw::counted(&ep.inner, Class::Flush, status, 0))
}

/// `uct_ep_fence`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_fence(ep: *const Ep, _flags: c_uint) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    guarded(IO_ERROR, || Status::from(ep.inner.fence()).raw())
}

/// `uct_ep_pending_add`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_pending_add(
    ep: *const Ep,
    request: *mut UctPendingReq,
    _flags: c_uint,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    if request.is_null() {
        return invalid(ep, "req is NULL");
    }
    let (ops, inner) = ep.slots();
    let slot = slot!(ops.pending_add);
    // SAFETY: the endpoint is alive; the request stays where it is until it was served or purged.
    unsafe { slot(inner, request) }
}

/// `uct_ep_pending_purge`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_pending_purge(
    ep: *const Ep,
    callback: Option<PurgeCallback>,
    argument: *mut c_void,
) {
    unsafe extern "C" fn forget(_request: *mut UctPendingReq, _argument: *mut c_void) {}
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let _inside = ep.iface.worker.enter();
    let (ops, inner) = ep.slots();
    let slot = slot!(ops.pending_purge);
    // SAFETY: the endpoint is alive; function and argument are the program's.
    unsafe { slot(inner, callback.unwrap_or(forget), argument) };
}
