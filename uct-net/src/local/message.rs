//! A received message.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use smallvec::SmallVec;
use uct_host::{AmMessage, KeptMessage};

/// Messages below this are copied: keeping a buffer of the transport's for a few bytes costs it more.
const COPIED: usize = 1024;
/// Most messages of a thread that stay where they were received; further ones are copied.
const MAX_KEPT: usize = 32;
/// Messages up to this length need no memory beside their place.
const INLINE: usize = 64;

/// Bytes that belong to a message alone.
pub(crate) type OwnBytes = SmallVec<[u8; INLINE]>;

/// A received message; dereferences to its bytes. It may lie in a buffer of the transport, which is released by the drop.
pub struct Message {
    place: Place,
}

enum Place {
    Own(OwnBytes),
    Kept(Kept),
}

/// In a buffer of the transport's.
struct Kept {
    message: KeptMessage,
    /// Where the payload begins.
    start: usize,
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: Counted,
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
            return Message { place: Place::Kept(Kept { message: message.keep(), start, counted }) };
        }
        Message { place: Place::Own(OwnBytes::from_slice(&message[start..])) }
    }

    pub(crate) fn assembled(bytes: Vec<u8>) -> Message {
        Message { place: Place::Own(OwnBytes::from_vec(bytes)) }
    }

    /// The bytes if they are the message's own, or else the message.
    pub(crate) fn into_own(self) -> Result<OwnBytes, Message> {
        match self.place {
            Place::Own(bytes) => Ok(bytes),
            place => Err(Message { place }),
        }
    }

    /// The bytes. Short ones, and those in a buffer of the transport, are copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self.place {
            Place::Own(bytes) => bytes.into_vec(),
            Place::Kept(kept) => kept.bytes().to_vec(),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Own(bytes) => bytes,
            Place::Kept(kept) => kept.bytes(),
        }
    }
}

impl Kept {
    fn bytes(&self) -> &[u8] {
        &self.message[self.start..]
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
