//! The side of the process that is seen: a thread that serves a unix socket, and the workers that it asks.
//!
//! Used by contexts, which share one server in a process, and by workers, which register with it. A client connects, is checked, and gets
//! one reply; it sends nothing.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};
use ucs::event_set::{EventBuffer, EventFd, EventSet, Events};
use ucs::memory::fork::ForkGuard;
use ucs::sys::SystemError;
use ucs::sys::peer::peer_credentials;
use ucs::sys::process::credentials;

use super::error::AttachError;
use super::place;
use super::reply::{Reply, SCHEMA, Snapshot, WorkerReport, WorkerState};

/// How long the workers have, all together, to make progress.
const PROGRESS_LIMIT: Duration = Duration::from_secs(1);
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
        let workers = Arc::new(Workers::default());
        let seen = Arc::clone(&workers);
        let thread =
            thread::Builder::new().name(THREAD.to_owned()).spawn(move || serve(&events, &listener, &seen));
        if let Err(error) = thread.and_then(|_detached| fs::rename(&unfinished, &path)) {
            stop.signal();
            let _ = fs::remove_file(&unfinished);
            return Err(failure(error).into());
        }
        Ok(Server { workers, stop, path, inode, fork: ForkGuard::new() })
    }

    /// Lets clients see a worker of the calling thread. `ask` has the worker send a report from inside its next progress; it returns false if
    /// the worker is gone. `None` in a forked child, whose parent has the thread.
    pub(crate) fn register(
        &self,
        ask: impl Fn(Sender<WorkerReport>) -> bool + Send + 'static,
    ) -> Option<Offer> {
        self.fork.check().ok()?;
        let thread = thread::current();
        let (sender, replies) = channel();
        let mut list = lock(&self.workers.list);
        list.last_number += 1;
        let worker = Arc::new(Registered {
            number: list.last_number,
            thread: rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(),
            thread_name: thread.name().unwrap_or_default().to_owned(),
            line: Mutex::new(Line { ask: Box::new(ask), sender, replies, is_asked: false }),
        });
        list.registered.push(Arc::clone(&worker));
        Some(Offer { workers: Arc::clone(&self.workers), number: worker.number, fork: self.fork })
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

/// A worker that clients can see, until this is dropped.
pub(crate) struct Offer {
    workers: Arc<Workers>,
    number: u64,
    fork: ForkGuard,
}

impl Drop for Offer {
    fn drop(&mut self) {
        // In a child the parent's thread may have held the lock.
        if self.fork.check().is_ok() {
            lock(&self.workers.list).registered.retain(|worker| worker.number != self.number);
        }
    }
}

#[derive(Default)]
struct Workers {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    registered: Vec<Arc<Registered>>,
    last_number: u64,
}

struct Registered {
    number: u64,
    thread: u32,
    thread_name: String,
    /// Used by the thread of the server alone.
    line: Mutex<Line>,
}

/// The way to a worker and back.
struct Line {
    ask: Box<dyn Fn(Sender<WorkerReport>) -> bool + Send>,
    sender: Sender<WorkerReport>,
    replies: Receiver<WorkerReport>,
    /// A request has not been served. There is one at most, so requests do not pile up at a worker that makes no progress.
    is_asked: bool,
}

impl Registered {
    /// Asks for a report; returns false if the worker is gone.
    fn ask(&self) -> bool {
        let mut line = lock(&self.line);
        // What came too late for an earlier client.
        while line.replies.try_recv().is_ok() {
            line.is_asked = false;
        }
        line.is_asked = line.is_asked || (line.ask)(line.sender.clone());
        line.is_asked
    }

    /// Waits for the report.
    fn state(&self, until: Instant) -> WorkerState {
        let mut line = lock(&self.line);
        let report = line.replies.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        line.is_asked = report.is_none();
        WorkerState {
            number: self.number,
            thread: self.thread,
            thread_name: self.thread_name.clone(),
            report,
        }
    }
}

impl Workers {
    /// The state of each worker that is there before and after.
    fn states(&self) -> Vec<WorkerState> {
        let asked: Vec<_> = lock(&self.list).registered.iter().map(Arc::clone).collect();
        let asked: Vec<_> = asked.into_iter().filter(|worker| worker.ask()).collect();
        let until = Instant::now() + PROGRESS_LIMIT;
        let mut states: Vec<WorkerState> = asked.iter().map(|worker| worker.state(until)).collect();
        let list = lock(&self.list);
        let is_there =
            |state: &WorkerState| list.registered.iter().any(|worker| worker.number == state.number);
        states.retain(|state| state.report.is_some() || is_there(state));
        states
    }
}

/// The thread.
fn serve(events: &EventSet, listener: &UnixListener, workers: &Workers) {
    let mut buffer = EventBuffer::<2>::new();
    loop {
        let happened = match events.wait(&mut buffer, None) {
            Ok(happened) => happened,
            Err(error) => return ucs::log::error!("nobody can attach to this process any more: {error}"),
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

/// Serves one client. One that has gone, or that does not read, gets no reply.
fn reply(client: &UnixStream, workers: &Workers) {
    let own = credentials().effective_uid;
    let reply = match peer_credentials(client.as_fd()) {
        Ok(peer) if peer.uid == own => Reply::Snapshot(snapshot(workers)),
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

fn snapshot(workers: &Workers) -> Snapshot {
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    Snapshot {
        schema: SCHEMA,
        pid: std::process::id(),
        program: program.trim_end().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: workers.states(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
