//! How a message gets from an endpoint to the device, and into the care of the protocol.
//!
//! Built on the core's table, queue and pool.

use uct_plugin::{Error, Result};

use super::clock::Clock;
use super::{Core, UdHandles};
use crate::io::packet::Packet;
use crate::io::packets::PacketPool;
use crate::io::queue::Queue;
use crate::link::failure::status;
use crate::proto::{ConnectionId, Next, Phase, header::flag};

impl Core {
    /// A buffer for a message of up to `length` bytes on a connection that may be sent now.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`] if not now, or why never.
    #[inline]
    pub(crate) fn packet(&mut self, id: ConnectionId, length: usize) -> Result<Packet> {
        if !self.table.may_send(id) {
            return Err(self.refusal(id));
        }
        if !self.queue.reserve() {
            return Err(Error::NO_RESOURCE);
        }
        self.packets.take(length).ok_or(Error::NO_RESOURCE)
    }

    /// Why nothing can be sent on a connection now.
    #[cold]
    pub(crate) fn refusal(&self, id: ConnectionId) -> Error {
        match self.table.phase(id) {
            Phase::Unconnected => Error::NOT_CONNECTED,
            Phase::Connecting | Phase::Connected => Error::NO_RESOURCE,
            Phase::Failed(failure) => status(failure),
            Phase::Finished | Phase::Aborted => Error::CANCELED,
        }
    }

    /// Whether a send that was refused is blocked on something that all connections share.
    pub(crate) fn is_blocked_on_shared(&self, id: ConnectionId) -> bool {
        self.table.may_send(id)
    }

    /// Sends a message; the packet goes back to the pool if it cannot be sent.
    ///
    /// # Errors
    /// As [`Core::packet`].
    #[inline]
    pub(crate) fn send(&mut self, id: ConnectionId, kind: u8, packet: Packet) -> Result {
        let is_answer = self.has_deferred();
        let Core { queue, table, packets, clock, .. } = self;
        match table.next(id) {
            Some(next) => post_message(next, queue, packets, (clock, is_answer), kind, packet),
            None => {
                self.unsend(packet);
                Err(self.refusal(id))
            }
        }
    }

    /// Lets `fill` write a message of up to `length` bytes into a buffer, and sends it.
    ///
    /// # Errors
    /// As [`Core::packet`], or what `fill` returns.
    #[inline(always)]
    pub(crate) fn send_filled(
        &mut self,
        id: ConnectionId,
        kind: u8,
        length: usize,
        fill: impl FnOnce(&mut Packet) -> Result,
    ) -> Result {
        let is_answer = self.has_deferred();
        let Core { queue, table, packets, clock, .. } = self;
        let Some(next) = table.next(id) else { return Err(self.refusal(id)) };
        if !queue.reserve() {
            return Err(Error::NO_RESOURCE);
        }
        let mut packet = packets.take(length).ok_or(Error::NO_RESOURCE)?;
        if let Err(error) = fill(&mut packet) {
            packets.put(packet);
            return Err(error);
        }
        post_message(next, queue, packets, (clock, is_answer), kind, packet)
    }

    /// As [`Core::send`], for a packet that was made for more than it now has.
    ///
    /// # Errors
    /// As [`Core::packet`].
    #[inline]
    pub(crate) fn send_fitting(&mut self, id: ConnectionId, kind: u8, packet: Packet) -> Result {
        let packet = self.packets.fit(packet);
        self.send(id, kind, packet)
    }

    /// Sends a message of bytes that fit, whether or not requests of the application's wait.
    pub(crate) fn send_bytes(&mut self, id: ConnectionId, kind: u8, bytes: &[u8]) -> Result {
        let mut packet = self.packet(id, bytes.len())?;
        // SAFETY: the bytes fit into a message, which their maker checks, and the buffer is no part of them.
        unsafe { packet.message().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        packet.begin(bytes.len(), false);
        self.send(id, kind, packet)
    }

    /// Puts back a packet that was not sent; its completion is dropped.
    pub(crate) fn unsend(&mut self, packet: Packet) {
        self.packets.put(packet);
    }
}

/// Posts a message and hands it over to the protocol.
#[inline(always)]
fn post_message(
    next: Next<'_, UdHandles>,
    queue: &mut Queue,
    packets: &PacketPool,
    (clock, is_answer): (&mut Clock, bool),
    kind: u8,
    mut packet: Packet,
) -> Result {
    let flags = if packet.wakes { flag::WAKE } else { 0 };
    packet.set_header(&next.header(kind, flags));
    let posted = match next.path() {
        Some(path) => queue.post(&mut packet, path, false),
        // A connection that can take a message has one.
        None => Err(Error::NOT_CONNECTED),
    };
    if let Err(error) = posted {
        packets.put(packet);
        return Err(error);
    }
    // What else is outstanding was sent a moment ago, unless the peer has acknowledged it; otherwise the clock may have stood for long.
    let now = if is_answer || next.is_first() { clock.refresh() } else { clock.now() };
    next.sent(now, kind, flags, packet);
    Ok(())
}
