//! Threads in `block_on`: what wakes them, with descriptors that are kept from one call to the next. The first one is made with the net, since
//! unauthenticated peers may leave none later.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use ucs::event_set::EventFd;
use ucs::sys::SystemError;

use super::lock::lock;

/// How long a thread sleeps at most for which there is no descriptor.
const NAP: Duration = Duration::from_millis(1);
/// How many descriptors are kept.
const MAX_KEPT: usize = 16;

/// Sleepers that no thread uses. Each has a descriptor.
pub(super) struct Sleepers(Mutex<Vec<Arc<Sleeper>>>);

impl Sleepers {
    /// With one for the first thread.
    pub(super) fn new() -> Result<Sleepers, SystemError> {
        let first = Sleeper { event: EventFd::new()?.into(), ..Sleeper::default() };
        Ok(Sleepers(Mutex::new(vec![Arc::new(first)])))
    }

    /// One for the calling thread, woken: its future is polled first.
    pub(super) fn take(&self) -> Taken<'_> {
        let kept = lock(&self.0).pop();
        let sleeper = kept.unwrap_or_default();
        // SYNC: read by this thread, or by others that write the same.
        sleeper.is_woken.store(true, Ordering::Relaxed);
        Taken { sleepers: self, sleeper }
    }
}

/// A thread's sleeper. It is kept for another call afterwards. A waker that is left of this call wakes that one in vain.
pub(super) struct Taken<'a> {
    sleepers: &'a Sleepers,
    sleeper: Arc<Sleeper>,
}

impl Taken<'_> {
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.sleeper))
    }
}

impl Deref for Taken<'_> {
    type Target = Sleeper;

    fn deref(&self) -> &Sleeper {
        &self.sleeper
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // In a child of a fork another thread may have it for ever.
        let Ok(mut kept) = self.sleepers.0.try_lock() else { return };
        if self.event.get().is_some() && kept.len() < MAX_KEPT {
            kept.push(Arc::clone(&self.sleeper));
        }
    }
}

/// Wakes a thread in `block_on`.
#[derive(Default)]
pub(super) struct Sleeper {
    is_woken: AtomicBool,
    is_asleep: AtomicBool,
    /// Made ahead of the first sleep for which the system has one.
    event: OnceLock<EventFd>,
}

impl Sleeper {
    pub(super) fn take(&self) -> bool {
        // The flag is mostly down, and a load is cheaper than a swap.
        // SYNC: what was made ready ahead of a `wake` is seen by the poll that follows.
        self.is_woken.load(Ordering::Acquire) && self.is_woken.swap(false, Ordering::AcqRel)
    }

    /// Sleeps by `sleep`, unless it was woken: with a descriptor that wakes it, or for a short time.
    pub(super) fn sleep(
        &self,
        until: Option<Instant>,
        sleep: impl FnOnce(Option<&EventFd>, Option<Instant>),
    ) {
        let event = self.event();
        // SYNC: with the stores and loads of `wake_by_ref` in one order: one of the two sees what the other has written.
        self.is_asleep.store(true, Ordering::SeqCst);
        // SYNC: as above.
        if !self.is_woken.load(Ordering::SeqCst) {
            let nap = event.is_none().then(|| Instant::now() + NAP);
            sleep(event, until.into_iter().chain(nap).min());
        }
        // SYNC: a wake that still sees it raises a descriptor in vain.
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    fn event(&self) -> Option<&EventFd> {
        if self.event.get().is_none()
            && let Ok(event) = EventFd::new()
        {
            // This thread alone makes it.
            let _ = self.event.set(event);
        }
        self.event.get()
    }
}

/// Sleeps until this thread is woken, or for a short time.
pub(super) fn wait_for(own: Option<&EventFd>) {
    use rustix::event::{PollFd, PollFlags, poll};

    match own {
        Some(own) => {
            let _ = poll(&mut [PollFd::new(own, PollFlags::IN)], None);
            own.drain();
        }
        None => thread::sleep(NAP),
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SYNC: see `sleep`.
        self.is_woken.store(true, Ordering::SeqCst);
        // SYNC: as above.
        if self.is_asleep.load(Ordering::SeqCst)
            && let Some(event) = self.event.get()
        {
            event.signal();
        }
    }
}
