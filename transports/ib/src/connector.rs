//! Connects queue pairs in threads of their own: the kernel blocks the caller while it asks the network for a peer's hardware address.
//!
//! For the endpoints of rc_verbs. Has no part in the verbs themselves: what is to be done for a peer is an [`Attempt`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::error::IbError;
use crate::gid::Gid;

/// How often a peer is tried while the kernel does not learn its hardware address. Each time the kernel waits for a second, in which it
/// sends about one request; a single lost packet must not be fatal.
const ATTEMPTS: u32 = 3;
/// Most threads, so most peers that are tried at once.
const THREADS: usize = 128;
/// Room for what a provider has on the stack.
const STACK_SIZE: usize = 256 << 10;

/// Connecting one queue pair.
pub trait Attempt: Send + 'static {
    /// Whom to. One attempt at a time runs for a peer; the others wait for its outcome.
    fn peer(&self) -> Gid;

    /// Connects. May block.
    ///
    /// # Errors
    /// [`IbError::is_timeout`]: the peer may be tried again.
    fn run(&self) -> Result<(), IbError>;

    /// It has run, and nothing needs it any more.
    fn discard(&self);
}

/// How an attempt ended.
pub struct Outcome {
    /// The number that it was given.
    pub key: u32,
    /// Whom to.
    pub peer: Gid,
    /// The error is that of the last of the attempts.
    pub result: Result<(), IbError>,
    /// How often the peer was tried.
    pub attempts: u32,
}

/// The threads of one interface. There are none while nothing is to be connected, and dropping it waits for them.
pub struct Connector<A: Attempt> {
    shared: Arc<Shared<A>>,
    threads: RefCell<Vec<JoinHandle<()>>>,
}

struct Shared<A> {
    state: Mutex<State<A>>,
    /// Of the caller that waits in [`Connector::start`].
    has_ended: Condvar,
    /// How long it waits.
    patience: Duration,
    notify: Box<dyn Fn() + Send + Sync>,
}

struct State<A> {
    waiting: VecDeque<Job<A>>,
    running: Vec<Running>,
    outcomes: VecDeque<Outcome>,
    /// The caller in [`Connector::start`] takes this outcome itself.
    awaited: Option<u32>,
    threads: usize,
}

struct Job<A> {
    key: u32,
    /// How often its peer was tried since it waits.
    attempts: u32,
    attempt: A,
}

/// What a thread runs. There is one for a peer.
struct Running {
    key: u32,
    peer: Gid,
    is_wanted: bool,
}

impl<A: Attempt> Connector<A> {
    /// `notify` is called by any thread when there is an outcome to take. A caller waits for `patience` where nothing else is tried: longer
    /// than it takes to connect to a peer that the kernel knows, and so short that a caller may wait.
    pub fn new(patience: Duration, notify: impl Fn() + Send + Sync + 'static) -> Connector<A> {
        let state = State {
            waiting: VecDeque::new(),
            running: Vec::new(),
            outcomes: VecDeque::new(),
            awaited: None,
            threads: 0,
        };
        let shared = Shared {
            state: Mutex::new(state),
            has_ended: Condvar::new(),
            patience,
            notify: Box::new(notify),
        };
        Connector { shared: Arc::new(shared), threads: RefCell::default() }
    }

    /// Begins to connect, under a number that no other attempt has. Returns the outcome if it comes soon; otherwise [`Connector::take`]
    /// does. Where no thread can be made it runs in this one.
    pub fn start(&self, key: u32, attempt: A) -> Option<Outcome> {
        self.threads.borrow_mut().retain(|thread| !thread.is_finished());
        let peer = attempt.peer();
        let mut state = self.shared.lock();
        let is_alone = state.waiting.is_empty() && state.running.is_empty();
        let is_of_another = state.running.iter().any(|running| running.peer == peer)
            || state.waiting.iter().any(|job| job.attempt.peer() == peer);
        state.waiting.push_back(Job { key, attempts: 0, attempt });
        // A thread goes on with what waits, so that a peer of which one is tried already needs no thread of its own.
        if !is_of_another && state.threads < THREADS {
            match self.thread() {
                Ok(thread) => {
                    state.threads += 1;
                    self.threads.borrow_mut().push(thread);
                }
                Err(error) if state.threads == 0 => {
                    ucs::log::warn!(%error, "no thread to connect in: this one waits for the peer's hardware address");
                    state.threads = 1;
                    drop(state);
                    serve(&self.shared);
                    state = self.shared.lock();
                }
                Err(_) => {}
            }
        }
        if !is_alone {
            return None;
        }
        state.awaited = Some(key);
        let has_come = |state: &mut State<A>| state.outcomes.iter().all(|outcome| outcome.key != key);
        let waited = self.shared.has_ended.wait_timeout_while(state, self.shared.patience, has_come);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.awaited = None;
        let index = state.outcomes.iter().position(|outcome| outcome.key == key)?;
        state.outcomes.remove(index)
    }

