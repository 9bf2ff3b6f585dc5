//! The error of the control path: a status and the reason as text.

use std::fmt;

use ucs::config::ConfigError;
use ucs::{Error, Status};
use uct_abi::{UctStatus, UctText};

/// Why something could not be opened, created, registered or reached, as a text that names the object, what was expected and
/// what to do. The words cross the boundary.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status that the caller gets.
    pub status: Error,
    /// The reason; a sentence without a full stop. Behind ` → `, what to do about it.
    pub reason: String,
}

ucs::debug_as_display!(Failure);

impl Failure {
    /// A failure with a reason.
    pub fn new(status: Error, reason: impl Into<String>) -> Failure {
        Failure { status, reason: reason.into() }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn with_remedy(self, remedy: impl fmt::Display) -> Failure {
        Failure { reason: format!("{} → {remedy}", self.reason), ..self }
    }

    /// A failed system call: `what` was attempted, `error` came back.
    pub fn system(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        let status = error.raw_os_error().map_or(Error::IO_ERROR, Error::from_errno);
        Failure { status, reason: format!("{what}: {error}") }
    }

    /// The answer of everything that a transport leaves out.
    pub fn unsupported(what: &str) -> Failure {
        Failure::new(Error::UNSUPPORTED, format!("{what} is not supported by this transport"))
    }

    /// Hands the reason over and returns the status.
    pub(crate) fn write(&self, text: *mut UctText) -> UctStatus {
        write_text(text, &self.reason);
        self.status.status().raw()
    }
}

/// Writes as much of `words` as fits, cut between characters.
pub(crate) fn write_text(text: *mut UctText, words: &str) {
    // SAFETY: the host hands over null or a text of its own that is valid for the call (`UctText`).
    let Some(text) = (unsafe { text.as_mut() }) else { return };
    let mut length = words.len().min(text.capacity);
    while !words.is_char_boundary(length) {
        length -= 1;
    }
    if length > 0 {
        // SAFETY: `data` is writable for `capacity` bytes (`UctText`), and `length` is at most that.
        unsafe { text.data.copy_from_nonoverlapping(words.as_ptr(), length) };
    }
    text.length = length;
}

impl From<Error> for Failure {
    fn from(status: Error) -> Failure {
        Failure { status, reason: status.status().text().to_owned() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(Error::INVALID_PARAM, error.to_string())
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        failure.status.status()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)
    }
}

impl std::error::Error for Failure {}
