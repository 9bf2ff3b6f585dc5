//! The endpoint: messages into a ring; put, get and atomics on remote memory by the shortest way there is.
//!
//! For: the host. Stands on channels and remote keys. What goes through the ring because memory is out of reach lies in
//! `remote`.

mod enter;
mod remote;

use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::Gate;
use uct_plugin::rma::{Notify, Operation};
use uct_plugin::traits::EpUser;
use uct_plugin::{
    Answer, Atomic, Completion, Endpoint, Error, Failure, Flush, Former, Iov, MemoryAccess, Outcome, Pack,
    PeerAddress, Result, Unpack, guarded,
};
use zerocopy::IntoBytes;

use crate::iface::ShmIface;
use crate::link::attention::flag;
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::lack::Lack;
use crate::link::limits::MAX_HEADER;
use crate::link::member::{Member, PENDING};
use crate::link::remote::{Reach, Rkey};
use crate::proto::addr;
use crate::proto::ring::{INLINE_BYTES, SHUTTLE_BYTES, Sent, copy_body, copy_small};

/// Bytes of a word, as which headers are.
const WORD: usize = size_of::<u64>();

/// An endpoint.
pub(crate) struct ShmEp {
    pub(crate) member: Rc<Member>,
    pub(crate) connection: OnceCell<Rc<Connection>>,
    pub(crate) iface: Rc<ShmIface>,
    /// What the last operation lacked.
    lack: Cell<Option<Lack>>,
}

impl ShmEp {
    /// An endpoint without a channel.
    pub(crate) fn new(iface: &Rc<ShmIface>, user: EpUser) -> Rc<ShmEp> {
        let number = iface.next_ep.get();
        iface.next_ep.set(number.wrapping_add(1));
        Rc::new(ShmEp {
            member: Rc::new(Member::new(user, number)),
            connection: OnceCell::new(),
            iface: Rc::clone(iface),
            lack: Cell::new(None),
        })
    }

