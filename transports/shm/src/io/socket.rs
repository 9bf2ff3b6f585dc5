//! The unix sockets of connections: whole messages, with descriptors.
//!
//! Used by channels. Built on `rustix`. A listener has an abstract name, which is visible in its network namespace. If a directory is
//! configured, it also has a name there, which is visible to processes that share the directory. All sockets are non-blocking and closed on
//! `exec`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use ucs::sys::SystemError;
use ucs::sys::process::credentials;

pub use ucs::sys::peer::{Credentials, peer_credentials};

/// Most descriptors in one message.
pub const MAX_FDS: usize = 4;
const BACKLOG: i32 = 4096;
/// Names of a directory that are looked at for sockets of dead processes.
const MOST_NAMES: usize = 1000;

/// A listener's name, to connect to.
#[derive(Debug)]
pub struct Target {
    address: SocketAddrUnix,
    /// The name, for messages.
    what: String,
}

/// A pair of sockets (one of them may be missing) on which peers connect.
#[derive(Debug)]
pub struct Listener {
    abstract_socket: OwnedFd,
    in_directory: Option<(OwnedFd, PathBuf)>,
}

/// The name of a listener in the abstract namespace and, with `.sock` added, in a directory.
pub fn name(id: u64) -> String {
    format!("uct-shm-{id:016x}")
}

fn path_in(directory: &Path, id: u64) -> PathBuf {
    directory.join(name(id) + ".sock")
}

impl Target {
    /// The abstract name of `id`.
    pub fn in_namespace(id: u64) -> Result<Target, SystemError> {
        let address = SocketAddrUnix::new_abstract_name(name(id).as_bytes())
            .map_err(|errno| SystemError::new("name a socket", errno))?;
        Ok(Target { address, what: "its socket in this network namespace".to_owned() })
    }

    /// The name of `id` in a directory.
    pub fn in_directory(directory: &Path, id: u64) -> Result<Target, SystemError> {
        let path = path_in(directory, id);
        let what = path.display().to_string();
        let address = SocketAddrUnix::new(path.as_path())
            .map_err(|errno| SystemError::new(format!("use {what} as the name of a socket"), errno))?;
        Ok(Target { address, what })
    }

    /// Connects. `EAGAIN` if more than the listener has room for are waiting there.
    pub fn connect(&self) -> Result<OwnedFd, SystemError> {
        let socket = new_socket()?;
        connect(&socket, &self.address)
            .map_err(|errno| SystemError::new(format!("connect to the peer at {}", self.what), errno))?;
        Ok(socket)
    }
}

fn new_socket() -> Result<OwnedFd, SystemError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| SystemError::new("make a unix socket", errno).of_call("socket of AF_UNIX"))
}

fn bound(target: &Target, mode: Option<Mode>) -> Result<OwnedFd, SystemError> {
    let Target { address, what } = target;
    let socket = new_socket()?;
    if let Some(mode) = mode {
        // The name takes the mode that the socket has when it is bound, so it never has a wider one.
        fchmod(&socket, mode).map_err(|errno| SystemError::new("set the mode of a socket", errno))?;
    }
    bind(&socket, address).map_err(|errno| SystemError::new(format!("bind a socket to {what}"), errno))?;
    listen(&socket, BACKLOG).map_err(|errno| SystemError::new(format!("listen on {what}"), errno))?;
    Ok(socket)
}

impl Listener {
    /// Listens under the name of `id`. Names in `directory` that dead processes of this user have left are removed. `public` is
    /// whether other users may connect by the name there, as far as the umask permits it.
    pub fn new(id: u64, directory: Option<&Path>, public: bool) -> Result<Listener, SystemError> {
        let abstract_socket = bound(&Target::in_namespace(id)?, None)?;
        let mode = if public { Mode::from_raw_mode(0o666) } else { Mode::from_raw_mode(0o600) };
        let in_directory = directory
            .map(|directory| {
                remove_stale(directory);
                let target = Target::in_directory(directory, id)?;
                let socket = bound(&target, Some(mode)).map_err(|error| {
                    error.advise("set UCT_SHM_DIR to a directory that you may write to, or to none")
                })?;
                Ok((socket, path_in(directory, id)))
            })
            .transpose()?;
        Ok(Listener { abstract_socket, in_directory })
    }

