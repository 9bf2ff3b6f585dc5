/* Sends a text from a client to a server with UCT's functions, over one transport and device.
 *
 *   ./hello_uct -d lo -t tcp                    the server
 *   ./hello_uct -d lo -t tcp -n localhost       the client
 *   ./hello_uct -d memory -t self               both in one process
 *
 * -i, -b and -z choose am_short (the default), am_bcopy and am_zcopy; -p another port than 13337. The addresses go over
 * a TCP connection, in the way of UCX's example of UCT and of `uct_hello_world --ucx`: a length of 8 bytes and the
 * address, of the device, the interface and the endpoint; four bytes when a side is done.
 */
#include <uct/api/uct.h>

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO 0 /* the id of the message */
static const char *device, *transport, *host, *port = "13337";
static int how = 'i', peer = -1; /* the connection, unless both are in this process */
static char text[] = "Hello from a program of UCT's vocabulary";
static uct_worker_h worker;
static uct_md_h md;
static uct_iface_h iface;
static uct_iface_attr_t attr;

/* What the server has received: a message of the transport's that it kept, or a copy. */
static char *received;
static int received_length, is_kept;

static void check(const char *what, ucs_status_t status)
{
    if (status != UCS_OK) {
        fprintf(stderr, "hello_uct: %s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static int call_or_listen(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int on = 1, attempts = 600, connection = socket(AF_INET, SOCK_STREAM, 0), done;

    check("the address of the server", getaddrinfo(host, port, &hints, &found) ? UCS_ERR_INVALID_ADDR : UCS_OK);
    setsockopt(connection, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    done = host || (bind(connection, found->ai_addr, found->ai_addrlen) == 0 && listen(connection, 1) == 0 &&
                    (connection = accept(connection, NULL, NULL)) >= 0);
    /* The server may just be starting. */
    while (host && (done = connect(connection, found->ai_addr, found->ai_addrlen) == 0) == 0 && attempts-- > 0)
        usleep(100000);
    freeaddrinfo(found);
    check("the connection to the peer", done ? UCS_OK : UCS_ERR_UNREACHABLE);
    return connection;
}

static void transfer(const void *own, void *theirs, size_t length)
{
    int done = send(peer, own, length, MSG_NOSIGNAL) > 0 && recv(peer, theirs, length, MSG_WAITALL) == (ssize_t)length;

    check("the exchange with the peer", done ? UCS_OK : UCS_ERR_CONNECTION_RESET);
}

/* Sends an address and returns the peer's, which the caller frees. */
static void *exchange(const void *own, size_t length)
{
    void *theirs = memcpy(malloc(length + 1), own, length);
    size_t their_length = length;

    if (peer >= 0 && length > 0) {
        transfer(&length, &their_length, sizeof(length));
        check("the transport of the peer", their_length == length ? UCS_OK : UCS_ERR_INVALID_ADDR);
        transfer(own, theirs, length);
    }
    return theirs;
}

/* Waits for the peer, and makes progress meanwhile. */
static void barrier(void)
{
    struct pollfd ready = {peer, POLLIN, 0};
    int own = 0, theirs;

    if (peer >= 0) {
        send(peer, &own, sizeof(own), MSG_NOSIGNAL);
        while (poll(&ready, 1, 1) == 0)
            uct_worker_progress(worker);
        check("the end of the peer", recv(peer, &theirs, sizeof(theirs), MSG_WAITALL) > 0 ? UCS_OK : UCS_ERR_CONNECTION_RESET);
    }
}

/* Opens the transport on the device, if this memory domain has it. */
static int open_on(uct_component_h component, const char *md_name)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
                                 .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
                                 .mode.device = {transport, device}};
    uct_tl_resource_desc_t *resources;
    uct_md_config_t *md_config;
    uct_iface_config_t *config;
    unsigned count, found = 0;

    check("uct_md_config_read", uct_md_config_read(component, NULL, NULL, &md_config));
    check("uct_md_open", uct_md_open(component, md_name, md_config, &md));
    uct_config_release(md_config);
    check("uct_md_query_tl_resources", uct_md_query_tl_resources(md, &resources, &count));
    while (found < count && (strcmp(resources[found].tl_name, transport) || strcmp(resources[found].dev_name, device)))
        ++found;
    uct_release_tl_resource_list(resources);
    if (found == count)
        return uct_md_close(md), 0;
    check("uct_md_iface_config_read", uct_md_iface_config_read(md, transport, NULL, NULL, &config));
    check("uct_iface_open", uct_iface_open(md, worker, &params, config, &iface));
    uct_config_release(config);
    return 1;
}

static void open_any(void)
{
    uct_component_h *components;
    unsigned count, domain, found = 0;

    check("uct_query_components", uct_query_components(&components, &count));
    while (count-- > 0 && !found) {
        uct_component_attr_t about = {.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};

        check("uct_component_query", uct_component_query(components[count], &about));
        about.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        about.md_resources = calloc(about.md_resource_count, sizeof(*about.md_resources));
        check("uct_component_query", uct_component_query(components[count], &about));
        for (domain = 0; domain < about.md_resource_count && !found; ++domain)
            found = open_on(components[count], about.md_resources[domain].md_name);
        free(about.md_resources);
    }
    uct_release_component_list(components);
    check("uct_info -d lists what there is", found ? UCS_OK : UCS_ERR_NO_DEVICE);
}

static ucs_status_t on_hello(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    received_length = (int)length;
    is_kept = flags & UCT_CB_PARAM_FLAG_DESC;
    received = is_kept ? data : memcpy(malloc(length), data, length);
    return is_kept ? UCS_INPROGRESS : UCS_OK;
}

static size_t pack(void *dest, void *arg)
{
    memcpy(dest, arg, sizeof(text));
    return sizeof(text);
}

static void on_sent(uct_completion_t *self)
{
    check("uct_ep_am_zcopy", self->status);
}

/* Sends the text; am_short takes its first 8 bytes for the header. */
static void say_hello(uct_ep_h ep)
{
    uct_completion_t sent = {on_sent, 1, UCS_OK};
    uct_iov_t iov = {text, sizeof(text), UCT_MEM_HANDLE_NULL, 0, 1};
    ssize_t status;
    uint64_t header;

    memcpy(&header, text, sizeof(header));
    check("uct_md_mem_reg", uct_md_mem_reg(md, text, sizeof(text), UCT_MD_MEM_ACCESS_LOCAL_READ, &iov.memh));
    do {
        status = how == 'z'   ? uct_ep_am_zcopy(ep, HELLO, NULL, 0, &iov, 1, 0, &sent)
                 : how == 'b' ? uct_ep_am_bcopy(ep, HELLO, pack, text, 0)
                              : uct_ep_am_short(ep, HELLO, header, text + sizeof(header), sizeof(text) - sizeof(header));
        uct_worker_progress(worker);
    } while (status == UCS_ERR_NO_RESOURCE);
    check("sending", status < 0 ? (ucs_status_t)status : UCS_OK);
    while (how == 'z' && status == UCS_INPROGRESS && sent.count > 0)
        uct_worker_progress(worker);
    check("uct_md_mem_dereg", uct_md_mem_dereg(md, iov.memh));
}

/* An endpoint to the peer's endpoint where the transport has that, otherwise to its interface. */
static uct_ep_h connect_both(void)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE, .iface = iface};
    char own[1024];
    void *their_device, *their_iface, *their_ep = NULL;
    uct_ep_h ep;

    check("uct_iface_get_device_address", uct_iface_get_device_address(iface, (uct_device_addr_t *)own));
    their_device = exchange(own, attr.device_addr_len);
    check("uct_iface_get_address", uct_iface_get_address(iface, (uct_iface_addr_t *)own));
    their_iface = exchange(own, attr.iface_addr_len);
    /* With UCT_LOG_LEVEL=debug the log says why not. */
    check("the peer", uct_iface_is_reachable(iface, their_device, their_iface) ? UCS_OK : UCS_ERR_UNREACHABLE);
    if (peer >= 0 && (attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP)) {
        check("uct_ep_create", uct_ep_create(&params, &ep));
        check("uct_ep_get_address", uct_ep_get_address(ep, (uct_ep_addr_t *)own));
        their_ep = exchange(own, attr.ep_addr_len);
        check("uct_ep_connect_to_ep", uct_ep_connect_to_ep(ep, their_device, their_ep));
        barrier();
    } else {
        params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.dev_addr = their_device;
        params.iface_addr = their_iface;
        check("uct_ep_create", uct_ep_create(&params, &ep));
    }
    free(their_device), free(their_iface), free(their_ep);
    return ep;
}

