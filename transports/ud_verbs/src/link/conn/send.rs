//! Messages of the application: copied, packed, or sent from its memory.
//!
//! Built on the core, which sends, and on the queue of pending requests, which none may overtake.

use std::ptr::NonNull;

use ucs::memory::copy_small;
use uct_ib::verbs::Sge;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::{Completion, Error, Iov, Outcome, Pack, Result};

use super::Conn;
use crate::io::memory::Memh;
use crate::io::packet::Packet;

/// A zero-copy message of up to so many bytes is copied nevertheless: that costs less than a completion of the device.
const COPIED: usize = 1024;

impl Conn {
    /// Lets `fill` write a message of up to `length` bytes into a buffer, and sends it; `fill` calls nothing of the application's.
    #[inline(always)]
    pub(crate) fn send(&self, kind: u8, length: usize, fill: impl FnOnce(&mut Packet) -> Result) -> Result {
        let shared = &*self.shared;
        if shared.pending.must_wait(&self.pending) {
            return Err(self.queued());
        }
        let guard = shared.enter();
        let sent = guard
            .with(|core| core.send_filled(self.connection, kind, length, fill).map(|()| core.is_ticking));
        if !sent.map_err(|error| self.not_sent(error))? {
            shared.timers.keep_ticking(&guard);
        }
        Ok(())
    }

    /// As [`Conn::send`] where the application writes the message behind `ahead` bytes, which `head` then fills, knowing
    /// the length.
    #[inline(always)]
    pub(crate) fn send_packed(
        &self,
        kind: u8,
        ahead: usize,
        pack: Pack,
        wakes: bool,
        head: impl FnOnce(&mut [u8], usize) -> Result,
    ) -> Result<usize> {
        let shared = &*self.shared;
        if shared.pending.must_wait(&self.pending) {
            return Err(self.queued());
        }
        let guard = shared.enter();
        let packet = guard.with(|core| core.packet(self.connection, usize::MAX));
        let mut packet = packet.map_err(|error| self.not_sent(error))?;
        // SAFETY: behind the head, the buffer has room for what the attributes promise as `max_bcopy`, initialised.
        let packed = unsafe { pack.write(packet.message().wrapping_add(ahead), shared.limits.message) };
        // SAFETY: the buffer holds an MTU, which no head of a message exceeds, initialised, and nothing else uses it.
        let place = unsafe { std::slice::from_raw_parts_mut(packet.message(), ahead) };
        let length = match packed.and_then(|length| head(place, length).map(|()| length)) {
            Ok(length) => length,
            Err(error) => {
                guard.with(|core| core.unsend(packet));
                return Err(error);
            }
        };
        packet.begin(ahead + length, wakes);
        let sent =
            guard.with(|core| core.send_fitting(self.connection, kind, packet).map(|()| core.is_ticking));
        if !sent.map_err(|error| self.not_sent(error))? {
            shared.timers.keep_ticking(&guard);
        }
        Ok(length)
    }

