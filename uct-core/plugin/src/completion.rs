//! Completions: how a transport reports that an operation has ended.

use std::ptr::NonNull;

use ucs::{Error, Result};
use uct_abi::{UCT_OK, UctCompletion, UctStatus};

/// How an operation that may take time was started. As wide as an error, so that a result of it stays in registers.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done; its completion is not called.
    Done,
    /// It goes on; its completion will be called, from progress.
    InProgress,
}

/// The host's completion of one outstanding operation. An operation that returns
/// [`Outcome::InProgress`] completes it exactly once, or the caller waits for ever; with any other answer it is dropped.
#[must_use = "an operation that is never completed hangs its caller"]
#[derive(Debug)]
pub struct Completion(NonNull<UctCompletion>);

impl Completion {
    /// The host's; `None` if it is null. For the tables of [`crate::define_plugin!`], and for tests of a transport.
    ///
    /// # Safety
    /// A completion that is not null stays valid until it was called (`UctCompletion`), and counts this operation.
    #[inline(always)]
    pub unsafe fn new(completion: *mut UctCompletion) -> Option<Completion> {
        NonNull::new(completion).map(Completion)
    }

    /// For a caller that passes the operation on to other code, which completes it.
    pub fn into_raw(self) -> *mut UctCompletion {
        self.0.as_ptr()
    }

    /// Counts one operation down; the last one calls the host.
    #[inline(always)]
    pub fn complete(self, result: Result) {
        let completion = self.0.as_ptr();
        // SAFETY: valid until called (`Completion::new`); all operations of a worker are in one thread.
        let shared = unsafe { &mut *completion };
        if let Err(error) = result
            && shared.status == UCT_OK
        {
            shared.status = failed(error);
        }
        shared.count -= 1;
        if shared.count == 0 {
            let callback = shared.func;
            // SAFETY: the host's function takes the completion it is part of.
            unsafe { callback(completion) };
        }
    }
}

/// Out of the way of what ends well.
#[cold]
#[inline(never)]
fn failed(error: Error) -> UctStatus {
    error.status().raw()
}

/// Completes an optional completion.
#[inline(always)]
pub fn complete(completion: Option<Completion>, result: Result<(), Error>) {
    if let Some(completion) = completion {
        completion.complete(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts its calls in the pointer behind the completion.
    unsafe extern "C" fn called(completion: *mut UctCompletion) {
        // SAFETY: the tests' completion is the first field of this structure, and theirs alone.
        let counted = unsafe { &mut *completion.cast::<Counted>() };
        counted.calls += 1;
    }

    #[repr(C)]
    struct Counted {
        completion: UctCompletion,
        calls: u32,
    }

    /// What is left of a completion of these operations: status, calls.
    fn after(results: &[Result]) -> (UctStatus, u32) {
        let count = i32::try_from(results.len()).expect("a few");
        let mut counted =
            Counted { completion: UctCompletion { func: called, count, status: UCT_OK }, calls: 0 };
        let pointer = (&raw mut counted).cast::<UctCompletion>();
        for (index, result) in results.iter().enumerate() {
            // SAFETY: the completion outlives its operations, and counts each of them.
            let completion = unsafe { Completion::new(pointer) };
            // SAFETY: nothing else uses it.
            assert_eq!(unsafe { (*pointer).count } as usize, results.len() - index);
            complete(completion, *result);
        }
        (counted.completion.status, counted.calls)
    }

    #[test]
    fn the_first_error_is_kept_and_the_last_operation_calls() {
        let (reset, canceled) = (Error::CONNECTION_RESET, Error::CANCELED);
        assert_eq!(after(&[Ok(()), Ok(())]), (UCT_OK, 1));
        assert_eq!(after(&[Ok(()), Err(reset), Err(canceled), Ok(())]), (reset.status().raw(), 1));
        assert_eq!(after(&[Err(canceled), Err(reset)]), (canceled.status().raw(), 1));
    }

    #[test]
    fn an_operation_without_a_completion_ends_silently() {
        // SAFETY: null is no completion.
        assert!(unsafe { Completion::new(std::ptr::null_mut()) }.is_none());
        complete(None, Err(Error::CANCELED));
    }
}
