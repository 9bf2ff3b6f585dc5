//! What stands between an endpoint and its channel: whether an operation may go ahead, and why not.
//!
//! For: endpoints. Stands on channels. An endpoint is open while nothing speaks against the short way of any operation, so
//! that each tests one pointer; what does speak against it is a bit of its gate. The host tests the memory gate.

use std::ptr::NonNull;
use std::rc::{Rc, Weak};

use uct_plugin::{Error, Result};

use crate::ep::ShmEp;
use crate::iface::count;
use crate::link::channel::{Broken, Channel};
use crate::link::lack::Lack;

/// The endpoint has failed.
pub(crate) const FAILED: u8 = 1;
/// A fence waits for operations ahead of it.
pub(crate) const FENCED: u8 = 2;
/// Requests are pending.
pub(crate) const PENDING: u8 = 4;
/// It has no channel yet.
pub(crate) const UNCONNECTED: u8 = 8;

impl ShmEp {
    /// Gives it its channel.
    pub(crate) fn attach(&self, channel: &Rc<Channel>) {
        if self.channel.set(Rc::clone(channel)).is_ok() {
            self.open_gate(UNCONNECTED);
            let mut eps = channel.eps.borrow_mut();
            if eps.len() == eps.capacity() {
                eps.retain(|ep| ep.strong_count() > 0);
            }
            eps.push(Weak::clone(&self.me));
        }
    }

    /// From now on every operation answers `error`.
    pub(crate) fn set_failed(&self, error: Error) {
        self.failure.set(Some(error));
        self.shut_gate(FAILED);
    }

    /// Tells the host.
    pub(crate) fn report(&self, broken: &Broken) {
        if !self.is_destroyed.get() {
            self.iface.errors.report(self.user, broken.error, &broken.reason);
        }
    }

    /// Keeps operations back until those ahead are done.
    pub(crate) fn set_fence(&self) {
        if self.channel.get().is_some_and(|channel| !channel.emulation.is_idle()) {
            self.shut_gate(FENCED);
        }
    }

    pub(crate) fn shut_gate(&self, why: u8) {
        self.gate.set(self.gate.get() | why);
        self.open.set(None);
        self.memory_gate.close();
    }

    fn open_gate(&self, why: u8) {
        self.gate.set(self.gate.get() & !why);
        if self.gate.get() == 0 {
            self.open.set(self.channel.get().map(|channel| NonNull::from(&**channel)));
            self.memory_gate.open();
        }
    }

    /// The channel, if an operation may go ahead as far as is known without a closer look.
    #[inline(always)]
    pub(crate) fn open(&self) -> Option<&Channel> {
        // SAFETY: it is what `channel` holds, which is set once and stays.
        self.open.get().map(|channel| unsafe { channel.as_ref() })
    }

    /// The channel, if an operation may go ahead.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<&Channel> {
        if let Some(channel) = self.open() {
            return Ok(channel);
        }
        self.enter_carefully()?;
        self.channel.get().map(|channel| &**channel).ok_or(Error::NOT_CONNECTED)
    }

    #[cold]
    #[inline(never)]
    fn enter_carefully(&self) -> Result {
        let why = self.gate.get();
        if why & FAILED != 0 {
            return Err(self.failure.get().unwrap_or(Error::IO_ERROR));
        }
        if why & UNCONNECTED != 0 {
            return Err(Error::NOT_CONNECTED);
        }
        if why & PENDING != 0 {
            if self.group.is_empty() {
                self.open_gate(PENDING);
            } else if self.channel.get().is_some_and(|channel| channel.pending.must_wait(&self.group)) {
                return Err(Error::NO_RESOURCE);
            }
        }
        if why & FENCED != 0 {
            if self.channel.get().is_some_and(|channel| !channel.emulation.is_idle()) {
                return Err(self.lacking(Lack::Fence));
            }
            self.open_gate(FENCED);
        }
        Ok(())
    }

    /// Notes what is missing, for `pending_add`.
    #[cold]
    #[inline(never)]
    pub(crate) fn lacking(&self, lack: Lack) -> Error {
        self.lack.set(Some(lack));
        count(&self.iface.counts.no_resource);
        if let Some(channel) = self.channel.get() {
            channel.set_short();
        }
        if matches!(lack, Lack::Welcome | Lack::Segment(_)) {
            self.iface.hurry();
        }
        match (lack, self.channel.get().and_then(|channel| channel.broken())) {
            (Lack::Whole, Some(broken)) => broken.error,
            _ => Error::NO_RESOURCE,
        }
    }
}
