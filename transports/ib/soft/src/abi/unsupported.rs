//! What the device does not offer, refused as the manual pages say.
//!
//! The refusals take no arguments: a caller in C may pass any, which they do not look at.

use std::ffi::{c_int, c_void};

use uct_ib_abi::*;

use super::objects::refused;

/// A function that the device does not offer, with the error number as its result.
pub extern "C" fn not_supported() -> c_int {
    super::objects::set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// A function for an object that the device does not offer.
pub extern "C" fn no_object() -> *mut c_void {
    refused(libc::EOPNOTSUPP)
}

/// See `ibv_qp_to_qp_ex(3)`: no queue pair has the extended interface for posting.
pub extern "C" fn ibv_qp_to_qp_ex(_: *mut ibv_qp) -> *mut c_void {
    std::ptr::null_mut()
}

/// See `ibv_query_qp_data_in_order(3)`: nothing is promised.
pub extern "C" fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}
