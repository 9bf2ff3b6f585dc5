//! An endpoint: messages to a peer, its pending requests, and what waits for its acknowledgements.
//!
//! For: the host. Stands on a connection of the interface's core. Put, get and atomics are in `rma`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_ib::verbs::Sge;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::{MemoryAccess, RemoteKey, copy};
use uct_plugin::rma::{Initiator, Notify, Operation};
use uct_plugin::traits::EpUser;
use uct_plugin::{
    Atomic, Completion, Endpoint, Error, Failure, Flush, Former, Iov, Outcome, Pack, PendingGroup, Result,
    Unpack,
};

use crate::iface::UdIface;
use crate::io::memory::Memh;
use crate::io::packet::Packet;
use crate::link::core::Core;
use crate::link::failure::status;
use crate::link::shared::Shared;
use crate::md::OWN;
use crate::proto::addr::{EP_LENGTH, EpAddress, origin};
use crate::proto::{ConnectionId, Phase, Psn};
use crate::rma;

/// An endpoint of `ud_verbs`.
pub(crate) struct UdEp {
    pub(crate) conn: Rc<Conn>,
    pub(crate) iface: Rc<UdIface>,
}

/// A connection that this side owns. The table of connections holds it until its endpoint is destroyed.
pub(crate) struct Conn {
    pub(crate) shared: Rc<Shared>,
    pub(crate) connection: ConnectionId,
    pub(crate) pending: PendingGroup,
    pub(crate) user: EpUser,
    /// Puts, gets and atomics whose answers are awaited.
    pub(crate) initiator: Initiator,
    waits: RefCell<VecDeque<Wait>>,
    checks: RefCell<Vec<Completion>>,
    /// The place up to which an acknowledgement was asked for.
    asked: Cell<Option<Psn>>,
}

/// Where a flush that began at some time ends: messages ahead of a place (none if it began before the connection stood),
/// and operations up to a number.
pub(crate) type Mark = (Option<Psn>, u32);

/// A flush.
struct Wait {
    mark: Mark,
    completion: Completion,
}

/// Bytes of a zero-copy message that are copied nevertheless: that costs less than to be told when the device has read them.
const COPIED: usize = 1024;

impl Conn {
    pub(crate) fn new(shared: &Rc<Shared>, connection: ConnectionId, user: EpUser) -> Conn {
        Conn {
            shared: Rc::clone(shared),
            connection,
            pending: PendingGroup::default(),
            user,
            initiator: rma::initiator(shared.limits.message, shared.limits.operations),
            waits: RefCell::default(),
            checks: RefCell::default(),
            asked: Cell::new(None),
        }
    }

    /// Lets `fill` write a message of up to `length` bytes into a buffer, and sends it; `fill` calls nobody.
    #[inline(always)]
    pub(crate) fn send(&self, kind: u8, length: usize, fill: impl FnOnce(&mut Packet) -> Result) -> Result {
        let shared = &*self.shared;
        if shared.pending.must_wait(&self.pending) {
            return Err(self.queued());
        }
        let guard = shared.enter();
        let sent = guard.with(|core| {
            core.send_filled(self.connection, kind, length, fill)?;
            Ok(core.is_ticking)
        });
        match sent {
            Ok(is_ticking) => {
                shared.sent_while(is_ticking, &guard);
                Ok(())
            }
            Err(error) => Err(self.not_sent(error)),
        }
    }

    /// As [`UdEp::send`] where the application writes the message behind `ahead` bytes, which `head` then fills, knowing
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
        let mut packet = match guard.with(|core| core.packet(self.connection, usize::MAX)) {
            Ok(packet) => packet,
            Err(error) => return Err(self.not_sent(error)),
        };
        // SAFETY: behind the head, the buffer has room for what the attributes promise as `max_bcopy`, initialised.
        let length = unsafe { pack.write(packet.message().wrapping_add(ahead)) };
        // SAFETY: the buffer holds an MTU, which no head of a message exceeds, initialised, and is nobody else's.
        let place = unsafe { std::slice::from_raw_parts_mut(packet.message(), ahead) };
        if let Err(error) = head(place, length) {
            guard.with(|core| core.unsend(packet));
            return Err(error);
        }
        packet.begin(ahead + length, wakes);
        let sent = guard.with(|core| {
            core.send_fitting(self.connection, kind, packet)?;
            Ok(core.is_ticking)
        });
        match sent {
            Ok(is_ticking) => {
                shared.sent_while(is_ticking, &guard);
                Ok(length)
            }
            Err(error) => Err(self.not_sent(error)),
        }
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

