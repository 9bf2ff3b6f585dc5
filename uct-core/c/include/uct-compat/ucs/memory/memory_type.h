/* Kinds of memory. Only the host's can be registered. */
#ifndef UCT_COMPAT_UCS_MEMORY_TYPE_H
#define UCT_COMPAT_UCS_MEMORY_TYPE_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum ucs_memory_type {
    UCS_MEMORY_TYPE_HOST,
    UCS_MEMORY_TYPE_CUDA,
    UCS_MEMORY_TYPE_CUDA_MANAGED,
    UCS_MEMORY_TYPE_ROCM,
    UCS_MEMORY_TYPE_ROCM_MANAGED,
    UCS_MEMORY_TYPE_RDMA,
    UCS_MEMORY_TYPE_ZE_HOST,
    UCS_MEMORY_TYPE_ZE_DEVICE,
    UCS_MEMORY_TYPE_ZE_MANAGED,
    UCS_MEMORY_TYPE_GAUDI,
    UCS_MEMORY_TYPE_LAST,
    UCS_MEMORY_TYPE_UNKNOWN = UCS_MEMORY_TYPE_LAST
} ucs_memory_type_t;

/* The name of each kind, one for UCS_MEMORY_TYPE_LAST, and NULL. */
extern const char *const ucs_memory_type_names[] UCTC_SYMBOL(uctc_memory_type_names);

END_C_DECLS

#endif
