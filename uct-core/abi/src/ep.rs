//! Endpoints.

use core::ffi::c_void;

use crate::{
    UctCmToken, UctCompletion, UctEp, UctGate, UctIov, UctPack, UctPendingReq, UctRkey, UctStatus, UctText,
    UctUnpack,
};

/// How to create an endpoint. Valid for the call, `user` for the life of the endpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctEpParams {
    /// Size of this table in bytes.
    pub size: usize,
    /// Handed to the error handler.
    pub user: *mut c_void,
    /// The peer's device address; null for an endpoint that is connected later with `connect_to_ep`.
    pub device_address: *const u8,
    /// Its length in bytes.
    pub device_address_length: usize,
    /// The peer's interface address; null with a null device address.
    pub iface_address: *const u8,
    /// Its length in bytes.
    pub iface_address_length: usize,
    /// The plugin opens and closes it if its memory domain has windows. Valid until the endpoint is destroyed.
    pub gate: *mut UctGate,
    /// A counter that is odd while the host accesses memory through a window on behalf of the endpoint. The host adds 1 before it
    /// reads `live` ([`UctWindow`](crate::UctWindow)) and 1 after the access, by plain stores of the worker's thread.
    ///
    /// A plugin may open the gate only if it ends registrations like this: change `live`, make a barrier on all processors that
    /// run this process (Linux: membarrier), then wait until a counter that is odd has changed, for as long as the copy of the largest
    /// range takes. Valid until the endpoint is destroyed. Since minor version 1.
    pub accesses: *mut u64,
}

/// Purge callback: called once per queued request, which is no longer queued then.
pub type UctPurge = unsafe extern "C" fn(request: *mut UctPendingReq, argument: *mut c_void);

/// The calls of an endpoint.
///
/// Every operation returns `UCT_OK` (done, buffers free; the completion is not touched), `UCT_INPROGRESS` (zero copy, get, atomics with
/// a result: the completion reports the end), `UCT_ERR_NO_RESOURCE` (nothing happened; the caller makes progress and retries, or
/// calls `pending_add`), or another error (nothing happened), such as `UCT_ERR_INVALID_PARAM` beyond a limit. After the endpoint has
/// failed every operation returns the status of the failure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctEpOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// Destroys. The host has purged the queue of requests, and destroys from inside no other slot. Messages already accepted are still delivered; outstanding completions are called with
    /// `UCT_ERR_CANCELED` if they cannot end otherwise. *Mandatory.*
    pub destroy: Option<unsafe extern "C" fn(ep: *mut UctEp)>,

    /// Sends `header` (8 bytes, native order) and `length` bytes of `payload`, both copied.
    pub am_short: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            id: u8,
            header: u64,
            payload: *const c_void,
            length: usize,
        ) -> UctStatus,
    >,
    /// Sends the gathered bytes of a vector, copied; its first 8 bytes take the place of the header of `am_short`.
    pub am_short_iov:
        Option<unsafe extern "C" fn(ep: *mut UctEp, id: u8, iov: *const UctIov, count: usize) -> UctStatus>,
    /// Sends what `pack` writes into the transport's buffer; returns the packed length or an error.
    pub am_bcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            id: u8,
            pack: UctPack,
            argument: *mut c_void,
            flags: u32,
        ) -> isize,
    >,
    /// Sends `header` (copied) and the memory of the vector, in place.
    pub am_zcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            id: u8,
            header: *const c_void,
            header_length: usize,
            iov: *const UctIov,
            count: usize,
            flags: u32,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,

    /// Writes to remote memory; the bytes are copied.
    pub put_short: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            buffer: *const c_void,
            length: usize,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> UctStatus,
    >,
    /// Writes what `pack` produces to remote memory; returns the packed length or an error.
    pub put_bcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            pack: UctPack,
            argument: *mut c_void,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> isize,
    >,
    /// Writes the memory of the vector to remote memory, in place.
    pub put_zcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            iov: *const UctIov,
            count: usize,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,

    /// Reads remote memory into `buffer`; done when it returns `UCT_OK`.
    pub get_short: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            buffer: *mut c_void,
            length: usize,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> UctStatus,
    >,
    /// Reads remote memory and hands it to `unpack`.
    pub get_bcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            unpack: UctUnpack,
            argument: *mut c_void,
            length: usize,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,
    /// Reads remote memory into the memory of the vector, in place.
    pub get_zcopy: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            iov: *const UctIov,
            count: usize,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,

    /// `UCT_ATOMIC_{ADD,AND,OR,XOR}` without a result, on 4 bytes.
    pub atomic32_post: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            op: u32,
            value: u32,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> UctStatus,
    >,
    /// The same on 8 bytes.
    pub atomic64_post: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            op: u32,
            value: u64,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> UctStatus,
    >,
    /// `UCT_ATOMIC_{ADD,AND,OR,XOR,SWAP}`; the old value is written to `*result`, which stays valid until the completion.
    pub atomic32_fetch: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            op: u32,
            value: u32,
            result: *mut u32,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,
    /// The same on 8 bytes.
    pub atomic64_fetch: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            op: u32,
            value: u64,
            result: *mut u64,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,
    /// Writes `swap` if the remote 4 bytes equal `compare`; the old value is written to `*result`.
    pub atomic32_cswap: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            compare: u32,
            swap: u32,
            result: *mut u32,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,
    /// The same on 8 bytes.
    pub atomic64_cswap: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            compare: u64,
            swap: u64,
            result: *mut u64,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus,
    >,

    /// Queues a request until resources return. `UCT_ERR_BUSY`: they are there, retry now. A send never overtakes a
    /// queued request.
    pub pending_add: Option<unsafe extern "C" fn(ep: *mut UctEp, request: *mut UctPendingReq) -> UctStatus>,
    /// Removes all queued requests, calling `purge` once for each.
    pub pending_purge: Option<unsafe extern "C" fn(ep: *mut UctEp, purge: UctPurge, argument: *mut c_void)>,
    /// As the interface's flush, for one endpoint. `UCT_ERR_NO_RESOURCE` implies that `pending_add` accepts.
    pub flush:
        Option<unsafe extern "C" fn(ep: *mut UctEp, flags: u32, completion: *mut UctCompletion) -> UctStatus>,
    /// Orders operations: later ones are not visible before earlier ones.
    pub fence: Option<unsafe extern "C" fn(ep: *mut UctEp, flags: u32) -> UctStatus>,
    /// Checks whether the peer is alive: `UCT_OK`, `UCT_INPROGRESS` (the completion reports the end), or the error.
    pub check:
        Option<unsafe extern "C" fn(ep: *mut UctEp, flags: u32, completion: *mut UctCompletion) -> UctStatus>,
    /// Writes `ep_addr_len` bytes.
    pub get_address: Option<unsafe extern "C" fn(ep: *mut UctEp, address: *mut u8) -> UctStatus>,
    /// Connects an unconnected endpoint to the peer's endpoint. The addresses are untrusted bytes.
    pub connect_to_ep: Option<
        unsafe extern "C" fn(
            ep: *mut UctEp,
            device_address: *const u8,
            device_address_length: usize,
            ep_address: *const u8,
            ep_address_length: usize,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// What a connection manager of the same device has to know of the endpoint to connect it. Since minor version 2.
    pub cm_token: Option<unsafe extern "C" fn(ep: *mut UctEp, token: *mut UctCmToken) -> UctStatus>,
}
