//! What a program asks an endpoint for.

use super::Buffer;

/// How an operation completes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// It makes an entry in the queue when it succeeds. An error makes one in any case. Counters count it in any case.
    pub is_reported: bool,
    /// The bytes are copied during the call: at most [`super::MAX_INJECT`] of them.
    pub inject: bool,
    /// It completes only when the bytes are in the peer's memory (`FI_DELIVERY_COMPLETE`).
    pub delivery: bool,
}

/// Tags that a receive takes: equal where `ignore` has no bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// The tag.
    pub tag: u64,
    /// Bits that may differ.
    pub ignore: u64,
}

/// A message to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Index in the endpoint's address vector.
    pub to: u64,
    /// The bytes.
    pub buffers: &'a [Buffer],
    /// `None`: an untagged message.
    pub tag: Option<u64>,
    /// For the receiver's entry.
    pub data: Option<u64>,
    /// For this side's entry.
    pub context: usize,
    /// How it completes.
    pub mode: Mode,
}

/// A receive: posted, or of a claimed message.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Only messages of this peer, an index in the endpoint's address vector.
    pub from: Option<u64>,
    /// Where the bytes go.
    pub buffers: &'a [Buffer],
    /// `None`: an untagged message.
    pub tag: Option<TagFilter>,
    /// For the entry.
    pub context: usize,
    /// It makes an entry when it succeeds.
    pub is_reported: bool,
}

/// A look at the messages that wait for a receive. Makes an entry with the message's length, tag and data, or an error entry `ENOMSG`.
#[derive(Clone, Copy, Debug)]
pub struct Peek {
    /// As [`Receive::from`].
    pub from: Option<u64>,
    /// As [`Receive::tag`].
    pub tag: Option<TagFilter>,
    /// For the entry; a claimed message is received with the same context.
    pub context: usize,
    /// What becomes of the message.
    pub action: PeekAction,
}

/// What becomes of a message that a [`Peek`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeekAction {
    /// It stays.
    Look,
    /// It is reserved for [`super::Endpoint::claim`].
    Claim,
    /// It is thrown away.
    Discard,
}

/// A place in a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The region's key.
    pub key: u64,
    /// From the region's first byte on.
    pub offset: u64,
}

/// A write to, or a read from, a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct Rma<'a> {
    /// Index in the endpoint's address vector.
    pub to: u64,
    /// This side's bytes.
    pub buffers: &'a [Buffer],
    /// The peer's.
    pub remote: Remote,
    /// A write only: for an entry of the peer's.
    pub data: Option<u64>,
    /// For this side's entry.
    pub context: usize,
    /// How it completes. A read is always delivered.
    pub mode: Mode,
}

/// An update of each element of a peer's region, with elements of this side.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// Index in the endpoint's address vector.
    pub to: u64,
    /// Operands; none for a read.
    pub operands: &'a [Buffer],
    /// What elements are compared with, and a mask for [`Operation::MaskedSwap`]; none for other operations.
    pub compare: &'a [Buffer],
    /// Where the former elements go; none for an operation that fetches nothing.
    pub results: &'a [Buffer],
    /// The peer's first element.
    pub remote: Remote,
    /// What an element is.
    pub data_type: DataType,
    /// What is done with each.
    pub operation: Operation,
    /// Elements.
    pub count: usize,
    /// For this side's entry.
    pub context: usize,
    /// How it completes.
    pub mode: Mode,
}

/// The three forms of atomic calls, for the question which are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Nothing comes back.
    Plain,
    /// The former elements come back.
    Fetch,
    /// The same, with something to compare with.
    Compare,
}

/// The types of elements, with libfabric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "libfabric's names say it")]
pub enum DataType {
    Int32 = 4,
    Uint32 = 5,
    Int64 = 6,
    Uint64 = 7,
    Float = 8,
    Double = 9,
}

impl DataType {
    /// From libfabric's number; `None` for types that are not offered.
    pub fn new(number: u32) -> Option<DataType> {
        use DataType::{Double, Float, Int32, Int64, Uint32, Uint64};
        [Int32, Uint32, Int64, Uint64, Float, Double].into_iter().find(|known| *known as u32 == number)
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            DataType::Int32 | DataType::Uint32 | DataType::Float => 4,
            DataType::Int64 | DataType::Uint64 | DataType::Double => 8,
        }
    }

    /// Whether it is no integer.
    pub fn is_float(self) -> bool {
        matches!(self, DataType::Float | DataType::Double)
    }
}

/// Atomic operations, with libfabric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "libfabric's names say it")]
pub enum Operation {
    Min = 0,
    Max = 1,
    Sum = 2,
    Product = 3,
    LogicalOr = 4,
    LogicalAnd = 5,
    BitOr = 6,
    BitAnd = 7,
    LogicalXor = 8,
    BitXor = 9,
    Read = 10,
    Write = 11,
    CompareSwap = 12,
    CompareSwapNotEqual = 13,
    CompareSwapLessEqual = 14,
    CompareSwapLess = 15,
    CompareSwapGreaterEqual = 16,
    CompareSwapGreater = 17,
    MaskedSwap = 18,
}

impl Operation {
    const ALL: [Operation; 19] = [
        Operation::Min,
        Operation::Max,
        Operation::Sum,
        Operation::Product,
        Operation::LogicalOr,
        Operation::LogicalAnd,
        Operation::BitOr,
        Operation::BitAnd,
        Operation::LogicalXor,
        Operation::BitXor,
        Operation::Read,
        Operation::Write,
        Operation::CompareSwap,
        Operation::CompareSwapNotEqual,
        Operation::CompareSwapLessEqual,
        Operation::CompareSwapLess,
        Operation::CompareSwapGreaterEqual,
        Operation::CompareSwapGreater,
        Operation::MaskedSwap,
    ];

    /// From libfabric's number; `None` for operations that are not offered.
    pub fn new(number: u32) -> Option<Operation> {
        Operation::ALL.get(number as usize).copied()
    }

    /// Whether it takes something to compare with.
    pub fn compares(self) -> bool {
        self as u8 >= Operation::CompareSwap as u8
    }

    /// Whether it is offered for these elements, in a call of this form.
    pub fn is_offered(self, data_type: DataType, kind: AtomicKind) -> bool {
        use Operation::{BitAnd, BitOr, BitXor, MaskedSwap, Read};
        let fits = match kind {
            AtomicKind::Plain => !self.compares() && self != Read,
            AtomicKind::Fetch => !self.compares(),
            AtomicKind::Compare => self.compares(),
        };
        fits && !(data_type.is_float() && matches!(self, BitAnd | BitOr | BitXor | MaskedSwap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_lists() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
        }
        assert_eq!(Operation::new(19), None);
        assert_eq!(DataType::new(9), Some(DataType::Double));
        assert_eq!(DataType::new(0), None);
        assert_eq!(DataType::new(10), None);
    }

    #[test]
    fn what_is_offered_depends_on_the_form() {
        assert!(Operation::Sum.is_offered(DataType::Float, AtomicKind::Plain));
        assert!(!Operation::BitOr.is_offered(DataType::Double, AtomicKind::Plain));
        assert!(!Operation::Read.is_offered(DataType::Int64, AtomicKind::Plain));
        assert!(Operation::Read.is_offered(DataType::Int64, AtomicKind::Fetch));
        assert!(Operation::CompareSwap.is_offered(DataType::Int64, AtomicKind::Compare));
        assert!(!Operation::CompareSwap.is_offered(DataType::Int64, AtomicKind::Fetch));
    }
}
