//! Pools of registered memory: datagrams to be sent, and receive buffers.
//!
//! For: `core`. Stands on `ucs::datastruct::mpool`, whose chunks are registered as they are allocated.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::datastruct::mpool::{ChunkAllocator, ChunkMemory, ElementHooks, Mpool, MpoolParams};
use uct_ib::IbError;
use uct_ib::verbs::{Access, MrBuffer, Pd, RecvSlot, Sge, Wc};
use uct_plugin::{Error, Failure};

use crate::io::packet::{DATA, HEADER, Packet, Size};

/// What the device writes ahead of a datagram: a routing header, or nothing, in this many bytes.
pub(crate) const ROUTING: usize = 40;

/// Bytes of a receive buffer ahead of everything: its local key.
const KEY: usize = 8;

/// Bytes of a message that fit into a small packet. Those of many peers may be outstanding at once.
pub(crate) const SMALL: usize = 128 - HEADER;

/// Large packets; small messages do not keep one of any further ones until they are acknowledged.
const PLENTY: u32 = 128;

/// Datagrams to be sent: small ones, and ones of an MTU.
pub(crate) struct PacketPool {
    small: Mpool,
    large: Mpool,
}

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
    source: Source,
}

/// Who sent a datagram, as its completion says.
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

    /// Takes a buffer back.
    #[inline]
    pub(crate) fn put(&self, packet: Packet) {
        let pool = if packet.size() == Size::Small { &self.small } else { &self.large };
        // SAFETY: an interface has one pool of each size, and a packet is put back by value.
        unsafe { pool.put(packet.into_raw()) };
    }

    /// A packet whose message may have turned out small: in a small buffer then, if many large ones are in use.
    #[inline]
    pub(crate) fn fit(&self, packet: Packet) -> Packet {
        let length = packet.length() - HEADER;
        if packet.size() != Size::Extra || length > SMALL || packet.has_pieces() {
            return packet;
        }
        let Some(mut small) = self.take(SMALL) else { return packet };
        // SAFETY: the small buffer holds so much, as was just checked, and the two are different.
        unsafe { small.message().copy_from_nonoverlapping(packet.message(), length) };
        small.begin(length, packet.wakes());
        self.put(packet);
        small
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

    /// What a completion brought: `length` bytes, those of the routing header included.
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

    /// Who sent it.
    #[inline]
    pub(crate) fn source(&self) -> Source {
        self.source
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

/// Makes a pool, and allocates its first elements, so that a failure has its reason.
fn registered(
    pd: &Arc<Pd>,
    params: MpoolParams,
    hooks: impl ElementHooks + 'static,
    first: u32,
) -> Result<Mpool, Failure> {
    let refusal = Rc::new(RefCell::new(None));
    let chunks = Chunks { pd: Arc::clone(pd), refusal: Rc::clone(&refusal) };
    let made = Mpool::new(params, chunks, hooks);
    let reserved = made.and_then(|pool| pool.reserve(first).map(|()| pool));
    reserved.map_err(|error| match refusal.borrow_mut().take() {
        Some(reason) => Failure::from(reason),
        None => Failure::new(Error::from(error.clone()), error.to_string()),
    })
}

/// Registered, zeroed memory. The cookie is the [`MrBuffer`].
struct Chunks {
    pd: Arc<Pd>,
    /// Why the last chunk could not be had.
    refusal: Rc<RefCell<Option<IbError>>>,
}

// SAFETY: an `MrBuffer` owns its memory, and the device touches it only for work requests that the interface posts over
// elements that are out.
unsafe impl ChunkAllocator for Chunks {
    fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
        match MrBuffer::new(&self.pd, min_len, Access::LOCAL_WRITE) {
            Ok(buffer) => {
                let buffer = Box::new(buffer);
                let ptr = NonNull::new(buffer.as_ptr()).ok_or(ucs::Error::NO_MEMORY)?;
                let len = buffer.length();
                Ok(ChunkMemory { ptr, len, cookie: Box::into_raw(buffer).cast() })
            }
            Err(error) => {
                let status = error.status();
                *self.refusal.borrow_mut() = Some(error);
                Err(ucs::Error::from_status(status))
            }
        }
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        // SAFETY: `alloc` made the box, and the pool frees a chunk once.
        drop(unsafe { Box::from_raw(chunk.cookie.cast::<MrBuffer>()) });
    }
}

/// The local key of a chunk.
///
/// # Safety
/// `cookie` is that of a chunk of [`Chunks`] that lives.
unsafe fn lkey(cookie: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    let buffer = unsafe { &*cookie.cast::<MrBuffer>() };
    buffer.mr().lkey()
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
