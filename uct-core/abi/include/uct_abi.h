/*
 * The plugin boundary of UCT, for transports written in C.
 * Generated from the crate uct-abi by `cargo xtask header`: change that, not this.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Rules that hold for every table and slot
 *
 * - A table begins with its `size` in bytes as its maker compiled it, and only ever grows at its end. A slot that is
 *   absent or null returns `UCT_ERR_UNSUPPORTED`; only slots marked *mandatory* may not be.
 * - A function returns a `UctStatus`; the numbers are UCX's. Unknown numbers and unknown flag bits are tolerated.
 * - Pointers to bytes that the host passes are never null, also where the length is 0.
 * - The side that allocates frees. Lists leave a plugin through an `emit` callback, text through a `UctText` that the host owns.
 * - Nothing may unwind through a slot. `uct-plugin` guards each one.
 * - Handlers of messages, completions, pending requests and error handlers run inside `progress`, and may call any slot of the
 *   same worker's objects, `progress` of the same interface among them. The host destroys and closes nothing from inside a slot: it
 *   waits until no call of a plugin is in progress on that thread.
 * - In the child of a fork the host calls no slot of an endpoint that was made before it.
 * - All objects of one interface belong to the thread of its worker, unless a slot or `UCT_IFACE_ATTR_ANY_THREAD` states
 *   otherwise. No slot blocks, unless its documentation states it. Strings are UTF-8 without a terminating zero (`UctStr`).
 * - Statements about semantics follow UCX's `uct/api/uct.h`.
 */

#ifndef UCT_ABI_H
#define UCT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define UCT_EXTERN_C extern "C"
#else
#define UCT_EXTERN_C extern
#endif

// The head of the function that returns a plugin's table, the one symbol that the host looks up in libuct_NAME.so:
// `UCT_PLUGIN_ENTRY(NAME) { return &plugin; }`. `NAME` is also the `name` in that table. In C++ it stands outside of namespaces.
#define UCT_PLUGIN_ENTRY(name) \
    UCT_EXTERN_C const struct UctPlugin *uct_plugin_##name(void); \
    UCT_EXTERN_C __attribute__((visibility("default"))) const struct UctPlugin *uct_plugin_##name(void)

#define UCT_COUNTER_SERVED_PUTS "served_puts"
#define UCT_COUNTER_SERVED_PUT_BYTES "served_put_bytes"
#define UCT_COUNTER_SERVED_GETS "served_gets"
#define UCT_COUNTER_SERVED_GET_BYTES "served_get_bytes"
#define UCT_COUNTER_SERVED_ATOMICS "served_atomics"
#define UCT_COUNTER_SERVED_ATOMIC_BYTES "served_atomic_bytes"
#define UCT_PLUGIN_SYMBOL_PREFIX "uct_plugin_"

// Family of a `UctSocketAddress`: none.
#define UCT_FAMILY_NONE 0

// Family of a `UctSocketAddress`: IPv4.
#define UCT_FAMILY_IPV4 4

// Family of a `UctSocketAddress`: IPv6.
#define UCT_FAMILY_IPV6 6

// Event: a client calls. `request` is the host's from now on, until `accept` or `reject`.
#define UCT_CM_REQUEST 1

// Event: the peer's address is resolved, `device` leads there, and `send` is awaited.
#define UCT_CM_RESOLVED 2

// Event: the server has accepted. `data` are its private data.
#define UCT_CM_CONNECTED 3

// Event: the client knows that it was accepted.
#define UCT_CM_NOTIFIED 4

// Event: the peer has disconnected; `data` are its reason. `status` is `UCT_ERR_CONNECTION_RESET` if it was lost instead.
#define UCT_CM_DISCONNECTED 5

// Event: the connection is not established. `status` and `reason` say why. With `UCT_ERR_REJECTED`, which comes for an explicit
// `reject` alone, `data` are the server's.
#define UCT_CM_FAILED 6

// Yes or no.
#define UCT_CONFIG_BOOL 0

// Yes, no, try or auto; `integer` is 0 no, 1 yes, 2 try, 3 auto.
#define UCT_CONFIG_TERNARY 1

// A signed integer.
#define UCT_CONFIG_INT 2

// An unsigned integer.
#define UCT_CONFIG_UINT 3

// An unsigned integer, `inf` or `auto`.
#define UCT_CONFIG_COUNT 4

// Bytes: `8k` is 8192; `inf`, `auto`.
#define UCT_CONFIG_MEMSIZE 5

// Time; `real` is seconds.
#define UCT_CONFIG_TIME 6

// Bandwidth; `real` is bytes per second.
#define UCT_CONFIG_BANDWIDTH 7

// A real number.
#define UCT_CONFIG_REAL 8

// Text.
#define UCT_CONFIG_TEXT 9

// A file or directory.
#define UCT_CONFIG_PATH 10

// A comma separated list.
#define UCT_CONFIG_LIST 11

// A comma separated list of names or patterns, with a leading `^` for "all but these".
#define UCT_CONFIG_NAMES 12

// A range `low-high`.
#define UCT_CONFIG_RANGE 13

// One of `choices`; `integer` is its index.
#define UCT_CONFIG_ENUM 14

// Flag of a key that decides whose code runs, who may connect, or how far a peer is trusted. The host takes it from no file
// that was found in the working directory.
#define UCT_CONFIG_SECURITY 1

// `integer` of a count or size that is `inf`.
#define UCT_CONFIG_INF UINT64_MAX

// `integer` of a count or size that is `auto`.
#define UCT_CONFIG_AUTO (UINT64_MAX - 1)

// Active message, short.
#define UCT_CAP_AM_SHORT (UINT64_C(1) << 0)

// Active message, buffered copy.
#define UCT_CAP_AM_BCOPY (UINT64_C(1) << 1)

// Active message, zero copy.
#define UCT_CAP_AM_ZCOPY (UINT64_C(1) << 2)

// Pending queue.
#define UCT_CAP_PENDING (UINT64_C(1) << 3)

// Put, short.
#define UCT_CAP_PUT_SHORT (UINT64_C(1) << 4)

// Put, buffered copy.
#define UCT_CAP_PUT_BCOPY (UINT64_C(1) << 5)

// Put, zero copy.
#define UCT_CAP_PUT_ZCOPY (UINT64_C(1) << 6)

// Get, short.
#define UCT_CAP_GET_SHORT (UINT64_C(1) << 8)

// Get, buffered copy.
#define UCT_CAP_GET_BCOPY (UINT64_C(1) << 9)

// Get, zero copy.
#define UCT_CAP_GET_ZCOPY (UINT64_C(1) << 10)

// Atomics are coherent with the processor's own.
#define UCT_CAP_ATOMIC_CPU (UINT64_C(1) << 30)

// Atomics are coherent only with those of the same device.
#define UCT_CAP_ATOMIC_DEVICE (UINT64_C(1) << 31)

// A short operation beyond its limit is an error, not undefined.
#define UCT_CAP_ERRHANDLE_SHORT_BUF (UINT64_C(1) << 32)

// The same for bcopy.
#define UCT_CAP_ERRHANDLE_BCOPY_BUF (UINT64_C(1) << 33)

// The same for zcopy.
#define UCT_CAP_ERRHANDLE_ZCOPY_BUF (UINT64_C(1) << 34)

// A wrong active message id is an error.
#define UCT_CAP_ERRHANDLE_AM_ID (UINT64_C(1) << 35)

// A wrong remote address or key is an error.
#define UCT_CAP_ERRHANDLE_REMOTE_MEM (UINT64_C(1) << 36)

// The death of a peer is reported through the error handler.
#define UCT_CAP_ERRHANDLE_PEER_FAILURE (UINT64_C(1) << 38)

// `check` works.
#define UCT_CAP_EP_CHECK (UINT64_C(1) << 39)

// An endpoint may be created to an interface address.
#define UCT_CAP_CONNECT_TO_IFACE (UINT64_C(1) << 40)

// Two endpoints may be connected by their endpoint addresses.
#define UCT_CAP_CONNECT_TO_EP (UINT64_C(1) << 41)

// Handlers are called from progress.
#define UCT_CAP_CB_SYNC (UINT64_C(1) << 44)

