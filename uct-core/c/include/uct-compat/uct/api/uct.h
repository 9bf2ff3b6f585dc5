/* The functions of UCT, under the names that UCX gives them, on this project's transports.
 *
 * For programs that are written for UCX's UCT. Their source is compiled with these headers in place of UCX's and linked
 * with libuct-compat.so, whose symbols begin with uctc_, so that UCX's libraries may be in the same process. Only names
 * and meanings are UCX's, not layouts: what was compiled with its headers does not run with this library.
 * docs/uct-compat.md has what is there and what differs.
 *
 * A worker, and all that is opened on it, belongs to one thread at a time. No function blocks unless it says so.
 * Handles are pointers: one that is not valid is followed all the same. A callback must return: it may neither throw an
 * exception nor jump out.
 */
#ifndef UCT_COMPAT_UCT_H
#define UCT_COMPAT_UCT_H

#include <ucs/async/async_fwd.h>
#include <ucs/datastruct/linear_func.h>
#include <ucs/memory/memory_type.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/cpu_set.h>
#include <ucs/type/status.h>
#include <ucs/type/thread_mode.h>
#include <uct/api/uct_def.h>
#include <uct/api/version.h>

BEGIN_C_DECLS

/* ---- Components ---- */

typedef struct uct_md_resource_desc {
    char md_name[UCT_MD_NAME_MAX];
} uct_md_resource_desc_t;

enum uct_component_attr_field {
    UCT_COMPONENT_ATTR_FIELD_NAME = UCS_BIT(0),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT = UCS_BIT(1),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES = UCS_BIT(2),
    UCT_COMPONENT_ATTR_FIELD_FLAGS = UCS_BIT(3)
};

typedef struct uct_component_attr {
    uint64_t field_mask; /* UCT_COMPONENT_ATTR_FIELD_*, set by the caller */
    char name[UCT_COMPONENT_NAME_MAX];
    unsigned md_resource_count;
    uct_md_resource_desc_t *md_resources; /* memory of the caller for md_resource_count of them */
    uint64_t flags;                       /* zero: connection managers are not a part of this vocabulary */
} uct_component_attr_t;

/* Lists the components that have a device here. The first call reads the configuration and loads the transports, which
   may block. UCS_ERR_INVALID_PARAM if the configuration is wrong: the log says what. */
ucs_status_t uct_query_components(uct_component_h **components_p, unsigned *num_components_p)
        UCTC_SYMBOL(uctc_query_components);

void uct_release_component_list(uct_component_h *components) UCTC_SYMBOL(uctc_release_component_list);

ucs_status_t uct_component_query(uct_component_h component, uct_component_attr_t *component_attr)
        UCTC_SYMBOL(uctc_component_query);

/* ---- Configuration: all of it is that of this project, UCT_* and uct.toml. What is read here is a token. ---- */

ucs_status_t uct_md_config_read(uct_component_h component, const char *env_prefix, const char *filename,
                                uct_md_config_t **config_p) UCTC_SYMBOL(uctc_md_config_read);

ucs_status_t uct_md_iface_config_read(uct_md_h md, const char *tl_name, const char *env_prefix, const char *filename,
                                      uct_iface_config_t **config_p) UCTC_SYMBOL(uctc_md_iface_config_read);

void uct_config_release(void *config) UCTC_SYMBOL(uctc_config_release);

/* ---- Memory domains ---- */

enum {
    UCT_MD_FLAG_ALLOC = UCS_BIT(0),
    UCT_MD_FLAG_REG = UCS_BIT(1),
    UCT_MD_FLAG_NEED_MEMH = UCS_BIT(2), /* set for every domain */
    UCT_MD_FLAG_NEED_RKEY = UCS_BIT(3),
    UCT_MD_FLAG_ADVISE = UCS_BIT(4),
    UCT_MD_FLAG_RKEY_PTR = UCS_BIT(6)
};

struct uct_md_attr {
    struct {
        uint64_t max_alloc;
        size_t max_reg;
        uint64_t flags; /* UCT_MD_FLAG_* */
        uint64_t reg_mem_types; /* bits by ucs_memory_type_t */
        uint64_t detect_mem_types;
        uint64_t alloc_mem_types;
        uint64_t access_mem_types;
    } cap;
    ucs_linear_func_t reg_cost; /* seconds by bytes */
    char component_name[UCT_COMPONENT_NAME_MAX];
    size_t rkey_packed_size;
    ucs_cpu_set_t local_cpus; /* all */
};

