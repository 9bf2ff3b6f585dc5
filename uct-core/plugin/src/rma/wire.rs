//! The frames: pure functions between bytes and records. Everything read is untrusted.
//!
//! Numbers are little-endian. A request:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | operation, [`Opcode`] |
//! | 1 | atomic operation (`UCT_ATOMIC_*`), else 0 |
//! | 2..4 | 0 |
//! | 4..8 | sequence number |
//! | 8..16 | secret of the region |
//! | 16..24 | address |
//! | 24..28 | bytes: that follow (put), that are wanted (get), of the operand (atomics) |
//! | 28..32 | slot of the region in the target's table |
//! | 32.. | put: the data; posted and fetching atomics: the operand, 8 bytes; compare-and-swap: compare, swap, 8 bytes each |
//!
//! A response:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | [`ResponseKind`] |
//! | 1..4 | 0 |
//! | 4..8 | sequence number of the request; all up to it were carried out |
//! | 8..12 | status of an error, else 0 |
//! | 12..16 | bytes that follow |
//! | 16.. | data of a get, or the old value: 4 or 8 bytes |

use ucs::{Error, Status};

use crate::atomic::{Atomic, Change, Width};
use crate::attr::AtomicOp;

/// Bytes of a request ahead of data and operands.
pub const REQUEST_HEADER: usize = 32;
/// Bytes of the largest request without data.
pub const MAX_REQUEST: usize = REQUEST_HEADER + 16;
/// Bytes of a response ahead of its data.
pub const RESPONSE_HEADER: usize = 16;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Write.
    Put = 1,
    /// Read.
    Get = 2,
    /// An atomic on 4 bytes without a result.
    Post32 = 3,
    /// The same on 8 bytes.
    Post64 = 4,
    /// An atomic on 4 bytes with the old value as its result.
    Fetch32 = 5,
    /// The same on 8 bytes.
    Fetch64 = 6,
    /// Compare and swap 4 bytes.
    Cswap32 = 7,
    /// The same on 8 bytes.
    Cswap64 = 8,
}

/// One request without the data of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub opcode: Opcode,
    /// Which atomic; [`AtomicOp::Add`] where there is none.
    pub atomic: AtomicOp,
    /// Its number.
    pub sequence: u32,
    /// Slot of the region in the target's table.
    pub slot: u32,
    /// The region's secret.
    pub secret: u64,
    /// Where.
    pub address: u64,
    /// How many bytes.
    pub length: u32,
    /// Operands of atomics: the value, or compare and swap.
    pub operands: [u64; 2],
}

/// What a response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResponseKind {
    /// Nothing but the news that requests were carried out.
    Acknowledgement = 1,
    /// What a get read.
    Data = 2,
    /// The old value of an atomic.
    Value = 3,
    /// The request was refused.
    Error = 4,
}

/// A response without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// What it contains.
    pub kind: ResponseKind,
    /// The request that it belongs to.
    pub sequence: u32,
    /// Why the request was refused; [`Status::OK`] otherwise.
    pub status: Status,
    /// Bytes that follow.
    pub length: u32,
}

/// Bytes that are no frame, or a response without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

impl Opcode {
    const fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            1 => Opcode::Put,
            2 => Opcode::Get,
            3 => Opcode::Post32,
            4 => Opcode::Post64,
            5 => Opcode::Fetch32,
            6 => Opcode::Fetch64,
            7 => Opcode::Cswap32,
            8 => Opcode::Cswap64,
            _ => return None,
        })
    }

    /// Bytes of operands behind the header.
    pub const fn operand_bytes(self) -> usize {
        match self {
            Opcode::Put | Opcode::Get => 0,
            Opcode::Post32 | Opcode::Post64 | Opcode::Fetch32 | Opcode::Fetch64 => 8,
            Opcode::Cswap32 | Opcode::Cswap64 => 16,
        }
    }

    /// That of an atomic, with its operation and operands as a request has them.
    pub(super) const fn of_atomic(atomic: Atomic, has_result: bool) -> (Opcode, AtomicOp, [u64; 2]) {
        use Width::{Bits32, Bits64};
        match (atomic.change, atomic.width, has_result) {
            (Change::Op(op, value), Bits32, false) => (Opcode::Post32, op, [value, 0]),
            (Change::Op(op, value), Bits64, false) => (Opcode::Post64, op, [value, 0]),
            (Change::Op(op, value), Bits32, true) => (Opcode::Fetch32, op, [value, 0]),
            (Change::Op(op, value), Bits64, true) => (Opcode::Fetch64, op, [value, 0]),
            (Change::CompareSwap { compare, swap }, Bits32, _) => {
                (Opcode::Cswap32, AtomicOp::Add, [compare, swap])
            }
            (Change::CompareSwap { compare, swap }, Bits64, _) => {
                (Opcode::Cswap64, AtomicOp::Add, [compare, swap])
            }
        }
    }

    /// Bytes of memory that an atomic works on; 0 for the others.
    pub const fn atomic_bytes(self) -> usize {
        match self {
            Opcode::Put | Opcode::Get => 0,
            Opcode::Post32 | Opcode::Fetch32 | Opcode::Cswap32 => 4,
            Opcode::Post64 | Opcode::Fetch64 | Opcode::Cswap64 => 8,
        }
    }
}

