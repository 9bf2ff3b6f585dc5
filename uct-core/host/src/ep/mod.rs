//! Endpoints: connections to peers.
//!
//! The operations lie in the files of this folder by kind. Each is one indirect call to the transport and a count.

/// A slot of the endpoint's table, which the loader has filled.
macro_rules! slot {
    ($ep:ident.$name:ident) => {{
        let slot = $ep.ops.get().$name;
        // SAFETY: the loader fills every slot of every table (`loader::overlay`).
        unsafe { slot.unwrap_unchecked() }
    }};
}

mod am;
mod atomic;
mod blocks;
mod failure;
mod flags;
mod forked;
mod invalid;
mod packing;
mod pending;
mod rma;

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;

use ucs::{Result, Status};
use uct_abi::{
    UCT_IFACE_ATTR_ADOPTS, UCT_OK, UCT_SIDE_ACCEPTED, UCT_SIDE_CALLED, UctCmToken, UctEp, UctEpOps,
    UctEpParams, UctStatus,
};

use crate::address::IfaceAddress;
use crate::attach::ObservedEp;
use crate::cm::CmToken;
use crate::completion::{Completion, Posted, flushed};
use crate::error::Refused;
use crate::iface::{Iface, IfaceInner};
use crate::md::{Gate, MemoryDomain};
use crate::reason::Reason;
use crate::stats::{Counters, EpCounters};

use packing::PackBuffer;

pub use blocks::{Batch, Block};
pub use failure::EpFailure;
pub(crate) use failure::{EpRecord, OnFailure};
pub use flags::{Flush, SendFlags};
pub use pending::Pending;

/// A connection to a peer. Cheap to clone; it is closed when the last clone is gone.
///
/// Operations never block. [`ucs::Error::NO_RESOURCE`] means that nothing happened: call [`crate::Worker::progress`] and
/// try again, or queue the operation with [`Ep::pending_add`]. After a failure every operation returns its error. In a child of a
/// fork every operation returns [`ucs::Error::INVALID_PARAM`]: the connection is the parent's.
#[derive(Clone)]
pub struct Ep {
    pub(crate) inner: Rc<EpInner>,
}

pub(crate) struct EpInner {
    /// The transport's, until the process forks.
    ops: Cell<&'static UctEpOps>,
    /// Its `am_short`, cached.
    am_short: Cell<AmShort>,
    /// Null until the transport has made it.
    raw: Cell<*mut UctEp>,
    iface: Rc<IfaceInner>,
    /// Whether memory may be accessed through windows.
    gate: Gate,
    /// The interface's memory domain, cached.
    md: MemoryDomain,
    /// The buffer of a message that is packed, cached.
    am_buffer: PackBuffer,
    counters: EpCounters,
    record: EpRecord,
}

/// [`UctEpOps::am_short`].
type AmShort = unsafe extern "C" fn(*mut UctEp, u8, u64, *const c_void, usize) -> UctStatus;

/// Which end of a connected socket this side has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SocketSide {
    /// That of the side that has called.
    Called = UCT_SIDE_CALLED,
    /// That of the side that has accepted.
    Accepted = UCT_SIDE_ACCEPTED,
}

