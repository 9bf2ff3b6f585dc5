//! How large messages of an interface may be.

/// Largest header of a zero-copy message.
pub(crate) const MAX_HEADER: usize = 256;

/// Sizes of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Header and payload of a short message.
    pub(crate) short: usize,
    /// Any other message.
    pub(crate) bulk: usize,
    /// Short and buffered operations on remote memory.
    pub(crate) remote: usize,
}
