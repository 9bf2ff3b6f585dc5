//! Where datagrams come from, as the device reports it, and what distinguishes connections.
//!
//! Built on nothing else. A datagram can contain anything; the queue pair and the port that sent it are put down by the
//! network's hardware.

/// The queue pair that a datagram comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Its port: a GID, or a LID with zeros behind it.
    pub port: [u8; 16],
    /// Its number, 24 bits.
    pub qp: u32,
}

impl Origin {
    /// That of no peer: no datagram comes from there.
    pub const NONE: Origin = Origin { port: [0; 16], qp: 0 };
}

/// The interface at the other side, and which of the connections with it this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pairing {
    /// From the interface's address, so no secret: it distinguishes interfaces that have had the same queue pair number.
    pub(super) identity: u64,
    pub(super) origin: Origin,
    pub(super) ordinal: u32,
}
