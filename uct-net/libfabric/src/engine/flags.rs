//! The bits of entries and operations, with libfabric's values: entries go to the program as they are.

/// An untagged message.
pub const MSG: u64 = 1 << 1;
/// Remote memory.
pub const RMA: u64 = 1 << 2;
/// A tagged message.
pub const TAGGED: u64 = 1 << 3;
/// An atomic operation.
pub const ATOMIC: u64 = 1 << 4;
/// A read by this side.
pub const READ: u64 = 1 << 8;
/// A write by this side.
pub const WRITE: u64 = 1 << 9;
/// A received message.
pub const RECV: u64 = 1 << 10;
/// A sent message.
pub const SEND: u64 = 1 << 11;
/// A read by the peer.
pub const REMOTE_READ: u64 = 1 << 12;
/// A write by the peer.
pub const REMOTE_WRITE: u64 = 1 << 13;
/// The buffer of a multi-receive is the program's again.
pub const MULTI_RECV: u64 = 1 << 16;
/// The entry has the peer's data.
pub const REMOTE_CQ_DATA: u64 = 1 << 17;
