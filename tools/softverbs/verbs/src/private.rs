//! What the C library's own drivers import from it, and perftest and UCX with them since they are linked to two of these: libmlx5 and
//! libefa of rdma-core 38 to 64. They are loaded, and find no device of theirs.

use crate::unsupported::refused;

refused! { std::ffi::c_int = not_supported:
    __verbs_log execute_ioctl
    ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
    ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex
    ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm
    ibv_cmd_get_context ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_query_context
    ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq
    ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_rereg_mr ibv_cmd_resize_cq
    ibv_cmd_alloc_dmah ibv_cmd_create_cq_ex2 ibv_cmd_export_dmabuf_fd ibv_cmd_free_dmah ibv_cmd_query_port_speed
    ibv_cmd_reg_mr_ex ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free
    verbs_register_driver_57 verbs_register_driver_59 verbs_register_driver_64
    verbs_init_cq verbs_register_driver_34 verbs_set_ops verbs_uninit_context
}

refused! { *mut std::ffi::c_void = no_object:
    _verbs_init_and_alloc_context verbs_open_device ibv_dmabuf_heap_alloc ibv_dmabuf_heap_cc_shared_init ibv_wr_opcode_str
}

/// Whether objects may end behind their device, for drivers.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
static verbs_allow_disassociate_destroy: bool = false;
