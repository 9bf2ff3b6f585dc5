//! A domain: a net, and the state of its endpoints under the net's lock.

#![expect(unsafe_code, reason = "the state of a protocol is used under the net's lock")]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use uct_core::Context;
use uct_net::protocol::{Engine, Installed};
use uct_net::{Net, NetOptions};

use super::inside::State;
use super::not_opened::{NotOpened, not_opened};
use super::region::Regions;
use super::report::report;
use super::settings::{context, options};
use super::waiter::Waiter;
use super::{Access, Buffer, Counter, Errno, Queue, Region, Totals};

/// A domain: all permitted transports, open, and the endpoints over them. Endpoints keep it.
pub struct Domain {
    /// Ahead of the net, which it is part of.
    installed: Installed<State>,
    net: Net,
    regions: Arc<Regions>,
}

impl Domain {
    /// Opens every transport that the configuration permits. Blocks meanwhile.
    ///
    /// # Errors
    /// No transport could be opened, or the configuration is wrong.
    pub fn open() -> Result<Arc<Domain>, NotOpened> {
        Domain::over(&context()?, options()?)
    }

    /// As [`Domain::open`], with this configuration.
    ///
    /// # Errors
    /// As [`Domain::open`].
    pub fn over(context: &Context, options: NetOptions) -> Result<Arc<Domain>, NotOpened> {
        let failed = |error: uct_net::Error| not_opened(Errno(libc::ENODEV), &error);
        let net = Net::new(context, options).map_err(failed)?;
        let regions = Arc::new(Regions::default());
        let shared = Arc::clone(&regions);
        // SAFETY: the state, its futures and the closures of `with` (in this module and `endpoint`) reach nothing that is not `Send` but what lies
        // in the state, and none of that leaves the lock: what closures return is `Send`.
        let installed =
            unsafe { Installed::new(&net, move |engine| State::new(engine, shared)) }.map_err(failed)?;
        Ok(Arc::new(Domain { installed, net, regions }))
    }

    /// Makes progress: what has arrived, and what is to be sent. Returns whether there was anything.
    pub fn progress(&self) -> bool {
        self.poll().unwrap_or(false)
    }

    /// As [`Domain::progress`], for a program that looks for something to happen.
    ///
    /// # Errors
    /// `FORKED`
    #[inline]
    pub fn poll(&self) -> Result<bool, Errno> {
        self.installed.progress().map_err(|error| forked(&error))
    }

    /// Registers memory for peers, under a key of the program.
    ///
    /// # Errors
    /// The key is taken.
    pub fn register(&self, memory: Buffer, key: u64, access: Access) -> Result<Region, Errno> {
        Region::new(&self.regions, key, memory, access)
    }

    /// Waits until there is something to read in a queue. Makes progress meanwhile.
    ///
    /// # Errors
    /// `AGAIN`: the time is over, or [`Queue::signal`] ended the wait. The queue cannot be waited for. `FORKED`.
    pub fn wait(&self, queue: &Queue, limit: Option<Duration>) -> Result<(), Errno> {
        let waiter = queue.waiter().ok_or(Errno::NOT_SUPPORTED)?;
        self.wait_until(waiter, limit, || !queue.is_empty())
    }

    /// Waits until a counter has this value, or counts a further failure. Makes progress meanwhile.
    ///
    /// # Errors
    /// `AGAIN`: the time is over. Another error: it has counted a failure. The counter cannot be waited for. `FORKED`.
    pub fn wait_counter(
        &self,
        counter: &Counter,
        threshold: u64,
        limit: Option<Duration>,
    ) -> Result<(), Errno> {
        let waiter = counter.waiter().ok_or(Errno::NOT_SUPPORTED)?;
        let errors = counter.errors();
        let is_over = || counter.value() >= threshold || counter.errors() != errors;
        self.wait_until(waiter, limit, is_over)?;
        if counter.errors() != errors { Err(Errno::AVAILABLE) } else { Ok(()) }
    }

    /// Whether the program may sleep on the queue's descriptor; false if there is something to read.
    ///
    /// # Errors
    /// `FORKED`: the descriptor is the parent's, too, and stays as it is.
    pub fn prepare_to_wait(&self, queue: &Queue) -> Result<bool, Errno> {
        self.poll()?;
        if !queue.prepare_to_wait() {
            return Ok(false);
        }
        let _ = self.installed.rest();
        Ok(queue.is_empty())
    }

    /// As [`Domain::prepare_to_wait`], for a counter that has not reached a value yet.
    ///
    /// # Errors
    /// As [`Domain::prepare_to_wait`].
    pub fn prepare_to_wait_for_counter(&self, counter: &Counter) -> Result<(), Errno> {
        self.poll()?;
        counter.arm();
        let _ = self.installed.rest();
        Ok(())
    }

    /// What it has carried.
    pub fn totals(&self) -> Totals {
        self.installed.with(|state, _engine| state.totals()).unwrap_or_default()
    }

    fn wait_until(
        &self,
        waiter: &Waiter,
        limit: Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        // A child of a fork would wait for ever.
        self.poll()?;
        let mut is_signaled = false;
        let over = poll_fn(|context| {
            waiter.arm_with(context.waker());
            is_signaled = waiter.take_signal();
            if is_signaled || is_over() { Poll::Ready(()) } else { Poll::Pending }
        });
        match limit {
            None => self.net.block_on(over),
            Some(limit) => {
                self.net.block_on(self.net.within(limit, over));
            }
        }
        if is_over() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Does something under the net's lock.
    #[inline]
    pub(super) fn with<T: std::marker::Send>(
        &self,
        work: impl FnOnce(&State, &Engine) -> T + std::marker::Send,
    ) -> Result<T, Errno> {
        self.installed.with(work).map_err(|error| forked(&error))
    }

    /// Whether the process is a child of a fork: objects are closed there without effect.
    pub(super) fn is_of_parent(&self) -> bool {
        self.installed.with(|_, _| ()).is_err()
    }
}

/// A call in a child of a fork. The first one is a warning.
#[cold]
fn forked(error: &uct_net::Error) -> Errno {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        ucs::log::warn!("libfabric: a call in a child of a fork: {}", error.reason);
    }
    Errno::FORKED
}

impl Drop for Domain {
    fn drop(&mut self) {
        if let Ok(totals) = self.installed.with(|state, _engine| state.totals()) {
            report(&totals);
        }
    }
}
