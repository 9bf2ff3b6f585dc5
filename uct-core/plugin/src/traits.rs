//! What a transport implements.
//!
//! All calls on one interface and its endpoints come from the thread of its worker; objects take `&self`, because a
//! handler that runs inside a call may call again. So state sits in cells, and no borrow of one is held while an
//! application's callback runs.

use std::cmp::Ordering;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::{Error, Result};
use uct_abi::UctErrorHandler;

use crate::am::AmHandlers;
use crate::arrival::AmPlacer;
use crate::atomic::{Atomic, OldValue};
use crate::attr::{Device, Flush, IfaceAttr, MdAttr, Scope};
use crate::cm::CmToken;
use crate::completion::{Completion, Outcome};
use crate::failure::Failure;
use crate::host::{ProgressRequest, Worker};
use crate::iov::Iov;
use crate::memory::{Accessor, Gate, MemoryAccess, MessagePool, Region, Window};
use crate::pack::{Pack, Unpack};
use crate::settings::Settings;

/// What a plugin offers under one name: memory domains and the transports that work on them.
pub trait Component: 'static {
    /// At most 16 bytes.
    const NAME: &'static str;
    /// Its memory domains.
    type Md: Md;

    /// The names of the memory domains that can be opened here; a failure explains why there are none.
    fn memory_domains(settings: &Settings<'_>) -> Result<Vec<String>, Failure>;

    /// Opens a memory domain.
    fn open(name: &str, settings: &Settings<'_>) -> Result<Self::Md, Failure>;
}

/// A memory domain: what registers and allocates memory. Used by several threads at once.
pub trait Md: Sized + Send + Sync + 'static {
    /// A registration.
    type Memh: Send + Sync;
    /// An unpacked remote key.
    type Rkey: Send + Sync;

    /// What the domain can do.
    fn attributes(&self) -> MdAttr;

    /// Registers `length` bytes at `address`.
    ///
    /// # Safety
    /// They stay valid for reads and writes until [`Md::deregister`] has returned, and nothing holds a reference to them meanwhile.
    unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Self::Memh, Failure> {
        let _ = (address, length, access);
        Err(Failure::unsupported("registering memory"))
    }

    /// Ends a registration. No operation of this process's names it as local memory any more; peers may access it until this returns, and not
    /// afterwards. [`Error::BUSY`]: a peer still does, and the memory is never to be used again.
    fn deregister(&self, memh: Self::Memh) -> Result {
        drop(memh);
        Ok(())
    }

    /// Allocates and registers at least `length` zeroed bytes; returns where, how many, and the registration.
    fn allocate(
        &self,
        length: usize,
        access: MemoryAccess,
    ) -> Result<(NonNull<u8>, usize, Self::Memh), Failure> {
        let _ = (length, access);
        Err(Failure::unsupported("allocating memory"))
    }

    /// Frees what [`Md::allocate`] gave.
    fn free(&self, memh: Self::Memh) -> Result {
        drop(memh);
        Ok(())
    }

    /// Advises about the use of a part of a registration (`UCT_ADVICE_*`).
    fn advise(&self, memh: &Self::Memh, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        let _ = (memh, address, length, advice);
        Err(Error::UNSUPPORTED)
    }

    /// Writes the key of a registration; `buffer` has `rkey_packed_size` bytes.
    fn pack(&self, memh: &Self::Memh, buffer: &mut [u8]) -> Result {
        let _ = (memh, buffer);
        Err(Error::UNSUPPORTED)
    }

    /// Turns packed bytes, which are untrusted, into a key.
    fn unpack(&self, buffer: &[u8]) -> Result<Self::Rkey, Failure> {
        let _ = buffer;
        Err(Failure::unsupported("remote memory access"))
    }

    /// The local address of remote memory, where it is directly reachable.
    fn rkey_ptr(&self, rkey: &Self::Rkey, remote_address: u64) -> Result<NonNull<u8>> {
        let _ = (rkey, remote_address);
        Err(Error::UNSUPPORTED)
    }

    /// What of the key's memory lies in this process, for the host to access without a call of the endpoint while its
    /// [`Gate`] is open. [`Error::UNSUPPORTED`]: none, ever; [`Error::NO_RESOURCE`]: none yet, an operation may change that.
    fn window<'key>(&self, rkey: &'key Self::Rkey) -> Result<Window<'key>> {
        let _ = rkey;
        Err(Error::UNSUPPORTED)
    }

    /// Orders two keys.
    fn compare(&self, left: &Self::Rkey, right: &Self::Rkey) -> Result<Ordering> {
        let _ = (left, right);
        Err(Error::UNSUPPORTED)
    }
}

