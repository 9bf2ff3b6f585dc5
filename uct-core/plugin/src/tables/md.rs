//! The slots of a memory domain.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ucs::{Error, Status};
use uct_abi::{UCT_OK, UctMd, UctMdAttr, UctMdOps, UctMemh, UctRkey, UctStatus, UctText, UctWindow};

use super::bytes;
use crate::failure::Failure;
use crate::guard;
use crate::memory::MemoryAccess;
use crate::traits::Md;

/// The table of a memory domain.
pub struct MdTables<M>(PhantomData<M>);

impl<M: Md> MdTables<M> {
    /// The table.
    pub const OPS: UctMdOps = UctMdOps {
        size: size_of::<UctMdOps>(),
        close: Some(close::<M>),
        query: Some(query::<M>),
        mem_reg: Some(mem_reg::<M>),
        mem_dereg: Some(mem_dereg::<M>),
        mem_alloc: Some(mem_alloc::<M>),
        mem_free: Some(mem_free::<M>),
        mem_advise: Some(mem_advise::<M>),
        mkey_pack: Some(mkey_pack::<M>),
        rkey_unpack: Some(rkey_unpack::<M>),
        rkey_release: Some(rkey_release::<M>),
        rkey_ptr: Some(rkey_ptr::<M>),
        rkey_compare: Some(rkey_compare::<M>),
        rkey_window: Some(rkey_window::<M>),
    };
}

/// # Safety
/// `md` came from `md_open` of the component whose domains are `M`, and is open for `'a`.
unsafe fn domain<'a, M>(md: *mut UctMd) -> &'a M {
    // SAFETY: `md_open` made the pointer with `Arc::into_raw`.
    unsafe { &*md.cast::<M>() }
}

/// # Safety
/// `memh` came from a slot of the domain whose registrations are `M::Memh`, and is live for `'a`.
unsafe fn registration<'a, M: Md>(memh: *mut UctMemh) -> &'a M::Memh {
    // SAFETY: registrations are boxes turned into pointers below.
    unsafe { &*memh.cast::<M::Memh>() }
}

fn answer(result: ucs::Result) -> UctStatus {
    Status::from(result).raw()
}

unsafe extern "C" fn close<M: Md>(md: *mut UctMd) {
    guard::or("close", (), || {
        // SAFETY: `md_open` made the pointer with `Arc::into_raw`, and the host closes once.
        drop(unsafe { Arc::from_raw(md.cast::<M>().cast_const()) });
    });
}

unsafe extern "C" fn query<M: Md>(md: *mut UctMd, attr: *mut UctMdAttr) -> UctStatus {
    guard::status("query", || {
        // SAFETY: the domain is open.
        let attributes = unsafe { domain::<M>(md) }.attributes();
        // SAFETY: `attr` is the host's and contains its size (`UctMdAttr`).
        let room = unsafe { (*attr).size }.min(size_of::<UctMdAttr>());
        // SAFETY: both tables hold `room` bytes, and the first field keeps the host's own size below.
        unsafe { attr.cast::<u8>().copy_from_nonoverlapping((&raw const attributes).cast(), room) };
        // SAFETY: as above.
        unsafe { (*attr).size = room };
        UCT_OK
    })
}

