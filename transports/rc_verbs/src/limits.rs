//! What an interface can do: the configuration, cut down to what the device and the port allow.
//!
//! For: the data path, which checks against it, and the attributes.

use std::sync::Arc;
use std::time::Duration;

use uct_ib::verbs::{Cq, Pd, Qp, QpCaps, QpConfig, QpKind, Srq};
use uct_ib::{DEVICE_ADDRESS_LENGTH, IbDevice, PortAddress};
use uct_plugin::abi::*;
use uct_plugin::{Failure, IfaceAttr, Result, attr};

use crate::config::RcConfig;
use crate::iface::{MAX_INLINE, MAX_PIECES};
use crate::io::buffer::MAX_HEADER;
use crate::liveness::Schedule;
use crate::proto::addr;

/// The limits of an interface and its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Work requests an endpoint, and of all endpoints.
    pub(crate) tx_queue_len: u32,
    pub(crate) tx_cq_len: u32,
    /// One request in this many is signalled; all are when no more completions than `cq_low` fit.
    pub(crate) moderation: u32,
    pub(crate) cq_low: u32,
    pub(crate) rx_queue_len: u32,
    /// Bytes.
    pub(crate) seg_size: usize,
    pub(crate) max_inline: usize,
    pub(crate) max_short: usize,
    pub(crate) max_message: usize,
    /// Longest put or get in one work request; longer ones are several, so that each ends soon enough to tell that the peer
    /// lives.
    pub(crate) max_part: usize,
    pub(crate) max_read_bytes: u64,
    pub(crate) max_pieces: usize,
    pub(crate) max_reads_out: u8,
    pub(crate) max_reads_in: u8,
    pub(crate) has_atomics: bool,
    /// An atomic that is under way together with messages or writes ahead of it may lose its result.
    pub(crate) has_stray_acks: bool,
    /// As the verbs code them.
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) linger: Duration,
    pub(crate) peer_timeout: Duration,
    pub(crate) schedule: Schedule,
    /// For a call that waits.
    pub(crate) longest_wait: Duration,
}

/// A limit of the device, which providers give as a signed number.
fn at_most(wanted: u32, device: i32) -> u32 {
    u32::try_from(device).ok().filter(|&most| most > 0).map_or(wanted, |most| wanted.min(most))
}

/// The longest put or get in one work request: short enough to end soon also where packets are lost, and long enough that the
/// longest message is no more than half a send queue.
fn part(max_message: usize, tx_queue_len: u32) -> usize {
    (max_message / (tx_queue_len as usize / 2)).next_multiple_of(4096).max(256 << 10)
}

impl Limits {
    pub(crate) fn new(config: &RcConfig, device: &IbDevice, port: &PortAddress) -> Limits {
        let most = device.context.attr();
        let tx_queue_len = at_most(config.tx_queue_len, most.max_qp_wr);
        let tx_cq_len = at_most(config.tx_cq_len, most.max_cqe);
        let reads = |device: i32| at_most(u32::from(config.max_rd_atomic), device).min(255) as u8;
        Limits {
            tx_queue_len,
            tx_cq_len,
            moderation: config.tx_moderation.min(tx_queue_len / 4).max(1),
            cq_low: tx_cq_len / 4,
            rx_queue_len: at_most(at_most(config.rx_queue_len, most.max_srq_wr), most.max_cqe),
            seg_size: config.seg_size.to_usize(),
            max_inline: 0,
            max_short: 0,
            max_message: port.port.max_message as usize,
            max_part: part(port.port.max_message as usize, tx_queue_len),
            max_read_bytes: config.max_get_bytes.bytes(),
            max_pieces: at_most(config.max_iov, most.max_sge).min(MAX_PIECES as u32).max(2) as usize,
            max_reads_out: reads(most.max_qp_init_rd_atom),
            max_reads_in: reads(most.max_qp_rd_atom),
            has_atomics: device.has_atomics(),
            has_stray_acks: device.is_software_roce(),
            timeout: config.timeout_code(),
            retry_count: config.retry_count,
            rnr_timer: config.rnr_timer_code(),
            rnr_retry: config.rnr_retry_count,
            linger: config.linger.to_duration(),
            peer_timeout: config.peer_timeout.to_duration(),
            schedule: Schedule::new(config),
            longest_wait: config
                .peer_timeout
                .to_duration()
                .clamp(Duration::from_millis(1), Duration::from_secs(60)),
        }
    }

