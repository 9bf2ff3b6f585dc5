/*
 * The least transport between processes, in C: `cmsg` sends short and packed messages over sockets of this machine, and tells
 * when a peer is gone. It registers no memory, has no keys, no remote access, no pending requests and no events. The host composes
 * all but the events of its messages: the tests run the conformance suite on it.
 *
 * An endpoint is a connection to the peer's listening socket, and is only sent to; the interface only receives from the
 * connections that it accepts. A socket keeps messages apart and in order (SOCK_SEQPACKET). It has room, or the send answers
 * UCT_ERR_NO_RESOURCE.
 *
 * It is also where a transport of your own can begin: the Makefile beside it builds it against an installation.
 */

#define _GNU_SOURCE
#include "uct_abi.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }

enum {
    MAX_SHORT = 256,
    MAX_BCOPY = 4096,
    MAX_IOV = 8,
    /* Ahead of each message: its id, and zeros, so that data are aligned. */
    HEAD = 16,
    /* Messages of one connection in one turn. */
    BATCH = 16,
    /* Calls of progress, one inside a handler of the other, that receive. */
    MAX_DEPTH = 4,
    BACKLOG = 4096
};

struct address {
    uint64_t random[2];
    /* Both of them and the machine's part again, so that an address that was changed is none. */
    uint64_t sum;
};

struct connection {
    struct connection *next;
    int fd;
};

struct iface {
    UctAmTable *handlers;
    UctErrorHandler failed;
    void *argument;
    struct address address;
    struct connection *connections;
    struct endpoint *endpoints;
    int listener;
    int depth;
};

struct endpoint {
    struct iface *iface;
    struct endpoint *next;
    void *user;
    UctStatus status;
    bool is_told;
    int fd;
};

/* The network namespace and the boot, in which a name of a socket means the same. */
static uint64_t machine;

static void explain(UctText *reason, const char *words)
{
    size_t length = strlen(words);
    if (reason == NULL)
        return;
    if (length > reason->capacity)
        length = reason->capacity;
    memcpy(reason->data, words, length);
    reason->length = length;
}

static bool is(UctStr text, const char *words)
{
    return text.length == strlen(words) && memcmp(text.data, words, text.length) == 0;
}

static uint64_t sum_of(const struct address *address)
{
    return (address->random[0] ^ (address->random[1] << 1 | address->random[1] >> 63) ^ machine) *
           UINT64_C(0x9e3779b97f4a7c15);
}

