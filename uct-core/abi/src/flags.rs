//! Flags and small numbers. Capability and event bits are UCX's (`uct/api/uct.h`, `UCT_IFACE_FLAG_*`).

/// Active message, short.
pub const UCT_CAP_AM_SHORT: u64 = 1 << 0;
/// Active message, buffered copy.
pub const UCT_CAP_AM_BCOPY: u64 = 1 << 1;
/// Active message, zero copy.
pub const UCT_CAP_AM_ZCOPY: u64 = 1 << 2;
/// Pending queue.
pub const UCT_CAP_PENDING: u64 = 1 << 3;
/// Put, short.
pub const UCT_CAP_PUT_SHORT: u64 = 1 << 4;
/// Put, buffered copy.
pub const UCT_CAP_PUT_BCOPY: u64 = 1 << 5;
/// Put, zero copy.
pub const UCT_CAP_PUT_ZCOPY: u64 = 1 << 6;
/// Get, short.
pub const UCT_CAP_GET_SHORT: u64 = 1 << 8;
/// Get, buffered copy.
pub const UCT_CAP_GET_BCOPY: u64 = 1 << 9;
/// Get, zero copy.
pub const UCT_CAP_GET_ZCOPY: u64 = 1 << 10;
/// Atomics are coherent with the processor's own.
pub const UCT_CAP_ATOMIC_CPU: u64 = 1 << 30;
/// Atomics are coherent only with those of the same device.
pub const UCT_CAP_ATOMIC_DEVICE: u64 = 1 << 31;
/// A short operation beyond its limit is an error, not undefined.
pub const UCT_CAP_ERRHANDLE_SHORT_BUF: u64 = 1 << 32;
/// The same for bcopy.
pub const UCT_CAP_ERRHANDLE_BCOPY_BUF: u64 = 1 << 33;
/// The same for zcopy.
pub const UCT_CAP_ERRHANDLE_ZCOPY_BUF: u64 = 1 << 34;
/// A wrong active message id is an error.
pub const UCT_CAP_ERRHANDLE_AM_ID: u64 = 1 << 35;
/// A wrong remote address or key is an error.
pub const UCT_CAP_ERRHANDLE_REMOTE_MEM: u64 = 1 << 36;
/// The death of a peer is reported through the error handler.
pub const UCT_CAP_ERRHANDLE_PEER_FAILURE: u64 = 1 << 38;
/// `check` works.
pub const UCT_CAP_EP_CHECK: u64 = 1 << 39;
/// An endpoint may be created to an interface address.
pub const UCT_CAP_CONNECT_TO_IFACE: u64 = 1 << 40;
/// Two endpoints may be connected by their endpoint addresses.
pub const UCT_CAP_CONNECT_TO_EP: u64 = 1 << 41;
/// Handlers are called from progress.
pub const UCT_CAP_CB_SYNC: u64 = 1 << 44;
/// The transport detects a dead idle peer by itself.
pub const UCT_CAP_EP_KEEPALIVE: u64 = 1 << 46;
/// Two machines may be connected.
pub const UCT_CAP_INTER_NODE: u64 = 1 << 48;

/// Event: a send ended.
pub const UCT_EVENT_SEND_COMP: u32 = 1 << 0;
/// Event: something was received.
pub const UCT_EVENT_RECV: u32 = 1 << 1;
/// Event: something was received that its sender marked [`UCT_SEND_SIGNALED`].
pub const UCT_EVENT_RECV_SIG: u32 = 1 << 2;

/// Send flag: wake a receiver that armed `UCT_EVENT_RECV_SIG`.
pub const UCT_SEND_SIGNALED: u32 = 1 << 0;

/// Progress sends.
pub const UCT_PROGRESS_SEND: u32 = 1 << 0;
/// Progress receives.
pub const UCT_PROGRESS_RECV: u32 = 1 << 1;

/// Interface flag: handlers of the asynchronous context run inside the worker's progress, and in no other thread.
pub const UCT_IFACE_ASYNC_IN_PROGRESS: u64 = 1 << 0;

/// Flag of an interface's attributes: interface and endpoints may be used from any thread, by one at a time. What one thread did
/// happens before the next one's calls: the host holds a lock around each, or does as much. Without it they belong to the thread of
/// the worker.
pub const UCT_IFACE_ATTR_ANY_THREAD: u64 = 1 << 0;

/// Flag of an interface's attributes: its connections are sockets, and it takes over one that is connected already (`ep_adopt`).
pub const UCT_IFACE_ATTR_ADOPTS: u64 = 1 << 1;

/// Flag of an interface's attributes: a pack callback may return `UCT_PACK_NONE`. Without it the host sends an empty message where the
/// application's packing fails.
pub const UCT_IFACE_ATTR_PACK_NONE: u64 = 1 << 2;

