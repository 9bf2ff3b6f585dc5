//! The name of a Unix listener in the file system. One that a dead program of this user has left is taken; all others are left alone.
//!
//! Used by `socket`. A name is known to be left behind when no socket is bound to it any more. The attempt to connect that asks this uses
//! another socket type: for a name without a socket the system refuses the connection, and for a name with one it reports the wrong type, whether
//! or not that listens yet, and its owner does not notice.

use std::fs::{self, File, Metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, SockAddr, Socket, Type};
use ucs::memory::fork::ForkGuard;
use ucs::sys::process::credentials;

/// Attempts to be the only program that takes over a name of a directory, and the time between them.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(200);

/// A name that this process has made. Dropping it removes the name, unless it is another's by now; in a child of a fork it is the parent's.
pub(crate) struct Name {
    path: PathBuf,
    /// Device and number of the file. The number is not used again while the socket is open.
    file: (u64, u64),
    fork: ForkGuard,
}

/// Whether an address is a name in the file system, and not an abstract one.
pub(crate) fn is_in_file_system(path: &Path) -> bool {
    path.as_os_str().as_bytes().first().is_some_and(|first| *first != 0)
}

impl Name {
    /// Binds a stream socket to a path.
    ///
    /// # Errors
    /// The system's; what is there in place of a free name, as text for humans.
    pub(crate) fn bind(socket: &Socket, path: &Path) -> Result<Name> {
        let address = SockAddr::unix(path)?;
        // The working directory may be another one when it is removed.
        let path = std::path::absolute(path)?;
        match socket.bind(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => take_over(socket, &address, &path)?,
            outcome => outcome?,
        }
        let file = identity(&fs::symlink_metadata(&path)?);
        Ok(Name { path, file, fork: ForkGuard::new() })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let is_own = || fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.file);
        if self.fork.check().is_ok() && is_own() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Binds a socket to a name that is there, if a dead program of this user has left it.
fn take_over(socket: &Socket, address: &SockAddr, path: &Path) -> Result<()> {
    let in_use = |what: &str| Err(Error::new(ErrorKind::AddrInUse, what.to_owned()));
    // Another program that takes it over at the same time would remove the name that this one makes.
    let Some(_alone) = alone_in(path.parent().unwrap_or(path)) else {
        return in_use("another program is about to listen there: try again");
    };
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return socket.bind(address),
        found => found?,
    };
    let own = credentials().effective_uid;
    if !found.file_type().is_socket() {
        return in_use(&format!("{} is there: remove it, or choose another path", kind(&found)));
    }
    if !is_left(address)? {
        return in_use("another program listens there: choose another port or path");
    }
    if found.uid() != own {
        let words = format!(
            "a program of user {} has left it, and this is user {own}: have it removed, or choose another path",
            found.uid()
        );
        return in_use(&words);
    }
    fs::remove_file(path)?;
    socket.bind(address)
}

/// Whether no socket is bound to a name any more.
fn is_left(address: &SockAddr) -> Result<bool> {
    let probe = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Ok(()) | Err(_) => Ok(false),
    }
}

/// A lock of the directory, which lasts until this is dropped; none if another program keeps it. A directory that this user may not
/// read cannot be locked: then there is no lock.
fn alone_in(directory: &Path) -> Option<Option<File>> {
    let Ok(directory) = File::open(directory) else { return Some(None) };
    for _ in 0..ATTEMPTS {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            // A file system without locks has none to wait for.
            _ => return Some(Some(directory)),
        }
    }
    None
}

fn kind(file: &Metadata) -> &'static str {
    let kind = file.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_file() {
        "a regular file"
    } else {
        "a file that is no socket"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    fn bound(path: &Path) -> Result<(Name, Socket)> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let name = Name::bind(&socket, path)?;
        socket.listen(8)?;
        Ok((name, socket))
    }

    fn refused(path: &Path, words: &str) {
        let Err(error) = bound(path) else { panic!("{words}: it was taken") };
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn a_name_that_a_dead_program_has_left_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let own = bound(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(own);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_anothers_is_left_alone_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "text").unwrap();
        fs::create_dir(path("directory")).unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("link")).unwrap();
        let _listener = UnixListener::bind(path("listener")).unwrap();
        let _datagram = UnixDatagram::bind(path("datagram")).unwrap();
        let silent = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        silent.bind(&SockAddr::unix(path("silent")).unwrap()).unwrap();
        refused(&path("file"), "a regular file is there");
        refused(&path("directory"), "a directory is there");
        refused(&path("link"), "a symbolic link is there");
        for live in ["listener", "datagram", "silent"] {
            refused(&path(live), "another program listens there");
        }
        assert_eq!(fs::read(path("file")).unwrap(), b"text");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6);
    }

    #[test]
    fn a_name_that_another_user_has_left_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        drop(UnixListener::bind(&path).unwrap());
        let other = credentials().effective_uid + 1;
        if std::os::unix::fs::chown(&path, Some(other), None).is_err() {
            eprintln!("skipped: only the administrator can give a file away");
            return;
        }
        refused(&path, &format!("a program of user {other} has left it"));
        assert!(path.exists());
    }

    #[test]
    fn a_successor_keeps_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        let first = bound(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = bound(&path).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn of_many_that_take_over_a_name_at_once_one_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let start = std::sync::Barrier::new(4);
            let taken: Vec<_> = std::thread::scope(|scope| {
                let take = || {
                    start.wait();
                    bound(&path).ok()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(taken.len(), 1);
            UnixStream::connect(&path).unwrap();
        }
    }
}
