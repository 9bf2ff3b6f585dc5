//! The pointers inside of the objects, for a binding to C that has handles, completions and callbacks of its own.
//!
//! For `uct-compat` alone, which calls the slots of the boundary itself: no version promises anything about this module. Built on endpoints,
//! interfaces, memory and keys.

use std::ffi::c_void;

use ucs::Result;
use uct_abi::{UCT_OK, UctCompletion, UctEp, UctEpOps, UctIfaceOps, UctMemh, UctRkey, UctStatus};

use crate::ep::Ep;
use crate::iface::Iface;
use crate::md::{Memory, RemoteKey};
use crate::stats::Counter;
use crate::worker::Worker;

pub use crate::am::set_raw_am_handler;

/// What an operation is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An active message, short.
    AmShort,
    /// An active message, buffered copy.
    AmBcopy,
    /// An active message, zero copy.
    AmZcopy,
    /// A put.
    Put,
    /// A get.
    Get,
    /// An atomic.
    Atomic,
    /// A flush or fence.
    Flush,
}

/// The calls of an endpoint and what they take: those of the transport, or in a child of a fork those that refuse. Every slot is filled.
#[inline]
pub fn ep(ep: &Ep) -> (&'static UctEpOps, *mut UctEp) {
    ep.inner.table()
}

/// Counts an operation that a slot has returned this status for, and logs what an error of the caller means; returns the status.
#[inline]
pub fn counted(ep: &Ep, class: Class, status: UctStatus, bytes: usize) -> UctStatus {
    let counter = counter(ep, class);
    if status >= UCT_OK {
        counter.add(bytes);
        return status;
    }
    ep.inner.refused(status, counter, bytes).map_or_else(|error| error.status().raw(), |()| UCT_OK)
}

/// As [`counted`], for a slot that returns a length or an error.
#[inline]
pub fn counted_length(ep: &Ep, class: Class, answer: isize) -> isize {
    if answer >= 0 {
        counter(ep, class).add(answer as usize);
        return answer;
    }
    counted(ep, class, answer as UctStatus, 0) as isize
}

fn counter(ep: &Ep, class: Class) -> &Counter {
    let counters = ep.inner.running_counters();
    match class {
        Class::AmShort => &counters.am_short,
        Class::AmBcopy => &counters.am_bcopy,
        Class::AmZcopy => &counters.am_zcopy,
        Class::Put => &counters.put,
        Class::Get => &counters.get,
        Class::Atomic => &counters.atomic,
        Class::Flush => &counters.flush,
    }
}

/// Whether a handler of [`set_raw_am_handler`], or another call of the application's code, is running.
#[inline]
pub fn is_on_stack(worker: &Worker) -> bool {
    worker.inner.is_on_stack()
}

/// Writes 8 bytes to remote memory if they are an aligned word that is reached directly; returns whether it has.
#[inline]
pub fn put_word(ep: &Ep, data: [u8; 8], remote_address: u64, key: &RemoteKey) -> bool {
    ep.put_word(data, remote_address, key).is_some()
}

/// A registration, as the transports of its domain take it.
#[inline]
pub fn memh(memory: &Memory) -> *mut UctMemh {
    memory.memh()
}

/// A key, as the transports of its domain take it.
#[inline]
pub fn rkey(key: &RemoteKey) -> *mut UctRkey {
    key.look_again();
    key.raw()
}

/// Flushes an interface: the status of its slot.
///
/// # Errors
/// [`ucs::Error::INVALID_PARAM`] in a child of a fork.
///
/// # Safety
/// As [`UctIfaceOps::flush`]: the completion is null, or valid until it is called.
pub unsafe fn flush_iface(iface: &Iface, flags: u32, completion: *mut UctCompletion) -> Result<UctStatus> {
    iface.inner.worker.check_process()?;
    let ops: &UctIfaceOps = iface.inner.ops;
    let slot = ops.flush.expect("the loader fills every slot");
    // SAFETY: the interface is open; the completion is the caller's promise.
    Ok(unsafe { slot(iface.inner.raw(), flags, completion) })
}

/// Gives the data of a message back that a handler of [`set_raw_am_handler`] has kept. Not in a child of a fork, where they are the parent's.
///
/// # Safety
/// A handler of the interface kept these data, and they are given back once.
pub unsafe fn release(iface: &Iface, data: *mut c_void) {
    if iface.inner.worker.check_process().is_err() {
        return;
    }
    let slot = iface.inner.ops.release.expect("the loader fills every slot");
    // SAFETY: the interface is open, and the rest the caller's promise.
    unsafe { slot(iface.inner.raw(), data) };
}
