//! Private data on the wire: two bytes of header, then what the application gave.
//!
//! rdma_cm pads private data with zeros to the longest that fits, and a peer that is no program of this library sends its own
//! or none. The header and the zeros tell all of these apart. It is as short as UCX's, so that as much fits.
//!
//! | byte | contents |
//! |---|---|
//! | 0 | `c` in the upper four bits, then two of the version, now 1, and two of the kind: 1 connect, 2 accept, 3 reject |
//! | 1 | length of the application's data; what follows them is zero |

use ucs::Error;

/// Bytes of the header.
pub const HEADER: usize = 2;
const MAGIC: u8 = 0xc;
const VERSION: u8 = 1;

/// Which message carries the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The client's request.
    Connect = 1,
    /// The server's acceptance.
    Accept = 2,
    /// The server's explicit rejection.
    Reject = 3,
}

impl Kind {
    /// Most bytes that the application may pass: what rdma_cm leaves of a message on IP addresses, without the header.
    pub const fn capacity(self) -> usize {
        let message = match self {
            Kind::Connect => 56,
            Kind::Accept => 196,
            Kind::Reject => 148,
        };
        message - HEADER
    }
}

/// The message with the application's data.
///
/// # Errors
/// [`Error::EXCEEDS_LIMIT`]: they are longer than [`Kind::capacity`].
pub fn pack(kind: Kind, data: &[u8]) -> Result<Vec<u8>, Error> {
    if data.len() > kind.capacity() {
        return Err(Error::EXCEEDS_LIMIT);
    }
    let mut message = Vec::with_capacity(HEADER + data.len());
    message.push(MAGIC << 4 | VERSION << 2 | kind as u8);
    message.push(data.len() as u8);
    message.extend(data);
    Ok(message)
}

/// What private data are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// From this library: the application's data.
    Ours(&'a [u8]),
    /// From another program, which may have passed none: without the zeros at the end.
    Foreign(&'a [u8]),
    /// From this library, but malformed: the reason.
    Bad(Bad),
}

/// Why a message of this library cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Bad {
    /// Another version.
    #[error(
        "the peer has version {0} of the private data's format, this side version {VERSION}: use the same release on both"
    )]
    Version(u8),
    /// Another kind than that of the event.
    #[error("the peer's private data have kind {0}, expected kind {1}")]
    Kind(u8, u8),
    /// A length beyond the end.
    #[error("the peer's private data announce {0} bytes and have {1}")]
    Length(usize, usize),
}

/// Reads what came with a message of this kind. Any bytes.
pub fn unpack(kind: Kind, bytes: &[u8]) -> Message<'_> {
    let Some((&[head, length], data)) = bytes.split_first_chunk::<HEADER>() else {
        return Message::Foreign(trim(bytes));
    };
    let length = usize::from(length);
    let padding = data.get(length..).unwrap_or_default();
    if head >> 4 != MAGIC || padding.iter().any(|&byte| byte != 0) {
        return Message::Foreign(trim(bytes));
    }
    let (version, found) = (head >> 2 & 3, head & 3);
    if version != VERSION {
        return Message::Bad(Bad::Version(version));
    }
    if found != kind as u8 {
        return Message::Bad(Bad::Kind(found, kind as u8));
    }
    match data.get(..length) {
        Some(data) => Message::Ours(data),
        None => Message::Bad(Bad::Length(length, data.len())),
    }
}

/// Without the zeros at the end.
fn trim(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// For the fuzz target: any bytes are read, and what is ours is what was packed.
#[cfg(any(test, feature = "testing"))]
pub fn fuzz_private(bytes: &[u8]) {
    for kind in [Kind::Connect, Kind::Accept, Kind::Reject] {
        if let Message::Ours(data) = unpack(kind, bytes)
            && let Ok(message) = pack(kind, data)
        {
            assert_eq!(&bytes[..message.len()], &message[..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_says_what_is_wrong_with_it() {
        let bad = |bytes: &[u8]| match unpack(Kind::Connect, bytes) {
            Message::Bad(bad) => bad.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(bad(&[0xc9, 0]).contains("version 2"));
        assert!(bad(&[0xc6, 0]).contains("kind 2, expected kind 1"));
        assert!(bad(&[0xc5, 5, 0, 0]).contains("announce 5 bytes and have 2"));
    }

    #[test]
    fn other_programs_are_told_from_this_library() {
        for (bytes, data) in [
            (&[][..], &[][..]),
            (&[0; 56], &[]),
            (&[1, 2, 3], &[1, 2, 3]),
            (&[7, 0, 8, 0, 0, 0], &[7, 0, 8]),
            (&[0xc5, 1, 2, 3], &[0xc5, 1, 2, 3]),
        ] {
            assert_eq!(unpack(Kind::Connect, bytes), Message::Foreign(data), "{bytes:?}");
        }
    }

    #[test]
    fn the_limits_are_those_of_the_messages() {
        for (kind, most) in [(Kind::Connect, 54), (Kind::Accept, 194), (Kind::Reject, 146)] {
            assert_eq!(pack(kind, &vec![1; most]).expect("it fits").len(), most + HEADER);
            assert_eq!(pack(kind, &vec![1; most + 1]), Err(Error::EXCEEDS_LIMIT));
        }
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn data_come_back_from_a_padded_message(data in proptest::collection::vec(any::<u8>(), 0..=54), zeros in 0usize..60) {
            let mut message = pack(Kind::Connect, &data).expect("they fit");
            message.extend(vec![0; zeros]);
            prop_assert_eq!(unpack(Kind::Connect, &message), Message::Ours(&data));
        }

        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..260), ours in any::<bool>()) {
            if ours && !bytes.is_empty() {
                bytes[0] = MAGIC << 4 | VERSION << 2 | bytes[0] & 3;
            }
            fuzz_private(&bytes);
        }
    }
}
