//! Errors of the asynchronous context.
//!
//! Used by callers of add, modify and remove. Built on `sys::SystemError`.

use super::HandlerId;
use crate::sys::SystemError;

/// A refusal of the asynchronous context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AsyncError {
    /// The kernel refused: a descriptor that is closed, registered already or cannot be waited for, or too
    /// many of them.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The handler has been removed or never was.
    #[error("asynchronous handler {id} is not registered: it was removed, or belongs to another context")]
    NoSuchHandler {
        /// What was requested.
        id: HandlerId,
    },
    /// A timer was modified as a descriptor, or the reverse.
    #[error("asynchronous handler {id} is not a {expected}")]
    WrongKind {
        /// What was requested.
        id: HandlerId,
        /// "timer" or "file descriptor".
        expected: &'static str,
    },
    /// A periodic timer without a period would never stop running.
    #[error("a periodic timer needs an interval above zero")]
    ZeroInterval,
    /// The context has been dropped.
    #[error("the asynchronous context has been closed")]
    Closed,
}

impl From<AsyncError> for crate::Error {
    fn from(error: AsyncError) -> crate::Error {
        (&error).into()
    }
}

impl From<&AsyncError> for crate::Error {
    fn from(error: &AsyncError) -> crate::Error {
        match error {
            AsyncError::System(error) if error.errno == libc::EEXIST => crate::Error::ALREADY_EXISTS,
            AsyncError::System(error) => error.into(),
            AsyncError::NoSuchHandler { .. } => crate::Error::NO_ELEM,
            AsyncError::WrongKind { .. } | AsyncError::ZeroInterval => crate::Error::INVALID_PARAM,
            AsyncError::Closed => crate::Error::CANCELED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn each_refusal_has_a_status() {
        let system = |errno| AsyncError::System(SystemError::new("wait", errno));
        let id = HandlerId::from_raw(7);
        let cases = [
            (system(libc::EEXIST), Error::ALREADY_EXISTS),
            (system(libc::ENOMEM), Error::NO_MEMORY),
            (AsyncError::NoSuchHandler { id }, Error::NO_ELEM),
            (AsyncError::WrongKind { id, expected: "timer" }, Error::INVALID_PARAM),
            (AsyncError::ZeroInterval, Error::INVALID_PARAM),
            (AsyncError::Closed, Error::CANCELED),
        ];
        for (refusal, status) in cases {
            assert_eq!(Error::from(&refusal), status, "{refusal}");
            assert_eq!(Error::from(refusal), status);
        }
    }
}