impl EpInner {
    pub(crate) fn create(
        iface: &Rc<IfaceInner>,
        peer: Option<&IfaceAddress>,
        over: Option<(OwnedFd, SocketSide)>,
        on_failure: Option<OnFailure>,
    ) -> Result<Ep, Refused> {
        iface.worker.check_fork("create an endpoint", || iface.resource().to_string())?;
        let inner = Rc::new(EpInner {
            ops: Cell::new(iface.ep_ops),
            am_short: Cell::new(iface.ep_ops.am_short.expect("the loader fills every slot")),
            raw: Cell::default(),
            iface: Rc::clone(iface),
            gate: Gate::new(&iface.md),
            md: iface.md.clone(),
            am_buffer: PackBuffer::new(iface.attributes().am.max_bcopy, iface.attributes()),
            counters: EpCounters::default(),
            record: EpRecord::new(&iface.worker, iface.resource(), on_failure),
        });
        let params = UctEpParams {
            size: size_of::<UctEpParams>(),
            user: (&raw const inner.record).cast_mut().cast(),
            device_address: peer.map_or(std::ptr::null(), |peer| peer.device.as_ptr()),
            device_address_length: peer.map_or(0, |peer| peer.device.len()),
            iface_address: peer.map_or(std::ptr::null(), |peer| peer.iface.as_ptr()),
            iface_address_length: peer.map_or(0, |peer| peer.iface.len()),
            gate: inner.gate.as_raw(),
            accesses: inner.gate.accesses(),
        };
        let mut raw = std::ptr::null_mut();
        let mut reason = Reason::new();
        let status = match &over {
            None => {
                let slot = iface.ops.ep_create.expect("the loader fills every slot");
                // SAFETY: the interface is open; the parameters are ours; record and gate live as long as the transport's endpoint.
                unsafe { slot(iface.raw(), &raw const params, &raw mut raw, reason.as_mut()) }
            }
            Some((socket, side)) => {
                let slot = iface.ops.ep_adopt.expect("the loader fills every slot");
                let (raw, first) = (&raw mut raw, [].as_ptr());
                let words = reason.as_mut();
                // SAFETY: as above, and the descriptor is ours.
                unsafe {
                    slot(
                        iface.raw(),
                        &raw const params,
                        socket.as_raw_fd(),
                        *side as u32,
                        first,
                        0,
                        raw,
                        words,
                    )
                }
            }
        };
        if status == UCT_OK {
            // The descriptor is the transport's now.
            over.map(|(socket, _)| socket.into_raw_fd());
        }
        reason.check(status, "create an endpoint", || iface.resource().to_string())?;
        inner.raw.set(raw);
        // SAFETY: it does not move, and `drop` removes it.
        unsafe { forked::add(&inner) };
        if let Some(observed) = iface.observed() {
            observed.add(&inner);
        }
        Ok(Ep { inner })
    }

    /// The calls, and what they take.
    #[inline]
    pub(crate) fn table(&self) -> (&'static UctEpOps, *mut UctEp) {
        (self.ops.get(), self.raw.get())
    }

    #[inline]
    pub(crate) fn running_counters(&self) -> &EpCounters {
        &self.counters
    }

    /// Counts requests that were dropped.
    fn purged(&self, count: usize) -> usize {
        if let Some(observed) = self.iface.observed() {
            observed.pending_removed(count as u64);
        }
        count
    }
}

impl ObservedEp for EpInner {
    fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    fn has_failed(&self) -> bool {
        self.record.failure().is_some()
    }
}

impl Iface {
    /// Creates an endpoint to a peer's interface. The connection is made in the background: until it is established the transport queues
    /// messages up to its limit, and further sends return `NO_RESOURCE`. A failure is logged, the end of the peer at level debug, and
    /// [`Ep::failure`] returns it.
    ///
    /// # Errors
    /// The transport's refusal.
    pub fn connect(&self, peer: &IfaceAddress) -> Result<Ep, Refused> {
        self.is_reachable(peer)?;
        EpInner::create(&self.inner, Some(peer), None, None)
    }

    /// As [`Iface::connect`], with a handler that is called once when the endpoint fails.
    ///
    /// # Errors
    /// The transport's refusal.
    pub fn connect_with(
        &self,
        peer: &IfaceAddress,
        on_failure: impl FnOnce(EpFailure) + 'static,
    ) -> Result<Ep, Refused> {
        self.is_reachable(peer)?;
        EpInner::create(&self.inner, Some(peer), None, Some(Box::new(on_failure)))
    }

