//! The table of the system's libibverbs, loaded at run time.
//!
//! For every object in `verbs/`, which calls the library only through such a table. Built on `uct-ib-abi`.

use once_cell::sync::OnceCell;
use uct_ib_abi::VerbsTable;
use uct_ib_abi::library::Library;

use crate::error::IbError;

/// The file names that are tried, in this order.
const LIBRARY_NAMES: &[&str] = &["libibverbs.so.1"];

/// The table of the system's libibverbs, loaded on first use and kept for the life of the process.
///
/// A failure is not kept: the next caller tries again.
///
/// # Errors
/// [`IbError::LibraryMissing`] names what was tried and the package that has it; [`IbError::LibrarySymbol`] names a function
/// that the library found does not have.
pub fn load() -> Result<&'static VerbsTable, IbError> {
    static TABLE: OnceCell<&'static VerbsTable> = OnceCell::new();
    TABLE.get_or_try_init(|| load_from(LIBRARY_NAMES)).copied()
}

/// As [`load`], from libraries of these names, and without keeping the outcome.
///
/// # Errors
/// As for [`load`].
pub fn load_from(names: &[&str]) -> Result<&'static VerbsTable, IbError> {
    // SAFETY: the initialisers of libibverbs and of the libraries that it needs are written for being loaded late (every user of dlopen
    // does it), and start no thread and install no signal handler.
    let library = unsafe { Library::open(names)? };
    ucs::log::debug!(library = library.name(), "loaded");
    Ok(Box::leak(Box::new(VerbsTable::of(&library)?)))
}
