/* The interface of `cself`: the queue, its receiving end, and the event descriptor. */

#define _GNU_SOURCE
#include "cself.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- The queue ---- */

void enqueue(struct iface *iface, struct message *message, size_t length, uint32_t events)
{
    const uint64_t one = 1;
    message->length = length;
    message->next = NULL;
    *iface->last = message;
    iface->last = &message->next;
    iface->queued++;
    if ((iface->armed & events) != 0) {
        iface->armed = 0;
        /* It cannot fail: the counter was 0. */
        if (write(iface->event_fd, &one, sizeof(one)) < 0)
            say(UCT_LOG_ERROR, __FILE__, __LINE__, "the event descriptor cannot be written");
    }
}

static uint32_t iface_progress(UctIface *handle)
{
    struct iface *iface = iface_of(handle);
    uint32_t events = 0;

    /* What handlers send meanwhile waits for the next call. A handler that calls progress may leave nothing to do. */
    for (size_t due = iface->queued < BATCH ? iface->queued : BATCH; due > 0 && iface->queued > 0; due--) {
        struct message *message = iface->first;
        const UctAmTable *handlers = iface->handlers;
        void *argument;

        iface->first = message->next;
        if (iface->first == NULL)
            iface->last = &iface->first;
        iface->queued--;
        events++;
        if (message->flush != NULL) {
            UctCompletion *completion = message->flush;
            free(message);
            if (--completion->count == 0)
                completion->func(completion);
            continue;
        }
        iface->received++;
        argument = handlers->arguments[message->id];
        if (handlers->callbacks[message->id](argument, data_of(iface, message), message->length, UCT_AM_DESC) !=
            UCT_INPROGRESS)
            free(message);
    }
    return events + serve_pending(iface);
}

static void iface_release(UctIface *handle, void *data)
{
    free((struct message *)((uint8_t *)data - iface_of(handle)->headroom) - 1);
}

static UctStatus iface_event_fd(UctIface *handle, int32_t *fd)
{
    *fd = iface_of(handle)->event_fd;
    return UCT_OK;
}

static UctStatus iface_event_arm(UctIface *handle, uint32_t events)
{
    struct iface *iface = iface_of(handle);
    uint64_t count;

    if (iface->queued > 0)
        return UCT_ERR_BUSY;
    /* Empty already, unless an event came that nobody waited for. */
    if (read(iface->event_fd, &count, sizeof(count)) < 0)
        count = 0;
    iface->armed = events;
    return UCT_OK;
}

/* ---- Order ---- */

UctStatus flush_queue(struct iface *iface, uint32_t flags, UctCompletion *completion)
{
    struct message *mark;

    /* Every send copied its data, so all buffers are free. */
    if ((flags & UCT_FLUSH_REMOTE) == 0 || iface->queued == 0)
        return UCT_OK;
    if (completion == NULL)
        return UCT_INPROGRESS;
    mark = malloc(sizeof(*mark) + iface->headroom);
    if (mark == NULL)
        return UCT_ERR_NO_MEMORY;
    mark->flush = completion;
    mark->id = 0;
    enqueue(iface, mark, 0, UCT_EVENT_SEND_COMP);
    return UCT_INPROGRESS;
}

static UctStatus iface_flush(UctIface *handle, uint32_t flags, UctCompletion *completion)
{
    return flush_queue(iface_of(handle), flags, completion);
}

/* One queue: nothing overtakes anything. */
static UctStatus iface_fence(UctIface *iface, uint32_t flags)
{
    (void)iface, (void)flags;
    return UCT_OK;
}

/* ---- What it is, and whom it reaches ---- */

static UctStatus iface_query(UctIface *handle, UctIfaceAttr *attr)
{
    UctIfaceAttr known = {
        .size = attr->size,
        .capabilities = UCT_CAP_AM_SHORT | UCT_CAP_AM_BCOPY | UCT_CAP_AM_ZCOPY | UCT_CAP_PENDING |
                        UCT_CAP_CONNECT_TO_IFACE | UCT_CAP_CB_SYNC | UCT_CAP_EP_CHECK | UCT_CAP_ERRHANDLE_SHORT_BUF |
                        UCT_CAP_ERRHANDLE_ZCOPY_BUF | UCT_CAP_ERRHANDLE_AM_ID,
        .events = UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
        .flags = UCT_IFACE_ATTR_PACK_NONE,
        .am = {
            .max_short = MAX_SHORT,
            .max_bcopy = MAX_BCOPY,
            .max_zcopy = MAX_ZCOPY,
            .opt_zcopy_align = 1,
            .align_mtu = 1,
            .max_iov = MAX_IOV,
            .max_hdr = MAX_HEADER,
        },
        .device_addr_len = sizeof(process_token),
        .iface_addr_len = sizeof(uint64_t),
        .overhead = { 50e-9, UCT_ORIGIN_MODEL },
        .latency = { 0, UCT_ORIGIN_MODEL },
        .bandwidth_dedicated = { 6e9, UCT_ORIGIN_MODEL },
        .bandwidth_shared = { 0, UCT_ORIGIN_MODEL },
    };
    (void)handle;
    memcpy(attr, &known, attr->size < sizeof(known) ? attr->size : sizeof(known));
    return UCT_OK;
}