// The transport detects a dead idle peer by itself.
#define UCT_CAP_EP_KEEPALIVE (UINT64_C(1) << 46)

// Two machines may be connected.
#define UCT_CAP_INTER_NODE (UINT64_C(1) << 48)

// Event: a send ended.
#define UCT_EVENT_SEND_COMP (UINT32_C(1) << 0)

// Event: something was received.
#define UCT_EVENT_RECV (UINT32_C(1) << 1)

// Event: something was received that its sender marked `UCT_SEND_SIGNALED`.
#define UCT_EVENT_RECV_SIG (UINT32_C(1) << 2)

// Send flag: wake a receiver that armed `UCT_EVENT_RECV_SIG`.
#define UCT_SEND_SIGNALED (UINT32_C(1) << 0)

// Progress sends.
#define UCT_PROGRESS_SEND (UINT32_C(1) << 0)

// Progress receives.
#define UCT_PROGRESS_RECV (UINT32_C(1) << 1)

// Interface flag: handlers of the asynchronous context run inside the worker's progress, and in no other thread.
#define UCT_IFACE_ASYNC_IN_PROGRESS (UINT64_C(1) << 0)

// Flag of an interface's attributes: interface and endpoints may be used from any thread, by one at a time. What one thread did
// happens before the next one's calls: the host holds a lock around each, or does as much. Without it they belong to the thread of
// the worker.
#define UCT_IFACE_ATTR_ANY_THREAD (UINT64_C(1) << 0)

// Flag of an interface's attributes: its connections are sockets, and it takes over one that is connected already (`ep_adopt`).
#define UCT_IFACE_ATTR_ADOPTS (UINT64_C(1) << 1)

// Flag of an interface's attributes: a pack callback may return `UCT_PACK_NONE`. Without it the host sends an empty message where the
// application's packing fails.
#define UCT_IFACE_ATTR_PACK_NONE (UINT64_C(1) << 2)

// Flag of an interface's attributes: `am_zcopy` also accepts a vector with null memory handles and a null completion, of up to `max_bcopy` bytes. It
// has copied or sent all of it when it returns, with `UCT_OK` or an error. The host then sends slices of the application with it, which takes a
// copy less than packing: no pack callback writes to memory that a peer can read, or to one that is sent from.
#define UCT_IFACE_ATTR_AM_GATHERS (UINT64_C(1) << 3)

// Flag of an interface's attributes: it offers long active messages to the host's `UctAmPlacer` and receives those that are taken
// where they are wanted. Since minor version 8.
#define UCT_IFACE_ATTR_AM_PLACES (UINT64_C(1) << 4)

// Side of an adopted socket: this side has called, and begins the handshake.
#define UCT_SIDE_CALLED 0

// Side of an adopted socket: this side has accepted it.
#define UCT_SIDE_ACCEPTED 1

// Handler flag: the data may be kept by returning `UCT_INPROGRESS`, and are given back with `release`.
#define UCT_AM_DESC (UINT32_C(1) << 0)

// Handler flag: the data are in memory that another process can write at any time. The host copies them before anything
// refers to them, and not at all if they are not read. Never together with `UCT_AM_DESC`.
#define UCT_AM_SHARED (UINT32_C(1) << 1)

// Flush: the buffers of operations are free again.
#define UCT_FLUSH_LOCAL 0

// Flush: operations have taken effect at the peer. For messages the same as `UCT_FLUSH_LOCAL`: whether a handler has run is known only
// from a reply.
#define UCT_FLUSH_REMOTE (UINT32_C(1) << 0)

// Flush: cancel outstanding operations; afterwards the endpoint can only be destroyed.
#define UCT_FLUSH_CANCEL (UINT32_C(1) << 1)

// Device type: network. The type decides which key permits the device (`net_devices`, `shm_devices`, `acc_devices`,
// `self_devices`), and which choice selection reports as a fallback.
#define UCT_DEVICE_NET 0

// Device type: shared memory.
#define UCT_DEVICE_SHM 1

// Device type: accelerator.
#define UCT_DEVICE_ACC 2

// Device type: the process itself.
#define UCT_DEVICE_SELF 3

// Flag of a device: software inside this process does what an adapter would do, over the network of the kernel. It is a device for
// tests, and what shows or explains it names it as one.
#define UCT_DEVICE_IS_SOFTWARE (UINT64_C(1) << 0)

// Scope of reachability: the same device.
#define UCT_SCOPE_DEVICE 0

// Scope of reachability: anywhere in the network.
#define UCT_SCOPE_NETWORK 1

// Atomic operation: add.
#define UCT_ATOMIC_ADD 0

// Atomic operation: bitwise and.
#define UCT_ATOMIC_AND 1

// Atomic operation: bitwise or.
#define UCT_ATOMIC_OR 2

// Atomic operation: bitwise exclusive or.
#define UCT_ATOMIC_XOR 3

// Atomic operation: swap (fetching only).
#define UCT_ATOMIC_SWAP 4

// Atomic operation: compare and swap (fetching only, through `atomic_cswap`).
#define UCT_ATOMIC_CSWAP 5

// Access to registered memory: remote put.
#define UCT_MD_ACCESS_REMOTE_PUT (UINT32_C(1) << 0)

// Access to registered memory: remote get.
#define UCT_MD_ACCESS_REMOTE_GET (UINT32_C(1) << 1)

// Access to registered memory: remote atomics.
#define UCT_MD_ACCESS_REMOTE_ATOMIC (UINT32_C(1) << 2)

// Access to registered memory: everything.
#define UCT_MD_ACCESS_ALL 7

// Memory advice: back to normal.
#define UCT_ADVICE_NORMAL 0

// Memory advice: will be used soon.
#define UCT_ADVICE_WILLNEED 1

// Kind of memory: the host's. Every other number is refused.
#define UCT_MEMORY_HOST 0

// Where a figure of the cost model came from: the transport's model.
#define UCT_ORIGIN_MODEL 0

// … reported by the device or the system.
#define UCT_ORIGIN_DEVICE 1

// … measured on this machine.
#define UCT_ORIGIN_MEASURED 2

// … set by the user.
#define UCT_ORIGIN_CONFIG 3

// … a named default, since the system reports none.
#define UCT_ORIGIN_DEFAULT 4

// Log level: error.
#define UCT_LOG_ERROR 1

// Log level: warning.
#define UCT_LOG_WARN 2

// Log level: information.
#define UCT_LOG_INFO 3

// Log level: debugging.
#define UCT_LOG_DEBUG 4

// Log level: tracing.
#define UCT_LOG_TRACE 5

// Event on a file descriptor: readable.
#define UCT_FD_READ (UINT32_C(1) << 0)

// Event on a file descriptor: writable.
#define UCT_FD_WRITE (UINT32_C(1) << 1)

// Event on a file descriptor: error or hang-up; always reported.
#define UCT_FD_ERROR (UINT32_C(1) << 2)

// Number of active message ids; they run from 0.
#define UCT_AM_IDS 32

// Memory domain flag: memory can be registered.
#define UCT_MD_REG (UINT64_C(1) << 0)

// Memory domain flag: memory can be allocated.
#define UCT_MD_ALLOC (UINT64_C(1) << 1)

// Memory domain flag: zero-copy operations need a registration of the local memory.
#define UCT_MD_NEED_MEMH (UINT64_C(1) << 2)

// Memory domain flag: remote access needs a remote key.
#define UCT_MD_NEED_RKEY (UINT64_C(1) << 3)

// Memory domain flag: `advise` works.
#define UCT_MD_ADVISE (UINT64_C(1) << 4)

// Memory domain flag: `rkey_ptr` works for memory that this domain allocated.
#define UCT_MD_RKEY_PTR (UINT64_C(1) << 5)

// The first eight bytes of `UctPlugin`: "UCTPLUG" and a zero, in the order of bytes in memory.
#define UCT_MAGIC 20078509600031573

// Plugins of another major version are refused.
#define UCT_ABI_MAJOR 1

// Grows with every slot, flag or field that is added.
#define UCT_ABI_MINOR 8