typedef enum {
    UCT_DEVICE_TYPE_NET,
    UCT_DEVICE_TYPE_SHM,
    UCT_DEVICE_TYPE_ACC,
    UCT_DEVICE_TYPE_SELF,
    UCT_DEVICE_TYPE_LAST
} uct_device_type_t;

typedef struct uct_tl_resource_desc {
    char tl_name[UCT_TL_NAME_MAX];
    char dev_name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t dev_type;
} uct_tl_resource_desc_t;

#define UCT_TL_RESOURCE_DESC_FMT "%s/%s"
#define UCT_TL_RESOURCE_DESC_ARG(_resource) (_resource)->tl_name, (_resource)->dev_name

ucs_status_t uct_md_open(uct_component_h component, const char *md_name, const uct_md_config_t *config, uct_md_h *md_p)
        UCTC_SYMBOL(uctc_md_open);

/* Interfaces, memory and keys keep what they need of it. */
void uct_md_close(uct_md_h md) UCTC_SYMBOL(uctc_md_close);

ucs_status_t uct_md_query(uct_md_h md, uct_md_attr_t *md_attr) UCTC_SYMBOL(uctc_md_query);

/* The transports and devices of the domain that the configuration permits. */
ucs_status_t uct_md_query_tl_resources(uct_md_h md, uct_tl_resource_desc_t **resources_p, unsigned *num_resources_p)
        UCTC_SYMBOL(uctc_md_query_tl_resources);

void uct_release_tl_resource_list(uct_tl_resource_desc_t *resources) UCTC_SYMBOL(uctc_release_tl_resource_list);

/* ---- Memory and keys ---- */

enum uct_md_mem_flags {
    UCT_MD_MEM_FLAG_NONBLOCK = UCS_BIT(0), /* no effect */
    UCT_MD_MEM_FLAG_FIXED = UCS_BIT(1),    /* UCS_ERR_UNSUPPORTED */
    UCT_MD_MEM_FLAG_LOCK = UCS_BIT(2),     /* no effect */
    UCT_MD_MEM_FLAG_HIDE_ERRORS = UCS_BIT(3),
    UCT_MD_MEM_ACCESS_REMOTE_PUT = UCS_BIT(5),
    UCT_MD_MEM_ACCESS_REMOTE_GET = UCS_BIT(6),
    UCT_MD_MEM_ACCESS_REMOTE_ATOMIC = UCS_BIT(7),
    UCT_MD_MEM_ACCESS_LOCAL_READ = UCS_BIT(8),
    UCT_MD_MEM_ACCESS_LOCAL_WRITE = UCS_BIT(9),
    UCT_MD_MEM_ACCESS_ALL = UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC |
                            UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE,
    UCT_MD_MEM_ACCESS_RMA = UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_LOCAL_READ |
                            UCT_MD_MEM_ACCESS_LOCAL_WRITE
};

/* Registers memory of the program, which stays mapped until it is deregistered. */
ucs_status_t uct_md_mem_reg(uct_md_h md, void *address, size_t length, unsigned flags, uct_mem_h *memh_p)
        UCTC_SYMBOL(uctc_md_mem_reg);

/* No operation may use the handle any more. Waits for accesses of peers that are in flight. */
ucs_status_t uct_md_mem_dereg(uct_md_h md, uct_mem_h memh) UCTC_SYMBOL(uctc_md_mem_dereg);

/* Writes rkey_packed_size bytes, with which a peer reaches the memory. */
ucs_status_t uct_md_mkey_pack(uct_md_h md, uct_mem_h memh, void *rkey_buffer) UCTC_SYMBOL(uctc_md_mkey_pack);

typedef struct uct_rkey_bundle {
    uct_rkey_t rkey;
    void *handle;
    void *type;
} uct_rkey_bundle_t;

/* Takes what a peer has packed. A memory domain of the component has to be open. UCS_ERR_INVALID_PARAM for bytes that
   are no key. */
ucs_status_t uct_rkey_unpack(uct_component_h component, const void *rkey_buffer, uct_rkey_bundle_t *rkey_ob)
        UCTC_SYMBOL(uctc_rkey_unpack);