static UctStatus iface_device_address(UctIface *handle, uint8_t *address)
{
    (void)handle;
    memcpy(address, &process_token, sizeof(process_token));
    return UCT_OK;
}

static UctStatus iface_address(UctIface *handle, uint8_t *address)
{
    memcpy(address, &iface_of(handle)->address, sizeof(uint64_t));
    return UCT_OK;
}

static UctStatus iface_is_reachable(UctIface *handle, const uint8_t *device, size_t device_length, const uint8_t *address,
                                    size_t address_length, uint32_t scope, UctText *reason)
{
    (void)scope;
    if (device_length != sizeof(process_token)) {
        explain(reason, "the device address is not one of cself: it has another length than 8 bytes");
        return UCT_ERR_UNREACHABLE;
    }
    if (memcmp(device, &process_token, sizeof(process_token)) != 0) {
        explain(reason, "the peer is another process; cself reaches its own process only");
        return UCT_ERR_UNREACHABLE;
    }
    /* A host may ask about the device alone. */
    if (address_length == 0)
        return UCT_OK;
    if (address_length != sizeof(uint64_t) || memcmp(address, &iface_of(handle)->address, sizeof(uint64_t)) != 0) {
        explain(reason, "the peer is another interface; an interface of cself reaches itself only");
        return UCT_ERR_UNREACHABLE;
    }
    return UCT_OK;
}

static UctStatus iface_ep_create(UctIface *handle, const UctEpParams *params, UctEp **ep, UctText *reason)
{
    struct endpoint *endpoint;
    UctStatus status;

    *ep = NULL;
    if (params->device_address == NULL || params->iface_address == NULL) {
        explain(reason, "cself connects to an interface only: its addresses are needed");
        return UCT_ERR_UNSUPPORTED;
    }
    status = iface_is_reachable(handle, params->device_address, params->device_address_length, params->iface_address,
                                params->iface_address_length, UCT_SCOPE_NETWORK, reason);
    if (status != UCT_OK)
        return status;
    endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        explain(reason, "no memory for an endpoint");
        return UCT_ERR_NO_MEMORY;
    }
    endpoint->iface = iface_of(handle);
    *ep = (UctEp *)endpoint;
    return UCT_OK;
}

static UctStatus iface_counters(UctIface *handle, UctEmitCounter emit, void *context)
{
    emit(context, (UctStr)TEXT("sent"), iface_of(handle)->sent);
    emit(context, (UctStr)TEXT("received"), iface_of(handle)->received);
    return UCT_OK;
}

static void iface_close(UctIface *handle)
{
    struct iface *iface = iface_of(handle);
    struct message *message;
    while ((message = iface->first) != NULL) {
        iface->first = message->next;
        free(message);
    }
    close(iface->event_fd);
    free(iface);
}

const UctIfaceOps iface_ops = {
    .size = sizeof(iface_ops),
    .close = iface_close,
    .query = iface_query,
    .get_device_address = iface_device_address,
    .get_address = iface_address,
    .is_reachable = iface_is_reachable,
    .progress = iface_progress,
    .ep_create = iface_ep_create,
    .release = iface_release,
    .event_fd = iface_event_fd,
    .event_arm = iface_event_arm,
    .flush = iface_flush,
    .fence = iface_fence,
    .counters = iface_counters,
};

/* ---- Opening ---- */

/* The host hands over every key that this plugin described, with a value that it has checked. */
static size_t queue_limit(const UctConfig *config)
{
    for (size_t i = 0; config != NULL && i < config->count; i++) {
        if (is(config->values[i].section, "cself") && is(config->values[i].name, "queue_limit"))
            return (size_t)config->values[i].integer;
    }
    return 64;
}

UctStatus iface_open(UctMd *md, const UctIfaceParams *params, UctIface **handle, UctText *reason)
{
    struct iface *iface;

    (void)md;
    *handle = NULL;
    if (!is(params->device, "memory")) {
        explain(reason, "cself has one device, memory");
        return UCT_ERR_NO_DEVICE;
    }
    iface = calloc(1, sizeof(*iface));
    if (iface == NULL) {
        explain(reason, "no memory for an interface");
        return UCT_ERR_NO_MEMORY;
    }
    iface->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (iface->event_fd < 0 || getrandom(&iface->address, sizeof(uint64_t), 0) != (ssize_t)sizeof(uint64_t)) {
        explain(reason, "the system gives no event descriptor or no random number");
        if (iface->event_fd >= 0)
            close(iface->event_fd);
        free(iface);
        return UCT_ERR_IO_ERROR;
    }
    iface->handlers = params->am_handlers;
    iface->headroom = params->rx_headroom;
    iface->limit = queue_limit(params->config);
    iface->last = &iface->first;
    *handle = (UctIface *)iface;
    return UCT_OK;
}
