//! What a transport reports about itself.

use uct_abi::*;

/// What an interface can do and what it costs; the table of the boundary itself. Start from [`blank`].
pub type IfaceAttr = UctIfaceAttr;

/// What a memory domain can do.
pub type MdAttr = UctMdAttr;

/// Interface attributes with nothing in them.
pub const fn blank() -> IfaceAttr {
    const NO_LIMITS: UctOpLimits = UctOpLimits {
        max_short: 0,
        max_bcopy: 0,
        min_zcopy: 0,
        max_zcopy: 0,
        opt_zcopy_align: 1,
        align_mtu: 1,
        max_iov: 0,
        max_hdr: 0,
    };
    const NO_ATOMICS: UctAtomicOps = UctAtomicOps { post: 0, fetch: 0, post_emulated: 0, fetch_emulated: 0 };
    const ZERO: UctFigure = UctFigure { value: 0.0, origin: UCT_ORIGIN_MODEL };
    IfaceAttr {
        size: size_of::<IfaceAttr>(),
        capabilities: 0,
        emulated: 0,
        events: 0,
        am: NO_LIMITS,
        put: NO_LIMITS,
        get: NO_LIMITS,
        atomic32: NO_ATOMICS,
        atomic64: NO_ATOMICS,
        device_addr_len: 0,
        iface_addr_len: 0,
        ep_addr_len: 0,
        overhead: ZERO,
        latency: ZERO,
        latency_growth: 0.0,
        bandwidth_dedicated: ZERO,
        bandwidth_shared: ZERO,
        emulated_round_trips: 1,
        priority: 0,
        max_num_eps: 0,
        flags: 0,
    }
}

/// A figure of the transport's model.
pub const fn model(value: f64) -> UctFigure {
    UctFigure { value, origin: UCT_ORIGIN_MODEL }
}

/// Memory domain attributes with nothing in them.
pub const fn blank_md() -> MdAttr {
    MdAttr {
        size: size_of::<MdAttr>(),
        flags: 0,
        rkey_packed_size: 0,
        max_reg: 0,
        max_alloc: 0,
        reg_memory_kinds: 1 << UCT_MEMORY_HOST,
        reg_cost: 0.0,
        reg_growth: 0.0,
        rkey_cost: 0.0,
        rkey_map_cost: 0.0,
        rkey_map_growth: 0.0,
    }
}

/// Active messages of all three kinds.
pub const AM: u64 = UCT_CAP_AM_SHORT | UCT_CAP_AM_BCOPY | UCT_CAP_AM_ZCOPY;
/// Put and get of all three kinds.
pub const PUT_GET: u64 = UCT_CAP_PUT_SHORT
    | UCT_CAP_PUT_BCOPY
    | UCT_CAP_PUT_ZCOPY
    | UCT_CAP_GET_SHORT
    | UCT_CAP_GET_BCOPY
    | UCT_CAP_GET_ZCOPY;
/// An error for every kind of bad access: of a local buffer or of remote memory.
pub const ERRHANDLE_MEMORY: u64 = UCT_CAP_ERRHANDLE_SHORT_BUF
    | UCT_CAP_ERRHANDLE_BCOPY_BUF
    | UCT_CAP_ERRHANDLE_ZCOPY_BUF
    | UCT_CAP_ERRHANDLE_REMOTE_MEM;
/// All posted atomics.
pub const ALL_POST: u32 =
    1 << UCT_ATOMIC_ADD | 1 << UCT_ATOMIC_AND | 1 << UCT_ATOMIC_OR | 1 << UCT_ATOMIC_XOR;
/// All fetching atomics.
pub const ALL_FETCH: u32 = ALL_POST | 1 << UCT_ATOMIC_SWAP | 1 << UCT_ATOMIC_CSWAP;

/// All atomics, by the processor itself.
pub const ALL_ATOMICS: UctAtomicOps =
    UctAtomicOps { post: ALL_POST, fetch: ALL_FETCH, post_emulated: 0, fetch_emulated: 0 };

/// One device that a transport can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// At most 32 bytes: `mlx5_0:1`, `eth0`, `memory`.
    pub name: String,
    /// What it connects.
    pub kind: DeviceKind,
    /// The NUMA node it is attached to, where there is one.
    pub numa_node: Option<u32>,
    /// Whether software inside this process does what an adapter would do.
    pub is_software: bool,
}

/// What a device connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceKind {
    /// Machines.
    Network = UCT_DEVICE_NET,
    /// Processes of one machine.
    SharedMemory = UCT_DEVICE_SHM,
    /// Accelerators.
    Accelerator = UCT_DEVICE_ACC,
    /// A process with itself.
    Myself = UCT_DEVICE_SELF,
}

/// How far [`crate::Iface::is_reachable`] checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The same device.
    Device,
    /// Anywhere in the network.
    Network,
}

/// Flush flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Wait until operations have taken effect at the peer, rather than until their buffers are free.
    pub remote: bool,
    /// Give up on what is outstanding.
    pub cancel: bool,
}

impl Flush {
    pub(crate) fn from_abi(flags: u32) -> Flush {
        Flush { remote: flags & UCT_FLUSH_REMOTE != 0, cancel: flags & UCT_FLUSH_CANCEL != 0 }
    }
}

/// Atomic operations but compare-and-swap, which has a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl AtomicOp {
    /// The operation of a number; `None` for those that have no name here.
    #[inline(always)]
    pub const fn from_abi(op: u32) -> Option<AtomicOp> {
        const _: () = assert!(UCT_ATOMIC_ADD == 0 && UCT_ATOMIC_SWAP == 4, "the numbers have no gap");
        // SAFETY: every number up to the last is one of the operations'.
        if op <= UCT_ATOMIC_SWAP { Some(unsafe { std::mem::transmute::<u32, AtomicOp>(op) }) } else { None }
    }
}
