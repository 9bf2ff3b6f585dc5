/*
 * A plugin that does nothing, and with one of these macros does it wrongly. The tests compile it once for each:
 *
 *     NAME=x                the plugin, its component and its transport are called x; the symbol is uct_plugin_x
 *     TRANSPORT="y"         the transport is called y
 *     CALLS_ITSELF="y"      the plugin is called y
 *     NO_SYMBOL             the function is exported under another name
 *     NULL_TABLE            the exported function answers null
 *     WRONG_MAGIC, MAJOR=n  the table begins wrongly
 *     SIZE=n                the plugin's table says n bytes
 *     OLD_TABLES            the tables of interface and endpoint end early, as an older header had them
 *     NULL_SLOT             a mandatory slot is null
 *     NULL_LIST             a list is null, its count is not
 *     BINARY_NAME           the component's name is not UTF-8
 *     SECTION="y"           it has a configuration section y with one key
 *     BAD_KEY               that key's default is none of what it accepts
 *     REFUSES               init answers an error with a reason
 *     COUNTS                init counts how often it was called, and refuses from the second time on
 *     MISSING_LIBRARY       it calls a function of a library
 */

#include "uct_abi.h"

#include <string.h>

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }
#define QUOTE(name) #name
#define STRING(name) QUOTE(name)
#define JOIN(left, right) left##right
#ifdef NO_SYMBOL
#define SYMBOL(name) JOIN(another_, name)
#else
#define SYMBOL(name) JOIN(uct_plugin_, name)
#endif

#ifndef TRANSPORT
#define TRANSPORT STRING(NAME)
#endif
#ifndef CALLS_ITSELF
#define CALLS_ITSELF STRING(NAME)
#endif
#ifndef MAJOR
#define MAJOR UCT_ABI_MAJOR
#endif
#ifndef SIZE
#define SIZE sizeof(UctPlugin)
#endif

static void md_close(UctMd *md) { (void)md; }
static UctStatus md_query(UctMd *md, UctMdAttr *attr) { (void)md, (void)attr; return UCT_OK; }
static const UctMdOps md_ops = { .size = sizeof(md_ops), .close = md_close, .query = md_query };

static void iface_close(UctIface *iface) { (void)iface; }
static UctStatus iface_query(UctIface *iface, UctIfaceAttr *attr) { (void)iface, (void)attr; return UCT_OK; }
static UctStatus iface_address(UctIface *iface, uint8_t *address) { (void)iface, (void)address; return UCT_OK; }
static uint32_t iface_progress(UctIface *iface) { (void)iface; return 0; }
static UctStatus iface_fence(UctIface *iface, uint32_t flags) { (void)iface, (void)flags; return UCT_OK; }

static UctStatus iface_is_reachable(UctIface *iface, const uint8_t *device, size_t device_length, const uint8_t *address,
                                    size_t address_length, uint32_t scope, UctText *reason)
{
    (void)iface, (void)device, (void)device_length, (void)address, (void)address_length, (void)scope, (void)reason;
    return UCT_ERR_UNREACHABLE;
}

static UctStatus ep_create(UctIface *iface, const UctEpParams *params, UctEp **ep, UctText *reason)
{
    (void)iface, (void)params, (void)ep, (void)reason;
    return UCT_ERR_UNSUPPORTED;
}

static const UctIfaceOps iface_ops = {
#ifdef OLD_TABLES
    .size = offsetof(UctIfaceOps, event_fd),
#else
    .size = sizeof(iface_ops),
#endif
    .close = iface_close,
    .query = iface_query,
    .get_device_address = iface_address,
    .get_address = iface_address,
    .is_reachable = iface_is_reachable,
    .progress = iface_progress,
    .ep_create = ep_create,
    .fence = iface_fence,
};

static UctStatus am_short(UctEp *ep, uint8_t id, uint64_t header, const void *payload, size_t length)
{
    (void)ep, (void)id, (void)header, (void)payload, (void)length;
    return UCT_ERR_NO_RESOURCE;
}

static UctStatus put_short(UctEp *ep, const void *buffer, size_t length, uint64_t remote, UctRkey *rkey)
{
    (void)ep, (void)buffer, (void)length, (void)remote, (void)rkey;
    return UCT_ERR_NO_RESOURCE;
}

#ifndef NULL_SLOT
static void ep_destroy(UctEp *ep) { (void)ep; }
#endif

