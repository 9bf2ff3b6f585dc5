//! Whether the process may fork while memory is registered.
//!
//! For: memory domains, before they register anything. Stands on `ibv_fork_init`.
//! Registered pages that a fork makes copy-on-write would leave the device writing to pages that nobody sees. Kernels since
//! 5.12 copy them at the fork and need nothing; older ones need every region to be marked, which this asks for.

use crate::verbs::{VerbsTable, fork_status};

/// How forking is made safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkSupport {
    /// The kernel copies pinned pages at a fork by itself.
    Unneeded,
    /// Regions are marked not to be inherited: a child must not touch them.
    Enabled,
    /// Nothing is done; a fork while memory is registered corrupts data.
    Disabled,
    /// It was asked for and could not be had, by this error number.
    Failed(i32),
}

/// Asks the library to make forking safe, once for the process; must come before any registration.
pub fn enable(table: &VerbsTable) -> ForkSupport {
    fork_status(table, true)
}

/// How things are, without a change.
pub fn status(table: &VerbsTable) -> ForkSupport {
    fork_status(table, false)
}
