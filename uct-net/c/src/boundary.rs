//! How C calls: no panic crosses, a refusal is remembered for the thread, and pointers are looked at before they are
//! followed.

#![expect(unsafe_code, reason = "arguments of C are followed")]

use std::ffi::{CStr, c_char, c_int, c_void};

use ucs::Error as Status;
use ucs::panic::caught;

use super::failure::{Failure, Outcome, remember};

/// Runs what C has called. A refusal and a panic are remembered, and `refused` makes the value for C of their status.
#[inline]
pub fn guarded<T>(refused: impl FnOnce(c_int) -> T, work: impl FnOnce() -> Outcome<T>) -> T {
    match caught(work) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => refused(remember(failure)),
        Err(words) => refused(remember(panicked(&words))),
    }
}

/// Of a function that returns a status.
pub fn status(work: impl FnOnce() -> Outcome) -> c_int {
    guarded(|status| status, || work().map(|()| 0))
}

/// Of a function that returns an operation.
#[inline]
pub fn operation(work: impl FnOnce() -> Outcome<u64>) -> u64 {
    guarded(|_| 0, work)
}

/// Of a function that returns a handle or an address.
pub fn pointer(work: impl FnOnce() -> Outcome<u64>) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(guarded(|_| 0, work) as usize)
}

#[cold]
fn panicked(words: &str) -> Failure {
    ucs::log::error!("a call of the program failed inside the library: {words}");
    Failure::new(Status::IO_ERROR, format!("the library failed inside, which is a mistake of it: {words}"))
}

/// The number of a handle.
#[inline]
pub fn number<T>(handle: *const T) -> u64 {
    handle.addr() as u64
}

/// A text, named for the error.
///
/// # Safety
/// NULL, or a text that ends with a zero byte.
pub unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("the {name} is NULL")));
    }
    // SAFETY: the promise of the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("the {name} is not UTF-8")))
}

/// Elements that a pointer points to, named for the error. None may be at NULL.
///
/// # Safety
/// NULL, or that many elements.
#[inline]
pub unsafe fn list<'a, T>(pointer: *const T, count: usize, name: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, count, name)?;
    // SAFETY: the promise of the caller, and the check.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Whether there may be that many elements at a pointer.
#[inline]
pub fn check<T>(pointer: *const T, count: usize, name: &str) -> Outcome {
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    if bytes.is_none() || count > 0 && (pointer.is_null() || !pointer.is_aligned()) {
        return Err(wrong(pointer.cast(), count, name));
    }
    Ok(())
}

#[cold]
fn wrong(pointer: *const c_void, count: usize, name: &str) -> Failure {
    Failure::invalid(match pointer.is_null() {
        true => format!("the {name} is NULL, with a length of {count}"),
        false => format!("the {name} is not aligned, or has a length that no memory has: {count}"),
    })
}

/// Copies a text to a program as `snprintf` does; returns its whole length.
///
/// # Safety
/// NULL, or room for that many bytes.
pub unsafe fn copy(text: &str, target: *mut c_char, room: usize) -> Outcome<c_int> {
    check(target, room, "place for the text")?;
    if let Some(most) = room.checked_sub(1) {
        let count = text.len().min(most);
        // SAFETY: the promise of the caller: there is room for this and the zero.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
        // SAFETY: as above.
        let end = unsafe { target.add(count) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::last;

    #[test]
    fn a_panic_is_a_status_and_a_reason() {
        assert_eq!(status(|| panic!("planted")), -3);
        assert!(last().unwrap().1.contains("planted"));
        assert_eq!(operation(|| Err(Failure::invalid("wrong"))), 0);
        assert_eq!(last(), Some((-5, "wrong".to_owned())));
    }

    #[test]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "each is documented")]
    fn texts_are_cut_to_the_room_and_end_with_a_zero() {
        let mut place = [1_u8; 4];
        // SAFETY: there is that much room.
        let length = unsafe { copy("abcdef", place.as_mut_ptr().cast(), 3) };
        assert_eq!((length.unwrap(), place), (6, [b'a', b'b', 0, 1]));
        // SAFETY: without room nothing is written.
        assert_eq!(unsafe { copy("abc", std::ptr::null_mut(), 0) }.unwrap(), 3);
        // SAFETY: NULL is refused.
        assert!(unsafe { copy("abc", std::ptr::null_mut(), 1) }.is_err());
    }
}