    /// Sends the application's memory from where it is, behind `ahead`; answers whether it was copied after all.
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
                packet.set_completion(completion);
            }
            Ok(())
        })?;
        Ok(if is_copied { Outcome::Done } else { Outcome::InProgress })
    }

    /// Why nothing may overtake the requests that wait: they do, or the endpoint has failed.
    #[cold]
    fn queued(&self) -> Error {
        match self.shared.enter().with(|core| core.refusal(self.connection)) {
            Error::NOT_CONNECTED => Error::NO_RESOURCE,
            other => other,
        }
    }

    /// Notes why nothing was sent, so that pending requests are served when it may.
    #[cold]
    fn not_sent(&self, error: Error) -> Error {
        let starved =
            error == Error::NO_RESOURCE && self.shared.enter().with(|core| core.is_starved(self.connection));
        if starved {
            self.shared.starved.set(true);
        }
        error
    }

    /// Whether everything that was sent has taken effect, and been answered.
    fn is_flushed(&self) -> bool {
        let is_sent = |core: &mut Core| {
            // A new endpoint is flushed when it stands.
            core.table.phase(self.connection) != Phase::Connecting
                && core.table.outstanding(self.connection) == 0
                && !core.is_retiring()
        };
        self.initiator.is_idle() && self.shared.enter().with(is_sent)
    }

    /// Where a flush that begins now ends.
    pub(crate) fn mark(&self) -> Mark {
        let place = self.shared.enter().with(|core| {
            let has_begun = core.table.phase(self.connection) != Phase::Connecting;
            has_begun.then(|| core.table.mark(self.connection))
        });
        (place, self.initiator.mark())
    }

    /// How such a flush has ended; `None` while it goes on.
    pub(crate) fn reached(&self, (place, number): Mark) -> Option<Result> {
        let is_sent = |core: &mut Core| {
            let is_there = match place {
                Some(place) => core.table.has_reached(self.connection, place),
                None => core.table.phase(self.connection) != Phase::Connecting,
            };
            is_there && !core.is_retiring()
        };
        if self.shared.enter().with(is_sent) { self.initiator.flushed(rma::OWNER, number) } else { None }
    }

    /// Whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        let phase = self.shared.enter().with(|core| core.table.phase(self.connection));
        matches!(phase, Phase::Finished | Phase::Failed(_) | Phase::Aborted)
    }

    /// Asks the peer for an acknowledgement of all that was sent, once.
    fn ask(&self) {
        let guard = self.shared.enter();
        let mark = guard.with(|core| core.table.mark(self.connection));
        if self.asked.replace(Some(mark)) != Some(mark) {
            guard.with(|core| {
                core.table.request_ack(self.connection);
                core.transmit();
            });
        }
    }

    /// The peer has acknowledged something, or was heard of.
    pub(crate) fn on_news(&self) {
        self.pump();
        self.shared.pending.schedule(&self.pending);
        if !self.waits.borrow().is_empty() || !self.checks.borrow().is_empty() {
            self.serve_waits();
        }
    }

    #[cold]
    fn serve_waits(&self) {
        loop {
            let front = self.waits.borrow().front().map(|wait| wait.mark);
            let Some(result) = front.and_then(|mark| self.reached(mark)) else { break };
            let Some(wait) = self.waits.borrow_mut().pop_front() else { break };
            wait.completion.complete(result);
        }
        let is_alive = self.shared.enter().with(|core| {
            core.table.phase(self.connection) == Phase::Connected && !core.table.is_probing(self.connection)
        });
        if is_alive {
            let checks = std::mem::take(&mut *self.checks.borrow_mut());
            checks.into_iter().for_each(|check| check.complete(Ok(())));
        }
    }

    /// Ends everything that waits with an error.
    pub(crate) fn cancel(&self, error: Error) {
        self.initiator.fail(error);
        let waits = std::mem::take(&mut *self.waits.borrow_mut());
        waits.into_iter().for_each(|wait| wait.completion.complete(Err(error)));
        let checks = std::mem::take(&mut *self.checks.borrow_mut());
        checks.into_iter().for_each(|check| check.complete(Err(error)));
    }

    /// Gives up on everything that is outstanding. The endpoint is good for destruction only.
    fn abort(&self) {
        let guard = self.shared.enter();
        guard.with(|core| {
            core.look_at_clock();
            core.table.abort(core.now, self.connection);
            core.transmit();
        });
        self.shared.touched(&guard);
        self.shared.drain(&guard, self.connection);
        self.cancel(Error::CANCELED);
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
            unsafe { copy(payload.as_ptr(), message.wrapping_add(HEADER), payload.len()) };
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

    /// Ends when everything that was sent so far has been acknowledged, and answered.
    pub(crate) fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            self.abort();
            return Ok(Outcome::Done);
        }
        if self.is_over() {
            return Err(self.queued());
        }
        if self.shared.pending.must_wait(&self.pending) {
            return Err(Error::NO_RESOURCE);
        }
        if self.is_flushed() {
            return self.initiator.flush(rma::OWNER, None);
        }
        if let Some(completion) = completion {
            self.waits.borrow_mut().push_back(Wait { mark: self.mark(), completion });
        }
        self.ask();
        Ok(Outcome::InProgress)
    }

    /// Asks whether the peer lives.
    pub(crate) fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        let guard = self.shared.enter();
        match guard.with(|core| core.table.phase(self.connection)) {
            Phase::Failed(failure) => return Err(status(failure)),
            Phase::Unconnected => return Err(Error::NOT_CONNECTED),
            Phase::Finished | Phase::Aborted => return Err(Error::CANCELED),
            Phase::Connecting | Phase::Connected => {}
        }
        guard.with(|core| {
            core.look_at_clock();
            core.table.probe(core.now, self.connection);
            core.transmit();
        });
        self.shared.touched(&guard);
        match completion {
            Some(completion) => {
                self.checks.borrow_mut().push(completion);
                Ok(Outcome::InProgress)
            }
            None => Ok(Outcome::Done),
        }
    }

    /// What the peer must know to connect to this.
    pub(crate) fn address(&self) -> EpAddress {
        self.shared.enter().with(|core| EpAddress {
            qp: core.queue.number(),
            invitation: core.table.invitation(self.connection),
        })
    }

    /// Connects to a connection of a peer that waits for it.
    pub(crate) fn connect_to(&self, device: &DeviceAddress, peer: EpAddress) -> Result<(), Failure> {
        let guard = self.shared.enter();
        let connected = guard.with(|core| {
            core.check()?;
            let path = core.paths.find(device, peer.qp)?;
            core.look_at_clock();
            let origin = origin(device, peer.qp);
            core.table.connect_to(core.now, self.connection, peer.invitation, origin, path).map_err(|_| {
                Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected already, or was created to be")
            })
        });
        connected?;
        self.shared.touched(&guard);
        Ok(())
    }

    /// The endpoint is gone: what has been sent is still delivered.
    pub(crate) fn close(&self) {
        let guard = self.shared.enter();
        guard.with(|core| {
            core.look_at_clock();
            core.table.close(core.now, self.connection);
            core.transmit();
        });
        self.cancel(Error::CANCELED);
        self.shared.touched(&guard);
    }
}

