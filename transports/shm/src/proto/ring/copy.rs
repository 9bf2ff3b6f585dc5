//! Copies of the words of a slot.
//!
//! Used for the messages that travel in their slot or in the ping-pong line. Built on the shape of a slot.

use super::control::{BODY_WORDS, SLOT_BYTES, TURN_LINE_WORDS};

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
