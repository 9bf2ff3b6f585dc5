/* Calls each function of the vocabulary in the order in which programs do, over one transport and device, and checks
   what it returns: functions TRANSPORT DEVICE. Two interfaces of one worker are the sides; over self, one is both. */
#include <ucs/async/async.h>
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(_condition)                                                                                                                  \
    do {                                                                                                                                   \
        if (!(_condition)) {                                                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #_condition);                                                               \
            exit(1);                                                                                                                       \
        }                                                                                                                                  \
    } while (0)
#define IS(_status, _call) is(__LINE__, #_call, _status, _call)
#define OK(_call) IS(UCS_OK, _call)

#define HEADROOM 24
#define ID 7
#define SIZE 4096

static uct_worker_h worker;
static uct_component_h component;
static uct_md_h md;
static uct_md_attr_t md_attr;
static uct_iface_h here, there;
static uct_iface_attr_t attr;
static uct_ep_h ep;
/* Of the other side, where endpoints are connected to each other. */
static uct_ep_h peer_ep;
/* Bytes of a longer message. */
static size_t size = SIZE;

/* What the handler has seen. */
static char message[1 << 20];
static size_t message_length;
static int messages;
static char *kept, kept_first;

static int failures;
static ucs_status_t failure;

static void is(int line, const char *call, ucs_status_t expected, ucs_status_t status)
{
    if (status != expected) {
        fprintf(stderr, "%s:%d: %s: %s, expected %s\n", __FILE__, line, call, ucs_status_string(status), ucs_status_string(expected));
        exit(1);
    }
}

static size_t least(size_t left, size_t right)
{
    return left < right ? left : right;
}

static void fill(char *bytes, size_t length, char seed)
{
    for (size_t index = 0; index < length; ++index) {
        bytes[index] = (char)(seed + (char)(index * 7));
    }
}

/* ---- Callbacks ---- */

static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    CHECK(arg == &messages);
    CHECK(((uintptr_t)data & 7) == 0);
    CHECK(length <= sizeof(message));
    memcpy(message, data, length);
    message_length = length;
    messages++;
    if (!(flags & UCT_CB_PARAM_FLAG_DESC) || kept) {
        return UCS_OK;
    }
    kept = (char *)data - HEADROOM;
    memset(kept, 'h', HEADROOM);
    kept_first = message[0];
    return UCS_INPROGRESS;
}

static ucs_status_t on_failure(void *arg, uct_ep_h failed, ucs_status_t status)
{
    CHECK(arg == &failures);
    CHECK(failed == ep || failed == peer_ep);
    failures++;
    failure = status;
    return UCS_OK;
}

static size_t pack(void *dest, void *arg)
{
    memcpy(dest, arg, size);
    return size;
}

static void unpack(void *arg, const void *data, size_t length)
{
    memcpy(arg, data, length);
}

static int ended;

static void on_end(uct_completion_t *self)
{
    CHECK(self->count == 0);
    ended++;
}

static int served;
static int order[2];

typedef struct {
    uct_pending_req_t super;
    int number;
} request_t;

static ucs_status_t on_room(uct_pending_req_t *self)
{
    request_t *request = (request_t *)self;
    ucs_status_t status = uct_ep_am_short(ep, ID, 0, NULL, 0);

    if (status == UCS_OK) {
        order[served++] = request->number;
    }
    return status;
}

static void on_purge(uct_pending_req_t *self, void *arg)
{
    CHECK(self->func == on_room);
    ++*(int *)arg;
}

/* ---- Waiting ---- */

static void progress_until(const int *value, int wanted)
{
    while (*value < wanted) {
        uct_worker_progress(worker);
    }
}

/* Calls an operation that has no completion until there is room. */
#define SENT(_operation) DONE(((void)comp, (_operation)))

/* Calls an operation until there is room, and waits for its end. */
#define DONE(_operation)                                                                                                                   \
    do {                                                                                                                                   \
        uct_completion_t comp = {on_end, 1, UCS_OK};                                                                                       \
        ucs_status_t status;                                                                                                               \
        ended = 0;                                                                                                                         \
        while ((status = (_operation)) == UCS_ERR_NO_RESOURCE) {                                                                           \
            uct_worker_progress(worker);                                                                                                   \
        }                                                                                                                                  \
        CHECK(status == UCS_OK || status == UCS_INPROGRESS);                                                                               \
        if (status == UCS_INPROGRESS) {                                                                                                    \
            progress_until(&ended, 1);                                                                                                     \
        }                                                                                                                                  \
        CHECK(comp.status == UCS_OK && ended == (status == UCS_INPROGRESS));                                                               \
    } while (0)

