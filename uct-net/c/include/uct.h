/*
 * uct.h: connections by address for programs in C and C++: messages, remote memory and transfers of blocks over the
 * fastest transport that two programs share (shared memory, RDMA, TCP).
 *
 *     cc program.c $(pkg-config --cflags --libs uct)
 *
 * docs/c.md has a first program. What holds for every function:
 *
 * Operations   A function that returns `uct_op` starts an operation and does not block. It returns 0 if the call is
 *              wrong (a handle, an argument, a child of a fork): nothing was started, and uct_error(NULL, 0) has the
 *              reason. Otherwise the operation ends with exactly one event, also if it fails, is cancelled, or ends
 *              inside of the call. It goes on whether or not anybody waits: the net has a thread.
 * Events       uct_net_wait and uct_wait return them. Each is returned once. They are kept until then, so a program has
 *              to take them.
 * user         A word of the program's choice, which comes back in the event: a number, or a pointer as
 *              (uint64_t)(uintptr_t)pointer.
 * Status       0 (UCT_OK), or a number below 0. The numbers and names are those of UCX.
 * Handles      They are checked in every call and never followed: NULL, a closed handle, one of another kind or of
 *              another net is an error with a reason. A new handle may have the value of a closed one only after 2^28
 *              others.
 * Ownership    A program closes, frees or releases what it got: options, nets, listeners, connections, messages,
 *              memory, remote memory. Closing a net does this for all that belongs to it. Nothing is passed to free().
 * Memory       `data` of uct_send and notifications, texts, options and lists of blocks are copied before the function
 *              returns. Only uct_recv_into keeps the program's memory, until its event was returned.
 * Threads      Any function may be called from any thread, also with the same handle at the same time. Events go to
 *              whichever thread waits.
 * Fork         A child of a fork cannot use handles of its parent: every call is an error with the reason. It can open
 *              nets of its own.
 * Blocking     Only uct_net_open, uct_net_close, uct_net_wait, uct_wait and uct_memory_allocate block.
 * Unloading    The library stays in the process once it is loaded: dlclose() has no effect.
 *
 * Lengths and offsets are bytes. Times are nanoseconds; a negative one is no limit.
 */
#ifndef UCT_H
#define UCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. */
typedef struct uct_options uct_options;
typedef struct uct_net uct_net;
typedef struct uct_listener uct_listener;
typedef struct uct_conn uct_conn;
typedef struct uct_message uct_message;
typedef struct uct_memory uct_memory;
typedef struct uct_remote uct_remote;

/* An operation. 0: none. A number is never used again. */
typedef uint64_t uct_op;

/* Statuses. */
#define UCT_OK 0
#define UCT_INPROGRESS 1
#define UCT_ERR_NO_MESSAGE -1
#define UCT_ERR_NO_RESOURCE -2
#define UCT_ERR_IO_ERROR -3
#define UCT_ERR_NO_MEMORY -4
#define UCT_ERR_INVALID_PARAM -5
#define UCT_ERR_UNREACHABLE -6
#define UCT_ERR_INVALID_ADDR -7
#define UCT_ERR_NOT_IMPLEMENTED -8
#define UCT_ERR_MESSAGE_TRUNCATED -9
#define UCT_ERR_NO_PROGRESS -10
#define UCT_ERR_BUFFER_TOO_SMALL -11
#define UCT_ERR_NO_ELEM -12
#define UCT_ERR_SOME_CONNECTS_FAILED -13
#define UCT_ERR_NO_DEVICE -14
#define UCT_ERR_BUSY -15
#define UCT_ERR_CANCELED -16
#define UCT_ERR_SHMEM_SEGMENT -17
#define UCT_ERR_ALREADY_EXISTS -18
#define UCT_ERR_OUT_OF_RANGE -19
#define UCT_ERR_TIMED_OUT -20
#define UCT_ERR_EXCEEDS_LIMIT -21
#define UCT_ERR_UNSUPPORTED -22
#define UCT_ERR_REJECTED -23
#define UCT_ERR_NOT_CONNECTED -24
#define UCT_ERR_CONNECTION_RESET -25
#define UCT_ERR_ENDPOINT_TIMEOUT -80

/* Which function started an operation: `kind` of its event. uct_send_memory is a send. */
#define UCT_EV_CONNECT 1
#define UCT_EV_LISTEN 2
#define UCT_EV_ACCEPT 3
#define UCT_EV_SEND 4
#define UCT_EV_RECV 5
#define UCT_EV_RECV_INTO 6
#define UCT_EV_CONN_CLOSE 7
#define UCT_EV_SHARE 8
#define UCT_EV_SHARED 9
#define UCT_EV_PUT 10
#define UCT_EV_GET 11
#define UCT_EV_FETCH_ADD 12
#define UCT_EV_FLUSH 13
#define UCT_EV_PUT_BLOCKS 14
#define UCT_EV_GET_BLOCKS 15
#define UCT_EV_NOTIFIED 16

