//! Where verbs come from: the table of functions of a library, loaded at run time, and whether its devices are hardware.
//!
//! For every object in `verbs/`, which calls the library only through such a table. Built on `uct-ib-abi`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ucs::sys::trust::{Trust, Writer};
use uct_ib_abi::VerbsTable;
use uct_ib_abi::library::Library;

use crate::error::IbError;

/// The file names of the system's library that are tried, in this order.
const LIBRARY_NAMES: &[&str] = &["libibverbs.so.1"];

/// The value of the key `library` that asks for the device in software.
pub const SOFTWARE: &str = "soft";

/// Functions of verbs, and what is known of the devices behind them.
#[derive(Clone, Copy)]
pub struct Verbs {
    table: &'static VerbsTable,
    is_software: bool,
}

impl Verbs {
    /// These functions. The devices of `is_software` are made of software inside this process.
    pub const fn new(table: &'static VerbsTable, is_software: bool) -> Verbs {
        Verbs { table, is_software }
    }

    /// The functions.
    pub fn table(self) -> &'static VerbsTable {
        self.table
    }

    /// Whether the devices are made of software inside this process, and are none of the machine's.
    pub fn is_software(self) -> bool {
        self.is_software
    }
}

/// The verbs of the key `library`: `auto`, `soft`, or the absolute path of a file. Each is loaded on first use and kept for the life of
/// the process, so that contexts with the same value share it.
///
/// A failure is not kept: the next caller tries again.
///
/// # Errors
/// [`IbError::LibraryMissing`] names what was tried and the package that has it; [`IbError::LibrarySymbol`] names a function
/// that the library found does not have; [`IbError::LibraryFile`], [`IbError::LibraryNotTrusted`] and [`IbError::LibraryValue`] name
/// what is wrong with the value.
pub fn load(library: &str) -> Result<Verbs, IbError> {
    static LOADED: Mutex<BTreeMap<String, Verbs>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(verbs) = loaded.get(library) {
        return Ok(*verbs);
    }
    let verbs = match library {
        "auto" => Verbs::new(load_from(LIBRARY_NAMES)?, false),
        SOFTWARE => Verbs::new(uct_ib_soft::table(), true),
        path if path.starts_with('/') => Verbs::new(load_file(path)?, false),
        _ => return Err(IbError::LibraryValue { value: library.to_owned() }),
    };
    loaded.insert(library.to_owned(), verbs);
    Ok(verbs)
}

/// The functions of the first library of these names that there is, without keeping the outcome.
///
/// # Errors
/// As for [`load`].
pub fn load_from(names: &[&str]) -> Result<&'static VerbsTable, IbError> {
    // SAFETY: the initialisers of libibverbs and of the libraries that it needs are written for being loaded late (every user of dlopen
    // does it), and start no thread and install no signal handler. What the user names in its place is trusted to do as much.
    let library = unsafe { Library::open(names)? };
    ucs::log::debug!(library = library.name(), "loaded");
    Ok(Box::leak(Box::new(VerbsTable::of(&library)?)))
}

/// The functions of a file, which has to be this user's or root's, as a plugin has.
fn load_file(path: &str) -> Result<&'static VerbsTable, IbError> {
    let unusable = |reason: String| IbError::LibraryFile { path: path.to_owned(), reason };
    match objection(Path::new(path)).map_err(|error| unusable(error.to_string()))? {
        Some((at, writer)) => Err(IbError::LibraryNotTrusted { path: path.to_owned(), at, writer }),
        None => load_from(&[path]).map_err(|error| match error {
            IbError::LibraryMissing { reason } => unusable(reason),
            other => other,
        }),
    }
}

/// The file, or the directory or link on the way to it, that other users may write to.
fn objection(path: &Path) -> std::io::Result<Option<(PathBuf, Writer)>> {
    let trust = Trust::of_process();
    if let Some(objection) = trust.objection_to_links(path)? {
        return Ok(Some(objection));
    }
    let path = path.canonicalize()?;
    if let Some(writer) = trust.objection(&path.metadata()?) {
        return Ok(Some((path, writer)));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    Ok(trust.objection_to_directory(directory)?.map(|writer| (directory.to_owned(), writer)))
}
