//! Room for work requests, what a post counts, and refusals.

use uct_ib::verbs::{PostError, SendFlags};
use uct_plugin::{Error, Result};

use super::Conn;
use crate::io::buffer::MessageBuffer;
use crate::link::op::TxOp;
use crate::proto::send_queue::Unsignaled;

impl Conn {
    /// Whether a work request may be posted now.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.has_room()
            && self.shared.cq_available.get() > 0
            && !self.shared.pending.must_wait(&self.group)
    }

    /// Whether a message may be sent now.
    #[inline]
    pub(crate) fn has_room_for_message(&self) -> bool {
        self.queue.credits() > 0 && self.has_room()
    }

    /// Whether a work request of the endpoint's own may be posted, which neither pending requests nor a fence hold up.
    pub(crate) fn has_own_room(&self) -> bool {
        self.queue.has_own_room() && self.shared.cq_available.get() > 0
    }

    /// Why nothing can be posted now.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        if let Some(error) = self.failure() {
            return error;
        }
        if !self.queue.is_connected() {
            return Error::NOT_CONNECTED;
        }
        self.shared.tx_wanted.set(true);
        if self.shared.cq_available.get() == 0 {
            self.note_blocked();
        }
        Error::NO_RESOURCE
    }

    /// Why no message can be sent now. Without credits the window is too small, and the next message reports that to the peer.
    #[cold]
    pub(crate) fn message_refusal(&self) -> Error {
        if self.queue.credits() == 0 && self.queue.is_connected() {
            self.window.note_blocked();
        }
        self.refusal()
    }

    /// Nothing can be posted before a work request of the interface ends.
    #[cold]
    pub(crate) fn no_resource(&self) -> Error {
        self.shared.tx_wanted.set(true);
        self.note_blocked();
        Error::NO_RESOURCE
    }

    /// The flags of the next work request. A completion is requested if `signaled` is set, once in so many requests,
    /// and when room gets scarce, so that an endpoint that waits for room always gets one. Also returns
    /// the argument of [`Conn::posted`].
    #[inline]
    pub(crate) fn next_flags(&self, signaled: bool) -> (SendFlags, Unsignaled) {
        match self.unsignaled() {
            Some(unsignaled) if !signaled => (SendFlags::NONE, unsignaled),
            _ => (SendFlags::SIGNALED, Unsignaled::NONE),
        }
    }

    /// Set if the next work request needs no completion, neither for this connection nor for the others of the interface.
    #[inline]
    fn unsignaled(&self) -> Option<Unsignaled> {
        if self.shared.cq_available.get() <= self.shared.limits.cq_low {
            return None;
        }
        self.queue.unsignaled(self.shared.limits.moderation)
    }

    /// As [`Conn::next_flags`] for a message without a completion, if one may be sent: [`Conn::has_room_for_message`]
    /// in one go with it.
    #[inline(always)]
    pub(crate) fn message_flags(&self) -> Result<(SendFlags, Unsignaled)> {
        if self.queue.credits() == 0 || self.shared.pending.must_wait(&self.group) {
            return Err(self.message_refusal());
        }
        match self.unsignaled() {
            Some(unsignaled) if self.queue.is_open() => Ok((SendFlags::NONE, unsignaled)),
            _ => self.signaled_flags(),
        }
    }

    #[cold]
    #[inline(never)]
    fn signaled_flags(&self) -> Result<(SendFlags, Unsignaled)> {
        if self.has_room_for_message() { Ok(self.next_flags(true)) } else { Err(self.message_refusal()) }
    }

    /// Accounts for a work request just posted; returns its number.
    #[inline]
    pub(crate) fn posted(&self, unsignaled: Unsignaled) -> u32 {
        self.shared.cq_available.set(self.shared.cq_available.get() - 1);
        self.queue.post(unsignaled)
    }

    /// The id of the next work request: which endpoint, and which request.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.queue.next())
    }

    /// Remembers what is to happen when the work request of this number ends.
    #[inline]
    pub(crate) fn remember(&self, number: u32, op: TxOp) {
        self.shared.tx_wanted.set(true);
        self.outstanding.push(number, op);
    }

    /// Retains the buffer of a message until the work request of this number ends.
    #[inline]
    pub(crate) fn retain_buffer(&self, number: u32, buffer: MessageBuffer) {
        self.outstanding.push(number, TxOp::Buffer(buffer));
    }

    /// Has its pending requests served when any work request of the interface has ended.
    fn note_blocked(&self) {
        if !self.is_blocked.replace(true) {
            self.shared.agenda.note_blocked(self.index);
        }
    }

    /// Has progress handle it: a credit update, a step of an emulated atomic, or reaping.
    #[cold]
    pub(crate) fn defer(&self) {
        if !self.is_deferred.replace(true) {
            self.shared.agenda.defer(self.index);
        }
        self.shared.agenda.add_work();
    }

    /// Has progress fail it.
    #[cold]
    pub(crate) fn fail_later(&self, error: Error, reason: String) {
        self.shared.agenda.fail_later(self.index, error, reason);
    }

    /// What a refused post means for the caller.
    #[cold]
    pub(crate) fn refused(&self, error: PostError) -> Error {
        if error.is_full() {
            self.shared.tx_wanted.set(true);
            self.note_blocked();
            return Error::NO_RESOURCE;
        }
        ucs::log::error!(qp = self.qp.number(), %error, "rc_verbs: a work request was refused");
        Error::from_errno(error.0)
    }
}
