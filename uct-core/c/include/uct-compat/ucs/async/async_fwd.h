/* Asynchronous contexts. A worker has one of its own, whose mode is that of the configuration (UCT_ASYNC_MODE). */
#ifndef UCT_COMPAT_UCS_ASYNC_FWD_H
#define UCT_COMPAT_UCS_ASYNC_FWD_H

#include <ucs/config/types.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

typedef struct ucs_async_context ucs_async_context_t;

/* UCS_ERR_UNSUPPORTED for UCS_ASYNC_MODE_SIGNAL. */
ucs_status_t ucs_async_context_create(ucs_async_mode_t mode, ucs_async_context_t **async_p)
        UCTC_SYMBOL(uctc_async_context_create);

void ucs_async_context_destroy(ucs_async_context_t *async) UCTC_SYMBOL(uctc_async_context_destroy);

END_C_DECLS

#endif