    /// The sockets, for waiting on them.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let directory = self.in_directory.as_ref().map(|(socket, _)| socket.as_fd());
        [directory, Some(self.abstract_socket.as_fd())].into_iter().flatten()
    }
}

/// Takes one connection from a listening socket, if there is one.
pub fn accept(listening: BorrowedFd<'_>) -> Result<Option<OwnedFd>, SystemError> {
    match accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(connection) => Ok(Some(connection)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(errno) => Err(SystemError::new("accept a peer's connection", errno)),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.in_directory {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes names of sockets of this user whose process has ended.
///
/// Files of other users are ignored. At most [`MOST_NAMES`] names of a directory are read. The attempt to connect uses another socket type:
/// the kernel refuses it for a name without a socket, and reports "wrong type" for a name with a socket, whose owner does not notice.
fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let own = credentials().effective_uid;
    for entry in entries.take(MOST_NAMES).flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with("uct-shm-") && name.ends_with(".sock")) {
            continue;
        }
        // Of the name itself, not of what a link leads to.
        let is_ours = entry.metadata().is_ok_and(|found| found.file_type().is_socket() && found.uid() == own);
        let Ok(address) = SocketAddrUnix::new(entry.path()) else { continue };
        if !is_ours {
            continue;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return };
        if connect(&socket, &address) == Err(Errno::CONNREFUSED) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A connected socket, and the process at its other end.
pub type Line = (OwnedFd, Credentials);

/// Sends one message with descriptors. `WouldBlock`, as the errno `EAGAIN`, if the peer does not read.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, flags))?;
    Ok(())
}

/// What [`receive`] has found.
#[derive(Debug)]
pub enum Received {
    /// Nothing for now.
    Nothing,
    /// The peer has closed, or is dead.
    Closed,
    /// A message of this length, with its descriptors. A message that did not fit has length 0.
    Message(usize, Vec<OwnedFd>),
}

/// Takes one message.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result =
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags));
    let received = match result {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let fds: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 && fds.is_empty() {
        return Received::Closed;
    }
    let whole = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Received::Message(if whole { received.bytes } else { 0 }, fds)
}

/// Drops one message, with its descriptors, if there is one.
pub fn skip(socket: BorrowedFd<'_>) {
    let _ = rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT);
}

