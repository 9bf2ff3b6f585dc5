//! Completion queues, counters and event queues.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::table::operations;
use super::*;

#[repr(C)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: c_uint,
    pub wait_obj: c_uint,
    pub signaling_vector: c_int,
    pub wait_cond: c_uint,
    pub wait_set: *mut fid_wait,
}

/// An entry of the longest format. The shorter formats are its beginnings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// Without the source's address that libfabric 1.20 added at the end.
#[repr(C)]
#[derive(Debug)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

operations! {
    fi_ops_cq {
        read: fn(*mut fid_cq, *mut c_void, usize) -> isize;
        readfrom: fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t) -> isize;
        readerr: fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize;
        sread: fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize;
        sreadfrom: fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t, *const c_void, c_int) -> isize;
        signal: fn(*mut fid_cq) -> c_int;
        strerror: fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }
}

#[repr(C)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *const fi_ops_cntr,
}

#[repr(C)]
pub struct fi_cntr_attr {
    pub events: c_uint,
    pub wait_obj: c_uint,
    pub wait_set: *mut fid_wait,
    pub flags: u64,
}

operations! {
    fi_ops_cntr {
        read: fn(*mut fid_cntr) -> u64;
        readerr: fn(*mut fid_cntr) -> u64;
        add: fn(*mut fid_cntr, u64) -> c_int;
        set: fn(*mut fid_cntr, u64) -> c_int;
        wait: fn(*mut fid_cntr, u64, c_int) -> c_int;
        adderr: fn(*mut fid_cntr, u64) -> c_int;
        seterr: fn(*mut fid_cntr, u64) -> c_int;
    }
}

#[repr(C)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *const fi_ops_eq,
}

#[repr(C)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_uint,
    pub signaling_vector: c_int,
    pub wait_set: *mut fid_wait,
}

#[repr(C)]
pub struct fi_eq_err_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

operations! {
    fi_ops_eq {
        read: fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> isize;
        readerr: fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> isize;
        write: fn(*mut fid_eq, u32, *const c_void, usize, u64) -> isize;
        sread: fn(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> isize;
        strerror: fn(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }
}