    /// Whether a message may be sent now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_send(&self) -> Result {
        if self.shared.pending.must_wait(&self.pending) {
            return Err(self.queued());
        }
        let guard = self.shared.enter();
        let packet =
            guard.with(|core| core.packet(self.connection, usize::MAX).map(|packet| core.unsend(packet)));
        drop(guard);
        packet.map_err(|error| self.not_sent(error))
    }

    /// Sends the application's memory in place, behind `ahead`; returns whether it was copied nevertheless.
    pub(crate) fn send_zcopy(
        &self,
        kind: u8,
        ahead: &[u8],
        iov: Iov<'_>,
        wakes: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if ahead.len() > self.shared.limits.header || iov.entries().len() > self.shared.limits.pieces {
            return Err(Error::INVALID_PARAM);
        }
        let total = iov.total();
        if ahead.len().saturating_add(total) > self.shared.limits.message {
            return Err(Error::INVALID_PARAM);
        }
        let pieces = self.shared.limits.pieces;
        let is_copied = total <= COPIED
            || iov.blocks().count() > pieces
            || iov.entries().iter().any(|entry| entry.memh.is_null());
        let length = if is_copied { ahead.len() + total } else { ahead.len() };
        self.send(kind, length, |packet| {
            // SAFETY: the buffer holds a message of the length just checked, and is no part of its head.
            unsafe { packet.message().copy_from_nonoverlapping(ahead.as_ptr(), ahead.len()) };
            packet.begin(length, wakes);
            for entry in iov.entries().iter().filter(|entry| !entry.memh.is_null()) {
                // SAFETY: it is not null, so a registration of this domain that lives until the operation has ended.
                let memh = unsafe { &*entry.memh.cast::<Memh>() };
                for place in 0..entry.count as usize {
                    let offset = place.wrapping_mul(entry.stride) as u64;
                    let address = (entry.buffer as u64).wrapping_add(offset);
                    if entry.length > 0 {
                        let lkey = memh.lkey(address, entry.length)?;
                        if !is_copied {
                            packet.add_piece(Sge::new(address, entry.length as u32, lkey))?;
                        }
                    }
                }
            }
            if is_copied {
                // SAFETY: as above, for the application's memory.
                unsafe { iov.gather(packet.message().wrapping_add(ahead.len())) };
            } else {
                packet.completion = completion;
            }
            Ok(())
        })?;
        Ok(if is_copied { Outcome::Done } else { Outcome::InProgress })
    }

    /// Why a send is refused while requests are pending: because of them, or because the endpoint has failed.
    #[cold]
    pub(super) fn queued(&self) -> Error {
        match self.shared.enter().with(|core| core.refusal(self.connection)) {
            Error::NOT_CONNECTED => Error::NO_RESOURCE,
            other => other,
        }
    }

    /// Records why nothing was sent, so that pending requests are served when there is room.
    #[cold]
    fn not_sent(&self, error: Error) -> Error {
        let is_blocked = error == Error::NO_RESOURCE
            && self.shared.enter().with(|core| core.is_blocked_on_shared(self.connection));
        if is_blocked {
            self.shared.is_blocked.set(true);
        }
        error
    }

    /// Sends a message of a header and a payload, both copied.
    #[inline(always)]
    pub(crate) fn send_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        const HEADER: usize = size_of::<u64>();
        if payload.len() > self.shared.limits.message - HEADER {
            return Err(Error::INVALID_PARAM);
        }
        self.send(id, HEADER + payload.len(), |packet| {
            let message = packet.message();
            // SAFETY: the buffer holds header and payload.
            unsafe { message.cast::<u64>().write_unaligned(header) };
            // SAFETY: the payload fits behind the header, and a pool's buffer is no part of it.
            unsafe { copy_small(message.wrapping_add(HEADER), payload.as_ptr(), payload.len()) };
            packet.begin(HEADER + payload.len(), false);
            Ok(())
        })
    }

    /// Sends a message of pieces, all copied.
    pub(crate) fn send_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        let total = iov.total();
        if total > self.shared.limits.message {
            return Err(Error::INVALID_PARAM);
        }
        self.send(id, total, |packet| {
            // SAFETY: the buffer holds a message of the length just checked, and is no part of the vector.
            unsafe { iov.gather(packet.message()) };
            packet.begin(total, false);
            Ok(())
        })
    }

    /// Queues a request until something may be sent.
    ///
    /// # Safety
    /// As [`uct_plugin::Endpoint::pending_add`].
    pub(crate) unsafe fn add_pending(&self, request: NonNull<UctPendingReq>) -> Result {
        if self.initiator.admit().is_ok() {
            match self.may_send() {
                Ok(()) => return Err(Error::BUSY),
                Err(Error::NO_RESOURCE) => {}
                Err(error) => return Err(error),
            }
        }
        // SAFETY: the caller's promise; the group is part of this endpoint, which its interface keeps until the host,
        // which purges first, destroys it.
        unsafe { self.shared.pending.add(&self.pending, request) };
        Ok(())
    }
}
