//! The transport `self` as the host sees it: its device, what its interfaces can do, and their endpoints.

use std::cell::Cell;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use ucs::event_set::EventFd;
use uct_plugin::abi::*;
use uct_plugin::memory::{Accessor, MessagePool};
use uct_plugin::{
    Device, DeviceKind, Endpoint, EpParams, Failure, Iface, IfaceAttr, IfaceParams, PeerAddress, Result,
    Scope, Settings, Transport, attr,
};

use crate::addr;
use crate::config::SelfConfig;
use crate::ep::SelfEp;
use crate::iface::SelfIface;
use crate::md::SelfMd;

/// The transport `self`.
pub(crate) struct SelfTransport;

impl Transport for SelfTransport {
    const NAME: &'static str = "self";
    type Md = SelfMd;
    type Iface = SelfIface;

    fn devices(_md: &SelfMd, _settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        Ok(vec![Device {
            name: "memory".to_owned(),
            kind: DeviceKind::Myself,
            numa_node: None,
            is_software: false,
        }])
    }

    fn open(_md: &Arc<SelfMd>, params: IfaceParams<'_>) -> Result<Rc<SelfIface>, Failure> {
        let config = SelfConfig::from_settings(&params.settings)?;
        let seg_size = config.seg_size.bytes() as usize;
        let event = EventFd::new().map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        Ok(Rc::new(SelfIface {
            seg_size,
            buffers: MessagePool::new("self message", params.rx_headroom, seg_size, config.max_kept)?,
            accessor: Accessor::default(),
            am: params.am,
            number: addr::next_iface(),
            event,
            is_on_stack: Cell::new(false),
            is_armed: Cell::new(false),
        }))
    }
}

impl Iface for SelfIface {
    type Md = SelfMd;
    type Ep = SelfEp;

    fn attributes(&self) -> IfaceAttr {
        let max_iov = SelfEp::MAX_IOV;
        let (max_short, max_bcopy, max_zcopy) = (usize::MAX >> 1, self.seg_size, usize::MAX >> 1);
        let rma = UctOpLimits { max_short, max_bcopy, max_zcopy, max_iov, ..attr::blank().put };
        let (max_short, max_hdr) = (self.max_short(), self.max_hdr());
        IfaceAttr {
            capabilities: attr::AM
                | attr::PUT_GET
                | attr::ERRHANDLE_MEMORY
                | UCT_CAP_PENDING
                | UCT_CAP_ATOMIC_CPU
                | UCT_CAP_EP_CHECK
                | UCT_CAP_CONNECT_TO_IFACE
                | UCT_CAP_CB_SYNC,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits { max_short, max_hdr, max_zcopy: self.seg_size, ..rma },
            put: rma,
            get: rma,
            atomic32: attr::ALL_ATOMICS,
            atomic64: attr::ALL_ATOMICS,
            device_addr_len: addr::LENGTH,
            iface_addr_len: addr::LENGTH,
            // UCX's figures for its own self transport.
            overhead: attr::model(10e-9),
            latency: attr::model(0.0),
            bandwidth_dedicated: attr::model(19360e6),
            flags: UCT_IFACE_ATTR_ANY_THREAD | UCT_IFACE_ATTR_PACK_NONE,
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
            unsafe { self.buffers.put(buffer) };
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.event.as_raw_fd())
    }

    fn arm(&self, _events: u32) -> Result {
        if self.event.drain() {
            return Err(Error::BUSY);
        }
        self.is_armed.set(true);
        Ok(())
    }
}
