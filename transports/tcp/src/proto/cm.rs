//! What crosses a socket of the connection manager: frames of private data. Pure functions; everything read is untrusted.
//!
//! Numbers are little-endian. A frame is a header and its private data:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTc` |
//! | 4..6 | version; the first eight bytes are the same in all versions |
//! | 6..8 | [`Kind`] |
//! | 8..12 | bytes of private data, at most [`MAX_DATA`] |
//! | 12..16 | 0; with [`Kind::Refuse`] a [`Refusal`] |
//!
//! | client | server |
//! |---|---|
//! | request | |
//! | | accept, reject or refuse |
//! | notify | |
//! | disconnect | disconnect |

/// `UCTc`.
const MAGIC: [u8; 4] = *b"UCTc";
/// Version of the frames.
const VERSION: u16 = 1;
/// Bytes of a header.
pub(crate) const HEADER: usize = 16;
/// Most bytes of private data: as many as UCX's.
pub(crate) const MAX_DATA: usize = 2064;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    /// The client calls.
    Request = 1,
    /// The application of the server has accepted.
    Accept = 2,
    /// The application of the server has rejected.
    Reject = 3,
    /// The client is connected.
    Notify = 4,
    /// The sender sends nothing more.
    Disconnect = 5,
    /// The server's connection manager does not take the request.
    Refuse = 6,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// The versions differ.
    Version = 1,
    /// Too many requests of this source wait for the application.
    TooMany = 2,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) data: Vec<u8>,
    pub(crate) refusal: Option<Refusal>,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// Not of this kind at all.
    #[error("it does not use the protocol of this connection manager")]
    Foreign,
    /// Of another version.
    #[error(
        "it has version {0} of the protocol, this side version {VERSION}: use the same release on both sides"
    )]
    Version(u16),
    /// Of no known kind.
    #[error("its frame is of the unknown kind {0}")]
    Kind(u16),
    /// Longer than permitted.
    #[error("its frame announces {0} bytes of private data, at most {MAX_DATA} are permitted")]
    TooLong(u32),
}

/// The bytes of a frame; no more data than [`MAX_DATA`].
pub(crate) fn write(kind: Kind, data: &[u8]) -> Vec<u8> {
    write_with(kind, data, 0)
}

/// The bytes of a refusal.
pub(crate) fn refuse(refusal: Refusal) -> Vec<u8> {
    write_with(Kind::Refuse, &[], refusal as u32)
}

fn write_with(kind: Kind, data: &[u8], refusal: u32) -> Vec<u8> {
    debug_assert!(data.len() <= MAX_DATA);
    let mut bytes = Vec::with_capacity(HEADER + data.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(kind as u16).to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&refusal.to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Received bytes, until they are frames.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether there is a part of a frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next frame, if it is complete. An error is returned as early as the bytes show it.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        let bytes = &self.bytes;
        if bytes.iter().zip(MAGIC).any(|(byte, magic)| *byte != magic) {
            return Err(BadFrame::Foreign);
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return match bytes.get(4..6) {
                Some(version) if version != VERSION.to_le_bytes() => Err(BadFrame::Version(half(bytes, 4))),
                _ => Ok(None),
            };
        };
        if half(header, 4) != VERSION {
            return Err(BadFrame::Version(half(header, 4)));
        }
        let kind = match half(header, 6) {
            1 => Kind::Request,
            2 => Kind::Accept,
            3 => Kind::Reject,
            4 => Kind::Notify,
            5 => Kind::Disconnect,
            6 => Kind::Refuse,
            other => return Err(BadFrame::Kind(other)),
        };
        let length = word(header, 8);
        if length > MAX_DATA as u32 {
            return Err(BadFrame::TooLong(length));
        }
        let refusal = match word(header, 12) {
            1 => Some(Refusal::Version),
            2 => Some(Refusal::TooMany),
            _ => None,
        };
        let end = HEADER + length as usize;
        let Some(data) = bytes.get(HEADER..end) else { return Ok(None) };
        let frame = Frame { kind, data: data.to_vec(), refusal };
        self.bytes.drain(..end);
        Ok(Some(frame))
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Entry for fuzzing: reads arbitrary bytes as frames, in pieces whose lengths are those of the bytes.
#[cfg(any(test, feature = "testing"))]
pub fn fuzz_cm(bytes: &[u8]) {
    let (mut inbox, mut rest, mut taken) = (Inbox::default(), bytes, 0);
    while let Some(&first) = rest.first() {
        let (piece, left) = rest.split_at(usize::from(first % 32 + 1).min(rest.len()));
        inbox.push(piece);
        rest = left;
        loop {
            match inbox.next() {
                Ok(Some(frame)) => {
                    assert!(frame.data.len() <= MAX_DATA);
                    taken += HEADER + frame.data.len();
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(
            taken + inbox.bytes.len() == bytes.len() - rest.len()
                && inbox.bytes.len() < HEADER + MAX_DATA + 32
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_survive_the_wire_in_pieces_of_any_size() {
        let mut bytes = write(Kind::Request, &[7; MAX_DATA]);
        bytes.extend(write(Kind::Notify, &[]));
        bytes.extend(refuse(Refusal::TooMany));
        for piece in [1, 15, 16, 17, 1000, bytes.len()] {
            let (mut inbox, mut frames) = (Inbox::default(), Vec::new());
            for chunk in bytes.chunks(piece) {
                inbox.push(chunk);
                while let Some(frame) = inbox.next().unwrap() {
                    frames.push((frame.kind, frame.data.len(), frame.refusal));
                }
            }
            assert!(inbox.is_empty());
            let expected = [
                (Kind::Request, MAX_DATA, None),
                (Kind::Notify, 0, None),
                (Kind::Refuse, 0, Some(Refusal::TooMany)),
            ];
            assert_eq!(frames, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_as_early_as_it_shows() {
        let told = |bytes: &[u8]| {
            let mut inbox = Inbox::default();
            inbox.push(bytes);
            inbox.next()
        };
        assert_eq!(told(b"G"), Err(BadFrame::Foreign));
        assert_eq!(told(b"UCTc"), Ok(None));
        assert_eq!(told(b"UCTc\x09\x00"), Err(BadFrame::Version(9)));
        let changed = |at: usize, value: u8| {
            let mut bytes = write(Kind::Accept, b"abc");
            bytes[at] = value;
            told(&bytes)
        };
        assert_eq!(changed(6, 9), Err(BadFrame::Kind(9)));
        assert_eq!(changed(4, 2), Err(BadFrame::Version(2)));
        assert_eq!(changed(9, 0xff), Err(BadFrame::TooLong(0xff03)));
        assert_eq!(changed(8, 2).unwrap().unwrap().data, b"ab");
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz_cm(&bytes);
        }

        #[test]
        fn frames_with_changed_bytes_never_panic(
            data in prop::collection::vec(any::<u8>(), 0..60),
            changes in prop::collection::vec((0..96_usize, any::<u8>()), 0..3),
        ) {
            let mut bytes = write(Kind::Request, &data);
            bytes.extend(write(Kind::Disconnect, b"end"));
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            fuzz_cm(&bytes);
        }
    }
}