    /// As [`Iface::connect_with`], over a socket that is connected already: the endpoint uses this one and no other. The peer does the
    /// same with the other end. Any earlier protocol on the socket has ended, and the caller vouches that its other end is
    /// the peer's. The peer need not be reachable at its address. The socket may end with this endpoint, while the peer still has its own.
    ///
    /// # Errors
    /// The transport's refusal; [`ucs::Error::UNSUPPORTED`] where connections are no sockets ([`Iface::adopts`]). The socket is closed.
    pub fn connect_over(
        &self,
        peer: &IfaceAddress,
        socket: OwnedFd,
        side: SocketSide,
        on_failure: impl FnOnce(EpFailure) + 'static,
    ) -> Result<Ep, Refused> {
        EpInner::create(&self.inner, Some(peer), Some((socket, side)), Some(Box::new(on_failure)))
    }

    /// Whether it takes over sockets that are connected already.
    pub fn adopts(&self) -> bool {
        self.attributes().flags & UCT_IFACE_ATTR_ADOPTS != 0
    }

    /// Takes a connected socket as one that a peer has opened to this interface's own listener. `first` are bytes that
    /// were received already, if any.
    ///
    /// # Errors
    /// The transport's refusal, with the socket; [`ucs::Error::UNSUPPORTED`] where connections are no sockets.
    pub fn adopt(&self, socket: OwnedFd, first: &[u8]) -> Result<(), (OwnedFd, Refused)> {
        let iface = &*self.inner;
        let subject = || iface.resource().to_string();
        if let Err(refused) = iface.worker.check_fork("take over a socket", subject) {
            return Err((socket, refused));
        }
        let mut reason = Reason::new();
        let slot = iface.ops.ep_adopt.expect("the loader fills every slot");
        let (params, ep) = (std::ptr::null(), std::ptr::null_mut());
        let (fd, words) = (socket.as_raw_fd(), reason.as_mut());
        // SAFETY: the interface is open; descriptor and bytes are ours.
        let status = unsafe {
            slot(iface.raw(), params, fd, UCT_SIDE_ACCEPTED, first.as_ptr(), first.len(), ep, words)
        };
        match reason.check(status, "take over a socket", subject) {
            Ok(()) => {
                // The descriptor is the transport's now.
                let _ = socket.into_raw_fd();
                Ok(())
            }
            Err(refused) => Err((socket, refused)),
        }
    }

    /// Creates an endpoint that is connected to a peer's endpoint later, with [`Ep::connect_to_ep`].
    ///
    /// # Errors
    /// The transport's refusal.
    pub fn create_ep(&self, on_failure: impl FnOnce(EpFailure) + 'static) -> Result<Ep, Refused> {
        EpInner::create(&self.inner, None, None, Some(Box::new(on_failure)))
    }
}

impl Ep {
    /// The interface it belongs to.
    pub fn iface(&self) -> Iface {
        Iface { inner: Rc::clone(&self.inner.iface) }
    }

    /// Why it failed; `None` while it has not.
    pub fn failure(&self) -> Option<&EpFailure> {
        self.inner.record.failure()
    }

    /// Counts of its operations so far.
    pub fn counters(&self) -> Counters {
        self.inner.counters.snapshot()
    }

    /// Flushes: [`Posted::Done`] if nothing is outstanding, else the completion reports the end. Without a completion,
    /// [`Posted::InProgress`] means: make progress and call it again.
    ///
    /// # Errors
    /// `NO_RESOURCE`: make progress and call it again, or queue it.
    pub fn flush(&self, flags: Flush, completion: Option<&Completion>) -> Result<Posted> {
        let ep = &*self.inner;
        let slot = slot!(ep.flush);
        // SAFETY: the endpoint is alive; the completion counts this operation or is null.
        let posted = flushed(ep.iface.histograms(), completion, |completion| unsafe {
            slot(ep.raw.get(), flags.bits(), completion)
        });
        if posted.is_ok() {
            ep.counters.flush.add(0);
        }
        posted
    }

    /// Orders operations: those after it take effect at the peer after those before it. Does not block.
    ///
    /// # Errors
    /// The transport's error.
    pub fn fence(&self) -> Result {
        let ep = &*self.inner;
        let slot = slot!(ep.fence);
        // SAFETY: the endpoint is alive.
        Status::from_raw(unsafe { slot(ep.raw.get(), 0) }).into_result()?;
        ep.counters.flush.add(0);
        Ok(())
    }

