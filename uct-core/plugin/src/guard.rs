//! The panic guard around every slot: a panic that left an `extern "C"` function would abort the host.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ucs::panic::words;
use ucs::{Error, Result, Status};
use uct_abi::{UCT_ERR_IO_ERROR, UctStatus, UctText};

use crate::failure::write_text;

/// Runs a slot that returns a status.
#[inline(always)]
pub(crate) fn status(slot: &'static str, body: impl FnOnce() -> UctStatus) -> UctStatus {
    or(slot, UCT_ERR_IO_ERROR, body)
}

/// Runs a slot that returns a status and a reason.
pub(crate) fn explained(
    slot: &'static str,
    reason: *mut UctText,
    body: impl FnOnce() -> UctStatus,
) -> UctStatus {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(status) => status,
        Err(panic) => {
            let words = words(panic);
            write_text(reason, &format!("the plugin panicked in {slot}: {words}"));
            report_words(slot, &words);
            UCT_ERR_IO_ERROR
        }
    }
}

/// Runs a slot that returns another type; `fallback` is its result after a panic.
///
/// For transports, where instructions count: in an `extern "C"` function of its own a slow path of a slot is a jump, and the
/// frequent one needs no frame and no landing pad.
#[inline(always)]
pub fn or<T>(slot: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            report(slot, panic);
            fallback
        }
    }
}

/// A result that a function returns in one register.
pub trait Answer {
    /// As a number: an error's status, or something that is not negative.
    fn into_raw(self) -> isize;
    /// Of such a number.
    fn from_raw(raw: isize) -> Self;
}

impl Answer for Result<usize> {
    #[inline(always)]
    fn into_raw(self) -> isize {
        match self {
            Ok(length) => length as isize,
            Err(error) => error.status().raw() as isize,
        }
    }

    #[inline(always)]
    fn from_raw(raw: isize) -> Result<usize> {
        usize::try_from(raw).map_err(|_| Error::from_status(Status::from_raw(raw as i32)))
    }
}

impl Answer for Result {
    #[inline(always)]
    fn into_raw(self) -> isize {
        self.map(|()| 0).into_raw()
    }

    #[inline(always)]
    fn from_raw(raw: isize) -> Result {
        Result::<usize>::from_raw(raw).map(drop)
    }
}

#[cold]
#[inline(never)]
fn report(slot: &'static str, panic: Box<dyn Any + Send>) {
    report_words(slot, &words(panic));
}

fn report_words(slot: &'static str, words: &str) {
    ucs::log::error!(slot, "the plugin panicked: {words}");
}
