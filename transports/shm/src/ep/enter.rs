//! Whether an operation may go ahead, and why not.
//!
//! An endpoint is open while nothing speaks against the short way of any operation, so that each tests one number (`link::member`). The
//! host tests the memory gate.

use std::rc::Rc;

use uct_plugin::{Error, Result};

use super::ShmEp;
use crate::iface::count;
use crate::link::channel::Channel;
use crate::link::lack::Lack;
use crate::link::member::{FAILED, FENCED, PENDING, UNCONNECTED};

impl ShmEp {
    /// Gives it its channel.
    pub(crate) fn attach(&self, channel: &Rc<Channel>) {
        if self.channel.set(Rc::clone(channel)).is_ok() {
            self.member.open(UNCONNECTED);
            channel.add_member(&self.member);
        }
    }

    /// The channel, if an operation may go ahead as far as is known without a closer look.
    #[inline]
    pub(crate) fn open(&self) -> Option<&Channel> {
        if !self.member.is_open() {
            return None;
        }
        self.channel.get().map(|channel| &**channel)
    }

    /// The channel, if an operation may go ahead.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&Channel> {
        match self.open() {
            Some(channel) => Ok(channel),
            None => self.enter_carefully(),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_carefully(&self) -> Result<&Channel> {
        let member = &self.member;
        if member.is_closed(FAILED) {
            return Err(member.failure().unwrap_or(Error::IO_ERROR));
        }
        let channel = self.channel.get().ok_or(Error::NOT_CONNECTED)?;
        if member.is_closed(PENDING) {
            if member.group.is_empty() {
                member.open(PENDING);
            } else if channel.pending.must_wait(&member.group) {
                return Err(Error::NO_RESOURCE);
            }
        }
        if member.is_closed(FENCED) {
            if !channel.emulation.is_idle() {
                return Err(self.lacking(Lack::Fence));
            }
            member.open(FENCED);
        }
        Ok(channel)
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
