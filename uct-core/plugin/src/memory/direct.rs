//! Put and get where remote memory lies in this process.
//!
//! For the slots of an endpoint, and transports that reach memory directly. The two sides may overlap, since a process may
//! put to, and get from, memory that it names as its own.

use crate::iov::Iov;
use ucs::memory::copy_raw;

/// Writes to memory that was checked.
///
/// # Safety
/// `target` is writable for as many bytes as there are data.
#[inline(always)]
pub unsafe fn write(target: *mut u8, data: &[u8]) {
    // SAFETY: the caller's promise; the data are readable.
    unsafe { copy(data.as_ptr(), target, data.len()) };
}

/// Reads memory that was checked.
///
/// # Safety
/// `source` is readable for as many bytes as the buffer has.
#[inline(always)]
pub unsafe fn read(source: *const u8, buffer: &mut [u8]) {
    // SAFETY: the caller's promise; the buffer is writable.
    unsafe { copy(source, buffer.as_mut_ptr(), buffer.len()) };
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
        unsafe { move_bytes(block, part, length) };
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
        unsafe { move_bytes(part, block, length) };
        offset += length;
    }
}

/// Eight bytes are one move, so that a thread that polls an aligned word sees all of it or nothing.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes. They may overlap.
#[inline(always)]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    if length == size_of::<u64>() {
        // SAFETY: eight bytes are readable.
        let word = unsafe { source.cast::<u64>().read_unaligned() };
        // SAFETY: eight bytes are writable.
        unsafe { target.cast::<u64>().write_unaligned(word) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { move_bytes(source, target, length) };
    }
}

/// Copies in the steps of [`copy_raw`] where the C library's copy is slow for it, and the two do not overlap.
///
/// # Safety
/// As [`copy`].
#[inline]
unsafe fn move_bytes(source: *const u8, target: *mut u8, length: usize) {
    const LONG: usize = 2048;
    let is_slow = || matches!(target.addr().wrapping_sub(source.addr()) % 4096, 1..32);
    if length > LONG && is_slow() && source.addr().abs_diff(target.addr()) >= length {
        // SAFETY: the caller's promise; they lie apart.
        unsafe { copy_raw(target, source, length) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { target.copy_from(source, length) };
    }
}
