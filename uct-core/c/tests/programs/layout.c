/* Prints the size of each structure and the place of each field, for the library to compare. */
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>

#include <stdio.h>

#define SIZE(_type) printf(#_type " %zu\n", sizeof(_type))
#define FIELD(_type, _field) printf(#_type "." #_field " %zu\n", offsetof(_type, _field))

int main(void)
{
    SIZE(uct_md_resource_desc_t);
    SIZE(uct_component_attr_t);
    FIELD(uct_component_attr_t, md_resources);
    FIELD(uct_component_attr_t, flags);
    SIZE(uct_tl_resource_desc_t);
    FIELD(uct_tl_resource_desc_t, dev_name);
    FIELD(uct_tl_resource_desc_t, dev_type);
    SIZE(uct_md_attr_t);
    FIELD(uct_md_attr_t, cap.access_mem_types);
    FIELD(uct_md_attr_t, reg_cost);
    FIELD(uct_md_attr_t, rkey_packed_size);
    FIELD(uct_md_attr_t, local_cpus);
    SIZE(uct_rkey_bundle_t);
    FIELD(uct_rkey_bundle_t, handle);
    SIZE(uct_allocated_memory_t);
    FIELD(uct_allocated_memory_t, md);
    FIELD(uct_allocated_memory_t, memh);
    SIZE(uct_md_mem_reg_params_t);
    FIELD(uct_md_mem_reg_params_t, mem_type);
    SIZE(uct_md_mkey_pack_params_t);
    FIELD(uct_md_mkey_pack_params_t, flags);
    SIZE(uct_iface_params_t);
    FIELD(uct_iface_params_t, open_mode);
    FIELD(uct_iface_params_t, mode.device.dev_name);
    FIELD(uct_iface_params_t, rx_headroom);
    FIELD(uct_iface_params_t, err_handler);
    FIELD(uct_iface_params_t, features);
    SIZE(uct_iface_attr_t);
    FIELD(uct_iface_attr_t, cap.get);
    FIELD(uct_iface_attr_t, cap.am.max_hdr);
    FIELD(uct_iface_attr_t, cap.atomic64.fop_flags);
    FIELD(uct_iface_attr_t, cap.event_flags);
    FIELD(uct_iface_attr_t, ep_addr_len);
    FIELD(uct_iface_attr_t, bandwidth);
    FIELD(uct_iface_attr_t, priority);
    FIELD(uct_iface_attr_t, dev_num_paths);
    SIZE(uct_ep_params_t);
    FIELD(uct_ep_params_t, dev_addr);
    FIELD(uct_ep_params_t, iface_addr_length);
    SIZE(uct_iov_t);
    FIELD(uct_iov_t, memh);
    FIELD(uct_iov_t, count);
    SIZE(uct_completion_t);
    FIELD(uct_completion_t, count);
    FIELD(uct_completion_t, status);
    SIZE(uct_pending_req_t);
    FIELD(uct_pending_req_t, priv);
    return 0;
}
