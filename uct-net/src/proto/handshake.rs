//! The frames of both sides before a connection is established.
//!
//! ```text
//! client                                  server
//!   Hello      what I have          →
//!              ←  Welcome  what I have, how each of mine looks from here, my end (or Refused: the end)
//!   Direct     this pair of ours    →
//!   a message over the lane         →
//!              ←  its answer over the lane                          (or Unable, or nothing in time: a Lane)
//!   Connected                       →
//! ```
//!
//! A lane whose endpoints need each other's addresses, and each one after the first, which has its own end on both sides:
//!
//! ```text
//!   Lane       this pair of ours    →
//!              ←  Ready, my end                                                     (or Unable: the next Lane)
//!   a message over the lane         →
//!              ←  its answer over the lane                                        (or nothing in time: the next Lane)
//!   Connected                       →
//! ```
//!
//! A lane that is a socket takes the one of the handshake, so that the listener's port is the only one that has to be reachable:
//!
//! ```text
//!   Takeover   this pair of ours, the last frame: both hand the socket to their interfaces   →
//!   a message over the lane         →
//!              ←  its answer over the lane
//! ```
//!
//! After another lane was tried the socket has its own end on both sides:
//!
//! ```text
//!   Over       this pair of ours    →
//!              ←  Ready, the last frame: both hand the socket to their interfaces   (or Unable: the next Lane)
//!   a message over the lane         →
//!              ←  its answer over the lane
//! ```
//!
//! Over the first endpoint of a connection manager's connection ([`super::card`]) all of it is the same: Takeover and Over make that
//! endpoint the lane.
//!
//! Where a shared key is required, three frames precede these, and no address is sent before them:
//!
//! ```text
//!   Ask        a number             →
//!              ←  Challenge  another number, and the server's proof
//!   Answer     the client's proof   →
//! ```
//!
//! So "connected" means that a message has crossed both ways.

use ucs::text::{PeerLines, PeerText};
use uct_core::IfaceAddress;
use uct_core::select::PeerAddresses;

use super::envelope::Token;
use super::frame::{BadFrame, Reader, Writer};
use super::proof::{Nonce, Proof};
use super::window::{MAX_WINDOW, MIN_WINDOW};

/// Longest private data of either side.
pub(crate) const MAX_PRIVATE: usize = 64 << 10;

/// A frame of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The client's first.
    Hello { private: Vec<u8>, addresses: PeerAddresses },
    /// The server takes the connection.
    Welcome { private: Vec<u8>, addresses: PeerAddresses, explanation: PeerLines, end: End },
    /// The server does not; the end.
    Refused { reason: PeerText },
    /// The client has chosen a pair of interfaces: its own and the server's.
    Lane { own: IfaceAddress, theirs: IfaceAddress, end: End },
    /// The same, to the end that is in the Welcome. The first message over the lane comes without waiting.
    Direct { own: IfaceAddress, theirs: IfaceAddress, end: End },
    /// The same as Direct, over the socket of the handshake. No frame follows.
    Takeover { own: IfaceAddress, theirs: IfaceAddress, end: End },
    /// The same as Lane, over the socket of the handshake.
    Over { own: IfaceAddress, theirs: IfaceAddress, end: End },
    /// The server has opened the lane.
    Ready { end: End },
    /// The server cannot open the lane; or the client has no lane to try, and this is the end.
    Unable { reason: PeerText },
    /// A message has crossed the lane both ways.
    Connected,
    /// The client knows a key, and asks whether the server does.
    Ask { nonce: Nonce },
    /// The server does, and asks the same.
    Challenge { nonce: Nonce, proof: Proof },
    /// The client does.
    Answer { proof: Proof },
}

/// What one side sends the other about its end of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// What messages to it carry.
    pub(crate) token: Token,
    /// How many bytes it takes before it grants more.
    pub(crate) window: u32,
    /// The endpoint's address, where endpoints have one.
    pub(crate) endpoint: Vec<u8>,
}

impl End {
    fn write(&self, writer: Writer) -> Writer {
        writer.field(&self.token.to_bytes()).number(self.window.into()).field(&self.endpoint)
    }

    fn read(reader: &mut Reader<'_>) -> Result<End, BadFrame> {
        let token = Token::from_bytes(array(reader)?);
        let window = reader.number()?;
        let window = u32::try_from(window).ok().filter(|window| (MIN_WINDOW..=MAX_WINDOW).contains(window));
        let window = window.ok_or_else(|| {
            BadFrame(format!("the peer's window is not between {MIN_WINDOW} and {MAX_WINDOW} bytes"))
        })?;
        Ok(End { token, window, endpoint: reader.field()?.to_vec() })
    }
}

