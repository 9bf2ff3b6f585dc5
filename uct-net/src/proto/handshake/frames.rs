//! The frames of a handshake, and their fields.

use ucs::text::{PeerLines, PeerText};
use uct_host::IfaceAddress;
use uct_host::select::PeerAddresses;

use super::auth::{Nonce, Proof};
use crate::proto::envelope::Token;
use crate::proto::fields::{Field, Fields, Writer};
use crate::proto::frame::BadFrame;
use crate::proto::window::{MAX_WINDOW, MIN_WINDOW};

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
    /// The client has chosen a pair of interfaces.
    Propose(Way, Proposal),
    /// The server has opened the lane.
    Ready { end: End },
    /// The server cannot open the lane; or the client has no lane to try, and this is the end. `of_first`: it is the first lane, which the
    /// client may have given up by itself meanwhile.
    Unable { reason: PeerText, of_first: bool },
    /// A message has crossed the lane both ways.
    Connected,
    /// The client knows a key, and asks whether the server does.
    Ask { nonce: Nonce },
    /// The server does, and asks the same.
    Challenge { nonce: Nonce, proof: Proof },
    /// The client does.
    Answer { proof: Proof },
}

/// How a lane is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// Beside the socket of the handshake, once the server has sent its end.
    Lane = 4,
    /// Over the socket of the handshake, once the server has sent its end.
    Over = 11,
    /// As Lane, to the end in the Welcome. The first message over the lane comes without waiting.
    Direct = 12,
    /// As Over, to the end in the Welcome. No frame follows.
    Takeover = 13,
}

impl Way {
    fn of(number: u8) -> Option<Way> {
        [Way::Lane, Way::Over, Way::Direct, Way::Takeover].into_iter().find(|way| *way as u8 == number)
    }

    /// Whether the end in the Welcome is the server's.
    pub(crate) fn is_first(self) -> bool {
        matches!(self, Way::Direct | Way::Takeover)
    }

    /// Whether the socket of the handshake becomes the lane.
    pub(crate) fn takes_socket(self) -> bool {
        matches!(self, Way::Over | Way::Takeover)
    }
}

/// A pair of interfaces: the sender's own and the receiver's; and the sender's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) own: IfaceAddress,
    pub(crate) theirs: IfaceAddress,
    pub(crate) end: End,
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
        let writer = writer.field(Field::TOKEN, &self.token.to_bytes());
        writer.field(Field::WINDOW, &self.window.to_le_bytes()).field(Field::ENDPOINT, &self.endpoint)
    }

    fn read(fields: &mut Fields<'_>) -> Result<End, BadFrame> {
        let token = Token::from_bytes(fields.array(Field::TOKEN)?);
        let window = u32::from_le_bytes(fields.array(Field::WINDOW)?);
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&window) {
            let reason = format!("the peer's window is not between {MIN_WINDOW} and {MAX_WINDOW} bytes");
            return Err(BadFrame::new(reason));
        }
        Ok(End { token, window, endpoint: fields.take(Field::ENDPOINT)?.to_vec() })
    }
}

