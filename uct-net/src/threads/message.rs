//! A received message, for any thread.

#![expect(unsafe_code, reason = "the bytes of a message are read without the engine's lock")]

use std::fmt;
use std::ops::Deref;

use super::confined::Confined;
use super::engine::Entered;
use crate::local;
use crate::local::message::OwnBytes;

/// A received message; dereferences to its bytes. It may lie in a buffer of the transport, which is released by the drop.
pub struct Message {
    place: Place,
}

enum Place {
    Own(OwnBytes),
    /// In a buffer of the transport's.
    Kept(Confined<local::Message>),
}

impl Message {
    pub(super) fn new(entered: &Entered<'_>, message: local::Message) -> Message {
        let place = match message.into_own() {
            Ok(bytes) => Place::Own(bytes),
            Err(message) => Place::Kept(entered.confine(message)),
        };
        Message { place }
    }

    /// The bytes. Short ones, and those in a buffer of the transport, are copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self.place {
            Place::Own(bytes) => bytes.into_vec(),
            Place::Kept(_) => self.to_vec(),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Own(bytes) => bytes,
            // SAFETY: a message is its place and its length, which are never written again, and bytes that are not written until it is dropped.
            Place::Kept(message) => unsafe { message.without_lock() },
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
