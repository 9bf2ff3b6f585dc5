//! Registered memory, and what a peer needs to reach it.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use ucs::Error;
use uct_core::{Access, Memory, MemoryDomain, MemoryKind};

use crate::call::{Outcome, at, guarded, put, refuse, refused, status};
use crate::iface::Iface;
use crate::md::Md;
use crate::types::{AllocatedMemory, MemRegParams, MkeyPackParams};

/// `UCT_MD_MEM_FLAG_FIXED`.
const FLAG_FIXED: u64 = 1 << 1;
/// The lowest bit of `UCT_MD_MEM_ACCESS_REMOTE_*`, which are in the order of [`Access`].
const ACCESS_SHIFT: u32 = 5;
/// `UCT_MD_MEM_REG_FIELD_*`.
const REG_FIELD_FLAGS: u64 = 1 << 0;
const REG_FIELD_MEM_TYPE: u64 = 1 << 3;
/// `UCT_MD_MKEY_PACK_FIELD_FLAGS`.
const PACK_FIELD_FLAGS: u64 = 1 << 0;
/// `UCT_ALLOC_METHOD_MD`.
const METHOD_MD: c_uint = 1;

/// What the handle points to.
pub struct Mem {
    pub memory: Memory,
}

/// What the flags `UCT_MD_MEM_*` permit to peers.
fn access(flags: u64) -> Outcome<Access> {
    if flags & FLAG_FIXED != 0 {
        return Err(refuse(Error::UNSUPPORTED, "UCT_MD_MEM_FLAG_FIXED: memory is not placed"));
    }
    Ok(Access::from_bits_truncate((flags >> ACCESS_SHIFT) as u32))
}

/// Only memory of the host is registered.
fn check_kind(kind: c_uint) -> Outcome {
    if kind == 0 {
        return Ok(());
    }
    Err(refuse(
        Error::UNSUPPORTED,
        format_args!("memory of kind {kind}: only that of the host is registered"),
    ))
}

fn register(domain: &MemoryDomain, address: *mut c_void, length: usize, flags: u64) -> Outcome<*mut Mem> {
    let Some(address) = NonNull::new(address.cast()) else {
        return Err(refuse(Error::INVALID_PARAM, "the address of memory to register is NULL"));
    };
    let access = access(flags)?;
    // SAFETY: the memory stays mapped until it is deregistered, as the header demands, and this crate makes no
    // reference to it.
    let memory = unsafe { domain.register_raw(address, length, access, MemoryKind::Host) };
    let memory = memory.map_err(|error| refused(&error))?;
    Ok(Box::into_raw(Box::new(Mem { memory })))
}

/// `uct_md_mem_reg`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_mem_reg(
    md: *const Md,
    address: *mut c_void,
    length: usize,
    flags: c_uint,
    memh: *mut *mut Mem,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let md = unsafe { at(md, "md") }?;
        // SAFETY: as above.
        unsafe { put(memh, std::ptr::null_mut(), "memh_p") }?;
        let registered = register(&md.domain, address, length, flags.into())?;
        // SAFETY: as above.
        unsafe { put(memh, registered, "memh_p") }
    })
}

/// `uct_md_mem_reg_v2`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_mem_reg_v2(
    md: *const Md,
    address: *mut c_void,
    length: usize,
    params: *const MemRegParams,
    memh: *mut *mut Mem,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let md = unsafe { at(md, "md") }?;
        // SAFETY: as above.
        let params = unsafe { at(params, "params") }?;
        // SAFETY: as above.
        unsafe { put(memh, std::ptr::null_mut(), "memh_p") }?;
        if params.field_mask & !(REG_FIELD_FLAGS | REG_FIELD_MEM_TYPE) != 0 {
            let reason = format_args!("fields {:#x} of uct_md_mem_reg_params_t", params.field_mask);
            return Err(refuse(Error::UNSUPPORTED, reason));
        }
        if params.field_mask & REG_FIELD_MEM_TYPE != 0 {
            check_kind(params.mem_type)?;
        }
        let flags = if params.field_mask & REG_FIELD_FLAGS != 0 { params.flags } else { 0 };
        let registered = register(&md.domain, address, length, flags)?;
        // SAFETY: as above.
        unsafe { put(memh, registered, "memh_p") }
    })
}

/// `uct_md_mem_dereg`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_mem_dereg(_md: *const Md, memh: *mut Mem) -> c_int {
    status(|| {
        if memh.is_null() {
            return Err(refuse(Error::INVALID_PARAM, "memh is NULL"));
        }
        // SAFETY: a handle, by the caller's promise.
        drop(unsafe { Box::from_raw(memh) });
        Ok(())
    })
}

/// # Safety
/// The buffer has room for the domain's packed keys.
unsafe fn pack(memh: *const Mem, buffer: *mut c_void) -> Outcome {
    // SAFETY: the caller's promise.
    let mem = unsafe { at(memh, "memh") }?;
    if buffer.is_null() {
        return Err(refuse(Error::INVALID_PARAM, "the buffer of a packed key is NULL"));
    }
    let packed = mem.memory.packed_key()?;
    // SAFETY: so many bytes are the domain's `rkey_packed_size`.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(packed.as_ptr(), packed.len()) };
    Ok(())
}

/// `uct_md_mkey_pack`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_mkey_pack(_md: *const Md, memh: *const Mem, buffer: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    status(|| unsafe { pack(memh, buffer) })
}

/// `uct_md_mkey_pack_v2`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_mkey_pack_v2(
    _md: *const Md,
    memh: *const Mem,
    _address: *mut c_void,
    _length: usize,
    params: *const MkeyPackParams,
    buffer: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let params = unsafe { at(params, "params") }?;
        if params.field_mask & PACK_FIELD_FLAGS != 0 && params.flags != 0 {
            let reason = format_args!("flags {:#x} of uct_md_mkey_pack_params_t", params.flags);
            return Err(refuse(Error::UNSUPPORTED, reason));
        }
        // SAFETY: as above.
        unsafe { pack(memh, buffer) }
    })
}

/// `uct_iface_mem_alloc`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_mem_alloc(
    iface: *const Iface,
    length: usize,
    flags: c_uint,
    _name: *const c_char,
    mem: *mut AllocatedMemory,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        unsafe { at(mem, "mem") }?;
        let allocated = iface.inner.memory_domain().allocate(length, access(flags.into())?, MemoryKind::Host);
        let memory = allocated.map_err(|error| refused(&error))?;
        let answer = AllocatedMemory {
            address: memory.as_ptr().cast(),
            length: memory.len(),
            method: METHOD_MD,
            mem_type: 0,
            md: iface.md.cast(),
            memh: Box::into_raw(Box::new(Mem { memory })).cast(),
        };
        // SAFETY: as above.
        unsafe { put(mem, answer, "mem") }
    })
}

/// `uct_iface_mem_free`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_mem_free(mem: *const AllocatedMemory) {
    // SAFETY: the caller's promise.
    let Some(mem) = (unsafe { mem.as_ref() }) else { return };
    if !mem.memh.is_null() {
        // SAFETY: a handle of `uctc_iface_mem_alloc`, by the caller's promise.
        let owned = unsafe { Box::from_raw(mem.memh.cast::<Mem>()) };
        guarded((), || drop(owned));
    }
}
