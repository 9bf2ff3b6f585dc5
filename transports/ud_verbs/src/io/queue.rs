//! The queue pair of an interface, and the accounting of what is posted to it.
//!
//! Built on `uct_ib::verbs`. Work requests of the send queue end in the order in which they were posted, so
//! a completion confirms all requests ahead of it; one request in so many requests one.

use std::sync::Arc;

use uct_ib::verbs::{
    CompChannel, Context, Cq, InlineData, InlineWr, Pd, PostError, Qp, QpCaps, QpConfig, QpKind, QpState,
    RecvSlot, SendFlags, SendWr, Wc, WcBuffer,
};
use uct_ib::{IbError, PortAddress, WcStatus};
use uct_plugin::{Error, Result};

use crate::io::packet::{MAX_PIECES, Packet};
use crate::io::path::Path;

/// The requested sizes of a queue; the device may have smaller limits.
pub(crate) struct QueueLimits {
    /// Work requests that may be posted for sending.
    pub(crate) sends: u32,
    /// Receive buffers that may be posted.
    pub(crate) receives: u32,
    /// One work request in so many requests a completion.
    pub(crate) moderation: u32,
    /// Pieces of the application's memory in a work request.
    pub(crate) pieces: u32,
    /// Bytes that are copied into a work request.
    pub(crate) inline: u32,
}

/// The key that guards the queue pair against datagrams of other protocols. The highest bit, which needs privileges, is
/// not set.
const QKEY: u32 = 0x1d_c0_d5_17;

/// The queue pair with its completion queues.
pub(crate) struct Queue {
    qp: Qp,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    pub(crate) channel: Arc<CompChannel>,
    /// Numbers of the last work request posted and of the last one known to have ended.
    posted: u32,
    ended: u32,
    /// Number of the last work request that requests a completion, and of the next that has to.
    signaled: u32,
    next_signaled: u32,
    /// With more posted than up to this number it is time to look what has ended.
    reap_behind: u32,
    depth: u32,
    moderation: u32,
    max_inline: usize,
    /// Send errors in a row; the queue was resumed after each.
    errors: u32,
    /// Why nothing goes any more.
    pub(crate) broken: Option<String>,
}

/// Send errors in a row after which the queue pair counts as broken.
const ERRORS: u32 = 100;

