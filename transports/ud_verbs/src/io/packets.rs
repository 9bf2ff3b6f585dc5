//! The pool of datagrams to be sent, in two sizes.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use ucs::datastruct::mpool::{ElementHooks, Mpool, MpoolParams};
use uct_ib::verbs::Pd;
use uct_plugin::Failure;

use super::chunks::{lkey, registered};
use super::packet::{DATA, HEADER, Packet, Size};

/// Bytes of a message that fit into a small packet. Those of many peers may be outstanding at once.
pub(crate) const SMALL: usize = 128 - HEADER;

/// Large packets; small messages do not keep one of any further ones until they are acknowledged.
const PLENTY: u32 = 128;

/// Datagrams to be sent: small ones, and ones of an MTU.
pub(crate) struct PacketPool {
    small: Mpool,
    large: Mpool,
}

impl PacketPool {
    /// Buffers for datagrams of `mtu` bytes, at most `most` of each size.
    pub(crate) fn new(pd: &Arc<Pd>, mtu: usize, most: u32) -> Result<PacketPool, Failure> {
        let pool = |name: &str, bytes: usize, chunk: u32, plenty: Option<u32>| {
            let elems_per_chunk = chunk.min(most);
            let params =
                MpoolParams { elems_per_chunk, max_elems: most, ..MpoolParams::new(name, DATA + bytes) };
            registered(pd, params, PacketHooks { plenty, made: Cell::new(0) }, 1)
        };
        Ok(PacketPool {
            small: pool("ud_verbs small send", HEADER + SMALL, 256, None)?,
            large: pool("ud_verbs send", mtu, 64, Some(PLENTY))?,
        })
    }

    /// A buffer for a message of up to `length` bytes, if there is one.
    #[inline]
    pub(crate) fn take(&self, length: usize) -> Option<Packet> {
        let small = if length <= SMALL { self.small.get() } else { None };
        let element = small.or_else(|| self.large.get())?;
        // SAFETY: the hooks have prepared every element, and it is the caller's now.
        Some(unsafe { Packet::from_raw(element) })
    }

    /// Takes a buffer back. A completion that is still in it is dropped.
    #[inline]
    pub(crate) fn put(&self, mut packet: Packet) {
        packet.completion = None;
        let pool = if packet.size == Size::Small { &self.small } else { &self.large };
        // SAFETY: an interface has one pool of each size, and a packet is put back by value.
        unsafe { pool.put(packet.into_raw()) };
    }

    /// A packet whose message may have turned out small: in a small buffer then, if many large ones are in use.
    #[inline]
    pub(crate) fn fit(&self, packet: Packet) -> Packet {
        let length = packet.length as usize - HEADER;
        if packet.size != Size::Extra || length > SMALL || packet.has_pieces() {
            return packet;
        }
        let Some(mut small) = self.take(SMALL) else { return packet };
        // SAFETY: the small buffer holds so much, as was just checked, and the two are different.
        unsafe { small.message().copy_from_nonoverlapping(packet.message(), length) };
        small.begin(length, packet.wakes);
        self.put(packet);
        small
    }
}

struct PacketHooks {
    /// Large packets that are made before they are [`Size::Extra`]; `None` makes small ones.
    plenty: Option<u32>,
    made: Cell<u32>,
}

impl ElementHooks for PacketHooks {
    unsafe fn init(&self, element: NonNull<u8>, cookie: *mut c_void) {
        // SAFETY: the pool passes the cookie of the chunk that the element is in.
        let lkey = unsafe { lkey(cookie) };
        let made = self.made.replace(self.made.get().saturating_add(1));
        let size = match self.plenty {
            None => Size::Small,
            Some(plenty) if made < plenty => Size::Large,
            Some(_) => Size::Extra,
        };
        // SAFETY: the pool's elements hold `DATA` bytes and more, on a cache line.
        unsafe { Packet::prepare(element, lkey, size) };
    }
}