    /// Probes the peer. If it is dead, the endpoint fails.
    ///
    /// # Errors
    /// The error of the failure; [`ucs::Error::NO_RESOURCE`].
    pub fn check(&self, completion: Option<&Completion>) -> Result<Posted> {
        let ep = &*self.inner;
        let slot = slot!(ep.check);
        // SAFETY: the endpoint is alive; the completion counts this operation or is null.
        flushed(ep.iface.histograms(), completion, |completion| unsafe { slot(ep.raw.get(), 0, completion) })
    }

    /// Its own address, for a peer's [`Ep::connect_to_ep`].
    ///
    /// # Errors
    /// `UNSUPPORTED` if the transport's endpoints have none.
    pub fn address(&self) -> Result<Vec<u8>> {
        let ep = &*self.inner;
        let mut address = vec![0; ep.iface.attributes().ep_addr_len];
        let slot = slot!(ep.get_address);
        // SAFETY: the endpoint is alive, and the buffer has the length that the attributes name.
        Status::from_raw(unsafe { slot(ep.raw.get(), address.as_mut_ptr()) }).into_result()?;
        Ok(address)
    }

    /// The data that a connection manager of the same device needs about it, for [`crate::cm::CmData`].
    ///
    /// # Errors
    /// [`ucs::Error::UNSUPPORTED`] where connection managers need nothing.
    pub fn cm_token(&self) -> Result<CmToken> {
        let ep = &*self.inner;
        let slot = slot!(ep.cm_token);
        let mut token = UctCmToken { size: size_of::<UctCmToken>(), qp_number: 0, has_srq: 0 };
        // SAFETY: the endpoint is alive, and the place of the answer is ours.
        Status::from_raw(unsafe { slot(ep.raw.get(), &raw mut token) }).into_result()?;
        Ok(CmToken { qp_number: token.qp_number, has_srq: token.has_srq != 0 })
    }

    /// Connects an endpoint that was created unconnected to the peer's. Over `rc_verbs` it blocks while the kernel resolves the peer's
    /// hardware address, for up to 3 s.
    ///
    /// # Errors
    /// The transport's refusal.
    pub fn connect_to_ep(&self, peer: &IfaceAddress, ep_address: &[u8]) -> Result<(), Refused> {
        let ep = &*self.inner;
        let slot = slot!(ep.connect_to_ep);
        let mut reason = Reason::new();
        // SAFETY: the endpoint is alive; the bytes are ours and valid for the call.
        let status = unsafe {
            slot(
                ep.raw.get(),
                peer.device.as_ptr(),
                peer.device.len(),
                ep_address.as_ptr(),
                ep_address.len(),
                reason.as_mut(),
            )
        };
        reason.check(status, "connect the endpoint", || ep.iface.resource().to_string())
    }
}

impl Drop for Ep {
    fn drop(&mut self) {
        if Rc::strong_count(&self.inner) > 1 {
            return;
        }
        self.inner.record.forget_handler();
        // The transport may report a failure, and uses interface and gate, until the endpoint is destroyed.
        let inner = Rc::clone(&self.inner);
        self.inner.iface.worker.close(Box::new(move || {
            forked::remove(&inner);
            let (ops, raw) = (inner.ops.get(), inner.raw.get());
            // SAFETY: the endpoint is alive until it is destroyed below, and no transport is on the stack.
            inner.purged(unsafe { pending::purge(ops, raw) });
            if let Some(observed) = inner.iface.observed() {
                observed.remove(&inner);
            }
            let destroy = ops.destroy.expect("the loader fills every slot");
            // SAFETY: nothing holds the endpoint any more, and nothing is pending.
            unsafe { destroy(raw) };
        }));
    }
}

impl fmt::Debug for Ep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ep")
            .field("iface", &self.inner.iface.resource().to_string())
            .field("failure", &self.inner.record.failure())
            .finish_non_exhaustive()
    }
}
