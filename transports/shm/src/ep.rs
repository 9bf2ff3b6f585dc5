//! The endpoint: sends messages to a ring, and carries out put, get and atomics on remote memory by the shortest path.
//!
//! Used by the host. Built on channels and remote keys. `direct` contains the access to remote memory, `remote`
//! the operations that the peer carries out.

mod direct;
mod enter;
mod remote;

use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;
use std::rc::Rc;

use ucs::memory::copy_small;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::Gate;
use uct_plugin::rma::{ByTransport, Destination, Notify, Operation};
use uct_plugin::traits::EpUser;
use uct_plugin::{
    Atomic, Completion, Endpoint, Error, Failure, Flush, Iov, MemoryAccess, OldValue, Outcome, Pack,
    PeerAddress, Result, Unpack,
};
use zerocopy::IntoBytes;

use self::direct::Direct;
use crate::iface::ShmIface;
use crate::link::blocked::BlockedOn;
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::limits::MAX_HEADER;
use crate::link::member::{Member, PENDING};
use crate::link::remote::Rkey;
use crate::link::work::source;
use crate::proto::addr;
use crate::proto::ring::{INLINE_BYTES, Sent};

/// Bytes of a header: one word.
const WORD: usize = size_of::<u64>();

/// An endpoint.
pub(crate) struct ShmEp {
    pub(crate) member: Rc<Member>,
    pub(crate) connection: OnceCell<Rc<Connection>>,
    pub(crate) iface: Rc<ShmIface>,
    /// What the last operation was blocked on.
    blocked_on: Cell<Option<BlockedOn>>,
}

impl ShmEp {
    /// An endpoint without a connection.
    pub(crate) fn new(iface: &Rc<ShmIface>, user: EpUser) -> Rc<ShmEp> {
        let number = iface.next_ep.get();
        iface.next_ep.set(number.wrapping_add(1));
        Rc::new(ShmEp {
            member: Rc::new(Member::new(user, number)),
            connection: OnceCell::new(),
            iface: Rc::clone(iface),
            blocked_on: Cell::new(None),
        })
    }