/* No operation may use the key any more. */
ucs_status_t uct_rkey_release(uct_component_h component, const uct_rkey_bundle_t *rkey_ob)
        UCTC_SYMBOL(uctc_rkey_release);

typedef enum {
    UCT_ALLOC_METHOD_THP,
    UCT_ALLOC_METHOD_MD,
    UCT_ALLOC_METHOD_HEAP,
    UCT_ALLOC_METHOD_MMAP,
    UCT_ALLOC_METHOD_HUGE,
    UCT_ALLOC_METHOD_LAST,
    UCT_ALLOC_METHOD_DEFAULT = UCT_ALLOC_METHOD_LAST
} uct_alloc_method_t;

typedef struct uct_allocated_memory {
    void *address;
    size_t length;
    uct_alloc_method_t method; /* UCT_ALLOC_METHOD_MD: it is registered, and memh is its handle */
    ucs_memory_type_t mem_type;
    uct_md_h md;
    uct_mem_h memh;
} uct_allocated_memory_t;

/* ---- Workers ---- */

/* UCS_ERR_UNSUPPORTED for UCS_THREAD_MODE_MULTI. `async` may be NULL. */
ucs_status_t uct_worker_create(ucs_async_context_t *async, ucs_thread_mode_t thread_mode, uct_worker_h *worker_p)
        UCTC_SYMBOL(uctc_worker_create);

/* Its interfaces are closed by then. Not from a callback. */
void uct_worker_destroy(uct_worker_h worker) UCTC_SYMBOL(uctc_worker_destroy);

/* Receives, completes and sends what is due; returns the number of events. Callbacks run in it, and may call it. */
unsigned uct_worker_progress(uct_worker_h worker) UCTC_SYMBOL(uctc_worker_progress);

/* ---- Interfaces ---- */

#define UCT_IFACE_FLAG_AM_SHORT UCS_BIT(0)
#define UCT_IFACE_FLAG_AM_BCOPY UCS_BIT(1)
#define UCT_IFACE_FLAG_AM_ZCOPY UCS_BIT(2)
#define UCT_IFACE_FLAG_PENDING UCS_BIT(3)
#define UCT_IFACE_FLAG_PUT_SHORT UCS_BIT(4)
#define UCT_IFACE_FLAG_PUT_BCOPY UCS_BIT(5)
#define UCT_IFACE_FLAG_PUT_ZCOPY UCS_BIT(6)
#define UCT_IFACE_FLAG_GET_SHORT UCS_BIT(8)
#define UCT_IFACE_FLAG_GET_BCOPY UCS_BIT(9)
#define UCT_IFACE_FLAG_GET_ZCOPY UCS_BIT(10)
#define UCT_IFACE_FLAG_ATOMIC_CPU UCS_BIT(30)
#define UCT_IFACE_FLAG_ATOMIC_DEVICE UCS_BIT(31)
#define UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF UCS_BIT(32)
#define UCT_IFACE_FLAG_ERRHANDLE_BCOPY_BUF UCS_BIT(33)
#define UCT_IFACE_FLAG_ERRHANDLE_ZCOPY_BUF UCS_BIT(34)
#define UCT_IFACE_FLAG_ERRHANDLE_AM_ID UCS_BIT(35)
#define UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM UCS_BIT(36)
#define UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN UCS_BIT(37)
#define UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE UCS_BIT(38)
#define UCT_IFACE_FLAG_EP_CHECK UCS_BIT(39)
#define UCT_IFACE_FLAG_CONNECT_TO_IFACE UCS_BIT(40)
#define UCT_IFACE_FLAG_CONNECT_TO_EP UCS_BIT(41)
/* The bits of what no interface of this vocabulary has, for programs that ask. */
#define UCT_IFACE_FLAG_CONNECT_TO_SOCKADDR UCS_BIT(42)
#define UCT_IFACE_FLAG_AM_DUP UCS_BIT(43)
#define UCT_IFACE_FLAG_CB_SYNC UCS_BIT(44)
#define UCT_IFACE_FLAG_CB_ASYNC UCS_BIT(45)
#define UCT_IFACE_FLAG_EP_KEEPALIVE UCS_BIT(46)
#define UCT_IFACE_FLAG_TAG_EAGER_SHORT UCS_BIT(50)
#define UCT_IFACE_FLAG_TAG_EAGER_BCOPY UCS_BIT(51)
#define UCT_IFACE_FLAG_TAG_EAGER_ZCOPY UCS_BIT(52)
#define UCT_IFACE_FLAG_TAG_RNDV_ZCOPY UCS_BIT(53)
#define UCT_IFACE_FLAG_INTER_NODE UCS_BIT(54)