/*
 * The end of an operation. The comment of each function says what `length`, `data` and `result` are; they are 0
 * otherwise.
 */
typedef struct uct_event {
    uct_op op;
    uint64_t user;
    uint64_t length;
    const void *data;
    union {
        uct_conn *conn;
        uct_listener *listener;
        uct_message *message;
        uct_remote *remote;
        uint64_t value;
    } result;
    int32_t status;
    uint32_t kind;
} uct_event;

/*
 * A block of a transfer: `length` bytes, from byte `local` on of the memory of this side, and from byte `remote` on of
 * the peer's.
 */
typedef struct uct_block {
    uint64_t local;
    uint64_t remote;
    uint64_t length;
} uct_block;

/* ---- Errors ---- */

/* The version of the library: "0.1.0". Valid for ever. */
const char *uct_version(void);

/* What a status means, as text. Valid for ever. */
const char *uct_status_string(int status);

/*
 * Why an operation failed: one line with the stage, the peer, the reason and often a remedy. Of each net the 1024
 * failures that came last are kept. With op = 0, whatever the net: why the last call of this thread was refused, or the
 * operation failed whose status uct_wait has returned. NULL if there is none. The text is valid until this thread calls
 * uct_error again.
 */
const char *uct_error(uct_net *net, uct_op op);

/* ---- Options ---- */

/*
 * Options are pairs of texts, for uct_net_open, uct_connect or uct_listen. These functions copy what they need: one set
 * may be used for several calls and freed afterwards.
 *
 * For uct_net_open: every key of the configuration (`tls`, the list of permitted transports; `net_devices`; `require`;
 * `tcp.tx_seg_size`: docs/configuration.md), which comes ahead of the environment (UCT_TLS) and the file, and
 *
 *     wait                        how a thread waits: `spin`, `sleep`, or the time it polls before it sleeps; `20us`
 *     window                      bytes that a peer may send unread on a connection; `1m`
 *     max_message                 longest message that is received; `64m`
 *     connect_timeout             of connecting as a whole; `30s`
 *     handshake_timeout           of each step of a handshake; `5s`
 *     lane_timeout                until the next transport is tried; `2s`
 *     max_half_open               callers that are not accepted yet, for each listener; `128`
 *     max_connections             and max_connections_per_source: callers' connections; 0: by the free descriptors
 *     reserved_descriptors        that stay free of callers; `32`
 *     shared_key                  at least 16 bytes that both sides have, and prove to have; none
 *     request                     operation and size that the transport is chosen for: `am_short 8`, `get_zcopy 64k`
 *
 * For uct_connect: `timeout` (`5s`), `require` (`posix`, `eth0` or `tcp/eth0`; several with commas: any of them),
 * `request` as above, `from` (the address to call from, `10.7.0.1:0`), `by` (`rdmacm`), `private` (text for the
 * listener).
 * For uct_listen: `by`.
 *
 * A key or value that is wrong is an error of the call that the options are given to.
 */
uct_options *uct_options_create(void); /* NULL: refused */
int uct_options_set(uct_options *options, const char *key, const char *value);
int uct_options_free(uct_options *options);

/* ---- Nets and events ---- */

/*
 * Opens all permitted transports, and starts the net's thread. `options` may be NULL. Blocks meanwhile: milliseconds,
 * longer with RDMA devices. NULL: refused. At most 255 nets are open at once; one is enough for most programs.
 */
uct_net *uct_net_open(const uct_options *options);

/*
 * Closes the net and all that belongs to it: its handles become invalid, operations end without an event, memory is
 * freed. What was sent last is delivered. Threads in uct_net_wait return UCT_ERR_CANCELED. Blocks up to 3 s, twice that
 * if a thread waits. Afterwards no memory of the program is used.
 */
int uct_net_close(uct_net *net);

/*
 * Waits until there are events, and takes up to `room` of them, the oldest first. The calling thread makes progress
 * meanwhile. Returns how many: 0 if there was none within `timeout_ns`; below 0 if the call was refused. With
 * timeout_ns = 0 it makes progress once and does not wait.
 */
int uct_net_wait(uct_net *net, uct_event *events, size_t room, int64_t timeout_ns);

