//! Copies that are mostly a few bytes long.

/// Copies `length` bytes. A word goes inline, and a few go without a call of the C library's, which costs more than they do.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes, and the two do not overlap.
#[inline(always)]
pub unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    if length == size_of::<u64>() {
        // SAFETY: eight bytes are readable.
        let word = unsafe { source.cast::<u64>().read_unaligned() };
        // SAFETY: eight bytes are writable.
        unsafe { target.cast::<u64>().write_unaligned(word) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_any(source, target, length) };
    }
}

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_any(source: *const u8, target: *mut u8, length: usize) {
    if length > 16 {
        // SAFETY: the caller's promise.
        unsafe { target.copy_from_nonoverlapping(source, length) };
    } else if length >= 8 {
        // SAFETY: at most 16 bytes, of which the first and the last 8 are within the length.
        unsafe { copy_ends::<u64>(source, target, length) };
    } else if length >= 4 {
        // SAFETY: at most 8 bytes, of which the first and the last 4 are within the length.
        unsafe { copy_ends::<u32>(source, target, length) };
    } else {
        for index in 0..length {
            // SAFETY: below the length.
            let from = unsafe { source.add(index) };
            // SAFETY: below the length.
            let to = unsafe { target.add(index) };
            // SAFETY: readable by the caller's promise.
            let byte = unsafe { from.read() };
            // SAFETY: writable by the caller's promise.
            unsafe { to.write(byte) };
        }
    }
}

/// Copies the first and the last `T` of `length` bytes, which cover all of them if they are at most two.
///
/// # Safety
/// As [`copy`], and `length` is at least the size of `T` and at most twice that.
#[inline(always)]
unsafe fn copy_ends<T: Copy>(source: *const u8, target: *mut u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: within the length.
    let source_end = unsafe { source.add(last) };
    // SAFETY: within the length.
    let target_end = unsafe { target.add(last) };
    // SAFETY: readable by the caller's promise.
    let head = unsafe { source.cast::<T>().read_unaligned() };
    // SAFETY: as above.
    let tail = unsafe { source_end.cast::<T>().read_unaligned() };
    // SAFETY: writable by the caller's promise.
    unsafe { target.cast::<T>().write_unaligned(head) };
    // SAFETY: as above.
    unsafe { target_end.cast::<T>().write_unaligned(tail) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_no_byte_more() {
        let source: Vec<u8> = (1..=64).collect();
        for length in 0..=64 {
            let mut target = [0; 80];
            // SAFETY: both have 64 bytes and are separate.
            unsafe { copy(source.as_ptr(), target.as_mut_ptr(), length) };
            assert_eq!(target[..length], source[..length]);
            assert!(target[length..].iter().all(|&byte| byte == 0));
        }
    }
}
