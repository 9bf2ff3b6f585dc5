//! The shared library that this code is a part of, if it is not the program itself.
//!
//! Used by the search for plugins: a library that is installed as `lib/libNAME.so` has them in `lib/uct`, wherever the programs are that use it.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use ucs::sys::own_file::own_file;

/// Its directory, without symbolic links.
pub(super) fn directory() -> Option<PathBuf> {
    let file = fs::canonicalize(own_file()?).ok()?;
    let program = fs::canonicalize("/proc/self/exe").ok();
    if program.as_ref() == Some(&file) {
        return None;
    }
    Some(file.parent()?.to_owned())
}