/// A way to move data, on some devices.
pub trait Transport: 'static {
    /// At most 10 bytes.
    const NAME: &'static str;
    /// The memory domains it works on.
    type Md: Md;
    /// Its interfaces.
    type Iface: Iface<Md = Self::Md>;

    /// The devices there are; a failure explains why there are none.
    fn devices(md: &Self::Md, settings: &Settings<'_>) -> Result<Vec<Device>, Failure>;

    /// Opens an interface on a device.
    fn open(md: &Arc<Self::Md>, params: IfaceParams<'_>) -> Result<Rc<Self::Iface>, Failure>;
}

/// How to open an interface.
pub struct IfaceParams<'a> {
    /// A device that [`Transport::devices`] named.
    pub device: &'a str,
    /// The plugin's configuration.
    pub settings: Settings<'a>,
    /// The worker that drives the interface.
    pub worker: Worker,
    /// Asks for progress.
    pub progress: ProgressRequest,
    /// Where received messages go.
    pub am: AmHandlers,
    /// What takes long ones where it likes them; a host may have none.
    pub placer: Option<AmPlacer>,
    /// Where failures of endpoints are reported.
    pub errors: ErrorHandler,
    /// Bytes ahead of received data that a keeper may write to.
    pub rx_headroom: usize,
    /// Handlers of the asynchronous context run inside progress, and in no other thread than the worker's.
    pub async_in_progress: bool,
}

/// Where an interface reports failures of endpoints.
#[derive(Clone, Copy)]
pub struct ErrorHandler {
    pub(crate) handler: UctErrorHandler,
    pub(crate) argument: *mut std::ffi::c_void,
}

/// What identifies an endpoint to the host's error handler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EpUser(pub(crate) *mut std::ffi::c_void);

impl ErrorHandler {
    /// The host's handler. For the tables of [`crate::define_plugin!`], and for tests of a transport.
    ///
    /// # Safety
    /// The handler may be called with the argument as long as the value is used (`UctIfaceParams`).
    pub unsafe fn new(handler: UctErrorHandler, argument: *mut std::ffi::c_void) -> ErrorHandler {
        ErrorHandler { handler, argument }
    }

    /// Reports that an endpoint has failed; once per endpoint, from progress, and not after it was destroyed.
    /// The application may destroy the endpoint from inside this call.
    pub fn report(&self, ep: EpUser, status: Error, reason: &str) {
        let words = uct_abi::UctStr { data: reason.as_ptr(), length: reason.len() };
        // SAFETY: handler, argument and mark belong together and outlive the interface (`UctIfaceParams`).
        unsafe { (self.handler)(self.argument, ep.0, status.status().raw(), words) }
    }
}

/// The addresses of a peer's interface: untrusted bytes.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress<'a> {
    /// Its device address.
    pub device: &'a [u8],
    /// Its interface address.
    pub iface: &'a [u8],
}

/// How to create an endpoint.
#[derive(Clone, Copy)]
pub struct EpParams<'a> {
    /// The peer; `None` for an endpoint that is connected later with [`Endpoint::connect_to_ep`].
    pub peer: Option<PeerAddress<'a>>,
    /// For the error handler.
    pub user: EpUser,
}

