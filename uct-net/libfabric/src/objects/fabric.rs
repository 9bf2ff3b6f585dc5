//! The fabric, from which domains and event queues are made.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::boundary::{Outcome, at, guarded};
use crate::engine::Errno;
use crate::info::NAME;

use super::{Held, event_queue, give, take};

/// A fabric has nothing of its own.
pub struct Fabric;

impl Held for Fabric {
    type Head = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;
    const OPS: &'static fi_ops = &fi_ops { close, ..fi_ops::UNSUPPORTED };

    fn head(&self, fid: fid) -> fid_fabric {
        fid_fabric { fid, ops: &OPS, api_version: 0 }
    }
}

static OPS: fi_ops_fabric = fi_ops_fabric { eq_open: event_queue::open, ..fi_ops_fabric::UNSUPPORTED };

/// Opens the only fabric. libfabric writes the version of the interface into it.
///
/// # Safety
/// Pointers are null or valid.
pub unsafe fn open(
    attr: *const fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> Outcome<c_int> {
    // SAFETY: the caller's promise.
    let attr = unsafe { at(attr) }?;
    // SAFETY: as above.
    if unsafe { crate::boundary::text(attr.name) }? != Some(NAME) {
        return Err(Errno(ENODATA));
    }
    // SAFETY: as above.
    unsafe { give(Fabric, context, fabric) }?;
    Ok(0)
}

unsafe extern "C" fn close(object: *mut fid) -> c_int {
    // SAFETY: libfabric's contract.
    guarded(|| unsafe { take::<Fabric>(object) }.map(|_| 0))
}