/// Flag of an interface's attributes: `am_zcopy` also accepts a vector with null memory handles and a null completion, of up to `max_bcopy` bytes. It
/// has copied or sent all of it when it returns, with `UCT_OK` or an error. The host then sends slices of the application with it, which takes a
/// copy less than packing: no pack callback writes to memory that a peer can read, or to one that is sent from.
pub const UCT_IFACE_ATTR_AM_GATHERS: u64 = 1 << 3;

/// Flag of an interface's attributes: it offers long active messages to the host's [`UctAmPlacer`](crate::UctAmPlacer) and receives those that are taken
/// where they are wanted. Since minor version 8.
pub const UCT_IFACE_ATTR_AM_PLACES: u64 = 1 << 4;

/// Side of an adopted socket: this side has called, and begins the handshake.
pub const UCT_SIDE_CALLED: u32 = 0;
/// Side of an adopted socket: this side has accepted it.
pub const UCT_SIDE_ACCEPTED: u32 = 1;

/// Handler flag: the data may be kept by returning `UCT_INPROGRESS`, and are given back with `release`.
pub const UCT_AM_DESC: u32 = 1 << 0;
/// Handler flag: the data are in memory that another process can write at any time. The host copies them before anything
/// refers to them, and not at all if they are not read. Never together with [`UCT_AM_DESC`].
pub const UCT_AM_SHARED: u32 = 1 << 1;

/// Flush: the buffers of operations are free again.
pub const UCT_FLUSH_LOCAL: u32 = 0;
/// Flush: operations have taken effect at the peer. For messages the same as `UCT_FLUSH_LOCAL`: whether a handler has run is known only
/// from a reply.
pub const UCT_FLUSH_REMOTE: u32 = 1 << 0;
/// Flush: cancel outstanding operations; afterwards the endpoint can only be destroyed.
pub const UCT_FLUSH_CANCEL: u32 = 1 << 1;

/// Device type: network. The type decides which key permits the device (`net_devices`, `shm_devices`, `acc_devices`,
/// `self_devices`), and which choice selection reports as a fallback.
pub const UCT_DEVICE_NET: u32 = 0;
/// Device type: shared memory.
pub const UCT_DEVICE_SHM: u32 = 1;
/// Device type: accelerator.
pub const UCT_DEVICE_ACC: u32 = 2;
/// Device type: the process itself.
pub const UCT_DEVICE_SELF: u32 = 3;

/// Flag of a device: software inside this process does what an adapter would do, over the network of the kernel. It is a device for
/// tests, and what shows or explains it names it as one.
pub const UCT_DEVICE_IS_SOFTWARE: u64 = 1 << 0;

/// Scope of reachability: the same device.
pub const UCT_SCOPE_DEVICE: u32 = 0;
/// Scope of reachability: anywhere in the network.
pub const UCT_SCOPE_NETWORK: u32 = 1;

/// Atomic operation: add.
pub const UCT_ATOMIC_ADD: u32 = 0;
/// Atomic operation: bitwise and.
pub const UCT_ATOMIC_AND: u32 = 1;
/// Atomic operation: bitwise or.
pub const UCT_ATOMIC_OR: u32 = 2;
/// Atomic operation: bitwise exclusive or.
pub const UCT_ATOMIC_XOR: u32 = 3;
/// Atomic operation: swap (fetching only).
pub const UCT_ATOMIC_SWAP: u32 = 4;
/// Atomic operation: compare and swap (fetching only, through `atomic_cswap`).
pub const UCT_ATOMIC_CSWAP: u32 = 5;

/// Access to registered memory: remote put.
pub const UCT_MD_ACCESS_REMOTE_PUT: u32 = 1 << 0;
/// Access to registered memory: remote get.
pub const UCT_MD_ACCESS_REMOTE_GET: u32 = 1 << 1;
/// Access to registered memory: remote atomics.
pub const UCT_MD_ACCESS_REMOTE_ATOMIC: u32 = 1 << 2;
/// Access to registered memory: everything.
pub const UCT_MD_ACCESS_ALL: u32 = 7;

/// Memory advice: back to normal.
pub const UCT_ADVICE_NORMAL: u32 = 0;
/// Memory advice: will be used soon.
pub const UCT_ADVICE_WILLNEED: u32 = 1;

/// Kind of memory: the host's. Every other number is refused.
pub const UCT_MEMORY_HOST: u32 = 0;

/// Where a figure of the cost model came from: the transport's model.
pub const UCT_ORIGIN_MODEL: u32 = 0;
/// … reported by the device or the system.
pub const UCT_ORIGIN_DEVICE: u32 = 1;
/// … measured on this machine.
pub const UCT_ORIGIN_MEASURED: u32 = 2;
/// … set by the user.
pub const UCT_ORIGIN_CONFIG: u32 = 3;
/// … a named default, since the system reports none.
pub const UCT_ORIGIN_DEFAULT: u32 = 4;