// Bytes of a pending request that belong to the transport while it is queued.
#define UCT_PENDING_PRIVATE 40

// What a `UctPack` returns that has no message.
#define UCT_PACK_NONE 18446744073709551615ull

// What a slot returns: zero is success, positive is "going on", negative is an error.
typedef int32_t UctStatus;

// An address of the internet protocols.
typedef struct UctSocketAddress {
    // `UCT_FAMILY_*`.
    uint16_t family;
    // In the processor's order of bytes.
    uint16_t port;
    // IPv6: number of the network interface that a link-local address belongs to; else 0.
    uint32_t scope_id;
    // As in a packet; an IPv4 address takes the first 4 bytes, zeros follow.
    uint8_t ip[16];
} UctSocketAddress;

// The data endpoint whose connection is established: what the connection manager sends the peer about it.
typedef struct UctCmToken {
    // Size of this table in bytes.
    size_t size;
    // Number of its queue pair.
    uint32_t qp_number;
    // 1 if the queue pair receives from a shared receive queue, else 0.
    uint32_t has_srq;
} UctCmToken;

// A client's request to be accepted or rejected; the plugin's own.
typedef struct UctCmRequest UctCmRequest;

// A string: UTF-8, not terminated by zero, owned by the side that passed it, valid for the call unless stated otherwise.
typedef struct UctStr {
    // First byte; may be null when `length` is 0.
    const uint8_t *data;
    // Length in bytes.
    size_t length;
} UctStr;

// What has happened. Valid for the call.
typedef struct UctCmEvent {
    // Size of this table in bytes.
    size_t size;
    // `UCT_CM_*`.
    uint32_t kind;
    // `UCT_OK`, unless stated otherwise for the kind.
    UctStatus status;
    // The `user` of the endpoint; with `UCT_CM_REQUEST` that of the listener.
    void *user;
    // With `UCT_CM_REQUEST` the request, else null.
    struct UctCmRequest *request;
    // Private data of the peer, or its reason: exactly what it passed.
    const uint8_t *data;
    // Their length in bytes.
    size_t length;
    // With `UCT_CM_REQUEST` and `UCT_CM_RESOLVED`, the address of this side.
    struct UctSocketAddress local;
    // With the same, the address of the peer, as this side sees it.
    struct UctSocketAddress peer;
    // With the same, the device that leads to the peer: `eth0`, `mlx5_0:1`. Empty where it is not known.
    struct UctStr device;
    // With `UCT_CM_FAILED` and a lost peer, why: stage, address, the system's error, what to try.
    struct UctStr reason;
} UctCmEvent;

// Takes an event. It may call any slot, `destroy` and `listener_destroy` of what the event belongs to among them, but not `close`.
typedef void (*UctCmHandler)(void *argument, const struct UctCmEvent *event);

// A worker; the host's own.
typedef struct UctWorker UctWorker;

// One value, checked by the host against the key's kind and range.
typedef struct UctConfigValue {
    // The section.
    struct UctStr section;
    // The key.
    struct UctStr name;
    // As text, in the form the user would write.
    struct UctStr text;
    // As an integer: bytes, count, 0/1, ternary, index of the choice.
    uint64_t integer;
    // As a real number: seconds, bytes per second.
    double real;
} UctConfigValue;

// The values of all keys of the plugin, and of the key `populate` of the section "", which is for all transports. Valid for the call.
typedef struct UctConfig {
    // Size of this table in bytes.
    size_t size;
    // First of `count` values.
    const struct UctConfigValue *values;
    // Number of values.
    size_t count;
} UctConfig;

// How to open a connection manager. Valid for the call, worker and handler until `close`.
typedef struct UctCmParams {
    // Size of this table in bytes.
    size_t size;
    // The worker that will drive it.
    struct UctWorker *worker;
    // The plugin's values.
    const struct UctConfig *config;
    // Takes all events of the connection manager.
    UctCmHandler handler;
    // First argument of the handler.
    void *argument;
} UctCmParams;

// Limits of a connection manager. Filled by `query`; the caller zeroes it and sets `size`.
typedef struct UctCmAttr {
    // Size of this table in bytes.
    size_t size;
    // Most bytes of private data with `send`.
    size_t max_connect_data;
    // The same with `accept`.
    size_t max_accept_data;
    // The same with `reject`.
    size_t max_reject_data;
    // Most bytes of a reason with `disconnect`.
    size_t max_disconnect_data;
} UctCmAttr;

// Where to listen. Valid for the call, `user` until `listener_destroy`.
typedef struct UctCmListenParams {
    // Size of this table in bytes.
    size_t size;
    // Handed to the handler with each request.
    void *user;
    // Port 0 lets the system choose; an unspecified address means all of them.
    struct UctSocketAddress address;
    // Clients that may wait in the system; 0 is the connection manager's default.
    uint32_t backlog;
} UctCmListenParams;

// Whom to connect to. Valid for the call, `user` until `destroy`.
typedef struct UctCmConnectParams {
    // Size of this table in bytes.
    size_t size;
    // Handed to the handler.
    void *user;
    // The server.
    struct UctSocketAddress address;
    // The address to connect from; its port is usually 0. `UCT_FAMILY_NONE` leaves it to the system.
    struct UctSocketAddress source;
    // Nanoseconds that the peer and the network may take for each stage: until `RESOLVED`, and from `send` to `CONNECTED`. What the
    // application takes in between does not count. 0 is the connection manager's default.
    uint64_t timeout;
} UctCmConnectParams;

// What one side sends the other. Valid for the call.
typedef struct UctCmData {
    // Size of this table in bytes.
    size_t size;
    // Private data.
    const uint8_t *data;
    // Their length in bytes. The host passes no more than the attributes permit.
    size_t length;
    // The data endpoint, where the transport gave a token (`UctEpOps::cm_token`), else null.
    const struct UctCmToken *token;
} UctCmData;

// Takes a finding of `diagnose`: `UCT_OK`, or the status of the obstacle; and a line of text, valid for the call.
typedef void (*UctEmitFinding)(void *context, UctStatus status, struct UctStr text);

// A connection manager; the plugin's own.
typedef struct UctCm UctCm;

// A text buffer of the host: a plugin writes the reason of a refusal here. If something can be done about it, that stands at the end, behind
// ` → ` (a space, U+2192, a space).
typedef struct UctText {
    // Where to write.
    uint8_t *data;
    // How many bytes fit.
    size_t capacity;
    // How many were written; a plugin sets it, never above `capacity`.
    size_t length;
} UctText;

// A listener of a connection manager; the plugin's own.
typedef struct UctCmListener UctCmListener;

// An endpoint of a connection manager; the plugin's own.
typedef struct UctCmEp UctCmEp;

