//! The version of the wire, which hellos and addresses of interfaces have.

/// Another one does not connect.
pub(super) const VERSION: u16 = 4;
