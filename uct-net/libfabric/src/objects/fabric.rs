//! The fabric, from which domains and event queues are made.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::Errno;
use crate::info::NAME;

use super::{Held, close_only, domain, event_queue, waiting};

/// A fabric has nothing of its own.
pub struct Fabric;

impl Held for Fabric {
    type Head = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;
    const OPS: &'static fi_ops = &close_only!(Fabric);

    fn head(&self, fid: fid) -> fid_fabric {
        fid_fabric { fid, ops: &OPS, api_version: 0 }
    }
}

static OPS: fi_ops_fabric = fi_ops_fabric {
    domain: domain::open,
    domain2: domain::open_with_flags,
    eq_open: event_queue::open,
    trywait: waiting::trywait,
    ..fi_ops_fabric::UNSUPPORTED
};

/// Opens the only fabric. libfabric writes the version of the interface into it.
pub fn open(
    caller: &Caller,
    attr: *const fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> Outcome<c_int> {
    if caller.text(caller.at(attr)?.name)? != Some(NAME) {
        return Err(Errno(ENODATA));
    }
    caller.give(Fabric, context, fabric)?;
    Ok(0)
}
