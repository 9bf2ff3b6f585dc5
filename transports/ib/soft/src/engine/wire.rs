//! The packets of RoCEv2 behind the UDP header and ahead of the ICRC: headers, opcodes, payload.
//!
//! For queue pairs and links. All fields are big-endian (InfiniBand Architecture Specification, chapter 9).

use super::psn::Psn;

/// UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// Length of the base transport header.
pub const BTH_LENGTH: usize = 12;
/// The largest headers of a packet: BTH, RETH, immediate data.
pub const LARGEST_HEADERS: usize = BTH_LENGTH + 16 + 4;
/// The only partition: that of full members.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// What a packet asks for, or answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message for a receive buffer.
    Send,
    /// An RDMA WRITE.
    Write,
    /// A request of an RDMA READ.
    ReadRequest,
    /// Data of an RDMA READ.
    ReadResponse,
    /// An acknowledgement, positive or negative.
    Acknowledge,
    /// The value that an atomic operation found.
    AtomicAcknowledge,
    /// A compare-and-swap of eight bytes.
    CompareSwap,
    /// A fetch-and-add of eight bytes.
    FetchAdd,
    /// A datagram.
    Datagram,
}

/// Which part of a message a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first of several.
    First,
    /// One between first and last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Part {
    /// The part of a packet with these properties.
    pub fn of(is_first: bool, is_last: bool) -> Part {
        match (is_first, is_last) {
            (true, true) => Part::Only,
            (true, false) => Part::First,
            (false, true) => Part::Last,
            (false, false) => Part::Middle,
        }
    }

    /// Whether a message begins with it.
    pub fn is_first(self) -> bool {
        matches!(self, Part::First | Part::Only)
    }

    /// Whether a message ends with it.
    pub fn is_last(self) -> bool {
        matches!(self, Part::Last | Part::Only)
    }
}

/// What the last packet of a message brings beside its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// Four bytes for the receive completion, as they are on the wire.
    Immediate([u8; 4]),
    /// A key that the receiver's side invalidates.
    Invalidate(u32),
}

/// Where an RDMA operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Address in the responder's memory.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
    /// Bytes of the whole operation.
    pub length: u32,
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Address in the responder's memory.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
    /// The new value, or what is added.
    pub operand: u64,
    /// What a compare-and-swap compares with.
    pub compare: u64,
}

/// Why a request was not acknowledged for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nak {
    /// A packet is missing.
    Sequence,
    /// The request is malformed, or of a kind that the responder does not serve.
    InvalidRequest,
    /// The key, the range or the permission is wrong.
    RemoteAccess,
    /// The responder failed.
    RemoteOperation,
}

/// An answer's syndrome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Done. No credits are told.
    Ack,
    /// No receive buffer is there; wait as long as this code says.
    ReceiverNotReady(u8),
    /// Refused.
    Nak(Nak),
}

/// Head of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// How it went.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed, 24 bits.
    pub msn: u32,
}

/// Head of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Key of the receiving queue pair.
    pub qkey: u32,
    /// The queue pair that sends.
    pub source_qp: u32,
}

/// The headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// What it is.
    pub kind: Kind,
    /// Which part of a message.
    pub part: Part,
    /// What its last part brings.
    pub extra: Extra,
    /// Whether the receive completion is announced to a queue that waits for solicited ones.
    pub is_solicited: bool,
    /// Whether an answer is wanted.
    pub wants_ack: bool,
    /// The partition.
    pub pkey: u16,
    /// The queue pair that it is for.
    pub destination_qp: u32,
    /// Its number.
    pub psn: Psn,
    /// Where an RDMA operation goes.
    pub reth: Option<Reth>,
    /// The atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Head of an answer.
    pub aeth: Option<Aeth>,
    /// The value that an atomic operation found.
    pub original: Option<u64>,
    /// Head of a datagram.
    pub deth: Option<Deth>,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// It ends within its headers or its padding.
    #[error("{0} bytes are too few for the headers that its opcode has")]
    Short(usize),
    /// The opcode is none that this device knows.
    #[error("opcode {0:#04x} is not one of RC or UD")]
    Opcode(u8),
    /// The header's version is not 0.
    #[error("version {0} of the transport header is not 0")]
    Version(u8),
    /// The answer's syndrome is reserved.
    #[error("syndrome {0:#04x} is reserved")]
    Syndrome(u8),
}

