//! How C calls this crate: errors are statuses, and no panic crosses.

use std::ffi::{CStr, c_char, c_int, c_void};

use ucs::panic::caught;
use ucs::{Error, Status};
use uct_core::{OpenError, Refused};

/// What a function comes to.
pub type Outcome<T = ()> = Result<T, Error>;

const IO_ERROR: c_int = Status::IO_ERROR.raw();

/// Runs what C has called. A panic is logged, and `fallback` its result.
#[inline(always)]
pub fn guarded<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    match caught(work) {
        Ok(value) => value,
        Err(words) => {
            report(&words);
            fallback
        }
    }
}

/// As [`guarded`], for a function that returns a status.
#[inline(always)]
pub fn status(work: impl FnOnce() -> Outcome) -> c_int {
    guarded(IO_ERROR, || Status::from(work()).raw())
}

#[cold]
#[inline(never)]
fn report(words: &str) {
    ucs::log::error!("a call of the program failed inside the library: {words}");
}

/// Logs why a call is refused; returns the status.
#[cold]
pub fn refuse(error: Error, reason: impl std::fmt::Display) -> Error {
    ucs::log::error!("{reason}");
    error
}

/// Logs a refusal of a transport; returns its status.
#[cold]
pub fn refused(refused: &Refused) -> Error {
    refuse(refused.status, refused)
}

/// Logs why an interface was not opened; returns the status.
#[cold]
pub fn not_opened(error: &OpenError) -> Error {
    let status = match error {
        OpenError::Refused(refused) => refused.status,
        OpenError::System { .. } => Error::IO_ERROR,
        OpenError::Excluded { .. } => Error::UNSUPPORTED,
        _ => Error::NO_DEVICE,
    };
    refuse(status, error)
}

/// What a pointer of C points to.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// It is null, or valid for reads for as long as the caller uses the reference.
#[inline]
pub unsafe fn at<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(what))
}

/// Writes a result.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// It is null, or valid for a write.
pub unsafe fn put<T>(place: *mut T, value: T, what: &str) -> Outcome {
    if place.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

#[cold]
fn missing(what: &str) -> Error {
    refuse(Error::INVALID_PARAM, format_args!("{what} is NULL"))
}

/// A string of C.
///
/// # Errors
/// It is null, or not UTF-8.
///
/// # Safety
/// It is null, or a string that stays for as long as the caller uses it.
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| refuse(Error::INVALID_PARAM, format_args!("{what} is not UTF-8")))
}

/// Writes a handle to nothing, which C frees with [`free_list`].
///
/// # Errors
/// The place is null; there is no memory.
///
/// # Safety
/// The place is null, or valid for a write.
pub unsafe fn put_token(place: *mut *mut c_void, what: &str) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { put(place, std::ptr::null_mut(), what) }?;
    let token = list(&[0_u8])?;
    // SAFETY: as above.
    unsafe { put(place, token.cast(), what) }
}

/// A list that C frees with [`free_list`].
///
/// # Errors
/// There is no memory.
pub fn list<T: Copy>(entries: &[T]) -> Outcome<*mut T> {
    // SAFETY: a size that is not zero.
    let place = unsafe { libc::malloc(size_of_val(entries).max(1)) }.cast::<T>();
    if place.is_null() {
        return Err(Error::NO_MEMORY);
    }
    // SAFETY: so many bytes were just allocated, with the alignment of any type.
    unsafe { place.copy_from_nonoverlapping(entries.as_ptr(), entries.len()) };
    Ok(place)
}

/// Frees a list.
///
/// # Safety
/// It is null or one of [`list`], which nothing uses any more.
pub unsafe fn free_list<T>(list: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(list.cast()) };
}

/// A name in an array of characters, cut to its length, with a zero behind it.
pub fn name<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}