unsafe extern "C" fn mem_reg<M: Md>(
    md: *mut UctMd,
    address: *mut c_void,
    length: usize,
    access: u32,
    memh: *mut *mut UctMemh,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("mem_reg", reason, || {
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            return Failure::new(Error::INVALID_PARAM, "the address to register is null").write(reason);
        };
        // SAFETY: the domain is open.
        let domain = unsafe { domain::<M>(md) };
        // SAFETY: the host keeps the memory valid, and holds no reference to it, until it has deregistered it (`UctMdOps::mem_reg`).
        match unsafe { domain.register(address, length, MemoryAccess::from_bits_truncate(access)) } {
            Ok(made) => {
                let raw = Box::into_raw(Box::new(made)).cast();
                // SAFETY: `memh` is the host's place for the answer.
                unsafe { memh.write(raw) };
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn mem_dereg<M: Md>(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus {
    guard::status("mem_dereg", || {
        // SAFETY: `mem_reg` made the box, and the host deregisters once.
        let memh = unsafe { Box::from_raw(memh.cast::<M::Memh>()) };
        // SAFETY: the domain is open.
        answer(unsafe { domain::<M>(md) }.deregister(*memh))
    })
}

unsafe extern "C" fn mem_alloc<M: Md>(
    md: *mut UctMd,
    length: *mut usize,
    access: u32,
    address: *mut *mut c_void,
    memh: *mut *mut UctMemh,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("mem_alloc", reason, || {
        // SAFETY: `length` is the host's and holds the request.
        let wanted = unsafe { length.read() };
        // SAFETY: the domain is open.
        match unsafe { domain::<M>(md) }.allocate(wanted, MemoryAccess::from_bits_truncate(access)) {
            Ok((start, usable, made)) => {
                // SAFETY: the three places are the host's (`UctMdOps::mem_alloc`).
                unsafe { length.write(usable) };
                // SAFETY: as above.
                unsafe { address.write(start.as_ptr().cast()) };
                let raw = Box::into_raw(Box::new(made)).cast();
                // SAFETY: as above.
                unsafe { memh.write(raw) };
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn mem_free<M: Md>(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus {
    guard::status("mem_free", || {
        // SAFETY: `mem_alloc` made the box, and the host frees once.
        let memh = unsafe { Box::from_raw(memh.cast::<M::Memh>()) };
        // SAFETY: the domain is open.
        answer(unsafe { domain::<M>(md) }.free(*memh))
    })
}

unsafe extern "C" fn mem_advise<M: Md>(
    md: *mut UctMd,
    memh: *mut UctMemh,
    address: *mut c_void,
    length: usize,
    advice: u32,
) -> UctStatus {
    guard::status("mem_advise", || {
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            return Error::INVALID_PARAM.status().raw();
        };
        // SAFETY: the registration is live.
        let memh = unsafe { registration::<M>(memh) };
        // SAFETY: the domain is open.
        answer(unsafe { domain::<M>(md) }.advise(memh, address, length, advice))
    })
}

unsafe extern "C" fn mkey_pack<M: Md>(md: *mut UctMd, memh: *mut UctMemh, buffer: *mut u8) -> UctStatus {
    guard::status("mkey_pack", || {
        // SAFETY: the domain is open.
        let md = unsafe { domain::<M>(md) };
        // SAFETY: the registration is live.
        let memh = unsafe { registration::<M>(memh) };
        let size = md.attributes().rkey_packed_size;
        // SAFETY: the host offers as many bytes as the attributes name, initialised.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, size) };
        answer(md.pack(memh, buffer))
    })
}

unsafe extern "C" fn rkey_unpack<M: Md>(
    md: *mut UctMd,
    buffer: *const u8,
    length: usize,
    rkey: *mut *mut UctRkey,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("rkey_unpack", reason, || {
        // SAFETY: the host's bytes are valid for the call.
        let packed = unsafe { bytes(buffer, length) };
        // SAFETY: the domain is open.
        match unsafe { domain::<M>(md) }.unpack(packed) {
            Ok(key) => {
                let raw = Box::into_raw(Box::new(key)).cast();
                // SAFETY: `rkey` is the host's place for the answer.
                unsafe { rkey.write(raw) };
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn rkey_release<M: Md>(_md: *mut UctMd, rkey: *mut UctRkey) {
    guard::or("rkey_release", (), || {
        // SAFETY: `rkey_unpack` made the box, and the host releases once.
        drop(unsafe { Box::from_raw(rkey.cast::<M::Rkey>()) });
    });
}

/// # Safety
/// `rkey` came from `rkey_unpack` of the domain whose keys are `M::Rkey`, and is live for `'a`.
unsafe fn key<'a, M: Md>(rkey: *mut UctRkey) -> &'a M::Rkey {
    // SAFETY: keys are boxes turned into pointers above.
    unsafe { &*rkey.cast::<M::Rkey>() }
}

unsafe extern "C" fn rkey_ptr<M: Md>(
    md: *mut UctMd,
    rkey: *mut UctRkey,
    remote_address: u64,
    local: *mut *mut c_void,
) -> UctStatus {
    guard::status("rkey_ptr", || {
        // SAFETY: the key is live.
        let rkey = unsafe { key::<M>(rkey) };
        // SAFETY: the domain is open.
        let result = unsafe { domain::<M>(md) }.rkey_ptr(rkey, remote_address);
        answer(result.map(|address| {
            // SAFETY: `local` is the host's place for the answer.
            unsafe { local.write(address.as_ptr().cast()) };
        }))
    })
}

unsafe extern "C" fn rkey_compare<M: Md>(
    md: *mut UctMd,
    left: *mut UctRkey,
    right: *mut UctRkey,
    result: *mut i32,
) -> UctStatus {
    guard::status("rkey_compare", || {
        // SAFETY: the key is live.
        let left = unsafe { key::<M>(left) };
        // SAFETY: the key is live.
        let right = unsafe { key::<M>(right) };
        // SAFETY: the domain is open.
        let order = unsafe { domain::<M>(md) }.compare(left, right);
        answer(order.map(|order| {
            // SAFETY: `result` is the host's place for the answer.
            unsafe { result.write(order as i32) };
        }))
    })
}

unsafe extern "C" fn rkey_window<M: Md>(
    md: *mut UctMd,
    rkey: *mut UctRkey,
    window: *mut UctWindow,
) -> UctStatus {
    guard::status("rkey_window", || {
        // SAFETY: the key is live.
        let rkey = unsafe { key::<M>(rkey) };
        // SAFETY: the domain is open.
        let found = unsafe { domain::<M>(md) }.window(rkey);
        answer(found.map(|found| {
            // SAFETY: `window` is the host's and contains its size (`UctWindow`).
            let room = unsafe { (*window).size }.min(size_of::<UctWindow>());
            // SAFETY: both tables hold `room` bytes, and the first field keeps the host's own size below.
            unsafe {
                window.cast::<u8>().copy_from_nonoverlapping(ptr::from_ref(found.as_raw()).cast(), room)
            };
            // SAFETY: as above.
            unsafe { (*window).size = room };
        }))
    })
}
