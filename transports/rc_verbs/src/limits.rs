//! What an interface can do: the configuration, cut down to what the device and the port allow, and the attributes.

use std::time::Duration;

use ucs::units::Count;
use uct_ib::{DEVICE_ADDRESS_LENGTH, IbDevice, PortAddress};
use uct_plugin::abi::*;
use uct_plugin::{IfaceAttr, attr};

use crate::config::RcConfig;
use crate::io::buffer::MAX_HEADER;
use crate::io::limits::{Limits, MAX_PIECES};
use crate::proto::addr;

/// A limit of the device, which providers give as a signed number.
fn at_most(wanted: u32, device: i32) -> u32 {
    u32::try_from(device).ok().filter(|&most| most > 0).map_or(wanted, |most| wanted.min(most))
}

/// The longest put or get in one work request: short enough to end soon also where packets are lost, and long enough that the
/// longest message is no more than half a send queue.
fn part(max_message: usize, tx_queue_len: u32) -> usize {
    (max_message / (tx_queue_len as usize / 2)).next_multiple_of(4096).max(256 << 10)
}

/// What the configuration wants, cut down to what the device and the port allow.
pub(crate) fn limits(config: &RcConfig, device: &IbDevice, port: &PortAddress) -> Limits {
    let most = device.context.attr();
    let tx_queue_len = at_most(config.tx_queue_len, most.max_qp_wr);
    let tx_cq_len = at_most(config.tx_cq_len, most.max_cqe);
    let reads = |device: i32| at_most(u32::from(config.max_rd_atomic), device).min(255) as u8;
    Limits {
        tx_queue_len,
        tx_cq_len,
        moderation: config.tx_moderation.min(tx_queue_len / 4).max(1),
        cq_low: tx_cq_len / 4,
        max_num_eps: if config.max_num_eps > Count::MAX { 0 } else { config.max_num_eps.number() },
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
        longest_wait: config
            .peer_timeout
            .to_duration()
            .clamp(Duration::from_millis(1), Duration::from_secs(60)),
    }
}

/// The attributes of an interface on this port.
pub(crate) fn attributes(limits: &Limits, port: &PortAddress) -> IfaceAttr {
    const AND_OR_XOR: u32 = 1 << UCT_ATOMIC_AND | 1 << UCT_ATOMIC_OR | 1 << UCT_ATOMIC_XOR;
    let rma = UctOpLimits {
        max_short: limits.max_inline,
        max_bcopy: limits.seg_size,
        max_zcopy: limits.max_message,
        opt_zcopy_align: 64,
        align_mtu: port.mtu.bytes() as usize,
        max_iov: limits.max_pieces,
        ..attr::blank().put
    };
    let mut attributes = IfaceAttr {
        capabilities: attr::AM
            | UCT_CAP_PENDING
            | attr::PUT_GET
            | attr::ERRHANDLE_MEMORY
            | UCT_CAP_ERRHANDLE_PEER_FAILURE
            | UCT_CAP_EP_CHECK
            | UCT_CAP_EP_KEEPALIVE
            | UCT_CAP_CONNECT_TO_EP
            | UCT_CAP_CB_SYNC
            | UCT_CAP_INTER_NODE,
        events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
        am: UctOpLimits {
            max_short: limits.max_short,
            max_zcopy: limits.seg_size,
            max_iov: limits.max_pieces - 1,
            max_hdr: MAX_HEADER.min(limits.seg_size),
            ..rma
        },
        put: rma,
        get: UctOpLimits { max_short: limits.seg_size, ..rma },
        device_addr_len: DEVICE_ADDRESS_LENGTH,
        iface_addr_len: addr::IFACE_LENGTH,
        ep_addr_len: addr::EP_LENGTH,
        // UCX's figure for its own rc_verbs.
        overhead: attr::model(75e-9),
        latency: attr::model(port.port.latency()),
        latency_growth: 1e-9,
        max_num_eps: limits.max_num_eps,
        bandwidth_shared: match port.port.is_software {
            true => attr::model(port.port.bandwidth()),
            false => UctFigure { value: port.port.bandwidth(), origin: UCT_ORIGIN_DEVICE },
        },
        flags: UCT_IFACE_ATTR_ANY_THREAD | UCT_IFACE_ATTR_PACK_NONE,
        ..attr::blank()
    };
    if limits.has_atomics {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_device_counts_where_it_is_one() {
        let limited = [-1, 0, 3, 5, 9].map(|device| at_most(5, device));
        assert_eq!(limited, [5, 5, 3, 5, 5]);
    }

    #[test]
    fn the_longest_message_is_half_a_send_queue_of_parts_that_are_long_enough() {
        for (max_message, tx_queue_len, expected) in [
            (1 << 30, 128, 16 << 20),
            // A 63rd is 17,043,521.
            (1 << 30, 127, 4162 * 4096),
            (1 << 30, 16384, 256 << 10),
            (8 << 20, 16, 1 << 20),
            (8 << 20, 127, 256 << 10),
        ] {
            assert_eq!(part(max_message, tx_queue_len), expected, "{max_message} by {tx_queue_len}");
        }
    }
}
