/* What the three files of `cself` share; plugin.c begins with what it is. */

#ifndef CSELF_H
#define CSELF_H

#include "uct_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }

enum {
    MAX_SHORT = 256,
    MAX_BCOPY = 8192,
    MAX_ZCOPY = 65536,
    MAX_HEADER = 256,
    MAX_IOV = 8,
    /* Messages, and pending requests, that one call of progress handles, so that it always returns. */
    BATCH = 16
};

/* A message in the queue, or the mark of a flush. Behind it: the headroom of the receiver, then `length` bytes. */
struct message {
    struct message *next;
    UctCompletion *flush;
    size_t length;
    uint8_t id;
};

struct iface {
    const UctAmTable *handlers;
    size_t headroom;
    uint64_t address;
    struct message *first, **last;
    size_t queued, limit;
    uint64_t sent, received;
    /* Endpoints with pending requests, the next one to be served first, and the one that is being served. */
    struct endpoint *first_waiting, *last_waiting, *serving;
    int event_fd;
    uint32_t armed;
};

struct endpoint {
    struct iface *iface;
    struct endpoint *next_waiting;
    UctPendingReq *first_pending, *last_pending;
};

static inline struct iface *iface_of(UctIface *iface)
{
    return (struct iface *)iface;
}

static inline struct endpoint *endpoint_of(UctEp *ep)
{
    return (struct endpoint *)ep;
}

static inline uint8_t *data_of(struct iface *iface, struct message *message)
{
    return (uint8_t *)(message + 1) + iface->headroom;
}

/* plugin.c */
extern uint64_t process_token;
void explain(UctText *reason, const char *words);
bool is(UctStr text, const char *words);
void say(uint32_t level, const char *file, uint32_t line, const char *words);

/* iface.c */
extern const UctIfaceOps iface_ops;
UctStatus iface_open(UctMd *md, const UctIfaceParams *params, UctIface **handle, UctText *reason);
void enqueue(struct iface *iface, struct message *message, size_t length, uint32_t events);
UctStatus flush_queue(struct iface *iface, uint32_t flags, UctCompletion *completion);

/* ep.c */
extern const UctEpOps ep_ops;
uint32_t serve_pending(struct iface *iface);

#endif
