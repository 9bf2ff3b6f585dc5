//! The ends of operations that a program has not taken yet, and the reasons of those that failed.
//!
//! Operations end under the lock of the net's engine; events are taken without it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ucs::Error as Status;
use ucs::event_set::EventFd;

use super::abi::uct_event;
use super::failure::{Failure, Outcome};

/// Failures that are kept.
const KEPT: usize = 1024;

/// See the module.
#[derive(Default)]
pub struct Events {
    inner: Mutex<Inner>,
    /// Notified when a thread stops waiting.
    left: Condvar,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<uct_event>,
    /// Of threads that wait.
    wakers: Vec<Waker>,
    failures: VecDeque<(u64, Failure)>,
    /// Readable while there are events.
    readable: Option<EventFd>,
    is_raised: bool,
    is_closed: bool,
    /// Threads that wait.
    threads: usize,
}

/// A thread that waits. Nothing is left of it afterwards.
pub struct Waiting<'a> {
    events: &'a Events,
    waker: Option<Waker>,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation has ended.
    #[inline(always)]
    pub fn push(&self, event: uct_event) {
        let mut inner = self.lock();
        if inner.is_closed {
            return;
        }
        inner.waiting.push_back(event);
        if inner.has_listener() {
            announce(inner);
        }
    }

    /// An operation has failed.
    #[cold]
    pub fn push_failure(&self, event: uct_event, failure: Failure) {
        let mut inner = self.lock();
        if inner.is_closed {
            return;
        }
        if inner.failures.len() == KEPT {
            inner.failures.pop_front();
        }
        inner.failures.push_back((event.op, failure));
        inner.waiting.push_back(event);
        announce(inner);
    }

    /// Takes events, the oldest first, as long as `place` has room.
    #[inline(always)]
    pub fn take(&self, room: usize, mut place: impl FnMut(uct_event)) -> usize {
        let mut inner = self.lock();
        let mut count = 0;
        while count < room
            && let Some(event) = inner.waiting.pop_front()
        {
            place(event);
            count += 1;
        }
        inner.lower();
        count
    }

    /// Takes the event of an operation.
    pub fn take_one(&self, op: u64) -> Option<uct_event> {
        let mut inner = self.lock();
        let at = inner.waiting.iter().position(|event| event.op == op)?;
        let event = inner.waiting.remove(at);
        inner.lower();
        event
    }

    /// The calling thread is about to wait.
    pub fn wait(&self) -> Waiting<'_> {
        self.lock().threads += 1;
        Waiting { events: self, waker: None }
    }

    /// The descriptor.
    pub fn descriptor(&self) -> Outcome<RawFd> {
        let mut inner = self.lock();
        if inner.readable.is_none() {
            let made = EventFd::new();
            let readable = made.map_err(|error| Failure::new(Status::EXCEEDS_LIMIT, error.to_string()))?;
            inner.is_raised = !inner.waiting.is_empty();
            if inner.is_raised {
                readable.signal();
            }
            inner.readable = Some(readable);
        }
        let readable = inner.readable.as_ref().expect("made above");
        Ok(readable.as_fd().as_raw_fd())
    }

    /// Whether somebody has asked for the descriptor.
    pub fn has_descriptor(&self) -> bool {
        self.lock().readable.is_some()
    }

    /// Something about the failure of an operation.
    pub fn failure<T>(&self, op: u64, look: impl FnOnce(&Failure) -> T) -> Option<T> {
        let inner = self.lock();
        let found = inner.failures.iter().rev().find(|(failed, _)| *failed == op);
        found.map(|(_, failure)| look(failure))
    }

    /// No event comes any more. Threads that wait are woken; waits until they have left, within this time.
    pub fn close(&self, limit: Duration) {
        let mut inner = self.lock();
        inner.is_closed = true;
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        let waiting = self.left.wait_timeout_while(self.lock(), limit, |inner| inner.threads > 0);
        drop(waiting);
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

/// Tells those who wait of an event.
#[inline(never)]
fn announce(mut inner: MutexGuard<'_, Inner>) {
    if !inner.is_raised
        && let Some(readable) = &inner.readable
    {
        readable.signal();
        inner.is_raised = true;
    }
    let wakers = std::mem::take(&mut inner.wakers);
    drop(inner);
    wakers.into_iter().for_each(Waker::wake);
}

impl Inner {
    /// Whether an event has to be announced.
    fn has_listener(&self) -> bool {
        self.readable.is_some() && !self.is_raised || !self.wakers.is_empty()
    }

    /// Lowers the descriptor if nothing is left.
    fn lower(&mut self) {
        if self.is_raised && self.waiting.is_empty() {
            self.is_raised = false;
            if let Some(readable) = &self.readable {
                readable.drain();
            }
        }
    }
}

impl Waiting<'_> {
    /// Wakes this thread at the next event. False if there will be none, since the net is closed.
    pub fn register(&mut self, waker: &Waker) -> bool {
        let mut inner = self.events.lock();
        if !inner.wakers.iter().any(|other| other.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        let is_open = !inner.is_closed;
        drop(inner);
        self.waker = Some(waker.clone());
        is_open
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.events.lock();
        inner.threads -= 1;
        if let Some(own) = &self.waker {
            inner.wakers.retain(|waker| !waker.will_wake(own));
        }
        drop(inner);
        self.events.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    fn event(op: u64) -> uct_event {
        uct_event { op, ..uct_event::default() }
    }

    #[expect(unsafe_code, reason = "a question to the system")]
    fn is_readable(fd: RawFd) -> bool {
        let mut watched = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, for the time of the call.
        unsafe { libc::poll(&raw mut watched, 1, 0) == 1 }
    }

    #[test]
    fn events_come_in_order_once_and_the_descriptor_is_readable_meanwhile() {
        let events = Events::default();
        events.push(event(1));
        let fd = events.descriptor().unwrap();
        (2..5).for_each(|op| events.push(event(op)));
        assert!(is_readable(fd));
        assert_eq!(events.take_one(3), Some(event(3)));
        assert_eq!(events.take_one(3), None);
        let mut taken = Vec::new();
        assert_eq!(events.take(2, |event| taken.push(event.op)), 2);
        assert!(is_readable(fd));
        assert_eq!(events.take(2, |event| taken.push(event.op)), 1);
        assert!(!is_readable(fd));
        assert_eq!(taken, [1, 2, 4]);
        events.push(event(6));
        assert!(is_readable(fd));
        events.close(Duration::ZERO);
        events.push(event(7));
        assert_eq!(events.take(9, |_| ()), 1);
    }

    /// Of a thread that nothing wakes.
    struct Asleep;

    impl Wake for Asleep {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn nothing_is_left_of_a_thread_that_waits_no_more() {
        let events = Events::default();
        for _ in 0..3 {
            let (mut waiting, waker) = (events.wait(), Waker::from(Arc::new(Asleep)));
            assert!(waiting.register(&waker) && waiting.register(&waker));
            assert_eq!(events.lock().wakers.len(), 1);
        }
        let inner = events.lock();
        assert_eq!((inner.wakers.len(), inner.threads), (0, 0));
    }

    #[test]
    fn the_failures_that_came_last_are_kept() {
        let events = Events::default();
        for op in 0..=KEPT as u64 {
            events.push_failure(event(op), Failure::invalid(format!("reason {op}")));
        }
        let text = |op| events.failure(op, |failure| failure.text.clone());
        assert_eq!((text(0), text(1)), (None, Some("reason 1".to_owned())));
    }
}