// The calls of a connection manager.
typedef struct UctCmOps {
    // Size of this table in bytes.
    size_t size;
    // Opens one on a worker. *Mandatory.*
    UctStatus (*open)(const struct UctCmParams *params, struct UctCm **cm, struct UctText *reason);
    // Closes. All listeners and endpoints are destroyed by then; requests need not be consumed. *Mandatory.*
    void (*close)(struct UctCm *cm);
    // Fills the attributes. *Mandatory.*
    UctStatus (*query)(struct UctCm *cm, struct UctCmAttr *attr);
    // A descriptor that is readable as long as `progress` has something to do, deadlines among it. It belongs to the connection
    // manager. *Mandatory.*
    UctStatus (*event_fd)(struct UctCm *cm, int32_t *fd);
    // Does what is due and calls the handler; returns how many events it handled. Not called from inside the handler. *Mandatory.*
    uint32_t (*progress)(struct UctCm *cm);
    // Listens. `UCT_ERR_BUSY`: the address is in use. `UCT_ERR_NO_DEVICE`: no device has it. *Mandatory.*
    UctStatus (*listen)(struct UctCm *cm,
                        const struct UctCmListenParams *params,
                        struct UctCmListener **listener,
                        struct UctText *reason);
    // Where it listens, with the port that was chosen. *Mandatory.*
    UctStatus (*listener_address)(struct UctCmListener *listener, struct UctSocketAddress *address);
    // Stops listening. No request of it is reported any more; those that were reported stay valid. *Mandatory.*
    void (*listener_destroy)(struct UctCmListener *listener);
    // Begins to connect. *Mandatory.*
    UctStatus (*connect)(struct UctCm *cm,
                         const struct UctCmConnectParams *params,
                         struct UctCmEp **ep,
                         struct UctText *reason);
    // Sends the request to the server, once, after `UCT_CM_RESOLVED`. `UCT_ERR_BUSY`: not resolved yet. *Mandatory.*
    UctStatus (*send)(struct UctCmEp *ep, const struct UctCmData *data);
    // Accepts a request of any connection manager of the component, and makes its endpoint in `cm`, on the thread of that one's
    // worker. The request is consumed, also by an error; the client is rejected then, with no data. `UCT_ERR_CONNECTION_RESET`: it
    // has gone. `timeout` is in nanoseconds, until `UCT_CM_NOTIFIED`; 0 is the connection manager's default. *Mandatory.*
    UctStatus (*accept)(struct UctCm *cm,
                        struct UctCmRequest *request,
                        void *user,
                        const struct UctCmData *data,
                        uint64_t timeout,
                        struct UctCmEp **ep,
                        struct UctText *reason);
    // Rejects a request with private data, and consumes it, also with an error. Any thread. *Mandatory.*
    UctStatus (*reject)(struct UctCmRequest *request, const uint8_t *data, size_t length);
    // Notifies the server that the client is connected, once, after `UCT_CM_CONNECTED`. *Mandatory.*
    UctStatus (*notify)(struct UctCmEp *ep);
    // Disconnects, with a reason for the peer. Each side calls it once. `UCT_ERR_BUSY`: neither `UCT_CM_CONNECTED` nor `UCT_CM_NOTIFIED`
    // was reported. `UCT_INPROGRESS`: called before, and the peer has not disconnected. `UCT_ERR_NOT_CONNECTED`: both sides have
    // disconnected, or the endpoint has failed. *Mandatory.*
    UctStatus (*disconnect)(struct UctCmEp *ep, const uint8_t *data, size_t length);
    // The addresses of both ends, as this side sees them. `UCT_ERR_BUSY`: not resolved yet. *Mandatory.*
    UctStatus (*ep_addresses)(struct UctCmEp *ep,
                              struct UctSocketAddress *local,
                              struct UctSocketAddress *peer);
    // Destroys, at any time; a connection that is established is disconnected without a reason. No event follows. *Mandatory.*
    void (*ep_destroy)(struct UctCmEp *ep);
    // Finds out what prevents connections to an address, of a peer or of this machine, and emits a finding for each
    // step, up to the first obstacle. Needs no open connection manager. Blocks for some seconds at most. Since minor version 3.
    UctStatus (*diagnose)(const struct UctSocketAddress *address, UctEmitFinding emit, void *context);
} UctCmOps;

// An interface; the plugin's own.
typedef struct UctIface UctIface;

// Limits of one class of operations, in bytes unless said otherwise. `max_short` counts with `UCT_CAP_*_SHORT`,
// `max_bcopy` with `UCT_CAP_*_BCOPY`, `max_iov` with every vector, the others with `UCT_CAP_*_ZCOPY`.
typedef struct UctOpLimits {
    // Largest short operation (for active messages: payload without the 8-byte header).
    size_t max_short;
    // Largest buffered copy.
    size_t max_bcopy;
    // Smallest zero copy.
    size_t min_zcopy;
    // Largest zero copy.
    size_t max_zcopy;
    // Alignment of buffers that suits zero copy best.
    size_t opt_zcopy_align;
    // Alignment of data to which the transport cuts.
    size_t align_mtu;
    // Most entries of a vector.
    size_t max_iov;
    // Largest header of a zero-copy active message.
    size_t max_hdr;
} UctOpLimits;

// Atomic operations as bit sets (`1 << UCT_ATOMIC_*`).
typedef struct UctAtomicOps {
    // Without a result.
    uint32_t post;
    // With a result.
    uint32_t fetch;
    // Which of `post` are emulated.
    uint32_t post_emulated;
    // Which of `fetch` are emulated.
    uint32_t fetch_emulated;
} UctAtomicOps;

// A figure of the cost model and where it came from.
typedef struct UctFigure {
    // The number.
    double value;
    // `UCT_ORIGIN_*`.
    uint32_t origin;
} UctFigure;

// Capabilities and cost of an interface. Filled by `query`; the caller zeroes it and sets `size`.
typedef struct UctIfaceAttr {
    // Size of this table in bytes.
    size_t size;
    // `UCT_CAP_*`.
    uint64_t capabilities;
    // Which of `capabilities` the transport emulates by other operations.
    uint64_t emulated;
    // `UCT_EVENT_*` that `event_arm` accepts.
    uint32_t events;
    // Active messages.
    struct UctOpLimits am;
    // Put.
    struct UctOpLimits put;
    // Get.
    struct UctOpLimits get;
    // 32-bit atomics.
    struct UctAtomicOps atomic32;
    // 64-bit atomics.
    struct UctAtomicOps atomic64;
    // Bytes of a device address.
    size_t device_addr_len;
    // Bytes of an interface address.
    size_t iface_addr_len;
    // Bytes of an endpoint address.
    size_t ep_addr_len;
    // Seconds of processor time per operation.
    struct UctFigure overhead;
    // Seconds from sender to receiver.
    struct UctFigure latency;
    // Seconds that each further endpoint adds to `latency`.
    double latency_growth;
    // Bytes per second for each process by itself.
    struct UctFigure bandwidth_dedicated;
    // Bytes per second that all processes of the machine share.
    struct UctFigure bandwidth_shared;
    // Extra cost factor of emulated put, get and atomics: round trips they need.
    uint32_t emulated_round_trips;
    // Among interfaces of equal cost the highest is chosen.
    uint32_t priority;
    // Endpoints that it serves; selection passes over it where more are expected. 0: no limit.
    uint64_t max_num_eps;
    // `UCT_IFACE_ATTR_*`. Since minor version 2.
    uint64_t flags;
} UctIfaceAttr;

// Whether the host may access memory on behalf of an endpoint through the windows of its domain's keys. Owned by the host.
typedef struct UctGate {
    // 1 while such an access may proceed at once; 0 at first, and while the endpoint is not connected, has failed, or holds
    // operations back. The plugin sets it, in the worker's thread only.
    uint32_t is_open;
} UctGate;

// How to create an endpoint. Valid for the call, `user` for the life of the endpoint.
typedef struct UctEpParams {
    // Size of this table in bytes.
    size_t size;
    // Handed to the error handler.
    void *user;
    // The peer's device address; null for an endpoint that is connected later with `connect_to_ep`.
    const uint8_t *device_address;
    // Its length in bytes.
    size_t device_address_length;
    // The peer's interface address; null with a null device address.
    const uint8_t *iface_address;
    // Its length in bytes.
    size_t iface_address_length;
    // The plugin opens and closes it if its memory domain has windows. Valid until the endpoint is destroyed.
    struct UctGate *gate;
    // A counter that is odd while the host accesses memory through a window on behalf of the endpoint. The host adds 1 before it
    // reads `live` (`UctWindow`) and 1 after the access, by plain stores of the worker's thread.
    //
    // A plugin may open the gate only if it ends registrations like this: change `live`, make a barrier on all processors that
    // run this process (Linux: membarrier), then wait until a counter that is odd has changed, for as long as the copy of the largest
    // range takes. Valid until the endpoint is destroyed. Since minor version 1.
    uint64_t *accesses;
} UctEpParams;

// An endpoint; the plugin's own.
typedef struct UctEp UctEp;

// Called when operations end. `count` goes down by one per operation; at zero `func` is called, with the first error kept
// in `status`. The memory stays valid until then.
typedef struct UctCompletion {
    // Called at zero, from progress only.
    void (*func)(struct UctCompletion *completion);
    // Operations still outstanding.
    int32_t count;
    // `UCT_OK` or the first error.
    UctStatus status;
} UctCompletion;

// Takes one statistics counter.
typedef void (*UctEmitCounter)(void *context, struct UctStr name, uint64_t value);

