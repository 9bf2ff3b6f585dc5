//! Texts.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use ucs::Status;

use crate::call::guarded;

/// A list of strings for C.
#[repr(transparent)]
pub struct Names<const N: usize>([*const c_char; N]);

// SAFETY: the strings are constants.
unsafe impl<const N: usize> Sync for Names<N> {}

/// `ucs_memory_type_names`: the names of the kinds of memory, then of the number behind the last, then null.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "its name in C")]
pub static uctc_memory_type_names: Names<12> = Names([
    c"host".as_ptr(),
    c"cuda".as_ptr(),
    c"cuda-managed".as_ptr(),
    c"rocm".as_ptr(),
    c"rocm-managed".as_ptr(),
    c"rdma".as_ptr(),
    c"ze-host".as_ptr(),
    c"ze-device".as_ptr(),
    c"ze-managed".as_ptr(),
    c"gaudi".as_ptr(),
    c"unknown".as_ptr(),
    std::ptr::null(),
]);

/// `ucs_status_string`.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub extern "C" fn uctc_status_string(status: c_int) -> *const c_char {
    static TEXTS: OnceLock<BTreeMap<Status, CString>> = OnceLock::new();
    let of = |status: &Status| (*status, CString::new(status.text()).unwrap_or_default());
    let unknown: &CStr = c"unknown status";
    guarded(unknown.as_ptr(), || {
        let texts = TEXTS.get_or_init(|| Status::ALL.iter().map(of).collect());
        texts.get(&Status::from_raw(status)).map_or(unknown, CString::as_c_str).as_ptr()
    })
}
