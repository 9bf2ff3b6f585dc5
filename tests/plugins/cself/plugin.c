/*
 * A transport in C, whole: `cself` sends a process its own messages. It shows what a plugin needs of uct_abi.h, and the
 * tests compile it, load it and run the conformance suite on it:
 *
 *     cc -std=c11 -shared -fPIC -fvisibility=hidden -I uct-core/abi/include -o libuct_cself.so tests/plugins/cself/{plugin,iface,ep}.c
 *
 * A send copies the message into a queue of the interface; progress takes it out and calls the handler. When the queue is
 * full a send answers UCT_ERR_NO_RESOURCE, and pending requests are served when progress has made room.
 *
 * This file: what the host sees first, from the exported symbol (at the end) up to the memory domain.
 */

#include "cself.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const UctHost *host;

/* Tells this process from all others: the device address. */
uint64_t process_token;

void explain(UctText *reason, const char *words)
{
    size_t length = strlen(words);
    if (reason == NULL)
        return;
    if (length > reason->capacity)
        length = reason->capacity;
    memcpy(reason->data, words, length);
    reason->length = length;
}

bool is(UctStr text, const char *words)
{
    return text.length == strlen(words) && memcmp(text.data, words, text.length) == 0;
}

void say(uint32_t level, const char *file, uint32_t line, const char *words)
{
    UctLogRecord record = {
        .size = sizeof(record),
        .level = level,
        .line = line,
        .target = TEXT("uct_cself"),
        .file = { (const uint8_t *)file, strlen(file) },
        .message = { (const uint8_t *)words, strlen(words) },
    };
    if (level <= host->log_level())
        host->log(&record);
}

/* ---- The memory domain: any memory will do, so a registration is only a token ---- */

static UctStatus md_query(UctMd *md, UctMdAttr *attr)
{
    UctMdAttr known = {
        .size = attr->size,
        .flags = UCT_MD_REG,
        .max_reg = UINT64_MAX,
        .reg_memory_kinds = 1 << UCT_MEMORY_HOST,
    };
    (void)md;
    /* An older host knows less of the table. */
    memcpy(attr, &known, attr->size < sizeof(known) ? attr->size : sizeof(known));
    return UCT_OK;
}

static UctStatus md_reg(UctMd *md, void *address, size_t length, uint32_t access, UctMemh **memh, UctText *reason)
{
    (void)md, (void)address, (void)length, (void)access;
    *memh = malloc(1);
    if (*memh != NULL)
        return UCT_OK;
    explain(reason, "no memory for a registration");
    return UCT_ERR_NO_MEMORY;
}

static UctStatus md_dereg(UctMd *md, UctMemh *memh)
{
    (void)md;
    free(memh);
    return UCT_OK;
}

static void md_close(UctMd *md)
{
    free(md);
}

static const UctMdOps md_ops = {
    .size = sizeof(md_ops),
    .close = md_close,
    .query = md_query,
    .mem_reg = md_reg,
    .mem_dereg = md_dereg,
};

/* ---- Transport, component, plugin ---- */

static UctStatus query_devices(UctMd *md, const UctConfig *config, UctEmitDevice emit, void *context, UctText *reason)
{
    UctDevice device = { .size = sizeof(device), .name = TEXT("memory"), .kind = UCT_DEVICE_SELF, .numa_node = -1 };
    (void)md, (void)config, (void)reason;
    emit(context, &device);
    return UCT_OK;
}

static const UctTlOps transport = {
    .size = sizeof(transport),
    .name = TEXT("cself"),
    .iface_ops = &iface_ops,
    .ep_ops = &ep_ops,
    .query_devices = query_devices,
    .iface_open = iface_open,
};

static UctStatus query_mds(const UctConfig *config, UctEmitName emit, void *context, UctText *reason)
{
    (void)config, (void)reason;
    emit(context, (UctStr)TEXT("cself"));
    return UCT_OK;
}

static UctStatus md_open(UctStr name, const UctConfig *config, UctMd **md, UctText *reason)
{
    (void)config;
    *md = NULL;
    if (!is(name, "cself")) {
        explain(reason, "cself has one memory domain, cself");
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
    .name = TEXT("cself"),
    .tls = transports,
    .tl_count = 1,
    .md_ops = &md_ops,
    .query_mds = query_mds,
    .md_open = md_open,
};

static const UctComponentOps *const components[] = { &component };

static const UctConfigField keys[] = { {
    .name = TEXT("queue_limit"),
    .kind = UCT_CONFIG_UINT,
    .minimum = 1,
    .maximum = 4096,
    .default_text = TEXT("64"),
    .doc = TEXT("Messages that may wait for the receiver before a send finds no resources."),
} };

static const UctConfigSection sections[] = { {
    .name = TEXT("cself"),
    .doc = TEXT("The loopback transport in C."),
    .fields = keys,
    .count = 1,
} };

static UctStatus init(const UctHost *table, UctText *reason)
{
    /* A host that is older than this plugin has a shorter table. */
    if (table->size < offsetof(UctHost, now)) {
        explain(reason, "the host is too old: it has no log_level");
        return UCT_ERR_UNSUPPORTED;
    }
    host = table;
    if (getrandom(&process_token, sizeof(process_token), 0) != (ssize_t)sizeof(process_token)) {
        explain(reason, "the system gives no random number");
        return UCT_ERR_IO_ERROR;
    }
    say(UCT_LOG_DEBUG, __FILE__, __LINE__, "ready");
    return UCT_OK;
}

static const UctPlugin plugin = {
    .magic = UCT_MAGIC,
    .abi_major = UCT_ABI_MAJOR,
    .abi_minor = UCT_ABI_MINOR,
    .size = sizeof(plugin),
    .name = TEXT("cself"),
    .version = TEXT("1.0"),
    .components = components,
    .component_count = 1,
    .config = sections,
    .config_count = 1,
    .init = init,
};

/* The one symbol that the host looks up. */
UCT_PLUGIN_ENTRY(cself)
{
    return &plugin;
}