/*
 * Waits for one operation and takes its event, which uct_net_wait does not return then. `event` may be NULL; what the
 * event would have returned (a connection, a message) is closed then. Returns the status of the operation, or
 * UCT_INPROGRESS if it has not ended within `timeout_ns` (it goes on);
 * UCT_ERR_INVALID_PARAM if its event was taken already, or there is no such operation;
 * with op = 0 the status of the last call of this thread that was refused. So uct_wait(net, uct_send(...), -1, NULL)
 * needs no check in between.
 */
int uct_wait(uct_net *net, uct_op op, int64_t timeout_ns, uct_event *event);

/*
 * A descriptor for poll, epoll and the like: readable while there are events. Level: take them with uct_net_wait(net,
 * events, room, 0). The net's thread makes progress while the program sleeps on it. It belongs to the net: do not read
 * or close it. Below 0: refused.
 */
int uct_net_fd(uct_net *net);

/*
 * Ends an operation early. Its event comes with UCT_ERR_CANCELED, or with another status if it ended at the same time.
 * A message of which something was sent is sent whole. A put or get that has started goes on (uct_flush waits for it).
 * A transfer begins no further block, and ends when none is in flight. A receive that is cancelled loses no message.
 * UCT_ERR_NO_ELEM: it has ended already; its event comes, or was taken.
 */
int uct_cancel(uct_net *net, uct_op op);

/* ---- Connections ---- */

/*
 * Listens at `*:7000` or `[::]:7000` (all addresses of this machine), `127.0.0.1:7000`, `name:7000`, `unix:/path` or
 * `unix:@name`. With port 0 the system chooses one: uct_listener_address. `options` may be NULL.
 * Event: result.listener.
 */
uct_op uct_listen(uct_net *net, const char *address, const uct_options *options, uint64_t user);

/*
 * Texts of a listener or a connection: as snprintf, copies at most `room` bytes with the final zero, and returns the
 * length of the whole text without it. `text` may be NULL if room is 0. Below 0: refused.
 */
int uct_listener_address(uct_listener *listener, char *text, size_t room); /* as uct_connect takes it */
int uct_conn_peer(uct_conn *conn, char *text, size_t room);                /* the peer's address */
int uct_conn_transport(uct_conn *conn, char *text, size_t room);           /* transport and device: posix/memory */
int uct_conn_explanation(uct_conn *conn, char *text, size_t room);         /* why that one, in several lines */

/*
 * The next connection of a listener, once a message has crossed it in both directions. Callers whose handshake fails
 * are left out. Several accepts get different connections. Callers make progress only while an accept is in flight.
 * Event: result.conn.
 */
uct_op uct_accept(uct_listener *listener, uint64_t user);

/* Stops listening: accepts in flight are cancelled, connections go on. */
int uct_listener_close(uct_listener *listener);

/*
 * Connects to a listener. Ends within the option `timeout`, or connect_timeout of the net. `options` may be NULL.
 * Event: result.conn, a connection that a message has crossed in both directions.
 */
uct_op uct_connect(uct_net *net, const char *address, const uct_options *options, uint64_t user);

/*
 * Sends what is queued and then the end; the event comes when the peer's library has all messages, or the connection
 * has failed. The handle is invalid at once. Receives in flight are cancelled, puts and gets go on (uct_flush before).
 * A connection that the program does not close stays open, also after it has failed, until the net is closed.
 */
uct_op uct_conn_close(uct_conn *conn, uint64_t user);

/*
 * Ends the connection at once: queued messages are lost, and the peer gets an error with the reason (64 bytes of it).
 * The handle is invalid afterwards.
 */
int uct_conn_abort(uct_conn *conn, const char *reason);

/* ---- Messages ---- */

/*
 * Sends a message: it arrives whole, and in the order of the calls, or the connection fails. It may have any length up
 * to the receiver's max_message. The bytes are copied before this returns. The event comes when the transport has the
 * message; it waits while the peer's window is full. A failed connection is the status of the event.
 */
uct_op uct_send(uct_conn *conn, const void *data, size_t length, uint64_t user);

/*
 * Sends a part of registered memory as a message. Of a large one (key rndv_thresh) no copy is made where the peer reads
 * remote memory: it must not change until the event.
 */
uct_op uct_send_memory(uct_conn *conn, uct_memory *memory, size_t offset, size_t length, uint64_t user);

/*
 * The next message. Receives of a connection, of both kinds, get messages in the order of the calls. When the peer has
 * closed the connection, the status is UCT_ERR_NOT_CONNECTED after the last message; when the peer has died, the error
 * that the transport found.
 * Event: data and length of the message, valid until uct_message_release(result.message). Of messages that are not
 * released, transports keep the buffers of 32; further ones are copied.
 */
