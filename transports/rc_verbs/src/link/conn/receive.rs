//! Credits: a received message takes one from the peer and may carry some for this side; credits for the peer.

use uct_ib::verbs::{InlineWr, SendFlags};
use uct_plugin::Error;

use super::Conn;
use crate::proto::wire::{Immediate, Message};

impl Conn {
    /// What a message means for the windows of both sides; returns what to make of it.
    #[inline(always)]
    pub(crate) fn account(&self, immediate: Immediate) -> Message {
        let shared = &*self.shared;
        if immediate.has_grant() {
            if immediate.was_blocked() {
                shared.rx.widen(&self.window);
            }
            if !self.queue.gain(immediate) {
                return self.misbehaves("the peer granted more credits than the largest window has");
            }
            if !self.group.is_empty() {
                shared.pending.schedule(&self.group);
            }
        }
        let message = immediate.message();
        match message {
            Message::Active(_) => match shared.rx.windows.taken(&self.window) {
                Some(left) if left > u32::from(self.window.size()) / 2 => message,
                Some(left) => {
                    self.grant_more(left);
                    message
                }
                None => self.without_credit(message),
            },
            Message::Grant => message,
            Message::Unknown => self.misbehaves("the peer sent a message of an unknown kind"),
        }
    }

    /// The peer sent a message without a credit: it uses the buffers of others. Messages that were in flight
    /// when the window was closed are delivered.
    #[cold]
    #[inline(never)]
    fn without_credit(&self, message: Message) -> Message {
        if self.window.size() == 0 {
            return message;
        }
        self.misbehaves("the peer sent more messages than it had credits")
    }

    /// Has progress end the endpoint of a peer that breaks the rules; its message is dropped.
    #[cold]
    #[inline(never)]
    fn misbehaves(&self, reason: &str) -> Message {
        self.fail_later(Error::IO_ERROR, reason.to_owned());
        Message::Unknown
    }

    /// The peer has `left` credits, at most half of its window. New credits travel with the next message;
    /// if none was sent when a quarter is left, an explicit credit update is sent.
    #[inline(never)]
    fn grant_more(&self, left: u32) {
        if self.window.unadvertised() == 0 {
            self.shared.rx.grant_more(&self.window);
        }
        if self.window.is_low(left) {
            self.defer();
        }
    }

    /// Sends an explicit credit update, if no message has carried the credits; returns false if there is no room.
    pub(crate) fn send_grant(&self) -> bool {
        let shared = &*self.shared;
        // Credits of a destroyed endpoint are of no use.
        if self.failure().is_some() || !self.queue.is_connected() || self.is_destroyed() {
            return true;
        }
        if !self.window.is_due() {
            return true;
        }
        if self.window.unadvertised() == 0 {
            shared.rx.grant_more(&self.window);
        }
        if self.window.unadvertised() == 0 {
            // No buffers until handlers release some; or the window is closed.
            return self.window.size() == 0;
        }
        if !self.has_own_room() {
            return false;
        }
        let (flags, unsignaled) = self.next_flags(false);
        // Wakes a peer that waits for credits.
        let flags = flags.and(SendFlags::SOLICITED);
        let immediate = Immediate::grant(self.window.grant());
        let request = InlineWr::send_immediate(self.next_id(), &[], immediate.0, flags);
        if self.qp.post_inline(request).is_err() {
            return false;
        }
        self.window.note_advertised();
        self.posted(unsignaled);
        self.queue.note_unawaited();
        shared.credit_updates.set(shared.credit_updates.get() + 1);
        true
    }
}