impl Endpoint for UdEp {
    type Iface = UdIface;
    const ADDRESS_LENGTH: usize = EP_LENGTH;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        self.conn.send_short(id, header, payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.conn.send_short_iov(id, iov)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        self.conn.send_packed(id, 0, pack, signaled, |_, _| Ok(()))
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.send_zcopy(id, header, iov, signaled, completion)
    }

    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &RemoteKey) -> Result {
        self.conn.put_copied(data, remote_address, rkey)
    }

    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &RemoteKey) -> Result<usize> {
        self.conn.put_packed(pack, remote_address, rkey)
    }

    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.put_gathered(iov, remote_address, rkey, completion)
    }

    /// Reads and waits: progress runs inside, so handlers and completions may run too.
    ///
    /// A peer of this very process may be driven by this very thread, which would wait for itself: its memory is read
    /// here, once everything that was asked for before has been answered.
    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &RemoteKey) -> Result {
        let length = buffer.len();
        self.conn.may_get(length)?;
        if let Some(md) = OWN.find(rkey.identity) {
            rkey.check(remote_address, length, MemoryAccess::REMOTE_GET)?;
            if !self.conn.initiator.is_idle() {
                return Err(Error::NO_RESOURCE);
            }
            let (accessor, access) = (&self.iface.targets.accessor, MemoryAccess::REMOTE_GET);
            md.regions.access(accessor, rkey.place(), remote_address, length, access)?.read(0, buffer);
            return Ok(());
        }
        let wait = |done: &dyn Fn() -> bool| self.iface.wait_for(self.conn.connection, done);
        self.conn.get_blocking(buffer, remote_address, rkey, wait)
    }

    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.get_unpacked(unpack, length, remote_address, rkey, completion)
    }

    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.get_scattered(iov, remote_address, rkey, completion)
    }

    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &RemoteKey) -> Result {
        let operation = Operation::Acknowledged(Notify::Nobody);
        self.conn.atomic(atomic, remote_address, rkey, operation).map(drop)
    }

    fn atomic_fetch(
        &self,
        atomic: Atomic,
        former: Former,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.atomic(atomic, remote_address, rkey, Operation::Fetch(former, completion.into()))
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        // SAFETY: the caller's promise.
        unsafe { self.conn.add_pending(request) }
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        self.conn.shared.pending.purge(&self.conn.pending, purge);
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.flush(flags, completion)
    }

    fn fence(&self) -> Result {
        // The peer carries everything out in the order of sending.
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.check(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&self.conn.address().pack());
        Ok(())
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        let device = DeviceAddress::parse(device_address)
            .map_err(|error| Failure::new(Error::INVALID_ADDR, error.to_string()))?;
        let peer =
            EpAddress::parse(ep_address).map_err(|reason| Failure::new(Error::INVALID_ADDR, reason))?;
        self.conn.connect_to(&device, peer)
    }

    fn destroy(self: Rc<Self>) {
        self.iface.forget(self.conn.connection);
        self.conn.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_no_bigger_than_it_was() {
        assert!(size_of::<Conn>() <= 240, "{} bytes", size_of::<Conn>());
    }
}
