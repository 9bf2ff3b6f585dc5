//! A queue pair's way to work with the path that rdma_cm has found.
//!
//! rdma_cm computes the attributes of each state. Asked too early it answers with those of another state and calls that success, so
//! that the masks are checked. Two of its values are replaced: it leaves the wait of a peer without buffers at the longest, 655 ms,
//! and takes 19, two seconds, as the time to wait for an acknowledgement.

use uct_ib::verbs::abi::*;
use uct_ib::verbs::{Access, Qp};

use crate::io::{Id, QpStep};
use crate::link::explain::refusal;
use crate::proto::refusal::{Refusal, Step, system};

/// The wait of a peer that found no receive buffer: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;
/// The time to wait for an acknowledgement: 4.096 us times two to this, 67 ms.
const TIMEOUT: u8 = 14;

const INIT: i32 = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const READY_TO_RECEIVE: i32 = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const READY_TO_SEND: i32 = IBV_QP_STATE
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC;

/// Moves a queue pair in state RESET to INIT, where receives can be posted. Does not block.
///
/// # Errors
/// [`ucs::Error::CONNECTION_RESET`]: the client of the request is gone, of which this is the only sign.
pub fn initialize(id: &Id, qp: &Qp, peer: &str) -> Result<(), Refusal> {
    let (mut attr, mask) = attributes(id, QpStep::Init, INIT, peer)?;
    let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
    attr.qp_access_flags = access.bits() as u32;
    apply(qp, attr, mask, peer)
}

/// Moves a queue pair in state INIT to RTR and RTS. Blocks for a second at most, while the kernel looks for the peer's hardware
/// address.
///
/// # Errors
/// The failed step.
pub fn start(id: &Id, qp: &Qp, peer: &str) -> Result<(), Refusal> {
    let (mut attr, mask) = attributes(id, QpStep::ReadyToReceive, READY_TO_RECEIVE, peer)?;
    attr.min_rnr_timer = MIN_RNR_TIMER;
    apply(qp, attr, mask, peer)?;
    let (mut attr, mask) = attributes(id, QpStep::ReadyToSend, READY_TO_SEND, peer)?;
    attr.timeout = TIMEOUT;
    apply(qp, attr, mask, peer)
}

/// Whether the client of a request is still there, as far as this side knows.
///
/// # Errors
/// [`ucs::Error::CONNECTION_RESET`]: it is gone.
pub fn look(id: &Id, peer: &str) -> Result<(), Refusal> {
    attributes(id, QpStep::Init, INIT, peer).map(|_| ())
}

fn attributes(id: &Id, step: QpStep, wanted: i32, peer: &str) -> Result<(ibv_qp_attr, i32), Refusal> {
    let (attr, mask) = id.qp_attributes(step).map_err(|error| refusal(&error, Step::QueuePair, peer))?;
    if mask & wanted == wanted {
        return Ok((attr, mask));
    }
    Err(Refusal::new(
        ucs::Error::IO_ERROR,
        format!(
            "rdma_cm returned the attributes {mask:#x} for the queue pair to {peer}, expected {wanted:#x} of {step:?}: the \
             connection has not reached that state"
        ),
    ))
}

fn apply(qp: &Qp, attr: ibv_qp_attr, mask: i32, peer: &str) -> Result<(), Refusal> {
    qp.apply(attr, mask).map_err(|error| match error.is_timeout() {
        true => system(Step::QueuePair, peer, libc::ETIMEDOUT),
        false => Refusal::new(ucs::Error::from_status(error.status()), error.to_string()),
    })
}
