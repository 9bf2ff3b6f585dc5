/* Registration and keys with a mask of parameters. */
#ifndef UCT_COMPAT_UCT_V2_H
#define UCT_COMPAT_UCT_V2_H

#include <uct/api/uct.h>

BEGIN_C_DECLS

typedef enum {
    UCT_MD_MEM_REG_FIELD_FLAGS = UCS_BIT(0),
    UCT_MD_MEM_REG_FIELD_MEM_TYPE = UCS_BIT(3)
} uct_md_mem_reg_field_mask_t;

typedef struct uct_md_mem_reg_params {
    uint64_t field_mask;        /* UCT_MD_MEM_REG_FIELD_*; UCS_ERR_UNSUPPORTED for others */
    uint64_t flags;             /* UCT_MD_MEM_*; 0 without the field */
    ucs_memory_type_t mem_type; /* the host's without the field */
} uct_md_mem_reg_params_t;

typedef enum {
    UCT_MD_MKEY_PACK_FIELD_FLAGS = UCS_BIT(0)
} uct_md_mkey_pack_field_mask_t;

typedef struct uct_md_mkey_pack_params {
    uint64_t field_mask; /* UCT_MD_MKEY_PACK_FIELD_* */
    unsigned flags;      /* UCS_ERR_UNSUPPORTED for any */
} uct_md_mkey_pack_params_t;

/* As uct_md_mem_reg. */
ucs_status_t uct_md_mem_reg_v2(uct_md_h md, void *address, size_t length, const uct_md_mem_reg_params_t *params,
                               uct_mem_h *memh_p) UCTC_SYMBOL(uctc_md_mem_reg_v2);

/* As uct_md_mkey_pack, for a part of a registration: the key is that of all of it. */
ucs_status_t uct_md_mkey_pack_v2(uct_md_h md, uct_mem_h memh, void *address, size_t length,
                                 const uct_md_mkey_pack_params_t *params, void *mkey_buffer)
        UCTC_SYMBOL(uctc_md_mkey_pack_v2);

END_C_DECLS

#endif
