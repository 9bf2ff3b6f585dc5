//! The shared library that this code is a part of, if it is not the program itself.
//!
//! Used by the search for plugins: a library that is installed as `lib/libNAME.so` has them in `lib/uct`, wherever the programs are that use it.

use std::ffi::{CStr, OsStr, c_void};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Its directory, without symbolic links.
pub(super) fn directory() -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let own = directory as fn() -> Option<PathBuf>;
    // SAFETY: any address may be asked for, and the place of the answer is ours.
    let status = unsafe { libc::dladdr(own as *const c_void, found.as_mut_ptr()) };
    // SAFETY: of integers and pointers, which were all zero.
    let found = unsafe { found.assume_init() };
    if status == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader's, which stays while the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    let file = fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()?;
    let program = fs::canonicalize("/proc/self/exe").ok();
    if program.as_ref() == Some(&file) {
        return None;
    }
    Some(file.parent()?.to_owned())
}
