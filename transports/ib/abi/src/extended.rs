//! The operations that were added to the classic ones, which programs reach through an open device, and their structures.
//!
//! For providers. A program built for a later version of the library may ask for more than is here, and takes what is missing as not
//! supported.

// The members mean what the manual pages of the same names say.
#![allow(missing_docs, non_camel_case_types)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use crate::structures::*;

/// The value of `ibv_context::abi_compat` in a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// The operations that were added later, in front of the open device. It grows at its beginning: a program takes a member to be there
/// if `sz` covers it, and an operation to be supported if it is not null.
#[repr(C)]
pub struct verbs_context {
    pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub advise_mr: unused_op,
    pub alloc_null_mr: unused_op,
    pub read_counters: unused_op,
    pub attach_counters_point_flow: unused_op,
    pub create_counters: unused_op,
    pub destroy_counters: unused_op,
    pub reg_dm_mr: unused_op,
    pub alloc_dm: unused_op,
    pub free_dm: unused_op,
    pub modify_flow_action_esp: unused_op,
    pub destroy_flow_action: unused_op,
    pub create_flow_action_esp: unused_op,
    pub modify_qp_rate_limit: unused_op,
    pub alloc_parent_domain: unused_op,
    pub dealloc_td: unused_op,
    pub alloc_td: unused_op,
    pub modify_cq: unused_op,
    pub post_srq_ops: unused_op,
    pub destroy_rwq_ind_table: unused_op,
    pub create_rwq_ind_table: unused_op,
    pub destroy_wq: unused_op,
    pub modify_wq: unused_op,
    pub create_wq: unused_op,
    pub query_rt_values: unused_op,
    pub create_cq_ex: unused_op,
    pub private: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub ibv_destroy_flow: unused_op,
    pub _placeholder2: unused_op,
    pub ibv_create_flow: unused_op,
    pub _placeholder1: unused_op,
    pub open_qp: unused_op,
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: unused_op,
    pub create_srq_ex: unused_op,
    pub open_xrcd: unused_op,
    pub close_xrcd: unused_op,
    pub _placeholder3: u64,
    /// How many bytes of this structure there are, counted from its end.
    pub sz: usize,
    pub context: ibv_context,
}

/// What is asked of a device: nothing yet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_query_device_ex_input {
    pub comp_mask: u32,
}

/// What a device can do, with what was added later. A program may know less of it: `query_device_ex` is given its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: ibv_odp_caps,
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_caps: ibv_tso_caps,
    pub rss_caps: ibv_rss_caps,
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: ibv_packet_pacing_caps,
    pub raw_packet_caps: u32,
    pub tm_caps: ibv_tm_caps,
    pub cq_mod_caps: ibv_cq_moderation_caps,
    pub max_dm_size: u64,
    pub pci_atomic_caps: ibv_pci_atomic_caps,
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}

/// Paging on demand.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_odp_caps {
    pub general_caps: u64,
    /// Of RC, UC and UD.
    pub per_transport_caps: [u32; 3],
}

/// Segmentation of TCP by the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_tso_caps {
    pub max_tso: u32,
    pub supported_qpts: u32,
}

/// Distribution of received packets among queues.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_rss_caps {
    pub supported_qpts: u32,
    pub max_rwq_indirection_tables: u32,
    pub max_rwq_indirection_table_size: u32,
    pub rx_hash_fields_mask: u64,
    pub rx_hash_function: u8,
}

/// Limits of rates.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_packet_pacing_caps {
    pub qp_rate_limit_min: u32,
    pub qp_rate_limit_max: u32,
    pub supported_qpts: u32,
}

/// Tag matching by the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_tm_caps {
    pub max_rndv_hdr_size: u32,
    pub max_num_tags: u32,
    pub flags: u32,
    pub max_ops: u32,
    pub max_sge: u32,
}

/// Moderation of completions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_cq_moderation_caps {
    pub max_cq_count: u16,
    pub max_cq_period: u16,
}

/// Atomics over PCI.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_pci_atomic_caps {
    pub fetch_add: u16,
    pub swap: u16,
    pub compare_swap: u16,
}

/// How to create a queue pair, with what was added later.
#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: ibv_rx_hash_conf,
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

/// How received packets are distributed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_rx_hash_conf {
    pub rx_hash_function: u8,
    pub rx_hash_key_len: u8,
    pub rx_hash_key: *mut u8,
    pub rx_hash_fields_mask: u64,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const _: () = {
    assert!(offset_of!(verbs_context, private) == 208);
    assert!(offset_of!(verbs_context, context) == 320);
    assert!(size_of::<verbs_context>() == 648);
};
