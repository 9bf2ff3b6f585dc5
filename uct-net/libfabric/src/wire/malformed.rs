//! Why a frame is refused.

use std::fmt;

/// What is wrong with a frame. It ends the connection that it came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends inside a field.
    Short,
    /// Its kind is not known.
    Kind(u8),
    /// It has flags that its kind does not have.
    Flags(u8),
    /// Reserved bytes are not 0.
    Reserved,
    /// It goes on after its last field.
    Long,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("a frame ends inside a field"),
            Malformed::Kind(kind) => write!(f, "a frame has the unknown kind {kind}"),
            Malformed::Flags(flags) => write!(f, "a frame has flags {flags:#x} that its kind does not have"),
            Malformed::Reserved => f.write_str("reserved bytes of a frame are not 0"),
            Malformed::Long => f.write_str("a frame goes on after its last field"),
        }
    }
}
