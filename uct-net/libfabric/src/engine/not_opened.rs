//! Why a domain or an endpoint was not opened.

use super::Errno;

/// Why something was not opened.
#[derive(Clone, Debug)]
pub struct NotOpened {
    /// The nearest error number.
    pub errno: Errno,
    /// The reason as text, with a remedy where one is known.
    pub reason: String,
}

pub(super) fn not_opened(errno: Errno, error: &dyn std::fmt::Display) -> NotOpened {
    NotOpened { errno, reason: error.to_string() }
}