    fn thread(&self) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let builder = Builder::new().name("uct-connect".to_owned()).stack_size(STACK_SIZE);
        builder.spawn(move || serve(&shared))
    }

    /// The outcomes that have come.
    pub fn take(&self) -> VecDeque<Outcome> {
        std::mem::take(&mut self.shared.lock().outcomes)
    }

    /// The attempt of this number has no outcome any more. If it runs, what it connects is discarded when it has ended.
    pub fn cancel(&self, key: u32) {
        let mut state = self.shared.lock();
        let canceled = state.waiting.iter().position(|job| job.key == key);
        let canceled = canceled.and_then(|index| state.waiting.remove(index));
        state.outcomes.retain(|outcome| outcome.key != key);
        if let Some(running) =
            state.running.iter_mut().find(|running| running.key == key && running.is_wanted)
        {
            running.is_wanted = false;
        }
        drop(state);
        // What it holds may take a system call to go.
        drop(canceled);
    }

    /// Ends everything. Waits for what runs, up to a second.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.running.iter_mut().for_each(|running| running.is_wanted = false);
        state.outcomes.clear();
        drop(state);
        drop(waiting);
        for thread in self.threads.take() {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

impl<A: Attempt> Drop for Connector<A> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<A> Shared<A> {
    fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs what waits until nothing does.
fn serve<A: Attempt>(shared: &Shared<A>) {
    let mut state = shared.lock();
    while let Some(job) = state.next() {
        state.running.push(Running { key: job.key, peer: job.attempt.peer(), is_wanted: true });
        drop(state);
        let result = job.attempt.run();
        state = shared.lock();
        let before = state.outcomes.len();
        let unwanted = state.end(job, result);
        let has_outcome = state.outcomes.len() > before;
        let is_awaited = state.outcomes.iter().any(|outcome| Some(outcome.key) == state.awaited);
        drop(state);
        if is_awaited {
            shared.has_ended.notify_one();
        } else if has_outcome {
            (shared.notify)();
        }
        if let Some(unwanted) = unwanted {
            unwanted.discard();
        }
        state = shared.lock();
    }
    state.threads -= 1;
}

impl<A: Attempt> State<A> {
    /// What is to run next: first attempts go ahead of repeats, so that a peer that replies does not wait for those that do not.
    fn next(&mut self) -> Option<Job<A>> {
        let is_free = |job: &Job<A>| self.running.iter().all(|running| running.peer != job.attempt.peer());
        let free = self.waiting.iter().enumerate().filter(|(_, job)| is_free(job));
        let (index, _) = free.min_by_key(|(_, job)| job.attempts)?;
        self.waiting.remove(index)
    }

    /// An attempt has run; returned if nothing needs what it made.
    fn end(&mut self, mut job: Job<A>, result: Result<(), IbError>) -> Option<A> {
        let peer = job.attempt.peer();
        let index = self.running.iter().position(|running| running.peer == peer);
        let is_wanted = index.is_some_and(|index| self.running.swap_remove(index).is_wanted);
        let is_late = result.as_ref().is_err_and(IbError::is_timeout);
        job.attempts += 1;
        if is_late {
            // All that wait for this peer have waited for this attempt.
            let others = self.waiting.iter_mut().filter(|other| other.attempt.peer() == peer);
            others.for_each(|other| other.attempts += 1);
        }
        if !is_wanted {
            return Some(job.attempt);
        }
        if !is_late {
            self.outcomes.push_back(Outcome { key: job.key, peer, result, attempts: job.attempts });
            return None;
        }
        self.waiting.push_back(job);
        let is_over = |job: &Job<A>| job.attempt.peer() == peer && job.attempts >= ATTEMPTS;
        let (over, rest) = std::mem::take(&mut self.waiting).into_iter().partition::<VecDeque<_>, _>(is_over);
        self.waiting = rest;
        for Job { key, attempts, .. } in over {
            self.outcomes.push_back(Outcome { key, peer, result: result.clone(), attempts });
        }
        None
    }
}

#[cfg(test)]
#[path = "connector_tests.rs"]
mod tests;