static void flush(void)
{
    ucs_status_t status;

    DONE(uct_ep_flush(ep, UCT_FLUSH_FLAG_REMOTE, &comp));
    while ((status = uct_iface_flush(here, UCT_FLUSH_FLAG_LOCAL, NULL)) == UCS_INPROGRESS || status == UCS_ERR_NO_RESOURCE) {
        uct_worker_progress(worker);
    }
    OK(status);
}

/* ---- Setting up ---- */

static void find(const char *transport, const char *device)
{
    uct_component_h *components;
    unsigned num_components, num_resources;

    OK(uct_query_components(&components, &num_components));
    for (unsigned index = 0; index < num_components && !md; ++index) {
        uct_component_attr_t about = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};

        component = components[index];
        OK(uct_component_query(component, &about));
        CHECK(about.name[0] && about.md_resource_count > 0);
        about.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES | UCT_COMPONENT_ATTR_FIELD_FLAGS;
        about.md_resources = calloc(about.md_resource_count, sizeof(*about.md_resources));
        OK(uct_component_query(component, &about));
        CHECK(about.flags == 0);
        for (unsigned domain = 0; domain < about.md_resource_count && !md; ++domain) {
            uct_tl_resource_desc_t *resources;
            uct_md_config_t *config;
            int is_there = 0;

            OK(uct_md_config_read(component, NULL, NULL, &config));
            OK(uct_md_open(component, about.md_resources[domain].md_name, config, &md));
            uct_config_release(config);
            OK(uct_md_query_tl_resources(md, &resources, &num_resources));
            for (unsigned resource = 0; resource < num_resources; ++resource) {
                is_there |= !strcmp(resources[resource].tl_name, transport) && !strcmp(resources[resource].dev_name, device);
                CHECK(resources[resource].dev_type < UCT_DEVICE_TYPE_LAST);
            }
            uct_release_tl_resource_list(resources);
            if (!is_there) {
                uct_md_close(md);
                md = NULL;
            }
        }
        free(about.md_resources);
    }
    IS(UCS_ERR_NO_DEVICE, uct_md_open(components[0], "no such domain", NULL, &(uct_md_h){NULL}));
    uct_release_component_list(components);
    CHECK(md);
    OK(uct_md_query(md, &md_attr));
    CHECK(md_attr.cap.flags & UCT_MD_FLAG_REG && md_attr.cap.flags & UCT_MD_FLAG_NEED_MEMH);
    CHECK(md_attr.cap.reg_mem_types == UCS_BIT(UCS_MEMORY_TYPE_HOST) && md_attr.component_name[0]);
}

static uct_iface_h open_iface(const char *transport, const char *device)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                                               UCT_IFACE_PARAM_FIELD_STATS_ROOT | UCT_IFACE_PARAM_FIELD_RX_HEADROOM |
                                               UCT_IFACE_PARAM_FIELD_CPU_MASK | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                                               UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG,
                                 .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
                                 .mode.device = {transport, device},
                                 .rx_headroom = HEADROOM,
                                 .err_handler = on_failure,
                                 .err_handler_arg = &failures};
    uct_iface_config_t *config;
    uct_iface_h iface;

    UCS_CPU_ZERO(&params.cpu_mask);
    OK(uct_md_iface_config_read(md, transport, NULL, NULL, &config));
    params.mode.device.dev_name = "no such device";
    IS(UCS_ERR_NO_DEVICE, uct_iface_open(md, worker, &params, config, &iface));
    params.mode.device.dev_name = device;
    params.rx_headroom = (size_t)-1;
    IS(UCS_ERR_EXCEEDS_LIMIT, uct_iface_open(md, worker, &params, config, &iface));
    params.rx_headroom = HEADROOM;
    params.open_mode = UCT_IFACE_OPEN_MODE_SOCKADDR_SERVER;
    IS(UCS_ERR_UNSUPPORTED, uct_iface_open(md, worker, &params, config, &iface));
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.field_mask |= UCS_BIT(16);
    IS(UCS_ERR_UNSUPPORTED, uct_iface_open(md, worker, &params, config, &iface));
    params.field_mask &= ~UCS_BIT(16);
    OK(uct_iface_open(md, worker, &params, config, &iface));
    uct_config_release(config);
    IS(UCS_ERR_INVALID_PARAM, uct_iface_set_am_handler(iface, 32, on_message, NULL, 0));
    OK(uct_iface_set_am_handler(iface, ID, on_message, &messages, UCT_CB_FLAG_ASYNC));
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    return iface;
}

