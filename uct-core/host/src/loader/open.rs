//! Opens a file as a shared library and asks it for its table.
//!
//! Used by [`load`](super::load). Built on `libloading`. A library that was opened once stays for the life of the
//! process: its thread-locals and its functions may be in use from anywhere.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    mem::ManuallyDrop,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use ucs::sys::trust::Trust;
use uct_abi::{UCT_PLUGIN_SYMBOL_PREFIX, UctPlugin, UctPluginEntry};

use super::{
    elf,
    failure::LoadFailureKind,
    search::{PluginFile, check_file},
};

/// The table that the file's exported function returns; may be null, and is not checked yet.
pub(super) fn plugin_table(file: &PluginFile, trust: &Trust) -> Result<*const UctPlugin, LoadFailureKind> {
    check_file(&file.path, trust)?;
    check_format(&file.path)?;
    let flags = RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: to load a library is to run its constructors, so this trusts the file as code: it lies in a directory
    // that the user named, or beside the program, and bears a plugin's name. It was found whole just now.
    let library = unsafe { Library::open(Some(&file.path), flags) };
    let library = ManuallyDrop::new(library.map_err(|error| open_failure(&file.path, error))?);
    let symbol = format!("{UCT_PLUGIN_SYMBOL_PREFIX}{}", file.name);
    // SAFETY: exporting a symbol of this name is a promise that it is such a function.
    let entry = unsafe { library.get::<UctPluginEntry>(symbol.as_str()) };
    let entry = entry.map_err(|_| LoadFailureKind::NoSymbol { symbol })?;
    // SAFETY: the entry function asks for nothing; the library is never unloaded.
    Ok(unsafe { entry() })
}

fn check_format(path: &Path) -> Result<(), LoadFailureKind> {
    let unreadable = |error: io::Error| LoadFailureKind::Unreadable { error: Arc::new(error) };
    // What was a file a moment ago may be a FIFO by now.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut file = opened.map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut head = Vec::with_capacity(elf::HEAD);
    file.by_ref().take(elf::HEAD as u64).read_to_end(&mut head).map_err(unreadable)?;
    let headers = elf::headers(&head, length)?;
    file.seek(SeekFrom::Start(headers.offset)).map_err(unreadable)?;
    let mut program_headers = vec![0; headers.length];
    file.read_exact(&mut program_headers).map_err(unreadable)?;
    elf::segments(&program_headers, length)
}

fn open_failure(path: &Path, error: libloading::Error) -> LoadFailureKind {
    let message = match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    };
    match missing_library(path, &message) {
        Some(library) => LoadFailureKind::MissingLibrary { library, message },
        None => LoadFailureKind::Refused { message },
    }
}

/// The name ahead of glibc's "cannot open shared object file"; for the plugin itself that is the plugin's path.
fn missing_library(path: &Path, message: &str) -> Option<String> {
    let (library, _) = message.split_once(": cannot open shared object file")?;
    (Path::new(library) != path).then(|| library.to_owned())
}
