//! The header of a frame of the handshake.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTN` |
//! | 4 | [`VERSION`] |
//! | 5 | what the frame is |
//! | 6..8 | zero |
//! | 8..12 | bytes that follow, little-endian; at most [`MAX_BODY`] |
//!
//! The body is [fields](super::fields).

/// Bytes ahead of a frame's body.
pub(crate) const HEADER: usize = 12;
/// Longest body: the addresses of every interface that there may be need less.
pub(crate) const MAX_BODY: usize = 256 << 10;
const MAGIC: [u8; 4] = *b"UCTN";
pub(crate) const VERSION: u8 = 6;

/// Why bytes are no frame, for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct BadFrame {
    pub(crate) reason: String,
    /// They may be one for a newer side than this one.
    pub(crate) is_newer: bool,
}

impl BadFrame {
    pub(crate) fn new(reason: impl Into<String>) -> BadFrame {
        BadFrame { reason: reason.into(), is_newer: false }
    }
}

/// Checks the first bytes of a header: a peer with another protocol may send no more.
pub(crate) fn check_magic(magic: [u8; 4]) -> Result<(), BadFrame> {
    if magic == MAGIC {
        return Ok(());
    }
    let (found, expected) = (magic.escape_ascii(), MAGIC.escape_ascii());
    Err(BadFrame::new(format!(
        "the peer begins with \"{found}\", expected \"{expected}\": it uses another protocol"
    )))
}

/// Whether bytes begin a frame.
#[cfg(feature = "tls")]
pub(crate) fn is_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether bytes are the beginning of TLS: a record of its handshake.
pub(crate) fn is_tls(magic: [u8; 4]) -> bool {
    matches!(magic, [22, 3, ..])
}

/// Reads the header of a frame: what it is, and the length of its body.
pub(crate) fn parse_header(header: &[u8; HEADER]) -> Result<(u8, usize), BadFrame> {
    let [a, b, c, d, version, what, zero, zeros, length @ ..] = *header;
    check_magic([a, b, c, d])?;
    check_version(version)?;
    let length = u32::from_le_bytes(length) as usize;
    if [zero, zeros] != [0, 0] || length > MAX_BODY {
        return Err(BadFrame::new(format!(
            "the peer announces {length} bytes; at most {MAX_BODY} are accepted"
        )));
    }
    Ok((what, length))
}

/// Checks the version of a peer.
pub(crate) fn check_version(version: u8) -> Result<(), BadFrame> {
    if version == VERSION {
        return Ok(());
    }
    let reason = format!("the peer has version {version}, this side version {VERSION}; update the older one");
    Err(BadFrame { reason, is_newer: true })
}

/// A frame with its header; an error if it is longer than a peer accepts.
pub(crate) fn to_bytes(what: u8, body: &[u8]) -> Result<Vec<u8>, BadFrame> {
    let length = body.len();
    if length > MAX_BODY {
        return Err(BadFrame::new(format!("a frame of {length} bytes; at most {MAX_BODY} are sent")));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[VERSION, what, 0, 0]);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_encoded_and_parsed() {
        let bytes = to_bytes(7, b"body").unwrap();
        assert_eq!(parse_header(bytes.first_chunk().unwrap()), Ok((7, 4)));
        assert_eq!(&bytes[HEADER..], b"body");
        assert!(to_bytes(7, &vec![0; MAX_BODY + 1]).is_err());
    }

    #[test]
    fn other_bytes_than_a_header_are_refused_with_the_reason() {
        let good = to_bytes(1, b"").unwrap();
        let with = |at: usize, value: u8| {
            let mut header: [u8; HEADER] = *good.first_chunk().unwrap();
            header[at] = value;
            parse_header(&header).map(|_| ()).unwrap_err()
        };
        assert!(with(0, b'H').reason.contains("begins with \"HCTN\""));
        assert!(with(4, 9).reason.contains("version 9") && with(4, 9).is_newer);
        assert!(with(6, 1).reason.contains("at most"));
        assert!(with(11, 0x7f).reason.contains("at most"));
    }
}
