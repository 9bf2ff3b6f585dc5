//! Protection domains, registered memory, address handles, and what forking needs.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use uct_ib_abi::*;

use super::convert;
use super::objects::{Ah, Mr, Pd, admit, borrow, context, give, refused, take_back};
use crate::engine::{Access, Verb};

/// See `ibv_alloc_pd(3)`.
///
/// # Safety
/// The context is open.
pub unsafe extern "C" fn ibv_alloc_pd(pointer: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's promise.
    let driver = unsafe { context(pointer) }.driver.clone();
    if let Err(number) = admit(&driver, Verb::AllocPd) {
        return refused(number);
    }
    let id = driver.lock().device.alloc_pd();
    give(Pd { public: ibv_pd { context: pointer, handle: id.0 as u32 }, driver, id })
}

/// See `ibv_dealloc_pd(3)`.
///
/// # Safety
/// The domain is one of [`ibv_alloc_pd`], and nobody uses it later if this succeeds.
pub unsafe extern "C" fn ibv_dealloc_pd(pointer: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's promise.
    let pd = unsafe { borrow::<Pd>(pointer) };
    let outcome = convert::outcome(pd.driver.lock().device.dealloc_pd(pd.id));
    if outcome == 0 {
        // SAFETY: as above.
        drop(unsafe { take_back::<Pd>(pointer) });
    }
    outcome
}

/// Has every page of the memory there, as pinning by an adapter has.
///
/// # Safety
/// The memory is the caller's, who lets the device write to it if `access` says so.
unsafe fn populate(address: *mut c_void, length: usize, access: Access) -> Result<(), c_int> {
    let before = address.addr() % rustix::param::page_size();
    let begin = address.wrapping_byte_sub(before);
    let advice = if access.contains(Access::LOCAL_WRITE) {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    // SAFETY: the pages are those of the caller's memory, whose contents this does not change.
    match unsafe { madvise(begin, length + before, advice) } {
        // Linux before 5.14 does not know it: pages come as they are used.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(if error == Errno::NOMEM { libc::EFAULT } else { error.raw_os_error() }),
    }
}

/// See `ibv_reg_mr(3)`. The pages are there behind it, and not pinned: the process and the device share them.
///
/// # Safety
/// The domain lives; the memory is valid until it is deregistered.
pub unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    flags: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    let pd = unsafe { borrow::<Pd>(domain) };
    if flags & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND) != 0 {
        return refused(libc::EOPNOTSUPP);
    }
    if let Err(number) = admit(&pd.driver, Verb::RegisterMemory) {
        return refused(number);
    }
    let begin = address.expose_provenance() as u64;
    let access = convert::access(flags);
    if length > 0 {
        // SAFETY: the caller's promise.
        if let Err(number) = unsafe { populate(address, length, access) } {
            return refused(number);
        }
    }
    let mut port = pd.driver.lock();
    // SAFETY: the caller's promise is that of the device.
    match unsafe { port.device.register(pd.id, begin, length as u64, access) } {
        Ok(key) => give(Mr {
            public: ibv_mr {
                context: pd.public.context,
                pd: domain,
                addr: address,
                length,
                handle: key,
                lkey: key,
                rkey: key,
            },
            driver: pd.driver.clone(),
        }),
        Err(refusal) => refused(convert::errno(refusal)),
    }
}

/// See `ibv_reg_mr_iova(3)`: memory is known by its own address.
///
/// # Safety
/// As [`ibv_reg_mr`].
pub unsafe extern "C" fn ibv_reg_mr_iova(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_int,
) -> *mut ibv_mr {
    if iova != address.addr() as u64 {
        return refused(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr(domain, address, length, flags) }
}

/// As [`ibv_reg_mr_iova`], for programs that pass flags which are hints.
///
/// # Safety
/// As [`ibv_reg_mr`].
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    domain: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    flags: u32,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova(domain, address, length, iova, flags as c_int) }
}

/// See `ibv_dereg_mr(3)`. The device does not touch the memory behind this call.
///
/// # Safety
/// The region is one of [`ibv_reg_mr`], and nobody uses it later.
pub unsafe extern "C" fn ibv_dereg_mr(pointer: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise.
    let mr = unsafe { take_back::<Mr>(pointer) };
    convert::outcome(mr.driver.lock().device.deregister(mr.public.lkey))
}

/// See `ibv_create_ah(3)`.
///
/// # Safety
/// The domain lives, and `attr` is an address vector.
pub unsafe extern "C" fn ibv_create_ah(domain: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller's promise.
    let pd = unsafe { borrow::<Pd>(domain) };
    if let Err(number) = admit(&pd.driver, Verb::CreateAh) {
        return refused(number);
    }
    // SAFETY: the caller's promise.
    match convert::path(unsafe { &*attr }) {
        Some(path) => give(Ah { public: ibv_ah { context: pd.public.context, pd: domain, handle: 0 }, path }),
        None => refused(libc::EINVAL),
    }
}

/// See `ibv_destroy_ah(3)`.
///
/// # Safety
/// The handle is one of [`ibv_create_ah`], and nobody uses it later.
pub unsafe extern "C" fn ibv_destroy_ah(pointer: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { take_back::<Ah>(pointer) });
    0
}

/// See `ibv_fork_init(3)`: there is nothing to do, since memory is not pinned.
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// For providers of the C library: there is nothing to do.
pub extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// As [`ibv_dontfork_range`].
pub extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// See `ibv_is_fork_initialized(3)`.
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}
