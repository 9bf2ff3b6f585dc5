/* Closes endpoints and the interface from inside of callbacks that they run: closing TRANSPORT DEVICE. */
#include <uct/api/uct.h>

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
#define OK(_call) CHECK((_call) == UCS_OK)

#define ROUNDS 20

static uct_worker_h worker;
static uct_iface_h iface;
static uct_ep_h ep, other;
static void *kept;
static int received, ended;

static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)length;
    received++;
    /* The endpoint that this is sent on, over self; a worker in use stays. */
    uct_ep_destroy(ep);
    uct_ep_destroy(other);
    ep = other = NULL;
    uct_iface_close(iface);
    uct_worker_destroy(worker);
    uct_worker_progress(worker);
    if (flags & UCT_CB_PARAM_FLAG_DESC) {
        kept = data;
        return UCS_INPROGRESS;
    }
    return UCS_OK;
}

static void on_end(uct_completion_t *self)
{
    CHECK(self->count == 0);
    ended++;
}

static ucs_status_t on_room(uct_pending_req_t *self)
{
    (void)self;
    return UCS_OK;
}

static uct_md_h find(const char *transport)
{
    uct_component_h *components;
    unsigned num_components, count;
    uct_md_h md = NULL;

    OK(uct_query_components(&components, &num_components));
    for (unsigned index = 0; index < num_components && !md; ++index) {
        uct_md_resource_desc_t domains[8];
        uct_component_attr_t about = {.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT, .md_resources = domains};
        uct_tl_resource_desc_t *resources;

        OK(uct_component_query(components[index], &about));
        CHECK(about.md_resource_count <= 8);
        about.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        OK(uct_component_query(components[index], &about));
        for (unsigned domain = 0; domain < about.md_resource_count && !md; ++domain) {
            OK(uct_md_open(components[index], domains[domain].md_name, NULL, &md));
            OK(uct_md_query_tl_resources(md, &resources, &count));
            while (count > 0 && strcmp(resources[count - 1].tl_name, transport) != 0) {
                --count;
            }
            uct_release_tl_resource_list(resources);
            if (count == 0) {
                uct_md_close(md);
                md = NULL;
            }
        }
    }
    uct_release_component_list(components);
    return md;
}

int main(int argc, char **argv)
{
    uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
                                 .open_mode = UCT_IFACE_OPEN_MODE_DEVICE};
    static char bytes[100000];
    uct_md_h md;

    CHECK(argc == 3);
    params.mode.device.tl_name = argv[1];
    params.mode.device.dev_name = argv[2];
    md = find(argv[1]);
    CHECK(md);
    OK(uct_worker_create(NULL, UCS_THREAD_MODE_SINGLE, &worker));
    for (int round = 0; round < ROUNDS; ++round) {
        char device[1024], address[1024];
        uct_completion_t comp = {on_end, 1, UCS_OK};
        uct_pending_req_t request = {on_room, {0}};
        uct_ep_params_t ep_params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                     .dev_addr = (uct_device_addr_t *)device,
                                     .iface_addr = (uct_iface_addr_t *)address};
        ucs_status_t status;
        uct_iov_t iov = {bytes, 64, NULL, 0, 1};

        OK(uct_iface_open(md, worker, &params, NULL, &iface));
        OK(uct_iface_set_am_handler(iface, 1, on_message, NULL, 0));
        uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        OK(uct_iface_get_device_address(iface, (uct_device_addr_t *)device));
        OK(uct_iface_get_address(iface, (uct_iface_addr_t *)address));
        ep_params.iface = iface;
        OK(uct_ep_create(&ep_params, &ep));
        OK(uct_ep_create(&ep_params, &other));
        OK(uct_md_mem_reg(md, bytes, sizeof(bytes), UCT_MD_MEM_ACCESS_LOCAL_READ, &iov.memh));
        received = ended = 0;
        /* What is outstanding and what waits when the endpoint ends. */
        status = uct_ep_am_zcopy(other, 2, NULL, 0, &iov, 1, 0, &comp);
        CHECK(status == UCS_OK || status == UCS_INPROGRESS);
        ended = status == UCS_OK;
        uct_ep_pending_add(other, &request, 0);
        while ((status = uct_ep_am_short(ep, 1, 0, bytes, 8)) == UCS_ERR_NO_RESOURCE) {
            uct_worker_progress(worker);
        }
        CHECK(status == UCS_OK);
        while (!received || !ended) {
            uct_worker_progress(worker);
        }
        CHECK(received == 1 && ended == 1 && !ep);
        if (kept) {
            uct_iface_release_desc(kept);
            kept = NULL;
        }
        uct_worker_progress(worker);
        OK(uct_md_mem_dereg(md, iov.memh));
    }
    uct_md_close(md);
    uct_worker_destroy(worker);
    printf("done\n");
    return 0;
}