/* An abstract name; answers its length. */
static socklen_t name_of(const struct address *address, struct sockaddr_un *name)
{
    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    int length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "uct-cmsg-%016llx%016llx",
                          (unsigned long long)address->random[0], (unsigned long long)address->random[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* ---- The endpoint ---- */

static struct endpoint *endpoint_of(UctEp *ep)
{
    return (struct endpoint *)ep;
}

/* What the system says about a connection; the error handler is called by progress, never inside a send. */
static UctStatus ends(struct endpoint *ep)
{
    if (ep->status == UCT_OK)
        ep->status = UCT_ERR_CONNECTION_RESET;
    return ep->status;
}

/* Whether the connection has room for one more message of any size. */
static UctStatus has_room(struct endpoint *ep)
{
    struct pollfd poller = { .fd = ep->fd, .events = POLLOUT };
    if (ep->status != UCT_OK)
        return ep->status;
    if (poll(&poller, 1, 0) < 0)
        return UCT_ERR_NO_RESOURCE;
    if ((poller.revents & (POLLHUP | POLLERR)) != 0)
        return ends(ep);
    return (poller.revents & POLLOUT) != 0 ? UCT_OK : UCT_ERR_NO_RESOURCE;
}

static UctStatus send_frame(struct endpoint *ep, uint8_t *frame, uint8_t id, size_t length)
{
    memset(frame, 0, HEAD);
    frame[0] = id;
    for (;;) {
        if (send(ep->fd, frame, HEAD + length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return UCT_OK;
        if (errno == EAGAIN || errno == ENOBUFS)
            return UCT_ERR_NO_RESOURCE;
        if (errno != EINTR)
            return ends(ep);
    }
}

static UctStatus am_short(UctEp *handle, uint8_t id, uint64_t header, const void *payload, size_t length)
{
    struct endpoint *ep = endpoint_of(handle);
    uint8_t frame[HEAD + sizeof(header) + MAX_SHORT];
    UctStatus status;

    if (id >= UCT_AM_IDS || length > MAX_SHORT)
        return UCT_ERR_INVALID_PARAM;
    status = has_room(ep);
    if (status != UCT_OK)
        return status;
    memcpy(frame + HEAD, &header, sizeof(header));
    if (length > 0)
        memcpy(frame + HEAD + sizeof(header), payload, length);
    return send_frame(ep, frame, id, sizeof(header) + length);
}

/* The slot that goes with UCT_CAP_AM_SHORT besides. */
static UctStatus am_short_iov(UctEp *handle, uint8_t id, const UctIov *iov, size_t count)
{
    struct endpoint *ep = endpoint_of(handle);
    uint8_t frame[HEAD + sizeof(uint64_t) + MAX_SHORT];
    size_t length = HEAD;
    UctStatus status;

    if (id >= UCT_AM_IDS || count > MAX_IOV)
        return UCT_ERR_INVALID_PARAM;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t block = 0; block < iov[i].count && iov[i].length > 0; block++) {
            if (iov[i].length > sizeof(frame) - length)
                return UCT_ERR_INVALID_PARAM;
            memcpy(frame + length, (const uint8_t *)iov[i].buffer + block * iov[i].stride, iov[i].length);
            length += iov[i].length;
        }
    }
    status = has_room(ep);
    return status != UCT_OK ? status : send_frame(ep, frame, id, length - HEAD);
}

static ptrdiff_t am_bcopy(UctEp *handle, uint8_t id, UctPack pack, void *argument, uint32_t flags)
{
    struct endpoint *ep = endpoint_of(handle);
    uint8_t frame[HEAD + MAX_BCOPY];
    UctStatus status;
    size_t length;

    (void)flags;
    if (id >= UCT_AM_IDS)
        return UCT_ERR_INVALID_PARAM;
    status = has_room(ep);
    if (status != UCT_OK)
        return status;
    length = pack(frame + HEAD, argument);
    if (length > MAX_BCOPY)
        /* What lies behind the buffer is overwritten: nothing is safe any more. */
        abort();
    status = send_frame(ep, frame, id, length);
    return status == UCT_OK ? (ptrdiff_t)length : status;
}

/* A message is the system's as soon as it is sent. */
static UctStatus ep_flush(UctEp *ep, uint32_t flags, UctCompletion *completion)
{
    (void)flags, (void)completion;
    return endpoint_of(ep)->status;
}

static UctStatus ep_fence(UctEp *ep, uint32_t flags)
{
    (void)flags;
    return endpoint_of(ep)->status;
}

/* The peer sends nothing: a connection that can be read is one that has ended. */
static UctStatus look(struct endpoint *ep)
{
    uint8_t byte;
    if (ep->status == UCT_OK) {
        ssize_t got = recv(ep->fd, &byte, 1, MSG_DONTWAIT);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR))
            ends(ep);
    }
    return ep->status;
}

static UctStatus ep_check(UctEp *ep, uint32_t flags, UctCompletion *completion)
{
    (void)flags, (void)completion;
    return look(endpoint_of(ep));
}

static void ep_destroy(UctEp *handle)
{
    struct endpoint *ep = endpoint_of(handle);
    for (struct endpoint **at = &ep->iface->endpoints; *at != NULL; at = &(*at)->next) {
        if (*at == ep) {
            *at = ep->next;
            break;
        }
    }
    close(ep->fd);
    free(ep);
}

/* Slots that are not named are null: the host answers UCT_ERR_UNSUPPORTED for them. */
static const UctEpOps ep_ops = {
    .size = sizeof(ep_ops),
    .destroy = ep_destroy,
    .am_short = am_short,
    .am_short_iov = am_short_iov,
    .am_bcopy = am_bcopy,
    .flush = ep_flush,
    .fence = ep_fence,
    .check = ep_check,
};

