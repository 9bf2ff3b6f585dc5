//! What is found out about the device beside its attributes: one entry of a table, an index, a file.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::Path;

use uct_ib_abi::*;

use super::context::{ibv_query_gid_table, ibv_query_pkey};
use super::objects::set_errno;

/// As the kernel counts kinds of GIDs: RoCE v1 and InfiniBand are 0.
const SYSFS_ROCE_V2: c_uint = 1;

/// See `ibv_query_gid_ex(3)`.
///
/// # Safety
/// The context is open, and there is room for an entry of this size.
pub unsafe extern "C" fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if port != 1 || index != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    match unsafe { ibv_query_gid_table(context, entry, 1, flags, size) } {
        1 => 0,
        error => -error as c_int,
    }
}

/// Which kind of GID an entry is, for the library's own programs.
///
/// # Safety
/// `kind` is a place for a number.
pub unsafe extern "C" fn ibv_query_gid_type(
    _: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    if port != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { kind.write(SYSFS_ROCE_V2) };
    0
}

/// See `ibv_get_pkey_index(3)`.
///
/// # Safety
/// The context is open.
pub unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    let mut first = 0;
    // SAFETY: the caller's promise, and a place of this function.
    let found = unsafe { ibv_query_pkey(context, port, 0, &mut first) };
    if found == 0 && first == pkey { 0 } else { -1 }
}

/// See `ibv_get_device_index(3)`: the kernel has no number for it.
pub extern "C" fn ibv_get_device_index(_: *mut ibv_device) -> c_int {
    -1
}

/// Where the kernel's files are, for the library's own programs.
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file without the newline at its end, for the library's own programs; how many bytes were read.
///
/// # Safety
/// Both names are texts, and there is room for so many bytes.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    place: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let directory = unsafe { CStr::from_ptr(directory) };
    // SAFETY: as above.
    let file = unsafe { CStr::from_ptr(file) };
    let (Ok(directory), Ok(file)) = (directory.to_str(), file.to_str()) else { return -1 };
    let Ok(text) = std::fs::read(Path::new(directory).join(file)) else { return -1 };
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    if text.len() >= room {
        return -1;
    }
    // SAFETY: there is room for the text and its end, by the line above.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), text.len()) };
    // SAFETY: as above.
    let end = unsafe { place.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    text.len() as c_int
}
