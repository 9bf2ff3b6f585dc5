//! Components: what a plugin offers, and the memory domains that they open.

use core::ffi::c_void;

use crate::{UctCmOps, UctConfig, UctEmitName, UctMd, UctMdOps, UctStatus, UctStr, UctText, UctTlOps};

/// The calls of a component: what a plugin offers under one name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctComponentOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// Name of the component, at most 16 bytes. *Mandatory.*
    pub name: UctStr,
    /// First of `tl_count` transports.
    pub tls: *const *const UctTlOps,
    /// Number of transports; 0 for a component that only has connection managers.
    pub tl_count: usize,
    /// The calls of its memory domains. *Mandatory.*
    pub md_ops: *const UctMdOps,
    /// Lists the memory domains that can be opened here. An error with a reason explains why there are none. *Mandatory.*
    pub query_mds: Option<
        unsafe extern "C" fn(
            config: *const UctConfig,
            emit: UctEmitName,
            context: *mut c_void,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Opens a memory domain by name. *Mandatory.*
    pub md_open: Option<
        unsafe extern "C" fn(
            name: UctStr,
            config: *const UctConfig,
            md: *mut *mut UctMd,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// The calls of its connection managers; null if it has none. Since minor version 2.
    pub cm_ops: *const UctCmOps,
}