impl Headers {
    /// Headers of this kind without extended ones.
    pub fn new(kind: Kind, part: Part, destination_qp: u32, psn: Psn) -> Headers {
        Headers {
            kind,
            part,
            extra: Extra::None,
            is_solicited: false,
            wants_ack: false,
            pkey: DEFAULT_PKEY,
            destination_qp,
            psn,
            reth: None,
            atomic: None,
            aeth: None,
            original: None,
            deth: None,
        }
    }

    /// The packet of these headers, with a payload of this length that `fill` writes, and its padding.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn encode<E>(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let padding = length.wrapping_neg() % 4;
        let mut out = Vec::with_capacity(BTH_LENGTH + 32 + length + padding);
        out.push(self.opcode());
        // The migration state is "migrated", as hardware sends it.
        out.push(u8::from(self.is_solicited) << 7 | 1 << 6 | (padding as u8) << 4);
        out.extend_from_slice(&self.pkey.to_be_bytes());
        out.extend_from_slice(&(self.destination_qp & 0x00ff_ffff).to_be_bytes());
        out.extend_from_slice(&(u32::from(self.wants_ack) << 31 | self.psn.get()).to_be_bytes());
        if let Some(deth) = &self.deth {
            out.extend_from_slice(&deth.qkey.to_be_bytes());
            out.extend_from_slice(&(deth.source_qp & 0x00ff_ffff).to_be_bytes());
        }
        if let Some(reth) = &self.reth {
            out.extend_from_slice(&reth.address.to_be_bytes());
            out.extend_from_slice(&reth.rkey.to_be_bytes());
            out.extend_from_slice(&reth.length.to_be_bytes());
        }
        if let Some(atomic) = &self.atomic {
            out.extend_from_slice(&atomic.address.to_be_bytes());
            out.extend_from_slice(&atomic.rkey.to_be_bytes());
            out.extend_from_slice(&atomic.operand.to_be_bytes());
            out.extend_from_slice(&atomic.compare.to_be_bytes());
        }
        if let Some(aeth) = &self.aeth {
            out.extend_from_slice(
                &(u32::from(aeth.syndrome.code()) << 24 | aeth.msn & 0x00ff_ffff).to_be_bytes(),
            );
        }
        if let Some(original) = self.original {
            out.extend_from_slice(&original.to_be_bytes());
        }
        match self.extra {
            Extra::None => {}
            Extra::Immediate(bytes) => out.extend_from_slice(&bytes),
            Extra::Invalidate(rkey) => out.extend_from_slice(&rkey.to_be_bytes()),
        }
        let begin = out.len();
        out.resize(begin + length + padding, 0);
        fill(&mut out[begin..begin + length])?;
        Ok(out)
    }

    /// The headers and the payload of a packet.
    ///
    /// # Errors
    /// Why it is none. Nothing of it may be used then.
    pub fn decode(packet: &[u8]) -> Result<(Headers, &[u8]), Malformed> {
        let mut rest = Reader { packet, rest: packet };
        let [opcode, flags] = rest.take()?;
        let pkey = u16::from_be_bytes(rest.take()?);
        let destination_qp = rest.word()? & 0x00ff_ffff;
        let word = rest.word()?;
        if flags & 0x0f != 0 {
            return Err(Malformed::Version(flags & 0x0f));
        }
        let (kind, part, extra) = meaning(opcode).ok_or(Malformed::Opcode(opcode))?;
        let mut headers = Headers {
            is_solicited: flags & 0x80 != 0,
            wants_ack: word >> 31 != 0,
            pkey,
            ..Headers::new(kind, part, destination_qp, Psn::new(word))
        };
        match kind {
            Kind::Datagram => {
                headers.deth = Some(Deth { qkey: rest.word()?, source_qp: rest.word()? & 0x00ff_ffff })
            }
            Kind::Write if part.is_first() => headers.reth = Some(rest.reth()?),
            Kind::ReadRequest => headers.reth = Some(rest.reth()?),
            Kind::CompareSwap | Kind::FetchAdd => {
                headers.atomic = Some(AtomicEth {
                    address: rest.long()?,
                    rkey: rest.word()?,
                    operand: rest.long()?,
                    compare: rest.long()?,
                });
            }
            Kind::Acknowledge => headers.aeth = Some(rest.aeth()?),
            Kind::AtomicAcknowledge => {
                headers.aeth = Some(rest.aeth()?);
                headers.original = Some(rest.long()?);
            }
            Kind::ReadResponse if part != Part::Middle => headers.aeth = Some(rest.aeth()?),
            Kind::Send | Kind::Write | Kind::ReadResponse => {}
        }
        headers.extra = match extra {
            Extra::None => Extra::None,
            Extra::Immediate(_) => Extra::Immediate(rest.take()?),
            Extra::Invalidate(_) => Extra::Invalidate(rest.word()?),
        };
        let padding = usize::from(flags >> 4 & 3);
        let payload = rest.rest.len().checked_sub(padding).ok_or(Malformed::Short(packet.len()))?;
        Ok((headers, &rest.rest[..payload]))
    }

    fn opcode(&self) -> u8 {
        let send = |part, extra| match (part, extra) {
            (Part::First, _) => 0x00,
            (Part::Middle, _) => 0x01,
            (Part::Last, Extra::None) => 0x02,
            (Part::Last, Extra::Immediate(_)) => 0x03,
            (Part::Last, Extra::Invalidate(_)) => 0x16,
            (Part::Only, Extra::None) => 0x04,
            (Part::Only, Extra::Immediate(_)) => 0x05,
            (Part::Only, Extra::Invalidate(_)) => 0x17,
        };
        match self.kind {
            Kind::Send => send(self.part, self.extra),
            Kind::Write => match (self.part, self.extra) {
                (Part::First, _) => 0x06,
                (Part::Middle, _) => 0x07,
                (Part::Last, Extra::Immediate(_)) => 0x09,
                (Part::Last, _) => 0x08,
                (Part::Only, Extra::Immediate(_)) => 0x0b,
                (Part::Only, _) => 0x0a,
            },
            Kind::ReadRequest => 0x0c,
            Kind::ReadResponse => match self.part {
                Part::First => 0x0d,
                Part::Middle => 0x0e,
                Part::Last => 0x0f,
                Part::Only => 0x10,
            },
            Kind::Acknowledge => 0x11,
            Kind::AtomicAcknowledge => 0x12,
            Kind::CompareSwap => 0x13,
            Kind::FetchAdd => 0x14,
            Kind::Datagram => match self.extra {
                Extra::Immediate(_) => 0x65,
                _ => 0x64,
            },
        }
    }
}

