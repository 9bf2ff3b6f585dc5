//! Work requests: what is posted to send and receive queues.
//!
//! For the data path of the transports. Built on the ABI's structures; building one costs a dozen stores.
//! A request with inline data is safe to post, because the provider copies them before it returns. One that names memory
//! by key is not: only the poster knows how long the memory lives.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::abi::*;
use super::ah::Ah;

/// A post that the provider refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostError(pub i32);

impl PostError {
    /// Whether the queue is full, so that the request may be posted again after completions have been polled.
    #[inline]
    pub fn is_full(self) -> bool {
        self.0 == libc::ENOMEM || self.0 == libc::EAGAIN
    }
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the work request was refused: {}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// How a send request is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendFlags(u32);

impl SendFlags {
    /// No completion when it succeeds.
    pub const NONE: Self = Self(0);
    /// A completion when it has succeeded. (A failure always completes.)
    pub const SIGNALED: Self = Self(IBV_SEND_SIGNALED);
    /// Wakes a receiver that waits for solicited completions only.
    pub const SOLICITED: Self = Self(IBV_SEND_SOLICITED);
    /// Starts only when all reads and atomics ahead of it have ended.
    pub const FENCE: Self = Self(IBV_SEND_FENCE);

    /// Both.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` with `other` if `wanted`.
    #[inline]
    pub const fn with(self, other: Self, wanted: bool) -> Self {
        Self(self.0 | (other.0 * wanted as u32))
    }
}

/// A piece of registered memory.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Sge(ibv_sge);

impl Sge {
    /// `length` bytes at `address` in a region with this local key. Nothing is checked before the request is executed.
    #[inline]
    pub const fn new(address: u64, length: u32, lkey: u32) -> Self {
        Self(ibv_sge { addr: address, length, lkey })
    }

    /// Bytes.
    #[inline]
    pub const fn length(&self) -> u32 {
        self.0.length
    }

    /// Where it begins.
    #[inline]
    pub const fn address(&self) -> u64 {
        self.0.addr
    }

    /// The first `length` bytes, at most all, and the rest.
    #[inline]
    pub fn split_at(&self, length: u32) -> (Self, Self) {
        let head = length.min(self.0.length);
        let rest = Self::new(self.0.addr.wrapping_add(u64::from(head)), self.0.length - head, self.0.lkey);
        (Self::new(self.0.addr, head, self.0.lkey), rest)
    }
}

/// A piece of plain memory that is copied while a request is posted.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct InlineData<'a>(ibv_sge, PhantomData<&'a [u8]>);

impl<'a> InlineData<'a> {
    /// The bytes. More than 4 GiB are cut, which no queue pair accepts anyway.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self(ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 }, PhantomData)
    }
}

/// A send request over registered memory, for [`Qp::post_send`](super::Qp::post_send).
#[repr(transparent)]
pub struct SendWr<'a>(pub(super) ibv_send_wr, PhantomData<&'a [Sge]>);

/// A send request with inline data, for [`Qp::post_inline`](super::Qp::post_inline).
#[repr(transparent)]
pub struct InlineWr<'a>(pub(super) ibv_send_wr, PhantomData<&'a [InlineData<'a>]>);

#[inline]
fn request(wr_id: u64, opcode: i32, list: *const ibv_sge, count: usize, flags: u32) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        next: std::ptr::null_mut(),
        sg_list: list.cast_mut(),
        num_sge: count as i32,
        opcode,
        send_flags: flags,
        imm_data: 0,
        wr: ibv_wr_where { none: () },
        _rest: MaybeUninit::uninit(),
    }
}