static uct_ep_h connect_to(uct_iface_h peer)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE, .iface = here};
    char *device = calloc(1, attr.device_addr_len + 1), *address = calloc(1, attr.iface_addr_len + 1);
    uct_ep_h connected;

    memset(device, 0xff, attr.device_addr_len);
    memset(address, 0xff, attr.iface_addr_len);
    CHECK(!uct_iface_is_reachable(here, (uct_device_addr_t *)device, (uct_iface_addr_t *)address));
    OK(uct_iface_get_device_address(peer, (uct_device_addr_t *)device));
    OK(uct_iface_get_address(peer, (uct_iface_addr_t *)address));
    CHECK(uct_iface_is_reachable(here, (uct_device_addr_t *)device, (uct_iface_addr_t *)address));
    CHECK(!uct_iface_is_reachable(here, NULL, NULL));
    params.dev_addr = (uct_device_addr_t *)device;
    params.iface_addr = (uct_iface_addr_t *)address;
    params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR;
    IS(UCS_ERR_INVALID_PARAM, uct_ep_create(&params, &connected));
    params.field_mask |= UCT_EP_PARAM_FIELD_IFACE_ADDR | UCS_BIT(4);
    IS(UCS_ERR_UNSUPPORTED, uct_ep_create(&params, &connected));
    params.field_mask &= ~UCS_BIT(4);
    OK(uct_ep_create(&params, &connected));
    free(device);
    free(address);
    return connected;
}

/* An endpoint of each side, connected to each other by their addresses. */
static void connect_eps(uct_ep_h *eps)
{
    uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE};
    char *device = calloc(1, attr.device_addr_len + 1), *addresses[2];
    int before = messages;

    for (int side = 0; side < 2; ++side) {
        params.iface = side ? there : here;
        OK(uct_ep_create(&params, &eps[side]));
        addresses[side] = calloc(1, attr.ep_addr_len + 1);
        OK(uct_ep_get_address(eps[side], (uct_ep_addr_t *)addresses[side]));
    }
    for (int side = 0; side < 2; ++side) {
        OK(uct_iface_get_device_address(side ? here : there, (uct_device_addr_t *)device));
        OK(uct_ep_connect_to_ep(eps[side], (uct_device_addr_t *)device, (uct_ep_addr_t *)addresses[!side]));
    }
    for (int side = 0; side < 2; ++side) {
        SENT(uct_ep_am_short(eps[side], ID, 1, NULL, 0));
        progress_until(&messages, before + side + 1);
        free(addresses[side]);
    }
    free(device);
}

/* ---- Operations ---- */

static void expect(size_t length, const char *bytes, int count)
{
    progress_until(&messages, count);
    CHECK(messages == count && message_length == length && memcmp(message, bytes, length) == 0);
}

