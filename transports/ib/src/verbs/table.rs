//! The one table of verbs functions, and the loader that fills it from libibverbs at run time.
//!
//! For every object in `verbs/`, which calls the library only through this table. Built on `libloading`.
//! Another provider (for example a fake that injects faults) can fill its own table and use the same objects.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use once_cell::sync::OnceCell;

use super::abi::*;
use crate::error::IbError;

/// The file names that are tried, in this order.
const LIBRARY_NAMES: &[&str] = &["libibverbs.so.1"];

/// Fills entries of the given size with what is in use of all ports' tables, and answers how many, or an error number
/// below zero.
pub type QueryGidTable =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;

/// A device list that holds nothing is allowed; a table that lacks a function is not.
macro_rules! verbs_table {
    ($($(#[$doc:meta])* $field:ident: $symbol:literal fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of libibverbs that this crate uses. All are called with the meaning of their manual pages.
        ///
        /// The data path (post, poll, request notification) is not here: it goes through the operations of the open
        /// context, as the library's own inline functions do.
        #[allow(missing_docs)]
        pub struct VerbsTable {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            /// `ibv_is_fork_initialized`, which libraries older than rdma-core 35 do not have.
            pub is_fork_initialized: Option<unsafe extern "C" fn() -> c_int>,
            /// `_ibv_query_gid_table`, which libraries older than rdma-core 33 do not have.
            pub query_gid_table: Option<QueryGidTable>,
            /// The provider of the table, for messages: a library's file name or a fake's name.
            pub provider: String,
        }

        impl VerbsTable {
            fn from_library(library: &Library, name: &str) -> Result<Self, IbError> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the one that libibverbs's manual pages give for this symbol, checked
                        // against the header by tests/abi_layout.rs. The library stays loaded for the life of the
                        // process: `load` leaks it.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>(
                                concat!($symbol, "\0").as_bytes(),
                            )
                        };
                        *symbol.map_err(|error| IbError::LibrarySymbol {
                            library: name.to_owned(),
                            symbol: $symbol,
                            reason: innermost(&error),
                        })?
                    },)*
                    is_fork_initialized: {
                        // SAFETY: as for the functions above.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn() -> c_int>(b"ibv_is_fork_initialized\0")
                        };
                        symbol.ok().map(|symbol| *symbol)
                    },
                    query_gid_table: {
                        // SAFETY: as for the functions above.
                        let symbol = unsafe { library.get::<QueryGidTable>(b"_ibv_query_gid_table\0") };
                        symbol.ok().map(|symbol| *symbol)
                    },
                    provider: name.to_owned(),
                })
            }

            /// Name, arguments and result of every function in the table, as written here, for the check against the C header.
            pub const SIGNATURES: &'static [(&'static str, &'static [&'static str], &'static str)] = &[
                $(($symbol, &[$(stringify!($arg)),*], concat!($(stringify!($ret))?))),*
            ];
        }
    };
}

verbs_table! {
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

/// The table of the system's libibverbs, loaded on first use and kept for the life of the process.
///
/// A failure is not kept: the next caller tries again.
///
/// # Errors
/// [`IbError::LibraryMissing`] says what was tried and which package has it; [`IbError::LibrarySymbol`] names a function
/// that the library found does not have.
pub fn load() -> Result<&'static VerbsTable, IbError> {
    static TABLE: OnceCell<&'static VerbsTable> = OnceCell::new();
    TABLE.get_or_try_init(|| load_from(LIBRARY_NAMES)).copied()
}

/// As [`load`], from libraries of these names, and without keeping the outcome.
///
/// # Errors
/// As for [`load`].
pub fn load_from(names: &[&str]) -> Result<&'static VerbsTable, IbError> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: loading runs the initialisers of libibverbs and of the libraries that it needs. They are written for
        // being loaded late (every user of dlopen does it), and start no thread and install no signal handler.
        match unsafe { Library::open(Some(*name), RTLD_LAZY | RTLD_LOCAL) } {
            Ok(library) => {
                // Never unloaded: providers keep thread-local state and open files.
                let library = Box::leak(Box::new(library));
                let table = VerbsTable::from_library(library, name)?;
                tracing::debug!(library = name, "loaded the verbs library");
                return Ok(Box::leak(Box::new(table)));
            }
            Err(error) => reasons.push(innermost(&error)),
        }
    }
    Err(IbError::LibraryMissing { reason: reasons.join("; ") })
}

/// What the system's loader said: libloading wraps it.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}