// The calls of an interface.
typedef struct UctIfaceOps {
    // Size of this table in bytes.
    size_t size;
    // Closes within the interface's own time limit. All endpoints are destroyed by then. *Mandatory.*
    void (*close)(struct UctIface *iface);
    // Fills the attributes. *Mandatory.*
    UctStatus (*query)(struct UctIface *iface, struct UctIfaceAttr *attr);
    // Writes `device_addr_len` bytes. *Mandatory.*
    UctStatus (*get_device_address)(struct UctIface *iface, uint8_t *address);
    // Writes `iface_addr_len` bytes. *Mandatory.*
    UctStatus (*get_address)(struct UctIface *iface, uint8_t *address);
    // Whether a peer can be reached: `UCT_OK`, or `UCT_ERR_UNREACHABLE` with the reason as text, or
    // `UCT_ERR_REJECTED` where it would be within reach but for the obstacle that the reason names. A local decision
    // without traffic. The addresses are untrusted bytes. *Mandatory.*
    UctStatus (*is_reachable)(struct UctIface *iface,
                              const uint8_t *device_address,
                              size_t device_address_length,
                              const uint8_t *iface_address,
                              size_t iface_address_length,
                              uint32_t scope,
                              struct UctText *reason);
    // Receives, completes and sends what is due; returns how many events it handled. *Mandatory.*
    uint32_t (*progress)(struct UctIface *iface);
    // Creates an endpoint, without waiting for the peer. A peer that is gone is an error here if that is known at once, otherwise a
    // failure of the endpoint, reported from progress. *Mandatory.*
    UctStatus (*ep_create)(struct UctIface *iface,
                           const struct UctEpParams *params,
                           struct UctEp **ep,
                           struct UctText *reason);
    // Releases data that a handler kept; `data` is the pointer that was passed to the handler.
    void (*release)(struct UctIface *iface, void *data);
    // A descriptor that becomes readable when an armed event happens. It belongs to the interface: the host polls it and reads
    // nothing from it, and `progress` or `event_arm` empties it.
    UctStatus (*event_fd)(struct UctIface *iface, int32_t *fd);
    // Arms for `UCT_EVENT_*`. `UCT_ERR_BUSY`: there are unprocessed events, call progress first. After `UCT_OK` an
    // event that comes makes the descriptor readable: none is lost.
    UctStatus (*event_arm)(struct UctIface *iface, uint32_t events);
    // Flushes all endpoints: `UCT_OK` when nothing is outstanding, `UCT_INPROGRESS` with `completion` taken, or
    // `UCT_INPROGRESS` without it when `completion` is null (ask again). With `UCT_FLUSH_CANCEL` each of them gives up, and
    // does not wait for queued requests; the interface goes on.
    UctStatus (*flush)(struct UctIface *iface, uint32_t flags, struct UctCompletion *completion);
    // Orders operations of all endpoints before and after it.
    UctStatus (*fence)(struct UctIface *iface, uint32_t flags);
    // The transport's own counters. An interface that carries out all operations of other processes on memory of this one itself
    // also reports the `UCT_COUNTER_SERVED_*`.
    UctStatus (*counters)(struct UctIface *iface, UctEmitCounter emit, void *context);
    // Takes a connected socket, which another protocol may have used before: what comes next is the transport's own
    // handshake. For interfaces with `UCT_IFACE_ATTR_ADOPTS`. `side` is a `UCT_SIDE_*`.
    //
    // With null `params` and `ep` the interface treats the socket, which this side has accepted, as one that its own listener has
    // accepted. `first` are bytes of the handshake that were read already. Otherwise `length` is 0, and an endpoint is created as by
    // `ep_create`, which uses this socket and no other one: nothing is connected, so no peer need be reachable at its address. The
    // caller vouches that the other end of the socket is the peer's; both ends are adopted in this way.
    //
    // With `UCT_OK` the descriptor is the interface's, with an error it stays the caller's. Since minor version 2.
    UctStatus (*ep_adopt)(struct UctIface *iface,
                          const struct UctEpParams *params,
                          int32_t fd,
                          uint32_t side,
                          const uint8_t *first,
                          size_t length,
                          struct UctEp **ep,
                          struct UctText *reason);
} UctIfaceOps;

// A registration; the plugin's own.
typedef struct UctMemh UctMemh;

// One entry of a gather or scatter list. With `count` > 1, `count` blocks of `length` bytes lie `stride` bytes apart.
typedef struct UctIov {
    // First byte of the first block.
    void *buffer;
    // Bytes in one block.
    size_t length;
    // Registration that covers the blocks; null where the transport needs none.
    struct UctMemh *memh;
    // Distance in bytes from the start of one block to that of the next; unused when `count` is 1.
    size_t stride;
    // Number of blocks; 0 counts as an empty entry.
    uint32_t count;
} UctIov;

// Packs a message into the transport's buffer and returns its length in bytes. It never writes more than the
// `max_bcopy` of the operation. A transport calls it at most once for each operation.
//
// For interfaces with `UCT_IFACE_ATTR_PACK_NONE` it may return `UCT_PACK_NONE`: the transport sends nothing, takes its buffer back,
// and the slot returns `UCT_ERR_INVALID_PARAM`.
typedef size_t (*UctPack)(void *destination, void *argument);

// An unpacked remote key; the plugin's own, shareable by all endpoints of the memory domain.
typedef struct UctRkey UctRkey;

// Takes the data of a `get_bcopy`; called once, before the completion.
typedef void (*UctUnpack)(void *argument, const void *data, size_t length);

// A request that waits for resources on an endpoint. The memory stays valid until `func` was called and returned
// `UCT_OK`, or until the request was purged.
typedef struct UctPendingReq {
    // Called from progress only. `UCT_OK`: done, forget the request. `UCT_INPROGRESS`: keep it and go on.
    // Anything else: keep it and stop serving this endpoint for now.
    UctStatus (*func)(struct UctPendingReq *request);
    // The transport's while the request is queued. In C, copy into and out of it (`memcpy`): other types do not alias it.
    uint64_t reserved[5];
} UctPendingReq;

// Purge callback: called once per queued request, which is no longer queued then.
typedef void (*UctPurge)(struct UctPendingReq *request, void *argument);

