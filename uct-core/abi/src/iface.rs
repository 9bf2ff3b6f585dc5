//! Transports and their interfaces.

use core::ffi::c_void;

use crate::{
    UctCompletion, UctConfig, UctEp, UctEpOps, UctEpParams, UctHostIface, UctIface, UctMd, UctStatus, UctStr,
    UctText, UctWorker,
};

/// Number of active message ids; they run from 0.
pub const UCT_AM_IDS: usize = 32;

/// Receives an active message. `data` are aligned to 8 bytes and readable for `length` bytes until it returns. With `UCT_AM_DESC` in `flags`
/// it may return `UCT_INPROGRESS`: then the data, and `rx_headroom` writable bytes ahead of them, are its own until
/// `release`. Any other result gives the data back. Without `UCT_AM_SHARED`, nothing writes to the data meanwhile.
pub type UctAmCallback =
    unsafe extern "C" fn(argument: *mut c_void, data: *mut c_void, length: usize, flags: u32) -> UctStatus;

/// The handlers of an interface by their ids; none is ever null. The host owns the table and changes it between calls; host and
/// transport use it on the thread that drives the worker, and no other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctAmTable {
    /// The function to call for a message with the id.
    pub callbacks: [UctAmCallback; UCT_AM_IDS],
    /// The first argument of each function.
    pub arguments: [*mut c_void; UCT_AM_IDS],
}

/// Takes the rest of long active messages where it likes them: a transport that receives from a stream has only the beginning of a message by
/// then, and can have the system write the rest there without a copy. The host owns the table and changes `ids` between calls; host and
/// transport use it on the thread that drives the worker, and no other. Every slot is filled. Since minor version 8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctAmPlacer {
    /// Size of this table in bytes.
    pub size: usize,
    /// First argument of the functions.
    pub argument: *mut c_void,
    /// Bit i is set: messages of id i may be taken.
    pub ids: u32,
    /// The first `head_length` of `length` bytes of a message of `id` have arrived, and are readable for the call. `UCT_OK`: it takes the
    /// message, copies of the head what it needs, and `arrival` is its name for it from now on. Otherwise the message is received and delivered as
    /// all others. A transport has at most one arrival for each connection at a time, and delivers nothing else of that connection meanwhile.
    pub begin: Option<
        unsafe extern "C" fn(
            argument: *mut c_void,
            id: u32,
            head: *const c_void,
            head_length: usize,
            length: usize,
            arrival: *mut u64,
        ) -> UctStatus,
    >,
    /// Where the bytes of the message from `offset` on go, and in `room` for how many of them; valid until the transport calls the host again
    /// or returns to it. Null: these and all later ones are received to nowhere. Called before each receive.
    pub place: Option<
        unsafe extern "C" fn(
            argument: *mut c_void,
            arrival: u64,
            offset: usize,
            room: *mut usize,
        ) -> *mut c_void,
    >,
    /// All `length` bytes of the message have arrived. Not called if the connection ends before: the failure of its endpoint reports that.
    pub end: Option<unsafe extern "C" fn(argument: *mut c_void, arrival: u64, length: usize)>,
}

/// Called once when an endpoint has failed, from progress only, and not after it was destroyed. `ep` is the `user` of its parameters. `reason` is human-readable.
pub type UctErrorHandler =
    unsafe extern "C" fn(argument: *mut c_void, ep: *mut c_void, status: UctStatus, reason: UctStr);

/// One device that a transport can use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctDevice {
    /// Size of this table in bytes.
    pub size: usize,
    /// At most 32 bytes; `mlx5_0:1`, `eth0`, `memory`.
    pub name: UctStr,
    /// `UCT_DEVICE_*`.
    pub kind: u32,
    /// NUMA node the device is attached to; -1 where there is none.
    pub numa_node: i32,
    /// `UCT_DEVICE_IS_*`. Since minor version 7.
    pub flags: u64,
}

/// Takes one device.
pub type UctEmitDevice = unsafe extern "C" fn(context: *mut c_void, device: *const UctDevice);

/// Takes one statistics counter.
pub type UctEmitCounter = unsafe extern "C" fn(context: *mut c_void, name: UctStr, value: u64);

/// The counter of puts of peers that an interface has carried out, for [`UctIfaceOps::counters`].
pub const UCT_COUNTER_SERVED_PUTS: &str = "served_puts";
/// Bytes of these puts.
pub const UCT_COUNTER_SERVED_PUT_BYTES: &str = "served_put_bytes";
/// Gets of peers.
pub const UCT_COUNTER_SERVED_GETS: &str = "served_gets";
/// Bytes of these gets.
pub const UCT_COUNTER_SERVED_GET_BYTES: &str = "served_get_bytes";
/// Atomics of peers.
pub const UCT_COUNTER_SERVED_ATOMICS: &str = "served_atomics";
/// Bytes of these atomics.
pub const UCT_COUNTER_SERVED_ATOMIC_BYTES: &str = "served_atomic_bytes";

