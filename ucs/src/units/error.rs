//! The error of every parser of [`units`](crate::units): what was given, what was expected, and an example.
//!
//! No dependencies. The configuration turns it into a message that also names the key and where the value came from.

use std::fmt;

/// A text that is not a value of the expected type.
#[derive(Clone, PartialEq, Eq)]
pub struct UnitError {
    what: &'static str,
    given: String,
    expected: &'static str,
    example: &'static str,
}

crate::debug_as_display!(UnitError);

impl UnitError {
    pub(super) fn new(
        what: &'static str,
        given: &str,
        expected: &'static str,
        example: &'static str,
    ) -> Self {
        UnitError { what, given: shown(given), expected, example }
    }

    /// The type that was expected, as text: "memory size".
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// The text that was given, quoted, control characters escaped and cut where it is long.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// The form that was expected, as text.
    pub fn expected(&self) -> &'static str {
        self.expected
    }

    /// A text that would have been accepted.
    pub fn example(&self) -> &'static str {
        self.example
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnitError { what, given, expected, example } = self;
        write!(out, "{given} is not a {what}: expected {expected}, for example {example}")
    }
}

impl std::error::Error for UnitError {}

/// `text` as an error message shows it: quoted, escaped, and no longer than a line.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
