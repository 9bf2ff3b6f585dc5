//! The layout of every table, as data: a test compares it with the committed `layout.txt`, and a C compiler with the
//! header, so that the boundary is not changed by accident.

use core::mem::{align_of, offset_of, size_of};

use crate::*;

/// One structure: its name, size and alignment in bytes, and the offset of each field.
pub type Layout = (&'static str, usize, usize, &'static [(&'static str, usize)]);

macro_rules! layout {
    ($type:ident { $($field:ident)* }) => {
        (
            stringify!($type),
            size_of::<$type>(),
            align_of::<$type>(),
            &[$((stringify!($field), offset_of!($type, $field))),*],
        )
    };
}

/// Every structure that crosses the boundary.
pub static LAYOUT: &[Layout] = &[
    layout!(UctStr { data length }),
    layout!(UctText { data capacity length }),
    layout!(UctIov { buffer length memh stride count }),
    layout!(UctCompletion { func count status }),
    layout!(UctPendingReq { func reserved }),
    layout!(UctConfigField { name kind flags minimum maximum choices default_text doc }),
    layout!(UctConfigSection { name doc fields count }),
    layout!(UctConfigValue { section name text integer real }),
    layout!(UctConfig { size values count }),
    layout!(UctMdAttr { size flags rkey_packed_size max_reg max_alloc reg_memory_kinds reg_cost reg_growth rkey_cost rkey_map_cost rkey_map_growth }),
    layout!(UctWindow { size base local put_words get_words atomic_words live value }),
    layout!(UctGate { is_open }),
    layout!(UctComponentOps { size name tls tl_count md_ops query_mds md_open cm_ops }),
    layout!(UctMdOps { size close query mem_reg mem_dereg mem_alloc mem_free mem_advise mkey_pack rkey_unpack rkey_release rkey_ptr rkey_compare rkey_window }),
    layout!(UctAmTable { callbacks arguments }),
    layout!(UctAmPlacer { size argument ids begin place end }),
    layout!(UctDevice { size name kind numa_node flags }),
    layout!(UctIfaceParams { size worker device config am_handlers error_handler error_argument rx_headroom flags iface am_placer }),
    layout!(UctOpLimits { max_short max_bcopy min_zcopy max_zcopy opt_zcopy_align align_mtu max_iov max_hdr }),
    layout!(UctAtomicOps { post fetch post_emulated fetch_emulated }),
    layout!(UctFigure { value origin }),
    layout!(UctIfaceAttr { size capabilities emulated events am put get atomic32 atomic64 device_addr_len iface_addr_len ep_addr_len overhead latency latency_growth bandwidth_dedicated bandwidth_shared emulated_round_trips priority max_num_eps flags }),
    layout!(UctTlOps { size name iface_ops ep_ops query_devices iface_open }),
    layout!(UctIfaceOps { size close query get_device_address get_address is_reachable progress ep_create release event_fd event_arm flush fence counters ep_adopt }),
    layout!(UctEpParams { size user device_address device_address_length iface_address iface_address_length gate accesses }),
    layout!(UctEpOps { size destroy am_short am_short_iov am_bcopy am_zcopy put_short put_bcopy put_zcopy get_short get_bcopy get_zcopy atomic32_post atomic64_post atomic32_fetch atomic64_fetch atomic32_cswap atomic64_cswap pending_add pending_purge flush fence check get_address connect_to_ep cm_token }),
    layout!(UctSocketAddress { family port scope_id ip }),
    layout!(UctCmToken { size qp_number has_srq }),
    layout!(UctCmEvent { size kind status user request data length local peer device reason }),
    layout!(UctCmParams { size worker config handler argument }),
    layout!(UctCmAttr { size max_connect_data max_accept_data max_reject_data max_disconnect_data }),
    layout!(UctCmListenParams { size user address backlog }),
    layout!(UctCmConnectParams { size user address source timeout }),
    layout!(UctCmData { size data length token }),
    layout!(UctCmOps { size open close query event_fd progress listen listener_address listener_destroy connect send accept reject notify disconnect ep_addresses ep_destroy diagnose }),
    layout!(UctLogRecord { size level line target file message }),
    layout!(UctHost { size abi_version log log_level now async_add_fd async_modify async_add_timer async_remove async_block async_unblock progress_add progress_remove worker_wake progress_request }),
    layout!(UctPlugin { magic abi_major abi_minor size name version components component_count config config_count init }),
];
