//! Writing the bytes of a frame ahead of its payload.

#[cfg(any(test, feature = "testing"))]
use super::frame::Frame;
use super::frame::{Element, Envelope, MAX_HEAD, Prefix, flag, kind};

/// The bytes of a frame ahead of its payload.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; MAX_HEAD],
    length: usize,
}

impl Head {
    #[inline]
    fn new(kind: u8, flags: u8, id: u32) -> Head {
        // As `Prefix` has it.
        let prefix = u64::from(kind) | u64::from(flags) << 8 | u64::from(id) << 32;
        let mut head = Head { bytes: [0; MAX_HEAD], length: size_of::<Prefix>() };
        head.bytes[..size_of::<Prefix>()].copy_from_slice(&prefix.to_le_bytes());
        head
    }

    #[inline]
    fn u64(mut self, value: u64) -> Head {
        self.bytes[self.length..self.length + 8].copy_from_slice(&value.to_le_bytes());
        self.length += 8;
        self
    }

    fn u32(mut self, value: u32) -> Head {
        self.bytes[self.length..self.length + 4].copy_from_slice(&value.to_le_bytes());
        self.length += 4;
        self
    }

    #[inline]
    fn optional(self, value: Option<u64>) -> Head {
        match value {
            Some(value) => self.u64(value),
            None => self,
        }
    }

    #[inline]
    fn enveloped(kind: u8, id: u32, envelope: &Envelope) -> Head {
        let flags = if envelope.tag.is_some() { flag::TAGGED } else { 0 }
            | if envelope.data.is_some() { flag::DATA } else { 0 }
            | if envelope.delivery { flag::DELIVERY } else { 0 };
        Head::new(kind, flags, id).optional(envelope.tag).optional(envelope.data)
    }

    /// Of [`Frame::Message`].
    #[inline]
    pub fn message(id: u32, envelope: &Envelope) -> Head {
        Head::enveloped(kind::MESSAGE, id, envelope)
    }

    /// Of [`Frame::Begin`].
    pub fn begin(id: u32, envelope: &Envelope, length: u64) -> Head {
        Head::enveloped(kind::BEGIN, id, envelope).u64(length)
    }

    /// Of [`Frame::Rest`].
    pub fn rest() -> Head {
        Head::new(kind::REST, 0, 0)
    }

    /// Of [`Frame::Request`].
    pub fn request(id: u32, envelope: &Envelope, length: u64) -> Head {
        Head::enveloped(kind::REQUEST, id, envelope).u64(length)
    }

    /// Of [`Frame::Fetch`].
    pub fn fetch(id: u32, receiver: u32, wanted: u64) -> Head {
        Head::new(kind::FETCH, 0, id).u64(wanted).u32(receiver)
    }

    /// Of [`Frame::Fragment`].
    pub fn fragment(id: u32) -> Head {
        Head::new(kind::FRAGMENT, 0, id)
    }

    /// Of [`Frame::Done`].
    pub fn done(id: u32, status: u32) -> Head {
        Head::new(kind::DONE, 0, id).u32(status)
    }

    /// Of [`Frame::Write`].
    pub fn write(id: u32, key: u64, offset: u64, data: Option<u64>, is_last: bool) -> Head {
        let flags = if data.is_some() { flag::DATA } else { 0 } | if is_last { flag::LAST } else { 0 };
        Head::new(kind::WRITE, flags, id).u64(key).u64(offset).optional(data)
    }

    /// Of [`Frame::Read`].
    pub fn read(id: u32, key: u64, offset: u64, length: u64) -> Head {
        Head::new(kind::READ, 0, id).u64(key).u64(offset).u64(length)
    }

    /// Of [`Frame::Data`].
    pub fn data(id: u32, is_last: bool) -> Head {
        Head::new(kind::DATA, if is_last { flag::LAST } else { 0 }, id)
    }

    /// Of [`Frame::Atomic`].
    pub fn atomic(id: u32, key: u64, offset: u64, element: Element, fetches: bool, is_last: bool) -> Head {
        let flags = if is_last { flag::LAST } else { 0 } | if fetches { flag::FETCH } else { 0 };
        let what =
            u64::from(element.operation) | u64::from(element.data_type) << 8 | u64::from(element.count) << 16;
        Head::new(kind::ATOMIC, flags, id).u64(key).u64(offset).u64(what)
    }

    /// [`Frame::Pause`].
    pub fn pause() -> Head {
        Head::new(kind::PAUSE, 0, 0)
    }

    /// [`Frame::Resume`].
    pub fn resume() -> Head {
        Head::new(kind::RESUME, 0, 0)
    }

    /// Whether these bytes begin a frame that is a message or announces one.
    pub fn is_of_message(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(kind::MESSAGE | kind::BEGIN | kind::REQUEST)))
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Of any frame, for tests: its payload follows.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(frame: &Frame) -> Head {
        match *frame {
            Frame::Message { id, ref envelope, .. } => Head::message(id, envelope),
            Frame::Begin { id, ref envelope, length } => Head::begin(id, envelope, length),
            Frame::Rest => Head::rest(),
            Frame::Request { id, ref envelope, length } => Head::request(id, envelope, length),
            Frame::Fetch { id, receiver, wanted } => Head::fetch(id, receiver, wanted),
            Frame::Fragment { id, .. } => Head::fragment(id),
            Frame::Done { id, status } => Head::done(id, status),
            Frame::Write { id, key, offset, data, is_last, .. } => {
                Head::write(id, key, offset, data, is_last)
            }
            Frame::Read { id, key, offset, length } => Head::read(id, key, offset, length),
            Frame::Pause => Head::pause(),
            Frame::Resume => Head::resume(),
            Frame::Data { id, is_last, .. } => Head::data(id, is_last),
            Frame::Atomic { id, key, offset, element, fetches, is_last, .. } => {
                Head::atomic(id, key, offset, element, fetches, is_last)
            }
        }
    }
}
