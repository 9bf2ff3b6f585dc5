//! The table of verbs functions: that of a libibverbs, or of another provider that fills it with functions of its own.

use std::ffi::{c_int, c_void};

use crate::*;

function_table! {
    /// The functions of libibverbs that transports use. All are called with the meaning of their manual pages.
    ///
    /// The data path (post, poll, request notification) is not here: it goes through the operations of the open
    /// context, as the library's own inline functions do.
    pub struct VerbsTable;
    // SAFETY: the types are those of the manual pages, and tests/functions.rs compares them with the installed header.
    unsafe extern "C" {
        get_device_list: "ibv_get_device_list" fn(*mut c_int) -> *mut *mut ibv_device;
        free_device_list: "ibv_free_device_list" fn(*mut *mut ibv_device);
        get_device_guid: "ibv_get_device_guid" fn(*mut ibv_device) -> u64;
        open_device: "ibv_open_device" fn(*mut ibv_device) -> *mut ibv_context;
        close_device: "ibv_close_device" fn(*mut ibv_context) -> c_int;
        query_device: "ibv_query_device" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        query_port: "ibv_query_port" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        query_gid: "ibv_query_gid" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        query_pkey: "ibv_query_pkey" fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
        alloc_pd: "ibv_alloc_pd" fn(*mut ibv_context) -> *mut ibv_pd;
        dealloc_pd: "ibv_dealloc_pd" fn(*mut ibv_pd) -> c_int;
        reg_mr: "ibv_reg_mr" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        dereg_mr: "ibv_dereg_mr" fn(*mut ibv_mr) -> c_int;
        create_comp_channel: "ibv_create_comp_channel" fn(*mut ibv_context) -> *mut ibv_comp_channel;
        destroy_comp_channel: "ibv_destroy_comp_channel" fn(*mut ibv_comp_channel) -> c_int;
        create_cq: "ibv_create_cq"
            fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        destroy_cq: "ibv_destroy_cq" fn(*mut ibv_cq) -> c_int;
        get_cq_event: "ibv_get_cq_event" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ack_cq_events: "ibv_ack_cq_events" fn(*mut ibv_cq, u32);
        create_srq: "ibv_create_srq" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        modify_srq: "ibv_modify_srq" fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
        destroy_srq: "ibv_destroy_srq" fn(*mut ibv_srq) -> c_int;
        create_qp: "ibv_create_qp" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        query_qp: "ibv_query_qp" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        modify_qp: "ibv_modify_qp" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        destroy_qp: "ibv_destroy_qp" fn(*mut ibv_qp) -> c_int;
        create_ah: "ibv_create_ah" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        destroy_ah: "ibv_destroy_ah" fn(*mut ibv_ah) -> c_int;
        get_async_event: "ibv_get_async_event" fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ack_async_event: "ibv_ack_async_event" fn(*mut ibv_async_event);
        fork_init: "ibv_fork_init" fn() -> c_int;
    }
    optional {
        /// Libraries older than rdma-core 35 do not have it.
        is_fork_initialized: "ibv_is_fork_initialized" fn() -> c_int;
        /// Fills entries of the given size with what is in use of all ports' tables, and returns how many, or an error number below
        /// zero. Libraries older than rdma-core 33 do not have it.
        query_gid_table: "_ibv_query_gid_table"
            fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    }
}
