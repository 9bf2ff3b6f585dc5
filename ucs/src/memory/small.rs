//! Copies of a few bytes without a call.
//!
//! Used for short messages and puts. A call of the C library's copy costs about as much as the rest of a short send; up to
//! 64 bytes, two overlapping moves of a fixed size do.

use super::{copy_raw, move_raw};

/// Copies `length` bytes from `from` to `to`, the long ones as [`copy_raw`].
///
/// # Safety
/// `to` is writable and `from` readable for `length` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_small(to: *mut u8, from: *const u8, length: usize) {
    if length > FEW {
        // SAFETY: the caller's promise.
        unsafe { copy_many(to, from, length) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { move_few(to, from, length) }
    }
}

/// As [`copy_small`], of slices.
///
/// # Panics
/// The lengths differ.
#[inline(always)]
pub fn copy_few(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy of as many bytes");
    // SAFETY: both slices have so many bytes, and one is borrowed alone.
    unsafe { copy_small(to.as_mut_ptr(), from.as_ptr(), from.len()) };
}

/// As [`copy_small`], of ranges that may overlap; the long ones as [`move_raw`]. Four and eight bytes are one move, so that a thread that
/// polls an aligned number sees all of it or nothing, and sees it once.
///
/// # Safety
/// `to` is writable and `from` readable for `length` bytes.
#[inline(always)]
pub unsafe fn move_small(to: *mut u8, from: *const u8, length: usize) {
    if length > FEW {
        // SAFETY: the caller's promise.
        unsafe { move_many(to, from, length) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { move_few(to, from, length) }
    }
}

/// Bytes that moves copy; more take a call.
const FEW: usize = 64;

/// # Safety
/// As [`copy_small`].
#[inline(never)]
unsafe fn copy_many(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_raw(to, from, length) }
}

/// # Safety
/// As [`move_small`].
#[inline(never)]
unsafe fn move_many(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { move_raw(to, from, length) }
}

/// # Safety
/// As [`move_small`], and `length` is at most [`FEW`].
#[inline(always)]
unsafe fn move_few(to: *mut u8, from: *const u8, length: usize) {
    if length == 8 {
        // SAFETY: the caller's promise.
        unsafe { move_ends::<8>(to, from, 8) }
    } else if length > 32 {
        // SAFETY: the caller's promise; 32 < length <= 64.
        unsafe { move_ends::<32>(to, from, length) }
    } else if length >= 16 {
        // SAFETY: the caller's promise; 16 <= length <= 32.
        unsafe { move_ends::<16>(to, from, length) }
    } else if length >= 8 {
        // SAFETY: the caller's promise; 8 <= length < 16.
        unsafe { move_ends::<8>(to, from, length) }
    } else if length == 4 {
        // SAFETY: the caller's promise.
        unsafe { move_ends::<4>(to, from, 4) }
    } else if length > 4 {
        // SAFETY: the caller's promise; 4 < length < 8.
        unsafe { move_ends::<4>(to, from, length) }
    } else if length >= 2 {
        // SAFETY: the caller's promise; 2 <= length < 4.
        unsafe { move_ends::<2>(to, from, length) }
    } else if length == 1 {
        // SAFETY: the caller's promise.
        unsafe { move_ends::<1>(to, from, length) }
    }
}

/// Copies the first and the last `N` bytes, which may be the same ones in part. Both are read ahead of the first write.
///
/// # Safety
/// As [`move_small`], and `N <= length <= 2 * N`.
#[inline(always)]
unsafe fn move_ends<const N: usize>(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: N <= length, so the last N bytes are readable.
    let last_from = unsafe { from.add(length - N) };
    // SAFETY: and so many are writable.
    let last_to = unsafe { to.add(length - N) };
    // SAFETY: N bytes are readable; arrays of bytes have no alignment.
    let first = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: as above.
    let last = unsafe { last_from.cast::<[u8; N]>().read() };
    // SAFETY: N bytes are writable.
    unsafe { to.cast::<[u8; N]>().write(first) };
    // SAFETY: as above.
    unsafe { last_to.cast::<[u8; N]>().write(last) };
}

#[cfg(test)]
mod tests {
    use super::{copy_few, copy_small, move_small};

    #[test]
    fn every_length_copies_exactly_its_bytes() {
        let source: Vec<u8> = (1..=200).collect();
        for (length, way) in (0..=200).flat_map(|length| [copy_small, move_small].map(|way| (length, way))) {
            let mut target = vec![0u8; 210];
            // SAFETY: 200 bytes are readable, 210 writable, in different vectors.
            unsafe { way(target[5..].as_mut_ptr(), source.as_ptr(), length) };
            assert_eq!(&target[..5], &[0; 5], "length {length} wrote ahead of its range");
            assert_eq!(&target[5..5 + length], &source[..length], "length {length}");
            assert!(
                target[5 + length..].iter().all(|byte| *byte == 0),
                "length {length} wrote past its range"
            );
        }
    }

    #[test]
    fn slices_of_every_length_are_copied() {
        let source: Vec<u8> = (1..=200).collect();
        for length in 0..=200 {
            let mut target = vec![0; length];
            copy_few(&mut target, &source[..length]);
            assert_eq!(target, source[..length]);
        }
    }

    #[test]
    fn ranges_that_overlap_are_copied_as_if_they_did_not() {
        let before: Vec<u8> = (1..=250).collect();
        for length in 0..=200 {
            for (from, to) in [(0, 1), (1, 0), (0, 30), (30, 0)] {
                let (mut memory, mut expected) = (before.clone(), before.clone());
                expected.copy_within(from..from + length, to);
                let start = memory.as_mut_ptr();
                // SAFETY: the range ends within the memory.
                let target = unsafe { start.add(to) };
                // SAFETY: as above.
                let source = unsafe { start.add(from) };
                // SAFETY: both are so long.
                unsafe { move_small(target, source, length) };
                assert_eq!(memory, expected, "{length} bytes from {from} to {to}");
            }
        }
    }
}