/// Which end of a socket this side has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketSide {
    /// That of the side that has called: it begins the handshake.
    Called,
    /// That of the side that has accepted.
    Accepted,
}

/// An open interface.
pub trait Iface: Sized + 'static {
    /// Its memory domain.
    type Md: Md;
    /// Its endpoints.
    type Ep: Endpoint<Iface = Self>;

    /// What it can do and what it costs.
    fn attributes(&self) -> IfaceAttr;

    /// Writes the device address; `buffer` has `device_addr_len` bytes.
    fn device_address(&self, buffer: &mut [u8]) -> Result;

    /// Writes the interface address; `buffer` has `iface_addr_len` bytes.
    fn address(&self, buffer: &mut [u8]) -> Result;

    /// Whether a peer can be reached, decided locally without traffic; the refusal is the reason as text.
    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String>;

    /// Whether a peer that [`Iface::is_reachable`] refused would be within reach but for an obstacle: a namespace, a
    /// permission. Selection then warns of a fallback; a peer on another machine is none.
    fn is_impeded(&self, peer: PeerAddress<'_>) -> bool {
        let _ = peer;
        false
    }

    /// Receives, completes and sends what is due; returns how many events it handled.
    fn progress(&self) -> u32;

    /// Creates an endpoint.
    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<Self::Ep>, Failure>;

    /// Takes a connected socket as one that its own listener has accepted; `first` are bytes of the transport's handshake that
    /// were read already. With an error the socket is closed, and the host has another descriptor of it.
    fn adopt(self: &Rc<Self>, socket: OwnedFd, first: &[u8]) -> Result<(), Failure> {
        let _ = (socket, first);
        Err(Failure::unsupported("taking over a socket"))
    }

    /// Creates an endpoint over a connected socket, whose other end the peer's interface takes in the same way, and connects to nothing.
    /// The application vouches that it is the peer's. The same holds for the socket.
    fn create_ep_over(
        self: &Rc<Self>,
        params: EpParams<'_>,
        socket: OwnedFd,
        side: SocketSide,
    ) -> Result<Rc<Self::Ep>, Failure> {
        let _ = (params, socket, side);
        Err(Failure::unsupported("taking over a socket"))
    }

    /// Closes by a deadline; all endpoints are destroyed by then.
    fn close(&self) {}

    /// Takes back data that a handler kept: the pointer that was delivered.
    ///
    /// # Safety
    /// `data` was delivered with [`AmHandlers::deliver_desc`], kept, and not released before.
    unsafe fn release(&self, data: *mut u8) {
        unreachable!("{data:p} was kept although this transport delivers nothing that can be");
    }

    /// The descriptor that becomes readable when an armed event happens.
    fn event_fd(&self) -> Result<RawFd> {
        Err(Error::UNSUPPORTED)
    }

    /// Arms for `UCT_EVENT_*`: [`Error::BUSY`] while events are unprocessed.
    fn arm(&self, events: u32) -> Result {
        let _ = events;
        Err(Error::UNSUPPORTED)
    }

    /// Flushes all endpoints. Without a completion, [`Outcome::InProgress`] means "call again". With [`Flush::cancel`] each of
    /// them gives up, and does not wait for queued requests; the interface goes on with new ones.
    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        let _ = (flags, completion);
        if Self::Ep::AT_ONCE { Ok(Outcome::Done) } else { Err(Error::UNSUPPORTED) }
    }

    /// Orders operations of all endpoints before and after it.
    fn fence(&self) -> Result {
        if Self::Ep::AT_ONCE { Ok(()) } else { Err(Error::UNSUPPORTED) }
    }

    /// The transport's own counters, as names and values.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The remote key type of an endpoint's memory domain.
pub type RkeyOf<E> = <<<E as Endpoint>::Iface as Iface>::Md as Md>::Rkey;

