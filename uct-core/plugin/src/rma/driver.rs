//! Put, get and atomics of an endpoint, made of requests: what every transport whose wire only moves bytes does in the same way.
//!
//! Built on the initiator. The transport implements [`Requests`], which says how a request is sent and what holds for the endpoint;
//! the operations are provided. One that a transport does otherwise, such as a large put from where its data lie, it does itself.

use std::ptr::NonNull;

use ucs::{Error, Result};

use super::initiator::Initiator;
use super::operation::{Destination, Notify, Operation, Waiter};
use super::wire::Request;
use crate::atomic::Atomic;
use crate::completion::{Completion, Outcome};
use crate::iov::Iov;
use crate::memory::{Accessor, MemoryAccess, Regions, RemoteKey};
use crate::pack::{Pack, Unpack};

/// Data of a put that are copied as they are sent.
pub trait Payload {
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
    /// There is none yet, or a request would be of no use, as far as can be told at once.
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

    /// Has `read` read memory that is of this very process, where a key of this identity says so.
    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result>;

    /// [`crate::Endpoint::put_short`].
    fn remote_put_short(&self, data: &[u8], address: u64, key: &RemoteKey) -> Result {
        if data.len() > self.remote_limits().put {
            return Err(Error::INVALID_PARAM);
        }
        self.send_put(data, address, key, Notify::Nobody)
    }

    /// [`crate::Endpoint::put_bcopy`].
    fn remote_put_bcopy(&self, pack: Pack, address: u64, key: &RemoteKey) -> Result<usize> {
        let initiator = self.initiator()?;
        initiator.admit()?;
        let mut sent = None;
        let length = self.send_packed_request(pack, |length| {
            let request = initiator.put(key, address, length)?;
            sent = Some(request);
            Ok(request)
        })?;
        if let Some(request) = sent {
            initiator.posted(self.owner(), &request, Operation::Acknowledged(Notify::Nobody));
        }
        Ok(length)
    }

    /// [`crate::Endpoint::put_zcopy`] of data that are copied nevertheless.
    fn remote_put_vector(
        &self,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let limits = self.remote_limits();
        if iov.total() > limits.put || iov.entries().len() > limits.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        self.send_put(iov, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    /// Sends a put of data that are copied.
    fn send_put(&self, data: impl Payload, address: u64, key: &RemoteKey, notify: Notify) -> Result {
        let initiator = self.initiator()?;
        let request = initiator.put(key, address, data.length())?;
        self.send_request(&request, data)?;
        initiator.posted(self.owner(), &request, Operation::Acknowledged(notify));
        Ok(())
    }

    /// [`crate::Endpoint::get_short`]: waits for the data. Progress runs inside, so handlers and completions may run too.
    ///
    /// A peer of this very process may be driven by this very thread, which would wait for itself: its memory is read here, behind
    /// everything that was asked for before.
    fn remote_get_short(&self, buffer: &mut [u8], address: u64, key: &RemoteKey) -> Result {
        let length = buffer.len();
        if length > self.remote_limits().get {
            return Err(Error::INVALID_PARAM);
        }
        self.may_request()?;
        let own = self.of_own_process(key.identity, |regions, accessor| {
            key.check(address, length, MemoryAccess::REMOTE_GET)?;
            if !self.is_quiet() {
                return Err(Error::NO_RESOURCE);
            }
            let access = MemoryAccess::REMOTE_GET;
            regions.access(accessor, key.place(), address, length, access)?.read(0, buffer);
            Ok(())
        });
        if let Some(own) = own {
            return own;
        }
        let initiator = self.initiator()?;
        let waiter = Waiter::default();
        // SAFETY: the get has ended, or is abandoned, when this returns.
        let destination = unsafe { Destination::block(NonNull::from(&mut *buffer).cast(), length) };
        initiator.get(self.owner(), destination, length, key, address, Notify::Waiter(waiter.clone()))?;
        self.pump();
        let in_time = self.wait_until(|| waiter.result().is_some());
        waiter.result().unwrap_or_else(|| {
            initiator.abandon(&waiter);
            in_time
        })
    }

    /// [`crate::Endpoint::get_bcopy`].
    fn remote_get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if length > self.remote_limits().get {
            return Err(Error::INVALID_PARAM);
        }
        self.may_request()?;
        self.send_get(Destination::unpack(unpack), length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    /// [`crate::Endpoint::get_zcopy`].
    fn remote_get_zcopy(
        &self,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let (limits, length) = (self.remote_limits(), iov.total());
        if length > limits.vector || iov.entries().len() > limits.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        self.may_request()?;
        // SAFETY: the host keeps the memory of a get valid and writable until it has ended.
        let destination = unsafe { Destination::of_iov(iov) };
        self.send_get(destination, length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    /// Starts a get. A request may be sent.
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

    /// [`crate::Endpoint::atomic_post`] and [`crate::Endpoint::atomic_fetch`]: the operation says whether there is a result.
    fn remote_atomic(&self, atomic: Atomic, address: u64, key: &RemoteKey, operation: Operation) -> Result {
        let initiator = self.initiator()?;
        let request = initiator.atomic(atomic, key, address, &operation)?;
        self.send_request(&request, &[][..])?;
        initiator.posted(self.owner(), &request, operation);
        Ok(())
    }
}

impl Payload for &[u8] {
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

impl Payload for Iov<'_> {
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