// The calls of an endpoint.
//
// Every operation returns `UCT_OK` (done, buffers free; the completion is not touched), `UCT_INPROGRESS` (zero copy, get, atomics with
// a result: the completion reports the end), `UCT_ERR_NO_RESOURCE` (nothing happened; the caller makes progress and retries, or
// calls `pending_add`), or another error (nothing happened), such as `UCT_ERR_INVALID_PARAM` beyond a limit. After the endpoint has
// failed every operation returns the status of the failure.
typedef struct UctEpOps {
    // Size of this table in bytes.
    size_t size;
    // Destroys. The host has purged the queue of requests, and destroys from inside no other slot. Messages already accepted are still delivered; outstanding completions are called with
    // `UCT_ERR_CANCELED` if they cannot end otherwise. *Mandatory.*
    void (*destroy)(struct UctEp *ep);
    // Sends `header` (8 bytes, native order) and `length` bytes of `payload`, both copied.
    UctStatus (*am_short)(struct UctEp *ep, uint8_t id, uint64_t header, const void *payload, size_t length);
    // Sends the gathered bytes of a vector, copied; its first 8 bytes take the place of the header of `am_short`.
    UctStatus (*am_short_iov)(struct UctEp *ep, uint8_t id, const struct UctIov *iov, size_t count);
    // Sends what `pack` writes into the transport's buffer; returns the packed length or an error.
    ptrdiff_t (*am_bcopy)(struct UctEp *ep, uint8_t id, UctPack pack, void *argument, uint32_t flags);
    // Sends `header` (copied) and the memory of the vector, in place.
    UctStatus (*am_zcopy)(struct UctEp *ep,
                          uint8_t id,
                          const void *header,
                          size_t header_length,
                          const struct UctIov *iov,
                          size_t count,
                          uint32_t flags,
                          struct UctCompletion *completion);
    // Writes to remote memory; the bytes are copied.
    UctStatus (*put_short)(struct UctEp *ep,
                           const void *buffer,
                           size_t length,
                           uint64_t remote_address,
                           struct UctRkey *rkey);
    // Writes what `pack` produces to remote memory; returns the packed length or an error.
    ptrdiff_t (*put_bcopy)(struct UctEp *ep,
                           UctPack pack,
                           void *argument,
                           uint64_t remote_address,
                           struct UctRkey *rkey);
    // Writes the memory of the vector to remote memory, in place.
    UctStatus (*put_zcopy)(struct UctEp *ep,
                           const struct UctIov *iov,
                           size_t count,
                           uint64_t remote_address,
                           struct UctRkey *rkey,
                           struct UctCompletion *completion);
    // Reads remote memory into `buffer`; done when it returns `UCT_OK`.
    UctStatus (*get_short)(struct UctEp *ep,
                           void *buffer,
                           size_t length,
                           uint64_t remote_address,
                           struct UctRkey *rkey);
    // Reads remote memory and hands it to `unpack`.
    UctStatus (*get_bcopy)(struct UctEp *ep,
                           UctUnpack unpack,
                           void *argument,
                           size_t length,
                           uint64_t remote_address,
                           struct UctRkey *rkey,
                           struct UctCompletion *completion);
    // Reads remote memory into the memory of the vector, in place.
    UctStatus (*get_zcopy)(struct UctEp *ep,
                           const struct UctIov *iov,
                           size_t count,
                           uint64_t remote_address,
                           struct UctRkey *rkey,
                           struct UctCompletion *completion);
    // `UCT_ATOMIC_{ADD,AND,OR,XOR}` without a result, on 4 bytes.
    UctStatus (*atomic32_post)(struct UctEp *ep,
                               uint32_t op,
                               uint32_t value,
                               uint64_t remote_address,
                               struct UctRkey *rkey);
    // The same on 8 bytes.
    UctStatus (*atomic64_post)(struct UctEp *ep,
                               uint32_t op,
                               uint64_t value,
                               uint64_t remote_address,
                               struct UctRkey *rkey);
    // `UCT_ATOMIC_{ADD,AND,OR,XOR,SWAP}`; the old value is written to `*result`, which stays valid until the completion.
    UctStatus (*atomic32_fetch)(struct UctEp *ep,
                                uint32_t op,
                                uint32_t value,
                                uint32_t *result,
                                uint64_t remote_address,
                                struct UctRkey *rkey,
                                struct UctCompletion *completion);
    // The same on 8 bytes.
    UctStatus (*atomic64_fetch)(struct UctEp *ep,
                                uint32_t op,
                                uint64_t value,
                                uint64_t *result,
                                uint64_t remote_address,
                                struct UctRkey *rkey,
                                struct UctCompletion *completion);
    // Writes `swap` if the remote 4 bytes equal `compare`; the old value is written to `*result`.
    UctStatus (*atomic32_cswap)(struct UctEp *ep,
                                uint32_t compare,
                                uint32_t swap,
                                uint32_t *result,
                                uint64_t remote_address,
                                struct UctRkey *rkey,
                                struct UctCompletion *completion);
    // The same on 8 bytes.
    UctStatus (*atomic64_cswap)(struct UctEp *ep,
                                uint64_t compare,
                                uint64_t swap,
                                uint64_t *result,
                                uint64_t remote_address,
                                struct UctRkey *rkey,
                                struct UctCompletion *completion);
    // Queues a request until resources return. `UCT_ERR_BUSY`: they are there, retry now. A send never overtakes a
    // queued request.
    UctStatus (*pending_add)(struct UctEp *ep, struct UctPendingReq *request);
    // Removes all queued requests, calling `purge` once for each.
    void (*pending_purge)(struct UctEp *ep, UctPurge purge, void *argument);
    // As the interface's flush, for one endpoint. `UCT_ERR_NO_RESOURCE` implies that `pending_add` accepts.
    UctStatus (*flush)(struct UctEp *ep, uint32_t flags, struct UctCompletion *completion);
    // Orders operations: later ones are not visible before earlier ones.
    UctStatus (*fence)(struct UctEp *ep, uint32_t flags);
    // Checks whether the peer is alive: `UCT_OK`, `UCT_INPROGRESS` (the completion reports the end), or the error.
    UctStatus (*check)(struct UctEp *ep, uint32_t flags, struct UctCompletion *completion);
    // Writes `ep_addr_len` bytes.
    UctStatus (*get_address)(struct UctEp *ep, uint8_t *address);
    // Connects an unconnected endpoint to the peer's endpoint. The addresses are untrusted bytes.
    UctStatus (*connect_to_ep)(struct UctEp *ep,
                               const uint8_t *device_address,
                               size_t device_address_length,
                               const uint8_t *ep_address,
                               size_t ep_address_length,
                               struct UctText *reason);
    // What a connection manager of the same device has to know of the endpoint to connect it. Since minor version 2.
    UctStatus (*cm_token)(struct UctEp *ep, struct UctCmToken *token);
} UctEpOps;

// A memory domain; the plugin's own.
typedef struct UctMd UctMd;

// One device that a transport can use.
typedef struct UctDevice {
    // Size of this table in bytes.
    size_t size;
    // At most 32 bytes; `mlx5_0:1`, `eth0`, `memory`.
    struct UctStr name;
    // `UCT_DEVICE_*`.
    uint32_t kind;
    // NUMA node the device is attached to; -1 where there is none.
    int32_t numa_node;
    // `UCT_DEVICE_IS_*`. Since minor version 7.
    uint64_t flags;
} UctDevice;

// Takes one device.
typedef void (*UctEmitDevice)(void *context, const struct UctDevice *device);

// Receives an active message. `data` are aligned to 8 bytes and readable for `length` bytes until it returns. With `UCT_AM_DESC` in `flags`
// it may return `UCT_INPROGRESS`: then the data, and `rx_headroom` writable bytes ahead of them, are its own until
// `release`. Any other result gives the data back. Without `UCT_AM_SHARED`, nothing writes to the data meanwhile.
typedef UctStatus (*UctAmCallback)(void *argument, void *data, size_t length, uint32_t flags);

// The handlers of an interface by their ids; none is ever null. The host owns the table and changes it between calls; host and
// transport use it on the thread that drives the worker, and no other.
typedef struct UctAmTable {
    // The function to call for a message with the id.
    UctAmCallback callbacks[UCT_AM_IDS];
    // The first argument of each function.
    void *arguments[UCT_AM_IDS];
} UctAmTable;

// Called once when an endpoint has failed, from progress only, and not after it was destroyed. `ep` is the `user` of its parameters. `reason` is human-readable.
typedef void (*UctErrorHandler)(void *argument, void *ep, UctStatus status, struct UctStr reason);

// An interface as the host knows it; the host's own.
typedef struct UctHostIface UctHostIface;

// Takes the rest of long active messages where it likes them: a transport that receives from a stream has only the beginning of a message by
// then, and can have the system write the rest there without a copy. The host owns the table and changes `ids` between calls; host and
// transport use it on the thread that drives the worker, and no other. Every slot is filled. Since minor version 8.
typedef struct UctAmPlacer {
    // Size of this table in bytes.
    size_t size;
    // First argument of the functions.
    void *argument;
    // Bit i is set: messages of id i may be taken.
    uint32_t ids;
    // The first `head_length` of `length` bytes of a message of `id` have arrived, and are readable for the call. `UCT_OK`: it takes the
    // message, copies of the head what it needs, and `arrival` is its name for it from now on. Otherwise the message is received and delivered as
    // all others. A transport has at most one arrival for each connection at a time, and delivers nothing else of that connection meanwhile.
    UctStatus (*begin)(void *argument,
                       uint32_t id,
                       const void *head,
                       size_t head_length,
                       size_t length,
                       uint64_t *arrival);
    // Where the bytes of the message from `offset` on go, and in `room` for how many of them; valid until the transport calls the host again
    // or returns to it. Null: these and all later ones are received to nowhere. Called before each receive.
    void *(*place)(void *argument, uint64_t arrival, size_t offset, size_t *room);
    // All `length` bytes of the message have arrived. Not called if the connection ends before: the failure of its endpoint reports that.
    void (*end)(void *argument, uint64_t arrival, size_t length);
} UctAmPlacer;

