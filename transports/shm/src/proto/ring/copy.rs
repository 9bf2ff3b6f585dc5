//! Copies of a few bytes without a call.
//!
//! Used for short messages. Built on the shape of a slot. A call to memcpy costs about as much as the rest of a short send; up to
//! 64 bytes, two overlapping moves of a fixed size do.

use ucs::memory::copy_raw;

use super::control::{BODY_WORDS, SLOT_BYTES, TURN_LINE_WORDS};

/// Copies `length` bytes from `source` to `target`.
///
/// # Safety
///
/// `source` is readable and `target` writable for `length` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_small(source: *const u8, target: *mut u8, length: usize) {
    if length == 8 {
        // SAFETY: the caller vouches for both ranges.
        unsafe { copy_fixed::<8>(source, target) }
    } else if length > 64 {
        // SAFETY: the caller vouches for both ranges.
        unsafe { copy_long(source, target, length) }
    } else if length > 32 {
        // SAFETY: 32 < length <= 64: both halves are inside the ranges.
        unsafe { copy_ends::<32>(source, target, length) }
    } else if length >= 16 {
        // SAFETY: 16 <= length <= 32: both halves are inside the ranges.
        unsafe { copy_ends::<16>(source, target, length) }
    } else if length >= 8 {
        // SAFETY: 8 <= length < 16: both halves are inside the ranges.
        unsafe { copy_ends::<8>(source, target, length) }
    } else if length >= 4 {
        // SAFETY: 4 <= length < 8: both halves are inside the ranges.
        unsafe { copy_ends::<4>(source, target, length) }
    } else if length >= 2 {
        // SAFETY: 2 <= length < 4: both halves are inside the ranges.
        unsafe { copy_ends::<2>(source, target, length) }
    } else if length == 1 {
        // SAFETY: the caller vouches for one byte.
        unsafe { copy_fixed::<1>(source, target) }
    }
}

/// Copies what is too long for moves.
///
/// # Safety
///
/// As [`copy_small`].
#[inline(never)]
unsafe fn copy_long(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { copy_raw(target, source, length) }
}

/// Copies the first and the last `N` bytes of a range of `length`; the two may overlap.
///
/// # Safety
///
/// As [`copy_small`], and `N <= length <= 2 * N`.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: the caller vouches for N bytes from the start.
    unsafe { copy_fixed::<N>(source, target) };
    // SAFETY: N <= length, so the last N bytes are inside the source.
    let source = unsafe { source.add(length - N) };
    // SAFETY: N <= length, so the last N bytes are inside the target.
    let target = unsafe { target.add(length - N) };
    // SAFETY: as computed above.
    unsafe { copy_fixed::<N>(source, target) };
}

/// Copies exactly `N` bytes, which compiles to plain moves.
///
/// # Safety
///
/// As [`copy_small`] with a length of `N`.
#[inline(always)]
unsafe fn copy_fixed<const N: usize>(source: *const u8, target: *mut u8) {
    // SAFETY: the caller vouches for N readable bytes; u8 arrays have no alignment.
    let bytes = unsafe { source.cast::<[u8; N]>().read() };
    // SAFETY: the caller vouches for N writable bytes.
    unsafe { target.cast::<[u8; N]>().write(bytes) };
}

/// Words of a slot's body that [`copy_start`] copies.
const START: usize = 2;
/// The same in bytes.
pub const START_BYTES: usize = 8 * START;

/// Copies one word.
///
/// # Safety
///
/// `body` is readable and `place` writable for `at` words and one more, both aligned to 8.
#[inline(always)]
unsafe fn copy_word(body: *const u64, place: *mut u64, at: usize) {
    // SAFETY: the caller's promise.
    let (body, place) = (unsafe { body.add(at) }, unsafe { place.add(at) });
    // SAFETY: as above.
    let word = unsafe { body.read() };
    // SAFETY: as above.
    unsafe { place.write(word) };
}

/// Copies the first words of a slot's body; a message of up to [`START_BYTES`] has no others. Each once, so that what is
/// used later cannot change.
///
/// # Safety
///
/// `body` is readable and `place` writable for [`START_BYTES`], both aligned to 8.
#[inline(always)]
pub unsafe fn copy_start(body: *const u64, place: *mut u64) {
    // SAFETY: the caller's promise.
    let start = unsafe { body.cast::<u128>().read_unaligned() };
    // SAFETY: as above.
    unsafe { place.cast::<u128>().write_unaligned(start) };
}

/// Words of a ping-pong line's body in its first cache line.
const FIRST_LINE_WORDS: usize = TURN_LINE_WORDS - SLOT_BYTES / 8;

/// Copies a message of `length` bytes out of the ping-pong line: the first two words, all in the first cache line, or all.
///
/// # Safety
///
/// `body` is readable and `place` writable for `TURN_LINE_WORDS` words, both aligned to 8.
#[inline(always)]
pub unsafe fn copy_turn_line(body: *const u64, place: *mut u64, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_start(body, place) };
    if length > START_BYTES {
        // SAFETY: as above.
        (START..FIRST_LINE_WORDS).for_each(|at| unsafe { copy_word(body, place, at) });
    }
    if length > 8 * FIRST_LINE_WORDS {
        // SAFETY: as above.
        (FIRST_LINE_WORDS..TURN_LINE_WORDS).for_each(|at| unsafe { copy_word(body, place, at) });
    }
}

/// Copies the words of a slot's body that [`copy_start`] leaves, as it does.
///
/// # Safety
///
/// `body` is readable and `place` writable for 56 bytes, both aligned to 8.
#[inline(always)]
pub unsafe fn copy_rest(body: *const u64, place: *mut u64) {
    // SAFETY: the caller's promise.
    (START..BODY_WORDS).for_each(|at| unsafe { copy_word(body, place, at) });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::copy_small;

    #[test]
    fn every_length_copies_exactly_its_bytes() {
        let source: Vec<u8> = (1..=200).collect();
        for length in 0..=200usize {
            let mut target = vec![0u8; 210];
            // SAFETY: 200 bytes are readable, 210 writable, in different vectors.
            unsafe { copy_small(source.as_ptr(), target[5..].as_mut_ptr(), length) };
            assert_eq!(&target[..5], &[0; 5], "length {length} wrote ahead of its range");
            assert_eq!(&target[5..5 + length], &source[..length], "length {length}");
            assert!(
                target[5 + length..].iter().all(|byte| *byte == 0),
                "length {length} wrote past its range"
            );
        }
    }
}