impl Queue {
    /// Makes the queues and the queue pair, ready to send and receive.
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: &Arc<Pd>,
        port: &PortAddress,
        wanted: &QueueLimits,
    ) -> Result<Queue, IbError> {
        let channel = CompChannel::new(context)?;
        let limits = context.attr();
        let most = u32::try_from(limits.max_qp_wr).unwrap_or(u32::MAX);
        let entries = u32::try_from(limits.max_cqe).unwrap_or(u32::MAX);
        let sends = wanted.sends.min(most).min(entries);
        let receives = wanted.receives.min(most).min(entries);
        let pieces = u32::try_from(limits.max_sge).unwrap_or(1).max(1);
        let send_cq = Cq::new(context, sends, None, 0)?;
        let recv_cq = Cq::new(context, receives, Some(&channel), 0)?;
        let caps = QpCaps {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: (wanted.pieces + 1).min(pieces).min(1 + MAX_PIECES as u32),
            max_recv_sge: 1,
            max_inline: wanted.inline,
        };
        let setup = QpConfig { kind: QpKind::Ud, send_cq: &send_cq, recv_cq: &recv_cq, srq: None, caps };
        let qp = Qp::new_with_inline_up_to(pd, &setup)?;
        qp.start_ud(port.port.number, port.pkey_index(), QKEY)?;
        let moderation = wanted.moderation.min(sends / 2).max(1);
        let max_inline = qp.caps().max_inline.min(wanted.inline) as usize;
        Ok(Queue {
            qp,
            send_cq,
            recv_cq,
            channel,
            posted: 0,
            ended: 0,
            signaled: 0,
            next_signaled: moderation,
            reap_behind: sends / 2,
            depth: sends,
            moderation,
            max_inline,
            errors: 0,
            broken: None,
        })
    }

    /// Number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Whether a completion queue of this identity is one of its own.
    pub(crate) fn has_cq(&self, identity: usize) -> bool {
        [&self.send_cq, &self.recv_cq].iter().any(|cq| cq.identity() == identity)
    }

    /// Most pieces of the application's memory in a work request.
    pub(crate) fn max_pieces(&self) -> usize {
        (self.qp.caps().max_send_sge as usize).saturating_sub(1).min(MAX_PIECES)
    }

    /// Receive buffers that the queue pair holds.
    pub(crate) fn receive_depth(&self) -> u32 {
        self.qp.caps().max_recv_wr.min(self.recv_cq.capacity())
    }

    /// Bytes that are copied into a work request.
    #[inline]
    pub(crate) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Whether a work request may be posted.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.ended) < self.depth
    }

    /// Whether so much is in flight that it is time to look what has ended.
    #[inline]
    pub(crate) fn should_reap(&self) -> bool {
        (self.reap_behind.wrapping_sub(self.posted) as i32) < 0
    }

    /// All up to this number has ended.
    fn has_come_to(&mut self, number: u32) {
        self.ended = number;
        self.reap_behind = number.wrapping_add(self.depth / 2);
    }

    /// As [`Queue::has_room`], after polling for completions if enough is in flight.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        if self.should_reap() {
            self.reap();
        }
        self.has_room()
    }

    /// Number of the last work request posted.
    pub(crate) fn last_posted(&self) -> u32 {
        self.posted
    }

    /// Whether the work request of this number has ended.
    pub(crate) fn has_ended(&self, number: u32) -> bool {
        self.ended.wrapping_sub(number) as i32 >= 0
    }

    /// Posts a packet: copied if it is small, else read by the device, which `Packet::last_post` then names. `is_signaled` requests a
    /// completion in any case.
    #[inline]
    pub(crate) fn post(&mut self, packet: &mut Packet, path: &Path, is_signaled: bool) -> Result {
        let number = self.posted.wrapping_add(1);
        packet.last_post = number;
        let (has_pieces, wakes) = (packet.has_pieces(), packet.wakes);
        let is_copied = packet.length as usize <= self.max_inline && !has_pieces;
        let is_signaled = is_signaled || has_pieces || number == self.next_signaled;
        let flags = SendFlags::NONE.with(SendFlags::SIGNALED, is_signaled).with(SendFlags::SOLICITED, wakes);
        let posted = if is_copied {
            let pieces = [packet.inline()];
            self.qp.post_inline(InlineWr::send(number.into(), &pieces, flags).to(&path.ah, path.qp, QKEY))
        } else {
            let request = SendWr::send(number.into(), packet.list(), flags).to(&path.ah, path.qp, QKEY);
            // SAFETY: a packet goes back to its pool only when the work request that it names has ended, or when the
            // peer has acknowledged its only copy (`Core::retire`); the same holds for the application's memory in it,
            // which its completion gives back. Address handles live until what was posted to them has ended
            // (`Paths::drop_unused`).
            unsafe { self.qp.post_send(request) }
        };
        self.account(posted, number, is_signaled)
    }

    /// Posts bytes that are copied; no more than [`Queue::max_inline`].
    pub(crate) fn post_copied(&mut self, bytes: &[u8], path: &Path) -> Result {
        let number = self.posted.wrapping_add(1);
        let is_signaled = number == self.next_signaled;
        let flags = SendFlags::NONE.with(SendFlags::SIGNALED, is_signaled);
        let pieces = [InlineData::new(bytes)];
        let posted =
            self.qp.post_inline(InlineWr::send(number.into(), &pieces, flags).to(&path.ah, path.qp, QKEY));
        self.account(posted, number, is_signaled)
    }

    /// Counts the work request of this number, if it was posted.
    #[inline]
    fn account(&mut self, posted: Result<(), PostError>, number: u32, is_signaled: bool) -> Result {
        if let Err(error) = posted {
            return Err(self.refused(error));
        }
        self.posted = number;
        if is_signaled {
            self.signaled = number;
            self.next_signaled = number.wrapping_add(self.moderation);
        }
        Ok(())
    }

    #[cold]
    fn refused(&mut self, error: PostError) -> Error {
        if error.is_full() {
            return Error::NO_RESOURCE;
        }
        self.broken
            .get_or_insert_with(|| format!("the send queue of queue pair {:#x}: {error}", self.qp.number()));
        Error::IO_ERROR
    }

    /// Polls for ended requests. Resumes a queue pair that stopped at a failed request: what was lost is sent again.
    pub(crate) fn reap(&mut self) {
        let mut buffer = WcBuffer::<16>::new();
        loop {
            let completions = match self.send_cq.poll(&mut buffer) {
                Ok(completions) => completions,
                Err(code) => {
                    self.broken.get_or_insert_with(|| format!("the send completion queue returned {code}"));
                    return;
                }
            };
            let mut failed = None;
            for wc in completions {
                // The lower half of the id is the number.
                let number = wc.wr_id() as u32;
                if !self.has_ended(number) {
                    self.has_come_to(number);
                }
                // One that was flushed follows from another, unless the queue pair was stopped from outside.
                if !wc.is_ok() && (failed.is_none() || wc.status() != WcStatus::FLUSHED) {
                    failed = Some(wc.status());
                }
                self.errors = if wc.is_ok() { 0 } else { self.errors };
            }
            let is_last = completions.len() < 16;
            if let Some(status) = failed {
                self.resume(status);
            }
            if is_last {
                return;
            }
        }
    }

    #[cold]
    fn resume(&mut self, status: WcStatus) {
        let state = self.qp.state();
        if status == WcStatus::FLUSHED && matches!(state, Ok(QpState::ReadyToSend)) {
            // It was resumed meanwhile.
            return;
        }
        self.errors += 1;
        ucs::log::debug!(qp = self.qp.number(), %status, "a datagram could not be sent");
        if matches!(state, Ok(QpState::SendError)) && self.errors < ERRORS && self.qp.resume_ud().is_ok() {
            // What was posted behind the failed request is gone with it.
            self.has_come_to(self.posted);
            return;
        }
        if !matches!(state, Ok(QpState::ReadyToSend)) || self.errors >= ERRORS {
            self.broken.get_or_insert_with(|| format!("queue pair {:#x} failed: {status}", self.qp.number()));
        }
    }

    /// Takes up to 16 ended receives.
    #[inline]
    pub(crate) fn poll<'a>(&mut self, buffer: &'a mut WcBuffer<16>) -> &'a [Wc] {
        self.recv_cq.poll(buffer).unwrap_or_else(|code| {
            self.broken.get_or_insert_with(|| format!("the receive completion queue returned {code}"));
            &[]
        })
    }

    /// Posts receive buffers; returns how many were taken.
    ///
    /// # Safety
    /// As [`Qp::post_recv`].
    pub(crate) unsafe fn post_receives(&mut self, slots: &[RecvSlot]) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_recv(slots) }.unwrap_or(0)
    }

    /// Asks for an announcement of the next datagram, or of the next that was sent to wake.
    pub(crate) fn arm(&self, solicited_only: bool) -> Result {
        self.recv_cq.request_notify(solicited_only).map_err(|_| Error::IO_ERROR)
    }

    /// Takes the queue pair out of service: everything posted ends.
    pub(crate) fn stop(&mut self) {
        if let Err(error) = self.qp.fail() {
            ucs::log::debug!(%error, "the queue pair could not be stopped");
        }
    }

    /// After [`Queue::stop`], when it is sure that the device reads nothing any more.
    pub(crate) fn all_ended(&mut self) {
        self.has_come_to(self.posted);
    }

    /// Whether anything posted for sending has not ended.
    pub(crate) fn is_sending(&self) -> bool {
        // Requests behind the last signaled one are not waited for: nothing would report their end.
        !self.has_ended(self.signaled)
    }
}
