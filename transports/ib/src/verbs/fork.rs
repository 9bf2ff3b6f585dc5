//! Whether the process may fork while memory is registered.
//!
//! For memory domains, before they register anything. Built on the table.
//! Registered pages that a fork makes copy-on-write would leave the device writing to pages that no process sees. Kernels since
//! 5.12 copy them at the fork and need nothing; older ones need every region to be marked, which this requests.

use super::VerbsTable;

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
    ask(table, true)
}

/// How things are, without a change.
pub fn status(table: &VerbsTable) -> ForkSupport {
    ask(table, false)
}

/// Enables fork support if wanted, and returns its state.
fn ask(table: &VerbsTable, enable: bool) -> ForkSupport {
    let known = table.is_fork_initialized.map(|status| {
        // SAFETY: takes nothing, and only reads the library's state and the kernel's answer to a query.
        unsafe { status() }
    });
    match known {
        Some(2) => return ForkSupport::Unneeded,
        Some(1) => return ForkSupport::Enabled,
        _ if !enable => return ForkSupport::Disabled,
        _ => {}
    }
    // SAFETY: takes nothing; the library allows it at any time, and returns EINVAL after a registration.
    match unsafe { (table.fork_init)() } {
        0 => ForkSupport::Enabled,
        errno => ForkSupport::Failed(errno),
    }
}