#define UCT_IFACE_FLAG_EVENT_SEND_COMP UCS_BIT(0)
#define UCT_IFACE_FLAG_EVENT_RECV UCS_BIT(1)
#define UCT_IFACE_FLAG_EVENT_RECV_SIG UCS_BIT(2)
#define UCT_IFACE_FLAG_EVENT_FD UCS_BIT(3)

enum uct_iface_event_types {
    UCT_EVENT_SEND_COMP = UCS_BIT(0),
    UCT_EVENT_RECV = UCS_BIT(1),
    UCT_EVENT_RECV_SIG = UCS_BIT(2)
};

enum uct_progress_types {
    UCT_PROGRESS_SEND = UCS_BIT(0),
    UCT_PROGRESS_RECV = UCS_BIT(1),
    UCT_PROGRESS_THREAD_SAFE = UCS_BIT(7) /* no effect */
};

enum uct_iface_open_mode {
    UCT_IFACE_OPEN_MODE_DEVICE = UCS_BIT(0),
    UCT_IFACE_OPEN_MODE_SOCKADDR_SERVER = UCS_BIT(1), /* UCS_ERR_UNSUPPORTED */
    UCT_IFACE_OPEN_MODE_SOCKADDR_CLIENT = UCS_BIT(2)  /* UCS_ERR_UNSUPPORTED */
};

/* uct_iface_open returns UCS_ERR_UNSUPPORTED for other fields. */
enum uct_iface_params_field {
    UCT_IFACE_PARAM_FIELD_CPU_MASK = UCS_BIT(0),
    UCT_IFACE_PARAM_FIELD_OPEN_MODE = UCS_BIT(1),
    UCT_IFACE_PARAM_FIELD_DEVICE = UCS_BIT(2),
    UCT_IFACE_PARAM_FIELD_STATS_ROOT = UCS_BIT(4),
    UCT_IFACE_PARAM_FIELD_RX_HEADROOM = UCS_BIT(5),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG = UCS_BIT(6),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER = UCS_BIT(7),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS = UCS_BIT(8),
    UCT_IFACE_PARAM_FIELD_FEATURES = UCS_BIT(18)
};

/* What an interface is opened for; all of them have everything. */
enum uct_iface_feature {
    UCT_IFACE_FEATURE_AM = UCS_BIT(0),
    UCT_IFACE_FEATURE_PUT = UCS_BIT(1),
    UCT_IFACE_FEATURE_GET = UCS_BIT(2),
    UCT_IFACE_FEATURE_AMO32 = UCS_BIT(3),
    UCT_IFACE_FEATURE_AMO64 = UCS_BIT(4),
    UCT_IFACE_FEATURE_FLUSH_REMOTE = UCS_BIT(6)
};

struct ucs_stats_node;

struct uct_iface_params {
    uint64_t field_mask; /* UCT_IFACE_PARAM_FIELD_* */
    ucs_cpu_set_t cpu_mask; /* no effect */
    uint64_t open_mode;
    union {
        struct {
            const char *tl_name;
            const char *dev_name;
        } device;
    } mode;
    struct ucs_stats_node *stats_root; /* no effect: uct_info shows the counters */
    size_t rx_headroom; /* at most 64 KiB */
    void *err_handler_arg;
    uct_error_handler_t err_handler; /* without one, failures are logged */
    uint32_t err_handler_flags; /* no effect: the handler is called from progress */
    uint64_t features; /* no effect */
};

typedef struct uct_ppn_bandwidth {
    double dedicated; /* bytes per second */
    double shared;
} uct_ppn_bandwidth_t;

