//! Where the sockets are: in a directory that only this user can enter.
//!
//! Both sides check owner and mode of the directory, so that no other user can put a socket there or connect to one.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use ucs::sys::trust::{Trust, is_privileged};

use super::error::AttachError;

/// Of the directory.
const MODE: u32 = 0o700;
/// The permissions of all other users.
const OTHERS: u32 = 0o077;
/// Names of a directory that are looked at for sockets of dead processes.
const MOST_NAMES: usize = 1000;

/// The directories in which a process of this user may have its socket, in the order of preference. The variable of a caller with fewer
/// privileges does not count.
pub(super) fn directories() -> Vec<PathBuf> {
    let variable = env::var_os("XDG_RUNTIME_DIR").filter(|_| !is_privileged()).map(PathBuf::from);
    let runtime = variable.filter(|path| path.is_absolute()).map(|path| path.join("uct"));
    let shared = PathBuf::from(format!("/tmp/uct-{}", credentials().effective_uid));
    runtime.into_iter().chain([shared]).collect()
}

/// The first of the directories that can be used; it is made if it is not there.
pub(super) fn prepare() -> Result<PathBuf, AttachError> {
    let mut problem = None;
    for directory in directories() {
        match make(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => problem = Some(error),
        }
    }
    Err(problem.expect("there is a directory at least"))
}

/// Makes a directory, or checks the one that is there.
pub(super) fn make(directory: &Path) -> Result<(), AttachError> {
    let failure = |error| SystemError::new(format!("make the directory {}", directory.display()), error);
    if let Some(above) = directory.parent()
        && let Some(writer) = Trust::of_process().objection_to_directory(above).map_err(failure)?
    {
        return Err(AttachError::Directory { directory: above.to_owned(), problem: writer.to_string() });
    }
    match DirBuilder::new().mode(MODE).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failure(error).into()),
        _ => check(directory),
    }
}

/// Whether a directory is this user's alone. A symbolic link is not.
pub(super) fn check(directory: &Path) -> Result<(), AttachError> {
    let failure = |error| SystemError::new(format!("examine {}", directory.display()), error);
    let found = fs::symlink_metadata(directory).map_err(failure)?;
    let own = credentials().effective_uid;
    let problem = if !found.is_dir() {
        "it is no directory: remove it".to_owned()
    } else if found.uid() != own {
        format!("it belongs to user {}, and this is user {own}: have it removed", found.uid())
    } else if found.mode() & OTHERS != 0 {
        format!("its mode is {:o}, which lets other users in: chmod 700", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(AttachError::Directory { directory: directory.to_owned(), problem })
}

/// The socket of a process.
pub(super) fn socket(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

/// The sockets in a directory: the process that each is named after, and its path.
pub(super) fn sockets(directory: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST_NAMES);
    entries.filter_map(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_socket()).then_some(())?;
        let pid = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
        Some((pid, entry.path()))
    })
}

/// Removes the sockets of dead processes.
pub(super) fn sweep(directory: &Path) {
    for (_, path) in sockets(directory) {
        if call(&path).err() == Some(Errno::CONNREFUSED) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Connects to a socket without waiting.
pub(super) fn call(path: &Path) -> Result<rustix::fd::OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