impl Frame {
    /// What it is called in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Frame::Hello { .. } => "Hello",
            Frame::Welcome { .. } => "Welcome",
            Frame::Refused { .. } => "Refused",
            Frame::Propose(Way::Lane, _) => "Lane",
            Frame::Propose(Way::Over, _) => "Over",
            Frame::Propose(Way::Direct, _) => "Direct",
            Frame::Propose(Way::Takeover, _) => "Takeover",
            Frame::Ready { .. } => "Ready",
            Frame::Unable { .. } => "Unable",
            Frame::Connected => "Connected",
            Frame::Ask { .. } => "Ask",
            Frame::Challenge { .. } => "Challenge",
            Frame::Answer { .. } => "Answer",
        }
    }

    /// What it is in the header.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Frame::Hello { .. } => 1,
            Frame::Welcome { .. } => 2,
            Frame::Refused { .. } => 3,
            Frame::Propose(way, _) => *way as u8,
            Frame::Ready { .. } => 5,
            Frame::Unable { .. } => 6,
            Frame::Connected => 7,
            Frame::Ask { .. } => 8,
            Frame::Challenge { .. } => 9,
            Frame::Answer { .. } => 10,
        }
    }

    /// Its body; an error if a field is longer than a peer accepts.
    pub(crate) fn body(&self) -> Result<Vec<u8>, BadFrame> {
        let pack =
            |addresses: &PeerAddresses| addresses.pack().map_err(|error| BadFrame::new(error.to_string()));
        let pack_one =
            |address: &IfaceAddress| address.pack().map_err(|error| BadFrame::new(error.to_string()));
        let writer = Writer::default();
        let writer = match self {
            Frame::Hello { private, addresses } => {
                let writer = writer.field(Field::PRIVATE, check_private(private)?);
                writer.field(Field::ADDRESSES, &pack(addresses)?)
            }
            Frame::Welcome { private, addresses, explanation, end } => {
                let writer = writer.field(Field::PRIVATE, check_private(private)?);
                let writer = writer.field(Field::ADDRESSES, &pack(addresses)?);
                end.write(writer.field(Field::EXPLANATION, explanation.untrusted().as_bytes()))
            }
            Frame::Refused { reason } => writer.field(Field::REASON, reason.untrusted().as_bytes()),
            Frame::Unable { reason, of_first } => {
                let writer = writer.field(Field::REASON, reason.untrusted().as_bytes());
                if *of_first { writer.mark(Field::OF_FIRST) } else { writer }
            }
            Frame::Propose(_, Proposal { own, theirs, end }) => {
                let writer = writer.field(Field::OWN, &pack_one(own)?);
                end.write(writer.field(Field::THEIRS, &pack_one(theirs)?))
            }
            Frame::Ready { end } => end.write(writer),
            Frame::Connected => writer,
            Frame::Ask { nonce } => writer.field(Field::NONCE, nonce),
            Frame::Challenge { nonce, proof } => writer.field(Field::NONCE, nonce).field(Field::PROOF, proof),
            Frame::Answer { proof } => writer.field(Field::PROOF, proof),
        };
        Ok(writer.finish())
    }

    /// Reads the body of an untrusted frame.
    pub(crate) fn parse(what: u8, body: &[u8]) -> Result<Frame, BadFrame> {
        let mut fields = Fields::parse(body)?;
        let frame = match what {
            1 => Frame::Hello { private: private(&mut fields)?, addresses: addresses(&mut fields)? },
            2 => Frame::Welcome {
                private: private(&mut fields)?,
                addresses: addresses(&mut fields)?,
                explanation: fields.take(Field::EXPLANATION).map(PeerLines::new)?,
                end: End::read(&mut fields)?,
            },
            3 => Frame::Refused { reason: fields.take(Field::REASON).map(PeerText::new)? },
            5 => Frame::Ready { end: End::read(&mut fields)? },
            6 => Frame::Unable {
                reason: fields.take(Field::REASON).map(PeerText::new)?,
                of_first: fields.has(Field::OF_FIRST),
            },
            7 => Frame::Connected,
            8 => Frame::Ask { nonce: fields.array(Field::NONCE)? },
            9 => Frame::Challenge { nonce: fields.array(Field::NONCE)?, proof: fields.array(Field::PROOF)? },
            10 => Frame::Answer { proof: fields.array(Field::PROOF)? },
            _ => {
                let way = Way::of(what).ok_or_else(|| {
                    BadFrame::new(format!("the peer sent a frame of the unknown kind {what}"))
                })?;
                let (own, theirs) = (address(&mut fields, Field::OWN)?, address(&mut fields, Field::THEIRS)?);
                Frame::Propose(way, Proposal { own, theirs, end: End::read(&mut fields)? })
            }
        };
        fields.finish()?;
        Ok(frame)
    }
}

fn check_private(private: &[u8]) -> Result<&[u8], BadFrame> {
    if private.len() > MAX_PRIVATE {
        let reason = format!("{} bytes of private data; at most {MAX_PRIVATE} are sent", private.len());
        return Err(BadFrame::new(reason));
    }
    Ok(private)
}

fn private(fields: &mut Fields<'_>) -> Result<Vec<u8>, BadFrame> {
    Ok(check_private(fields.take(Field::PRIVATE)?)?.to_vec())
}

fn addresses(fields: &mut Fields<'_>) -> Result<PeerAddresses, BadFrame> {
    PeerAddresses::unpack(fields.take(Field::ADDRESSES)?).map_err(|error| BadFrame::new(error.to_string()))
}

