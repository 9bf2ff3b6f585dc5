/* The same under its other name. */
#ifndef UCT_COMPAT_UCS_ASYNC_H
#define UCT_COMPAT_UCS_ASYNC_H

#include <ucs/async/async_fwd.h>

#endif
