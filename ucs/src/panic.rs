//! Panics that must get no further: out of a function that C calls, or out of code of the application.
//!
//! Used by everything that C calls, and wherever a closure of the application is called. Built on the standard library.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`. Of a panic the error has the words. What `work` leaves half-done is the caller's concern.
///
/// # Errors
/// It has panicked.
#[inline(always)]
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(words)
}

/// The words that a panic was given, from what it is caught as.
#[cold]
#[inline(never)]
pub fn words(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // A payload whose drop panics must not get out either.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text.unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_panic_are_those_that_it_was_given() {
        assert_eq!(caught(|| 7), Ok(7));
        let words = |panic: fn()| caught(panic).expect_err("it panics");
        assert_eq!(words(|| panic!("nothing to add")), "nothing to add");
        assert_eq!(words(|| panic!("{} and {}", 1, 2)), "1 and 2");
        assert_eq!(words(|| std::panic::panic_any(7)), "no message");
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_gets_no_further() {
        struct Wicked;
        impl Drop for Wicked {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        assert_eq!(caught(|| std::panic::panic_any(Wicked)), Err::<(), _>("no message".to_owned()));
    }
}
