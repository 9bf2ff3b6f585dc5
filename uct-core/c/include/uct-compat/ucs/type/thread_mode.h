/* Which threads may use a worker. */
#ifndef UCT_COMPAT_UCS_THREAD_MODE_H
#define UCT_COMPAT_UCS_THREAD_MODE_H

typedef enum {
    UCS_THREAD_MODE_SINGLE,     /* the thread that made it */
    UCS_THREAD_MODE_SERIALIZED, /* any thread, one at a time */
    UCS_THREAD_MODE_MULTI,      /* several at once: UCS_ERR_UNSUPPORTED */
    UCS_THREAD_MODE_LAST
} ucs_thread_mode_t;

#endif