// How to open an interface. All of it is the host's and valid for the call, the handler table until `close`.
typedef struct UctIfaceParams {
    // Size of this table in bytes.
    size_t size;
    // The worker that will drive the interface.
    struct UctWorker *worker;
    // A device that `query_devices` named.
    struct UctStr device;
    // The plugin's values.
    const struct UctConfig *config;
    // The handlers of active messages.
    struct UctAmTable *am_handlers;
    // Called for endpoints that fail.
    UctErrorHandler error_handler;
    // First argument of the error handler.
    void *error_argument;
    // Bytes ahead of received data that the handler may write to once it keeps the message.
    size_t rx_headroom;
    // `UCT_IFACE_*`.
    uint64_t flags;
    // What the host's `progress_request` is called with, until `close`.
    struct UctHostIface *iface;
    // Takes long active messages where it likes them, until `close`; null: nothing does. Since minor version 8.
    const struct UctAmPlacer *am_placer;
} UctIfaceParams;

// One transport: a way to move data, on some devices.
typedef struct UctTlOps {
    // Size of this table in bytes.
    size_t size;
    // At most 10 bytes. *Mandatory.*
    struct UctStr name;
    // The calls of its interfaces. *Mandatory.*
    const struct UctIfaceOps *iface_ops;
    // The calls of its endpoints. *Mandatory.*
    const struct UctEpOps *ep_ops;
    // Lists the devices. An error with a reason explains why there are none. *Mandatory.*
    UctStatus (*query_devices)(struct UctMd *md,
                               const struct UctConfig *config,
                               UctEmitDevice emit,
                               void *context,
                               struct UctText *reason);
    // Opens an interface. *Mandatory.*
    UctStatus (*iface_open)(struct UctMd *md,
                            const struct UctIfaceParams *params,
                            struct UctIface **iface,
                            struct UctText *reason);
} UctTlOps;

// What a memory domain can do.
typedef struct UctMdAttr {
    // Size of this table in bytes, set by the caller.
    size_t size;
    // `UCT_MD_*` flags.
    uint64_t flags;
    // Bytes of a packed memory key.
    size_t rkey_packed_size;
    // Largest region that can be registered, in bytes.
    uint64_t max_reg;
    // Largest region that can be allocated, in bytes.
    uint64_t max_alloc;
    // Bit set of memory kinds that can be registered (bit 0 = host).
    uint64_t reg_memory_kinds;
    // Seconds that a registration takes, whatever its size.
    double reg_cost;
    // Seconds per registered byte.
    double reg_growth;
    // Seconds that it takes to unpack a key, use it for one operation, and release it, beside the operation with a key that is kept. The
    // memory is one that another key was used to a moment ago. *Since 1.5.*
    double rkey_cost;
    // Seconds that the first operation takes in addition where no key to the memory was used for a while, whatever its size. *Since 1.5.*
    double rkey_map_cost;
    // Seconds per accessed byte of that first operation. *Since 1.5.*
    double rkey_map_growth;
} UctMdAttr;

// The part of a key's memory that is mapped in this process. The host reads and writes it, in aligned words and in ranges of
// bytes within them, without calling the plugin while the endpoint's `UctGate` is open, and counts each access (`UctEpParams::accesses`).
typedef struct UctWindow {
    // Size of this table in bytes, set by the caller.
    size_t size;
    // First remote address; a multiple of 8.
    uint64_t base;
    // Where `base` is mapped in this process; a multiple of 8.
    uint64_t *local;
    // Aligned words of 8 bytes, from `base` on, that put may write.
    uint64_t put_words;
    // Aligned words that get may read.
    uint64_t get_words;
    // Aligned words that atomics may change.
    uint64_t atomic_words;
    // A word that holds `value` while the memory may be accessed. Read with acquire ahead of each access; valid until the
    // key is released.
    const uint64_t *live;
    // What `live` holds while the memory may be accessed.
    uint64_t value;
} UctWindow;

// The calls of a memory domain. Any thread may call them, several at once.
typedef struct UctMdOps {
    // Size of this table in bytes.
    size_t size;
    // Closes; interfaces, registrations and keys of it are gone by then. *Mandatory.*
    void (*close)(struct UctMd *md);
    // Fills `attr`, whose `size` is how much of it the host knows. *Mandatory.*
    UctStatus (*query)(struct UctMd *md, struct UctMdAttr *attr);
    // Registers `length` bytes at `address` for `UCT_MD_ACCESS_*`. The memory stays valid until deregistered.
    UctStatus (*mem_reg)(struct UctMd *md,
                         void *address,
                         size_t length,
                         uint32_t access,
                         struct UctMemh **memh,
                         struct UctText *reason);
    // Ends a registration. The host ensures that no operation uses it as local memory any more. Peers, and other threads with keys to it,
    // may access the memory until this returns, and not afterwards: it waits for accesses in flight. After an error the host does not free
    // it.
    UctStatus (*mem_dereg)(struct UctMd *md, struct UctMemh *memh);
    // Allocates and registers at least `*length` bytes; sets `length` to what is usable. The memory is zeroed.
    UctStatus (*mem_alloc)(struct UctMd *md,
                           size_t *length,
                           uint32_t access,
                           void **address,
                           struct UctMemh **memh,
                           struct UctText *reason);
    // Frees memory of `mem_alloc`. `UCT_ERR_BUSY` as in `mem_dereg`: the plugin keeps the memory.
    UctStatus (*mem_free)(struct UctMd *md, struct UctMemh *memh);
    // Advises about the use of a part of a registration (`UCT_ADVICE_*`).
    UctStatus (*mem_advise)(struct UctMd *md,
                            struct UctMemh *memh,
                            void *address,
                            size_t length,
                            uint32_t advice);
    // Writes `rkey_packed_size` bytes that let a peer reach the registration.
    UctStatus (*mkey_pack)(struct UctMd *md, struct UctMemh *memh, uint8_t *buffer);
    // Turns packed bytes into a key. Bytes that are not a key of this kind are `UCT_ERR_INVALID_PARAM`.
    UctStatus (*rkey_unpack)(struct UctMd *md,
                             const uint8_t *buffer,
                             size_t length,
                             struct UctRkey **rkey,
                             struct UctText *reason);
    // Frees a key.
    void (*rkey_release)(struct UctMd *md, struct UctRkey *rkey);
    // The local address of remote memory, where it is directly reachable.
    UctStatus (*rkey_ptr)(struct UctMd *md, struct UctRkey *rkey, uint64_t remote_address, void **local);
    // Orders two keys: `result` is negative, zero or positive.
    UctStatus (*rkey_compare)(struct UctMd *md, struct UctRkey *left, struct UctRkey *right, int32_t *result);
    // Fills `window`, whose `size` is how much of it the host knows. `UCT_ERR_UNSUPPORTED`: the memory never lies in
    // this process. `UCT_ERR_NO_RESOURCE`: it does not yet, and may after an operation with the key. What was returned
    // holds until the key is released.
    UctStatus (*rkey_window)(struct UctMd *md, struct UctRkey *rkey, struct UctWindow *window);
} UctMdOps;

// Takes one name of a list.
typedef void (*UctEmitName)(void *context, struct UctStr name);

// The calls of a component: what a plugin offers under one name.
typedef struct UctComponentOps {
    // Size of this table in bytes.
    size_t size;
    // Name of the component, at most 16 bytes. *Mandatory.*
    struct UctStr name;
    // First of `tl_count` transports.
    const struct UctTlOps *const *tls;
    // Number of transports; 0 for a component that only has connection managers.
    size_t tl_count;
    // The calls of its memory domains. *Mandatory.*
    const struct UctMdOps *md_ops;
    // Lists the memory domains that can be opened here. An error with a reason explains why there are none. *Mandatory.*
    UctStatus (*query_mds)(const struct UctConfig *config,
                           UctEmitName emit,
                           void *context,
                           struct UctText *reason);
    // Opens a memory domain by name. *Mandatory.*
    UctStatus (*md_open)(struct UctStr name,
                         const struct UctConfig *config,
                         struct UctMd **md,
                         struct UctText *reason);
    // The calls of its connection managers; null if it has none. Since minor version 2.
    const struct UctCmOps *cm_ops;
} UctComponentOps;