/// One end of a connection.
///
/// An operation returns success, [`Error::NO_RESOURCE`] (nothing happened; the caller retries or queues a pending
/// request) or an error (nothing happened). One that returns [`Outcome::InProgress`] owns its [`Completion`]; with every
/// other answer it just drops it. The host passes message ids below 32 only; lengths are the transport's to check.
#[allow(unused_variables, reason = "a default body names what an implementation gets")]
pub trait Endpoint: Sized + 'static {
    /// Its interface.
    type Iface: Iface<Ep = Self>;
    /// How put, get and atomics are carried out, where the transport does not implement them itself.
    type Remote: RemoteAccess<Self>;
    /// Bytes of an endpoint address; the interface's attributes name the same.
    const ADDRESS_LENGTH: usize = 0;
    /// Every operation is done at its return, and room is all that one ever lacks, which the application itself gives back:
    /// flush, fence and check have nothing to wait for then, and nothing is ever pending.
    const AT_ONCE: bool = false;
    /// Most entries of a vector; the interface's attributes name the same. Operations with more are refused before they get
    /// here. Without it, the transport polls by itself.
    const MAX_IOV: usize = usize::MAX;

    /// Sends 8 bytes of header and the payload, both copied.
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        Err(Error::UNSUPPORTED)
    }

    /// Sends the gathered bytes, copied; the first 8 take the place of the header of `am_short`.
    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        Err(Error::UNSUPPORTED)
    }

    /// Sends what the application packs; returns the length.
    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        Err(Error::UNSUPPORTED)
    }

    /// Sends `header`, copied, and the memory of the vector, in place.
    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Err(Error::UNSUPPORTED)
    }

    /// The region behind a key, and what accesses it, for [`crate::rma::ByRegion`]. `None`: the key is of no region in this process.
    #[inline(always)]
    fn region<'a>(&'a self, rkey: &'a RkeyOf<Self>) -> Option<(&'a Region, &'a Accessor)> {
        None
    }

    /// Buffers that hold the longest buffered put and get, for [`crate::rma::ByRegion`]: what is packed and unpacked passes through
    /// them, so that the application never has a reference to registered memory.
    fn buffers(&self) -> Option<&MessagePool> {
        None
    }

    /// The gate, for endpoints of a domain that has windows (see [`Md::window`]). With [`Endpoint::AT_ONCE`] it is always open.
    fn gate(&self) -> Option<&Gate> {
        None
    }

    /// Writes to remote memory, copied.
    #[inline]
    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &RkeyOf<Self>) -> Result {
        Self::Remote::put_short(self, data, remote_address, rkey)
    }

    /// Writes what the application packs to remote memory; returns the length.
    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &RkeyOf<Self>) -> Result<usize> {
        Self::Remote::put_bcopy(self, pack, remote_address, rkey)
    }

    /// Writes the memory of the vector to remote memory, in place.
    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RkeyOf<Self>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Self::Remote::put_zcopy(self, iov, remote_address, rkey, completion)
    }

    /// Reads remote memory; done at return.
    #[inline]
    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &RkeyOf<Self>) -> Result {
        Self::Remote::get_short(self, buffer, remote_address, rkey)
    }

    /// Reads remote memory and hands it to `unpack`.
    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &RkeyOf<Self>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Self::Remote::get_bcopy(self, unpack, length, remote_address, rkey, completion)
    }

    /// Reads remote memory into the memory of the vector, in place.
    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RkeyOf<Self>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Self::Remote::get_zcopy(self, iov, remote_address, rkey, completion)
    }

    /// An atomic without a result; never a swap.
    #[inline]
    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &RkeyOf<Self>) -> Result {
        Self::Remote::atomic_post(self, atomic, remote_address, rkey)
    }

    /// An atomic whose old value is the result.
    #[inline]
    fn atomic_fetch(
        &self,
        atomic: Atomic,
        old: OldValue,
        remote_address: u64,
        rkey: &RkeyOf<Self>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Self::Remote::atomic_fetch(self, atomic, old, remote_address, rkey, completion)
    }

    /// Queues a request until resources return; [`Error::BUSY`] if they are there.
    ///
    /// # Safety
    /// The request stays valid, and is used by nothing else, until it was served or purged (`UctPendingReq`).
    unsafe fn pending_add(&self, request: NonNull<uct_abi::UctPendingReq>) -> Result {
        Err(if Self::AT_ONCE { Error::BUSY } else { Error::UNSUPPORTED })
    }

    /// Removes all queued requests and hands each to `purge`.
    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<uct_abi::UctPendingReq>)) {}

    /// Flushes the endpoint. Without a completion, [`Outcome::InProgress`] means "call again". With [`Flush::cancel`] it gives up
    /// on what is outstanding, and is good only for being destroyed.
    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if Self::AT_ONCE { Ok(Outcome::Done) } else { Err(Error::UNSUPPORTED) }
    }

    /// Operations after it are not visible before those ahead of it.
    fn fence(&self) -> Result {
        if Self::AT_ONCE { Ok(()) } else { Err(Error::UNSUPPORTED) }
    }

    /// Checks whether the peer is alive.
    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        if Self::AT_ONCE { Ok(Outcome::Done) } else { Err(Error::UNSUPPORTED) }
    }

    /// Bytes of this endpoint's address, where that is not known beforehand.
    fn address_length(&self) -> usize {
        Self::ADDRESS_LENGTH
    }

    /// Writes the endpoint address; `buffer` has [`Endpoint::address_length`] bytes.
    fn address(&self, buffer: &mut [u8]) -> Result {
        Err(Error::UNSUPPORTED)
    }

    /// Connects to the peer's endpoint; the addresses are untrusted bytes.
    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        Err(Failure::unsupported("connecting to an endpoint"))
    }

    /// What a connection manager of the same device has to know of the endpoint to connect it.
    fn cm_token(&self) -> Result<CmToken> {
        Err(Error::UNSUPPORTED)
    }

    /// The host is done with the endpoint. Messages that were accepted are still delivered; completions that cannot end
    /// otherwise are called with [`Error::CANCELED`]. May come from inside a handler that the endpoint itself called.
    fn destroy(self: Rc<Self>) {}
}

