//! When carried out puts and posted atomics are acknowledged: at once, or together with what the application replies.
//!
//! An application that replies to a put sends an acknowledgement and its reply. In one system call they are at the peer
//! earlier than in two. One that has sent something between an acknowledgement and the progress after it is expected to do so again.

use uct_plugin::rma::RESPONSE_HEADER;

use super::Conn;
use crate::link::shared::Shared;
use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// Bytes of an acknowledgement, which needs no padding.
const FRAME: usize = FRAME_HEADER + RESPONSE_HEADER;

/// How the next acknowledgement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// By the progress that carries out the requests.
    AtOnce,
    /// By the next progress, ahead of what the application sends until then.
    WithReply,
    /// One waits for that progress.
    Waits,
}

impl Conn {
    /// Whether requests were carried out and not acknowledged.
    #[inline(always)]
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.target.has_unacknowledged()
    }

    /// Acknowledges at once what was carried out.
    pub(super) fn acknowledge(&self, shared: &Shared) {
        if let Some(frame) = self.acknowledgement() {
            let (header, payload) = frame.split_at(FRAME_HEADER);
            self.queue_response(shared, header, payload.into());
        }
    }

    /// Acknowledges what was carried out, at once or by the next progress.
    #[inline(never)]
    pub(super) fn acknowledge_frames(&self, shared: &Shared) {
        if self.manner.get() == Manner::AtOnce || self.error().is_some() {
            self.acknowledge(shared);
            self.acknowledged_epoch.set(shared.epoch());
            return;
        }
        let Some(frame) = self.acknowledgement() else { return };
        self.manner.set(Manner::Waits);
        if !self.dirty.replace(true) {
            shared.agenda.note_dirty_later(self.id);
        }
        self.append(shared, frame.as_slice());
    }

    fn acknowledgement(&self) -> Option<[u8; FRAME]> {
        let payload = self.target.acknowledge()?;
        let mut frame = [0; FRAME];
        frame[..FRAME_HEADER]
            .copy_from_slice(&frame_header(control::RESPONSE, RESPONSE_HEADER).to_ne_bytes());
        frame[FRAME_HEADER..].copy_from_slice(&payload);
        Some(frame)
    }

    /// Something begins to be collected: a reply, if an acknowledgement has just been sent.
    #[inline]
    pub(super) fn note_collected(&self, shared: &Shared) {
        if self.manner.get() == Manner::AtOnce && self.acknowledged_epoch.get() == shared.epoch() {
            self.manner.set(Manner::WithReply);
        }
    }

    /// Before what was collected is sent: an acknowledgement that has waited in vain is the last one to wait.
    pub(crate) fn note_replies(&self) {
        if self.manner.get() == Manner::Waits {
            let has_reply = self.queued_bytes() > FRAME;
            self.manner.set(if has_reply { Manner::WithReply } else { Manner::AtOnce });
        }
    }
}
