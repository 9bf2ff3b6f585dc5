//! What programs read a configuration into: a token, since the configuration is that of the process.

use std::ffi::{c_char, c_int, c_void};

use crate::call::{free_list, put_token, status};
use crate::component::Component;
use crate::md::Md;

/// `uct_md_config_read`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_config_read(
    _component: *const Component,
    _env_prefix: *const c_char,
    _filename: *const c_char,
    config: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { put_token(config, "config_p") })
}

/// `uct_md_iface_config_read`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_iface_config_read(
    _md: *const Md,
    _tl_name: *const c_char,
    _env_prefix: *const c_char,
    _filename: *const c_char,
    config: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { put_token(config, "config_p") })
}

/// `uct_config_release`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_config_release(config: *mut c_void) {
    // SAFETY: a token, by the caller's promise.
    unsafe { free_list(config) };
}
