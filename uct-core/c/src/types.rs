//! The structures of the headers that this crate fills and reads; a test compares them. Vectors, completions and
//! pending requests are those of the boundary.

#![allow(missing_docs, reason = "the headers say what they mean")]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use uct_abi::{UctCompletion, UctIov, UctPendingReq};

/// `uct_am_callback_t`.
pub type AmCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_uint) -> c_int;
/// `uct_error_handler_t`.
pub type ErrorHandler = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int;
/// `uct_pack_callback_t`.
pub type PackCallback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> usize;
/// `uct_unpack_callback_t`.
pub type UnpackCallback = unsafe extern "C" fn(*mut c_void, *const c_void, usize);
/// `uct_pending_purge_callback_t`.
pub type PurgeCallback = unsafe extern "C" fn(*mut UctPendingReq, *mut c_void);

pub const COMPONENT_NAME_MAX: usize = 24;
pub const MD_NAME_MAX: usize = 40;
pub const TL_NAME_MAX: usize = 16;
pub const DEVICE_NAME_MAX: usize = 40;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MdResourceDesc {
    pub md_name: [c_char; MD_NAME_MAX],
}

#[repr(C)]
pub struct ComponentAttr {
    pub field_mask: u64,
    pub name: [c_char; COMPONENT_NAME_MAX],
    pub md_resource_count: c_uint,
    pub md_resources: *mut MdResourceDesc,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TlResourceDesc {
    pub tl_name: [c_char; TL_NAME_MAX],
    pub dev_name: [c_char; DEVICE_NAME_MAX],
    pub dev_type: c_uint,
}

#[repr(C)]
pub struct LinearFunc {
    pub c: f64,
    pub m: f64,
}

#[repr(C)]
pub struct CpuSet {
    pub bits: [u64; 16],
}

#[repr(C)]
pub struct MdCap {
    pub max_alloc: u64,
    pub max_reg: usize,
    pub flags: u64,
    pub reg_mem_types: u64,
    pub detect_mem_types: u64,
    pub alloc_mem_types: u64,
    pub access_mem_types: u64,
}

#[repr(C)]
pub struct MdAttr {
    pub cap: MdCap,
    pub reg_cost: LinearFunc,
    pub component_name: [c_char; COMPONENT_NAME_MAX],
    pub rkey_packed_size: usize,
    pub local_cpus: CpuSet,
}

#[repr(C)]
pub struct RkeyBundle {
    pub rkey: usize,
    pub handle: *mut c_void,
    pub type_: *mut c_void,
}

#[repr(C)]
pub struct AllocatedMemory {
    pub address: *mut c_void,
    pub length: usize,
    pub method: c_uint,
    pub mem_type: c_uint,
    pub md: *const c_void,
    pub memh: *mut c_void,
}

#[repr(C)]
pub struct MemRegParams {
    pub field_mask: u64,
    pub flags: u64,
    pub mem_type: c_uint,
}

#[repr(C)]
pub struct MkeyPackParams {
    pub field_mask: u64,
    pub flags: c_uint,
}

#[repr(C)]
pub struct IfaceParams {
    pub field_mask: u64,
    pub cpu_mask: CpuSet,
    pub open_mode: u64,
    pub tl_name: *const c_char,
    pub dev_name: *const c_char,
    pub stats_root: *mut c_void,
    pub rx_headroom: usize,
    pub err_handler_arg: *mut c_void,
    pub err_handler: Option<ErrorHandler>,
    pub err_handler_flags: u32,
    pub features: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct RmaCap {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub min_zcopy: usize,
    pub max_zcopy: usize,
    pub opt_zcopy_align: usize,
    pub align_mtu: usize,
    pub max_iov: usize,
}

#[repr(C)]
#[derive(Default)]
pub struct AmCap {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub min_zcopy: usize,
    pub max_zcopy: usize,
    pub opt_zcopy_align: usize,
    pub align_mtu: usize,
    pub max_hdr: usize,
    pub max_iov: usize,
}

#[repr(C)]
pub struct AtomicCap {
    pub op_flags: u64,
    pub fop_flags: u64,
}

#[repr(C)]
pub struct IfaceCap {
    pub put: RmaCap,
    pub get: RmaCap,
    pub am: AmCap,
    pub atomic32: AtomicCap,
    pub atomic64: AtomicCap,
    pub flags: u64,
    pub event_flags: u64,
}

#[repr(C)]
pub struct PpnBandwidth {
    pub dedicated: f64,
    pub shared: f64,
}

#[repr(C)]
pub struct IfaceAttr {
    pub cap: IfaceCap,
    pub device_addr_len: usize,
    pub iface_addr_len: usize,
    pub ep_addr_len: usize,
    pub max_conn_priv: usize,
    pub overhead: f64,
    pub bandwidth: PpnBandwidth,
    pub latency: LinearFunc,
    pub priority: u8,
    pub max_num_eps: usize,
    pub dev_num_paths: c_uint,
}

#[repr(C)]
pub struct EpParams {
    pub field_mask: u64,
    pub iface: *const c_void,
    pub user_data: *mut c_void,
    pub dev_addr: *const u8,
    pub iface_addr: *const u8,
    pub path_index: c_uint,
    pub dev_addr_length: usize,
    pub iface_addr_length: usize,
}
