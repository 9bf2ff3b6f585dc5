//! Version, statuses and reasons.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;

use ucs::Status;

use crate::boundary::number;
use crate::failure::{last, shown};
use crate::handles::Kind;
use crate::registry;

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero"),
        };
    VERSION.as_ptr()
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_status_string(status: c_int) -> *const c_char {
    use std::collections::BTreeMap;
    use std::ffi::CString;
    use std::sync::OnceLock;

    static TEXTS: OnceLock<BTreeMap<c_int, CString>> = OnceLock::new();
    let all = || {
        let text = |status: &Status| (status.raw(), CString::new(status.text()).unwrap_or_default());
        Status::ALL.iter().map(text).collect()
    };
    TEXTS.get_or_init(all).get(&status).map_or(c"unknown status".as_ptr(), |text| text.as_ptr())
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_error(net: *const c_void, op: u64) -> *const c_char {
    let text = if op == 0 {
        last().map(|(_, text)| text)
    } else {
        let found = registry::with(number(net), Kind::Net, |net, _| {
            Ok(net.events.failure(op, |failure| failure.text.clone()))
        });
        found.unwrap_or_else(|failure| Some(failure.text.clone()))
    };
    text.map_or(null(), shown)
}
