/* c + m * x. */
#ifndef UCT_COMPAT_UCS_LINEAR_FUNC_H
#define UCT_COMPAT_UCS_LINEAR_FUNC_H

#include <ucs/sys/compiler_def.h>

typedef struct {
    double c;
    double m;
} ucs_linear_func_t;

static inline ucs_linear_func_t ucs_linear_func_make(double c, double m)
{
    ucs_linear_func_t func;
    func.c = c;
    func.m = m;
    return func;
}

static inline double ucs_linear_func_apply(ucs_linear_func_t func, double x)
{
    return func.c + func.m * x;
}

#endif