impl Frame {
    /// What it is called in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Frame::Hello { .. } => "Hello",
            Frame::Welcome { .. } => "Welcome",
            Frame::Refused { .. } => "Refused",
            Frame::Lane { .. } => "Lane",
            Frame::Direct { .. } => "Direct",
            Frame::Takeover { .. } => "Takeover",
            Frame::Over { .. } => "Over",
            Frame::Ready { .. } => "Ready",
            Frame::Unable { .. } => "Unable",
            Frame::Connected => "Connected",
            Frame::Ask { .. } => "Ask",
            Frame::Challenge { .. } => "Challenge",
            Frame::Answer { .. } => "Answer",
        }
    }

    /// As bytes; an error if it is longer than a peer accepts.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, BadFrame> {
        let pack = |addresses: &PeerAddresses| addresses.pack().map_err(|error| BadFrame(error.to_string()));
        let pack_one = |address: &IfaceAddress| address.pack().map_err(|error| BadFrame(error.to_string()));
        match self {
            Frame::Hello { private, addresses } => {
                Writer::new(1).field(check_private(private)?).field(&pack(addresses)?)
            }
            Frame::Welcome { private, addresses, explanation, end } => {
                let addresses = pack(addresses)?;
                let writer = Writer::new(2).field(check_private(private)?).field(&addresses);
                end.write(writer.field(explanation.untrusted().as_bytes()))
            }
            Frame::Refused { reason } => Writer::new(3).field(reason.untrusted().as_bytes()),
            Frame::Lane { own, theirs, end } => {
                end.write(Writer::new(4).field(&pack_one(own)?).field(&pack_one(theirs)?))
            }
            Frame::Direct { own, theirs, end } => {
                end.write(Writer::new(12).field(&pack_one(own)?).field(&pack_one(theirs)?))
            }
            Frame::Takeover { own, theirs, end } => {
                end.write(Writer::new(13).field(&pack_one(own)?).field(&pack_one(theirs)?))
            }
            Frame::Over { own, theirs, end } => {
                end.write(Writer::new(11).field(&pack_one(own)?).field(&pack_one(theirs)?))
            }
            Frame::Ready { end } => end.write(Writer::new(5)),
            Frame::Unable { reason } => Writer::new(6).field(reason.untrusted().as_bytes()),
            Frame::Connected => Writer::new(7),
            Frame::Ask { nonce } => Writer::new(8).field(nonce),
            Frame::Challenge { nonce, proof } => Writer::new(9).field(nonce).field(proof),
            Frame::Answer { proof } => Writer::new(10).field(proof),
        }
        .finish()
    }

    /// Reads the body of an untrusted frame.
    pub(crate) fn parse(what: u8, body: &[u8]) -> Result<Frame, BadFrame> {
        let mut reader = Reader::new(body);
        let frame = match what {
            1 => Frame::Hello { private: private(&mut reader)?, addresses: addresses(&mut reader)? },
            2 => Frame::Welcome {
                private: private(&mut reader)?,
                addresses: addresses(&mut reader)?,
                explanation: reader.lines()?,
                end: End::read(&mut reader)?,
            },
            3 => Frame::Refused { reason: reader.text()? },
            4 => Frame::Lane {
                own: address(&mut reader)?,
                theirs: address(&mut reader)?,
                end: End::read(&mut reader)?,
            },
            5 => Frame::Ready { end: End::read(&mut reader)? },
            6 => Frame::Unable { reason: reader.text()? },
            7 => Frame::Connected,
            8 => Frame::Ask { nonce: array(&mut reader)? },
            9 => Frame::Challenge { nonce: array(&mut reader)?, proof: array(&mut reader)? },
            10 => Frame::Answer { proof: array(&mut reader)? },
            11 => Frame::Over {
                own: address(&mut reader)?,
                theirs: address(&mut reader)?,
                end: End::read(&mut reader)?,
            },
            12 => Frame::Direct {
                own: address(&mut reader)?,
                theirs: address(&mut reader)?,
                end: End::read(&mut reader)?,
            },
            13 => Frame::Takeover {
                own: address(&mut reader)?,
                theirs: address(&mut reader)?,
                end: End::read(&mut reader)?,
            },
            _ => return Err(BadFrame(format!("the peer sent a frame of the unknown kind {what}"))),
        };
        reader.finish()?;
        Ok(frame)
    }
}

fn check_private(private: &[u8]) -> Result<&[u8], BadFrame> {
    if private.len() > MAX_PRIVATE {
        let problem = format!("{} bytes of private data; at most {MAX_PRIVATE} are sent", private.len());
        return Err(BadFrame(problem));
    }
    Ok(private)
}

fn array<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], BadFrame> {
    let field = reader.field()?;
    field.try_into().map_err(|_| BadFrame(format!("a field of {} bytes where {N} are expected", field.len())))
}

fn private(reader: &mut Reader<'_>) -> Result<Vec<u8>, BadFrame> {
    Ok(check_private(reader.field()?)?.to_vec())
}

fn addresses(reader: &mut Reader<'_>) -> Result<PeerAddresses, BadFrame> {
    PeerAddresses::unpack(reader.field()?).map_err(|error| BadFrame(error.to_string()))
}

