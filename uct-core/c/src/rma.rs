//! Put and get.

use std::ffi::{c_int, c_uint, c_void};
use std::slice;

use ucs::Status;
use uct_abi::{UctCompletion, UctIov};
use uct_core::RemoteKey;
use uct_core::raw::{self, Class};

use crate::call::{Outcome, guarded};
use crate::ep::{Ep, slot};
use crate::key::Key;
use crate::types::{PackCallback, UnpackCallback};
use crate::vector::{Use, bytes, invalid, with_vector};

/// Runs an operation with the key of the endpoint's domain; returns a status.
///
/// # Safety
/// As [`Key::at`].
#[inline]
pub unsafe fn with_key(ep: &Ep, rkey: usize, work: impl FnOnce(&RemoteKey) -> Outcome<c_int>) -> c_int {
    guarded(Status::IO_ERROR.raw(), || {
        // SAFETY: the caller's promise.
        let Ok(key) = (unsafe { Key::at(rkey) }) else {
            return invalid(ep, "the remote key is 0 or UCT_INVALID_RKEY");
        };
        key.with(ep.iface.inner.memory_domain(), work).unwrap_or_else(|error| error.status().raw())
    })
}

/// `uct_ep_put_short`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_put_short(
    ep: *const Ep,
    buffer: *const c_void,
    length: c_uint,
    remote_address: u64,
    rkey: usize,
) -> c_int {
    if length as usize == size_of::<u64>() && !buffer.is_null() {
        // SAFETY: a handle, by the caller's promise.
        let ep = unsafe { &(*ep).inner };
        // SAFETY: so many bytes are readable, by the caller's promise.
        let data = unsafe { buffer.cast::<[u8; 8]>().read() };
        // SAFETY: the caller's promise.
        let key = unsafe { Key::at(rkey) };
        // The host compares the domains of endpoint and key.
        if key.is_ok_and(|key| raw::put_word(ep, data, remote_address, &key.first)) {
            return Status::OK.raw();
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put_short_otherwise(ep, buffer, length, remote_address, rkey) }
}

/// Any put but that of a word that is reached directly. Cold, so that the path of that word saves no registers.
///
/// # Safety
/// As the header says.
#[cold]
#[inline(never)]
unsafe extern "C" fn put_short_otherwise(
    ep: *const Ep,
    buffer: *const c_void,
    length: c_uint,
    remote_address: u64,
    rkey: usize,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    // SAFETY: the caller's promise.
    let data = unsafe { bytes(buffer, length as usize) };
    let put = |key: &RemoteKey| ep.inner.put_short(data, remote_address, key).map(|()| Status::OK.raw());
    // SAFETY: as above.
    unsafe { with_key(ep, rkey, put) }
}

/// `uct_ep_put_bcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_put_bcopy(
    ep: *const Ep,
    pack: Option<PackCallback>,
    argument: *mut c_void,
    remote_address: u64,
    rkey: usize,
) -> isize {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(pack) = pack else { return invalid(ep, "pack_cb is NULL") as isize };
    let _inside = ep.iface.worker.enter();
    let mut length = 0;
    let put = |key: &RemoteKey| {
        let (ops, inner) = ep.slots();
        let slot = slot!(ops.put_bcopy);
        // SAFETY: the endpoint is alive, and the key of its domain; function and argument are the program's.
        let answer = unsafe { slot(inner, pack, argument, remote_address, raw::rkey(key)) };
        length = raw::counted_length(&ep.inner, Class::Put, answer);
        Ok(length.min(0) as c_int)
    };
    // SAFETY: the caller's promise.
    let status = unsafe { with_key(ep, rkey, put) };
    if status < 0 { status as isize } else { length }
}

/// `uct_ep_put_zcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_put_zcopy(
    ep: *const Ep,
    iov: *const UctIov,
    count: usize,
    remote_address: u64,
    rkey: usize,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let put = |vector, bytes| {
        let put = |key: &RemoteKey| {
            let (ops, inner) = ep.slots();
            let slot = slot!(ops.put_zcopy);
            // SAFETY: the endpoint is alive, and the key of its domain; memory, key and completion are valid until the
            // operation ends.
            let status = unsafe { slot(inner, vector, count, remote_address, raw::rkey(key), completion) };
            Ok(raw::counted(&ep.inner, Class::Put, status, bytes))
        };
        // SAFETY: the caller's promise.
        unsafe { with_key(ep, rkey, put) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_vector(ep, (iov, count), Use::InPlace, put) }
}

/// `uct_ep_get_short`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_get_short(
    ep: *const Ep,
    buffer: *mut c_void,
    length: c_uint,
    remote_address: u64,
    rkey: usize,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let place: &mut [u8] = if buffer.is_null() {
        &mut []
    } else {
        // SAFETY: the caller's promise. The memory of C counts as initialised.
        unsafe { slice::from_raw_parts_mut(buffer.cast(), length as usize) }
    };
    let _inside = ep.iface.worker.enter();
    let get = |key: &RemoteKey| ep.inner.get_short(place, remote_address, key).map(|()| Status::OK.raw());
    // SAFETY: the caller's promise.
    unsafe { with_key(ep, rkey, get) }
}

/// `uct_ep_get_bcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_get_bcopy(
    ep: *const Ep,
    unpack: Option<UnpackCallback>,
    argument: *mut c_void,
    length: usize,
    remote_address: u64,
    rkey: usize,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let Some(unpack) = unpack else { return invalid(ep, "unpack_cb is NULL") };
    let _inside = ep.iface.worker.enter();
    let get = |key: &RemoteKey| {
        let (ops, inner) = ep.slots();
        let (slot, key) = (slot!(ops.get_bcopy), raw::rkey(key));
        // SAFETY: the endpoint is alive, and the key of its domain; function and argument are the program's, and valid
        // until the operation ends, as key and completion are.
        let status = unsafe { slot(inner, unpack, argument, length, remote_address, key, completion) };
        Ok(raw::counted(&ep.inner, Class::Get, status, length))
    };
    // SAFETY: the caller's promise.
    unsafe { with_key(ep, rkey, get) }
}

/// `uct_ep_get_zcopy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_get_zcopy(
    ep: *const Ep,
    iov: *const UctIov,
    count: usize,
    remote_address: u64,
    rkey: usize,
    completion: *mut UctCompletion,
) -> c_int {
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { &*ep };
    let get = |vector, bytes| {
        let get = |key: &RemoteKey| {
            let (ops, inner) = ep.slots();
            let slot = slot!(ops.get_zcopy);
            // SAFETY: as in `uctc_ep_put_zcopy`; the memory is writable.
            let status = unsafe { slot(inner, vector, count, remote_address, raw::rkey(key), completion) };
            Ok(raw::counted(&ep.inner, Class::Get, status, bytes))
        };
        // SAFETY: the caller's promise.
        unsafe { with_key(ep, rkey, get) }
    };
    // SAFETY: the caller's promise.
    unsafe { with_vector(ep, (iov, count), Use::InPlace, get) }
}
