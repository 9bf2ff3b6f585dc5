//! Why a call is refused, or an operation has failed: a status, and the reason as text.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ops::Deref;

use ucs::Error as Status;
use ucs::memory::fork::Forked;
use uct_net::{BadBlocks, Moved};

/// What a call or an operation comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why something failed. One pointer, since every call returns an outcome.
#[derive(Clone, Debug)]
pub struct Failure(Box<Reason>);

/// See [`Failure`].
#[derive(Clone, Debug)]
pub struct Reason {
    pub status: Status,
    pub text: String,
    /// Of a transfer: which of its blocks have moved.
    pub moved: Option<Moved>,
}

impl Failure {
    #[cold]
    pub fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure(Box::new(Reason { status, text: text.into(), moved: None }))
    }

    /// An argument that is wrong.
    #[cold]
    pub fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(Status::INVALID_PARAM, text)
    }

    /// An operation that this side has ended early.
    #[cold]
    pub fn canceled(text: &str) -> Failure {
        Failure::new(Status::CANCELED, text)
    }

    /// As it is, for a transfer of which these blocks have moved.
    pub fn with_moved(mut self, moved: Moved) -> Failure {
        self.0.moved = Some(moved);
        self
    }

    pub fn raw(&self) -> i32 {
        self.status.status().raw()
    }
}

impl Deref for Failure {
    type Target = Reason;

    fn deref(&self) -> &Reason {
        &self.0
    }
}

impl From<uct_net::Error> for Failure {
    #[cold]
    fn from(error: uct_net::Error) -> Failure {
        Failure::new(error.status, error.to_string())
    }
}

impl From<BadBlocks> for Failure {
    #[cold]
    fn from(bad: BadBlocks) -> Failure {
        Failure::invalid(bad.to_string())
    }
}

impl From<Forked> for Failure {
    #[cold]
    fn from(_: Forked) -> Failure {
        Failure::invalid(
            "this process is a child of a fork, and the handle is its parent's: open a net in the child",
        )
    }
}

thread_local! {
    /// Of the last call of this thread that was refused.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// What `uct_error` has returned last in this thread.
    static SHOWN: RefCell<CString> = RefCell::default();
}

/// Remembers why a call of this thread is refused; returns the status for C.
#[cold]
pub fn remember(failure: Failure) -> i32 {
    let status = failure.raw();
    // A thread that ends has nowhere to keep it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(failure));
    status
}

/// Status and reason of the last call of this thread that was refused.
pub fn last() -> Option<(i32, String)> {
    let last = |last: &RefCell<Option<Failure>>| {
        last.borrow().as_ref().map(|failure| (failure.raw(), failure.text.clone()))
    };
    LAST.try_with(last).ok().flatten()
}

/// The text for C, valid until the next call in this thread.
pub fn shown(text: String) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    SHOWN
        .try_with(|shown| {
            *shown.borrow_mut() = text;
            shown.borrow().as_ptr()
        })
        .unwrap_or(std::ptr::null())
}