impl Request {
    /// Its atomic; `None` for put and get.
    pub(super) fn to_atomic(self) -> Option<Atomic> {
        let [first, second] = self.operands;
        let (width, change) = match self.opcode {
            Opcode::Put | Opcode::Get => return None,
            Opcode::Post32 | Opcode::Fetch32 => (Width::Bits32, Change::Op(self.atomic, first)),
            Opcode::Post64 | Opcode::Fetch64 => (Width::Bits64, Change::Op(self.atomic, first)),
            Opcode::Cswap32 => (Width::Bits32, Change::CompareSwap { compare: first, swap: second }),
            Opcode::Cswap64 => (Width::Bits64, Change::CompareSwap { compare: first, swap: second }),
        };
        Some(Atomic { width, change })
    }

    /// Bytes of the frame without the data of a put.
    pub const fn frame_bytes(&self) -> usize {
        REQUEST_HEADER + self.opcode.operand_bytes()
    }

    /// Writes header and operands; returns [`Request::frame_bytes`]. The data of a put follow.
    ///
    /// # Panics
    /// If `frame` is shorter than that; [`MAX_REQUEST`] bytes always do.
    pub fn write(&self, frame: &mut [u8]) -> usize {
        let bytes = self.frame_bytes();
        let frame = &mut frame[..bytes];
        frame[0] = self.opcode as u8;
        frame[1] = self.atomic as u32 as u8;
        frame[2..4].fill(0);
        frame[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        frame[8..16].copy_from_slice(&self.secret.to_le_bytes());
        frame[16..24].copy_from_slice(&self.address.to_le_bytes());
        frame[24..28].copy_from_slice(&self.length.to_le_bytes());
        frame[28..32].copy_from_slice(&self.slot.to_le_bytes());
        for (place, operand) in frame[REQUEST_HEADER..].chunks_exact_mut(8).zip(self.operands) {
            place.copy_from_slice(&operand.to_le_bytes());
        }
        bytes
    }

    /// Reads header and operands of a frame of which at least [`Request::frame_bytes`] have arrived; returns the request and
    /// the rest: of a put as much of its data as has arrived.
    pub fn read(frame: &[u8]) -> Result<(Request, &[u8]), Malformed> {
        let Some((header, rest)) = frame.split_first_chunk::<REQUEST_HEADER>() else {
            return Err(Malformed("a request is shorter than its header"));
        };
        let opcode = Opcode::from_number(header[0]).ok_or(Malformed("a request for an unknown operation"))?;
        let atomic =
            AtomicOp::from_abi(header[1].into()).ok_or(Malformed("a request for an unknown atomic"))?;
        let length = half(header, 24);
        let operand_bytes = opcode.operand_bytes();
        if rest.len() < operand_bytes {
            return Err(Malformed("a request is shorter than its operands"));
        }
        if operand_bytes > 0 && (rest.len() != operand_bytes || length as usize != opcode.atomic_bytes()) {
            return Err(Malformed("an atomic has another length than its kind"));
        }
        if opcode == Opcode::Get && !rest.is_empty() {
            return Err(Malformed("a get carries data"));
        }
        let (operands, data) = rest.split_at(operand_bytes);
        let operand = |index: usize| operands.get(index * 8..index * 8 + 8).map_or(0, |bytes| word(bytes, 0));
        let request = Request {
            opcode,
            atomic,
            sequence: half(header, 4),
            slot: half(header, 28),
            secret: word(header, 8),
            address: word(header, 16),
            length,
            operands: [operand(0), operand(1)],
        };
        Ok((request, data))
    }
}

impl Response {
    /// The bytes of the header.
    pub fn header(&self) -> [u8; RESPONSE_HEADER] {
        let mut header = [0; RESPONSE_HEADER];
        header[0] = self.kind as u8;
        header[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        header[8..12].copy_from_slice(&self.status.raw().to_le_bytes());
        header[12..16].copy_from_slice(&self.length.to_le_bytes());
        header
    }

    /// Reads a whole response; returns its data too.
    pub fn read(frame: &[u8]) -> Result<(Response, &[u8]), Malformed> {
        let (response, data) = Response::read_header(frame)?;
        if data.len() != response.length as usize {
            return Err(Malformed("a response has another length than its header says"));
        }
        Ok((response, data))
    }

    /// Reads the header of a response whose data may not have arrived; returns those that have, too.
    pub(super) fn read_header(frame: &[u8]) -> Result<(Response, &[u8]), Malformed> {
        let Some((header, data)) = frame.split_first_chunk::<RESPONSE_HEADER>() else {
            return Err(Malformed("a response is shorter than its header"));
        };
        let kind = match header[0] {
            1 => ResponseKind::Acknowledgement,
            2 => ResponseKind::Data,
            3 => ResponseKind::Value,
            4 => ResponseKind::Error,
            _ => return Err(Malformed("a response of an unknown kind")),
        };
        let status = Status::from_raw(half(header, 8).cast_signed());
        let length = half(header, 12);
        if (kind == ResponseKind::Error) != status.is_error() {
            return Err(Malformed("the status of a response does not fit its kind"));
        }
        Ok((Response { kind, sequence: half(header, 4), status, length }, data))
    }

    /// Why the request was refused.
    pub fn error(&self) -> Error {
        Error::from_status(self.status)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
