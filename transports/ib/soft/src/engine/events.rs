//! Asynchronous events.
//!
//! For applications, by the functions of `abi`.

use super::{CqId, SrqId};

/// What happened to an object, a port or the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A completion queue had no room for a completion.
    CqError(CqId),
    /// A queue pair failed, and the device cannot say it by a completion.
    QpFatal(u32),
    /// A peer's request was invalid.
    QpRequestError(u32),
    /// A peer's request was not permitted.
    QpAccessError(u32),
    /// The first packet of a connection arrived before the application knew that it is there.
    CommunicationEstablished(u32),
    /// The send queue has stopped, and everything that was begun has ended.
    SendQueueDrained(u32),
    /// A failed queue pair will take no further request from its shared receive queue.
    LastReceiveReached(u32),
    /// A shared receive queue failed.
    SrqError(SrqId),
    /// A shared receive queue has fewer requests than its limit.
    SrqLimitReached(SrqId),
    /// The device failed.
    DeviceFatal,
    /// The port carries traffic again.
    PortActive,
    /// The port carries no traffic.
    PortError,
    /// The port's local identifier changed.
    LidChange,
    /// The port's table of partitions changed.
    PkeyChange,
    /// The subnet manager changed.
    SubnetManagerChange,
    /// The subnet manager asks to register again.
    ClientReregister,
    /// The port's table of addresses changed.
    GidChange,
}
