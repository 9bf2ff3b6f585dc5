//! The envelope of a message: the connection it is for, what it is, and how much the sender may be sent back.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | [`Token`] of the receiver's connection; the 8-byte header of a short active message |
//! | 8 | [`Kind`] |
//! | 9..12 | zero |
//! | 12..16 | how many bytes of credit were ever granted, modulo 2³²; little-endian |
//! | 16.. | the payload |

/// Bytes of the token.
pub(crate) const TOKEN: usize = size_of::<u64>();
/// Bytes behind the token and ahead of the payload.
pub(crate) const ENVELOPE: usize = 8;

/// Most connections of one side: the width of the index in a [`Token`].
pub(crate) const MAX_CONNECTIONS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 24;

/// Which connection of the receiver a message is for: its index, and 40 random bits that a peer has only if it was sent them
/// them in the handshake. All connections of an interface share it, so an index alone would let one peer write into the
/// connection of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    /// `index` is below [`MAX_CONNECTIONS`]; of `secret` the lower 40 bits are used.
    pub(crate) fn new(index: usize, secret: u64) -> Token {
        debug_assert!(index < MAX_CONNECTIONS);
        Token(secret << INDEX_BITS | index as u64)
    }

    pub(crate) fn from_bits(bits: u64) -> Token {
        Token(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        (self.0 & (MAX_CONNECTIONS as u64 - 1)) as usize
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message, or the last part of one.
    Last = 1,
    /// A part of a message that goes on.
    Part = 2,
    /// Nothing but credit.
    Credit = 3,
    /// Asks for [`Kind::ProbeReply`]: the first message of a connection.
    Probe = 4,
    /// The answer to [`Kind::Probe`].
    ProbeReply = 5,
    /// The sender sends no more messages.
    Fin = 6,
    /// Everything up to [`Kind::Fin`] has arrived.
    FinReply = 7,
    /// The sender has given the connection up; the payload is the reason.
    Abort = 8,
    /// Memory that the sender shares ([`super::handshake::Shared`]).
    Share = 9,
    /// A large message, which the receiver reads from the sender's memory ([`super::handshake::Shared`]).
    Offer = 10,
    /// The answer to [`Kind::Offer`]: the message was read.
    Taken = 11,
    /// The answer to [`Kind::Offer`]: the message is to be sent in parts.
    InParts = 12,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        [Last, Part, Credit, Probe, ProbeReply, Fin, FinReply, Abort, Share, Offer, Taken, InParts]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Whether messages of this kind take credit.
    pub(crate) fn is_charged(self) -> bool {
        matches!(self, Kind::Last | Kind::Part | Kind::Share | Kind::Offer)
    }
}

/// The bytes between token and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) kind: Kind,
    /// Credit that was ever granted, modulo 2³².
    pub(crate) granted: u32,
}

impl Envelope {
    pub(crate) fn to_bytes(self) -> [u8; ENVELOPE] {
        let mut bytes = [0; ENVELOPE];
        bytes[0] = self.kind as u8;
        bytes[4..].copy_from_slice(&self.granted.to_le_bytes());
        bytes
    }

    /// Reads what follows the token; `None` if it is no envelope.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Envelope> {
        let &[kind, 0, 0, 0, a, b, c, d] = bytes.first_chunk::<ENVELOPE>()? else { return None };
        Some(Envelope { kind: Kind::from_number(kind)?, granted: u32::from_le_bytes([a, b, c, d]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_encoded_and_parsed() {
        for number in 1..=12 {
            let kind = Kind::from_number(number).expect("all of them");
            let envelope = Envelope { kind, granted: 0xdead_beef };
            assert_eq!(Envelope::from_bytes(&envelope.to_bytes()), Some(envelope));
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let good = Envelope { kind: Kind::Last, granted: 7 }.to_bytes();
        for length in 0..ENVELOPE {
            assert_eq!(Envelope::from_bytes(&good[..length]), None);
        }
        for (at, value) in [(0, 0), (0, 13), (1, 1), (2, 1), (3, 1)] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Envelope::from_bytes(&bytes), None, "byte {at} is {value}");
        }
    }

    #[test]
    fn a_token_has_its_index_and_is_not_guessed_by_it() {
        let token = Token::new(MAX_CONNECTIONS - 1, u64::MAX);
        assert_eq!(token.index(), MAX_CONNECTIONS - 1);
        assert_eq!(token.bits(), u64::MAX);
        assert_ne!(Token::new(3, 1), Token::new(3, 2));
        assert_eq!(Token::new(3, 1).index(), Token::new(3, 2).index());
    }
}
