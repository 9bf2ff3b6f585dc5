//! The kinds of frames, and reading one.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Malformed;

/// Most bytes ahead of the payload of any frame.
pub const MAX_HEAD: usize = 40;
/// Longest message of several frames that nobody has asked for.
pub const MAX_BEGUN: usize = 1 << 20;

/// The beginning of each frame.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Prefix {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) reserved: U16,
    pub(super) id: U32,
}

pub(super) mod kind {
    pub(crate) const MESSAGE: u8 = 1;
    pub(crate) const REQUEST: u8 = 2;
    pub(crate) const FETCH: u8 = 3;
    pub(crate) const FRAGMENT: u8 = 4;
    pub(crate) const DONE: u8 = 5;
    pub(crate) const WRITE: u8 = 6;
    pub(crate) const READ: u8 = 7;
    pub(crate) const DATA: u8 = 8;
    pub(crate) const ATOMIC: u8 = 9;
    pub(crate) const PAUSE: u8 = 10;
    pub(crate) const RESUME: u8 = 11;
    pub(crate) const BEGIN: u8 = 12;
    pub(crate) const REST: u8 = 13;
}

pub(super) mod flag {
    pub(crate) const TAGGED: u8 = 1;
    pub(crate) const DATA: u8 = 2;
    pub(crate) const DELIVERY: u8 = 4;
    pub(crate) const LAST: u8 = 8;
    pub(crate) const FETCH: u8 = 16;
    /// Those of all kinds with an envelope.
    pub(crate) const OF_MESSAGE: u8 = TAGGED | DATA | DELIVERY;
}

/// What a message is matched by, apart from its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// `None`: an untagged message.
    pub tag: Option<u64>,
    /// For the receiver's entry.
    pub data: Option<u64>,
    /// The sender waits for [`Frame::Done`] when the message is in the receiver's buffer.
    pub delivery: bool,
}

/// Elements of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Libfabric's number of the operation.
    pub operation: u8,
    /// Libfabric's number of the type.
    pub data_type: u8,
    /// Elements in this frame.
    pub count: u32,
}

/// The fields of a frame, ahead of its payload if its kind has one. Ids are the number of an operation at the side named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole message. `id`, the sender's, counts only with [`Envelope::delivery`].
    Message { id: u32, envelope: Envelope },
    /// The first bytes of a message of `length` bytes. The others follow in [`Frame::Rest`], ahead of any other message. `id` as of [`Frame::Message`].
    Begin { id: u32, envelope: Envelope, length: u64 },
    /// The next bytes of the message that has begun. `id` is 0.
    Rest,
    /// A message whose bytes the receiver asks for, or reads itself: the payload, if there is any, is an [`Offer`](super::Offer). `id` is the sender's.
    Request { id: u32, envelope: Envelope, length: u64 },
    /// Asks for the first `wanted` bytes of a message. `id` is the sender's, `receiver` the receiver's.
    Fetch { id: u32, receiver: u32, wanted: u64 },
    /// The next bytes of a message. `id` is the receiver's.
    Fragment { id: u32 },
    /// The end of an operation of the side that gets this: `status` is 0 or an error number.
    Done { id: u32, status: u32 },
    /// Bytes for a region. Its other side replies with [`Frame::Done`] after the last ones. `id` is the initiator's.
    Write { id: u32, key: u64, offset: u64, data: Option<u64>, is_last: bool },
    /// Asks for bytes of a region. `id` is the initiator's.
    Read { id: u32, key: u64, offset: u64, length: u64 },
    /// The next bytes that a read or an atomic operation returns. `id` is the initiator's.
    Data { id: u32, is_last: bool },
    /// Elements to be updated. The other side replies with [`Frame::Data`] if it `fetches`, and otherwise with [`Frame::Done`] after the last
    /// ones. The payload has the operands, then what is compared with, each as the operation has them. `id` is the initiator's.
    Atomic { id: u32, key: u64, offset: u64, element: Element, fetches: bool, is_last: bool },
    /// Too many messages wait for receives: none is sent until [`Frame::Resume`]. Everything else goes on. `id` is 0.
    Pause,
    /// Messages may be sent again. `id` is 0.
    Resume,
}

/// Takes fields from the front of a frame.
struct Fields<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl Fields<'_> {
    #[inline]
    fn u64(&mut self) -> Result<u64, Malformed> {
        let (value, rest) = U64::read_from_prefix(self.rest).map_err(|_| Malformed::Short)?;
        self.rest = rest;
        self.taken += 8;
        Ok(value.get())
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let (value, rest) = U32::read_from_prefix(self.rest).map_err(|_| Malformed::Short)?;
        self.rest = rest;
        self.taken += 4;
        Ok(value.get())
    }

    #[inline]
    fn optional(&mut self, is_there: bool) -> Result<Option<u64>, Malformed> {
        if is_there { self.u64().map(Some) } else { Ok(None) }
    }

    #[inline]
    fn envelope(&mut self, flags: u8) -> Result<Envelope, Malformed> {
        Ok(Envelope {
            tag: self.optional(flags & flag::TAGGED != 0)?,
            data: self.optional(flags & flag::DATA != 0)?,
            delivery: flags & flag::DELIVERY != 0,
        })
    }
}

