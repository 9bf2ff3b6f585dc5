//! The side that looks: finds the socket of a process, checks it, and reads the reply.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use ucs::clock::Deadline;
use ucs::sys::SystemError;
use ucs::sys::peer::peer_credentials;
use ucs::sys::process::credentials;
use ucs::text::{PeerText, Visible};

use super::error::AttachError;
use super::place;
use super::reply::{Reply, SCHEMA, Snapshot};

/// How long a process may take to reply: its workers have a second.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a reply.
const MOST_BYTES: usize = 64 << 20;

/// What the process `pid` of this user has done so far. Blocks for a second if a worker there makes no progress, and for 20 s at most.
///
/// # Errors
/// There is no such process; it is another user's; its key `attach` is off; it does not reply.
pub fn read(pid: u32) -> Result<Snapshot, AttachError> {
    check_process(pid)?;
    read_in(&place::directories(), pid)
}

/// The process exists, and is this user's.
fn check_process(pid: u32) -> Result<(), AttachError> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(AttachError::NoProcess { pid })?;
    if test_kill_process(process) == Err(Errno::SRCH) {
        return Err(AttachError::NoProcess { pid });
    }
    let own = credentials().effective_uid;
    match fs::read_to_string(format!("/proc/{pid}/status")).ok().as_deref().and_then(effective_user) {
        Some(owner) if owner != own => Err(AttachError::OtherUser { pid, owner, own }),
        Some(_) => Ok(()),
        None => Err(AttachError::NoProcess { pid }),
    }
}

/// In the `status` of a process.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// As [`read`], where the socket is in one of these directories.
pub(super) fn read_in(directories: &[PathBuf], pid: u32) -> Result<Snapshot, AttachError> {
    let mut problem = None;
    for directory in directories.iter().filter(|directory| directory.symlink_metadata().is_ok()) {
        match place::check(directory).and_then(|()| read_at(&place::socket(directory, pid), pid)) {
            Ok(Some(snapshot)) => return Ok(snapshot),
            Ok(None) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    let searched = || directories.iter().map(|directory| place::socket(directory, pid)).collect();
    Err(problem.unwrap_or_else(|| AttachError::NotEnabled { pid, searched: searched() }))
}

/// What the process says that listens on `path`; `None` if there is no such socket.
fn read_at(path: &Path, pid: u32) -> Result<Option<Snapshot>, AttachError> {
    let mut socket = match place::call(path) {
        Ok(socket) => UnixStream::from(socket),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::CONNREFUSED) => return Err(AttachError::Stale { pid, path: path.to_owned() }),
        Err(Errno::AGAIN) => return Err(AttachError::Busy { pid }),
        Err(errno) => return Err(failure(path, errno.into())),
    };
    let holder = peer_credentials(socket.as_fd())?;
    if holder.pid != pid || holder.uid != credentials().effective_uid {
        return Err(AttachError::Foreign { pid, path: path.to_owned(), holder });
    }
    let text = read_all(&mut socket, path, pid)?;
    let malformed = |problem: String| AttachError::Reply { pid, problem };
    match serde_json::from_slice(&text).map_err(|error| malformed(Visible(&error.to_string()).to_string()))? {
        Reply::Snapshot(snapshot) if snapshot.schema == SCHEMA => Ok(Some(snapshot)),
        Reply::Snapshot(other) => Err(malformed(format!("its schema is {} and not {SCHEMA}", other.schema))),
        Reply::Refused(reason) => {
            Err(AttachError::Refused { pid, reason: PeerText::new(reason).to_string() })
        }
    }
}

/// The bytes up to the end, which comes soon.
pub(super) fn read_all(socket: &mut UnixStream, path: &Path, pid: u32) -> Result<Vec<u8>, AttachError> {
    let deadline = Deadline::after(LIMIT);
    let no_reply = || AttachError::NoReply { pid, limit: LIMIT };
    let system = |error| failure(path, error);
    socket.set_nonblocking(false).map_err(system)?;
    let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
    while !deadline.expired() {
        socket.set_read_timeout(Some(deadline.remaining().max(Duration::from_millis(1)))).map_err(system)?;
        match socket.read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(length) => text.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(no_reply()),
            Err(error) => return Err(system(error)),
        }
        if text.len() > MOST_BYTES {
            return Err(AttachError::Reply { pid, problem: format!("it has more than {MOST_BYTES} bytes") });
        }
    }
    Err(no_reply())
}

fn failure(path: &Path, error: std::io::Error) -> AttachError {
    SystemError::new(format!("read from {}", path.display()), error).into()
}
