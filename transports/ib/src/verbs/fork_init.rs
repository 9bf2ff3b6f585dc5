//! The calls behind `crate::fork`.
//!
//! For: `crate::fork`. Stands on the table.

use super::VerbsTable;
use crate::fork::ForkSupport;

/// Enables fork support if wanted, and says how it is.
pub(crate) fn fork_status(table: &VerbsTable, enable: bool) -> ForkSupport {
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
    // SAFETY: takes nothing; the library allows it at any time, and answers EINVAL after a registration.
    match unsafe { (table.fork_init)() } {
        0 => ForkSupport::Enabled,
        errno => ForkSupport::Failed(errno),
    }
}