macro_rules! common {
    ($(#[$doc:meta])* $wr:ident, $piece:ident $(<$life:lifetime>)?, $extra:expr) => {
        impl<'a> $wr<'a> {
            /// A message.
            #[inline]
            pub fn send(wr_id: u64, pieces: &'a [$piece $(<$life>)?], flags: SendFlags) -> Self {
                Self(request(wr_id, IBV_WR_SEND, pieces.as_ptr().cast(), pieces.len(), flags.0 | $extra), PhantomData)
            }

            /// A message with immediate data.
            #[inline]
            pub fn send_immediate(
                wr_id: u64,
                pieces: &'a [$piece $(<$life>)?],
                immediate: u32,
                flags: SendFlags,
            ) -> Self {
                let list = pieces.as_ptr().cast();
                let mut raw = request(wr_id, IBV_WR_SEND_WITH_IMM, list, pieces.len(), flags.0 | $extra);
                raw.imm_data = immediate.to_be();
                Self(raw, PhantomData)
            }

            /// A write to the peer's memory.
            #[inline]
            pub fn rdma_write(
                wr_id: u64,
                pieces: &'a [$piece $(<$life>)?],
                remote_address: u64,
                rkey: u32,
                flags: SendFlags,
            ) -> Self {
                let list = pieces.as_ptr().cast();
                let mut raw = request(wr_id, IBV_WR_RDMA_WRITE, list, pieces.len(), flags.0 | $extra);
                raw.wr.rdma = ibv_wr_rdma { remote_addr: remote_address, rkey };
                Self(raw, PhantomData)
            }

            /// Makes it a datagram to this queue pair. The handle must live until the request has completed, which
            /// the transport checks (posting checks only that it is in the same domain).
            #[inline]
            pub fn to(mut self, ah: &'a Ah, qp_number: u32, qkey: u32) -> Self {
                self.0.wr.ud = ibv_wr_ud { ah: ah.as_ptr(), remote_qpn: qp_number, remote_qkey: qkey };
                self
            }
        }
    };
}

common!(SendWr, Sge, 0);
common!(InlineWr, InlineData<'a>, IBV_SEND_INLINE);

impl<'a> SendWr<'a> {
    /// A read of the peer's memory into the pieces.
    #[inline]
    pub fn rdma_read(
        wr_id: u64,
        pieces: &'a [Sge],
        remote_address: u64,
        rkey: u32,
        flags: SendFlags,
    ) -> Self {
        let mut raw = request(wr_id, IBV_WR_RDMA_READ, pieces.as_ptr().cast(), pieces.len(), flags.0);
        raw.wr.rdma = ibv_wr_rdma { remote_addr: remote_address, rkey };
        Self(raw, PhantomData)
    }

    /// Adds to the peer's 64-bit word, and leaves what it was in `result` (8 bytes).
    #[inline]
    pub fn fetch_add(
        wr_id: u64,
        result: &'a [Sge; 1],
        remote_address: u64,
        rkey: u32,
        add: u64,
        flags: SendFlags,
    ) -> Self {
        let mut raw = request(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, result.as_ptr().cast(), 1, flags.0);
        raw.wr.atomic = ibv_wr_atomic { remote_addr: remote_address, compare_add: add, swap: 0, rkey };
        Self(raw, PhantomData)
    }

    /// Stores `swap` in the peer's 64-bit word if it equals `compare`, and leaves what it was in `result` (8 bytes).
    #[inline]
    pub fn compare_swap(
        wr_id: u64,
        result: &'a [Sge; 1],
        remote_address: u64,
        rkey: u32,
        (compare, swap): (u64, u64),
        flags: SendFlags,
    ) -> Self {
        let mut raw = request(wr_id, IBV_WR_ATOMIC_CMP_AND_SWP, result.as_ptr().cast(), 1, flags.0);
        raw.wr.atomic = ibv_wr_atomic { remote_addr: remote_address, compare_add: compare, swap, rkey };
        Self(raw, PhantomData)
    }
}

/// A receive buffer of one piece.
#[derive(Clone, Copy)]
pub struct RecvSlot {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the data go. On a datagram queue pair the first 40 bytes are for the routing header.
    pub sge: Sge,
}

/// How many receive requests go to the provider in one call.
const CHAIN: usize = 16;

/// Posts the slots in chains, until all are taken or the provider refuses one.
pub(super) fn post_in_chains(
    slots: &[RecvSlot],
    mut post: impl FnMut(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
) -> Result<usize, PostError> {
    let mut posted = 0;
    for part in slots.chunks(CHAIN) {
        // As much is written as there are slots: filling the rest would cost more than the few that are mostly posted.
        let mut pieces = [MaybeUninit::<ibv_sge>::uninit(); CHAIN];
        let mut chain = [MaybeUninit::<ibv_recv_wr>::uninit(); CHAIN];
        let list = pieces.as_mut_ptr().cast::<ibv_sge>();
        let first = chain.as_mut_ptr().cast::<ibv_recv_wr>();
        // Linked through `first`, so that no later use of `chain` ends the pointers' validity.
        for (index, slot) in part.iter().enumerate() {
            let piece = list.wrapping_add(index);
            // SAFETY: `index < CHAIN`, so the place is in the array.
            unsafe { piece.write(slot.sge.0) };
            let last = index + 1 == part.len();
            let request = ibv_recv_wr {
                wr_id: slot.wr_id,
                next: if last { std::ptr::null_mut() } else { first.wrapping_add(index + 1) },
                sg_list: piece,
                num_sge: 1,
            };
            // SAFETY: `index < CHAIN`, so the place is in the array.
            unsafe { first.wrapping_add(index).write(request) };
        }
        let mut bad = std::ptr::null_mut();
        let failed = post(first, &mut bad);
        if failed != 0 {
            // The provider points at the first request that it did not take.
            let taken = (bad as usize).wrapping_sub(first as usize) / size_of::<ibv_recv_wr>();
            posted += if bad.is_null() || taken > part.len() { 0 } else { taken };
            return if posted > 0 { Ok(posted) } else { Err(PostError(failed)) };
        }
        posted += part.len();
    }
    Ok(posted)
}
