//! Put, get and atomics of an endpoint, made of requests: what every transport whose wire only moves bytes does in the same way.
//!
//! Built on the initiator. The transport implements [`Requests`], which defines how a request is sent and what holds for the endpoint, and
//! names [`ByRequests`] as [`Endpoint::Remote`]. An operation that it implements differently, such as a large put from the memory of the
//! data, overrides the endpoint's method.

use std::ptr::NonNull;

use ucs::{Error, Result};

use super::initiator::Initiator;
use super::operation::{Destination, Notify, Operation, Waiter};
use super::wire::Request;
use crate::atomic::{Atomic, OldValue};
use crate::completion::{Completion, Outcome};
use crate::iov::Iov;
use crate::memory::{Accessor, MemoryAccess, Regions, RemoteKey};
use crate::pack::{Pack, Unpack};
use crate::traits::{Endpoint, Iface, Md, RemoteAccess};

/// Data that are copied as they are sent.
///
/// # Safety
/// [`Payload::write`] copies, and calls neither the application nor the transport: the target may be the end of a connection's queue.
pub unsafe trait Payload {
    /// Bytes.
    fn length(&self) -> usize;

    /// Copies all of it.
    ///
    /// # Safety
    /// `target` is writable for [`Payload::length`] bytes that are no part of the data.
    unsafe fn write(&self, target: *mut u8);
}

/// What an operation with a request may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteLimits {
    /// Longest put whose data are copied, in bytes.
    pub put: usize,
    /// Longest get in one piece, in bytes: get_short and get_bcopy.
    pub get: usize,
    /// Longest put and get of a vector, in bytes.
    pub vector: usize,
    /// Most entries of a vector.
    pub max_iov: usize,
}

/// An endpoint that sends requests for put, get and atomics.
pub trait Requests {
    /// What numbers the requests and remembers the operations.
    ///
    /// # Errors
    /// There is none yet, or a request would be of no use, as far as is known at once.
    fn initiator(&self) -> Result<&Initiator>;

    /// The number of the endpoint among those that share the initiator.
    fn owner(&self) -> u32;

    /// The limits of its operations.
    fn remote_limits(&self) -> RemoteLimits;

    /// Whether a request may be sent now.
    ///
    /// # Errors
    /// Why not: the endpoint has failed or lacks resources, or the request would overtake what is queued.
    fn may_request(&self) -> Result;

    /// Whether nothing is outstanding on the connection, messages included.
    fn is_quiet(&self) -> bool;

    /// Sends a request, and `data` behind it, copied.
    ///
    /// # Errors
    /// Nothing was sent; as [`Requests::may_request`].
    fn send_request(&self, request: &Request, data: impl Payload) -> Result;

    /// Sends what the application packs behind the request that `head` makes of its length; answers the length.
    ///
    /// # Errors
    /// Nothing was sent; that of `head`, or as [`Requests::may_request`].
    fn send_packed_request(&self, pack: Pack, head: impl FnOnce(usize) -> Result<Request>) -> Result<usize>;

    /// Sends requests for what is still to be got ([`Initiator::pump`]).
    fn pump(&self);

    /// Runs progress until `done`, or for as long as an operation may block.
    ///
    /// # Errors
    /// It is not done by then.
    fn wait_until(&self, done: impl Fn() -> bool) -> Result;

    /// Has `read` read memory that is of this very process, where the key has this identity.
    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result>;

