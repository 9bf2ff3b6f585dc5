//! What the device does.

use std::ffi::{c_char, c_int, c_uint, c_void};

use uct_ib_abi::*;
use uct_ib_soft::abi;

/// A program calls this function first: warnings of the device go to standard error from here on.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    ucs::log::print_unheard(ucs::log::Directives::parse("warn"));
    // SAFETY: the caller's promise is that of the manual page.
    unsafe { abi::ibv_get_device_list(count) }
}

macro_rules! exported {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $(= $other:ident)?;)*) => {
        $(exported! { @one $(#[$attribute])* $name ($($argument: $type),*) ($($result)?) ($name $($other)?) })*
    };
    (@one $(#[$attribute:meta])* $name:ident $arguments:tt $result:tt ($same:ident $other:ident)) => {
        exported! { @function $(#[$attribute])* $name $arguments $result $other }
    };
    (@one $(#[$attribute:meta])* $name:ident $arguments:tt $result:tt ($same:ident)) => {
        exported! { @function $(#[$attribute])* $name $arguments $result $same }
    };
    (@function $(#[$attribute:meta])* $name:ident ($($argument:ident: $type:ty),*) ($($result:ty)?) $function:ident) => {
        $(#[$attribute])*
        // SAFETY: no other code of this library has the name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // Some have no conditions.
            #[allow(unused_unsafe)]
            // SAFETY: the caller's promises are those of the manual page, and so are those of the function.
            unsafe { abi::$function($($argument),*) }
        }
    };
}

exported! {
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        size: usize
    ) -> c_int = ibv_query_gid_ex;
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        room: usize,
        flags: u32,
        size: usize
    ) -> isize = ibv_query_gid_table;
    fn ibv_query_gid_type(context: *mut ibv_context, port: u8, index: c_uint, kind: *mut c_uint) -> c_int;
    fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int;
    fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(domain: *mut ibv_pd, address: *mut c_void, length: usize, flags: c_int) -> *mut ibv_mr;
    fn ibv_reg_mr_iova(
        domain: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        flags: c_int
    ) -> *mut ibv_mr;
    fn ibv_reg_mr_iova2(
        domain: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        iova: u64,
        flags: u32
    ) -> *mut ibv_mr;
    fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        capacity: c_int,
        cookie: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        queue: *mut *mut ibv_cq,
        cookie: *mut *mut c_void
    ) -> c_int;
    fn ibv_ack_cq_events(queue: *mut ibv_cq, count: u32);
    fn ibv_create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_modify_srq(queue: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    fn ibv_query_srq(queue: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    fn ibv_destroy_srq(queue: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(pair: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_query_qp(
        pair: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init: *mut ibv_qp_init_attr
    ) -> c_int;
    fn ibv_qp_to_qp_ex(pair: *mut ibv_qp) -> *mut c_void;
    fn ibv_query_qp_data_in_order(pair: *mut ibv_qp, operation: c_int, flags: u32) -> c_int;
    fn ibv_destroy_qp(pair: *mut ibv_qp) -> c_int;
    fn ibv_create_ah(domain: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        completion: *const ibv_wc,
        route: *const [u8; 40],
        attr: *mut ibv_ah_attr
    ) -> c_int;
    fn ibv_create_ah_from_wc(
        domain: *mut ibv_pd,
        completion: *const ibv_wc,
        route: *const [u8; 40],
        port: u8
    ) -> *mut ibv_ah;
    fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn ibv_fork_init() -> c_int;
    fn ibv_is_fork_initialized() -> c_int;
    fn ibv_dontfork_range(address: *mut c_void, length: usize) -> c_int;
    fn ibv_dofork_range(address: *mut c_void, length: usize) -> c_int;
    fn ibv_wc_status_str(status: c_int) -> *const c_char;
    fn ibv_event_type_str(event: c_int) -> *const c_char;
    fn ibv_node_type_str(node: c_int) -> *const c_char;
    fn ibv_port_state_str(state: c_int) -> *const c_char;
    fn ibv_get_sysfs_path() -> *const c_char;
    fn ibv_read_sysfs_file(
        directory: *const c_char,
        file: *const c_char,
        place: *mut c_char,
        room: usize
    ) -> c_int;
}
