//! Put and get where remote memory lies in this process.
//!
//! For the slots of an endpoint, and transports that reach memory directly. The two sides may overlap, since a process may
//! put to, and get from, memory that it names as its own.

use crate::iov::Iov;
use ucs::memory::{move_raw, move_small};

/// Writes to memory that was checked.
///
/// # Safety
/// `target` is writable for as many bytes as there are data.
#[inline(always)]
pub unsafe fn write(target: *mut u8, data: &[u8]) {
    // SAFETY: the caller's promise; the data are readable.
    unsafe { move_small(target, data.as_ptr(), data.len()) };
}

/// Reads memory that was checked.
///
/// # Safety
/// `source` is readable for as many bytes as the buffer has.
#[inline(always)]
pub unsafe fn read(source: *const u8, buffer: &mut [u8]) {
    // SAFETY: the caller's promise; the buffer is writable.
    unsafe { move_small(buffer.as_mut_ptr(), source, buffer.len()) };
}

/// Writes all bytes of a vector, in order.
///
/// # Safety
/// `target` is writable for [`Iov::total`] bytes.
pub unsafe fn gather(target: *mut u8, iov: Iov<'_>) {
    let mut offset = 0;
    for (block, length) in iov.blocks() {
        // SAFETY: `offset` stays within the total.
        let part = unsafe { target.add(offset) };
        // SAFETY: the caller's promise; the block is readable (`Iov`).
        unsafe { move_raw(part, block, length) };
        offset += length;
    }
}

/// Reads all bytes of a vector, in order.
///
/// # Safety
/// `source` is readable for [`Iov::total`] bytes, and the vector's memory is writable, as that of a get is.
pub unsafe fn scatter(source: *const u8, iov: Iov<'_>) {
    let mut offset = 0;
    for (block, length) in iov.blocks() {
        // SAFETY: `offset` stays within the total.
        let part = unsafe { source.add(offset) };
        // SAFETY: the caller's promise.
        unsafe { move_raw(block, part, length) };
        offset += length;
    }
}
