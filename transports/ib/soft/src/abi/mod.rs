//! The functions of libibverbs on this device, as C calls them.
//!
//! For `uct-ib`, by [`table`], and for the drop-in library, which exports them. The meaning of each is that of the manual page of
//! the same name. All unsafe code towards the caller is here: what C promises by its manual pages is taken as promised.

mod channel;
mod context;
mod convert;
mod device;
mod limits;
mod lookup;
mod memory;
mod objects;
mod queue;
mod queue_pair;
mod sender;
mod unsupported;
mod words;
mod work;

use uct_ib_abi::VerbsTable;

pub use channel::{
    ibv_ack_async_event, ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_get_async_event, ibv_get_cq_event,
};
pub use context::{
    ibv_close_device, ibv_open_device, ibv_query_device, ibv_query_gid, ibv_query_gid_table, ibv_query_pkey,
    ibv_query_port,
};
pub use device::{ibv_free_device_list, ibv_get_device_guid, ibv_get_device_list, ibv_get_device_name};
pub use lookup::{
    ibv_get_device_index, ibv_get_pkey_index, ibv_get_sysfs_path, ibv_query_gid_ex, ibv_query_gid_type,
    ibv_read_sysfs_file,
};
pub use memory::{
    ibv_alloc_pd, ibv_create_ah, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_dofork_range,
    ibv_dontfork_range, ibv_fork_init, ibv_is_fork_initialized, ibv_reg_mr, ibv_reg_mr_iova,
    ibv_reg_mr_iova2,
};
pub use queue::{
    ibv_create_cq, ibv_create_srq, ibv_destroy_cq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq,
};
pub use queue_pair::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
pub use sender::{ibv_create_ah_from_wc, ibv_init_ah_from_wc};
pub use unsupported::{ibv_qp_to_qp_ex, ibv_query_qp_data_in_order, no_object, not_supported};
pub use words::{ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str};

/// The functions of this device, for a caller that goes by a table.
pub fn table() -> &'static VerbsTable {
    static TABLE: VerbsTable = VerbsTable {
        get_device_list: ibv_get_device_list,
        free_device_list: ibv_free_device_list,
        get_device_guid: ibv_get_device_guid,
        open_device: ibv_open_device,
        close_device: ibv_close_device,
        query_device: ibv_query_device,
        query_port: ibv_query_port,
        query_gid: ibv_query_gid,
        query_pkey: ibv_query_pkey,
        alloc_pd: ibv_alloc_pd,
        dealloc_pd: ibv_dealloc_pd,
        reg_mr: ibv_reg_mr,
        dereg_mr: ibv_dereg_mr,
        create_comp_channel: ibv_create_comp_channel,
        destroy_comp_channel: ibv_destroy_comp_channel,
        create_cq: ibv_create_cq,
        destroy_cq: ibv_destroy_cq,
        get_cq_event: ibv_get_cq_event,
        ack_cq_events: ibv_ack_cq_events,
        create_srq: ibv_create_srq,
        modify_srq: ibv_modify_srq,
        destroy_srq: ibv_destroy_srq,
        create_qp: ibv_create_qp,
        query_qp: ibv_query_qp,
        modify_qp: ibv_modify_qp,
        destroy_qp: ibv_destroy_qp,
        create_ah: ibv_create_ah,
        destroy_ah: ibv_destroy_ah,
        get_async_event: ibv_get_async_event,
        ack_async_event: ibv_ack_async_event,
        fork_init: ibv_fork_init,
        is_fork_initialized: Some(ibv_is_fork_initialized),
        query_gid_table: Some(ibv_query_gid_table),
    };
    &TABLE
}
