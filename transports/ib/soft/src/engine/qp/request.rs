//! Send requests.
//!
//! For requesters.

use super::super::completion::Opcode;
use super::super::memory::Atomic;
use super::super::receive::Pieces;
use super::super::wire::Extra;
use super::Path;

/// The data of a send request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendData {
    /// In registered memory, which is read when it is sent; for reads and atomics it is where they put what they find.
    Pieces(Pieces),
    /// Copied when it was posted.
    Inline(Vec<u8>),
}

impl SendData {
    /// Bytes.
    pub fn length(&self) -> u64 {
        match self {
            SendData::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
            SendData::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its address.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendKind {
    /// A message for a receive buffer.
    Send,
    /// An RDMA WRITE.
    Write(Target),
    /// An RDMA READ.
    Read(Target),
    /// An atomic operation on eight bytes.
    Atomic(Target, Atomic),
    /// A datagram.
    Datagram {
        /// The way.
        path: Path,
        /// The queue pair that it is for.
        qp: u32,
        /// Its key; with the highest bit set the sender's own key is taken.
        qkey: u32,
    },
}

impl SendKind {
    /// Whether the peer answers with data.
    pub fn is_read(self) -> bool {
        matches!(self, SendKind::Read(_) | SendKind::Atomic(..))
    }

    /// What its completion is of.
    pub fn opcode(self) -> Opcode {
        match self {
            SendKind::Send | SendKind::Datagram { .. } => Opcode::Send,
            SendKind::Write(_) => Opcode::Write,
            SendKind::Read(_) => Opcode::Read,
            SendKind::Atomic(_, Atomic::Add(_)) => Opcode::FetchAdd,
            SendKind::Atomic(_, Atomic::CompareSwap { .. }) => Opcode::CompareSwap,
        }
    }
}

/// A send request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendRequest {
    /// The application's word.
    pub wr_id: u64,
    /// What it does.
    pub kind: SendKind,
    /// Its data.
    pub data: SendData,
    /// What comes with its last packet.
    pub extra: Extra,
    /// Whether its success has a completion.
    pub is_signaled: bool,
    /// Whether the peer's completion is announced to a queue that waits for solicited ones.
    pub is_solicited: bool,
    /// Whether it waits until the reads and atomics before it have ended.
    pub is_fenced: bool,
}
