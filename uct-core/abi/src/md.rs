//! Memory domains, and direct access of the host to their memory.

use core::ffi::c_void;

use crate::{UctMd, UctMemh, UctRkey, UctStatus, UctStr, UctText};

/// The part of a key's memory that is mapped in this process. The host reads and writes it, in aligned words and in ranges of
/// bytes within them, without calling the plugin while the endpoint's [`UctGate`] is open, and counts each access (`UctEpParams::accesses`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctWindow {
    /// Size of this table in bytes, set by the caller.
    pub size: usize,
    /// First remote address; a multiple of 8.
    pub base: u64,
    /// Where `base` is mapped in this process; a multiple of 8.
    pub local: *mut u64,
    /// Aligned words of 8 bytes, from `base` on, that put may write.
    pub put_words: u64,
    /// Aligned words that get may read.
    pub get_words: u64,
    /// Aligned words that atomics may change.
    pub atomic_words: u64,
    /// A word that holds `value` while the memory may be accessed. Read with acquire ahead of each access; valid until the
    /// key is released.
    pub live: *const u64,
    /// What `live` holds while the memory may be accessed.
    pub value: u64,
}

/// Whether the host may access memory on behalf of an endpoint through the windows of its domain's keys. Owned by the host.
#[repr(C)]
pub struct UctGate {
    /// 1 while such an access may proceed at once; 0 at first, and while the endpoint is not connected, has failed, or holds
    /// operations back. The plugin sets it, in the worker's thread only.
    pub is_open: u32,
}

/// Takes one name of a list.
pub type UctEmitName = unsafe extern "C" fn(context: *mut c_void, name: UctStr);

/// Memory domain flag: memory can be registered.
pub const UCT_MD_REG: u64 = 1 << 0;
/// Memory domain flag: memory can be allocated.
pub const UCT_MD_ALLOC: u64 = 1 << 1;
/// Memory domain flag: zero-copy operations need a registration of the local memory.
pub const UCT_MD_NEED_MEMH: u64 = 1 << 2;
/// Memory domain flag: remote access needs a remote key.
pub const UCT_MD_NEED_RKEY: u64 = 1 << 3;
/// Memory domain flag: `advise` works.
pub const UCT_MD_ADVISE: u64 = 1 << 4;
/// Memory domain flag: `rkey_ptr` works for memory that this domain allocated.
pub const UCT_MD_RKEY_PTR: u64 = 1 << 5;

/// What a memory domain can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctMdAttr {
    /// Size of this table in bytes, set by the caller.
    pub size: usize,
    /// `UCT_MD_*` flags.
    pub flags: u64,
    /// Bytes of a packed memory key.
    pub rkey_packed_size: usize,
    /// Largest region that can be registered, in bytes.
    pub max_reg: u64,
    /// Largest region that can be allocated, in bytes.
    pub max_alloc: u64,
    /// Bit set of memory kinds that can be registered (bit 0 = host).
    pub reg_memory_kinds: u64,
    /// Seconds that a registration takes, whatever its size.
    pub reg_cost: f64,
    /// Seconds per registered byte.
    pub reg_growth: f64,
    /// Seconds that it takes to unpack a key, use it for one operation, and release it, beside the operation with a key that is kept. The
    /// memory is one that another key was used to a moment ago. *Since 1.5.*
    pub rkey_cost: f64,
    /// Seconds that the first operation takes in addition where no key to the memory was used for a while, whatever its size. *Since 1.5.*
    pub rkey_map_cost: f64,
    /// Seconds per accessed byte of that first operation. *Since 1.5.*
    pub rkey_map_growth: f64,
}

/// The calls of a memory domain. Any thread may call them, several at once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctMdOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// Closes; interfaces, registrations and keys of it are gone by then. *Mandatory.*
    pub close: Option<unsafe extern "C" fn(md: *mut UctMd)>,
    /// Fills `attr`, whose `size` is how much of it the host knows. *Mandatory.*
    pub query: Option<unsafe extern "C" fn(md: *mut UctMd, attr: *mut UctMdAttr) -> UctStatus>,
    /// Registers `length` bytes at `address` for `UCT_MD_ACCESS_*`. The memory stays valid until deregistered.
    pub mem_reg: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            address: *mut c_void,
            length: usize,
            access: u32,
            memh: *mut *mut UctMemh,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Ends a registration. The host ensures that no operation uses it as local memory any more. Peers, and other threads with keys to it,
    /// may access the memory until this returns, and not afterwards: it waits for accesses in flight. After an error the host does not free
    /// it.
    pub mem_dereg: Option<unsafe extern "C" fn(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus>,
    /// Allocates and registers at least `*length` bytes; sets `length` to what is usable. The memory is zeroed.
    pub mem_alloc: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            length: *mut usize,
            access: u32,
            address: *mut *mut c_void,
            memh: *mut *mut UctMemh,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Frees memory of `mem_alloc`. `UCT_ERR_BUSY` as in `mem_dereg`: the plugin keeps the memory.
    pub mem_free: Option<unsafe extern "C" fn(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus>,
    /// Advises about the use of a part of a registration (`UCT_ADVICE_*`).
    pub mem_advise: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            memh: *mut UctMemh,
            address: *mut c_void,
            length: usize,
            advice: u32,
        ) -> UctStatus,
    >,
    /// Writes `rkey_packed_size` bytes that let a peer reach the registration.
    pub mkey_pack:
        Option<unsafe extern "C" fn(md: *mut UctMd, memh: *mut UctMemh, buffer: *mut u8) -> UctStatus>,
    /// Turns packed bytes into a key. Bytes that are not a key of this kind are `UCT_ERR_INVALID_PARAM`.
    pub rkey_unpack: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            buffer: *const u8,
            length: usize,
            rkey: *mut *mut UctRkey,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Frees a key.
    pub rkey_release: Option<unsafe extern "C" fn(md: *mut UctMd, rkey: *mut UctRkey)>,
    /// The local address of remote memory, where it is directly reachable.
    pub rkey_ptr: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            rkey: *mut UctRkey,
            remote_address: u64,
            local: *mut *mut c_void,
        ) -> UctStatus,
    >,
    /// Orders two keys: `result` is negative, zero or positive.
    pub rkey_compare: Option<
        unsafe extern "C" fn(
            md: *mut UctMd,
            left: *mut UctRkey,
            right: *mut UctRkey,
            result: *mut i32,
        ) -> UctStatus,
    >,
    /// Fills `window`, whose `size` is how much of it the host knows. `UCT_ERR_UNSUPPORTED`: the memory never lies in
    /// this process. `UCT_ERR_NO_RESOURCE`: it does not yet, and may after an operation with the key. What was returned
    /// holds until the key is released.
    pub rkey_window:
        Option<unsafe extern "C" fn(md: *mut UctMd, rkey: *mut UctRkey, window: *mut UctWindow) -> UctStatus>,
}
