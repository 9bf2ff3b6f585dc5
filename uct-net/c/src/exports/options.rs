//! Options.

use std::ffi::{c_char, c_int, c_void};

use crate::boundary::{number, pointer, status, text};
use crate::handles::{Handle, Kind};
use crate::options::Options;
use crate::registry;

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_options_create() -> *mut c_void {
    pointer(|| registry::options_in_any_case(|table| table.insert(Options::default()).map(Handle::raw)))
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_options_set(
    options: *const c_void,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    status(|| {
        let handle = Handle::parse(number(options), Kind::Options)?;
        // SAFETY: the promise of the caller.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: as above.
        let value = unsafe { text(value, "value") }?;
        registry::options(|table| {
            table.get_mut(handle)?.set(key, value);
            Ok(())
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_options_free(options: *const c_void) -> c_int {
    status(|| {
        let handle = Handle::parse(number(options), Kind::Options)?;
        registry::options(|table| table.remove(handle).map(drop))
    })
}
