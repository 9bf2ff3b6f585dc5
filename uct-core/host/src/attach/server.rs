//! The side of the process that is seen: a thread that serves a unix socket.
//!
//! Used by contexts, which share one server in a process. Built on `workers`, whose reports it sends. A client connects, is checked, and gets
//! one reply; it sends nothing.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use ucs::event_set::{EventBuffer, EventFd, EventSet, Events};
use ucs::memory::fork::ForkGuard;
use ucs::sys::SystemError;
use ucs::sys::peer::peer_credentials;
use ucs::sys::process::credentials;

use super::error::AttachError;
use super::place;
use super::reply::Reply;
use super::workers::{Workers, lock};

/// How long a client may leave the reply unread.
const READ_LIMIT: Duration = Duration::from_secs(1);
/// Between two attempts to accept a client while the system is out of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The name of the thread.
pub(super) const THREAD: &str = "uct-attach";
/// Numbers in the event set.
const STOP: u64 = 0;
const CLIENT: u64 = 1;

/// That of this process. Locked while the socket is made or removed.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// The thread ends and the socket is removed when this is dropped.
pub(crate) struct Server {
    workers: Arc<Workers>,
    stop: Arc<EventFd>,
    path: PathBuf,
    /// Of the socket's file: another server of this process may have put its own in the place.
    inode: u64,
    fork: ForkGuard,
}

impl Server {
    /// The one of this process; started if it is not there. It does not wait for clients.
    ///
    /// # Errors
    /// The directory of the sockets cannot be used, or there is no thread or descriptor left.
    pub(crate) fn shared() -> Result<Arc<Server>, AttachError> {
        let mut shared = lock(&SHARED);
        let found = shared.upgrade().filter(|server| server.fork.check().is_ok());
        if let Some(server) = found {
            return Ok(server);
        }
        let server = Arc::new(Server::start(&place::prepare()?)?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    /// Starts one whose socket is in `directory`.
    pub(super) fn start(directory: &Path) -> Result<Server, AttachError> {
        place::sweep(directory);
        let pid = std::process::id();
        let path = place::socket(directory, pid);
        let failure =
            |error: std::io::Error| SystemError::new(format!("listen on {}", path.display()), error);
        // A client finds no socket that does not listen yet, nor one that an earlier process of this number has left.
        let unfinished = directory.join(format!(".{pid}"));
        let _ = fs::remove_file(&unfinished);
        let listener = UnixListener::bind(&unfinished).map_err(failure)?;
        listener.set_nonblocking(true).map_err(failure)?;
        let inode = fs::symlink_metadata(&unfinished).map_err(failure)?.ino();
        let stop = Arc::new(EventFd::new()?);
        let events = EventSet::new()?;
        events.add(&*stop, Events::READ, STOP)?;
        events.add(&listener, Events::READ, CLIENT)?;
        let workers = Arc::new(Workers::new());
        let seen = Arc::clone(&workers);
        // The thread has the descriptor too: one that is closed behind its signal is not reported any more.
        let signalled = Arc::clone(&stop);
        let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            serve(&events, &listener, &seen);
            drop(signalled);
        });
        if let Err(error) = thread.and_then(|_detached| fs::rename(&unfinished, &path)) {
            stop.signal();
            let _ = fs::remove_file(&unfinished);
            return Err(failure(error).into());
        }
        Ok(Server { workers, stop, path, inode, fork: ForkGuard::new() })
    }

    /// The workers that clients see.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.fork.check().is_err() {
            // Thread and socket are the parent's.
            return;
        }
        let _shared = lock(&SHARED);
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
        self.stop.signal();
    }
}

/// The thread.
fn serve(events: &EventSet, listener: &UnixListener, workers: &Workers) {
    let mut buffer = EventBuffer::<2>::new();
    loop {
        let happened = match events.wait(&mut buffer, None) {
            Ok(happened) => happened,
            Err(error) => {
                return ucs::log::error!("attaching to this process is no longer possible: {error}");
            }
        };
        for event in happened {
            if event.data == STOP {
                return;
            }
            match listener.accept() {
                Ok((client, _)) => reply(&client, workers),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The client waits meanwhile.
                Err(_) => thread::sleep(RETRY),
            }
        }
    }
}

/// Whether a client has hung up, such as one that looked whether this process is there. Clients send nothing.
fn has_gone(client: &UnixStream) -> bool {
    let mut byte = [0];
    recv(client, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(_, length)| length == 0)
}

/// Serves one client. One that has gone, or that does not read, gets no reply.
fn reply(client: &UnixStream, workers: &Workers) {
    if has_gone(client) {
        return;
    }
    let own = credentials().effective_uid;
    let reply = match peer_credentials(client.as_fd()) {
        Ok(peer) if peer.uid == own => match workers.snapshot() {
            Some(snapshot) => Reply::Snapshot(snapshot),
            None => Reply::Refused("it is the child of a fork".to_owned()),
        },
        Ok(peer) => Reply::Refused(format!("it belongs to user {own}, and the client is {peer}")),
        Err(error) => Reply::Refused(error.to_string()),
    };
    let Ok(text) = serde_json::to_vec(&reply) else { return };
    if client.set_write_timeout(Some(READ_LIMIT)).is_err() {
        return;
    }
    let mut rest = &text[..];
    while !rest.is_empty() {
        match rustix::io::retry_on_intr(|| send(client, rest, SendFlags::NOSIGNAL)) {
            Ok(sent) => rest = &rest[sent..],
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_hung_up_is_told_from_one_that_waits() {
        let (client, ours) = UnixStream::pair().expect("a pair");
        assert!(!has_gone(&ours));
        drop(client);
        assert!(has_gone(&ours));
    }
}
