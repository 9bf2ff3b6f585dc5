//! The workers that are asked for reports, and the way to each of them and back.
//!
//! Used by the server of a process and by programs that ask for reports, each with a list of its own, and by workers, which register with both.
//! A worker collects its report in its own thread, inside progress.

use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ucs::memory::fork::ForkGuard;

use super::reply::{SCHEMA, Snapshot, WorkerReport, WorkerState};

/// How long the workers have, all together, to make progress.
const PROGRESS_LIMIT: Duration = Duration::from_secs(1);

/// The workers that clients of the server can see, or the program.
pub(crate) struct Workers {
    list: Mutex<List>,
    /// Locked while the workers are asked: one request is served after the other.
    asking: Mutex<()>,
    fork: ForkGuard,
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
    /// Used while `asking` is locked.
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

/// A worker that clients can see, until this is dropped.
pub(crate) struct Offer {
    workers: Arc<Workers>,
    number: u64,
}

impl Workers {
    /// None so far.
    pub(super) fn new() -> Workers {
        Workers { list: Mutex::default(), asking: Mutex::default(), fork: ForkGuard::new() }
    }

    /// Lets clients see a worker of the calling thread. `ask` has the worker send a report from inside its next progress; it returns false if
    /// the worker is gone. `None` in a forked child, whose parent has the thread.
    pub(crate) fn register(
        self: &Arc<Workers>,
        ask: impl Fn(Sender<WorkerReport>) -> bool + Send + 'static,
    ) -> Option<Offer> {
        self.fork.check().ok()?;
        let thread = thread::current();
        let (sender, replies) = channel();
        let mut list = lock(&self.list);
        list.last_number += 1;
        let worker = Arc::new(Registered {
            number: list.last_number,
            thread: rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(),
            thread_name: thread.name().unwrap_or_default().to_owned(),
            line: Mutex::new(Line { ask: Box::new(ask), sender, replies, is_asked: false }),
        });
        list.registered.push(Arc::clone(&worker));
        Some(Offer { workers: Arc::clone(self), number: worker.number })
    }

    /// What the process has done so far. Blocks for a second if a worker makes no progress. `None` in a forked child.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.fork.check().ok()?;
        let _asking = lock(&self.asking);
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Some(Snapshot {
            schema: SCHEMA,
            pid: std::process::id(),
            program: program.trim_end().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workers: self.states(),
        })
    }

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

impl Drop for Offer {
    fn drop(&mut self) {
        // In a child the parent's thread may have held the lock.
        if self.workers.fork.check().is_ok() {
            lock(&self.workers.list).registered.retain(|worker| worker.number != self.number);
        }
    }
}

/// Locks. Nothing panics while one of these is locked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
