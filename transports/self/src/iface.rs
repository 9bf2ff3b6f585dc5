//! The interface of `self`: a pool of message buffers and the way to the handlers.

use std::cell::Cell;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use ucs::datastruct::mpool::{Mpool, MpoolParams};
use ucs::event_set::EventFd;
use uct_plugin::abi::*;
use uct_plugin::memory::ZeroedChunks;
use uct_plugin::{
    AmHandlers, Completion, Device, DeviceKind, Disposition, Endpoint, EpParams, Failure, Flush, Iface,
    IfaceAttr, IfaceParams, Outcome, PeerAddress, Result, Scope, Settings, Transport, attr,
};

use crate::addr;
use crate::config::SelfConfig;
use crate::ep::SelfEp;
use crate::md::SelfMd;

/// The transport `self`.
pub(crate) struct SelfTransport;

/// An interface of `self`.
pub(crate) struct SelfIface {
    pub(crate) seg_size: usize,
    am: AmHandlers,
    buffers: Mpool,
    /// A buffer at hand, without a look at the pool.
    spare: Cell<NonNull<u8>>,
    /// Why the spare buffer may not be used just now; if nothing speaks against it, a message takes the short way.
    hindered: Cell<Hindrance>,
    headroom: usize,
    number: u64,
    event: EventFd,
}

bitflags::bitflags! {
    #[derive(Clone, Copy)]
    struct Hindrance: u8 {
        /// A handler has it.
        const TAKEN = 1;
        /// There is none.
        const NONE = 2;
        /// Somebody sleeps until a message comes.
        const ARMED = 4;
    }
}

impl Transport for SelfTransport {
    const NAME: &'static str = "self";
    type Md = SelfMd;
    type Iface = SelfIface;

    fn devices(_md: &SelfMd, _settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        Ok(vec![Device { name: "memory".to_owned(), kind: DeviceKind::Myself, numa_node: None }])
    }

    fn open(_md: &Arc<SelfMd>, params: IfaceParams<'_>) -> Result<Rc<SelfIface>, Failure> {
        let config = SelfConfig::from_settings(&params.settings)?;
        let seg_size = config.seg_size.bytes() as usize;
        let pool = MpoolParams {
            align_offset: params.rx_headroom,
            max_elems: config.max_kept,
            elems_per_chunk: 16.min(config.max_kept),
            grow_factor: 2.0,
            ..MpoolParams::new("self message", params.rx_headroom + seg_size)
        };
        let buffers = Mpool::new(pool, ZeroedChunks, ())
            .map_err(|error| Failure::new(Error::NO_MEMORY, error.to_string()))?;
        let event = EventFd::new().map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        Ok(Rc::new(SelfIface {
            seg_size,
            am: params.am,
            buffers,
            spare: Cell::new(NonNull::dangling()),
            hindered: Cell::new(Hindrance::NONE),
            headroom: params.rx_headroom,
            number: addr::next_iface(),
            event,
        }))
    }
}

impl SelfIface {
    /// Largest payload of a short message.
    pub(crate) fn max_short(&self) -> usize {
        self.seg_size - size_of::<u64>()
    }

    /// The spare buffer, for [`SelfIface::deliver_spare`]; `None` if the long way has to be taken.
    #[inline(always)]
    pub(crate) fn take_spare(&self) -> Option<NonNull<u8>> {
        if !self.hindered.get().is_empty() {
            return None;
        }
        self.hindered.set(Hindrance::TAKEN);
        Some(self.spare.get())
    }

    /// Delivers the message in the spare buffer.
    ///
    /// # Safety
    /// `buffer` came from [`SelfIface::take_spare`] and holds `length` bytes of message; it is not used afterwards.
    #[inline(always)]
    pub(crate) unsafe fn deliver_spare(&self, id: u8, buffer: NonNull<u8>, length: usize) {
        // SAFETY: the caller's promise; the headroom lies ahead in the same element.
        if unsafe { self.am.deliver_desc(id, buffer.as_ptr(), length) } == Disposition::Kept {
            return self.spare_is_kept();
        }
        self.hindered.set(self.hindered.get().difference(Hindrance::TAKEN));
    }

    #[cold]
    #[inline(never)]
    fn spare_is_kept(&self) {
        self.hindered.set(self.hindered.get().difference(Hindrance::TAKEN) | Hindrance::NONE);
    }

    /// A buffer of the pool, for a message of up to `seg_size` bytes; all of it is initialised.
    pub(crate) fn buffer(&self) -> Result<NonNull<u8>> {
        let element = self.buffers.get().ok_or(Error::NO_RESOURCE)?;
        // SAFETY: an element holds the headroom ahead of the message.
        Ok(unsafe { element.add(self.headroom) })
    }