    /// Sends `length` bytes that `fill` writes, at most the size of a bulk segment.
    #[inline(always)]
    fn send(&self, id: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Result {
        let channel = &self.enter()?.channel;
        let owned_line = channel.rings.owns_line();
        channel.send(id, length, fill).map_err(|on| self.blocked(on))?;
        if owned_line && !channel.rings.owns_line() {
            self.iface.expect_reply(&channel.rings);
        }
        Ok(())
    }

    /// Sends a message that fits a slot or the line. `None`: there is no room as far as is known.
    #[inline]
    fn send_short(
        &self,
        channel: &Channel,
        id: u8,
        length: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<Result> {
        let is_sent_in_line = channel.rings.fits_line(length);
        let sent = channel.rings.send(id, length, fill)?;
        if is_sent_in_line {
            self.iface.expect_reply(&channel.rings);
        }
        Some(if sent == Sent::Quiet { Ok(()) } else { channel.attended() })
    }

    /// Sends a message of a length that the caller has checked.
    #[inline]
    fn send_copy(
        &self,
        channel: &Channel,
        id: u8,
        length: usize,
        fill: impl FnOnce(*mut u8) + Copy,
    ) -> Result {
        if channel.rings.fits_slot_or_line(length)
            && let Some(sent) = self.send_short(channel, id, length, fill)
        {
            return sent;
        }
        self.send(id, length, fill)
    }

    /// Checks whether there is room for a message of any length, before it is packed.
    #[cold]
    fn find_room(&self, channel: &Channel) -> Result {
        let block = channel.reserve(self.iface.limits.bulk).map_err(|on| self.blocked(on))?;
        channel.rings.sender.cancel(block);
        Ok(())
    }

    /// Carries an atomic out on mapped memory. `None`: the peer has to carry it out.
    #[inline(always)]
    fn atomic_here(
        &self,
        connection: &Connection,
        atomic: Atomic,
        address: u64,
        rkey: &Rkey,
    ) -> Result<Option<u64>> {
        atomic.check_alignment(address)?;
        let range = (address, atomic.width.bytes(), MemoryAccess::REMOTE_ATOMIC);
        match self.reach(connection, rkey, range)? {
            Some(Direct::Mapped(cell)) => cell.atomic(atomic).map(Some),
            Some(Direct::Kernel(..)) | None => Ok(None),
        }
    }

    /// A message that is not written to the next slot of the ring: longer, sent in the line, or not possible now.
    #[inline(never)]
    fn am_short_slow(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let length = WORD + payload.len();
        // SAFETY: there is room for `length` bytes, aligned to 8.
        let fill = |body: *mut u8| unsafe { write_short(body, header, payload) };
        if length > self.iface.limits.short {
            return Err(Error::INVALID_PARAM);
        }
        if let Some(Connection { channel, .. }) = self.open()
            && channel.rings.fits_slot_or_line(length)
            && let Some(sent) = self.send_short(channel, id, length, fill)
        {
            return sent;
        }
        self.send(id, length, fill)
    }
}

/// Writes the header, and the payload behind it.
///
/// # Safety
///
/// `target` is writable for both, aligned to 8, and no part of the payload.
#[inline(always)]
unsafe fn write_short(target: *mut u8, header: u64, payload: &[u8]) {
    if payload.len() == WORD {
        // A payload of one word is frequent.
        // SAFETY: the payload is a word.
        let word = unsafe { payload.as_ptr().cast::<u64>().read_unaligned() };
        // SAFETY: the caller's promise.
        unsafe { target.cast::<[u64; 2]>().write([header, word]) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { target.cast::<u64>().write(header) };
    // SAFETY: as above.
    let target = unsafe { target.add(size_of::<u64>()) };
    // SAFETY: as above.
    unsafe { copy_small(target, payload.as_ptr(), payload.len()) };
}

/// The operation is done, so the completion is not needed.
#[inline(always)]
fn done(completion: Option<Completion>) -> Result<Outcome> {
    let _ = completion;
    Ok(Outcome::Done)
}

impl Endpoint for ShmEp {
    type Iface = ShmIface;
    type Remote = ByTransport;
    const ADDRESS_LENGTH: usize = addr::EP_LENGTH;
    const MAX_IOV: usize = 64;

    #[inline]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let length = WORD + payload.len();
        if length <= INLINE_BYTES
            && let Some(Connection { channel, .. }) = self.open()
            && !channel.rings.owns_line()
            // SAFETY: a slot has room for INLINE_BYTES bytes, aligned to 8.
            && let Some(sent) = channel.rings.sender.try_short(id, length, |body| unsafe {
                write_short(body, header, payload);
            })
        {
            return if sent == Sent::Quiet { Ok(()) } else { channel.attended() };
        }
        self.am_short_slow(id, header, payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        let length = iov.total();
        if length > self.iface.limits.short {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: `send` gives room for all of it.
        self.send(id, length, |target| unsafe {
            iov.gather(target);
        })
    }

    #[inline]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        let channel = &self.enter()?.channel;
        if !channel.rings.sender.has_room_for_any() {
            self.find_room(channel)?;
        }
        // Not in the slot or segment, because the peer may write there.
        self.iface.with_scratch(|scratch| {
            // SAFETY: the buffer has the size of the largest message.
            let length = unsafe { pack.write(scratch.as_mut_ptr(), usize::MAX) }?;
            // SAFETY: so many bytes were packed into the buffer, and there is room for them.
            let copy = |target| unsafe { copy_small(target, scratch.as_ptr(), length) };
            if channel.rings.fits_slot_or_line(length)
                && let Some(sent) = self.send_short(channel, id, length, copy)
            {
                return sent.map(|()| length);
            }
            // Not ahead of this, since a short message cannot be longer than the buffer.
            if length > scratch.len() {
                return Err(Error::INVALID_PARAM);
            }
            self.send(id, length, copy).map(|()| length)
        })
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        _signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let length = iov.total().saturating_add(header.len());
        if length > self.iface.limits.bulk || header.len() > MAX_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        self.send_copy(&self.enter()?.channel, id, length, |target| {
            // SAFETY: there is room for header and vector.
            unsafe { copy_small(target, header.as_ptr(), header.len()) };
            // SAFETY: as above.
            let target = unsafe { target.add(header.len()) };
            // SAFETY: as above.
            unsafe { iov.gather(target) };
        })?;
        done(completion)
    }

    fn gate(&self) -> Option<&Gate> {
        Some(self.member.memory_gate())
    }

    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        match self.reach(connection, rkey, (remote_address, data.len(), MemoryAccess::REMOTE_PUT))? {
            Some(target) => target.write(data),
            None => self.remote_put_short(connection, data, remote_address, rkey),
        }
    }

    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &Rkey) -> Result<usize> {
        let connection = self.enter()?;
        // Checked before packing, because packed data would be lost if the region cannot be accessed.
        if self.reach(connection, rkey, (remote_address, 0, MemoryAccess::REMOTE_PUT))?.is_none() {
            self.find_room_for_request(connection)?;
        }
        // Not in the target: the application must have no reference to memory that its owner reads and writes.
        self.iface.with_scratch(|scratch| {
            // SAFETY: the buffer has the size of the largest message.
            let length = unsafe { pack.write(scratch.as_mut_ptr(), usize::MAX) }?;
            self.put_short(scratch.get(..length).ok_or(Error::INVALID_PARAM)?, remote_address, rkey)?;
            Ok(length)
        })
    }

    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let connection = self.enter()?;
        match self.reach(connection, rkey, (remote_address, iov.total(), MemoryAccess::REMOTE_PUT))? {
            Some(target) => target.gather(iov)?,
            None => return self.remote_put_zcopy(connection, iov, remote_address, rkey, completion),
        }
        done(completion)
    }

    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        match self.reach(connection, rkey, (remote_address, buffer.len(), MemoryAccess::REMOTE_GET))? {
            Some(source) => source.read(buffer),
            None => self.remote_get_short(connection, buffer, remote_address, rkey),
        }
    }

    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let connection = self.enter()?;
        if length > self.iface.limits.remote {
            return Err(Error::INVALID_PARAM);
        }
        let Some(source) =
            self.reach(connection, rkey, (remote_address, length, MemoryAccess::REMOTE_GET))?
        else {
            let destination = Destination::unpack(unpack);
            return self.remote_get(connection, destination, length, (rkey, remote_address), completion);
        };
        // As for put: the owner may write to the source while the application unpacks.
        self.iface.with_scratch(|scratch| {
            let copy = &mut scratch[..length];
            source.read(copy)?;
            unpack.read(copy);
            Ok(())
        })?;
        done(completion)
    }

    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let connection = self.enter()?;
        let length = iov.total();
        match self.reach(connection, rkey, (remote_address, length, MemoryAccess::REMOTE_GET))? {
            // SAFETY: the memory of a get is writable.
            Some(source) => unsafe { source.scatter(iov)? },
            None => {
                // SAFETY: the host keeps the memory valid until the completion, or until the endpoint is destroyed.
                let destination = unsafe { Destination::of_iov(iov) };
                return self.remote_get(connection, destination, length, (rkey, remote_address), completion);
            }
        }
        done(completion)
    }

    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        if self.atomic_here(connection, atomic, remote_address, rkey)?.is_some() {
            return Ok(());
        }
        let operation = Operation::Acknowledged(Notify::Nobody);
        self.remote_atomic(connection, atomic, remote_address, rkey, operation)
    }

    fn atomic_fetch(
        &self,
        atomic: Atomic,
        old: OldValue,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let connection = self.enter()?;
        if let Some(value) = self.atomic_here(connection, atomic, remote_address, rkey)? {
            // SAFETY: the operation ends with this call.
            unsafe { old.write(value) };
            return Ok(Outcome::Done);
        }
        let operation = Operation::Fetch(old, completion.into());
        self.remote_atomic(connection, atomic, remote_address, rkey, operation).map(|()| Outcome::InProgress)
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        self.member.status.check()?;
        let connection = self.connection.get().ok_or(Error::NOT_CONNECTED)?;
        let on = self.blocked_on.get().unwrap_or(BlockedOn::Slot);
        if self.member.group.is_empty() && connection.has(on) {
            return Err(Error::BUSY);
        }
        if !connection.has_pending() {
            self.iface.waiting.borrow_mut().push(Rc::clone(connection));
        }
        if self.member.group.is_empty() {
            connection.add_waiting(&self.member);
        }
        // SAFETY: the caller's promise; the group is part of a member that stays where it is.
        unsafe { connection.pending.add(&self.member.group, request) };
        self.member.close(PENDING);
        self.iface.raise(source::PENDING);
        Ok(())
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        if let Some(connection) = self.connection.get() {
            connection.pending.purge(&self.member.group, purge);
        }
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            match self.connection.get() {
                Some(connection) => connection.cancel(&self.member),
                None => self.member.fail(Error::CANCELED),
            }
            return done(completion);
        }
        let connection = match self.enter() {
            Err(Error::NOT_CONNECTED) => return done(completion),
            connection => connection?,
        };
        // Direct operations and copies of the kernel are done. Only operations through the ring can be outstanding.
        let flushed = connection.flush(&self.member, completion);
        if flushed == Err(Error::NO_RESOURCE) {
            self.blocked(BlockedOn::Window);
        }
        flushed
    }

    fn fence(&self) -> Result {
        if let Some(connection) = self.connection.get() {
            connection.fence(&self.member);
        }
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        let Connection { channel, .. } = match self.enter() {
            // With pending requests, the peer is alive if the channel is.
            Err(Error::NO_RESOURCE) => self.connection.get().ok_or(Error::NOT_CONNECTED)?,
            connection => connection?,
        };
        if channel.is_socket_closed() {
            channel.is_closed.set(true);
            channel.raise();
            return Err(Error::CONNECTION_RESET);
        }
        done(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        let (iface, number) =
            buffer.split_at_mut_checked(addr::IFACE_LENGTH).ok_or(Error::BUFFER_TOO_SMALL)?;
        self.iface.identity.address.write_to(iface).map_err(|_| Error::BUFFER_TOO_SMALL)?;
        u64::from(self.member.number).write_to(number).map_err(|_| Error::BUFFER_TOO_SMALL)
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        let iface = addr::IfaceAddress::of_ep(ep_address)
            .map_err(|reason| Failure::new(Error::INVALID_ADDR, reason))?;
        if self.connection.get().is_some() {
            return Err(Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected"));
        }
        let peer = PeerAddress { device: device_address, iface };
        self.attach(&self.iface.connection_to(peer)?);
        Ok(())
    }

    fn destroy(self: Rc<Self>) {
        self.member.status.close();
        if let Some(connection) = self.connection.get() {
            connection.cancel_outstanding(&self.member);
            connection.remove_member(&self.member);
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// The connection is large, and a thousand endpoints can share one.
    #[test]
    fn endpoints_and_interfaces_do_not_grow_unnoticed() {
        assert!(size_of::<ShmEp>() <= 112, "an endpoint: {} bytes", size_of::<ShmEp>());
        assert!(size_of::<ShmIface>() <= 840, "an interface: {} bytes", size_of::<ShmIface>());
    }
}