    /// Sends `length` bytes, at most a bulk segment's, that `fill` writes.
    #[inline(always)]
    fn send(&self, id: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Result {
        self.enter()?.channel.send(id, length, fill).map_err(|lack| self.lacking(lack))
    }

    #[cold]
    fn am_bcopy_carefully(&self, id: u8, pack: Pack) -> Result<usize> {
        let channel = &self.enter()?.channel;
        let block = channel.reserve(self.iface.limits.bulk).map_err(|lack| self.lacking(lack))?;
        channel.sender.cancel(block);
        self.iface.with_scratch(|scratch| {
            // SAFETY: the buffer has the size of the largest message.
            let length = unsafe { pack.write(scratch.as_mut_ptr()) };
            self.send_packed(channel, id, &scratch[..length])
        })
    }

    /// Sends a short message in the shuttle, if that is ours and the message fits; `None` otherwise, or without room.
    #[inline(always)]
    fn try_shuttle(
        &self,
        channel: &Channel,
        id: u8,
        length: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<Result> {
        if !channel.seat.is_mine() || length > SHUTTLE_BYTES {
            return None;
        }
        let sent = channel.try_shuttle(id, length, fill)?;
        self.iface.expect_shuttle(channel);
        Some(if sent == Sent::Quiet { Ok(()) } else { channel.attended() })
    }

    /// Sends what was packed.
    fn send_packed(&self, channel: &Channel, id: u8, data: &[u8]) -> Result<usize> {
        let length = data.len();
        // SAFETY: there is room for as many bytes.
        let copy = |target| unsafe { copy_small(data.as_ptr(), target, length) };
        if let Some(sent) = self.try_shuttle(channel, id, length, copy) {
            return sent.map(|()| length);
        }
        channel.send(id, length, copy).map(|()| length).map_err(|lack| self.lacking(lack))
    }

    /// Checks an access to remote memory and finds the way to it.
    #[inline(always)]
    fn reach(&self, rkey: &Rkey, address: u64, length: usize, access: MemoryAccess) -> Result<Reach<'_>> {
        rkey.reach(&self.iface.accessor, address, length, access)
    }

    fn am_short_any(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let length = WORD + payload.len();
        if length <= INLINE_BYTES
            && let Some(Connection { channel, .. }) = self.open()
        {
            // SAFETY: a slot has room for INLINE_BYTES bytes, the shuttle for those that are sent there, both aligned to 8.
            let fill = |body: *mut u8| unsafe { write_short(body, header, payload) };
            if let Some(sent) = self.try_shuttle(channel, id, length, fill) {
                return sent;
            }
            if let Some(sent) = channel.sender.try_short(id, length, fill) {
                return if sent == Sent::Quiet { Ok(()) } else { channel.attended() };
            }
        }
        if length > self.iface.limits.short {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: `send` gives room for `length` bytes.
        self.send(id, length, |target| unsafe { write_short(target, header, payload) })
    }
}

// The other ways of an active message, each guarded by itself: the most frequent one, which calls nothing else, then needs
// neither a frame nor a landing pad. They take what the slots take, in its order, so that most are a mere jump.

/// A slice, in the two words in which a slot takes it.
#[repr(C)]
struct Bytes<'a> {
    start: *const u8,
    length: usize,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    #[inline(always)]
    fn new(slice: &'a [u8]) -> Bytes<'a> {
        Bytes { start: slice.as_ptr(), length: slice.len(), of: PhantomData }
    }

    #[inline(always)]
    fn as_slice(&self) -> &'a [u8] {
        // SAFETY: the parts of a slice (`new`), which is borrowed as long.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// [`ShmEp::am_short_any`].
#[inline(never)]
extern "C" fn am_short_any(ep: &ShmEp, id: u8, header: u64, payload: Bytes<'_>) -> Result {
    guarded("am_short", Err(Error::IO_ERROR), || ep.am_short_any(id, header, payload.as_slice()))
}

/// [`Channel::attended`].
#[cold]
#[inline(never)]
extern "C" fn attended(channel: &Channel) -> Result {
    guarded("am_short", Err(Error::IO_ERROR), || channel.attended())
}

/// [`ShmEp::send_packed`] of what is in the interface's buffer.
#[inline(never)]
extern "C" fn send_packed(ep: &ShmEp, id: u8, length: usize) -> isize {
    guarded_length(|| {
        let channel = &ep.connection.get().ok_or(Error::NOT_CONNECTED)?.channel;
        ep.iface.with_scratch(|scratch| ep.send_packed(channel, id, &scratch[..length]))
    })
}

/// [`ShmEp::am_bcopy_carefully`].
#[cold]
#[inline(never)]
extern "C" fn am_bcopy_carefully(ep: &ShmEp, id: u8, pack: Pack) -> isize {
    guarded_length(|| ep.am_bcopy_carefully(id, pack))
}

/// Runs another way of a packed message; answers a length, or an error's status.
#[inline(always)]
fn guarded_length(body: impl FnOnce() -> Result<usize>) -> isize {
    guarded("am_bcopy", Answer::into_raw(Err::<usize, _>(Error::IO_ERROR)), || body().into_raw())
}

/// Writes header and payload one behind the other.
///
/// # Safety
///
/// `target` is writable for both, aligned to 8, and no part of the payload.
#[inline(always)]
unsafe fn write_short(target: *mut u8, header: u64, payload: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { target.cast::<u64>().write(header) };
    // SAFETY: as above.
    let target = unsafe { target.add(size_of::<u64>()) };
    // SAFETY: as above.
    unsafe { copy_small(payload.as_ptr(), target, payload.len()) };
}

/// Writes a header, and a payload of one word behind it.
///
/// # Safety
///
/// `target` is writable for both, aligned to 8, and no part of the payload.
#[inline(always)]
unsafe fn write_words(target: *mut u8, header: u64, payload: *const u8) {
    // SAFETY: the caller's promise.
    let payload = unsafe { payload.cast::<u64>().read_unaligned() };
    // SAFETY: as above.
    unsafe { target.cast::<[u64; 2]>().write([header, payload]) };
}

/// Done at once, so the completion is not taken.
#[inline(always)]
fn done(completion: Option<Completion>) -> Result<Outcome> {
    let _ = completion;
    Ok(Outcome::Done)
}

impl Endpoint for ShmEp {
    type Iface = ShmIface;
    const ADDRESS_LENGTH: usize = addr::EP_LENGTH;
    const MAX_IOV: usize = 64;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        // One word is frequent, and takes half the instructions of any length.
        if payload.len() == WORD
            && let Some(Connection { channel, .. }) = self.open()
            && !channel.seat.is_mine()
            && let Some(sent) = channel.sender.try_short(id, 2 * WORD, |body| {
                // SAFETY: a slot has room for INLINE_BYTES bytes, aligned to 8, and the payload is a word.
                unsafe { write_words(body, header, payload.as_ptr()) }
            })
        {
            return if sent == Sent::Quiet { Ok(()) } else { attended(channel) };
        }
        am_short_any(self, id, header, Bytes::new(payload))
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

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        let has_room = self.open().is_some_and(|connection| connection.channel.sender.has_room_for_any());
        let Some(scratch) = has_room.then(|| self.iface.scratch.take()).flatten() else {
            return Answer::from_raw(am_bcopy_carefully(self, id, pack));
        };
        // Not where it is sent from: the peer may write there.
        let data = scratch.address().as_ptr();
        // SAFETY: the buffer has the size of the largest message, and is this call's.
        let length = unsafe { pack.write(data) };
        if length <= INLINE_BYTES
            // What is packed may change anything, the channel excepted.
            && let Some(Connection { channel, .. }) = self.open()
            && !channel.seat.is_mine()
            && let Some(sent) = channel.sender.try_short(id, length, |body| {
                // SAFETY: both hold a whole body, aligned to 8.
                unsafe { copy_body(data.cast(), body.cast(), length) }
            })
        {
            self.iface.scratch.set(Some(scratch));
            return if sent == Sent::Quiet { Ok(length) } else { attended(channel).map(|()| length) };
        }
        self.iface.scratch.set(Some(scratch));
        Answer::from_raw(send_packed(self, id, length))
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
        self.send(id, length, |target| {
            // SAFETY: `send` gives room for header and vector.
            unsafe { copy_small(header.as_ptr(), target, header.len()) };
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
        self.enter()?;
        match self.reach(rkey, remote_address, data.len(), MemoryAccess::REMOTE_PUT)? {
            Reach::Direct(target) => target.write(0, data),
            Reach::Remote => return self.far_put_short(data, remote_address, rkey),
        }
        Ok(())
    }

    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &Rkey) -> Result<usize> {
        let connection = self.enter()?;
        // A region that cannot be accessed at all must not cost the caller its packed data.
        if !rkey.admits(remote_address, MemoryAccess::REMOTE_PUT)? {
            self.prepare_far(connection, rkey)?;
        }
        // Not where it belongs: the application has no reference to memory that its owner reads and writes.
        self.iface.with_scratch(|scratch| {
            // SAFETY: the buffer has the size of the largest message.
            let length = unsafe { pack.write(scratch.as_mut_ptr()) };
            self.put_short(&scratch[..length], remote_address, rkey)?;
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
        let Reach::Direct(target) =
            self.reach(rkey, remote_address, iov.total(), MemoryAccess::REMOTE_PUT)?
        else {
            return self.far_put_zcopy(connection, iov, remote_address, rkey, completion);
        };
        target.gather(iov);
        done(completion)
    }

    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &Rkey) -> Result {
        self.enter()?;
        match self.reach(rkey, remote_address, buffer.len(), MemoryAccess::REMOTE_GET)? {
            Reach::Direct(source) => source.read(0, buffer),
            Reach::Remote => return self.far_get_short(buffer, remote_address, rkey),
        }
        Ok(())
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
        // As for put: what the owner writes meanwhile must not change what is unpacked.
        let left: Result<_> = self.iface.with_scratch(|scratch| {
            let copy = &mut scratch[..length];
            match self.reach(rkey, remote_address, length, MemoryAccess::REMOTE_GET)? {
                Reach::Direct(source) => source.read(0, copy),
                Reach::Remote => return Ok(Some(unpack)),
            }
            unpack.read(copy);
            Ok(None)
        });
        if let Some(unpack) = left? {
            return self.far_get_bcopy(connection, unpack, length, remote_address, rkey, completion);
        }
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
        let Reach::Direct(source) =
            self.reach(rkey, remote_address, iov.total(), MemoryAccess::REMOTE_GET)?
        else {
            return self.far_get_zcopy(connection, iov, remote_address, rkey, completion);
        };
        // SAFETY: the memory of a get is writable.
        unsafe { source.scatter(iov) };
        done(completion)
    }

    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        if self.atomic_here(connection, atomic, remote_address, rkey)?.is_some() {
            return Ok(());
        }
        let operation = Operation::Acknowledged(Notify::Nobody);
        self.atomic_by_ring(connection, atomic, remote_address, rkey, operation)
    }

    fn atomic_fetch(
        &self,
        atomic: Atomic,
        former: Former,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let connection = self.enter()?;
        if let Some(value) = self.atomic_here(connection, atomic, remote_address, rkey)? {
            // SAFETY: the operation ends with this call.
            unsafe { former.write(value) };
            return Ok(Outcome::Done);
        }
        let operation = Operation::Fetch(former, completion.into());
        self.atomic_by_ring(connection, atomic, remote_address, rkey, operation).map(|()| Outcome::InProgress)
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        if let Some(error) = self.member.failure() {
            return Err(error);
        }
        let connection = self.connection.get().ok_or(Error::NOT_CONNECTED)?;
        let lack = self.lack.get().unwrap_or(Lack::Slot);
        if self.member.group.is_empty() && connection.has(lack) {
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
        self.iface.attention.raise(flag::PENDING);
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
                None => self.member.cancel(),
            }
            return done(completion);
        }
        let connection = match self.enter() {
            Err(Error::NOT_CONNECTED) => return done(completion),
            connection => connection?,
        };
        // What went by a direct way is done; only the ring has operations outstanding.
        let flushed = connection.emulation.flush(self.member.number, completion);
        if flushed == Err(Error::NO_RESOURCE) {
            self.lacking(Lack::Window);
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
            // Behind pending requests it is as alive as the channel.
            Err(Error::NO_RESOURCE) => self.connection.get().ok_or(Error::NOT_CONNECTED)?,
            connection => connection?,
        };
        if channel.looks_closed() {
            channel.is_closed.set(true);
            channel.raise();
            return Err(Error::CONNECTION_RESET);
        }
        done(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        let (iface, number) =
            buffer.split_at_mut_checked(addr::IFACE_LENGTH).ok_or(Error::BUFFER_TOO_SMALL)?;
        self.iface.party.address.write_to(iface).map_err(|_| Error::BUFFER_TOO_SMALL)?;
        u64::from(self.member.number).write_to(number).map_err(|_| Error::BUFFER_TOO_SMALL)
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        if ep_address.len() != addr::EP_LENGTH {
            return Err(Failure::new(
                Error::INVALID_ADDR,
                format!(
                    "an endpoint address of {} bytes, where shared memory has {}",
                    ep_address.len(),
                    addr::EP_LENGTH
                ),
            ));
        }
        if self.connection.get().is_some() {
            return Err(Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected"));
        }
        let peer = PeerAddress { device: device_address, iface: &ep_address[..addr::IFACE_LENGTH] };
        self.attach(&self.iface.connection_to(peer)?);
        Ok(())
    }

    fn destroy(self: Rc<Self>) {
        self.member.silence();
        if let Some(connection) = self.connection.get() {
            connection.emulation.cancel(self.member.number, Error::CANCELED);
            connection.remove_member(&self.member);
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// A thousand endpoints share what is large: the connection.
    #[test]
    fn endpoints_and_interfaces_do_not_grow_unnoticed() {
        assert!(size_of::<ShmEp>() <= 112, "an endpoint: {} bytes", size_of::<ShmEp>());
        assert!(size_of::<ShmIface>() <= 840, "an interface: {} bytes", size_of::<ShmIface>());
    }
}
