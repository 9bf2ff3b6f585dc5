//! The transport and its interfaces, as the host calls them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use uct_plugin::abi::*;
use uct_plugin::{
    Completion, Device, EpParams, Failure, Flush, Iface, IfaceAttr, IfaceParams, Outcome, PeerAddress,
    Result, Scope, Settings, SocketSide, Transport, attr,
};

use crate::config::TcpConfig;
use crate::ep::TcpEp;
use crate::iface::TcpIface;
use crate::io::device;
use crate::link::route;
use crate::link::shared::MAX_HEADER;
use crate::md::TcpMd;
use crate::proto::addr::{self, DeviceAddress, IfaceAddress};

/// The transport `tcp`.
pub(crate) struct TcpTransport;

impl Transport for TcpTransport {
    const NAME: &'static str = "tcp";
    type Md = TcpMd;
    type Iface = TcpIface;

    fn devices(_md: &TcpMd, settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let config = TcpConfig::from_settings(settings)?;
        device::list(&device::families(&config.af_prio)?)
    }

    fn open(md: &Arc<TcpMd>, params: IfaceParams<'_>) -> Result<Rc<TcpIface>, Failure> {
        let config = TcpConfig::from_settings(&params.settings)?;
        let progress = Box::new(move || params.progress.submit());
        let am = (params.am, params.placer);
        TcpIface::open(md, params.device, config, am, params.errors, progress, params.rx_headroom)
    }
}

impl Iface for TcpIface {
    type Md = TcpMd;
    type Ep = TcpEp;

    fn attributes(&self) -> IfaceAttr {
        let rma = UctOpLimits {
            max_short: self.shared.seg_size(),
            max_bcopy: self.shared.seg_size(),
            max_zcopy: self.shared.max_message(),
            max_iov: self.max_iov,
            ..attr::blank().put
        };
        let atomics = UctAtomicOps {
            post: attr::ALL_POST,
            fetch: attr::ALL_FETCH,
            post_emulated: attr::ALL_POST,
            fetch_emulated: attr::ALL_FETCH,
        };
        let puts = UCT_CAP_PUT_SHORT | UCT_CAP_PUT_BCOPY | UCT_CAP_PUT_ZCOPY;
        let puts = if self.config.put_enable { puts } else { 0 };
        let remote = puts | UCT_CAP_GET_SHORT | UCT_CAP_GET_BCOPY | UCT_CAP_GET_ZCOPY;
        IfaceAttr {
            capabilities: attr::AM
                | UCT_CAP_PENDING
                | remote
                | UCT_CAP_ATOMIC_CPU
                | UCT_CAP_ERRHANDLE_SHORT_BUF
                | UCT_CAP_ERRHANDLE_ZCOPY_BUF
                | UCT_CAP_ERRHANDLE_REMOTE_MEM
                | UCT_CAP_ERRHANDLE_PEER_FAILURE
                | UCT_CAP_EP_CHECK
                | UCT_CAP_EP_KEEPALIVE
                | UCT_CAP_CONNECT_TO_IFACE
                | UCT_CAP_CONNECT_TO_EP
                | UCT_CAP_CB_SYNC
                | UCT_CAP_INTER_NODE,
            emulated: remote,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: self.shared.seg_size() - size_of::<u64>(),
                max_bcopy: self.shared.seg_size(),
                max_zcopy: self.shared.max_message(),
                max_iov: self.max_iov,
                max_hdr: MAX_HEADER,
                ..attr::blank().am
            },
            put: if self.config.put_enable { rma } else { attr::blank().put },
            get: rma,
            atomic32: atomics,
            atomic64: atomics,
            device_addr_len: addr::DEVICE,
            iface_addr_len: addr::IFACE,
            ep_addr_len: addr::EP,
            overhead: device::overhead(),
            latency: device::latency(&self.device, self.config.latency),
            bandwidth_shared: device::bandwidth(&self.device, self.config.bandwidth),
            emulated_round_trips: 1,
            priority: u32::from(self.is_default),
            flags: UCT_IFACE_ATTR_ANY_THREAD
                | UCT_IFACE_ATTR_ADOPTS
                | UCT_IFACE_ATTR_PACK_NONE
                | UCT_IFACE_ATTR_AM_GATHERS
                | UCT_IFACE_ATTR_AM_PLACES,
            ..attr::blank()
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        self.here.write(buffer);
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.address.write(buffer);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String> {
        let there = DeviceAddress::read(peer.device)?;
        let address = IfaceAddress::read(peer.iface)?;
        route::path((&self.device, &self.here), &self.families, &there, &address, scope).map(drop)
    }

    #[inline(always)]
    fn progress(&self) -> u32 {
        self.advance()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<TcpEp>, Failure> {
        TcpEp::create(self, params)
    }

    fn adopt(self: &Rc<Self>, socket: OwnedFd, first: &[u8]) -> Result<(), Failure> {
        self.adopt_accepted(socket, first)
    }

    fn create_ep_over(
        self: &Rc<Self>,
        params: EpParams<'_>,
        socket: OwnedFd,
        side: SocketSide,
    ) -> Result<Rc<TcpEp>, Failure> {
        TcpEp::create_over(self, params, socket, side)
    }

    fn close(&self) {
        self.drain();
        for conn in self.table.all() {
            conn.discard_received(&self.shared);
            conn.fail(&self.shared, Error::CANCELED, "the interface is closed");
        }
        self.table.forget_over(&self.shared);
    }

    unsafe fn release(&self, data: *mut u8) {
        // SAFETY: the host releases what a handler kept, once (`Iface::release`).
        unsafe { self.shared.rx_pool().release_kept(data) };
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.shared.events().as_raw_fd())
    }

    fn arm(&self, _events: u32) -> Result {
        if self.shared.agenda.is_busy() {
            return Err(Error::BUSY);
        }
        let mut buffer = ucs::event_set::EventBuffer::<1>::new();
        let ready =
            self.shared.events().wait(&mut buffer, Some(std::time::Duration::ZERO)).map_err(Error::from)?;
        if ready.len() > 0 { Err(Error::BUSY) } else { Ok(()) }
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            for conn in self.table.all() {
                conn.cancel_all(&self.shared);
            }
            return Ok(Outcome::Done);
        }
        self.shared.next_epoch();
        let conns = self.table.all();
        for conn in &conns {
            conn.flush_unless_blocked(&self.shared);
        }
        if !conns.iter().any(|conn| conn.has_unfinished()) && !self.shared.agenda.has_ended() {
            return Ok(Outcome::Done);
        }
        Ok(self.shared.agenda.flushes.begin(vec![()], completion))
    }

    fn fence(&self) -> Result {
        // Every connection delivers in order, and a target carries out in order.
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("connections", self.table.len() as u64),
            ("connections_made", self.table.made()),
            ("connections_ended", self.shared.failed()),
            ("connections_refused", self.dropped.get()),
            ("half_open", self.half_open.borrow().len() as u64),
            ("registrations", self.shared.regions().len() as u64),
        ];
        own.into_iter().chain(self.shared.accessor().served().counters()).collect()
    }
}
