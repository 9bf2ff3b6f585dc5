//! The initiator's side of puts, gets and atomics.
//!
//! Built on `uct_plugin::rma` and on the messages of the connection.

use std::ptr::NonNull;

use uct_plugin::memory::RemoteKey;
use uct_plugin::rma::{Destination, MAX_REQUEST, Malformed, Notify, Operation, Request, Waiter};
use uct_plugin::{Atomic, Completion, Error, Iov, Outcome, Pack, Result, Unpack};

use super::Conn;
use crate::link::emulation::{GET_HEADER, MAX_IOV, OWNER, PUT_HEADER, REQUEST};

impl Conn {
    /// Sends a request with `data` behind, and notes how to take the answer.
    fn request(&self, request: &Request, data: &[u8], operation: Operation) -> Result {
        self.send(REQUEST, MAX_REQUEST + data.len(), |packet| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            // SAFETY: the buffer holds the longest head and the data, or an MTU, and is no part of them.
            unsafe { packet.message().copy_from_nonoverlapping(head.as_ptr(), length) };
            // SAFETY: head and data fit into a message, as the caller has checked, and the buffer is no part of them.
            unsafe {
                packet.message().wrapping_add(length).copy_from_nonoverlapping(data.as_ptr(), data.len())
            };
            packet.begin(length + data.len(), false);
            Ok(())
        })?;
        self.initiator.posted(OWNER, request, operation);
        Ok(())
    }

    pub(crate) fn put_copied(&self, data: &[u8], address: u64, rkey: &RemoteKey) -> Result {
        if data.len() > self.shared.limits.message - PUT_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        let request = self.initiator.put(rkey, address, data.len())?;
        self.request(&request, data, Operation::Acknowledged(Notify::Nobody))
    }

    pub(crate) fn put_packed(&self, pack: Pack, address: u64, rkey: &RemoteKey) -> Result<usize> {
        self.initiator.admit()?;
        let mut made = None;
        let length = self.send_packed(REQUEST, PUT_HEADER, pack, false, |head, length| {
            let request = self.initiator.put(rkey, address, length)?;
            request.write(head);
            made = Some(request);
            Ok(())
        })?;
        if let Some(request) = made {
            self.initiator.posted(OWNER, &request, Operation::Acknowledged(Notify::Nobody));
        }
        Ok(length)
    }

    pub(crate) fn put_gathered(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let total = iov.total();
        if total > self.shared.limits.message - PUT_HEADER || iov.entries().len() > MAX_IOV {
            return Err(Error::INVALID_PARAM);
        }
        let request = self.initiator.put(rkey, address, total)?;
        // The target answers when the device may still be reading for a second copy: a copy of ours is simpler than to
        // wait for both, and at most an MTU.
        self.send(REQUEST, MAX_REQUEST + total, |packet| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            // SAFETY: head and vector fit into a message, as was just checked, and the buffer is no part of either.
            unsafe { packet.message().copy_from_nonoverlapping(head.as_ptr(), length) };
            // SAFETY: as above.
            unsafe { iov.gather(packet.message().wrapping_add(length)) };
            packet.begin(length + total, false);
            Ok(())
        })?;
        self.initiator.posted(OWNER, &request, Operation::Acknowledged(completion.into()));
        Ok(Outcome::InProgress)
    }

    /// Whether a get of so many bytes may begin now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_get(&self, length: usize) -> Result {
        if length > self.shared.limits.message - GET_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        self.may_send()
    }

    /// Reads, and has `wait` make progress until that is done or has taken too long.
    pub(crate) fn get_blocking(
        &self,
        buffer: &mut [u8],
        address: u64,
        rkey: &RemoteKey,
        wait: impl FnOnce(&dyn Fn() -> bool) -> Result,
    ) -> Result {
        let length = buffer.len();
        let waiter = Waiter::default();
        // SAFETY: the get has ended, or is abandoned, when this returns.
        let destination = unsafe { Destination::block(NonNull::from(&mut *buffer).cast(), length) };
        let notify = Notify::Waiter(waiter.clone());
        self.initiator.get(OWNER, destination, length, rkey, address, notify)?;
        self.pump();
        let in_time = wait(&|| waiter.result().is_some());
        waiter.result().unwrap_or_else(|| {
            self.initiator.abandon(&waiter);
            in_time
        })
    }

    pub(crate) fn get_unpacked(
        &self,
        unpack: Unpack,
        length: usize,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.get(Destination::unpack(unpack), length, address, rkey, completion)
    }

    pub(crate) fn get_scattered(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if iov.entries().len() > MAX_IOV {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: the host keeps the memory of a get valid until it has ended, and it ends when the endpoint does.
        let destination = unsafe { Destination::of_iov(iov) };
        self.get(destination, iov.total(), address, rkey, completion)
    }

    fn get(
        &self,
        destination: Destination,
        length: usize,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.may_get(length)?;
        self.initiator.get(OWNER, destination, length, rkey, address, completion.into())?;
        self.pump();
        Ok(Outcome::InProgress)
    }

    /// Asks for what is still to be got, as far as there is room.
    pub(crate) fn pump(&self) {
        if !self.initiator.wants_pump() {
            return;
        }
        let guard = self.shared.enter();
        self.initiator.pump(|request| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            guard.with(|core| core.send_bytes(self.connection, REQUEST, &head[..length]))
        });
        self.shared.arm_retransmit_timer(&guard);
    }

    /// Takes the answer to a request. The bytes are untrusted.
    pub(crate) fn take_response(&self, body: &[u8]) -> Result<(), Malformed> {
        self.initiator.answer(body)?;
        self.on_news();
        Ok(())
    }

    pub(crate) fn atomic(
        &self,
        atomic: Atomic,
        address: u64,
        rkey: &RemoteKey,
        operation: Operation,
    ) -> Result<Outcome> {
        let request = self.initiator.atomic(atomic, rkey, address, &operation)?;
        self.request(&request, &[], operation)?;
        Ok(Outcome::InProgress)
    }
}
