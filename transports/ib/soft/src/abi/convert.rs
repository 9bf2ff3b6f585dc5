//! C's numbers and structures, and those of the engine.
//!
//! For the functions of `abi`.

use std::ffi::c_int;

use uct_ib_abi::*;

use super::limits::MAX_PIECES;
use crate::engine::wire::Extra;
use crate::engine::{
    Access, Attributes, Completion, Event, Mask, Path, Piece, Pieces, Psn, QpState, Refusal, RouteKind,
};
use crate::engine::{from_gid, to_gid};

/// The error number of a refusal.
pub fn errno(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::NotFound | Refusal::Invalid => libc::EINVAL,
        Refusal::InUse => libc::EBUSY,
        Refusal::Full => libc::ENOMEM,
        Refusal::Failed => libc::EIO,
        Refusal::Planned(number) => number,
    }
}

/// Zero, or the error number of a refusal.
pub fn outcome(result: Result<(), Refusal>) -> c_int {
    result.map_or_else(errno, |()| 0)
}

/// The permissions that are known of these flags; others are hints.
pub fn access(flags: c_int) -> Access {
    Access::from_bits_truncate(flags as u32)
}

/// The way that an address vector names. One without a GID is of InfiniBand, which this is not.
pub fn path(attr: &ibv_ah_attr) -> Option<Path> {
    if attr.is_global == 0 || attr.port_num != 1 {
        return None;
    }
    Some(Path { destination: from_gid(attr.grh.dgid.raw), source_index: attr.grh.sgid_index })
}

/// The address vector of a way.
pub fn address_vector(path: Path) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: to_gid(path.destination), _align: [] },
            flow_label: 0,
            sgid_index: path.source_index,
            hop_limit: 64,
            traffic_class: 0,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    }
}

/// The bytes of a code for the maximum transfer unit.
pub fn mtu(code: c_int) -> u32 {
    match code {
        IBV_MTU_256..=IBV_MTU_4096 => 128 << code,
        _ => 0,
    }
}

/// The code of so many bytes.
pub fn mtu_code(mtu: u32) -> c_int {
    (mtu.max(256).ilog2() - 7) as c_int
}

/// The state of this number.
pub fn state(number: c_int) -> Option<QpState> {
    Some(match number {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::ReadyToReceive,
        IBV_QPS_RTS => QpState::ReadyToSend,
        IBV_QPS_SQD => QpState::SendQueueDrain,
        IBV_QPS_SQE => QpState::SendQueueError,
        IBV_QPS_ERR => QpState::Error,
        _ => return None,
    })
}

/// The attributes of C's structure that the mask names.
pub fn attributes(attr: &ibv_qp_attr, mask: Mask) -> Option<Attributes> {
    let mut attributes = Attributes::default();
    if mask.contains(Mask::STATE) {
        attributes.state = state(attr.qp_state)?;
    }
    if mask.contains(Mask::CURRENT_STATE) {
        attributes.current_state = state(attr.cur_qp_state)?;
    }
    if mask.contains(Mask::PATH) {
        attributes.path = path(&attr.ah_attr)?;
    }
    attributes.port = attr.port_num;
    attributes.pkey_index = attr.pkey_index;
    attributes.qkey = attr.qkey;
    attributes.access = access(attr.qp_access_flags as c_int);
    attributes.mtu = mtu(attr.path_mtu);
    attributes.destination_qp = attr.dest_qp_num;
    attributes.receive_psn = Psn::new(attr.rq_psn);
    attributes.send_psn = Psn::new(attr.sq_psn);
    attributes.reads_out = attr.max_rd_atomic;
    attributes.reads_in = attr.max_dest_rd_atomic;
    attributes.min_rnr_timer = attr.min_rnr_timer;
    attributes.timeout = attr.timeout;
    attributes.retry_count = attr.retry_cnt;
    attributes.rnr_retry = attr.rnr_retry;
    attributes.tells_drained = attr.en_sqd_async_notify != 0;
    Some(attributes)
}

/// C's structure with these attributes.
pub fn fill(attr: &mut ibv_qp_attr, attributes: &Attributes) {
    attr.qp_state = attributes.state as c_int;
    attr.cur_qp_state = attr.qp_state;
    attr.path_mtu = mtu_code(attributes.mtu);
    attr.qkey = attributes.qkey;
    attr.rq_psn = attributes.receive_psn.get();
    attr.sq_psn = attributes.send_psn.get();
    attr.dest_qp_num = attributes.destination_qp;
    attr.qp_access_flags = attributes.access.bits();
    attr.ah_attr = address_vector(attributes.path);
    attr.pkey_index = attributes.pkey_index;
    attr.max_rd_atomic = attributes.reads_out;
    attr.max_dest_rd_atomic = attributes.reads_in;
    attr.min_rnr_timer = attributes.min_rnr_timer;
    attr.port_num = attributes.port;
    attr.timeout = attributes.timeout;
    attr.retry_cnt = attributes.retry_count;
    attr.rnr_retry = attributes.rnr_retry;
}