/// What [`Frame::parse`] returns of a [`Frame::Message`], in fewer instructions: its id and envelope, and where the payload begins. `None` of any other
/// frame.
#[inline]
pub fn whole_message(head: &[u8]) -> Option<(u32, Envelope, usize)> {
    let (prefix, rest) = Prefix::ref_from_prefix(head).ok()?;
    let is_message = prefix.kind == kind::MESSAGE && prefix.flags & !flag::OF_MESSAGE == 0;
    if !is_message || prefix.reserved.get() != 0 {
        return None;
    }
    let mut fields = Fields { rest, taken: size_of::<Prefix>() };
    let envelope = fields.envelope(prefix.flags).ok()?;
    Some((prefix.id.get(), envelope, fields.taken))
}

impl Frame {
    /// Reads a frame of `length` bytes, of which `head` has the first ones: all, or [`MAX_HEAD`] at least. Returns where the payload begins, too.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(head: &[u8], length: usize) -> Result<(Frame, usize), Malformed> {
        let (prefix, rest) = Prefix::ref_from_prefix(head).map_err(|_| Malformed::Short)?;
        if prefix.reserved.get() != 0 {
            return Err(Malformed::Reserved);
        }
        let (id, flags) = (prefix.id.get(), prefix.flags);
        let mut fields = Fields { rest, taken: size_of::<Prefix>() };
        let frame = Frame::of_kind(prefix.kind, flags, id, &mut fields)?;
        if fields.taken < length && !frame.has_payload() {
            return Err(Malformed::Long);
        }
        Ok((frame, fields.taken))
    }

    fn of_kind(kind: u8, flags: u8, id: u32, fields: &mut Fields<'_>) -> Result<Frame, Malformed> {
        let allowed = match kind {
            kind::MESSAGE | kind::REQUEST | kind::BEGIN => flag::OF_MESSAGE,
            kind::FETCH | kind::FRAGMENT | kind::DONE | kind::READ => 0,
            kind::PAUSE | kind::RESUME | kind::REST => 0,
            kind::WRITE => flag::DATA | flag::LAST,
            kind::DATA => flag::LAST,
            kind::ATOMIC => flag::LAST | flag::FETCH,
            unknown => return Err(Malformed::Kind(unknown)),
        };
        if flags & !allowed != 0 {
            return Err(Malformed::Flags(flags));
        }
        let is_last = flags & flag::LAST != 0;
        Ok(match kind {
            kind::MESSAGE => Frame::Message { id, envelope: fields.envelope(flags)? },
            kind::REQUEST => {
                let envelope = fields.envelope(flags)?;
                Frame::Request { id, envelope, length: fields.u64()? }
            }
            kind::BEGIN => {
                let envelope = fields.envelope(flags)?;
                Frame::Begin { id, envelope, length: fields.u64()? }
            }
            kind::FETCH => {
                let wanted = fields.u64()?;
                Frame::Fetch { id, wanted, receiver: fields.u32()? }
            }
            kind::FRAGMENT => Frame::Fragment { id },
            kind::DONE => Frame::Done { id, status: fields.u32()? },
            kind::WRITE => {
                let (key, offset) = (fields.u64()?, fields.u64()?);
                let data = fields.optional(flags & flag::DATA != 0)?;
                Frame::Write { id, key, offset, data, is_last }
            }
            kind::READ => {
                Frame::Read { id, key: fields.u64()?, offset: fields.u64()?, length: fields.u64()? }
            }
            kind::DATA => Frame::Data { id, is_last },
            kind::PAUSE | kind::RESUME | kind::REST if id != 0 => return Err(Malformed::Reserved),
            kind::PAUSE => Frame::Pause,
            kind::RESUME => Frame::Resume,
            kind::REST => Frame::Rest,
            _ => {
                let (key, offset, what) = (fields.u64()?, fields.u64()?, fields.u64()?);
                if what >> 48 != 0 {
                    return Err(Malformed::Reserved);
                }
                let element = Element {
                    operation: what as u8,
                    data_type: (what >> 8) as u8,
                    count: (what >> 16) as u32,
                };
                Frame::Atomic { id, key, offset, element, fetches: flags & flag::FETCH != 0, is_last }
            }
        })
    }

    /// Whether bytes follow its fields.
    pub fn has_payload(&self) -> bool {
        !matches!(
            self,
            Frame::Fetch { .. } | Frame::Done { .. } | Frame::Read { .. } | Frame::Pause | Frame::Resume
        )
    }
}
