//! What the end of a work request has to do.

use uct_plugin::{Completion, OldWord, Unpack};

use crate::io::buffer::{MessageBuffer, ReadBuffer, SmallBuffer};

/// What to do when a work request has ended, and the buffer that it uses until then.
pub(crate) enum TxOp {
    /// Put back a buffer of messages.
    Buffer(MessageBuffer),
    /// Put back a small buffer, if any, and complete.
    Zcopy(Option<SmallBuffer>, Option<Completion>),
    /// A read of this many bytes into the caller's memory.
    Get(usize, Option<Completion>),
    /// A read into a buffer of messages, to be handed over.
    GetBcopy(ReadBuffer, Unpack, Option<Completion>),
    /// An atomic whose result is in a small buffer.
    Fetch(SmallBuffer, OldWord, Option<Completion>),
    /// One step of an emulated atomic, whose result is in a small buffer.
    Step(SmallBuffer),
    /// Nothing but the end itself is of interest.
    Notify(Completion),
}
