//! Sockets and timers of one thread: the tasks that wait for each, and one descriptor to wait on for all.
//!
//! In a child of a fork the sockets are the parent's, and so is what they are waited for with: there, timers alone go on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
#[cfg(any(feature = "async-io", feature = "tokio"))]
use smallvec::SmallVec;
use ucs::event_set::{EventBuffer, EventSet, Events};
use ucs::memory::fork::{ForkGuard, Forked};
use ucs::sys::SystemError;

use crate::wake::wake;

/// The number of the worker's descriptor in the set; sources have theirs from their places.
const WORKER: u64 = u64::MAX;
/// How long a thread sleeps at most in a child of a fork, where no descriptor wakes it.
pub(crate) const CHILD_SLEEP: Duration = Duration::from_millis(1);
/// So long a limit is none, and can be added to any time.
const LONGEST: Duration = Duration::from_secs(1 << 32);

pub(crate) struct Reactor {
    set: EventSet,
    fork: ForkGuard,
    sources: RefCell<Slab<Rc<Wakers>>>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    timers_made: Cell<u64>,
    /// Handshakes that are under way.
    handshakes: Cell<usize>,
    /// The drivers that sleep in a runtime, which may run other tasks of the thread meanwhile. Mostly there is one.
    #[cfg(any(feature = "async-io", feature = "tokio"))]
    sleepers: RefCell<SmallVec<[Waker; 1]>>,
}

/// Who waits for a descriptor.
#[derive(Default)]
struct Wakers {
    read: Direction,
    write: Direction,
}

/// One direction of a descriptor. An attempt is a system call, so there is none between one that would have blocked and the next edge.
#[derive(Default)]
struct Direction {
    waker: Cell<Option<Waker>>,
    would_block: Cell<bool>,
}

impl Direction {
    /// An edge was reported.
    fn is_ready(&self) {
        self.would_block.set(false);
        self.waker.take().into_iter().for_each(wake);
    }
}

/// A descriptor that is watched for as long as this lives.
pub(crate) struct Watched<F: AsFd> {
    file: F,
    reactor: Rc<Reactor>,
    place: usize,
    wakers: Rc<Wakers>,
    is_write_watched: Cell<bool>,
}

impl Reactor {
    /// A reactor that also waits for the worker.
    pub(crate) fn new(worker: BorrowedFd<'_>) -> Result<Reactor, SystemError> {
        let set = EventSet::new()?;
        set.add(worker, Events::READ, WORKER)?;
        Ok(Reactor {
            set,
            fork: ForkGuard::new(),
            sources: RefCell::default(),
            timers: RefCell::default(),
            timers_made: Cell::new(0),
            handshakes: Cell::new(0),
            #[cfg(any(feature = "async-io", feature = "tokio"))]
            sleepers: RefCell::default(),
        })
    }

    /// Whether this is the process that made it, and not a child of a fork.
    #[inline]
    pub(crate) fn check_fork(&self) -> Result<(), Forked> {
        self.fork.check()
    }

    /// Readable when a socket is ready or an armed worker has something to do.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Wakes the tasks that wait for sockets that are ready and for timers that are due. Waits up to `limit`, and no longer than to the next
    /// timer. Returns whether there was anything.
    pub(crate) fn turn(&self, limit: Duration) -> Result<bool, SystemError> {
        self.wait(limit).map(|(has_woken, is_worker_ready)| has_woken || is_worker_ready)
    }

    /// As [`Reactor::turn`], at once. Returns whether a task was woken: what the worker has to do is found by its progress, and its descriptor may
    /// be readable for a while after that.
    pub(crate) fn look(&self) -> bool {
        self.wait(Duration::ZERO).is_ok_and(|(has_woken, _)| has_woken)
    }

    /// Whether it woke tasks, and whether the worker is ready.
    fn wait(&self, limit: Duration) -> Result<(bool, bool), SystemError> {
        let limit = self.next_timer().map_or(limit, |next| limit.min(next));
        if self.check_fork().is_err() {
            std::thread::sleep(limit.min(CHILD_SLEEP));
            return Ok((self.fire(), false));
        }
        let mut buffer = EventBuffer::<64>::new();
        let (mut has_woken, mut is_worker_ready) = (false, false);
        for event in self.set.wait(&mut buffer, Some(limit))? {
            if event.data == WORKER {
                is_worker_ready = true;
                continue;
            }
            has_woken = true;
            let wakers = self.sources.borrow().get(event.data as usize).cloned();
            let Some(wakers) = wakers else { continue };
            let is_error = event.events.contains(Events::ERROR);
            if is_error || event.events.contains(Events::READ) {
                wakers.read.is_ready();
            }
            if is_error || event.events.contains(Events::WRITE) {
                wakers.write.is_ready();
            }
        }
        Ok((self.fire() || has_woken, is_worker_ready))
    }

    /// A driver sleeps from now on, unless a task of the same thread finds something for it to do.
    #[cfg(any(feature = "async-io", feature = "tokio"))]
    pub(crate) fn sleeps(&self, driver: Waker) {
        let mut sleepers = self.sleepers.borrow_mut();
        if !sleepers.iter().any(|other| other.will_wake(&driver)) {
            sleepers.push(driver);
        }
    }