/// Carries out put, get and atomics for endpoints `E`. The methods have the meaning of those of [`Endpoint`].
#[allow(missing_docs, reason = "each method is documented at the endpoint's method of this name")]
#[allow(unused_variables, reason = "a default body names what an implementation gets")]
pub trait RemoteAccess<E: Endpoint> {
    fn put_short(ep: &E, data: &[u8], address: u64, key: &RkeyOf<E>) -> Result {
        Err(Error::UNSUPPORTED)
    }

    fn put_bcopy(ep: &E, pack: Pack, address: u64, key: &RkeyOf<E>) -> Result<usize> {
        Err(Error::UNSUPPORTED)
    }

    fn put_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RkeyOf<E>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Err(Error::UNSUPPORTED)
    }

    fn get_short(ep: &E, buffer: &mut [u8], address: u64, key: &RkeyOf<E>) -> Result {
        Err(Error::UNSUPPORTED)
    }

    fn get_bcopy(
        ep: &E,
        unpack: Unpack,
        length: usize,
        address: u64,
        key: &RkeyOf<E>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Err(Error::UNSUPPORTED)
    }

    fn get_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RkeyOf<E>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Err(Error::UNSUPPORTED)
    }

    fn atomic_post(ep: &E, atomic: Atomic, address: u64, key: &RkeyOf<E>) -> Result {
        Err(Error::UNSUPPORTED)
    }

    fn atomic_fetch(
        ep: &E,
        atomic: Atomic,
        old: OldValue,
        address: u64,
        key: &RkeyOf<E>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        Err(Error::UNSUPPORTED)
    }
}
