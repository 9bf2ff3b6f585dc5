//! Sleeping and waking: the event descriptor, and what the device and the clock tell while nobody looks.
//!
//! For: the interface. Stands on completion channels, the device's asynchronous events and the worker's timer.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ucs::event_set::{EventSet, Events};
use uct_ib::verbs::{AsyncEvent, CompChannel, Context};
use uct_ib::{EventListener, IbDevice};
use uct_plugin::abi::{UCT_EVENT_RECV, UCT_EVENT_RECV_SIG, UCT_EVENT_SEND_COMP, UCT_FD_READ};
use uct_plugin::{AsyncId, Error, Failure, Result, Worker};

use crate::iface::RcIface;

/// What wakes a sleeper.
pub(crate) struct Wakeup {
    set: EventSet,
    pub(crate) rx: Arc<CompChannel>,
    pub(crate) tx: Arc<CompChannel>,
}

impl Wakeup {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Wakeup, Failure> {
        let system = |error: ucs::sys::SystemError| Failure::new(Error::IO_ERROR, error.to_string());
        let rx = CompChannel::new(context)?;
        let tx = CompChannel::new(context)?;
        let set = EventSet::new().map_err(system)?;
        set.add(rx.fd(), Events::READ, 0).map_err(system)?;
        set.add(tx.fd(), Events::READ, 1).map_err(system)?;
        Ok(Wakeup { set, rx, tx })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }
}

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
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        // SYNC: pairs with the Release in the handlers below; a missed value is seen by the next progress.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes everything: events, and whether it is time for a keepalive.
    fn take(&self) -> (VecDeque<AsyncEvent>, bool) {
        // SYNC: pairs with the Release in the handlers; cleared ahead of looking, so that what comes later is seen later.
        self.is_full.swap(false, Ordering::Acquire);
        let is_tick = self.is_tick.swap(false, Ordering::Acquire);
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        (events, is_tick)
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
    // SYNC: pairs with the store in `arm_for`; one tick later is soon enough.
    mailbox.mark(mailbox.is_watched.load(Ordering::Relaxed));
}

impl RcIface {
    /// Handles what the asynchronous context has left.
    #[cold]
    pub(crate) fn open_mail(&self) {
        let (events, is_tick) = self.watches.mailbox.take();
        for event in events {
            self.handle_event(event);
        }
        if is_tick {
            self.watch_peers();
        }
    }

    /// Arms the descriptor; see `Iface::arm`.
    pub(crate) fn arm_for(&self, events: u32) -> Result {
        if self.state.is_asked() || self.watches.mailbox.is_full() || !self.pending.is_idle() {
            return Err(Error::BUSY);
        }
        // What was announced is taken first; it may be a completion that nobody has seen.
        self.wakeup.rx.drain();
        self.wakeup.tx.drain();
        let io = |_| Error::IO_ERROR;
        // A grant makes room for sends, and comes as a solicited message.
        let receives = events & (UCT_EVENT_RECV | UCT_EVENT_RECV_SIG | UCT_EVENT_SEND_COMP);
        if receives != 0 {
            self.rx_cq.request_notify(events & UCT_EVENT_RECV == 0).map_err(io)?;
        }
        // Emulated atomics take their next step at a completion, whatever the caller sleeps for.
        let sends = events & UCT_EVENT_SEND_COMP != 0 || self.has_emulated();
        if sends {
            self.tx_cq.request_notify(false).map_err(io)?;
        }
        // SYNC: pairs with the load in `tick`.
        self.watches.mailbox.is_watched.store(self.has_something_to_watch(), Ordering::Relaxed);
        // What came before the queues were armed is not announced: it is taken out now, and kept for progress.
        if self.stash() { Err(Error::BUSY) } else { Ok(()) }
    }

    fn has_emulated(&self) -> bool {
        self.eps.all().iter().any(|ep| !ep.emulated.borrow().is_empty())
    }
}