struct uct_iface_attr {
    struct {
        struct {
            size_t max_short;
            size_t max_bcopy;
            size_t min_zcopy;
            size_t max_zcopy;
            size_t opt_zcopy_align;
            size_t align_mtu;
            size_t max_iov;
        } put, get;
        struct {
            size_t max_short; /* the 8 bytes of the header included */
            size_t max_bcopy;
            size_t min_zcopy;
            size_t max_zcopy;
            size_t opt_zcopy_align;
            size_t align_mtu;
            size_t max_hdr;
            size_t max_iov;
        } am;
        struct {
            uint64_t op_flags;  /* bits by uct_atomic_op_t */
            uint64_t fop_flags; /* the same for atomics with a result */
        } atomic32, atomic64;
        uint64_t flags;       /* UCT_IFACE_FLAG_* */
        uint64_t event_flags; /* UCT_IFACE_FLAG_EVENT_* */
    } cap;
    size_t device_addr_len;
    size_t iface_addr_len;
    size_t ep_addr_len;
    size_t max_conn_priv; /* zero */
    double overhead; /* seconds */
    uct_ppn_bandwidth_t bandwidth;
    ucs_linear_func_t latency; /* seconds by endpoints */
    uint8_t priority;
    size_t max_num_eps;
    unsigned dev_num_paths; /* one */
};

/* Opens a transport on a device of the domain. Progress is off until uct_iface_progress_enable. May block. */
ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface_p) UCTC_SYMBOL(uctc_iface_open);

/* Its endpoints are destroyed by then, and its kept messages released. From a callback, it takes place once progress
   has returned. */
void uct_iface_close(uct_iface_h iface) UCTC_SYMBOL(uctc_iface_close);

ucs_status_t uct_iface_query(uct_iface_h iface, uct_iface_attr_t *iface_attr) UCTC_SYMBOL(uctc_iface_query);

/* Writes device_addr_len bytes. */
ucs_status_t uct_iface_get_device_address(uct_iface_h iface, uct_device_addr_t *addr)
        UCTC_SYMBOL(uctc_iface_get_device_address);

/* Writes iface_addr_len bytes. Most contain a secret: send them over channels that you trust. */
ucs_status_t uct_iface_get_address(uct_iface_h iface, uct_iface_addr_t *addr) UCTC_SYMBOL(uctc_iface_get_address);

/* Not zero if a peer with these addresses can be reached. The log has the reason why not, at level debug. */
int uct_iface_is_reachable(const uct_iface_h iface, const uct_device_addr_t *dev_addr, const uct_iface_addr_t *iface_addr)
        UCTC_SYMBOL(uctc_iface_is_reachable);

enum uct_cb_flags {
    UCT_CB_FLAG_ASYNC = UCS_BIT(2) /* no effect: handlers are called from progress */
};

/* A null handler drops messages of the id from now on. */
ucs_status_t uct_iface_set_am_handler(uct_iface_h iface, uint8_t id, uct_am_callback_t cb, void *arg, uint32_t flags)
        UCTC_SYMBOL(uctc_iface_set_am_handler);

void uct_iface_progress_enable(uct_iface_h iface, unsigned flags) UCTC_SYMBOL(uctc_iface_progress_enable);

/* Progress goes on until both kinds are disabled. */
void uct_iface_progress_disable(uct_iface_h iface, unsigned flags) UCTC_SYMBOL(uctc_iface_progress_disable);

/* Gives back a message that a handler kept; `desc` is where its headroom begins. */
void uct_iface_release_desc(void *desc) UCTC_SYMBOL(uctc_iface_release_desc);

/* The descriptor that becomes readable when an armed event happens; it is the interface's. */
ucs_status_t uct_iface_event_fd_get(uct_iface_h iface, int *fd_p) UCTC_SYMBOL(uctc_iface_event_fd_get);

/* UCS_ERR_BUSY while events are unprocessed: call progress and arm again. */
ucs_status_t uct_iface_event_arm(uct_iface_h iface, unsigned events) UCTC_SYMBOL(uctc_iface_event_arm);

/* Allocates memory and registers it. `flags` are UCT_MD_MEM_*. */
ucs_status_t uct_iface_mem_alloc(uct_iface_h iface, size_t length, unsigned flags, const char *name,
                                 uct_allocated_memory_t *mem) UCTC_SYMBOL(uctc_iface_mem_alloc);

void uct_iface_mem_free(const uct_allocated_memory_t *mem) UCTC_SYMBOL(uctc_iface_mem_free);

