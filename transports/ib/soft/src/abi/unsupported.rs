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

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn what_is_not_offered_is_refused_with_a_number() {
        let number = || std::io::Error::last_os_error().raw_os_error();
        super::super::objects::set_errno(0);
        assert_eq!((not_supported(), number()), (libc::EOPNOTSUPP, Some(libc::EOPNOTSUPP)));
        super::super::objects::set_errno(0);
        assert_eq!((no_object(), number()), (null_mut(), Some(libc::EOPNOTSUPP)));
        // These are answers, not refusals.
        super::super::objects::set_errno(0);
        assert_eq!((ibv_qp_to_qp_ex(null_mut()), number()), (null_mut(), Some(0)));
        assert_eq!((ibv_query_qp_data_in_order(null_mut(), 0, 0), number()), (0, Some(0)));
    }
}
