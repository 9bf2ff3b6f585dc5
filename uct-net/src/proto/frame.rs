//! Frames of the handshake's socket, and the fields inside them.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTN` |
//! | 4 | version, 5 |
//! | 5 | what the frame is |
//! | 6..8 | zero |
//! | 8..12 | bytes that follow, little-endian; at most [`MAX_BODY`] |
//!
//! A field is its length (4 bytes, little-endian) and that many bytes.

use ucs::text::{PeerLines, PeerText};

/// Bytes ahead of a frame's body.
pub(crate) const HEADER: usize = 12;
/// Longest body: the addresses of every interface that there may be need less.
pub(crate) const MAX_BODY: usize = 256 << 10;
const MAGIC: [u8; 4] = *b"UCTN";
pub(crate) const VERSION: u8 = 5;

/// Why bytes are no frame, for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadFrame(pub(crate) String);

fn bad<T>(problem: impl Into<String>) -> Result<T, BadFrame> {
    Err(BadFrame(problem.into()))
}

/// Checks the first bytes of a header: a peer with another protocol may send no more.
pub(crate) fn check_magic(magic: [u8; 4]) -> Result<(), BadFrame> {
    if magic == MAGIC {
        return Ok(());
    }
    let (found, expected) = (magic.escape_ascii(), MAGIC.escape_ascii());
    bad(format!("the peer begins with \"{found}\", expected \"{expected}\": it uses another protocol"))
}

/// Whether bytes are the beginning of TLS: a record of its handshake.
pub(crate) fn is_tls(magic: [u8; 4]) -> bool {
    matches!(magic, [22, 3, ..])
}

/// Reads the header of a frame: what it is, and the length of its body.
pub(crate) fn parse_header(header: &[u8; HEADER]) -> Result<(u8, usize), BadFrame> {
    let [a, b, c, d, version, what, zero, zeros, length @ ..] = *header;
    check_magic([a, b, c, d])?;
    if version != VERSION {
        return bad(format!(
            "the peer has version {version}, this side version {VERSION}; update the older one"
        ));
    }
    let length = u32::from_le_bytes(length) as usize;
    if [zero, zeros] != [0, 0] || length > MAX_BODY {
        return bad(format!("the peer announces {length} bytes; at most {MAX_BODY} are accepted"));
    }
    Ok((what, length))
}

/// Writes a frame.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(what: u8) -> Writer {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, what, 0, 0, 0, 0, 0, 0]);
        Writer { bytes }
    }

    pub(crate) fn number(mut self, number: u64) -> Writer {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(crate) fn field(mut self, field: &[u8]) -> Writer {
        self.bytes.extend_from_slice(&(field.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(field);
        self
    }

    /// The frame; an error if it is longer than a peer accepts.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, BadFrame> {
        let length = self.bytes.len() - HEADER;
        if length > MAX_BODY {
            return bad(format!("a frame of {length} bytes; at most {MAX_BODY} are sent"));
        }
        self.bytes[8..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(self.bytes)
    }
}

/// Reads the body of a frame.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body }
    }

    pub(crate) fn number(&mut self) -> Result<u64, BadFrame> {
        let Some((number, rest)) = self.rest.split_first_chunk::<8>() else {
            return bad("a frame of the peer is cut");
        };
        self.rest = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(crate) fn field(&mut self) -> Result<&'a [u8], BadFrame> {
        let Some((length, rest)) = self.rest.split_first_chunk::<4>() else {
            return bad("a frame of the peer is cut");
        };
        let Some((field, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else {
            return bad("a field of a peer's frame is longer than the frame");
        };
        self.rest = rest;
        Ok(field)
    }

    /// Text for a person.
    pub(crate) fn text(&mut self) -> Result<PeerText, BadFrame> {
        self.field().map(PeerText::new)
    }

    /// Lines of text for a person.
    pub(crate) fn lines(&mut self) -> Result<PeerLines, BadFrame> {
        self.field().map(PeerLines::new)
    }

    /// Nothing may be left over.
    pub(crate) fn finish(self) -> Result<(), BadFrame> {
        if self.rest.is_empty() { Ok(()) } else { bad("bytes are left over behind a peer's frame") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_encoded_and_parsed() {
        let bytes = Writer::new(7).number(42).field(b"abc").field(b"").finish().unwrap();
        let header = bytes.first_chunk::<HEADER>().unwrap();
        assert_eq!(parse_header(header).unwrap(), (7, bytes.len() - HEADER));
        let mut reader = Reader::new(&bytes[HEADER..]);
        assert_eq!(reader.number().unwrap(), 42);
        assert_eq!(reader.field().unwrap(), b"abc");
        assert_eq!(reader.field().unwrap(), b"");
        reader.finish().unwrap();
    }

    #[test]
    fn other_bytes_than_a_header_are_refused_with_the_reason() {
        let good = Writer::new(1).finish().unwrap();
        let with = |at: usize, value: u8| {
            let mut header: [u8; HEADER] = *good.first_chunk().unwrap();
            header[at] = value;
            parse_header(&header).map(|_| ()).unwrap_err().to_string()
        };
        assert!(with(0, b'H').contains("begins with \"HCTN\""));
        assert!(with(4, 9).contains("version 9"));
        assert!(with(6, 1).contains("at most"));
        assert!(with(11, 0x7f).contains("at most"));
    }

    #[test]
    fn a_body_that_is_cut_or_too_long_is_refused() {
        let bytes = Writer::new(1).number(1).field(b"abcdef").finish().unwrap();
        let body = &bytes[HEADER..];
        for length in 0..body.len() {
            let mut reader = Reader::new(&body[..length]);
            assert!(reader.number().and_then(|_| reader.field().map(|_| ())).is_err(), "{length}");
        }
        assert!(Reader::new(body).finish().is_err());
        assert!(Writer::new(1).field(&vec![0; MAX_BODY]).finish().is_err());
    }
}