uct_op uct_recv(uct_conn *conn, uint64_t user);

/*
 * The same, into memory of the program, which has to stay valid until the event is returned, the connection is closed
 * or the net is closed. Event: data and length.
 * UCT_ERR_MESSAGE_TRUNCATED if the message is longer: event.length is its length, and it stays the next one.
 */
uct_op uct_recv_into(uct_conn *conn, void *data, size_t length, uint64_t user);

/* Frees a message. */
int uct_message_release(uct_message *message);

/* ---- Memory ---- */

/*
 * Allocates at least `length` zeroed bytes that every connection of the net can share, put from, get into and send
 * from. Makes its pages, which blocks for some tenths of a second for a GiB. NULL: refused.
 */
uct_memory *uct_memory_allocate(uct_net *net, size_t length);

/*
 * Its first byte; the memory may be used like any other, and peers that it is shared with change it at any time. NULL:
 * refused.
 */
void *uct_memory_data(uct_memory *memory);

/* Its length; 0 if the call was refused. */
size_t uct_memory_size(uct_memory *memory);

/*
 * Frees it: the pointer is invalid afterwards. Operations in flight keep it until they have ended. Keys that peers have
 * become invalid.
 */
int uct_memory_free(uct_memory *memory);

/*
 * Gives the peer the key to a part of the memory, or to all of it. It may read and write those bytes until the memory
 * is freed; those of a part also only until the connection is closed, or uct_unshare.
 */
uct_op uct_share(uct_conn *conn, uct_memory *memory, size_t offset, size_t length, uint64_t user);

/* Ends the keys to exactly this part that the connection has sent. UCT_ERR_NO_ELEM: there is none. */
int uct_unshare(uct_conn *conn, uct_memory *memory, size_t offset, size_t length);

/*
 * The next memory that the peer has shared, in the order of the calls. Event: result.remote, and its length. At most 64
 * may wait here.
 */
uct_op uct_shared(uct_conn *conn, uint64_t user);

/* The length of remote memory; 0 if the call was refused. */
uint64_t uct_remote_size(uct_remote *remote);

/* Forgets remote memory. Operations in flight go on. */
int uct_remote_release(uct_remote *remote);

/*
 * Writes `length` bytes of memory from `offset` on to the peer's memory from `remote_offset` on; reads them. The remote
 * memory has to be one that this connection has received, or another one to the same process over the same transport.
 * Done when a put has taken effect at the peer, and the bytes of a get are here. At most max_zcopy of the transport at
 * once.
 */
uct_op uct_put(uct_conn *conn, uct_memory *memory, size_t offset, size_t length, uct_remote *remote, uint64_t remote_offset, uint64_t user);
uct_op uct_get(uct_conn *conn, uct_memory *memory, size_t offset, size_t length, uct_remote *remote, uint64_t remote_offset, uint64_t user);

/*
 * Adds to the 64-bit word at remote_offset, a multiple of 8, as one atomic operation. Event: result.value, the old
 * value.
 */
uct_op uct_fetch_add(uct_conn *conn, uct_remote *remote, uint64_t remote_offset, uint64_t value, uint64_t user);

/* Done when all puts and atomics of the connection that had started have taken effect, also cancelled ones. */
uct_op uct_flush(uct_conn *conn, uint64_t user);

/* ---- Transfers of blocks ---- */

/*
 * Moves any number of blocks, up to 16777216, as one operation: from the peer's memory here, or there. How many are in
 * flight at once is decided here. If `notification` is not NULL, the peer gets those bytes (at most 1024) by
 * uct_notified, once, when all blocks have moved, or never.
 * Event: length, the bytes that have moved if all have. If it failed or was cancelled: uct_block_status.
 */
uct_op uct_get_blocks(uct_conn *conn, uct_memory *memory, uct_remote *remote, const uct_block *blocks, size_t count, const void *notification,
                      size_t notification_length, uint64_t user);
uct_op uct_put_blocks(uct_conn *conn, uct_memory *memory, uct_remote *remote, const uct_block *blocks, size_t count, const void *notification,
                      size_t notification_length, uint64_t user);

/*
 * Of a transfer that failed or was cancelled, as long as uct_error has its reason: UCT_OK if the block of this number,
 * from 0 on, has moved, or why not.
 * UCT_ERR_NO_ELEM: there is no such transfer.
 */
int uct_block_status(uct_net *net, uct_op op, size_t number);

/*
 * The next notification of a transfer of the peer's, in the order of the calls. Not ordered with messages. Event: as of
 * uct_recv.
 */
uct_op uct_notified(uct_conn *conn, uint64_t user);

#ifdef __cplusplus
}
#endif

#endif
