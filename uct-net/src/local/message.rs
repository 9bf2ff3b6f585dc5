//! A received message.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use uct_core::{AmMessage, KeptMessage};

/// Messages below this are copied: keeping a buffer of the transport's for a few bytes costs it more.
const COPIED: usize = 1024;
/// Most messages of a thread that stay where they were received; further ones are copied.
const MAX_KEPT: usize = 32;

/// A received message; dereferences to its bytes. It may lie in a buffer of the transport, which is released by the drop.
pub struct Message {
    place: Place,
    start: usize,
}

enum Place {
    Bytes(Vec<u8>),
    Kept(KeptMessage, #[expect(dead_code, reason = "counts until it is dropped")] Counted),
}

/// How many messages of a thread lie in buffers of transports: without a bound they would leave the transports none.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptCount(Rc<Cell<usize>>);

struct Counted(Rc<Cell<usize>>);

impl KeptCount {
    fn take(&self) -> Option<Counted> {
        (self.0.get() < MAX_KEPT).then(|| {
            self.0.set(self.0.get() + 1);
            Counted(Rc::clone(&self.0))
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Message {
    /// What the transport delivered, without the `start` bytes ahead of the payload. Where that saves a copy it stays in the
    /// transport's buffer.
    pub(crate) fn received(message: AmMessage<'_>, start: usize, kept: &KeptCount) -> Message {
        if message.len() >= COPIED
            && let Some(counted) = kept.take()
        {
            return Message { place: Place::Kept(message.keep(), counted), start };
        }
        Message { place: Place::Bytes(message[start..].to_vec()), start: 0 }
    }

    pub(crate) fn assembled(bytes: Vec<u8>) -> Message {
        Message { place: Place::Bytes(bytes), start: 0 }
    }

    /// The bytes if the message has memory of its own, or else the message.
    pub(crate) fn into_own(self) -> Result<Vec<u8>, Message> {
        match self.place {
            Place::Bytes(bytes) if self.start == 0 => Ok(bytes),
            place => Err(Message { place, start: self.start }),
        }
    }

    /// The bytes: without a copy if the message has memory of its own, otherwise copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self.place {
            Place::Bytes(bytes) if self.start == 0 => bytes,
            _ => self.to_vec(),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Bytes(bytes) => &bytes[self.start..],
            Place::Kept(kept, _) => &kept[self.start..],
        }
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("length", &self.len()).finish_non_exhaustive()
    }
}
