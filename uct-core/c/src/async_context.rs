//! Asynchronous contexts: tokens, since a worker has one of its own.

use std::ffi::{c_int, c_void};

use ucs::Error;

use crate::call::{Outcome, free_list, put_token, refuse, status};

/// `UCS_ASYNC_MODE_SIGNAL`.
const SIGNAL: c_int = 0;
/// `UCS_ASYNC_MODE_LAST`.
const LAST: c_int = 4;

/// `ucs_async_context_create`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_async_context_create(mode: c_int, context: *mut *mut c_void) -> c_int {
    status(|| {
        check(mode)?;
        // SAFETY: the caller's promise.
        unsafe { put_token(context, "async_p") }
    })
}

fn check(mode: c_int) -> Outcome {
    match mode {
        SIGNAL => {
            let reason = "no code runs in signal handlers: use UCS_ASYNC_MODE_THREAD_SPINLOCK";
            Err(refuse(Error::UNSUPPORTED, reason))
        }
        1..LAST => Ok(()),
        _ => Err(refuse(Error::INVALID_PARAM, format_args!("no asynchronous mode has the number {mode}"))),
    }
}

/// `ucs_async_context_destroy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_async_context_destroy(context: *mut c_void) {
    // SAFETY: a token, by the caller's promise.
    unsafe { free_list(context) };
}