/* ---- The interface ---- */

static struct iface *iface_of(UctIface *iface)
{
    return (struct iface *)iface;
}

/* Delivers what a connection has, up to a batch; answers how many messages. */
static uint32_t receive(struct iface *iface, struct connection *connection)
{
    uint64_t frame[(HEAD + MAX_BCOPY) / sizeof(uint64_t)];
    uint32_t count = 0;

    while (count < BATCH && connection->fd >= 0) {
        ssize_t got = recv(connection->fd, frame, sizeof(frame), MSG_DONTWAIT | MSG_TRUNC);
        const uint8_t id = *(uint8_t *)frame;

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        /* The end, or something that no cmsg sends. */
        if (got < HEAD || (size_t)got > sizeof(frame) || id >= UCT_AM_IDS) {
            close(connection->fd);
            connection->fd = -1;
            break;
        }
        count++;
        iface->handlers->callbacks[id](iface->handlers->arguments[id], (uint8_t *)frame + HEAD, (size_t)got - HEAD, 0);
    }
    return count;
}

static uint32_t iface_progress(UctIface *handle)
{
    struct iface *iface = iface_of(handle);
    uint32_t events = 0;
    int fd;

    /* A handler that progresses gets what is there, but not for ever deeper. */
    if (iface->depth == MAX_DEPTH)
        return 0;
    iface->depth++;
    while ((fd = accept4(iface->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct connection *connection = malloc(sizeof(*connection));
        if (connection == NULL) {
            close(fd);
            break;
        }
        *connection = (struct connection){ .next = iface->connections, .fd = fd };
        iface->connections = connection;
    }
    for (struct connection *at = iface->connections; at != NULL; at = at->next)
        events += receive(iface, at);
    for (struct endpoint *at = iface->endpoints; at != NULL; at = at->next) {
        if (!at->is_told && look(at) != UCT_OK) {
            at->is_told = true;
            events++;
            /* The endpoint stays until progress returns, whatever the application drops. */
            iface->failed(iface->argument, at->user, at->status, (UctStr)TEXT("the peer has closed the connection"));
        }
    }
    iface->depth--;
    /* Nobody walks over the list. */
    for (struct connection **at = &iface->connections; iface->depth == 0 && *at != NULL;) {
        struct connection *connection = *at;
        if (connection->fd >= 0) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        free(connection);
    }
    return events;
}

static UctStatus iface_flush(UctIface *iface, uint32_t flags, UctCompletion *completion)
{
    (void)iface, (void)flags, (void)completion;
    return UCT_OK;
}

static UctStatus iface_fence(UctIface *iface, uint32_t flags)
{
    (void)iface, (void)flags;
    return UCT_OK;
}

static UctStatus iface_query(UctIface *handle, UctIfaceAttr *attr)
{
    UctIfaceAttr known = {
        .size = attr->size,
        .capabilities = UCT_CAP_AM_SHORT | UCT_CAP_AM_BCOPY | UCT_CAP_CONNECT_TO_IFACE | UCT_CAP_CB_SYNC |
                        UCT_CAP_EP_CHECK | UCT_CAP_ERRHANDLE_PEER_FAILURE | UCT_CAP_ERRHANDLE_SHORT_BUF |
                        UCT_CAP_ERRHANDLE_AM_ID,
        .am = { .max_short = MAX_SHORT, .max_bcopy = MAX_BCOPY, .opt_zcopy_align = 1, .align_mtu = 1, .max_iov = MAX_IOV },
        .device_addr_len = sizeof(machine),
        .iface_addr_len = sizeof(struct address),
        .overhead = { 1e-6, UCT_ORIGIN_MODEL },
        .latency = { 2e-6, UCT_ORIGIN_MODEL },
        .bandwidth_dedicated = { 1e9, UCT_ORIGIN_MODEL },
        .bandwidth_shared = { 0, UCT_ORIGIN_MODEL },
    };
    (void)handle;
    memcpy(attr, &known, attr->size < sizeof(known) ? attr->size : sizeof(known));
    return UCT_OK;
}

static UctStatus iface_device_address(UctIface *handle, uint8_t *address)
{
    (void)handle;
    memcpy(address, &machine, sizeof(machine));
    return UCT_OK;
}

static UctStatus iface_address(UctIface *handle, uint8_t *address)
{
    memcpy(address, &iface_of(handle)->address, sizeof(struct address));
    return UCT_OK;
}

static UctStatus iface_is_reachable(UctIface *handle, const uint8_t *device, size_t device_length, const uint8_t *bytes,
                                    size_t length, uint32_t scope, UctText *reason)
{
    struct address address;
    (void)handle, (void)scope;
    if (device_length != sizeof(machine) || memcmp(device, &machine, sizeof(machine)) != 0) {
        explain(reason, "the peer is on another machine or in another network namespace");
        return UCT_ERR_UNREACHABLE;
    }
    /* A host may ask about the device alone. */
    if (length == 0)
        return UCT_OK;
    if (length == sizeof(address)) {
        memcpy(&address, bytes, sizeof(address));
        if (address.sum == sum_of(&address))
            return UCT_OK;
    }
    explain(reason, "the address is not one of an interface of cmsg");
    return UCT_ERR_UNREACHABLE;
}

static UctStatus iface_ep_create(UctIface *handle, const UctEpParams *params, UctEp **handle_of_ep, UctText *reason)
{
    struct endpoint *ep;
    struct address address;
    struct sockaddr_un name;
    socklen_t length;
    UctStatus status;

    *handle_of_ep = NULL;
    if (params->device_address == NULL || params->iface_address == NULL) {
        explain(reason, "cmsg connects to an interface only: its addresses are needed");
        return UCT_ERR_UNSUPPORTED;
    }
    status = iface_is_reachable(handle, params->device_address, params->device_address_length, params->iface_address,
                                params->iface_address_length, UCT_SCOPE_NETWORK, reason);
    if (status != UCT_OK)
        return status;
    memcpy(&address, params->iface_address, sizeof(address));
    length = name_of(&address, &name);
    ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        explain(reason, "no memory for an endpoint");
        return UCT_ERR_NO_MEMORY;
    }
    ep->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ep->fd < 0 || connect(ep->fd, (const struct sockaddr *)&name, length) < 0) {
        explain(reason, ep->fd < 0 ? "the system gives no socket" : "the address is not in use: the peer has closed it or ended");
        if (ep->fd >= 0)
            close(ep->fd);
        free(ep);
        return UCT_ERR_UNREACHABLE;
    }
    ep->iface = iface_of(handle);
    ep->user = params->user;
    ep->next = ep->iface->endpoints;
    ep->iface->endpoints = ep;
    *handle_of_ep = (UctEp *)ep;
    return UCT_OK;
}

