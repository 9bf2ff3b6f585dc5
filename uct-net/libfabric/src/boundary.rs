//! How C calls this crate: no panic crosses, errors are numbers below zero, and pointers are looked at before they are followed.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::Errno;

/// What a function for C comes to.
pub type Outcome<T = ()> = Result<T, Errno>;

/// How a function's outcome is told to C.
pub trait Answer {
    /// What it returns when all is well.
    type Good;
    /// The value for C.
    fn answer(outcome: Outcome<Self::Good>) -> Self;
}

impl Answer for c_int {
    type Good = c_int;

    fn answer(outcome: Outcome<c_int>) -> c_int {
        outcome.unwrap_or_else(|errno| -errno.0)
    }
}

impl Answer for isize {
    type Good = usize;

    #[inline]
    fn answer(outcome: Outcome<usize>) -> isize {
        outcome.map_or_else(|errno| -(errno.0 as isize), usize::cast_signed)
    }
}

/// Runs what C has called. A panic is logged, and an error for the caller.
#[inline]
pub fn guarded<A: Answer>(work: impl FnOnce() -> Outcome<A::Good>) -> A {
    A::answer(catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic))))
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Errno {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    ucs::log::error!("libfabric: a call of the program failed inside the provider: {text}");
    Errno::OTHER
}

/// What a pointer of C's points to.
///
/// # Safety
/// It is null, or points to a `T` that is valid, and not changed, for `'a`.
#[inline]
pub unsafe fn at<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// Elements that a pointer of C's points to. None may be at null.
///
/// # Safety
/// It is null, or points to `count` elements that are valid, and not changed, for `'a`.
#[inline]
pub unsafe fn list<'a, T>(pointer: *const T, count: usize) -> Outcome<&'a [T]> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// A string of C's; `None` for null.
///
/// # Safety
/// It is null, or a string that is valid, and not changed, for `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Outcome<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Errno::INVALID)
}

/// Stores what a call returns through a pointer.
///
/// # Safety
/// It is null, or valid for a write.
#[inline]
pub unsafe fn put<T>(target: *mut T, value: T) -> Outcome {
    if target.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    unsafe { target.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_errors_are_below_zero() {
        let calm = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let answer: c_int = guarded(|| panic!("planted"));
        std::panic::set_hook(calm);
        assert_eq!(answer, -256);
        assert_eq!(guarded::<isize>(|| Err(Errno::AGAIN)), -(libc::EAGAIN as isize));
        assert_eq!(guarded::<isize>(|| Ok(3)), 3);
    }
}
