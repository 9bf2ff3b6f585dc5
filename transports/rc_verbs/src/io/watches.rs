//! What the device and the clock report between two calls of progress: events and ticks, from the worker's asynchronous context.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ucs::sync::atomic::{AtomicBool, Ordering};

use uct_ib::verbs::AsyncEvent;
use uct_ib::{EventListener, IbDevice};
use uct_plugin::abi::UCT_FD_READ;
use uct_plugin::{AsyncId, Error, Failure, Result, Worker};

/// What is handed from the asynchronous context to progress.
pub(crate) struct Mailbox {
    listener: EventListener,
    worker: Worker,
    events: Mutex<VecDeque<AsyncEvent>>,
    is_full: AtomicBool,
    is_tick: AtomicBool,
    /// Whether a tick is worth waking a sleeper.
    is_watched: AtomicBool,
}

// SAFETY: of the worker, only `wake` is called through a shared mailbox, which any thread may; the rest is `Sync` by itself.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    /// Whether there is anything. One load each.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // SYNC: pairs with the Release in the handlers below; a missed value is seen by the next progress.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes everything: events, and whether it is time to check the peers.
    pub(crate) fn take(&self) -> (VecDeque<AsyncEvent>, bool) {
        // SYNC: pairs with the Release in the handlers; cleared ahead of looking, so that what comes later is seen later.
        self.is_full.swap(false, Ordering::Acquire);
        let is_tick = self.is_tick.swap(false, Ordering::Acquire);
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        (events, is_tick)
    }

    /// Whether a tick is worth waking a sleeper from now on.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        // SYNC: pairs with the load in `tick`.
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    fn mark(&self, wakes: bool) {
        // SYNC: pairs with the loads above.
        self.is_full.store(true, Ordering::Release);
        if wakes {
            self.worker.wake();
        }
    }
}

/// The watches of an interface in the worker's asynchronous context; they end when dropped.
pub(crate) struct Watches {
    pub(crate) mailbox: Arc<Mailbox>,
    worker: Worker,
    ids: Vec<AsyncId>,
}

impl Watches {
    pub(crate) fn new(
        device: &IbDevice,
        worker: Worker,
        tick_interval: Option<Duration>,
    ) -> Result<Watches, Failure> {
        let listener =
            device.events.listen().map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        let mailbox = Arc::new(Mailbox {
            listener,
            worker,
            events: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_tick: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        });
        let mut watches = Watches { mailbox, worker, ids: Vec::new() };
        let argument = Arc::as_ptr(&watches.mailbox).cast_mut().cast::<c_void>();
        let fd = watches.mailbox.listener.fd().as_raw_fd();
        // SAFETY: the mailbox lives until the watch has been removed in `drop`, and may be used by any thread.
        let id = unsafe { worker.async_add_fd(fd, UCT_FD_READ, device_event, argument) }?;
        watches.ids.push(id);
        if let Some(interval) = tick_interval {
            // SAFETY: as above.
            let id = unsafe { worker.async_add_timer(interval, tick, argument) }?;
            watches.ids.push(id);
        }
        Ok(watches)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            self.worker.async_remove(id);
        }
    }
}

unsafe extern "C" fn device_event(argument: *mut c_void, _id: u64, _events: u32) {
    // SAFETY: the argument is a mailbox that outlives the watch (`Watches::new`).
    let mailbox = unsafe { &*argument.cast::<Mailbox>() };
    let mut any = false;
    while let Some(event) = mailbox.listener.next() {
        mailbox.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
        any = true;
    }
    if any {
        mailbox.mark(true);
    }
}

unsafe extern "C" fn tick(argument: *mut c_void, _id: u64, _events: u32) {
    // SAFETY: as for device events.
    let mailbox = unsafe { &*argument.cast::<Mailbox>() };
    // SYNC: pairs with the swap in `take`.
    mailbox.is_tick.store(true, Ordering::Release);
    // SYNC: pairs with the store in `set_watched`; one tick later is soon enough.
    mailbox.mark(mailbox.is_watched.load(Ordering::Relaxed));
}