fn address(reader: &mut Reader<'_>) -> Result<IfaceAddress, BadFrame> {
    let (address, rest) =
        IfaceAddress::unpack(reader.field()?).map_err(|error| BadFrame(error.to_string()))?;
    if rest.is_empty() {
        Ok(address)
    } else {
        Err(BadFrame("bytes are left over behind a peer's address".to_owned()))
    }
}

/// Memory that a peer shares: the payload of a message of kind `Share`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) key: Vec<u8>,
}

impl Shared {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.address.to_le_bytes(), self.length.to_le_bytes()].concat();
        bytes.extend_from_slice(&self.key);
        bytes
    }

    /// Reads untrusted bytes; the key is checked where it is unpacked.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Shared> {
        let (address, rest) = bytes.split_first_chunk::<8>()?;
        let (length, key) = rest.split_first_chunk::<8>()?;
        let (address, length) = (u64::from_le_bytes(*address), u64::from_le_bytes(*length));
        address.checked_add(length)?;
        Some(Shared { address, length, key: key.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uct_core::select::PeerIface;

    use super::super::frame::{HEADER, parse_header};
    use super::*;

    fn address(transport: &str) -> IfaceAddress {
        IfaceAddress { transport: transport.to_owned(), device: vec![1; 6], iface: vec![2; 20] }
    }

    fn frames() -> Vec<Frame> {
        let addresses =
            PeerAddresses { ifaces: vec![PeerIface { device: "lo".to_owned(), address: address("tcp") }] };
        let end = End { token: Token::new(5, 77), window: 65536, endpoint: vec![3; 20] };
        vec![
            Frame::Hello { private: b"private".to_vec(), addresses: addresses.clone() },
            Frame::Welcome {
                private: vec![],
                addresses,
                explanation: PeerLines::new("CHOSEN tcp/lo\n"),
                end: end.clone(),
            },
            Frame::Refused { reason: PeerText::new("no\n") },
            Frame::Lane { own: address("tcp"), theirs: address("tcp"), end: end.clone() },
            Frame::Direct { own: address("tcp"), theirs: address("tcp"), end: end.clone() },
            Frame::Takeover { own: address("tcp"), theirs: address("tcp"), end: end.clone() },
            Frame::Over { own: address("tcp"), theirs: address("tcp"), end: end.clone() },
            Frame::Ready { end },
            Frame::Unable { reason: PeerText::new("not \"that\" one") },
            Frame::Connected,
            Frame::Ask { nonce: [1; 32] },
            Frame::Challenge { nonce: [2; 32], proof: [3; 32] },
            Frame::Answer { proof: [4; 32] },
        ]
    }

    #[test]
    fn frames_are_encoded_and_parsed() {
        for frame in frames() {
            let bytes = frame.to_bytes().unwrap();
            let (what, length) = parse_header(bytes.first_chunk().unwrap()).unwrap();
            assert_eq!(length, bytes.len() - HEADER);
            assert_eq!(Frame::parse(what, &bytes[HEADER..]).unwrap(), frame);
        }
    }

    #[test]
    fn frames_that_are_cut_or_continued_are_refused() {
        for frame in frames() {
            let bytes = frame.to_bytes().unwrap();
            let body = &bytes[HEADER..];
            for length in 0..body.len() {
                assert!(Frame::parse(bytes[5], &body[..length]).is_err(), "{} of {length}", frame.name());
            }
            assert!(Frame::parse(bytes[5], &[body, &[0]].concat()).is_err());
        }
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let long = Frame::Hello { private: vec![0; MAX_PRIVATE + 1], addresses: PeerAddresses::default() };
        assert!(long.to_bytes().unwrap_err().to_string().contains("private data"));
        for window in [0, MIN_WINDOW - 1, MAX_WINDOW + 1] {
            let end = End { token: Token::new(0, 0), window, endpoint: vec![] };
            let bytes = Frame::Ready { end }.to_bytes().unwrap();
            assert!(Frame::parse(5, &bytes[HEADER..]).unwrap_err().to_string().contains("window"));
        }
        assert!(Frame::parse(0, &[]).is_err());
        assert!(Frame::parse(14, &[]).is_err());
    }

    #[test]
    fn shared_memory_that_wraps_is_refused() {
        let shared = Shared { address: 4096, length: 100, key: vec![9; 24] };
        assert_eq!(Shared::parse(&shared.to_bytes()), Some(shared.clone()));
        assert_eq!(Shared::parse(&shared.to_bytes()[..15]), None);
        assert_eq!(Shared::parse(&Shared { length: u64::MAX, ..shared }.to_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(what in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Frame::parse(what, &body);
            let _ = Shared::parse(&body);
        }

        #[test]
        fn no_change_of_a_frame_makes_it_panic(which in 0usize..13, at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let mut bytes = frames()[which].to_bytes().unwrap();
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok((what, length)) = parse_header(bytes.first_chunk().unwrap())
                && let Some(body) = bytes[HEADER..].get(..length)
            {
                let _ = Frame::parse(what, body);
            }
        }
    }
}
