//! Sending active messages.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use ucs::Status;
use uct_abi::{UCT_SEND_SIGNALED, UctCompletion, UctIov};
use uct_core::AmId;
use uct_core::raw::{self, Class};

use crate::call::guarded;
use crate::ep::{Ep, slot};
use crate::types::PackCallback;
use crate::vector::{Use, bytes, invalid, with_vector};

const IO_ERROR: c_int = Status::IO_ERROR.raw();

#[cold]
fn no_id(ep: &Ep, id: u8) -> c_int {
    invalid(ep, format_args!("{id} is no id of an active message; they are below {}", AmId::COUNT))
}

/// `uct_ep_am_short`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_am_short(
    ep: *const Ep,
    id: u8,
    header: u64,
    payload: *const c_void,
    length: c_uint,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(id) = AmId::new(id) else { return no_id(ep, id) };
    // SAFETY: the caller's promise.
    let payload = unsafe { bytes(payload, length as usize) };
    guarded(IO_ERROR, || Status::from(ep.inner.am_short(id, header, payload)).raw())
}

/// `uct_ep_am_short_iov`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_am_short_iov(
    ep: *const Ep,
    id: u8,
    iov: *const UctIov,
    count: usize,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(id) = AmId::new(id) else { return no_id(ep, id) };
    let call = |vector, bytes| {
        let (ops, inner) = ep.slots();
        let slot = slot!(ops.am_short_iov);
        // SAFETY: the endpoint is alive, and the vector readable, by the caller's promise.
        let status = unsafe { slot(inner, id.get(), vector, count) };
        guarded(IO_ERROR, || raw::counted(&ep.inner, Class::AmShort, status, bytes))
    };
    // SAFETY: the caller's promise.
    unsafe { with_vector(ep, (iov, count), Use::Copied, call) }
}

/// `uct_ep_am_bcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_am_bcopy(
    ep: *const Ep,
    id: u8,
    pack: Option<PackCallback>,
    argument: *mut c_void,
    flags: c_uint,
) -> isize {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(id) = AmId::new(id) else { return no_id(ep, id) as isize };
    let Some(pack) = pack else { return invalid(ep, "pack_cb is NULL") as isize };
    let _inside = ep.iface.worker.enter();
    let (ops, inner) = ep.slots();
    let slot = slot!(ops.am_bcopy);
    // SAFETY: the endpoint is alive; function and argument are the program's.
    let answer = unsafe { slot(inner, id.get(), pack, argument, flags & UCT_SEND_SIGNALED) };
    guarded(IO_ERROR as isize, || raw::counted_length(&ep.inner, Class::AmBcopy, answer))
}

/// `uct_ep_am_zcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_am_zcopy(
    ep: *const Ep,
    id: u8,
    header: *const c_void,
    header_length: c_uint,
    iov: *const UctIov,
    count: usize,
    flags: c_uint,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(id) = AmId::new(id) else { return no_id(ep, id) };
    let (header, length) = match NonNull::new(header.cast_mut()) {
        Some(header) => (header.as_ptr().cast_const(), header_length as usize),
        None => (NonNull::<u8>::dangling().as_ptr().cast_const().cast(), 0),
    };
    let flags = flags & UCT_SEND_SIGNALED;
    let call = |vector, bytes| {
        let (ops, inner) = ep.slots();
        let slot = slot!(ops.am_zcopy);
        // SAFETY: the endpoint is alive; header, memory and completion are valid as long as the header of this function
        // says.
        let status = unsafe { slot(inner, id.get(), header, length, vector, count, flags, completion) };
        guarded(IO_ERROR, || raw::counted(&ep.inner, Class::AmZcopy, status, bytes + length))
    };
    // SAFETY: the caller's promise.
    unsafe { with_vector(ep, (iov, count), Use::InPlace, call) }
}
