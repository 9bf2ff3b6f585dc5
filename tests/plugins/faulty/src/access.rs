//! Mistakes with put, get, atomics and registrations.
//!
//! For the table. Built on the slots of `self`, which do the work.

use std::ffi::c_void;

use uct_abi::*;

use crate::{once_in, original, planted};

/// The endpoint's slots with the planted mistake among them.
pub(crate) fn replace(ops: UctEpOps) -> UctEpOps {
    UctEpOps {
        put_short: Some(put_short),
        get_zcopy: Some(get_zcopy),
        atomic64_fetch: Some(atomic64_fetch),
        ..ops
    }
}

/// The memory domain's.
pub(crate) fn replace_md(ops: UctMdOps) -> UctMdOps {
    // Without windows the host asks the plugin, whose the mistakes are, for every access.
    UctMdOps { mem_dereg: Some(mem_dereg), rkey_window: None, ..ops }
}

unsafe extern "C" fn put_short(
    ep: *mut UctEp,
    buffer: *const c_void,
    length: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
) -> UctStatus {
    let put = original().ep.put_short.expect("self has it");
    // SAFETY: the caller's arguments.
    let status = unsafe { put(ep, buffer, length, remote_address, rkey) };
    if planted("one beyond") && status == UCT_ERR_OUT_OF_RANGE && length > 1 {
        // As a bound that is off by one would: the last byte is not asked about.
        // SAFETY: the caller's arguments, less a byte.
        return unsafe { put(ep, buffer, length - 1, remote_address, rkey) };
    }
    status
}

unsafe extern "C" fn get_zcopy(
    ep: *mut UctEp,
    iov: *const UctIov,
    count: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    let get = original().ep.get_zcopy.expect("self has it");
    if planted("forget") && count > 1 {
        // The last entry of a vector is left out.
        // SAFETY: the caller's arguments, less an entry.
        return unsafe { get(ep, iov, count - 1, remote_address, rkey, completion) };
    }
    // SAFETY: the caller's arguments.
    unsafe { get(ep, iov, count, remote_address, rkey, completion) }
}

unsafe extern "C" fn atomic64_fetch(
    ep: *mut UctEp,
    op: u32,
    value: u64,
    result: *mut u64,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    let fetch = original().ep.atomic64_fetch.expect("self has it");
    if planted("twice") && op == UCT_ATOMIC_ADD && once_in(37) {
        // SAFETY: the caller's arguments.
        unsafe { fetch(ep, op, value, result, remote_address, rkey, completion) };
    }
    // SAFETY: the caller's arguments.
    unsafe { fetch(ep, op, value, result, remote_address, rkey, completion) }
}

unsafe extern "C" fn mem_dereg(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus {
    if planted("stale") {
        return UCT_OK;
    }
    let slot = original().md.mem_dereg.expect("self has it");
    // SAFETY: the caller's arguments.
    unsafe { slot(md, memh) }
}