static void send_messages(void)
{
    size_t max_short = least(attr.cap.am.max_short, SIZE);
    static char bytes[SIZE];
    uct_mem_h memh;
    uint64_t header;
    uct_iov_t iov[2] = {{bytes, 8, NULL, 0, 1}, {bytes + 8, 0, NULL, 0, 1}};
    int count = messages;

    CHECK(attr.cap.flags & UCT_IFACE_FLAG_AM_SHORT && max_short >= 16 && attr.cap.am.max_bcopy >= size);
    fill(bytes, sizeof(bytes), 1);
    memcpy(&header, bytes, 8);
    IS(UCS_ERR_INVALID_PARAM, uct_ep_am_short(ep, 32, header, NULL, 0));
    SENT(uct_ep_am_short(ep, ID, header, NULL, 0));
    expect(8, bytes, ++count);
    SENT(uct_ep_am_short(ep, ID, header, bytes + 8, (unsigned)(max_short - 8)));
    expect(max_short, bytes, ++count);
    if (attr.cap.am.max_short < SIZE) {
        IS(UCS_ERR_INVALID_PARAM, uct_ep_am_short(ep, ID, header, bytes + 8, (unsigned)(max_short - 7)));
    }
    iov[1].length = max_short - 8;
    SENT(uct_ep_am_short_iov(ep, ID, iov, 2));
    expect(max_short, bytes, ++count);
    IS(UCS_ERR_INVALID_PARAM, uct_ep_am_short_iov(ep, ID, iov, 1000));

    CHECK(uct_ep_am_bcopy(ep, ID, NULL, NULL, 0) == UCS_ERR_INVALID_PARAM);
    flush();
    CHECK(uct_ep_am_bcopy(ep, ID, pack, bytes, UCT_SEND_FLAG_SIGNALED) == (ssize_t)size);
    expect(size, bytes, ++count);

    OK(uct_md_mem_reg(md, bytes, sizeof(bytes), UCT_MD_MEM_ACCESS_RMA, &memh));
    iov[1].length = 1000;
    IS(UCS_ERR_INVALID_PARAM, uct_ep_am_zcopy(ep, ID, NULL, 0, iov, 2, 0, NULL));
    iov[0].memh = iov[1].memh = memh;
    DONE(uct_ep_am_zcopy(ep, ID, NULL, 0, iov, 2, 0, &comp));
    expect(1008, bytes, ++count);
    DONE(uct_ep_am_zcopy(ep, ID, bytes, 8, &iov[1], 1, 0, &comp));
    expect(1008, bytes, ++count);
    flush();
    OK(uct_md_mem_dereg(md, memh));
    IS(UCS_ERR_INVALID_PARAM, uct_md_mem_dereg(md, UCT_MEM_HANDLE_NULL));

    /* The handler kept the first message that it could; it and its headroom are as they were. */
    if (kept) {
        for (int index = 0; index < HEADROOM; ++index) {
            CHECK(kept[index] == 'h');
        }
        CHECK(kept[HEADROOM] == kept_first);
        uct_iface_release_desc(kept);
        printf("kept a message\n");
    }
    OK(uct_iface_set_am_handler(there, ID, NULL, NULL, 0));
    SENT(uct_ep_am_short(ep, ID, header, NULL, 0));
    flush();
    /* A message behind it, with a handler, shows that it was dropped. */
    OK(uct_iface_set_am_handler(there, ID + 1, on_message, &messages, 0));
    SENT(uct_ep_am_short(ep, ID + 1, header, bytes, 1));
    progress_until(&messages, ++count);
    CHECK(messages == count && message_length == 9);
    OK(uct_iface_set_am_handler(there, ID, on_message, &messages, 0));
}

