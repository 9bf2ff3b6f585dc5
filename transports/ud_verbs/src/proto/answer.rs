//! Answers to requests for a connection that have none yet: a challenge, or a refusal.
//!
//! Built on `header`. The [table](super::table) keeps those that wait, `connect` makes them and `output` sends them.

use super::header::Key;

/// Responses to a peer without a connection.
pub(super) struct Answer<P> {
    pub(super) path: P,
    /// The asking side's.
    pub(super) to: Key,
    pub(super) reply: Reply,
}

/// The content of an [`Answer`].
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Challenge(u64),
    Reject,
}