    /// Takes what a queue pair of this device really carries inside a work request.
    pub(crate) fn set_inline(&mut self, given: usize) {
        self.max_inline = given.min(MAX_INLINE).min(self.seg_size);
        self.max_short = self.max_inline.saturating_sub(size_of::<u64>());
    }

    /// A queue pair for an endpoint.
    pub(crate) fn new_qp(
        &self,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        max_inline: u32,
    ) -> Result<Qp, Failure> {
        let caps = QpCaps {
            max_send_wr: self.tx_queue_len,
            max_recv_wr: 0,
            max_send_sge: self.max_pieces as u32,
            max_recv_sge: 0,
            max_inline,
        };
        let config = QpConfig { kind: QpKind::Rc, send_cq, recv_cq, srq: Some(srq), caps };
        Ok(Qp::new_with_inline_up_to(pd, &config)?)
    }

    /// The attributes of an interface on this port.
    pub(crate) fn attributes(&self, port: &PortAddress) -> IfaceAttr {
        const AND_OR_XOR: u32 = 1 << UCT_ATOMIC_AND | 1 << UCT_ATOMIC_OR | 1 << UCT_ATOMIC_XOR;
        let rma = UctOpLimits {
            max_short: self.max_inline,
            max_bcopy: self.seg_size,
            max_zcopy: self.max_message,
            opt_zcopy_align: 64,
            align_mtu: port.mtu.bytes() as usize,
            max_iov: self.max_pieces,
            ..attr::blank().put
        };
        let mut attributes = IfaceAttr {
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
                | UCT_CAP_ERRHANDLE_SHORT_BUF
                | UCT_CAP_ERRHANDLE_BCOPY_BUF
                | UCT_CAP_ERRHANDLE_ZCOPY_BUF
                | UCT_CAP_ERRHANDLE_REMOTE_MEM
                | UCT_CAP_ERRHANDLE_PEER_FAILURE
                | UCT_CAP_EP_CHECK
                | UCT_CAP_EP_KEEPALIVE
                | UCT_CAP_CONNECT_TO_EP
                | UCT_CAP_CB_SYNC
                | UCT_CAP_INTER_NODE,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: self.max_short,
                max_zcopy: self.seg_size,
                max_iov: self.max_pieces - 1,
                max_hdr: MAX_HEADER.min(self.seg_size),
                ..rma
            },
            put: rma,
            get: UctOpLimits { max_short: self.seg_size, ..rma },
            device_addr_len: DEVICE_ADDRESS_LENGTH,
            iface_addr_len: addr::IFACE_LENGTH,
            ep_addr_len: addr::EP_LENGTH,
            // UCX's figure for its own rc_verbs.
            overhead: attr::model(75e-9),
            latency: attr::model(port.port.latency()),
            latency_growth: 1e-9,
            bandwidth_shared: UctFigure { value: port.port.bandwidth(), origin: UCT_ORIGIN_DEVICE },
            ..attr::blank()
        };
        if self.has_atomics {
            attributes.capabilities |= UCT_CAP_ATOMIC_DEVICE;
            attributes.atomic64 = UctAtomicOps {
                post: attr::ALL_POST,
                fetch: attr::ALL_FETCH,
                post_emulated: AND_OR_XOR,
                fetch_emulated: AND_OR_XOR | 1 << UCT_ATOMIC_SWAP,
            };
            attributes.atomic32 = UctAtomicOps {
                post: attr::ALL_POST,
                fetch: attr::ALL_FETCH,
                post_emulated: attr::ALL_POST,
                fetch_emulated: attr::ALL_FETCH,
            };
            // A wrong first guess costs a second round trip.
            attributes.emulated_round_trips = 2;
        }
        attributes
    }
}