fn address(fields: &mut Fields<'_>, field: Field) -> Result<IfaceAddress, BadFrame> {
    let (address, rest) =
        IfaceAddress::unpack(fields.take(field)?).map_err(|error| BadFrame::new(error.to_string()))?;
    if rest.is_empty() {
        Ok(address)
    } else {
        Err(BadFrame::new("bytes are left over behind a peer's address"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uct_host::select::PeerIface;

    use super::*;

    fn address(transport: &str) -> IfaceAddress {
        IfaceAddress { transport: transport.to_owned(), device: vec![1; 6], iface: vec![2; 20] }
    }

    fn frames() -> Vec<Frame> {
        let addresses =
            PeerAddresses { ifaces: vec![PeerIface { device: "lo".to_owned(), address: address("tcp") }] };
        let end = End { token: Token::new(5, 77), window: 65536, endpoint: vec![3; 20] };
        let proposal = Proposal { own: address("tcp"), theirs: address("tcp"), end: end.clone() };
        let mut frames = vec![
            Frame::Hello { private: b"private".to_vec(), addresses: addresses.clone() },
            Frame::Welcome {
                private: vec![],
                addresses,
                explanation: PeerLines::new("CHOSEN tcp/lo\n"),
                end: end.clone(),
            },
            Frame::Refused { reason: PeerText::new("no\n") },
            Frame::Ready { end },
            Frame::Unable { reason: PeerText::new("not \"that\" one"), of_first: false },
            Frame::Connected,
            Frame::Ask { nonce: [1; 32] },
            Frame::Challenge { nonce: [2; 32], proof: [3; 32] },
            Frame::Answer { proof: [4; 32] },
        ];
        let ways = [Way::Lane, Way::Over, Way::Direct, Way::Takeover];
        frames.extend(ways.map(|way| Frame::Propose(way, proposal.clone())));
        frames
    }

    #[test]
    fn frames_are_encoded_and_parsed() {
        for frame in frames() {
            assert_eq!(Frame::parse(frame.number(), &frame.body().unwrap()), Ok(frame));
        }
    }

    #[test]
    fn an_older_side_reads_an_answer_without_what_it_is_about() {
        let answer = |of_first| Frame::Unable { reason: PeerText::new("no"), of_first };
        let (marked, plain) = (answer(true).body().unwrap(), answer(false).body().unwrap());
        assert_eq!(Frame::parse(6, &marked), Ok(answer(true)));
        assert_eq!(Frame::parse(6, &plain), Ok(answer(false)));
        // The field's tag permits to skip it.
        assert_eq!((&marked[..plain.len()], &marked[plain.len()..][..2]), (&plain[..], &[12, 0][..]));
    }

    #[test]
    fn frames_that_are_cut_or_continued_are_refused() {
        for frame in frames() {
            let body = frame.body().unwrap();
            for length in 0..body.len() {
                let cut = Frame::parse(frame.number(), &body[..length]);
                assert!(cut.is_err(), "{} of {length}", frame.name());
            }
            assert!(Frame::parse(frame.number(), &[&body[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn fields_of_a_later_version_are_skipped_or_refused_in_every_frame() {
        for frame in frames() {
            for (tag, is_skipped) in [(500_u16, true), (500 | 1 << 15, false)] {
                let new = [&tag.to_le_bytes()[..], &3_u32.to_le_bytes(), b"new"].concat();
                let body = [frame.body().unwrap(), new].concat();
                let read = Frame::parse(frame.number(), &body);
                assert_eq!(
                    read.is_ok_and(|read| read == frame),
                    is_skipped,
                    "{} with {tag:#x}",
                    frame.name()
                );
            }
        }
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let long = Frame::Hello { private: vec![0; MAX_PRIVATE + 1], addresses: PeerAddresses::default() };
        assert!(long.body().unwrap_err().to_string().contains("private data"));
        for window in [0, MIN_WINDOW - 1, MAX_WINDOW + 1] {
            let end = End { token: Token::new(0, 0), window, endpoint: vec![] };
            let body = Frame::Ready { end }.body().unwrap();
            assert!(Frame::parse(5, &body).unwrap_err().to_string().contains("window"));
        }
        assert!(Frame::parse(0, &[]).is_err());
        assert!(Frame::parse(14, &[]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(what in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Frame::parse(what, &body);
        }

        #[test]
        fn no_change_of_a_frame_makes_it_panic(
            which in 0usize..13, at in any::<prop::sample::Index>(), value in any::<u8>(),
        ) {
            let frame = &frames()[which];
            let mut body = frame.body().unwrap();
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = value;
                let _ = Frame::parse(frame.number(), &body);
            }
        }
    }
}
