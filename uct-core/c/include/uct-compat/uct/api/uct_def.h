/* Handles, callbacks and small structures. Objects are opaque; a handle is valid until the object is closed. */
#ifndef UCT_COMPAT_UCT_DEF_H
#define UCT_COMPAT_UCT_DEF_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of names, the terminating zero included. */
#define UCT_COMPONENT_NAME_MAX 24
#define UCT_MD_NAME_MAX 40
#define UCT_TL_NAME_MAX 16
#define UCT_DEVICE_NAME_MAX 40

#define UCT_PENDING_REQ_PRIV_LEN 40
#define UCT_AM_ID_BITS 5
#define UCT_AM_ID_MAX UCS_BIT(UCT_AM_ID_BITS)
#define UCT_MEM_HANDLE_NULL NULL
#define UCT_INVALID_RKEY ((uintptr_t)(-1))
#define UCT_INLINE_API static UCS_F_ALWAYS_INLINE

/* How a handler is called. */
enum uct_cb_param_flags {
    UCT_CB_PARAM_FLAG_DESC = UCS_BIT(0) /* it may keep the data by returning UCS_INPROGRESS */
};

typedef struct uct_component *uct_component_h;
typedef struct uct_md *uct_md_h;
typedef struct uct_worker *uct_worker_h;
typedef struct uct_iface *uct_iface_h;
typedef struct uct_ep *uct_ep_h;
typedef void *uct_mem_h;
typedef uintptr_t uct_rkey_t;

typedef struct uct_md_config uct_md_config_t;
typedef struct uct_iface_config uct_iface_config_t;
typedef struct uct_device_addr uct_device_addr_t;
typedef struct uct_iface_addr uct_iface_addr_t;
typedef struct uct_ep_addr uct_ep_addr_t;

typedef struct uct_md_attr uct_md_attr_t;
typedef struct uct_iface_attr uct_iface_attr_t;
typedef struct uct_iface_params uct_iface_params_t;
typedef struct uct_ep_params uct_ep_params_t;
typedef struct uct_completion uct_completion_t;
typedef struct uct_pending_req uct_pending_req_t;

/* An entry of a vector: `count` blocks of `length` bytes, `stride` bytes apart from start to start. */
typedef struct uct_iov {
    void *buffer;
    size_t length;
    uct_mem_h memh; /* the registration that covers the blocks */
    size_t stride;
    unsigned count;
} uct_iov_t;

/* Takes a message: `data` are readable until it returns, and aligned to 8 bytes. With UCT_CB_PARAM_FLAG_DESC it may
   write to the rx_headroom bytes ahead of them and return UCS_INPROGRESS: then both are the program's until
   uct_iface_release_desc. */
typedef ucs_status_t (*uct_am_callback_t)(void *arg, void *data, size_t length, unsigned flags);

/* Called when the counter of a completion reaches zero. */
typedef void (*uct_completion_callback_t)(uct_completion_t *self);

/* Called when there is room again: UCS_OK ends the request, UCS_INPROGRESS keeps it, an error keeps it and ends the
   round. */
typedef ucs_status_t (*uct_pending_callback_t)(uct_pending_req_t *self);

/* Called for each request that is removed. */
typedef void (*uct_pending_purge_callback_t)(uct_pending_req_t *self, void *arg);

/* Called once when an endpoint has failed. What it returns has no effect. */
typedef ucs_status_t (*uct_error_handler_t)(void *arg, uct_ep_h ep, ucs_status_t status);

/* Writes a message of at most max_bcopy bytes to `dest`; returns its length. */
typedef size_t (*uct_pack_callback_t)(void *dest, void *arg);

/* Takes what a get has read. */
typedef void (*uct_unpack_callback_t)(void *arg, const void *data, size_t length);

#endif
