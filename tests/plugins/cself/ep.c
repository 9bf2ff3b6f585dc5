/* The endpoint of `cself`: sending, and waiting for room. */

#include "cself.h"

#include <stdlib.h>
#include <string.h>

/* ---- Sending ---- */

/* What a pending request sends while it is served goes ahead of the requests behind it; nothing else does. */
static bool must_wait(const struct endpoint *ep)
{
    return ep->first_pending != NULL && ep->iface->serving != ep;
}

/* A message of at most `capacity` bytes that may be sent now, or why not. */
static UctStatus begin(struct endpoint *ep, uint8_t id, size_t capacity, struct message **message)
{
    if (id >= UCT_AM_IDS)
        return UCT_ERR_INVALID_PARAM;
    if (ep->iface->queued >= ep->iface->limit || must_wait(ep))
        return UCT_ERR_NO_RESOURCE;
    *message = malloc(sizeof(**message) + ep->iface->headroom + capacity);
    if (*message == NULL)
        return UCT_ERR_NO_MEMORY;
    (*message)->id = id;
    (*message)->flush = NULL;
    return UCT_OK;
}

static void finish(struct endpoint *ep, struct message *message, size_t length, uint32_t flags)
{
    uint32_t events = UCT_EVENT_RECV | ((flags & UCT_SEND_SIGNALED) != 0 ? UCT_EVENT_RECV_SIG : 0);
    ep->iface->sent++;
    enqueue(ep->iface, message, length, events);
}

static UctStatus am_short(UctEp *ep, uint8_t id, uint64_t header, const void *payload, size_t length)
{
    struct message *message;
    UctStatus status;
    uint8_t *data;

    if (length > MAX_SHORT)
        return UCT_ERR_INVALID_PARAM;
    status = begin(endpoint_of(ep), id, sizeof(header) + length, &message);
    if (status != UCT_OK)
        return status;
    data = data_of(endpoint_of(ep)->iface, message);
    memcpy(data, &header, sizeof(header));
    if (length > 0)
        memcpy(data + sizeof(header), payload, length);
    finish(endpoint_of(ep), message, sizeof(header) + length, 0);
    return UCT_OK;
}

/* The bytes of a vector, or more than `limit` if there are more. */
static size_t gathered_length(const UctIov *iov, size_t count, size_t limit)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t block = 0; block < iov[i].count && iov[i].length > 0; block++) {
            if (iov[i].length > limit - total)
                return limit + 1;
            total += iov[i].length;
        }
    }
    return total;
}

static void gather(uint8_t *data, const UctIov *iov, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (uint32_t block = 0; block < iov[i].count && iov[i].length > 0; block++) {
            memcpy(data, (const uint8_t *)iov[i].buffer + block * iov[i].stride, iov[i].length);
            data += iov[i].length;
        }
    }
}

static UctStatus am_short_iov(UctEp *ep, uint8_t id, const UctIov *iov, size_t count)
{
    const size_t limit = sizeof(uint64_t) + MAX_SHORT;
    struct message *message;
    UctStatus status;
    size_t length;

    if (count > MAX_IOV || (length = gathered_length(iov, count, limit)) > limit)
        return UCT_ERR_INVALID_PARAM;
    status = begin(endpoint_of(ep), id, length, &message);
    if (status != UCT_OK)
        return status;
    gather(data_of(endpoint_of(ep)->iface, message), iov, count);
    finish(endpoint_of(ep), message, length, 0);
    return UCT_OK;
}

static ptrdiff_t am_bcopy(UctEp *ep, uint8_t id, UctPack pack, void *argument, uint32_t flags)
{
    struct message *message;
    UctStatus status;
    size_t length;

    status = begin(endpoint_of(ep), id, MAX_BCOPY, &message);
    if (status != UCT_OK)
        return status;
    length = pack(data_of(endpoint_of(ep)->iface, message), argument);
    if (length == UCT_PACK_NONE) {
        free(message);
        return UCT_ERR_INVALID_PARAM;
    }
    if (length > MAX_BCOPY) {
        /* What lies behind the buffer is overwritten: nothing is safe any more. */
        say(UCT_LOG_ERROR, __FILE__, __LINE__, "an application packed more than max_bcopy");
        abort();
    }
    finish(endpoint_of(ep), message, length, flags);
    return (ptrdiff_t)length;
}

/* In place for the caller, who need not copy; here the bytes are taken at once, so the memory is free at return. */
static UctStatus am_zcopy(UctEp *ep, uint8_t id, const void *header, size_t header_length, const UctIov *iov,
                          size_t count, uint32_t flags, UctCompletion *completion)
{
    struct message *message;
    UctStatus status;
    uint8_t *data;
    size_t length;

    (void)completion;
    if (header_length > MAX_HEADER || count > MAX_IOV)
        return UCT_ERR_INVALID_PARAM;
    length = gathered_length(iov, count, MAX_ZCOPY);
    if (length > MAX_ZCOPY)
        return UCT_ERR_INVALID_PARAM;
    status = begin(endpoint_of(ep), id, header_length + length, &message);
    if (status != UCT_OK)
        return status;
    data = data_of(endpoint_of(ep)->iface, message);
    if (header_length > 0)
        memcpy(data, header, header_length);
    gather(data + header_length, iov, count);
    finish(endpoint_of(ep), message, header_length + length, flags);
    return UCT_OK;
}

