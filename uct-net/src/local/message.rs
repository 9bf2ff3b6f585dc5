//! A received message.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use smallvec::SmallVec;
use uct_host::{AmMessage, Buffer, KeptMessage};

/// Messages below this are copied: keeping a buffer of the transport's for a few bytes costs it more.
const COPIED: usize = 1024;
/// Most messages of a thread that stay in buffers of transports; further ones are copied.
const MAX_KEPT: usize = 32;
/// Messages up to this length need no memory beside their place.
const INLINE: usize = 64;

/// A received message; dereferences to its bytes. It may lie in a buffer of the transport, which is released by the drop.
pub struct Message {
    place: Place,
}

enum Place {
    Own(SmallVec<[u8; INLINE]>),
    Large(Large),
}

struct Large {
    place: LargePlace,
    /// Where the payload begins.
    start: usize,
}

enum LargePlace {
    /// In memory that later messages use again.
    Buffer(Buffer),
    /// In a buffer of the transport's.
    Kept(KeptMessage, #[expect(dead_code, reason = "counts until it is dropped")] Counted),
}

/// Bytes that belong to a message alone, for any thread.
pub(crate) enum OwnBytes {
    Own(SmallVec<[u8; INLINE]>),
    /// From a place on.
    Buffer(Buffer, usize),
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
        if message.len() < COPIED {
            return Message { place: Place::Own(SmallVec::from_slice(&message[start..])) };
        }
        let place = match kept.take() {
            None => LargePlace::Buffer(message.into_copy()),
            // A transport whose messages are copied anyway has no buffer to lose.
            Some(counted) => match message.keep().into_copy() {
                Ok(copy) => LargePlace::Buffer(copy),
                Err(message) => LargePlace::Kept(message, counted),
            },
        };
        Message { place: Place::Large(Large { place, start }) }
    }

    /// One that was put together of parts.
    pub(crate) fn assembled(buffer: Buffer) -> Message {
        Message { place: Place::Large(Large { place: LargePlace::Buffer(buffer.fitted()), start: 0 }) }
    }

    /// The bytes if they are the message's own, or else the message.
    pub(crate) fn into_own(self) -> Result<OwnBytes, Message> {
        match self.place {
            Place::Own(bytes) => Ok(OwnBytes::Own(bytes)),
            Place::Large(Large { place: LargePlace::Buffer(buffer), start }) => {
                Ok(OwnBytes::Buffer(buffer, start))
            }
            place => Err(Message { place }),
        }
    }

    /// The bytes. Short ones, and those in a buffer of the transport, are copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self.into_own() {
            Ok(bytes) => bytes.into_vec(),
            Err(message) => message.to_vec(),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Own(bytes) => bytes,
            Place::Large(Large { place, start }) => match place {
                LargePlace::Buffer(buffer) => &buffer[*start..],
                LargePlace::Kept(message, _) => &message[*start..],
            },
        }
    }
}

impl OwnBytes {
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            OwnBytes::Own(bytes) => bytes.into_vec(),
            OwnBytes::Buffer(buffer, start) => {
                let mut bytes = buffer.into_vec();
                bytes.drain(..start);
                bytes
            }
        }
    }
}

impl Deref for OwnBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            OwnBytes::Own(bytes) => bytes,
            OwnBytes::Buffer(buffer, start) => &buffer[*start..],
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