static void access_memory(void)
{
    static char local[SIZE], back[SIZE];
    uct_md_mem_reg_params_t reg = {.field_mask = UCT_MD_MEM_REG_FIELD_FLAGS | UCT_MD_MEM_REG_FIELD_MEM_TYPE,
                                   .flags = UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE,
                                   .mem_type = UCS_MEMORY_TYPE_CUDA};
    uct_md_mkey_pack_params_t pack_params = {.field_mask = 0};
    uct_allocated_memory_t remote;
    uct_rkey_bundle_t bundle;
    uct_mem_h memh, from;
    char *packed = calloc(1, md_attr.rkey_packed_size);
    uint64_t address, old64 = 0;
    uint32_t old32 = 0;

    IS(UCS_ERR_UNSUPPORTED, uct_md_mem_reg_v2(md, back, SIZE, &reg, &memh));
    reg.mem_type = UCS_MEMORY_TYPE_HOST;
    OK(uct_md_mem_reg_v2(md, back, SIZE, &reg, &memh));
    OK(uct_md_mem_reg(md, local, SIZE, UCT_MD_MEM_ACCESS_LOCAL_READ, &from));
    IS(UCS_ERR_INVALID_PARAM, uct_md_mem_reg(md, NULL, SIZE, UCT_MD_MEM_ACCESS_ALL, &(uct_mem_h){NULL}));
    OK(uct_iface_mem_alloc(there, SIZE, UCT_MD_MEM_ACCESS_ALL, "test", &remote));
    CHECK(remote.method == UCT_ALLOC_METHOD_MD && remote.length >= SIZE && remote.md == md);
    CHECK(remote.mem_type == UCS_MEMORY_TYPE_HOST);
    address = (uint64_t)(uintptr_t)remote.address;
    memset(packed, 0xff, md_attr.rkey_packed_size);
    IS(UCS_ERR_INVALID_PARAM, uct_rkey_unpack(component, packed, &bundle));
    OK(uct_md_mkey_pack(md, remote.memh, packed));
    OK(uct_md_mkey_pack_v2(md, remote.memh, remote.address, SIZE, &pack_params, packed));
    OK(uct_rkey_unpack(component, packed, &bundle));
    CHECK(bundle.rkey != UCT_INVALID_RKEY);

    fill(local, SIZE, 3);
    IS(UCS_ERR_INVALID_PARAM, uct_ep_put_short(ep, local, 8, address, UCT_INVALID_RKEY));
    SENT(uct_ep_put_short(ep, local, 8, address, bundle.rkey));
    SENT(uct_ep_put_short(ep, local + 8, 13, address + 8, bundle.rkey));
    flush();
    CHECK(memcmp(remote.address, local, 21) == 0);
    OK(uct_ep_get_short(ep, back, 21, address, bundle.rkey));
    CHECK(memcmp(back, local, 21) == 0);

    CHECK(uct_ep_put_bcopy(ep, NULL, local, address, bundle.rkey) == UCS_ERR_INVALID_PARAM);
    CHECK(uct_ep_put_bcopy(ep, pack, local, address, bundle.rkey) == (ssize_t)size);
    OK(uct_ep_fence(ep, 0));
    DONE(uct_ep_get_bcopy(ep, unpack, back, size, address, bundle.rkey, &comp));
    CHECK(memcmp(back, local, size) == 0 && memcmp(remote.address, local, size) == 0);

    fill(local, SIZE, 5);
    {
        size_t length = least(SIZE, least(attr.cap.put.max_zcopy, attr.cap.get.max_zcopy));
        uct_iov_t iov = {local, length, from, 0, 1};

        DONE(uct_ep_put_zcopy(ep, &iov, 1, address, bundle.rkey, &comp));
        flush();
        CHECK(memcmp(remote.address, local, length) == 0);
        iov.buffer = back;
        iov.memh = memh;
        memset(back, 0, SIZE);
        DONE(uct_ep_get_zcopy(ep, &iov, 1, address, bundle.rkey, &comp));
        CHECK(memcmp(back, local, length) == 0);
    }

    memset(remote.address, 0, 16);
    CHECK(attr.cap.atomic64.op_flags & UCS_BIT(UCT_ATOMIC_OP_ADD) && attr.cap.atomic32.fop_flags & UCS_BIT(UCT_ATOMIC_OP_CSWAP));
    SENT(uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 40, address, bundle.rkey));
    IS(UCS_ERR_UNSUPPORTED, uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_SWAP, 40, address, bundle.rkey));
    DONE(uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 2, &old64, address, bundle.rkey, &comp));
    CHECK(old64 == 40);
    DONE(uct_ep_atomic_cswap64(ep, 42, 7, address, bundle.rkey, &old64, &comp));
    CHECK(old64 == 42);
    SENT(uct_ep_atomic32_post(ep, UCT_ATOMIC_OP_XOR, 5, address + 8, bundle.rkey));
    DONE(uct_ep_atomic32_fetch(ep, UCT_ATOMIC_OP_SWAP, 9, &old32, address + 8, bundle.rkey, &comp));
    CHECK(old32 == 5);
    DONE(uct_ep_atomic_cswap32(ep, 1, 2, address + 8, bundle.rkey, &old32, &comp));
    flush();
    CHECK(old32 == 9 && *(uint64_t *)remote.address == 7 && *(uint32_t *)((char *)remote.address + 8) == 9);

    OK(uct_rkey_release(component, &bundle));
    uct_iface_mem_free(&remote);
    OK(uct_md_mem_dereg(md, memh));
    OK(uct_md_mem_dereg(md, from));
    free(packed);
}

