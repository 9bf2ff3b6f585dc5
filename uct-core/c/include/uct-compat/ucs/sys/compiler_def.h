/* Macros that the other headers and programs use. */
#ifndef UCT_COMPAT_UCS_COMPILER_DEF_H
#define UCT_COMPAT_UCS_COMPILER_DEF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS }
#else
#define BEGIN_C_DECLS
#define END_C_DECLS
#endif

/* The function or variable that a name of this vocabulary stands for, in libuct-compat.so: its symbols have a prefix of
   their own. */
#define UCTC_SYMBOL(_name) __asm__(#_name)

#define UCS_BIT(_i) (1ul << (_i))
#define UCS_MASK(_i) (((_i) >= 64) ? ~0ul : (UCS_BIT(_i) - 1))
#define UCS_F_ALWAYS_INLINE inline __attribute__((always_inline))
#define UCS_V_UNUSED __attribute__((unused))

#define ucs_likely(_x) __builtin_expect(!!(_x), 1)
#define ucs_unlikely(_x) __builtin_expect(!!(_x), 0)
#define ucs_offsetof(_type, _member) offsetof(_type, _member)
#define ucs_container_of(_ptr, _type, _member) ((_type *)((char *)(_ptr)-offsetof(_type, _member)))

#endif
