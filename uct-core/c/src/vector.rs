//! Memory of the program, and vectors of it.

use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::slice;

use ucs::Status;
use uct_abi::UctIov;
use uct_core::raw;

use crate::call::guarded;
use crate::ep::Ep;
use crate::memory::Mem;

/// What an operation returns for an argument that is not valid.
const INVALID_PARAM: c_int = Status::INVALID_PARAM.raw();
/// Most entries; transports report their own limit, which is below.
const MAX_IOV: usize = 64;

/// Bytes of C; none where the pointer is null.
///
/// # Safety
/// The bytes are readable for as long as the caller uses them.
#[inline(always)]
pub unsafe fn bytes<'a>(pointer: *const c_void, length: usize) -> &'a [u8] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(pointer.cast(), length) }
}

/// Whether the memory of a vector is used after the call, so that it has to be registered.
#[derive(Clone, Copy, PartialEq)]
pub enum Use {
    Copied,
    InPlace,
}

/// Calls `call` with a vector whose handles are those of the transport, and the bytes in it; returns a status.
///
/// # Safety
/// There are so many entries; their handles are null or live.
#[inline]
pub unsafe fn with_vector(
    ep: &Ep,
    (iov, count): (*const UctIov, usize),
    memory_use: Use,
    call: impl FnOnce(*const UctIov, usize) -> c_int,
) -> c_int {
    if count > MAX_IOV || iov.is_null() && count > 0 {
        let (is, most) = (if iov.is_null() { "NULL, of" } else { "a vector of" }, MAX_IOV);
        return invalid(ep, format_args!("iov is {is} {count} entries; at most {most} are possible"));
    }
    // SAFETY: the caller's promise.
    let iov = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(iov, count) } };
    let mut entries = [const { MaybeUninit::<UctIov>::uninit() }; MAX_IOV];
    let domain = ep.iface.inner.memory_domain();
    let mut bytes = 0_usize;
    for (place, entry) in entries.iter_mut().zip(iov) {
        // SAFETY: as above.
        let mem = unsafe { entry.memh.cast::<Mem>().as_ref() };
        let is_usable = match mem {
            Some(mem) => mem.memory.domain().is_same(domain),
            None => memory_use == Use::Copied || entry.length == 0,
        };
        if !is_usable {
            return invalid(ep, "the memory of a vector is not registered with the domain of the interface");
        }
        let memh = mem.map_or(std::ptr::null_mut(), |mem| raw::memh(&mem.memory));
        place.write(UctIov { memh, ..*entry });
        bytes = bytes.saturating_add(entry.length.saturating_mul(entry.count as usize));
    }
    call(entries.as_ptr().cast(), bytes)
}

/// Logs why an operation is refused ahead of the transport, at the level at which the host does it; returns the status.
#[cold]
pub fn invalid(ep: &Ep, reason: impl Display) -> c_int {
    guarded(INVALID_PARAM, || {
        ucs::log::debug!("{}: INVALID_PARAM: {reason}", ep.iface.inner.resource());
        INVALID_PARAM
    })
}
