//! Posting of requests.

use std::ffi::c_int;

use uct_ib_abi::*;

use super::convert;
use super::limits::MAX_INLINE;
use super::objects::{Ah, Qp, Srq, borrow};
use crate::engine::wire::Extra;
use crate::engine::{Atomic, ReceiveRequest, SendData, SendKind, SendRequest, Target};

/// See `ibv_post_send(3)`.
///
/// # Safety
/// The queue pair lives; the list is one, with its pieces; `bad` is a place for a pointer.
pub unsafe extern "C" fn post_send(
    pointer: *mut ibv_qp,
    mut next: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let qp = unsafe { borrow::<Qp>(pointer) };
    let mut port = qp.driver.lock();
    let mut outcome = 0;
    // SAFETY: the caller's promise: each of the list is valid, the last has no next.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the caller's promise.
        let request = unsafe { send_request(wr, qp.public.qp_type == IBV_QPT_UD) };
        let posted = request.map(|request| port.device.post_send(qp.public.qp_num, request));
        outcome = posted.map_or(libc::EINVAL, convert::outcome);
        if outcome != 0 {
            // SAFETY: the caller's promise.
            unsafe { bad.write(next) };
            break;
        }
        next = wr.next;
    }
    qp.driver.drive(&mut port);
    outcome
}

/// # Safety
/// The request is valid with its pieces, and inline data can be read.
unsafe fn send_request(wr: &ibv_send_wr, is_datagram: bool) -> Option<SendRequest> {
    let opcode = wr.opcode;
    // SAFETY: all members are integers, and as long as the request; the opcode says which is meant.
    let remote = || unsafe { wr.wr.rdma };
    // SAFETY: as above.
    let atomic = || unsafe { wr.wr.atomic };
    let target = || Target { address: remote().remote_addr, rkey: remote().rkey };
    let at = |atomic: &ibv_wr_atomic| Target { address: atomic.remote_addr, rkey: atomic.rkey };
    let kind = match opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM if is_datagram => {
            // SAFETY: the queue pair's type says which member it is.
            let to = unsafe { wr.wr.ud };
            // SAFETY: the handle lives, by the caller's promise.
            let path = unsafe { borrow::<Ah>(to.ah) }.path;
            SendKind::Datagram { path, qp: to.remote_qpn, qkey: to.remote_qkey }
        }
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => SendKind::Send,
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => SendKind::Write(target()),
        IBV_WR_RDMA_READ => SendKind::Read(target()),
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let atomic = atomic();
            SendKind::Atomic(at(&atomic), Atomic::Add(atomic.compare_add))
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let atomic = atomic();
            let operation = Atomic::CompareSwap { compare: atomic.compare_add, swap: atomic.swap };
            SendKind::Atomic(at(&atomic), operation)
        }
        _ => return None,
    };
    let has_immediate = matches!(opcode, IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM);
    // SAFETY: the caller's promise.
    let pieces = unsafe { convert::pieces(wr.sg_list, wr.num_sge) }?;
    let is = |flag| wr.send_flags & flag != 0;
    let data = if is(IBV_SEND_INLINE) {
        let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        if length > u64::from(MAX_INLINE) {
            return None;
        }
        let mut bytes = Vec::with_capacity(length as usize);
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            let begin = std::ptr::with_exposed_provenance::<u8>(piece.address as usize);
            // SAFETY: the caller's promise.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(begin, piece.length as usize) });
        }
        SendData::Inline(bytes)
    } else {
        SendData::Pieces(pieces)
    };
    let extra = if has_immediate { Extra::Immediate(wr.imm_data.to_ne_bytes()) } else { Extra::None };
    Some(SendRequest {
        wr_id: wr.wr_id,
        kind,
        data,
        extra,
        is_signaled: is(IBV_SEND_SIGNALED),
        is_solicited: is(IBV_SEND_SOLICITED),
        is_fenced: is(IBV_SEND_FENCE),
    })
}

/// See `ibv_post_recv(3)`.
///
/// # Safety
/// The queue pair lives; the list is one, with its pieces; `bad` is a place for a pointer.
pub unsafe extern "C" fn post_recv(
    pointer: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let qp = unsafe { borrow::<Qp>(pointer) };
    let mut port = qp.driver.lock();
    let number = qp.public.qp_num;
    // SAFETY: the caller's promise.
    let outcome = unsafe {
        post_receives(first, bad, |request| convert::outcome(port.device.post_receive(number, request)))
    };
    // Those of a queue pair that has failed have ended already.
    port.report();
    outcome
}

/// See `ibv_post_srq_recv(3)`.
///
/// # Safety
/// As [`post_recv`], of a shared queue.
pub unsafe extern "C" fn post_srq_recv(
    pointer: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let srq = unsafe { borrow::<Srq>(pointer) };
    let mut port = srq.driver.lock();
    // SAFETY: the caller's promise.
    unsafe {
        post_receives(first, bad, |request| {
            if request.pieces.len() > srq.pieces {
                return libc::EINVAL;
            }
            convert::outcome(port.device.post_srq_receive(srq.id, request))
        })
    }
}

/// # Safety
/// The list is one, with its pieces; `bad` is a place for a pointer.
unsafe fn post_receives(
    mut next: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(ReceiveRequest) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise: each of the list is valid, the last has no next.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the caller's promise.
        let pieces = unsafe { convert::pieces(wr.sg_list, wr.num_sge) };
        let request = pieces.map(|pieces| ReceiveRequest { wr_id: wr.wr_id, pieces });
        let outcome = request.map_or(libc::EINVAL, &mut post);
        if outcome != 0 {
            // SAFETY: the caller's promise.
            unsafe { bad.write(next) };
            return outcome;
        }
        next = wr.next;
    }
    0
}