    /// Whether puts are permitted by the transport's configuration.
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`].
    fn may_put(&self) -> Result {
        Ok(())
    }

    /// Sends a put of data that are copied.
    ///
    /// # Errors
    /// Nothing was sent; as [`Requests::may_request`].
    fn send_put(&self, data: impl Payload, address: u64, key: &RemoteKey, notify: Notify) -> Result {
        if data.length() > self.remote_limits().put {
            return Err(Error::INVALID_PARAM);
        }
        let initiator = self.initiator()?;
        let request = initiator.put(key, address, data.length())?;
        self.send_request(&request, data)?;
        initiator.posted(self.owner(), &request, Operation::Acknowledged(notify));
        Ok(())
    }

    /// Starts a get. A request may be sent.
    ///
    /// # Errors
    /// Nothing was sent; as [`Requests::initiator`].
    fn send_get(
        &self,
        destination: Destination,
        length: usize,
        address: u64,
        key: &RemoteKey,
        notify: Notify,
    ) -> Result {
        self.initiator()?.get(self.owner(), destination, length, key, address, notify)?;
        self.pump();
        Ok(())
    }

    /// Sends an atomic. The operation determines whether there is a result.
    ///
    /// # Errors
    /// Nothing was sent; as [`Requests::may_request`].
    fn send_atomic(&self, atomic: Atomic, address: u64, key: &RemoteKey, operation: Operation) -> Result {
        let initiator = self.initiator()?;
        let request = initiator.atomic(atomic, key, address, &operation)?;
        self.send_request(&request, &[][..])?;
        initiator.posted(self.owner(), &request, operation);
        Ok(())
    }
}

/// The peer, which receives requests: the endpoint implements [`Requests`].
#[derive(Debug)]
pub struct ByRequests;

impl<E> RemoteAccess<E> for ByRequests
where
    E: Endpoint + Requests,
    <E::Iface as Iface>::Md: Md<Rkey = RemoteKey>,
{
    fn put_short(ep: &E, data: &[u8], address: u64, key: &RemoteKey) -> Result {
        ep.may_put()?;
        ep.send_put(data, address, key, Notify::Nobody)
    }

    fn put_bcopy(ep: &E, pack: Pack, address: u64, key: &RemoteKey) -> Result<usize> {
        ep.may_put()?;
        let initiator = ep.initiator()?;
        initiator.admit()?;
        let mut sent = None;
        let length = ep.send_packed_request(pack, |length| {
            let request = initiator.put(key, address, length)?;
            sent = Some(request);
            Ok(request)
        })?;
        if let Some(request) = sent {
            initiator.posted(ep.owner(), &request, Operation::Acknowledged(Notify::Nobody));
        }
        Ok(length)
    }

    /// The data are copied nevertheless.
    fn put_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        ep.may_put()?;
        if iov.entries().len() > ep.remote_limits().max_iov {
            return Err(Error::INVALID_PARAM);
        }
        ep.send_put(iov, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    /// Waits for the data. Progress runs inside, so handlers and completions may run too.
    ///
    /// A peer of this very process may be driven by this very thread, which would wait for itself: its memory is read here, behind
    /// everything that was asked for before.
    fn get_short(ep: &E, buffer: &mut [u8], address: u64, key: &RemoteKey) -> Result {
        let length = buffer.len();
        if length > ep.remote_limits().get {
            return Err(Error::INVALID_PARAM);
        }
        ep.may_request()?;
        let own = ep.of_own_process(key.identity, |regions, accessor| {
            key.check(address, length, MemoryAccess::REMOTE_GET)?;
            if !ep.is_quiet() {
                return Err(Error::NO_RESOURCE);
            }
            let access = MemoryAccess::REMOTE_GET;
            regions.access(accessor, key.place(), address, length, access)?.read(0, buffer);
            Ok(())
        });
        if let Some(own) = own {
            return own;
        }
        let initiator = ep.initiator()?;
        let waiter = Waiter::default();
        // SAFETY: the get has ended, or is abandoned, when this returns.
        let destination = unsafe { Destination::block(NonNull::from(&mut *buffer).cast(), length) };
        initiator.get(ep.owner(), destination, length, key, address, Notify::Waiter(waiter.clone()))?;
        ep.pump();
        let in_time = ep.wait_until(|| waiter.result().is_some());
        waiter.result().unwrap_or_else(|| {
            initiator.abandon(&waiter);
            in_time
        })
    }

    fn get_bcopy(
        ep: &E,
        unpack: Unpack,
        length: usize,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if length > ep.remote_limits().get {
            return Err(Error::INVALID_PARAM);
        }
        ep.may_request()?;
        ep.send_get(Destination::unpack(unpack), length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    fn get_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let (limits, length) = (ep.remote_limits(), iov.total());
        if length > limits.vector || iov.entries().len() > limits.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        ep.may_request()?;
        // SAFETY: the host keeps the memory of a get valid and writable until it has ended.
        let destination = unsafe { Destination::of_iov(iov) };
        ep.send_get(destination, length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    fn atomic_post(ep: &E, atomic: Atomic, address: u64, key: &RemoteKey) -> Result {
        ep.send_atomic(atomic, address, key, Operation::Acknowledged(Notify::Nobody))
    }

    fn atomic_fetch(
        ep: &E,
        atomic: Atomic,
        old: OldValue,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let operation = Operation::Fetch(old, completion.into());
        ep.send_atomic(atomic, address, key, operation).map(|()| Outcome::InProgress)
    }
}

// SAFETY: it copies.
unsafe impl Payload for &[u8] {
    #[inline(always)]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    unsafe fn write(&self, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { target.copy_from_nonoverlapping(self.as_ptr(), self.len()) };
    }
}

// SAFETY: it copies.
unsafe impl Payload for Iov<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.total()
    }

    #[inline(always)]
    unsafe fn write(&self, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.gather(target) };
    }
}
