//! The structures and constants of `uct.h`.

#![allow(non_camel_case_types, missing_docs, reason = "uct.h documents them")]

/// The end of an operation. Pointers and handles are numbers here, which have the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct uct_event {
    pub op: u64,
    pub user: u64,
    pub length: u64,
    pub data: u64,
    pub result: u64,
    pub status: i32,
    pub kind: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct uct_block {
    pub local: u64,
    pub remote: u64,
    pub length: u64,
}

pub const UCT_EV_CONNECT: u32 = 1;
pub const UCT_EV_LISTEN: u32 = 2;
pub const UCT_EV_ACCEPT: u32 = 3;
pub const UCT_EV_SEND: u32 = 4;
pub const UCT_EV_RECV: u32 = 5;
pub const UCT_EV_RECV_INTO: u32 = 6;
pub const UCT_EV_CONN_CLOSE: u32 = 7;
pub const UCT_EV_SHARE: u32 = 8;
pub const UCT_EV_SHARED: u32 = 9;
pub const UCT_EV_PUT: u32 = 10;
pub const UCT_EV_GET: u32 = 11;
pub const UCT_EV_FETCH_ADD: u32 = 12;
pub const UCT_EV_FLUSH: u32 = 13;
pub const UCT_EV_PUT_BLOCKS: u32 = 14;
pub const UCT_EV_GET_BLOCKS: u32 = 15;
pub const UCT_EV_NOTIFIED: u32 = 16;
