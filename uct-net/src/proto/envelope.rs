//! The envelope of a message: the connection it is for, what it is, and how much the sender may be sent back.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | the first part of the [`Token`] of the receiver's connection; the 8-byte header of a short active message |
//! | 8 | [`Kind`] |
//! | 9..12 | the rest of the token |
//! | 12..16 | how many bytes of credit were ever granted, modulo 2³²; little-endian |
//! | 16.. | the payload |

/// Bytes of the header, which is the first part of the token.
pub(crate) const HEADER: usize = size_of::<u64>();
/// Bytes behind the header and ahead of the payload.
pub(crate) const ENVELOPE: usize = 8;
/// Bytes of a token in the handshake.
pub(crate) const TOKEN_BYTES: usize = 11;
/// The bits of the [`Kind`] in the word that it shares with the rest of the token.
const KIND: u32 = 0xff;

/// Most connections of one side: the width of the index in a [`Token`].
pub(crate) const MAX_CONNECTIONS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 24;

/// Which connection of the receiver a message is for: its index, and 64 random bits that a peer has only if it was sent
/// them in the handshake. All connections of an interface share it, so an index alone would let one peer write into the
/// connection of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The index, and 40 of the random bits above it: the header of a message.
    header: u64,
    /// The other 24, above the byte of the [`Kind`].
    rest: u32,
}

impl Token {
    /// `index` is below [`MAX_CONNECTIONS`].
    pub(crate) fn new(index: usize, secret: u64) -> Token {
        debug_assert!(index < MAX_CONNECTIONS);
        Token { header: secret << INDEX_BITS | index as u64, rest: (secret >> 32) as u32 & !KIND }
    }

    /// One whose 40 random bits are all in the header, for where there is no room for more.
    pub(crate) fn short(index: usize, secret: u64) -> Token {
        Token { rest: 0, ..Token::new(index, secret) }
    }

    /// The one that [`Token::short`] made.
    pub(crate) fn from_header(header: u64) -> Token {
        Token { header, rest: 0 }
    }

    /// The header of a message.
    pub(crate) fn header(self) -> u64 {
        self.header
    }

    pub(crate) fn index(self) -> usize {
        (self.header & (MAX_CONNECTIONS as u64 - 1)) as usize
    }

    /// As it is sent in the handshake.
    pub(crate) fn to_bytes(self) -> [u8; TOKEN_BYTES] {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&self.header.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rest.to_le_bytes()[1..]);
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; TOKEN_BYTES]) -> Token {
        let [a, b, c, d, e, f, g, h, x, y, z] = bytes;
        Token { header: u64::from_le_bytes([a, b, c, d, e, f, g, h]), rest: u32::from_le_bytes([0, x, y, z]) }
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
    /// Memory that the sender shares ([`super::shared::Shared`]).
    Share = 9,
    /// A large message, which the receiver reads from the sender's memory ([`super::shared::Shared`]).
    Offer = 10,
    /// The answer to [`Kind::Offer`]: the message was read.
    Taken = 11,
    /// The answer to [`Kind::Offer`]: the message is to be sent in parts.
    InParts = 12,
    /// The notification of a transfer whose blocks have all moved.
    Notify = 13,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        [Last, Part, Credit, Probe, ProbeReply, Fin, FinReply, Abort, Share, Offer, Taken, InParts, Notify]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Whether messages of this kind take credit.
    pub(crate) fn is_charged(self) -> bool {
        matches!(self, Kind::Last | Kind::Part | Kind::Share | Kind::Offer | Kind::Notify)
    }
}

/// The bytes between header and payload, beside the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) kind: Kind,
    /// Credit that was ever granted, modulo 2³².
    pub(crate) granted: u32,
}

/// Why bytes are no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEnvelope {
    /// The rest of the token is that of no connection.
    Foreign,
    /// The token is right, and what is with it is not of this protocol.
    Malformed,
}

impl Envelope {
    /// Around a message to a token.
    pub(crate) fn to_bytes(self, token: Token) -> [u8; ENVELOPE] {
        let mut bytes = [0; ENVELOPE];
        bytes[..4].copy_from_slice(&(self.kind as u32 | token.rest).to_le_bytes());
        bytes[4..].copy_from_slice(&self.granted.to_le_bytes());
        bytes
    }

    /// Reads what follows the header of a message to a token.
    pub(crate) fn from_bytes(bytes: &[u8], token: Token) -> Result<Envelope, NoEnvelope> {
        let Some(&[kind, x, y, z, a, b, c, d]) = bytes.first_chunk::<ENVELOPE>() else {
            // Only a peer that has the token may break the connection.
            let rest = bytes.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) & !KIND);
            let is_ours = rest == Some(token.rest);
            return Err(if is_ours { NoEnvelope::Malformed } else { NoEnvelope::Foreign });
        };
        if u32::from_le_bytes([0, x, y, z]) != token.rest {
            return Err(NoEnvelope::Foreign);
        }
        let kind = Kind::from_number(kind).ok_or(NoEnvelope::Malformed)?;
        Ok(Envelope { kind, granted: u32::from_le_bytes([a, b, c, d]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token { header: 7, rest: 0x0102_0300 };

    #[test]
    fn an_envelope_is_encoded_and_parsed() {
        for number in 1..=13 {
            let kind = Kind::from_number(number).expect("all of them");
            let envelope = Envelope { kind, granted: 0xdead_beef };
            assert_eq!(Envelope::from_bytes(&envelope.to_bytes(TOKEN), TOKEN), Ok(envelope));
        }
    }

    #[test]
    fn an_envelope_without_the_rest_of_the_token_is_none_of_this_connection() {
        let good = Envelope { kind: Kind::Last, granted: 7 }.to_bytes(TOKEN);
        for length in 0..ENVELOPE {
            let found = Envelope::from_bytes(&good[..length], TOKEN);
            let expected = if length < 4 { NoEnvelope::Foreign } else { NoEnvelope::Malformed };
            assert_eq!(found, Err(expected), "{length}");
        }
        for bit in 0..24 {
            let mut bytes = good;
            bytes[1 + bit / 8] ^= 1 << (bit % 8);
            for kind in [0, 1, 14] {
                bytes[0] = kind;
                assert_eq!(Envelope::from_bytes(&bytes, TOKEN), Err(NoEnvelope::Foreign), "bit {bit}");
                assert_eq!(Envelope::from_bytes(&bytes[..4], TOKEN), Err(NoEnvelope::Foreign), "bit {bit}");
            }
        }
        for kind in [0, 14] {
            let mut bytes = good;
            bytes[0] = kind;
            assert_eq!(Envelope::from_bytes(&bytes, TOKEN), Err(NoEnvelope::Malformed), "kind {kind}");
        }
    }

    #[test]
    fn a_token_has_its_index_and_each_bit_of_its_secret() {
        let token = Token::new(MAX_CONNECTIONS - 1, u64::MAX);
        assert_eq!(token.index(), MAX_CONNECTIONS - 1);
        assert_eq!(token.to_bytes(), [0xff; TOKEN_BYTES]);
        for bit in 0..64 {
            let other = Token::new(3, 1 << bit);
            assert_ne!(other, Token::new(3, 0), "bit {bit}");
            assert_eq!(other.index(), 3);
            assert_eq!(Token::from_bytes(other.to_bytes()), other);
        }
        let short = Token::short(3, u64::MAX);
        assert_eq!(Token::from_header(short.header()), short);
    }
}
