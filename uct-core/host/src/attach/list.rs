//! The processes that can be attached to: those whose sockets are in the directories of this user.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use ucs::sys::peer::peer_credentials;
use ucs::sys::process::credentials;

use super::error::AttachError;
use super::place;

/// A process that can be attached to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Attachable {
    /// The process.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub program: String,
    /// Its effective user: that of this process.
    pub user: u32,
    /// Since when: the time at which it made its first context with the key `attach`, in seconds since 1970.
    pub since: u64,
}

/// The processes of this user that can be attached to, in the order of their numbers. Blocks for some system calls. What dead processes have
/// left is not contained.
///
/// # Errors
/// A directory of the sockets may be another user's, and no process was found in another one.
pub fn list() -> Result<Vec<Attachable>, AttachError> {
    list_in(&place::directories())
}

/// As [`list`], where the sockets are in these directories.
pub(super) fn list_in(directories: &[PathBuf]) -> Result<Vec<Attachable>, AttachError> {
    let (mut found, mut problem) = (BTreeMap::new(), None);
    for directory in directories.iter().filter(|directory| directory.symlink_metadata().is_ok()) {
        match place::check(directory) {
            Ok(()) => found.extend(
                place::sockets(directory).filter_map(|(pid, path)| Some((pid, Attachable::at(pid, &path)?))),
            ),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match problem {
        Some(problem) if found.is_empty() => Err(problem),
        _ => Ok(found.into_values().collect()),
    }
}

impl Attachable {
    /// The process of this number, if it is the one that listens on the socket.
    fn at(pid: u32, path: &Path) -> Option<Attachable> {
        let user = credentials().effective_uid;
        match place::call(path) {
            Ok(socket) => {
                let holder = peer_credentials(socket.as_fd()).ok()?;
                (holder.pid == pid && holder.uid == user).then_some(())?;
            }
            // It is stopped, and clients wait.
            Err(Errno::AGAIN) => {}
            Err(_) => return None,
        }
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned();
        let made = fs::symlink_metadata(path).and_then(|socket| socket.modified()).ok()?;
        let since = made.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Some(Attachable { pid, program, user, since })
    }
}