/// The pieces of a request, unless there are more than a request can have.
///
/// # Safety
/// There are so many in the list.
pub unsafe fn pieces(list: *const ibv_sge, count: c_int) -> Option<Pieces> {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || count > MAX_PIECES as usize {
        return (count == 0).then(Pieces::new);
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let piece = |sge: &ibv_sge| Piece { address: sge.addr, length: sge.length, lkey: sge.lkey };
    Some(list.iter().map(piece).collect())
}

/// A completion as C reads it.
pub fn completion(wc: &mut ibv_wc, completion: &Completion) {
    wc.wr_id = completion.wr_id;
    wc.status = completion.status as c_int;
    wc.opcode = completion.opcode as c_int;
    wc.byte_len = completion.length;
    wc.qp_num = completion.qp;
    wc.src_qp = completion.source_qp;
    if let Some(route) = completion.route {
        wc.wc_flags = IBV_WC_GRH;
        // Over Ethernet there is no service level; Mellanox adapters have the packet's kind here, and UCX 1.13 relies on that: a
        // header of UDP, behind one of IPv6 or IPv4.
        wc.sl = match route {
            RouteKind::V6 => 0b1001,
            RouteKind::V4 => 0b1010,
        };
    }
    if let Extra::Immediate(bytes) = completion.extra {
        wc.imm_data = u32::from_ne_bytes(bytes);
        wc.wc_flags |= IBV_WC_WITH_IMM;
    }
}

/// The number of an event.
pub fn event_type(event: Event) -> c_int {
    match event {
        Event::CqError(_) => IBV_EVENT_CQ_ERR,
        Event::QpFatal(_) => IBV_EVENT_QP_FATAL,
        Event::QpRequestError(_) => IBV_EVENT_QP_REQ_ERR,
        Event::QpAccessError(_) => IBV_EVENT_QP_ACCESS_ERR,
        Event::CommunicationEstablished(_) => IBV_EVENT_COMM_EST,
        Event::SendQueueDrained(_) => IBV_EVENT_SQ_DRAINED,
        Event::LastReceiveReached(_) => IBV_EVENT_QP_LAST_WQE_REACHED,
        Event::SrqError(_) => IBV_EVENT_SRQ_ERR,
        Event::SrqLimitReached(_) => IBV_EVENT_SRQ_LIMIT_REACHED,
        Event::DeviceFatal => IBV_EVENT_DEVICE_FATAL,
        Event::PortActive => IBV_EVENT_PORT_ACTIVE,
        Event::PortError => IBV_EVENT_PORT_ERR,
        Event::LidChange => IBV_EVENT_LID_CHANGE,
        Event::PkeyChange => IBV_EVENT_PKEY_CHANGE,
        Event::SubnetManagerChange => IBV_EVENT_SM_CHANGE,
        Event::ClientReregister => IBV_EVENT_CLIENT_REREGISTER,
        Event::GidChange => IBV_EVENT_GID_CHANGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_which_header_is_in_front_of_it() {
        use crate::engine::{Opcode, Status};
        let mut arrived = Completion::new(1, 2, Status::Success, Opcode::Receive);
        for (route, flags, level) in
            [(None, 0, 0), (Some(RouteKind::V6), IBV_WC_GRH, 9), (Some(RouteKind::V4), IBV_WC_GRH, 10)]
        {
            for (extra, with_immediate, number) in
                [(Extra::None, 0, 0), (Extra::Immediate([1, 2, 3, 4]), IBV_WC_WITH_IMM, 0x0102_0304)]
            {
                (arrived.route, arrived.extra) = (route, extra);
                let mut wc: ibv_wc = super::super::objects::zeroed();
                completion(&mut wc, &arrived);
                assert_eq!((wc.wc_flags, wc.sl), (flags + with_immediate, level));
                assert_eq!(u32::from_be(wc.imm_data), number);
            }
        }
    }

    #[test]
    fn a_path_has_a_gid_and_leaves_from_the_one_port() {
        let expected = Path { destination: [10, 7, 0, 9].into(), source_index: 3 };
        let vector = address_vector(expected);
        assert_eq!(path(&vector), Some(expected));
        for (is_global, port_num) in [(0, 1), (1, 0), (1, 2), (0, 2)] {
            assert_eq!(path(&ibv_ah_attr { is_global, port_num, ..vector }), None, "{is_global} {port_num}");
        }
    }

    #[test]
    fn codes_of_transfer_units_are_those_of_the_verbs() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((mtu(code), mtu_code(bytes)), (bytes, code));
        }
        assert_eq!((mtu(0), mtu(6)), (0, 0));
    }

    #[test]
    fn numbers_of_states_and_statuses_are_those_of_the_verbs() {
        use crate::engine::{Opcode, Status};
        for number in IBV_QPS_RESET..=IBV_QPS_ERR {
            assert_eq!(state(number).map(|state| state as c_int), Some(number));
        }
        assert!(state(7).is_none());
        for (status, name) in Status::FAILURES {
            let text = super::super::words::ibv_wc_status_str(*status as c_int);
            // SAFETY: it is a text of the library.
            let text = unsafe { std::ffi::CStr::from_ptr(text) };
            assert_ne!(text, c"unknown", "{name}");
        }
        let numbers: Vec<c_int> = Status::FAILURES.iter().map(|failure| failure.0 as c_int).collect();
        assert_eq!(numbers, (IBV_WC_LOC_LEN_ERR..=IBV_WC_TM_RNDV_INCOMPLETE).collect::<Vec<_>>());
        assert_eq!(Status::RnrRetryExceeded as c_int, IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!(Status::General as c_int, IBV_WC_GENERAL_ERR);
        assert_eq!(Opcode::FetchAdd as c_int, IBV_WC_FETCH_ADD);
        assert_eq!(Opcode::ReceiveWrite as c_int, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_eq!(Mask::DESTINATION_QP.bits() as c_int, IBV_QP_DEST_QPN);
        assert_eq!(Access::REMOTE_ATOMIC.bits() as c_int, IBV_ACCESS_REMOTE_ATOMIC);
    }
}