/* ---- Pending requests: a list through the requests' own bytes ---- */

static UctPendingReq *next_pending(const UctPendingReq *request)
{
    UctPendingReq *next;
    memcpy(&next, request->reserved, sizeof(next));
    return next;
}

static void set_next_pending(UctPendingReq *request, UctPendingReq *next)
{
    memcpy(request->reserved, &next, sizeof(next));
}

static void wait_for_room(struct endpoint *ep)
{
    struct iface *iface = ep->iface;
    ep->next_waiting = NULL;
    if (iface->first_waiting == NULL)
        iface->first_waiting = ep;
    else
        iface->last_waiting->next_waiting = ep;
    iface->last_waiting = ep;
}

static void wait_no_more(struct endpoint *ep)
{
    struct endpoint *before = NULL;
    for (struct endpoint *at = ep->iface->first_waiting; at != NULL; before = at, at = at->next_waiting) {
        if (at != ep)
            continue;
        if (before == NULL)
            ep->iface->first_waiting = ep->next_waiting;
        else
            before->next_waiting = ep->next_waiting;
        if (ep->iface->last_waiting == ep)
            ep->iface->last_waiting = before;
        return;
    }
}

static UctStatus ep_pending_add(UctEp *handle, UctPendingReq *request)
{
    struct endpoint *ep = endpoint_of(handle);
    if (ep->first_pending == NULL && ep->iface->queued < ep->iface->limit)
        return UCT_ERR_BUSY;
    set_next_pending(request, NULL);
    if (ep->first_pending != NULL)
        set_next_pending(ep->last_pending, request);
    else
        ep->first_pending = request;
    ep->last_pending = request;
    /* One that is being served joins the others afterwards. */
    if (ep->first_pending == request && ep->iface->serving != ep)
        wait_for_room(ep);
    return UCT_OK;
}

static UctPendingReq *take_pending(struct endpoint *ep)
{
    UctPendingReq *request = ep->first_pending;
    if (request != NULL)
        ep->first_pending = next_pending(request);
    return request;
}

static void give_back_pending(struct endpoint *ep, UctPendingReq *request)
{
    set_next_pending(request, ep->first_pending);
    if (ep->first_pending == NULL)
        ep->last_pending = request;
    ep->first_pending = request;
}

static void ep_pending_purge(UctEp *handle, UctPurge purge, void *argument)
{
    struct endpoint *ep = endpoint_of(handle);
    UctPendingReq *request;
    wait_no_more(ep);
    while ((request = take_pending(ep)) != NULL)
        purge(request, argument);
}

/* Serves the endpoints in turn, a request each; answers how many requests are done. One that is done may be gone at once,
 * and its endpoint with it: so it is out of the list while it is called. */
uint32_t serve_pending(struct iface *iface)
{
    uint32_t served = 0;
    for (int turns = BATCH; turns > 0 && iface->first_waiting != NULL && iface->queued < iface->limit; turns--) {
        struct endpoint *ep = iface->first_waiting;
        UctPendingReq *request = take_pending(ep);
        UctStatus status;

        wait_no_more(ep);
        iface->serving = ep;
        status = request->func(request);
        if (status == UCT_OK)
            served++;
        if (iface->serving == ep) {
            iface->serving = NULL;
            if (status != UCT_OK)
                give_back_pending(ep, request);
            if (ep->first_pending != NULL)
                wait_for_room(ep);
        }
        if (status != UCT_OK && status != UCT_INPROGRESS)
            break;
    }
    return served;
}

/* ---- Order, and the end ---- */

static UctStatus ep_flush(UctEp *ep, uint32_t flags, UctCompletion *completion)
{
    struct endpoint *endpoint = endpoint_of(ep);
    if (must_wait(endpoint) && (flags & UCT_FLUSH_CANCEL) == 0)
        return UCT_ERR_NO_RESOURCE;
    return flush_queue(endpoint->iface, flags, completion);
}

static UctStatus ep_fence(UctEp *ep, uint32_t flags)
{
    (void)ep, (void)flags;
    return UCT_OK;
}

static UctStatus ep_check(UctEp *ep, uint32_t flags, UctCompletion *completion)
{
    /* The peer is this interface, which is open as long as it has endpoints. */
    (void)ep, (void)flags, (void)completion;
    return UCT_OK;
}

/* What it sent is in the interface's queue and will be delivered. */
static void ep_destroy(UctEp *handle)
{
    struct endpoint *ep = endpoint_of(handle);
    wait_no_more(ep);
    if (ep->iface->serving == ep)
        ep->iface->serving = NULL;
    free(ep);
}

/* Slots that are not named are null: the host answers UCT_ERR_UNSUPPORTED for them. */
const UctEpOps ep_ops = {
    .size = sizeof(ep_ops),
    .destroy = ep_destroy,
    .am_short = am_short,
    .am_short_iov = am_short_iov,
    .am_bcopy = am_bcopy,
    .am_zcopy = am_zcopy,
    .pending_add = ep_pending_add,
    .pending_purge = ep_pending_purge,
    .flush = ep_flush,
    .fence = ep_fence,
    .check = ep_check,
};
