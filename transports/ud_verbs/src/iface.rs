//! The interface: what its connections share, their table, and how it is opened.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use uct_ib::{DEVICE_ADDRESS_LENGTH, EventListener, PortAddress, device};
use uct_plugin::abi::*;
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, Error, Failure, IfaceAttr, IfaceParams, Result, attr};

use crate::config::{UdConfig, limit, seed};
use crate::io::packets::PacketPool;
use crate::io::queue::Queue;
use crate::io::receives::ReceivePool;
use crate::link::core::Core;
use crate::link::emulation::{GET_HEADER, MAX_IOV, PUT_HEADER};
use crate::link::flushes::Flushes;
use crate::link::lock::Lock;
use crate::link::paths::Paths;
use crate::link::shared::{Limits, Shared};
use crate::link::table::ConnTable;
use crate::link::targets::Targets;
use crate::md::{OWN, UdMd};
use crate::proto::HEADER_SIZE;
use crate::proto::addr::{EP_LENGTH, IFACE_LENGTH};

/// An interface of `ud_verbs`.
pub(crate) struct UdIface {
    pub(crate) shared: Rc<Shared>,
    pub(crate) am: AmHandlers,
    pub(crate) errors: ErrorHandler,
    pub(crate) md: Arc<UdMd>,
    pub(crate) targets: Targets,
    pub(crate) conns: ConnTable,
    pub(crate) flushes: Flushes,
    pub(crate) events: EventListener,
    /// How long an operation that is done at its return may take.
    pub(crate) get_timeout: Duration,
    pub(crate) identity: u64,
    pub(crate) qp: u32,
    latency: f64,
    bandwidth: f64,
    max_connections: u32,
    pub(crate) linger: Duration,
}

/// Seconds of processor time for a message, beyond the verbs' own.
const OVERHEAD: f64 = 105e-9;
/// What the protocol adds to the latency of the link.
const LATENCY: f64 = 30e-9;

impl UdIface {
    /// Opens an interface.
    pub(crate) fn open(md: &Arc<UdMd>, params: IfaceParams<'_>) -> Result<Rc<UdIface>, Failure> {
        let config = UdConfig::from_settings(&params.settings)?;
        let (_, number) = device::parse_device_name(params.device)
            .map_err(|reason| Failure::new(Error::INVALID_PARAM, reason))?;
        let port = PortAddress::new(&md.device.context, number, config.port_preferences())?;
        let events = md.device.events.listen().map_err(|error| {
            Failure::new(Error::IO_ERROR, format!("cannot listen to the events of the device: {error}"))
        })?;
        let (latency, bandwidth) = (port.port.latency(), port.port.bandwidth());
        let message = port.mtu.bytes() as usize - HEADER_SIZE;
        let queue = Queue::new(&md.device.context, &md.pd, &port, &config.queue_limits())?;
        let mtu = port.mtu.bytes() as usize;
        let depth = queue.receive_depth();
        let most = limit(config.rx_max_bufs).max(depth);
        let packets = PacketPool::new(&md.pd, mtu, limit(config.tx_max_bufs).max(64))?;
        let receives = ReceivePool::new(&md.pd, mtu, params.rx_headroom, depth, most)?;
        let settings = config.protocol(seed()?)?;
        let paths = Paths::new(&md.pd, port, config.port_preferences(), config.max_peer_ports);
        let core = Core::new(queue, (packets, receives), paths, settings, params.worker)?;
        let (identity, qp, pieces) = (core.table.identity(), core.queue.number(), core.queue.max_pieces());
        let lock = match params.async_in_progress {
            // SAFETY: timers alone visit, and they are handlers of the asynchronous context.
            true => unsafe { Lock::uncontended(core) },
            false => Lock::new(core),
        };
        let limits =
            Limits { message, header: message.min(256), pieces, operations: config.max_rma as usize };
        let tick = config.timer_tick.to_duration().max(Duration::from_micros(100));
        let shared = Shared::new(lock, limits, params.worker, tick);
        let iface = Rc::new(UdIface {
            shared: Rc::new(shared),
            am: params.am,
            errors: params.errors,
            md: Arc::clone(md),
            targets: Targets::new(message, config.max_answer_bytes.to_usize(), config.max_refused),
            conns: ConnTable::default(),
            flushes: Flushes::default(),
            events,
            get_timeout: config.get_timeout.to_duration(),
            identity,
            qp,
            latency,
            bandwidth,
            max_connections: config.max_connections,
            linger: config.linger.to_duration(),
        });
        iface
            .shared
            .timers
            .start_slow()
            .map_err(|error| Failure::new(error, "the timer of the interface could not be started"))?;
        OWN.add(md.regions.identity(), md);
        Ok(iface)
    }

    /// What the interface promises.
    pub(crate) fn attributes(&self) -> IfaceAttr {
        let message = self.shared.limits.message;
        let put = UctOpLimits {
            max_short: message - PUT_HEADER,
            max_bcopy: message - PUT_HEADER,
            max_zcopy: message - PUT_HEADER,
            max_iov: MAX_IOV,
            ..attr::blank().put
        };
        let get = UctOpLimits {
            max_short: message - GET_HEADER,
            max_bcopy: message - GET_HEADER,
            max_zcopy: message - GET_HEADER,
            max_iov: MAX_IOV,
            ..attr::blank().get
        };
        let atomics = UctAtomicOps {
            post: attr::ALL_POST,
            fetch: attr::ALL_FETCH,
            post_emulated: attr::ALL_POST,
            fetch_emulated: attr::ALL_FETCH,
        };
        let emulated = attr::PUT_GET | UCT_CAP_ATOMIC_CPU;
        IfaceAttr {
            capabilities: emulated
                | attr::AM
                | UCT_CAP_PENDING
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
            emulated,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: message - size_of::<u64>(),
                max_bcopy: message,
                max_zcopy: message,
                max_iov: self.shared.limits.pieces,
                max_hdr: self.shared.limits.header,
                ..attr::blank().am
            },
            put,
            get,
            atomic32: atomics,
            atomic64: atomics,
            device_addr_len: DEVICE_ADDRESS_LENGTH,
            iface_addr_len: IFACE_LENGTH,
            ep_addr_len: EP_LENGTH,
            overhead: attr::model(OVERHEAD),
            latency: attr::model(self.latency + LATENCY),
            bandwidth_shared: attr::model(self.bandwidth),
            max_num_eps: self.max_connections.into(),
            flags: UCT_IFACE_ATTR_ANY_THREAD | UCT_IFACE_ATTR_PACK_NONE,
            ..attr::blank()
        }
    }
}