/// Whether the connection has an error or an end that was not read yet; nothing is taken from it.
pub fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0; 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    match rustix::net::recv(socket, &mut byte, flags) {
        Ok((_, length)) => length == 0,
        Err(errno) => errno != Errno::AGAIN && errno != Errno::INTR,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = attempt() {
                return value;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "nothing happened");
            std::thread::yield_now();
        }
    }

    fn connected(id: u64, directory: Option<&Path>) -> OwnedFd {
        let target = match directory {
            Some(directory) => Target::in_directory(directory, id),
            None => Target::in_namespace(id),
        };
        target.unwrap().connect().unwrap()
    }

    fn accepted(listener: &Listener) -> Option<OwnedFd> {
        listener.sockets().find_map(|socket| accept(socket).unwrap())
    }

    #[test]
    fn a_connection_by_either_name_carries_messages_and_descriptors() {
        let directory = tempfile::tempdir().unwrap();
        let id = u64::from(std::process::id()) << 8 | 1;
        let listener = Listener::new(id, Some(directory.path()), false).unwrap();
        for directory in [None, Some(directory.path())] {
            let client = connected(id, directory);
            let (readable, _writable) = rustix::pipe::pipe().unwrap();
            send(client.as_fd(), b"hello", &[readable.as_fd()]).unwrap();
            let server = wait_for(|| accepted(&listener));
            let mut buffer = [0; 16];
            let Received::Message(5, fds) = receive(server.as_fd(), &mut buffer) else {
                panic!("no message")
            };
            assert_eq!((&buffer[..5], fds.len()), (&b"hello"[..], 1));
            assert!(matches!(receive(server.as_fd(), &mut buffer), Received::Nothing));
            let who = peer_credentials(server.as_fd()).unwrap();
            assert_eq!(who.pid, std::process::id());
            assert!(!is_closed(server.as_fd()));
            drop(client);
            assert!(is_closed(server.as_fd()));
            assert!(matches!(receive(server.as_fd(), &mut buffer), Received::Closed));
        }
        drop(listener);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the socket stayed behind");
    }

    #[test]
    fn as_many_descriptors_as_there_may_be_arrive_and_many_more_are_not_sent() {
        let id = u64::from(std::process::id()) << 8 | 7;
        let listener = Listener::new(id, None, false).unwrap();
        let client = connected(id, None);
        let server = wait_for(|| accepted(&listener));
        let (readable, _writable) = rustix::pipe::pipe().unwrap();
        let descriptors = [readable.as_fd(); 2 * MAX_FDS];
        assert_eq!(send(client.as_fd(), b"many", &descriptors), Err(Errno::TOOBIG));
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Nothing));
        send(client.as_fd(), b"", &descriptors[..1]).unwrap();
        send(client.as_fd(), b"many", &descriptors[..MAX_FDS]).unwrap();
        let received = [(); 2].map(|()| match receive(server.as_fd(), &mut [0; 16]) {
            Received::Message(length, fds) => (length, fds.len()),
            other => panic!("{other:?}"),
        });
        assert_eq!(received, [(0, 1), (4, MAX_FDS)], "descriptors without a word are no end");
        skip(server.as_fd());
        send(client.as_fd(), b"first", &[]).unwrap();
        send(client.as_fd(), b"next", &[]).unwrap();
        skip(server.as_fd());
        assert!(!is_closed(server.as_fd()), "the next message is there");
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Message(4, _)));
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Nothing));
    }

    #[test]
    fn other_users_may_connect_by_the_name_in_the_directory_only_where_that_is_wanted() {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let id = u64::from(std::process::id()) << 8 | 8;
        let _private = Listener::new(id, Some(directory.path()), false).unwrap();
        assert_eq!(mode(&path_in(directory.path(), id)), 0o600);
        let _public = Listener::new(id + 1, Some(directory.path()), true).unwrap();
        // As far as the umask permits.
        let plain = directory.path().join("plain");
        let mut options = std::fs::OpenOptions::new();
        options.create_new(true).write(true).mode(0o666).open(&plain).unwrap();
        assert_eq!(mode(&path_in(directory.path(), id + 1)), mode(&plain));
    }

    #[test]
    fn what_was_sent_ahead_of_a_close_still_arrives() {
        let id = u64::from(std::process::id()) << 8 | 2;
        let listener = Listener::new(id, None, false).unwrap();
        let client = connected(id, None);
        send(client.as_fd(), b"last words", &[]).unwrap();
        drop(client);
        let server = wait_for(|| accepted(&listener));
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Message(10, _)));
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Closed));
    }

    #[test]
    fn a_message_that_does_not_fit_is_not_taken_for_a_shorter_one() {
        let id = u64::from(std::process::id()) << 8 | 3;
        let listener = Listener::new(id, None, false).unwrap();
        let client = connected(id, None);
        send(client.as_fd(), &[1; 64], &[]).unwrap();
        let server = wait_for(|| accepted(&listener));
        assert!(matches!(receive(server.as_fd(), &mut [0; 16]), Received::Message(0, _)));
    }

    #[test]
    fn a_name_that_a_dead_process_left_is_removed_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let base = u64::from(std::process::id()) << 8;
        let dead = Listener::new(base | 4, Some(directory.path()), false).unwrap();
        // As SIGKILL leaves it: the socket closed, its name there.
        let path = path_in(directory.path(), base | 4);
        let kept = directory.path().join("kept");
        std::fs::hard_link(&path, &kept).unwrap();
        drop(dead);
        std::fs::rename(&kept, &path).unwrap();
        let live = Listener::new(base | 5, Some(directory.path()), false).unwrap();
        let _next = Listener::new(base | 6, Some(directory.path()), false).unwrap();
        assert!(accepted(&live).is_none(), "the live one was disturbed");
        assert!(!path.exists(), "the dead one's name is still there");
        assert!(path_in(directory.path(), base | 5).exists());
    }

    #[test]
    fn an_unused_address_is_an_error_with_the_reason() {
        let error = Target::in_namespace(1).unwrap().connect().unwrap_err();
        assert!(error.to_string().contains("network namespace"), "{error}");
        let error = Target::in_directory(Path::new("/no/such/place"), 1).unwrap().connect().unwrap_err();
        assert!(error.to_string().contains("/no/such/place/uct-shm-"), "{error}");
    }
}