    /// Wakes the drivers for work that no descriptor reports: data that a task has sent, an earlier timer, the end of one of them.
    #[inline]
    pub(crate) fn rouse(&self) {
        #[cfg(any(feature = "async-io", feature = "tokio"))]
        if !self.sleepers.borrow().is_empty() {
            self.wake_sleepers();
        }
    }

    #[cfg(any(feature = "async-io", feature = "tokio"))]
    #[cold]
    fn wake_sleepers(&self) {
        self.sleepers.take().into_iter().for_each(wake);
    }

    /// Whether a handshake is under way: its peer probably answers within microseconds.
    pub(crate) fn has_handshakes(&self) -> bool {
        self.handshakes.get() > 0
    }

    /// A handshake is under way as long as this lives.
    pub(crate) fn begin_handshake(self: &Rc<Reactor>) -> Underway {
        self.handshakes.set(self.handshakes.get() + 1);
        Underway(Rc::clone(self))
    }

    /// When the next timer is due.
    pub(crate) fn first_timer(&self) -> Option<Instant> {
        let timers = self.timers.borrow();
        timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// How long until the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.first_timer().map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Wakes the tasks whose timers are due. Returns whether there were any.
    pub(crate) fn fire(&self) -> bool {
        let mut fired = false;
        loop {
            let mut timers = self.timers.borrow_mut();
            let Some(first) = timers.first_entry() else { return fired };
            if first.key().0 > Instant::now() {
                return fired;
            }
            let waker = first.remove();
            drop(timers);
            wake(waker);
            fired = true;
        }
    }

    /// Watches a descriptor that does not block.
    pub(crate) fn watch<F: AsFd>(self: &Rc<Reactor>, file: F) -> Result<Watched<F>, SystemError> {
        let wakers = Rc::new(Wakers::default());
        let place = self.sources.borrow_mut().insert(Rc::clone(&wakers));
        if let Err(error) = self.set.add(&file, Events::READ | Events::EDGE_TRIGGERED, place as u64) {
            self.sources.borrow_mut().remove(place);
            return Err(error);
        }
        Ok(Watched { file, reactor: Rc::clone(self), place, wakers, is_write_watched: Cell::new(false) })
    }

    /// Ends after that time.
    pub(crate) fn sleep(self: &Rc<Reactor>, time: Duration) -> Sleep {
        Sleep { reactor: Rc::clone(self), due: due(time), key: None }
    }
}

/// When that time is over.
pub(crate) fn due(time: Duration) -> Instant {
    Instant::now() + time.min(LONGEST)
}

impl<F: AsFd> Watched<F> {
    pub(crate) fn get(&self) -> &F {
        &self.file
    }

    /// Whether it is this process's, and not the parent's of a fork.
    pub(crate) fn check_fork(&self) -> Result<(), Forked> {
        self.reactor.check_fork()
    }

    /// Tries `attempt` until it does not answer "would block", whenever the descriptor becomes readable.
    pub(crate) fn poll_read<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&F) -> std::io::Result<T>,
    ) -> Poll<std::io::Result<T>> {
        self.poll(&self.wakers.read, context, attempt)
    }

    /// The next attempts are made, whether or not the descriptor was reported to be ready.
    #[cfg(feature = "tls")]
    pub(crate) fn try_again(&self) {
        self.wakers.read.would_block.set(false);
        self.wakers.write.would_block.set(false);
    }

    /// As [`Watched::poll_read`], whenever it becomes writable.
    pub(crate) fn poll_write<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&F) -> std::io::Result<T>,
    ) -> Poll<std::io::Result<T>> {
        let outcome = self.poll(&self.wakers.write, context, attempt);
        // Watched from the first time that it had no room: otherwise each write that is acknowledged would wake this side.
        if outcome.is_pending() && !self.is_write_watched.replace(true) {
            let events = Events::READ | Events::WRITE | Events::EDGE_TRIGGERED;
            let modified = self.reactor.set.modify(&self.file, events, self.place as u64);
            modified.map_err(|error| std::io::Error::other(error.to_string()))?;
        }
        outcome
    }

    fn poll<T>(
        &self,
        direction: &Direction,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&F) -> std::io::Result<T>,
    ) -> Poll<std::io::Result<T>> {
        while !direction.would_block.get() {
            // What a child of a fork reads or writes would be missing in the parent, or too much.
            self.check_fork().map_err(std::io::Error::other)?;
            match attempt(&self.file) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    direction.would_block.set(true)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
        }
        direction.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl<F: AsFd> Drop for Watched<F> {
    fn drop(&mut self) {
        let _ = self.reactor.set.remove(&self.file);
        self.reactor.sources.borrow_mut().remove(self.place);
    }
}

/// A handshake that is under way.
pub(crate) struct Underway(Rc<Reactor>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.handshakes.set(self.0.handshakes.get() - 1);
    }
}

/// Ends at a time.
pub struct Sleep {
    reactor: Rc<Reactor>,
    due: Instant,
    key: Option<(Instant, u64)>,
}

impl Sleep {
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.forget();
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        let number = self.reactor.timers_made.get();
        self.reactor.timers_made.set(number + 1);
        let key = (self.due, number);
        self.reactor.timers.borrow_mut().insert(key, context.waker().clone());
        self.key = Some(key);
        self.reactor.rouse();
        Poll::Pending
    }

    fn forget(&mut self) {
        if let Some(key) = self.key.take() {
            self.reactor.timers.borrow_mut().remove(&key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_due(context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}
