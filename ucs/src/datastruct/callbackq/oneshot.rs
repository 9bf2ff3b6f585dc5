//! Work that runs once.
//!
//! For work that has to run inside progress and not in the caller. No dependencies. `slow` keeps and runs it.

use std::fmt;

use super::RawCallback;

/// Groups one-shots for removal: an address, for instance, of what they refer to.
pub type OneshotKey = usize;

/// Something to run once.
pub enum Oneshot {
    /// A closure.
    Boxed(Box<dyn FnOnce() -> u32>),
    /// A C function.
    Raw(RawCallback),
}

impl Oneshot {
    /// Runs it.
    pub(super) fn run(self) -> u32 {
        match self {
            Oneshot::Boxed(run) => run(),
            // SAFETY: the caller of `add_oneshot_raw` vouched for one call on this thread, and this is that one.
            Oneshot::Raw(raw) => unsafe { (raw.callback)(raw.argument) },
        }
    }
}

impl fmt::Debug for Oneshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Oneshot::Boxed(_) => f.write_str("Boxed"),
            Oneshot::Raw(raw) => f.debug_tuple("Raw").field(raw).finish(),
        }
    }
}