enum uct_flush_flags {
    UCT_FLUSH_FLAG_LOCAL = 0,
    UCT_FLUSH_FLAG_CANCEL = UCS_BIT(0),
    UCT_FLUSH_FLAG_REMOTE = UCS_BIT(1)
};

struct uct_completion {
    uct_completion_callback_t func;
    int count;           /* operations that are outstanding; set by the program */
    ucs_status_t status; /* UCS_OK ahead of the first operation; the first error */
};

/* Flushes all endpoints. UCS_INPROGRESS without a completion: call progress, and this again. */
ucs_status_t uct_iface_flush(uct_iface_h iface, unsigned flags, uct_completion_t *comp) UCTC_SYMBOL(uctc_iface_flush);

/* ---- Endpoints ---- */

/* uct_ep_create returns UCS_ERR_UNSUPPORTED for other fields. */
enum uct_ep_params_field {
    UCT_EP_PARAM_FIELD_IFACE = UCS_BIT(0),
    UCT_EP_PARAM_FIELD_USER_DATA = UCS_BIT(1),
    UCT_EP_PARAM_FIELD_DEV_ADDR = UCS_BIT(2),
    UCT_EP_PARAM_FIELD_IFACE_ADDR = UCS_BIT(3),
    UCT_EP_PARAM_FIELD_PATH_INDEX = UCS_BIT(12),
    UCT_EP_PARAM_FIELD_DEV_ADDR_LENGTH = UCS_BIT(17),
    UCT_EP_PARAM_FIELD_IFACE_ADDR_LENGTH = UCS_BIT(18)
};

struct uct_ep_params {
    uint64_t field_mask; /* UCT_EP_PARAM_FIELD_* */
    uct_iface_h iface;
    void *user_data;                    /* no effect */
    const uct_device_addr_t *dev_addr;  /* both addresses, or neither: then uct_ep_connect_to_ep connects it */
    const uct_iface_addr_t *iface_addr;
    unsigned path_index;                /* no effect */
    size_t dev_addr_length;             /* device_addr_len of the peer, if given */
    size_t iface_addr_length;           /* iface_addr_len of the peer, if given */
};

ucs_status_t uct_ep_create(const uct_ep_params_t *params, uct_ep_h *ep_p) UCTC_SYMBOL(uctc_ep_create);

/* Messages that were accepted are still sent; completions of what cannot end otherwise get UCS_ERR_CANCELED. Pending
   requests are purged by then. From a callback, it takes place once progress has returned. */
void uct_ep_destroy(uct_ep_h ep) UCTC_SYMBOL(uctc_ep_destroy);

/* Writes ep_addr_len bytes. */
ucs_status_t uct_ep_get_address(uct_ep_h ep, uct_ep_addr_t *addr) UCTC_SYMBOL(uctc_ep_get_address);

/* Connects an endpoint that was created without addresses. Over rc_verbs it may block for up to 3 s. */
ucs_status_t uct_ep_connect_to_ep(uct_ep_h ep, const uct_device_addr_t *dev_addr, const uct_ep_addr_t *ep_addr)
        UCTC_SYMBOL(uctc_ep_connect_to_ep);

/* Operations return UCS_OK (done, buffers are free, the completion is not touched), UCS_INPROGRESS (the completion is
   counted down at the end), UCS_ERR_NO_RESOURCE (nothing happened: call progress and try again, or uct_ep_pending_add),
   or another error (nothing happened). */

enum uct_msg_flags {
    UCT_SEND_FLAG_SIGNALED = UCS_BIT(0) /* for UCT_EVENT_RECV_SIG */
};

ucs_status_t uct_ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header, const void *payload, unsigned length)
        UCTC_SYMBOL(uctc_ep_am_short);

/* The first 8 bytes of the vector are in the place of the header. */
ucs_status_t uct_ep_am_short_iov(uct_ep_h ep, uint8_t id, const uct_iov_t *iov, size_t iovcnt)
        UCTC_SYMBOL(uctc_ep_am_short_iov);

/* The length of the message, or an error. */
ssize_t uct_ep_am_bcopy(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack_cb, void *arg, unsigned flags)
        UCTC_SYMBOL(uctc_ep_am_bcopy);

ucs_status_t uct_ep_am_zcopy(uct_ep_h ep, uint8_t id, const void *header, unsigned header_length, const uct_iov_t *iov,
                             size_t iovcnt, unsigned flags, uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_am_zcopy);

