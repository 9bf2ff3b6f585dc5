//! The pool of receive buffers, and what a received datagram is in.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use ucs::datastruct::mpool::{ElementHooks, Mpool, MpoolParams};
use uct_ib::verbs::{Pd, RecvSlot, Sge, Wc};
use uct_plugin::Failure;

use super::chunks::{lkey, registered};
use super::packet::HEADER;

/// What the device writes ahead of a datagram: a routing header, or nothing, in this many bytes.
pub(crate) const ROUTING: usize = 40;

/// Bytes of a receive buffer ahead of everything: its local key.
const KEY: usize = 8;

/// Receive buffers.
///
/// | element | what |
/// |---|---|
/// | 0 | local key |
/// | `routing` | 40 bytes of routing header |
/// | `routing` + 40 | header of the protocol (16) |
/// | `routing` + 56 | the message, on a cache line; the headroom ends here |
pub(crate) struct ReceivePool {
    pool: Mpool,
    routing: usize,
    /// What the device may fill: a routing header and an MTU.
    room: usize,
}

/// A received datagram, in its buffer, owned. It goes back to its pool or to the device; dropping it leaks it.
#[must_use = "a buffer that is not put back is lost to its pool"]
pub(crate) struct Arrival {
    element: NonNull<u8>,
    /// Bytes behind the routing header.
    length: u32,
    routing: u32,
    pub(crate) source: Source,
}

/// The sender of a datagram, according to its completion.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) qp: u32,
    /// InfiniBand's; 0 on Ethernet.
    pub(crate) lid: u16,
    /// There is a routing header.
    pub(crate) is_routed: bool,
}

impl Source {
    /// The sender of what a completion is for.
    #[inline]
    pub(crate) fn of(completion: &Wc) -> Source {
        Source { qp: completion.source_qp(), lid: completion.source_lid(), is_routed: completion.has_grh() }
    }
}

impl ReceivePool {
    /// Buffers for datagrams of `mtu` bytes with `headroom` bytes of the keeper's ahead of the message, at most `most`.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        mtu: usize,
        headroom: usize,
        first: u32,
        most: u32,
    ) -> Result<Self, Failure> {
        let ahead = headroom.max(ROUTING + HEADER).next_multiple_of(8) + KEY;
        let routing = ahead - ROUTING - HEADER;
        let size = routing + ROUTING + mtu;
        let params = MpoolParams {
            align_offset: ahead,
            elems_per_chunk: 128.min(most),
            max_elems: most,
            ..MpoolParams::new("ud_verbs receive", size)
        };
        let pool = registered(pd, params, ReceiveHooks, first.min(most))?;
        Ok(ReceivePool { pool, routing, room: ROUTING + mtu })
    }

    /// A buffer to be posted, if there is one.
    pub(crate) fn take(&self) -> Option<RecvSlot> {
        let element = self.pool.get()?;
        // SAFETY: the hooks wrote the key there.
        let lkey = unsafe { element.cast::<u32>().read() };
        let address = element.as_ptr() as u64;
        let sge = Sge::new(address + self.routing as u64, self.room as u32, lkey);
        Some(RecvSlot { wr_id: address, sge })
    }

    /// The datagram of a completion: `length` bytes, those of the routing header included.
    ///
    /// # Safety
    /// `wr_id` is that of a slot that [`ReceivePool::take`] gave and whose work request has ended, once.
    #[inline]
    pub(crate) unsafe fn arrived(&self, wr_id: u64, length: usize, source: Source) -> Option<Arrival> {
        let element = NonNull::new(wr_id as *mut u8)?;
        let length = length.min(self.room).saturating_sub(ROUTING);
        Some(Arrival { element, length: length as u32, routing: self.routing as u32, source })
    }

    /// Takes a buffer back.
    #[inline]
    pub(crate) fn put(&self, arrival: Arrival) {
        // SAFETY: an interface has one pool of receive buffers, and an arrival is put back by value.
        unsafe { self.pool.put(arrival.element) };
    }

    /// Takes back a buffer that was not posted.
    ///
    /// # Safety
    /// The slot came from [`ReceivePool::take`], and is not used any more.
    pub(crate) unsafe fn put_slot(&self, slot: RecvSlot) {
        if let Some(element) = NonNull::new(slot.wr_id as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { self.pool.put(element) };
        }
    }

    /// The arrival whose message was delivered at `message`.
    ///
    /// # Safety
    /// `message` is [`Arrival::message`] of an arrival of this pool that was forgotten for the keeper of the message, once.
    pub(crate) unsafe fn retained(&self, message: *mut u8) -> Option<Arrival> {
        let element = NonNull::new(message.wrapping_sub(self.routing + ROUTING + HEADER))?;
        let source = Source { qp: 0, lid: 0, is_routed: false };
        Some(Arrival { element, length: 0, routing: self.routing as u32, source })
    }
}

impl Arrival {
    /// The datagram, header of the protocol and all.
    #[inline]
    pub(crate) fn datagram(&self) -> &[u8] {
        let start = self.element.as_ptr().wrapping_add(self.routing as usize + ROUTING);
        // SAFETY: the buffer goes on for the MTU from there, which `length` was held to (`arrived`); it is zeroed when
        // it is made, so initialised, and the device has ended writing to it.
        unsafe { std::slice::from_raw_parts(start, self.length as usize) }
    }

    /// What the device wrote ahead of the datagram: a routing header, if there was one.
    #[inline]
    pub(crate) fn routing_header(&self) -> &[u8; ROUTING] {
        let start = self.element.as_ptr().wrapping_add(self.routing as usize);
        // SAFETY: the buffer begins with so many bytes from there (`ReceivePool::new`), zeroed when it was made, and the
        // device has ended writing to it.
        unsafe { &*start.cast::<[u8; ROUTING]>() }
    }

    /// The first byte of the message, behind the protocol's header.
    #[inline]
    pub(crate) fn message(&self) -> *mut u8 {
        self.element.as_ptr().wrapping_add(self.routing as usize + ROUTING + HEADER)
    }

    /// Bytes of the message; 0 for what is too short to have one.
    #[inline]
    pub(crate) fn message_length(&self) -> usize {
        (self.length as usize).saturating_sub(HEADER)
    }

    /// The message.
    pub(crate) fn body(&self) -> &[u8] {
        self.datagram().get(HEADER..).unwrap_or(&[])
    }
}

struct ReceiveHooks;

impl ElementHooks for ReceiveHooks {
    unsafe fn init(&self, element: NonNull<u8>, cookie: *mut c_void) {
        // SAFETY: the pool passes the cookie of the chunk that the element is in.
        let lkey = unsafe { lkey(cookie) };
        // SAFETY: the element begins with the key's place, at a multiple of 8, since what is aligned lies a multiple of
        // 8 behind it.
        unsafe { element.cast::<u32>().write(lkey) };
    }
}