int main(int argc, char **argv)
{
    ucs_async_context_t *async;
    uct_ep_h ep;
    int option;

    while ((option = getopt(argc, argv, "d:t:n:p:ibz")) != -1) {
        switch (option) {
        case 'd': device = optarg; break;
        case 't': transport = optarg; break;
        case 'n': host = optarg; break;
        case 'p': port = optarg; break;
        default: how = option; break;
        }
    }
    check("usage: hello_uct -d DEVICE -t TRANSPORT [-n HOST] [-p PORT] [-i|-b|-z]", device && transport ? UCS_OK : UCS_ERR_INVALID_PARAM);
    check("ucs_async_context_create", ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    check("uct_worker_create", uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker));
    open_any();
    check("uct_iface_query", uct_iface_query(iface, &attr));
    check("uct_iface_set_am_handler", uct_iface_set_am_handler(iface, HELLO, on_hello, NULL, 0));
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    peer = strcmp(transport, "self") ? call_or_listen() : -1;
    ep = connect_both();
    if (host || peer < 0)
        say_hello(ep);
    while (!host && !received)
        uct_worker_progress(worker);
    barrier();
    if (received) {
        printf("Received over %s/%s: %.*s\n", transport, device, received_length, received);
        is_kept ? uct_iface_release_desc(received) : free(received);
    }
    uct_ep_destroy(ep);
    uct_iface_close(iface);
    uct_md_close(md);
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
    return 0;
}
