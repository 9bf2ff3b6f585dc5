//! A verbs device without input and output: queue pairs, completion queues, memory, and the protocol between two devices.
//!
//! A link hands packets in and takes packets out ([`Device::receive`], [`Device::run`]); time is an argument. So a test
//! drives two devices through loss, duplicates and years within one thread, and the same engine serves a socket.
//! From the InfiniBand Architecture Specification, volume 1, chapters 9 to 11, and its annex on RoCEv2.

mod completion;
mod device;
mod events;
mod faults;
mod gid;
mod memory;
mod psn;
mod qp;
mod receive;
mod resources;
pub mod wire;

pub use completion::{Completion, Opcode, RouteKind, Status};
pub use device::{Device, Incoming, Refusal};
pub use events::Event;
pub use faults::{FaultPlan, Incident, Moment, Verb, Which};
pub use gid::{from_gid, to_gid};
pub use memory::{Access, Atomic, Piece};
pub use psn::Psn;
pub use qp::{
    Attributes, Capacity, MAX_READS, Mask, Path, QpConfig, QpKind, QpState, SendData, SendKind, SendRequest,
    Target,
};
pub use receive::{Pieces, ReceiveRequest};
pub use resources::{Config, Outgoing, Personality};

/// Nanoseconds on the clock of the link that drives the device.
pub type Nanos = u64;

/// A protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PdId(pub usize);

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId(pub usize);

/// A shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqId(pub usize);
