//! The fields in the body of a frame, so that a later version can add some.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | tag, little-endian: a number, and in the highest bit whether a side that does not know the field must refuse the frame |
//! | 2..6 | bytes of the value, little-endian |
//! | 6.. | the value |
//!
//! Fields are in the order of their numbers, each at most once. One that is not known and need not be is skipped.

use smallvec::SmallVec;

use super::frame::BadFrame;

/// The bit of a tag whose field must be understood.
const MUST: u16 = 1 << 15;
/// Bytes ahead of a value.
const HEADER: usize = 6;
/// Most fields of one frame.
const MAX_FIELDS: usize = 64;

/// The number of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field(u16);

impl Field {
    pub(crate) const PRIVATE: Field = Field(1);
    pub(crate) const ADDRESSES: Field = Field(2);
    pub(crate) const EXPLANATION: Field = Field(3);
    pub(crate) const REASON: Field = Field(4);
    /// The sender's interface of a pair, and the receiver's.
    pub(crate) const OWN: Field = Field(5);
    pub(crate) const THEIRS: Field = Field(6);
    pub(crate) const TOKEN: Field = Field(7);
    pub(crate) const WINDOW: Field = Field(8);
    pub(crate) const ENDPOINT: Field = Field(9);
    pub(crate) const NONCE: Field = Field(10);
    pub(crate) const PROOF: Field = Field(11);
    /// One that an older side skips.
    pub(crate) const OF_FIRST: Field = Field(12);

    fn tag(self) -> u16 {
        self.0 | MUST
    }
}

/// Writes fields; to be called in the order of their numbers.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    last: u16,
}

impl Writer {
    /// A field that must be understood.
    pub(crate) fn field(self, field: Field, value: &[u8]) -> Writer {
        self.write(field, field.tag(), value)
    }

    /// A field without a value, which a side that does not know it skips.
    pub(crate) fn mark(self, field: Field) -> Writer {
        self.write(field, field.0, b"")
    }

    fn write(mut self, field: Field, tag: u16, value: &[u8]) -> Writer {
        debug_assert!(field.0 > self.last, "{field:?} behind {}", self.last);
        self.last = field.0;
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The fields of an untrusted body that were not taken yet.
pub(crate) struct Fields<'a> {
    fields: SmallVec<[(u16, &'a [u8]); 8]>,
}

impl<'a> Fields<'a> {
    pub(crate) fn parse(mut body: &'a [u8]) -> Result<Fields<'a>, BadFrame> {
        let bad = |reason: &str| Err(BadFrame::new(reason));
        let mut fields = SmallVec::new();
        let mut last = 0;
        while !body.is_empty() {
            let Some((&[low, high, a, b, c, d], rest)) = body.split_first_chunk::<HEADER>() else {
                return bad("a frame of the peer is cut");
            };
            let tag = u16::from_le_bytes([low, high]);
            let Some((value, rest)) = rest.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize) else {
                return bad("a field of a peer's frame is longer than the frame");
            };
            if tag & !MUST <= last {
                return bad("a peer's frame has a field twice, or its fields out of order");
            }
            if fields.len() == MAX_FIELDS {
                return bad("a peer's frame has too many fields");
            }
            last = tag & !MUST;
            fields.push((tag, value));
            body = rest;
        }
        Ok(Fields { fields })
    }

    /// The value of a field that has to be there.
    pub(crate) fn take(&mut self, field: Field) -> Result<&'a [u8], BadFrame> {
        let at = self.fields.iter().position(|(tag, _)| *tag == field.tag());
        let at = at.ok_or_else(|| BadFrame::new(format!("a frame of the peer lacks field {}", field.0)))?;
        Ok(self.fields.remove(at).1)
    }

    /// Whether a field is there that [`Writer::mark`] writes.
    pub(crate) fn has(&self, field: Field) -> bool {
        self.fields.iter().any(|(tag, _)| *tag == field.0)
    }

    /// The value of a field that has to be there, of so many bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: Field) -> Result<[u8; N], BadFrame> {
        let value = self.take(field)?;
        let problem = || format!("field {} of {} bytes where {N} are expected", field.0, value.len());
        value.try_into().map_err(|_| BadFrame::new(problem()))
    }

    /// Nothing may be left over that must be understood.
    pub(crate) fn finish(self) -> Result<(), BadFrame> {
        let Some((tag, _)) = self.fields.iter().find(|(tag, _)| tag & MUST != 0) else { return Ok(()) };
        let reason = format!(
            "the peer sends field {}, which this side does not know and may not ignore; update the older one",
            tag & !MUST
        );
        Err(BadFrame { reason, is_newer: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of any tag.
    fn raw(tag: u16, value: &[u8]) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &(value.len() as u32).to_le_bytes(), value].concat()
    }

    fn refused(body: &[u8]) -> String {
        Fields::parse(body).map(|_| ()).unwrap_err().reason
    }

    #[test]
    fn fields_are_encoded_and_parsed() {
        let body = Writer::default().field(Field::PRIVATE, b"abc").field(Field::REASON, b"").finish();
        let mut fields = Fields::parse(&body).unwrap();
        assert_eq!(fields.take(Field::REASON), Ok(&b""[..]));
        assert_eq!(fields.array(Field::PRIVATE), Ok(*b"abc"));
        assert!(fields.take(Field::PRIVATE).unwrap_err().reason.contains("lacks field 1"));
        assert_eq!(fields.finish(), Ok(()));
        let mut fields = Fields::parse(&body).unwrap();
        assert!(fields.array::<2>(Field::PRIVATE).unwrap_err().reason.contains("3 bytes where 2"));
    }

    #[test]
    fn an_unknown_field_is_skipped_or_refused_as_its_tag_says() {
        let known = raw(Field::PRIVATE.tag(), b"known");
        for (tag, is_skipped) in [(200, true), (200 | MUST, false)] {
            let body = [known.clone(), raw(tag, b"new")].concat();
            let mut fields = Fields::parse(&body).unwrap();
            assert_eq!(fields.take(Field::PRIVATE), Ok(&b"known"[..]));
            let rest = fields.finish();
            assert_eq!(rest.is_ok(), is_skipped);
            if let Err(error) = rest {
                assert!(
                    error.is_newer && error.reason.contains("field 200") && error.reason.contains("update")
                );
            }
        }
    }

    #[test]
    fn fields_that_come_twice_or_out_of_order_are_refused() {
        for tags in [[1, 1], [2, 1], [1, 1 | MUST], [1 | MUST, 1], [0, 1]] {
            let body = tags.map(|tag| raw(tag, b"x")).concat();
            assert!(refused(&body).contains("twice, or its fields out of order"), "{tags:?}");
        }
        let many: Vec<u8> = (1..=MAX_FIELDS as u16 + 1).flat_map(|tag| raw(tag, b"")).collect();
        assert!(refused(&many).contains("too many"));
    }

    #[test]
    fn a_body_that_is_cut_is_refused() {
        let body = raw(1, b"abc");
        for length in 1..body.len() {
            assert!(!refused(&body[..length]).is_empty(), "{length}");
        }
        assert!(refused(&[1, 0, 255, 255, 255, 255]).contains("longer than the frame"));
    }
}