/// How to open an interface. All of it is the host's and valid for the call, the handler table until `close`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctIfaceParams {
    /// Size of this table in bytes.
    pub size: usize,
    /// The worker that will drive the interface.
    pub worker: *mut UctWorker,
    /// A device that `query_devices` named.
    pub device: UctStr,
    /// The plugin's values.
    pub config: *const UctConfig,
    /// The handlers of active messages.
    pub am_handlers: *mut UctAmTable,
    /// Called for endpoints that fail.
    pub error_handler: UctErrorHandler,
    /// First argument of the error handler.
    pub error_argument: *mut c_void,
    /// Bytes ahead of received data that the handler may write to once it keeps the message.
    pub rx_headroom: usize,
    /// `UCT_IFACE_*`.
    pub flags: u64,
    /// What the host's `progress_request` is called with, until `close`.
    pub iface: *mut UctHostIface,
    /// Takes long active messages where it likes them, until `close`; null: nothing does. Since minor version 8.
    pub am_placer: *const UctAmPlacer,
}

/// Limits of one class of operations, in bytes unless said otherwise. `max_short` counts with `UCT_CAP_*_SHORT`,
/// `max_bcopy` with `UCT_CAP_*_BCOPY`, `max_iov` with every vector, the others with `UCT_CAP_*_ZCOPY`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctOpLimits {
    /// Largest short operation (for active messages: payload without the 8-byte header).
    pub max_short: usize,
    /// Largest buffered copy.
    pub max_bcopy: usize,
    /// Smallest zero copy.
    pub min_zcopy: usize,
    /// Largest zero copy.
    pub max_zcopy: usize,
    /// Alignment of buffers that suits zero copy best.
    pub opt_zcopy_align: usize,
    /// Alignment of data to which the transport cuts.
    pub align_mtu: usize,
    /// Most entries of a vector.
    pub max_iov: usize,
    /// Largest header of a zero-copy active message.
    pub max_hdr: usize,
}

/// Atomic operations as bit sets (`1 << UCT_ATOMIC_*`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctAtomicOps {
    /// Without a result.
    pub post: u32,
    /// With a result.
    pub fetch: u32,
    /// Which of `post` are emulated.
    pub post_emulated: u32,
    /// Which of `fetch` are emulated.
    pub fetch_emulated: u32,
}

/// A figure of the cost model and where it came from.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctFigure {
    /// The number.
    pub value: f64,
    /// `UCT_ORIGIN_*`.
    pub origin: u32,
}

/// Capabilities and cost of an interface. Filled by `query`; the caller zeroes it and sets `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctIfaceAttr {
    /// Size of this table in bytes.
    pub size: usize,
    /// `UCT_CAP_*`.
    pub capabilities: u64,
    /// Which of `capabilities` the transport emulates by other operations.
    pub emulated: u64,
    /// `UCT_EVENT_*` that `event_arm` accepts.
    pub events: u32,
    /// Active messages.
    pub am: UctOpLimits,
    /// Put.
    pub put: UctOpLimits,
    /// Get.
    pub get: UctOpLimits,
    /// 32-bit atomics.
    pub atomic32: UctAtomicOps,
    /// 64-bit atomics.
    pub atomic64: UctAtomicOps,
    /// Bytes of a device address.
    pub device_addr_len: usize,
    /// Bytes of an interface address.
    pub iface_addr_len: usize,
    /// Bytes of an endpoint address.
    pub ep_addr_len: usize,
    /// Seconds of processor time per operation.
    pub overhead: UctFigure,
    /// Seconds from sender to receiver.
    pub latency: UctFigure,
    /// Seconds that each further endpoint adds to `latency`.
    pub latency_growth: f64,
    /// Bytes per second for each process by itself.
    pub bandwidth_dedicated: UctFigure,
    /// Bytes per second that all processes of the machine share.
    pub bandwidth_shared: UctFigure,
    /// Extra cost factor of emulated put, get and atomics: round trips they need.
    pub emulated_round_trips: u32,
    /// Among interfaces of equal cost the highest is chosen.
    pub priority: u32,
    /// Endpoints that it serves; selection passes over it where more are expected. 0: no limit.
    pub max_num_eps: u64,
    /// `UCT_IFACE_ATTR_*`. Since minor version 2.
    pub flags: u64,
}

/// One transport: a way to move data, on some devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctTlOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// At most 10 bytes. *Mandatory.*
    pub name: UctStr,
    /// The calls of its interfaces. *Mandatory.*
    pub iface_ops: *const UctIfaceOps,
    /// The calls of its endpoints. *Mandatory.*
    pub ep_ops: *const UctEpOps,
    /// Lists the devices. An error with a reason explains why there are none. *Mandatory.*
    pub query_devices: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            config: *const UctConfig,
            emit: UctEmitDevice,
            context: *mut c_void,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Opens an interface. *Mandatory.*
    pub iface_open: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            params: *const UctIfaceParams,
            iface: *mut *mut UctIface,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
}

