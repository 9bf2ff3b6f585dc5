//! The fabric, from which domains and event queues are made.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::Errno;
use crate::info::NAME;

/// A fabric has nothing of its own.
pub struct Fabric;

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
