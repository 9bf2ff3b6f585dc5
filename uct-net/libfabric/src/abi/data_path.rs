//! Messages, tagged messages, remote memory, atomics, and collectives.

use std::ffi::{c_int, c_uint, c_void};

pub use libc::iovec;

use super::table::operations;
use super::*;

#[repr(C)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

operations! {
    fi_ops_msg {
        recv: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
        recvv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> isize;
        recvmsg: fn(*mut fid_ep, *const fi_msg, u64) -> isize;
        send: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
        sendv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> isize;
        sendmsg: fn(*mut fid_ep, *const fi_msg, u64) -> isize;
        inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize;
        senddata: fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, *mut c_void) -> isize;
        injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> isize;
    }
}

#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

operations! {
    fi_ops_tagged {
        recv: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
        recvv: fn(
            *mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void,
        ) -> isize;
        recvmsg: fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
        send: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void) -> isize;
        sendv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, *mut c_void) -> isize;
        sendmsg: fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
        inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize;
        senddata: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, *mut c_void,
        ) -> isize;
        injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> isize;
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

operations! {
    fi_ops_rma {
        read: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
        readv: fn(
            *mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void,
        ) -> isize;
        readmsg: fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize;
        write: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
        writev: fn(
            *mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void,
        ) -> isize;
        writemsg: fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize;
        inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize;
        writedata: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void,
        ) -> isize;
        injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize;
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

#[repr(C)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: c_uint,
    pub op: c_uint,
    pub context: *mut c_void,
    pub data: u64,
}

operations! {
    fi_ops_atomic {
        write: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, c_uint, c_uint, *mut c_void,
        ) -> isize;
        writev: fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, c_uint, c_uint, *mut c_void,
        ) -> isize;
        writemsg: fn(*mut fid_ep, *const fi_msg_atomic, u64) -> isize;
        inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64, c_uint, c_uint) -> isize;
        readwrite: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, c_uint,
            c_uint, *mut c_void,
        ) -> isize;
        readwritev: fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, fi_addr_t,
            u64, u64, c_uint, c_uint, *mut c_void,
        ) -> isize;
        readwritemsg: fn(
            *mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64,
        ) -> isize;
        compwrite: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            fi_addr_t, u64, u64, c_uint, c_uint, *mut c_void,
        ) -> isize;
        compwritev: fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc,
            *mut *mut c_void, usize, fi_addr_t, u64, u64, c_uint, c_uint, *mut c_void,
        ) -> isize;
        compwritemsg: fn(
            *mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc,
            *mut *mut c_void, usize, u64,
        ) -> isize;
        writevalid: fn(*mut fid_ep, c_uint, c_uint, *mut usize) -> c_int;
        readwritevalid: fn(*mut fid_ep, c_uint, c_uint, *mut usize) -> c_int;
        compwritevalid: fn(*mut fid_ep, c_uint, c_uint, *mut usize) -> c_int;
    }
}

operations! {
    /// Not offered; a program may call it nevertheless.
    fi_ops_collective {
        barrier: fn(*mut fid_ep, fi_addr_t, *mut c_void) -> isize;
        broadcast: fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, fi_addr_t, c_uint, u64, *mut c_void,
        ) -> isize;
        alltoall: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_uint, u64,
            *mut c_void,
        ) -> isize;
        allreduce: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_uint, c_uint, u64,
            *mut c_void,
        ) -> isize;
        allgather: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_uint, u64,
            *mut c_void,
        ) -> isize;
        reduce_scatter: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_uint, c_uint, u64,
            *mut c_void,
        ) -> isize;
        reduce: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_uint,
            c_uint, u64, *mut c_void,
        ) -> isize;
        scatter: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_uint,
            u64, *mut c_void,
        ) -> isize;
        gather: fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_uint,
            u64, *mut c_void,
        ) -> isize;
        msg: fn(*mut fid_ep, *const fi_msg_collective, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
        barrier2: fn(*mut fid_ep, fi_addr_t, u64, *mut c_void) -> isize;
    }
}