// One key of a plugin. The key `tx_seg_size` of section `tcp` is `[tcp] tx_seg_size` in a file and
// `UCT_TCP_TX_SEG_SIZE` in the environment.
typedef struct UctConfigField {
    // Lower case, words joined by underscores.
    struct UctStr name;
    // `UCT_CONFIG_*`.
    uint32_t kind;
    // `UCT_CONFIG_SECURITY`, or 0. Read from plugins of minor version 1 and later; before, the place was unused.
    uint32_t flags;
    // Least value for integers and sizes; `minimum` = `maximum` = 0 means unlimited.
    int64_t minimum;
    // Greatest value for integers and sizes.
    int64_t maximum;
    // For `UCT_CONFIG_ENUM`: the choices, separated by `|`.
    struct UctStr choices;
    // The default, as a user would write it.
    struct UctStr default_text;
    // What the key does, in a sentence or two.
    struct UctStr doc;
} UctConfigField;

// A group of keys.
typedef struct UctConfigSection {
    // Lower case; usually the transport's name.
    struct UctStr name;
    // What the keys are about.
    struct UctStr doc;
    // First of `count` keys.
    const struct UctConfigField *fields;
    // Number of keys.
    size_t count;
} UctConfigSection;

// Called for an event of the asynchronous context. `events` is 0 for a timer.
typedef void (*UctAsyncHandler)(void *argument, uint64_t id, uint32_t events);

// Called by worker progress; returns how many events it handled.
typedef uint32_t (*UctProgress)(void *argument);

// One log record.
typedef struct UctLogRecord {
    // Size of this table in bytes.
    size_t size;
    // `UCT_LOG_*`.
    uint32_t level;
    // Line in `file`; 0 where unknown.
    uint32_t line;
    // Module that logs.
    struct UctStr target;
    // Source file.
    struct UctStr file;
    // The message with its fields.
    struct UctStr message;
} UctLogRecord;

// The host's calls. The host fills every slot it knows of; a plugin checks `size` before it uses one that is newer
// than the plugin's ABI. Valid for ever.
typedef struct UctHost {
    // Size of this table in bytes.
    size_t size;
    // ABI version of the host: `major << 16 | minor`.
    uint32_t abi_version;
    // Writes a log record. Any thread.
    void (*log)(const struct UctLogRecord *record);
    // The most verbose level that is in use (`UCT_LOG_*`, 0 for none). Any thread; cheap.
    uint32_t (*log_level)(void);
    // Monotonic time in nanoseconds. Any thread.
    uint64_t (*now)(void);
    // Watches a file descriptor for `UCT_FD_*`. The handler runs in the worker's asynchronous context: from progress
    // in poll mode, from a thread of its own otherwise.
    UctStatus (*async_add_fd)(struct UctWorker *worker,
                              int32_t fd,
                              uint32_t events,
                              UctAsyncHandler handler,
                              void *argument,
                              uint64_t *id);
    // Changes what a watched file descriptor is watched for.
    UctStatus (*async_modify)(struct UctWorker *worker, uint64_t id, uint32_t events);
    // Calls the handler every `interval` nanoseconds.
    UctStatus (*async_add_timer)(struct UctWorker *worker,
                                 uint64_t interval,
                                 UctAsyncHandler handler,
                                 void *argument,
                                 uint64_t *id);
    // Ends a watch or a timer. When it returns the handler is not running, unless the call came from inside it.
    UctStatus (*async_remove)(struct UctWorker *worker, uint64_t id);
    // Keeps handlers of the asynchronous context from running; nests. Handlers that were due meanwhile run at the last unblock.
    void (*async_block)(struct UctWorker *worker);
    // Undoes one `async_block`.
    void (*async_unblock)(struct UctWorker *worker);
    // Adds a progress callback besides the interface's own, for work that is not permanent. Any thread.
    UctStatus (*progress_add)(struct UctWorker *worker, UctProgress callback, void *argument, uint64_t *id);
    // Removes a progress callback. Any thread.
    UctStatus (*progress_remove)(struct UctWorker *worker, uint64_t id);
    // Wakes a worker that sleeps on its event descriptor. Any thread.
    void (*worker_wake)(struct UctWorker *worker);
    // Has the worker's next progress call that of the interface. Progress of several interfaces calls one that has had no event for a
    // while only now and then, so a transport that leaves something to progress asks for it. The worker's thread; cheap.
    void (*progress_request)(struct UctHostIface *iface);
} UctHost;

// A plugin. The host checks, in this order: magic, major version, size, mandatory slots; then it calls `init`.
// A plugin whose `init` succeeded is never unloaded.
typedef struct UctPlugin {
    // `UCT_MAGIC`.
    uint64_t magic;
    // `UCT_ABI_MAJOR`.
    uint32_t abi_major;
    // `UCT_ABI_MINOR`.
    uint32_t abi_minor;
    // Size of this table in bytes.
    size_t size;
    // Name of the plugin. *Mandatory.*
    struct UctStr name;
    // Version of the plugin, human-readable.
    struct UctStr version;
    // First of `component_count` components. *Mandatory.*
    const struct UctComponentOps *const *components;
    // Number of components.
    size_t component_count;
    // First of `config_count` groups of configuration keys.
    const struct UctConfigSection *config;
    // Number of groups.
    size_t config_count;
    // Called once, before everything else. An error with a reason makes the host skip the plugin.
    UctStatus (*init)(const struct UctHost *host, struct UctText *reason);
} UctPlugin;

// The one exported function: returns the plugin's table, which is valid for ever.
typedef const struct UctPlugin *(*UctPluginEntry)(void);

// Success.
#define UCT_OK 0

// Started; a completion reports the end.
#define UCT_INPROGRESS 1

// No message is waiting.
#define UCT_ERR_NO_MESSAGE -1

// Nothing was started for want of a resource; retry, or queue with `pending_add`.
#define UCT_ERR_NO_RESOURCE -2

// Input or output failed.
#define UCT_ERR_IO_ERROR -3

// Out of memory.
#define UCT_ERR_NO_MEMORY -4

// A parameter is wrong.
#define UCT_ERR_INVALID_PARAM -5

// The peer cannot be reached.
#define UCT_ERR_UNREACHABLE -6

// The address is not valid.
#define UCT_ERR_INVALID_ADDR -7

// The function is not written.
#define UCT_ERR_NOT_IMPLEMENTED -8

// The message is longer than the place for it.
#define UCT_ERR_MESSAGE_TRUNCATED -9

// Nothing moved.
#define UCT_ERR_NO_PROGRESS -10

// The buffer is too small.
#define UCT_ERR_BUFFER_TOO_SMALL -11

// There is no such element.
#define UCT_ERR_NO_ELEM -12

// Some of several connections failed.
#define UCT_ERR_SOME_CONNECTS_FAILED -13

// There is no such device.
#define UCT_ERR_NO_DEVICE -14

// Busy: for `pending_add` "resources are there, retry now", for `event_arm` "events are unprocessed".
#define UCT_ERR_BUSY -15

// The operation was cancelled.
#define UCT_ERR_CANCELED -16

// A shared memory segment failed.
#define UCT_ERR_SHMEM_SEGMENT -17

// It exists already.
#define UCT_ERR_ALREADY_EXISTS -18

// An index or address is out of range.
#define UCT_ERR_OUT_OF_RANGE -19

// It took too long.
#define UCT_ERR_TIMED_OUT -20

// A limit that the user set was reached.
#define UCT_ERR_EXCEEDS_LIMIT -21

// The transport does not do this.
#define UCT_ERR_UNSUPPORTED -22

// The peer refused.
#define UCT_ERR_REJECTED -23

// The endpoint is not connected.
#define UCT_ERR_NOT_CONNECTED -24

// The peer closed or reset the connection.
#define UCT_ERR_CONNECTION_RESET -25

// The peer did not respond within the endpoint's time limit.
#define UCT_ERR_ENDPOINT_TIMEOUT -80

#ifdef __cplusplus
}
#endif

#endif  /* UCT_ABI_H */
