//! The file that this code was loaded from.
//!
//! Used by what is found beside a shared library of this project, and by what a library's own name decides.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The shared library or program that this code is a part of, under the name that it was loaded by. `None` if the loader does not know.
pub fn own_file() -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let own = own_file as fn() -> Option<PathBuf>;
    // SAFETY: any address may be asked for, and the place of the answer is ours.
    let status = unsafe { libc::dladdr(own as *const c_void, found.as_mut_ptr()) };
    // SAFETY: of integers and pointers, which were all zero.
    let found = unsafe { found.assume_init() };
    if status == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader's, which stays while the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_itself() {
        let own = own_file().expect("the loader knows").canonicalize().unwrap();
        assert_eq!(own, std::env::current_exe().unwrap().canonicalize().unwrap());
    }
}