/// The queue pair that a packet is for, read without the rest.
pub fn destination_qp(packet: &[u8]) -> Option<u32> {
    let word = packet.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*word) & 0x00ff_ffff)
}

/// What an opcode says; the values in [`Extra`] are not set yet.
fn meaning(opcode: u8) -> Option<(Kind, Part, Extra)> {
    let none = Extra::None;
    let immediate = Extra::Immediate([0; 4]);
    Some(match opcode {
        0x00 => (Kind::Send, Part::First, none),
        0x01 => (Kind::Send, Part::Middle, none),
        0x02 => (Kind::Send, Part::Last, none),
        0x03 => (Kind::Send, Part::Last, immediate),
        0x04 => (Kind::Send, Part::Only, none),
        0x05 => (Kind::Send, Part::Only, immediate),
        0x06 => (Kind::Write, Part::First, none),
        0x07 => (Kind::Write, Part::Middle, none),
        0x08 => (Kind::Write, Part::Last, none),
        0x09 => (Kind::Write, Part::Last, immediate),
        0x0a => (Kind::Write, Part::Only, none),
        0x0b => (Kind::Write, Part::Only, immediate),
        0x0c => (Kind::ReadRequest, Part::Only, none),
        0x0d => (Kind::ReadResponse, Part::First, none),
        0x0e => (Kind::ReadResponse, Part::Middle, none),
        0x0f => (Kind::ReadResponse, Part::Last, none),
        0x10 => (Kind::ReadResponse, Part::Only, none),
        0x11 => (Kind::Acknowledge, Part::Only, none),
        0x12 => (Kind::AtomicAcknowledge, Part::Only, none),
        0x13 => (Kind::CompareSwap, Part::Only, none),
        0x14 => (Kind::FetchAdd, Part::Only, none),
        0x16 => (Kind::Send, Part::Last, Extra::Invalidate(0)),
        0x17 => (Kind::Send, Part::Only, Extra::Invalidate(0)),
        0x64 => (Kind::Datagram, Part::Only, none),
        0x65 => (Kind::Datagram, Part::Only, immediate),
        _ => return None,
    })
}