/* In an old table `put_short` lies behind the end, and must not be called. */
static const UctEpOps ep_ops = {
#ifdef OLD_TABLES
    .size = offsetof(UctEpOps, put_short),
#else
    .size = sizeof(ep_ops),
#endif
#ifndef NULL_SLOT
    .destroy = ep_destroy,
#endif
    .am_short = am_short,
    .put_short = put_short,
};

static UctStatus query_devices(UctMd *md, const UctConfig *config, UctEmitDevice emit, void *context, UctText *reason)
{
    (void)md, (void)config, (void)emit, (void)context, (void)reason;
    return UCT_OK;
}

static UctStatus iface_open(UctMd *md, const UctIfaceParams *params, UctIface **iface, UctText *reason)
{
    (void)md, (void)params, (void)iface, (void)reason;
    return UCT_ERR_UNSUPPORTED;
}

static const UctTlOps transport = {
    .size = sizeof(transport),
    .name = TEXT(TRANSPORT),
    .iface_ops = &iface_ops,
    .ep_ops = &ep_ops,
    .query_devices = query_devices,
    .iface_open = iface_open,
};

static UctStatus query_mds(const UctConfig *config, UctEmitName emit, void *context, UctText *reason)
{
    (void)config, (void)emit, (void)context, (void)reason;
    return UCT_OK;
}

static UctStatus md_open(UctStr name, const UctConfig *config, UctMd **md, UctText *reason)
{
    (void)name, (void)config, (void)md, (void)reason;
    return UCT_ERR_NO_DEVICE;
}

static const UctTlOps *const transports[] = { &transport };

static const UctComponentOps component = {
    .size = sizeof(component),
#ifdef BINARY_NAME
    .name = TEXT("\xff\xfe"),
#else
    .name = TEXT(STRING(NAME)),
#endif
    .tls = transports,
    .tl_count = 1,
    .md_ops = &md_ops,
    .query_mds = query_mds,
    .md_open = md_open,
};

static const UctComponentOps *const components[] = { &component };

#if defined(BAD_KEY) && !defined(SECTION)
#define SECTION "bad"
#endif

#ifdef SECTION
static const UctConfigField keys[] = { {
    .name = TEXT("depth"),
    .kind = UCT_CONFIG_UINT,
    .flags = UCT_CONFIG_SECURITY,
    .minimum = 1,
    .maximum = 10,
#ifdef BAD_KEY
    .default_text = TEXT("eleven"),
#else
    .default_text = TEXT("5"),
#endif
    .doc = TEXT("A number."),
} };
static const UctConfigSection sections[] = { {
    .name = TEXT(SECTION),
    .doc = TEXT("Keys."),
    .fields = keys,
    .count = 1,
} };
#endif

#ifdef MISSING_LIBRARY
int provided_by_a_library(void);
#endif

static UctStatus init(const UctHost *host, UctText *reason)
{
    const char *words = "";
    UctStatus status = UCT_OK;
    (void)host;
#ifdef REFUSES
    words = "there is no such hardware\nin this machine";
    status = UCT_ERR_NO_DEVICE;
#endif
#ifdef COUNTS
    static int calls;
    words = "started twice";
    status = calls++ == 0 ? UCT_OK : UCT_ERR_ALREADY_EXISTS;
#endif
#ifdef MISSING_LIBRARY
    status = provided_by_a_library();
#endif
    reason->length = strlen(words) < reason->capacity ? strlen(words) : reason->capacity;
    memcpy(reason->data, words, reason->length);
    return status;
}

static const UctPlugin plugin = {
#ifdef WRONG_MAGIC
    .magic = UCT_MAGIC + 1,
#else
    .magic = UCT_MAGIC,
#endif
    .abi_major = MAJOR,
    .abi_minor = UCT_ABI_MINOR,
    .size = SIZE,
    .name = TEXT(CALLS_ITSELF),
    .version = TEXT("0.1"),
    .components = components,
    .component_count = 1,
#ifdef SECTION
    .config = sections,
    .config_count = 1,
#endif
#ifdef NULL_LIST
    .config_count = 1,
#endif
    .init = init,
};

const UctPlugin *SYMBOL(NAME)(void);

const UctPlugin *SYMBOL(NAME)(void)
{
#ifdef NULL_TABLE
    (void)&plugin;
    return NULL;
#else
    return &plugin;
#endif
}