    /// Wakes who sleeps, delivers the message in a buffer, and takes the buffer back unless the handler keeps it.
    ///
    /// # Safety
    /// `buffer` came from [`SelfIface::buffer`] and holds `length` bytes of message; it is not used afterwards.
    pub(crate) unsafe fn deliver(&self, id: u8, buffer: NonNull<u8>, length: usize) {
        if self.hindered.get().contains(Hindrance::ARMED) {
            self.hindered.set(self.hindered.get().difference(Hindrance::ARMED));
            self.event.signal();
        }
        // SAFETY: the caller's promise; the headroom lies ahead in the same element.
        if unsafe { self.am.deliver_desc(id, buffer.as_ptr(), length) } == Disposition::Consumed {
            // SAFETY: the buffer is nobody else's, since it was not kept.
            unsafe { self.recycle(buffer) };
        }
    }

    /// # Safety
    /// `buffer` came from [`SelfIface::buffer`] and is not used afterwards.
    pub(crate) unsafe fn recycle(&self, buffer: NonNull<u8>) {
        if self.hindered.get().contains(Hindrance::NONE) {
            self.spare.set(buffer);
            self.hindered.set(self.hindered.get().difference(Hindrance::NONE));
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.put(buffer) };
        }
    }

    /// # Safety
    /// As [`SelfIface::recycle`].
    unsafe fn put(&self, buffer: NonNull<u8>) {
        // SAFETY: undoes the addition of `buffer`.
        let element = unsafe { buffer.sub(self.headroom) };
        // SAFETY: the element came from this pool and is put back once, by the caller's promise.
        unsafe { self.buffers.put(element) };
    }

    /// Bytes of the largest header of a zero-copy message.
    pub(crate) fn max_hdr(&self) -> usize {
        self.seg_size.min(256)
    }
}

impl Drop for SelfIface {
    fn drop(&mut self) {
        if !self.hindered.get().contains(Hindrance::NONE) {
            // SAFETY: the spare buffer is nobody's: no handler runs while an interface is closed.
            unsafe { self.put(self.spare.get()) };
        }
    }
}

impl Iface for SelfIface {
    type Md = SelfMd;
    type Ep = SelfEp;

    fn attributes(&self) -> IfaceAttr {
        let rma = UctOpLimits {
            max_short: usize::MAX >> 1,
            max_bcopy: self.seg_size,
            max_zcopy: usize::MAX >> 1,
            max_iov: SelfEp::MAX_IOV,
            ..attr::blank().put
        };
        let atomics = UctAtomicOps { post: attr::ALL_POST, fetch: attr::ALL_FETCH, ..attr::blank().atomic32 };
        IfaceAttr {
            capabilities: UCT_CAP_AM_SHORT
                | UCT_CAP_AM_BCOPY
                | UCT_CAP_AM_ZCOPY
                | UCT_CAP_PENDING
                | UCT_CAP_PUT_SHORT
                | UCT_CAP_PUT_BCOPY
                | UCT_CAP_PUT_ZCOPY
                | UCT_CAP_GET_SHORT
                | UCT_CAP_GET_BCOPY
                | UCT_CAP_GET_ZCOPY
                | UCT_CAP_ATOMIC_CPU
                | UCT_CAP_ERRHANDLE_SHORT_BUF
                | UCT_CAP_ERRHANDLE_BCOPY_BUF
                | UCT_CAP_ERRHANDLE_ZCOPY_BUF
                | UCT_CAP_ERRHANDLE_REMOTE_MEM
                | UCT_CAP_EP_CHECK
                | UCT_CAP_CONNECT_TO_IFACE
                | UCT_CAP_CB_SYNC,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: self.max_short(),
                max_bcopy: self.seg_size,
                max_zcopy: self.seg_size,
                max_iov: SelfEp::MAX_IOV,
                max_hdr: self.max_hdr(),
                ..attr::blank().am
            },
            put: rma,
            get: rma,
            atomic32: atomics,
            atomic64: atomics,
            device_addr_len: addr::LENGTH,
            iface_addr_len: addr::LENGTH,
            // UCX's figures for its own self transport.
            overhead: attr::model(10e-9),
            latency: attr::model(0.0),
            bandwidth_dedicated: attr::model(19360e6),
            ..attr::blank()
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&addr::process().to_ne_bytes());
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&self.number.to_ne_bytes());
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        addr::is_same(peer.device, peer.iface, self.number)
    }

    fn progress(&self) -> u32 {
        0
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<SelfEp>, Failure> {
        let peer = params.peer.ok_or_else(|| Failure::unsupported("creating an unconnected endpoint"))?;
        addr::is_same(peer.device, peer.iface, self.number)
            .map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        Ok(Rc::new(SelfEp { iface: Rc::clone(self) }))
    }

    unsafe fn release(&self, data: *mut u8) {
        if let Some(buffer) = NonNull::new(data) {
            // SAFETY: the host releases what `deliver` handed out, once (`Iface::release`).
            unsafe { self.recycle(buffer) };
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.event.as_raw_fd())
    }

    fn arm(&self, _events: u32) -> Result {
        if self.event.drain() {
            return Err(Error::BUSY);
        }
        self.hindered.set(self.hindered.get() | Hindrance::ARMED);
        Ok(())
    }

    fn flush(&self, _flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        let _ = completion;
        Ok(Outcome::Done)
    }

    fn fence(&self) -> Result {
        Ok(())
    }
}