ucs_status_t uct_ep_put_short(uct_ep_h ep, const void *buffer, unsigned length, uint64_t remote_addr, uct_rkey_t rkey)
        UCTC_SYMBOL(uctc_ep_put_short);

ssize_t uct_ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void *arg, uint64_t remote_addr, uct_rkey_t rkey)
        UCTC_SYMBOL(uctc_ep_put_bcopy);

ucs_status_t uct_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr, uct_rkey_t rkey,
                              uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_put_zcopy);

/* Done at return. Where remote memory is not reached directly it waits for the peer, and calls progress of the
   interface meanwhile. */
ucs_status_t uct_ep_get_short(uct_ep_h ep, void *buffer, unsigned length, uint64_t remote_addr, uct_rkey_t rkey)
        UCTC_SYMBOL(uctc_ep_get_short);

ucs_status_t uct_ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack_cb, void *arg, size_t length, uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_get_bcopy);

ucs_status_t uct_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr, uct_rkey_t rkey,
                              uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_get_zcopy);

typedef enum uct_atomic_op {
    UCT_ATOMIC_OP_ADD,
    UCT_ATOMIC_OP_AND,
    UCT_ATOMIC_OP_OR,
    UCT_ATOMIC_OP_XOR,
    UCT_ATOMIC_OP_SWAP,  /* with a result */
    UCT_ATOMIC_OP_CSWAP, /* in capabilities only */
    UCT_ATOMIC_OP_LAST
} uct_atomic_op_t;

ucs_status_t uct_ep_atomic32_post(uct_ep_h ep, uct_atomic_op_t opcode, uint32_t value, uint64_t remote_addr,
                                  uct_rkey_t rkey) UCTC_SYMBOL(uctc_ep_atomic32_post);

ucs_status_t uct_ep_atomic64_post(uct_ep_h ep, uct_atomic_op_t opcode, uint64_t value, uint64_t remote_addr,
                                  uct_rkey_t rkey) UCTC_SYMBOL(uctc_ep_atomic64_post);

/* `result` gets the old value, ahead of the completion. */
ucs_status_t uct_ep_atomic32_fetch(uct_ep_h ep, uct_atomic_op_t opcode, uint32_t value, uint32_t *result,
                                   uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp)
        UCTC_SYMBOL(uctc_ep_atomic32_fetch);

ucs_status_t uct_ep_atomic64_fetch(uct_ep_h ep, uct_atomic_op_t opcode, uint64_t value, uint64_t *result,
                                   uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp)
        UCTC_SYMBOL(uctc_ep_atomic64_fetch);

/* Writes `swap` where the value equals `compare`. */
ucs_status_t uct_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap, uint64_t remote_addr, uct_rkey_t rkey,
                                   uint32_t *result, uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_atomic_cswap32);

ucs_status_t uct_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap, uint64_t remote_addr, uct_rkey_t rkey,
                                   uint64_t *result, uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_atomic_cswap64);

/* As uct_iface_flush, for one endpoint. UCS_ERR_NO_RESOURCE: uct_ep_pending_add takes a request. */
ucs_status_t uct_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t *comp) UCTC_SYMBOL(uctc_ep_flush);

/* Operations after it take effect at the peer after those ahead of it. */
ucs_status_t uct_ep_fence(uct_ep_h ep, unsigned flags) UCTC_SYMBOL(uctc_ep_fence);

struct uct_pending_req {
    uct_pending_callback_t func;
    char priv[UCT_PENDING_REQ_PRIV_LEN]; /* the library's while the request is queued */
};

/* Queues a request until there is room. UCS_ERR_BUSY: there is, try again now. `flags` have no effect. */
ucs_status_t uct_ep_pending_add(uct_ep_h ep, uct_pending_req_t *req, unsigned flags) UCTC_SYMBOL(uctc_ep_pending_add);

/* Removes all requests; calls `cb` for each unless it is NULL. */
void uct_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb, void *arg) UCTC_SYMBOL(uctc_ep_pending_purge);

/* Keeps the first error of a completion. */
UCT_INLINE_API void uct_completion_update_status(uct_completion_t *comp, ucs_status_t status)
{
    if (status != UCS_OK && comp->status == UCS_OK) {
        comp->status = status;
    }
}

END_C_DECLS

#endif
