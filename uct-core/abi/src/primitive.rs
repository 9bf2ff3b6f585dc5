//! Strings, text sinks, vectors of memory, completions, pending requests.

use core::ffi::c_void;

use crate::{UctMemh, UctStatus};

/// A string: UTF-8, not terminated by zero, owned by the side that passed it, valid for the call unless stated otherwise.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctStr {
    /// First byte; may be null when `length` is 0.
    pub data: *const u8,
    /// Length in bytes.
    pub length: usize,
}

/// A text buffer of the host: a plugin writes the reason of a refusal here. If something can be done about it, that stands at the end, behind
/// ` → ` (a space, U+2192, a space).
#[repr(C)]
pub struct UctText {
    /// Where to write.
    pub data: *mut u8,
    /// How many bytes fit.
    pub capacity: usize,
    /// How many were written; a plugin sets it, never above `capacity`.
    pub length: usize,
}

/// One entry of a gather or scatter list. With `count` > 1, `count` blocks of `length` bytes lie `stride` bytes apart.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctIov {
    /// First byte of the first block.
    pub buffer: *mut c_void,
    /// Bytes in one block.
    pub length: usize,
    /// Registration that covers the blocks; null where the transport needs none.
    pub memh: *mut UctMemh,
    /// Distance in bytes from the start of one block to that of the next; unused when `count` is 1.
    pub stride: usize,
    /// Number of blocks; 0 counts as an empty entry.
    pub count: u32,
}

/// Called when operations end. `count` goes down by one per operation; at zero `func` is called, with the first error kept
/// in `status`. The memory stays valid until then.
#[repr(C)]
pub struct UctCompletion {
    /// Called at zero, from progress only.
    pub func: unsafe extern "C" fn(completion: *mut UctCompletion),
    /// Operations still outstanding.
    pub count: i32,
    /// [`UCT_OK`](crate::UCT_OK) or the first error.
    pub status: UctStatus,
}

/// Bytes of a pending request that belong to the transport while it is queued.
pub const UCT_PENDING_PRIVATE: usize = 40;

/// A request that waits for resources on an endpoint. The memory stays valid until `func` was called and returned
/// [`UCT_OK`](crate::UCT_OK), or until the request was purged.
#[repr(C)]
pub struct UctPendingReq {
    /// Called from progress only. `UCT_OK`: done, forget the request. `UCT_INPROGRESS`: keep it and go on.
    /// Anything else: keep it and stop serving this endpoint for now.
    pub func: unsafe extern "C" fn(request: *mut UctPendingReq) -> UctStatus,
    /// The transport's while the request is queued. In C, copy into and out of it (`memcpy`): other types do not alias it.
    pub reserved: [u64; 5],
}

// The array's length is a plain number because the generator of the C header reads nothing else.
const _: () = assert!(size_of::<[u64; 5]>() == UCT_PENDING_PRIVATE);

/// What a [`UctPack`] returns that has no message.
pub const UCT_PACK_NONE: usize = 0xffff_ffff_ffff_ffff;

// The number is plain because the generator of the C header reads nothing else.
const _: () = assert!(UCT_PACK_NONE == usize::MAX);

/// Packs a message into the transport's buffer and returns its length in bytes. It never writes more than the
/// `max_bcopy` of the operation. A transport calls it at most once for each operation.
///
/// For interfaces with `UCT_IFACE_ATTR_PACK_NONE` it may return [`UCT_PACK_NONE`]: the transport sends nothing, takes its buffer back,
/// and the slot returns `UCT_ERR_INVALID_PARAM`.
pub type UctPack = unsafe extern "C" fn(destination: *mut c_void, argument: *mut c_void) -> usize;

/// Takes the data of a `get_bcopy`; called once, before the completion.
pub type UctUnpack = unsafe extern "C" fn(argument: *mut c_void, data: *const c_void, length: usize);