static void iface_close(UctIface *handle)
{
    struct iface *iface = iface_of(handle);
    struct connection *connection;
    while ((connection = iface->connections) != NULL) {
        iface->connections = connection->next;
        if (connection->fd >= 0)
            close(connection->fd);
        free(connection);
    }
    close(iface->listener);
    free(iface);
}

static const UctIfaceOps iface_ops = {
    .size = sizeof(iface_ops),
    .close = iface_close,
    .query = iface_query,
    .get_device_address = iface_device_address,
    .get_address = iface_address,
    .is_reachable = iface_is_reachable,
    .progress = iface_progress,
    .ep_create = iface_ep_create,
    .flush = iface_flush,
    .fence = iface_fence,
};

static UctStatus iface_open(UctMd *md, const UctIfaceParams *params, UctIface **handle, UctText *reason)
{
    struct iface *iface;
    struct sockaddr_un name;
    socklen_t length;

    (void)md;
    *handle = NULL;
    if (!is(params->device, "memory")) {
        explain(reason, "cmsg has one device, memory");
        return UCT_ERR_NO_DEVICE;
    }
    iface = calloc(1, sizeof(*iface));
    if (iface == NULL) {
        explain(reason, "no memory for an interface");
        return UCT_ERR_NO_MEMORY;
    }
    iface->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (iface->listener < 0 ||
        getrandom(iface->address.random, sizeof(iface->address.random), 0) != (ssize_t)sizeof(iface->address.random))
        goto refused;
    iface->address.sum = sum_of(&iface->address);
    length = name_of(&iface->address, &name);
    if (bind(iface->listener, (const struct sockaddr *)&name, length) < 0 || listen(iface->listener, BACKLOG) < 0)
        goto refused;
    iface->handlers = params->am_handlers;
    iface->failed = params->error_handler;
    iface->argument = params->error_argument;
    *handle = (UctIface *)iface;
    return UCT_OK;

refused:
    explain(reason, "the system gives no listening socket or no random number");
    if (iface->listener >= 0)
        close(iface->listener);
    free(iface);
    return UCT_ERR_IO_ERROR;
}

