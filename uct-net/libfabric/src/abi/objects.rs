//! What a program holds: fabric, domain, endpoint, address vector, memory region.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::table::operations;
use super::*;

pub type fi_addr_t = u64;

/// The head of every object.
#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

operations! {
    /// What every object answers.
    fi_ops {
        close: fn(*mut fid) -> c_int;
        bind: fn(*mut fid, *mut fid, u64) -> c_int;
        control: fn(*mut fid, c_int, *mut c_void) -> c_int;
        ops_open: fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
        tostr: fn(*const fid, *mut c_char, usize) -> c_int;
        ops_set: fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
    }
}

#[repr(C)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

operations! {
    fi_ops_fabric {
        domain: fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int;
        passive_ep: fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int;
        eq_open: fn(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int;
        wait_open: fn(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
        trywait: fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int;
        domain2: fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int;
    }
}

#[repr(C)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

operations! {
    fi_ops_domain {
        av_open: fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int;
        cq_open: fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int;
        endpoint: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
        scalable_ep: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
        cntr_open: fn(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int;
        poll_open: fn(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int;
        stx_ctx: fn(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
        srx_ctx: fn(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
        query_atomic: fn(*mut fid_domain, c_uint, c_uint, *mut fi_atomic_attr, u64) -> c_int;
        query_collective: fn(*mut fid_domain, c_uint, *mut fi_collective_attr, u64) -> c_int;
        endpoint2: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int;
    }
}

/// Objects and attributes that this provider does not offer, and only points to.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}
opaque! {
    fid_pep fid_wait fid_poll fid_stx fid_mc fid_av_set fi_wait_attr fi_poll_attr fi_av_set_attr
    fi_collective_attr fi_msg_collective
}

#[repr(C)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// Without the device that libfabric has behind `iface`.
#[repr(C)]
pub struct fi_mr_attr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_uint,
}

operations! {
    fi_ops_mr {
        reg: fn(*mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regv: fn(*mut fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regattr: fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int;
    }
}

#[repr(C)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
pub struct fi_av_attr {
    pub r#type: c_uint,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

operations! {
    fi_ops_av {
        insert: fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int;
        insertsvc: fn(*mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void) -> c_int;
        insertsym: fn(
            *mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64, *mut c_void,
        ) -> c_int;
        remove: fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int;
        lookup: fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int;
        straddr: fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char;
        av_set: fn(*mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void) -> c_int;
    }
}

#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const fi_ops_collective,
}

operations! {
    fi_ops_ep {
        cancel: fn(*mut fid, *mut c_void) -> isize;
        getopt: fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int;
        setopt: fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int;
        tx_ctx: fn(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
        rx_ctx: fn(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
        rx_size_left: fn(*mut fid_ep) -> isize;
        tx_size_left: fn(*mut fid_ep) -> isize;
    }
}

operations! {
    fi_ops_cm {
        setname: fn(*mut fid, *mut c_void, usize) -> c_int;
        getname: fn(*mut fid, *mut c_void, *mut usize) -> c_int;
        getpeer: fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
        connect: fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
        listen: fn(*mut fid_pep) -> c_int;
        accept: fn(*mut fid_ep, *const c_void, usize) -> c_int;
        reject: fn(*mut fid_pep, *mut fid, *const c_void, usize) -> c_int;
        shutdown: fn(*mut fid_ep, u64) -> c_int;
        join: fn(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
    }
}
