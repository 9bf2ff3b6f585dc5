//! The one table of functions of librdmacm, filled at run time. Built on [`uct_ib::library`].

use std::ffi::{c_int, c_uint, c_void};

use libc::sockaddr;
use once_cell::sync::OnceCell;
use uct_ib::function_table;
use uct_ib::library::Library;

use super::abi::*;
use super::error::CmError;

/// The file names that are tried, in this order.
const LIBRARY_NAMES: &[&str] = &["librdmacm.so.1"];

function_table! {
    /// The functions of librdmacm that this crate uses. All are called with the meaning of their manual pages.
    pub struct CmTable;
    // SAFETY: the types are those of the installed header: tests/cm_abi.rs compares them.
    unsafe extern "C" {
        create_event_channel: "rdma_create_event_channel" fn() -> *mut rdma_event_channel;
        destroy_event_channel: "rdma_destroy_event_channel" fn(*mut rdma_event_channel);
        get_cm_event: "rdma_get_cm_event" fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        ack_cm_event: "rdma_ack_cm_event" fn(*mut rdma_cm_event) -> c_int;
        create_id: "rdma_create_id"
            fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
        destroy_id: "rdma_destroy_id" fn(*mut rdma_cm_id) -> c_int;
        migrate_id: "rdma_migrate_id" fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        set_option: "rdma_set_option" fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        bind_addr: "rdma_bind_addr" fn(*mut rdma_cm_id, *mut sockaddr) -> c_int;
        resolve_addr: "rdma_resolve_addr" fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        resolve_route: "rdma_resolve_route" fn(*mut rdma_cm_id, c_int) -> c_int;
        listen: "rdma_listen" fn(*mut rdma_cm_id, c_int) -> c_int;
        connect: "rdma_connect" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        accept: "rdma_accept" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        reject: "rdma_reject" fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        disconnect: "rdma_disconnect" fn(*mut rdma_cm_id) -> c_int;
        establish: "rdma_establish" fn(*mut rdma_cm_id) -> c_int;
        init_qp_attr: "rdma_init_qp_attr" fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    }
}

/// The table of the system's librdmacm, loaded on first use and kept for the life of the process.
///
/// A failure is not kept: the next caller tries again.
///
/// # Errors
/// [`CmError::LibraryMissing`] names the package that has the library; [`CmError::LibrarySymbol`] names a function that the
/// library found does not have.
pub fn load() -> Result<&'static CmTable, CmError> {
    static TABLE: OnceCell<&'static CmTable> = OnceCell::new();
    TABLE.get_or_try_init(|| load_from(LIBRARY_NAMES)).copied()
}

/// As [`load`], from libraries of these names, and without keeping the outcome.
///
/// # Errors
/// As for [`load`].
pub fn load_from(names: &[&str]) -> Result<&'static CmTable, CmError> {
    // SAFETY: the initialisers of librdmacm and of libibverbs are written for being loaded late, and start no thread.
    let library = unsafe { Library::open(names)? };
    ucs::log::debug!(library = library.name(), "loaded");
    Ok(Box::leak(Box::new(CmTable::of(&library)?)))
}