/* Requests wait in their order until there is room, and nothing overtakes them. */
static void wait_for_room(void)
{
    request_t requests[2] = {{{on_room, {0}}, 1}, {{on_room, {0}}, 2}};
    static char bytes[SIZE];
    int purged = 0, sent = 0, before = messages;
    ssize_t length;

    IS(UCS_ERR_BUSY, uct_ep_pending_add(ep, &requests[0].super, 0));
    uct_ep_pending_purge(ep, NULL, NULL);
    if (here == there) {
        return;
    }
    while ((length = uct_ep_am_bcopy(ep, ID, pack, bytes, 0)) == (ssize_t)size) {
        CHECK(++sent < 1000000);
    }
    CHECK(length == UCS_ERR_NO_RESOURCE);
    OK(uct_ep_pending_add(ep, &requests[0].super, 0));
    uct_ep_pending_purge(ep, on_purge, &purged);
    CHECK(purged == 1);
    OK(uct_ep_pending_add(ep, &requests[0].super, 0));
    OK(uct_ep_pending_add(ep, &requests[1].super, 0));
    IS(UCS_ERR_NO_RESOURCE, uct_ep_am_short(ep, ID, 0, NULL, 0));
    progress_until(&served, 2);
    progress_until(&messages, before + sent + 2);
    CHECK(order[0] == 1 && order[1] == 2 && message_length == 8);
}

static void wait_for_event(void)
{
    struct pollfd ready = {.events = POLLIN};
    int before = messages, fd;

    if (!(attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_FD)) {
        IS(UCS_ERR_UNSUPPORTED, uct_iface_event_fd_get(there, &fd));
        return;
    }
    flush();
    OK(uct_iface_event_fd_get(there, &ready.fd));
    while (uct_iface_event_arm(there, UCT_EVENT_RECV) == UCS_ERR_BUSY) {
        uct_worker_progress(worker);
    }
    SENT(uct_ep_am_short(ep, ID, 0, NULL, 0));
    CHECK(messages > before || poll(&ready, 1, 60000) == 1);
    progress_until(&messages, before + 1);
}

int main(int argc, char **argv)
{
    ucs_async_context_t *async;

    CHECK(argc == 3);
    IS(UCS_ERR_UNSUPPORTED, ucs_async_context_create(UCS_ASYNC_MODE_SIGNAL, &async));
    OK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    IS(UCS_ERR_UNSUPPORTED, uct_worker_create(async, UCS_THREAD_MODE_MULTI, &worker));
    OK(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker));
    CHECK(!strcmp(ucs_memory_type_names[UCS_MEMORY_TYPE_HOST], "host") && !ucs_memory_type_names[UCS_MEMORY_TYPE_LAST + 1]);
    CHECK(!strcmp(ucs_status_string(UCS_ERR_NO_DEVICE), "no such device") && !strcmp(ucs_status_string((ucs_status_t)-99), "unknown status"));
    find(argv[1], argv[2]);
    here = open_iface(argv[1], argv[2]);
    there = strcmp(argv[1], "self") ? open_iface(argv[1], argv[2]) : here;
    OK(uct_iface_query(here, &attr));
    CHECK(attr.bandwidth.dedicated + attr.bandwidth.shared > 0);
    size = least(attr.cap.am.max_bcopy, least(attr.cap.put.max_bcopy, least(attr.cap.get.max_bcopy, SIZE)));

    if (attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP && here != there) {
        uct_ep_h eps[2];

        connect_eps(eps);
        ep = eps[0];
        peer_ep = eps[1];
    }
    if (attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) {
        uct_ep_destroy(ep);
        ep = connect_to(there);
    }
    send_messages();
    access_memory();
    wait_for_room();
    wait_for_event();

    /* The peer ends: one report, and operations return it. */
    uct_iface_progress_disable(there, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    if (here != there) {
        uct_ep_destroy(peer_ep);
        peer_ep = NULL;
        uct_iface_close(there);
        while (!failures) {
            (void)uct_ep_am_short(ep, ID, 0, NULL, 0);
            uct_worker_progress(worker);
        }
        CHECK(failure < 0 && uct_ep_am_short(ep, ID, 0, NULL, 0) == failure && failures == 1);
    }
    uct_ep_destroy(ep);
    uct_iface_close(here);
    uct_md_close(md);
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
    printf("done\n");
    return 0;
}