impl Syndrome {
    fn code(self) -> u8 {
        match self {
            // Credit count 31: the responder tells none.
            Syndrome::Ack => 0x1f,
            Syndrome::ReceiverNotReady(timer) => 0x20 | timer & 0x1f,
            Syndrome::Nak(Nak::Sequence) => 0x60,
            Syndrome::Nak(Nak::InvalidRequest) => 0x61,
            Syndrome::Nak(Nak::RemoteAccess) => 0x62,
            Syndrome::Nak(Nak::RemoteOperation) => 0x63,
        }
    }

    fn of(code: u8) -> Option<Syndrome> {
        Some(match code {
            0x00..=0x1f => Syndrome::Ack,
            0x20..=0x3f => Syndrome::ReceiverNotReady(code & 0x1f),
            0x60 => Syndrome::Nak(Nak::Sequence),
            0x61 => Syndrome::Nak(Nak::InvalidRequest),
            0x62 => Syndrome::Nak(Nak::RemoteAccess),
            0x63 => Syndrome::Nak(Nak::RemoteOperation),
            _ => return None,
        })
    }
}

struct Reader<'a> {
    packet: &'a [u8],
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short(self.packet.len()))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn reth(&mut self) -> Result<Reth, Malformed> {
        Ok(Reth { address: self.long()?, rkey: self.word()?, length: self.word()? })
    }

    fn aeth(&mut self) -> Result<Aeth, Malformed> {
        let word = self.word()?;
        let code = (word >> 24) as u8;
        let syndrome = Syndrome::of(code).ok_or(Malformed::Syndrome(code))?;
        Ok(Aeth { syndrome, msn: word & 0x00ff_ffff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn encoded(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let filled = headers.encode(payload.len(), |place| {
            place.copy_from_slice(payload);
            Ok::<(), Infallible>(())
        });
        filled.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn the_opcodes_are_those_of_reliable_connections_and_of_datagrams() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|opcode| meaning(*opcode).is_some()).collect();
        let reliable = (0x00..=0x14).chain(0x16..=0x17);
        assert_eq!(known, reliable.chain(0x64..=0x65).collect::<Vec<_>>());
    }

    #[test]
    fn every_syndrome_is_told_apart_and_the_reserved_ones_are_none() {
        for code in 0..=u8::MAX {
            let expected = match code {
                0..32 => Some(Syndrome::Ack),
                32..64 => Some(Syndrome::ReceiverNotReady(code - 32)),
                0x60 => Some(Syndrome::Nak(Nak::Sequence)),
                0x61 => Some(Syndrome::Nak(Nak::InvalidRequest)),
                0x62 => Some(Syndrome::Nak(Nak::RemoteAccess)),
                0x63 => Some(Syndrome::Nak(Nak::RemoteOperation)),
                _ => None,
            };
            assert_eq!(Syndrome::of(code), expected, "{code:#x}");
            if let Some(syndrome) = expected {
                let is_ack = syndrome == Syndrome::Ack;
                assert_eq!(syndrome.code(), if is_ack { 31 } else { code }, "no credits are advertised");
            }
            let mut headers = Headers::new(Kind::Acknowledge, Part::Only, 1, Psn::new(0));
            headers.aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: 1 });
            let mut packet = encoded(&headers, &[]);
            packet[BTH_LENGTH] = code;
            let decoded = Headers::decode(&packet).map(|(headers, _)| headers.aeth.map(|aeth| aeth.syndrome));
            assert_eq!(decoded, expected.map(Some).ok_or(Malformed::Syndrome(code)));
        }
    }

    #[test]
    fn a_packet_of_another_version_or_with_more_padding_than_bytes_is_none() {
        let headers = Headers::new(Kind::Send, Part::Only, 0x12_3456, Psn::new(0));
        let packet = encoded(&headers, &[1, 2, 3]);
        assert_eq!(destination_qp(&packet), Some(0x12_3456));
        assert_eq!((destination_qp(&packet[..8]), destination_qp(&packet[..7])), (Some(0x12_3456), None));
        for version in 1..16 {
            let mut packet = packet.clone();
            packet[1] |= version;
            assert_eq!(Headers::decode(&packet), Err(Malformed::Version(version)));
        }
        for padding in 0..4_u8 {
            for bytes in 0..4_u8 {
                let mut packet = packet[..BTH_LENGTH + usize::from(bytes)].to_vec();
                packet[1] = padding << 4;
                let found = Headers::decode(&packet).map(|(_, payload)| payload.len());
                let expected = bytes.checked_sub(padding).map(usize::from);
                assert_eq!(found, expected.ok_or(Malformed::Short(packet.len())), "{padding} of {bytes}");
            }
        }
        for length in 0..BTH_LENGTH {
            assert_eq!(Headers::decode(&packet[..length]), Err(Malformed::Short(length)));
        }
        // Bits beside those of the number are the sender's own.
        let mut packet = packet;
        (packet[4], packet[8]) = (0xff, 0x7f);
        assert_eq!(destination_qp(&packet), Some(0x12_3456));
        assert_eq!(Headers::decode(&packet), Ok((headers, &[1, 2, 3][..])));
    }

    #[test]
    fn every_opcode_survives_the_way_there_and_back() {
        for opcode in 0..=u8::MAX {
            let Some((kind, part, extra)) = meaning(opcode) else { continue };
            let mut headers = Headers {
                extra,
                is_solicited: true,
                wants_ack: true,
                ..Headers::new(kind, part, 0x12_3456, Psn::new(77))
            };
            let reth = Some(Reth { address: 1 << 60, rkey: 3, length: 4 });
            match kind {
                Kind::Write if part.is_first() => headers.reth = reth,
                Kind::ReadRequest => headers.reth = reth,
                Kind::CompareSwap | Kind::FetchAdd => {
                    headers.atomic = Some(AtomicEth { address: 8, rkey: 9, operand: 10, compare: 11 });
                }
                Kind::AtomicAcknowledge => {
                    headers.original = Some(5);
                    headers.aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: 4 });
                }
                Kind::Acknowledge => {
                    headers.aeth = Some(Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), msn: 4 });
                }
                Kind::ReadResponse if part != Part::Middle => {
                    headers.aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: 0xff_ffff });
                }
                Kind::Datagram => headers.deth = Some(Deth { qkey: 0x8001_0000, source_qp: 1 }),
                _ => {}
            }
            for length in 0..9 {
                let payload: Vec<u8> = (1..=length).collect();
                let packet = encoded(&headers, &payload);
                assert_eq!(packet.first(), Some(&opcode));
                assert_eq!(packet.len() % 4, 0);
                assert_eq!(Headers::decode(&packet), Ok((headers, &payload[..])));
            }
        }
    }

    #[test]
    fn a_packet_says_that_its_path_is_migrated_and_whether_it_is_solicited() {
        let headers = Headers::new(Kind::Send, Part::Only, 1, Psn::new(0));
        assert_eq!(encoded(&headers, &[1]).get(1), Some(&0x70));
        assert_eq!(encoded(&Headers { is_solicited: true, ..headers }, &[]).get(1), Some(&0xc0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((headers, payload)) = Headers::decode(&bytes) {
                prop_assert!(payload.len() + BTH_LENGTH <= bytes.len());
                prop_assert_eq!(headers.opcode(), bytes[0]);
            }
        }
    }
}
