/* A set of processors. */
#ifndef UCT_COMPAT_UCS_CPU_SET_H
#define UCT_COMPAT_UCS_CPU_SET_H

#include <string.h>

#define UCS_CPU_SETSIZE 1024

typedef unsigned long ucs_cpu_mask_t;

#define UCS_NCPUBITS (8 * sizeof(ucs_cpu_mask_t))

typedef struct {
    ucs_cpu_mask_t ucs_bits[UCS_CPU_SETSIZE / (8 * sizeof(ucs_cpu_mask_t))];
} ucs_cpu_set_t;

#define UCS_CPU_ZERO(_set) ((void)memset((_set), 0, sizeof(ucs_cpu_set_t)))
#define UCS_CPU_SET(_cpu, _set) ((void)((_set)->ucs_bits[(_cpu) / UCS_NCPUBITS] |= 1ul << ((_cpu) % UCS_NCPUBITS)))
#define UCS_CPU_CLR(_cpu, _set) ((void)((_set)->ucs_bits[(_cpu) / UCS_NCPUBITS] &= ~(1ul << ((_cpu) % UCS_NCPUBITS))))

static inline int ucs_cpu_is_set(int cpu, const ucs_cpu_set_t *set)
{
    return cpu >= 0 && cpu < UCS_CPU_SETSIZE && ((set->ucs_bits[cpu / UCS_NCPUBITS] >> (cpu % UCS_NCPUBITS)) & 1);
}

#endif
