//! What an interface can do and what it costs, as the application reads it.

use bitflags::bitflags;
use uct_abi::*;

pub use uct_abi::{
    UctAtomicOps as AtomicOps, UctFigure as Figure, UctIfaceAttr as IfaceAttr, UctMdAttr as MdAttr,
    UctOpLimits as OpLimits,
};

bitflags! {
    /// Capabilities of an interface; the bits are UCX's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Capabilities: u64 {
        /// Active message, short.
        const AM_SHORT = UCT_CAP_AM_SHORT;
        /// Active message, buffered copy.
        const AM_BCOPY = UCT_CAP_AM_BCOPY;
        /// Active message, zero copy.
        const AM_ZCOPY = UCT_CAP_AM_ZCOPY;
        /// Pending queue.
        const PENDING = UCT_CAP_PENDING;
        /// Put, short.
        const PUT_SHORT = UCT_CAP_PUT_SHORT;
        /// Put, buffered copy.
        const PUT_BCOPY = UCT_CAP_PUT_BCOPY;
        /// Put, zero copy.
        const PUT_ZCOPY = UCT_CAP_PUT_ZCOPY;
        /// Get, short.
        const GET_SHORT = UCT_CAP_GET_SHORT;
        /// Get, buffered copy.
        const GET_BCOPY = UCT_CAP_GET_BCOPY;
        /// Get, zero copy.
        const GET_ZCOPY = UCT_CAP_GET_ZCOPY;
        /// Atomics are coherent with the processor's own.
        const ATOMIC_CPU = UCT_CAP_ATOMIC_CPU;
        /// Atomics are coherent only with those of the same device.
        const ATOMIC_DEVICE = UCT_CAP_ATOMIC_DEVICE;
        /// A short operation beyond its limit is an error.
        const ERRHANDLE_SHORT_BUF = UCT_CAP_ERRHANDLE_SHORT_BUF;
        /// A buffered copy beyond its limit is an error.
        const ERRHANDLE_BCOPY_BUF = UCT_CAP_ERRHANDLE_BCOPY_BUF;
        /// A zero copy beyond its limit is an error.
        const ERRHANDLE_ZCOPY_BUF = UCT_CAP_ERRHANDLE_ZCOPY_BUF;
        /// A wrong active message id is an error.
        const ERRHANDLE_AM_ID = UCT_CAP_ERRHANDLE_AM_ID;
        /// A wrong remote address or key is an error.
        const ERRHANDLE_REMOTE_MEM = UCT_CAP_ERRHANDLE_REMOTE_MEM;
        /// The death of a peer is reported through the error handler.
        const ERRHANDLE_PEER_FAILURE = UCT_CAP_ERRHANDLE_PEER_FAILURE;
        /// [`crate::Ep::check`] works.
        const EP_CHECK = UCT_CAP_EP_CHECK;
        /// An endpoint may be created to an interface address.
        const CONNECT_TO_IFACE = UCT_CAP_CONNECT_TO_IFACE;
        /// Two endpoints may be connected by their endpoint addresses.
        const CONNECT_TO_EP = UCT_CAP_CONNECT_TO_EP;
        /// Handlers are called from progress.
        const CB_SYNC = UCT_CAP_CB_SYNC;
        /// The transport detects a dead idle peer by itself.
        const EP_KEEPALIVE = UCT_CAP_EP_KEEPALIVE;
        /// Two machines may be connected.
        const INTER_NODE = UCT_CAP_INTER_NODE;
    }

    /// Events that wake a sleeper.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Events: u32 {
        /// A send ended.
        const SEND_COMP = UCT_EVENT_SEND_COMP;
        /// Something was received.
        const RECV = UCT_EVENT_RECV;
        /// Something was received that its sender marked as signalled.
        const RECV_SIG = UCT_EVENT_RECV_SIG;
    }

    /// What a memory domain can do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MdFlags: u64 {
        /// Memory can be registered.
        const REG = UCT_MD_REG;
        /// Memory can be allocated.
        const ALLOC = UCT_MD_ALLOC;
        /// Zero copy needs a registration of the local memory.
        const NEED_MEMH = UCT_MD_NEED_MEMH;
        /// Remote access needs a remote key.
        const NEED_RKEY = UCT_MD_NEED_RKEY;
        /// [`crate::Memory::advise`] works.
        const ADVISE = UCT_MD_ADVISE;
        /// [`crate::RemoteKey::local_ptr`] works for memory that the domain allocated.
        const RKEY_PTR = UCT_MD_RKEY_PTR;
    }
}

/// Atomic operations. Compare-and-swap has calls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AtomicOp {
    /// Add, wrapping.
    Add = UCT_ATOMIC_ADD,
    /// Bitwise and.
    And = UCT_ATOMIC_AND,
    /// Bitwise or.
    Or = UCT_ATOMIC_OR,
    /// Bitwise exclusive or.
    Xor = UCT_ATOMIC_XOR,
    /// Swap; fetching only.
    Swap = UCT_ATOMIC_SWAP,
    /// Compare and swap; in capability sets only.
    Cswap = UCT_ATOMIC_CSWAP,
}

impl AtomicOp {
    /// All of them, in the order of their numbers.
    pub const ALL: [AtomicOp; 6] =
        [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap, AtomicOp::Cswap];

    /// The operation as a bit of an [`AtomicOps`] set.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Where a figure of the cost model came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The transport's model.
    Model,
    /// The device or the system reports it.
    Device,
    /// Measured on this machine.
    Measured,
    /// Set by the user.
    Configured,
    /// A named default, since the system reports none.
    NamedDefault,
}

impl Origin {
    /// The origin of a figure; a number from a newer plugin counts as a model.
    pub fn of(figure: &Figure) -> Origin {
        match figure.origin {
            UCT_ORIGIN_DEVICE => Origin::Device,
            UCT_ORIGIN_MEASURED => Origin::Measured,
            UCT_ORIGIN_CONFIG => Origin::Configured,
            UCT_ORIGIN_DEFAULT => Origin::NamedDefault,
            _ => Origin::Model,
        }
    }

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Model => "model",
            Origin::Device => "device",
            Origin::Measured => "measured",
            Origin::Configured => "configured",
            Origin::NamedDefault => "default",
        }
    }
}

/// Attributes with nothing in them, of this host's size.
pub(crate) fn blank_iface() -> IfaceAttr {
    // SAFETY: the table holds integers and floating point numbers only, for which all zeroes are valid.
    let mut attr: IfaceAttr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<IfaceAttr>();
    attr
}

/// Memory domain attributes with nothing in them, of this host's size.
pub(crate) fn blank_md() -> MdAttr {
    // SAFETY: as above.
    let mut attr: MdAttr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<MdAttr>();
    attr
}