/* ---- The memory domain, which has no memory; transport, component, plugin ---- */

static UctStatus md_query(UctMd *md, UctMdAttr *attr)
{
    UctMdAttr known = { .size = attr->size };
    (void)md;
    memcpy(attr, &known, attr->size < sizeof(known) ? attr->size : sizeof(known));
    return UCT_OK;
}

static void md_close(UctMd *md)
{
    free(md);
}

static const UctMdOps md_ops = { .size = sizeof(md_ops), .close = md_close, .query = md_query };

static UctStatus query_devices(UctMd *md, const UctConfig *config, UctEmitDevice emit, void *context, UctText *reason)
{
    UctDevice device = { .size = sizeof(device), .name = TEXT("memory"), .kind = UCT_DEVICE_SHM, .numa_node = -1 };
    (void)md, (void)config, (void)reason;
    emit(context, &device);
    return UCT_OK;
}

static const UctTlOps transport = {
    .size = sizeof(transport),
    .name = TEXT("cmsg"),
    .iface_ops = &iface_ops,
    .ep_ops = &ep_ops,
    .query_devices = query_devices,
    .iface_open = iface_open,
};

static UctStatus query_mds(const UctConfig *config, UctEmitName emit, void *context, UctText *reason)
{
    (void)config, (void)reason;
    emit(context, (UctStr)TEXT("cmsg"));
    return UCT_OK;
}

static UctStatus md_open(UctStr name, const UctConfig *config, UctMd **md, UctText *reason)
{
    (void)config;
    *md = NULL;
    if (!is(name, "cmsg")) {
        explain(reason, "cmsg has one memory domain, cmsg");
        return UCT_ERR_NO_DEVICE;
    }
    *md = malloc(1);
    if (*md != NULL)
        return UCT_OK;
    explain(reason, "no memory for a memory domain");
    return UCT_ERR_NO_MEMORY;
}

static const UctTlOps *const transports[] = { &transport };

static const UctComponentOps component = {
    .size = sizeof(component),
    .name = TEXT("cmsg"),
    .tls = transports,
    .tl_count = 1,
    .md_ops = &md_ops,
    .query_mds = query_mds,
    .md_open = md_open,
};

static const UctComponentOps *const components[] = { &component };

static UctStatus init(const UctHost *host, UctText *reason)
{
    struct stat namespace;
    (void)host;
    if (stat("/proc/self/ns/net", &namespace) < 0) {
        explain(reason, "/proc/self/ns/net cannot be read: is /proc mounted?");
        return UCT_ERR_IO_ERROR;
    }
    machine = (uint64_t)namespace.st_ino << 16 ^ (uint64_t)namespace.st_dev;
    return UCT_OK;
}

static const UctPlugin plugin = {
    .magic = UCT_MAGIC,
    .abi_major = UCT_ABI_MAJOR,
    .abi_minor = UCT_ABI_MINOR,
    .size = sizeof(plugin),
    .name = TEXT("cmsg"),
    .version = TEXT("1.0"),
    .components = components,
    .component_count = 1,
    .init = init,
};

/* The one symbol that the host looks up. */
UCT_PLUGIN_ENTRY(cmsg)
{
    return &plugin;
}