/// The calls of an interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctIfaceOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// Closes within the interface's own time limit. All endpoints are destroyed by then. *Mandatory.*
    pub close: Option<unsafe extern "C" fn(iface: *mut UctIface)>,
    /// Fills the attributes. *Mandatory.*
    pub query: Option<unsafe extern "C" fn(iface: *mut UctIface, attr: *mut UctIfaceAttr) -> UctStatus>,
    /// Writes `device_addr_len` bytes. *Mandatory.*
    pub get_device_address: Option<unsafe extern "C" fn(iface: *mut UctIface, address: *mut u8) -> UctStatus>,
    /// Writes `iface_addr_len` bytes. *Mandatory.*
    pub get_address: Option<unsafe extern "C" fn(iface: *mut UctIface, address: *mut u8) -> UctStatus>,
    /// Whether a peer can be reached: `UCT_OK`, or `UCT_ERR_UNREACHABLE` with the reason as text, or
    /// `UCT_ERR_REJECTED` where it would be within reach but for the obstacle that the reason names. A local decision
    /// without traffic. The addresses are untrusted bytes. *Mandatory.*
    pub is_reachable: Option<
        unsafe extern "C" fn(
            iface: *mut UctIface,
            device_address: *const u8,
            device_address_length: usize,
            iface_address: *const u8,
            iface_address_length: usize,
            scope: u32,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Receives, completes and sends what is due; returns how many events it handled. *Mandatory.*
    pub progress: Option<unsafe extern "C" fn(iface: *mut UctIface) -> u32>,
    /// Creates an endpoint, without waiting for the peer. A peer that is gone is an error here if that is known at once, otherwise a
    /// failure of the endpoint, reported from progress. *Mandatory.*
    pub ep_create: Option<
        unsafe extern "C" fn(
            iface: *mut UctIface,
            params: *const UctEpParams,
            ep: *mut *mut UctEp,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Releases data that a handler kept; `data` is the pointer that was passed to the handler.
    pub release: Option<unsafe extern "C" fn(iface: *mut UctIface, data: *mut c_void)>,
    /// A descriptor that becomes readable when an armed event happens. It belongs to the interface: the host polls it and reads
    /// nothing from it, and `progress` or `event_arm` empties it.
    pub event_fd: Option<unsafe extern "C" fn(iface: *mut UctIface, fd: *mut i32) -> UctStatus>,
    /// Arms for `UCT_EVENT_*`. `UCT_ERR_BUSY`: there are unprocessed events, call progress first. After `UCT_OK` an
    /// event that comes makes the descriptor readable: none is lost.
    pub event_arm: Option<unsafe extern "C" fn(iface: *mut UctIface, events: u32) -> UctStatus>,
    /// Flushes all endpoints: `UCT_OK` when nothing is outstanding, `UCT_INPROGRESS` with `completion` taken, or
    /// `UCT_INPROGRESS` without it when `completion` is null (ask again). With `UCT_FLUSH_CANCEL` each of them gives up, and
    /// does not wait for queued requests; the interface goes on.
    pub flush: Option<
        unsafe extern "C" fn(iface: *mut UctIface, flags: u32, completion: *mut UctCompletion) -> UctStatus,
    >,
    /// Orders operations of all endpoints before and after it.
    pub fence: Option<unsafe extern "C" fn(iface: *mut UctIface, flags: u32) -> UctStatus>,
    /// The transport's own counters. An interface that carries out all operations of other processes on memory of this one itself
    /// also reports the `UCT_COUNTER_SERVED_*`.
    pub counters: Option<
        unsafe extern "C" fn(iface: *mut UctIface, emit: UctEmitCounter, context: *mut c_void) -> UctStatus,
    >,
    /// Takes a connected socket, which another protocol may have used before: what comes next is the transport's own
    /// handshake. For interfaces with `UCT_IFACE_ATTR_ADOPTS`. `side` is a `UCT_SIDE_*`.
    ///
    /// With null `params` and `ep` the interface treats the socket, which this side has accepted, as one that its own listener has
    /// accepted. `first` are bytes of the handshake that were read already. Otherwise `length` is 0, and an endpoint is created as by
    /// `ep_create`, which uses this socket and no other one: nothing is connected, so no peer need be reachable at its address. The
    /// caller vouches that the other end of the socket is the peer's; both ends are adopted in this way.
    ///
    /// With `UCT_OK` the descriptor is the interface's, with an error it stays the caller's. Since minor version 2.
    pub ep_adopt: Option<
        unsafe extern "C" fn(
            iface: *mut UctIface,
            params: *const UctEpParams,
            fd: i32,
            side: u32,
            first: *const u8,
            length: usize,
            ep: *mut *mut UctEp,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
}
