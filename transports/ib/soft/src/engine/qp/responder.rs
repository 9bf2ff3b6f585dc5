//! The half of a reliable connection that executes a peer's requests and answers them.
//!
//! For queue pairs. Checks come in the order of the specification (9.7.4): number, sequence of opcodes, permission,
//! length, receive buffer. What was executed once is never executed again: a duplicate is answered from the record.

use std::collections::VecDeque;

use super::super::completion::{Completion, Opcode, Status};
use super::super::events::Event;
use super::super::memory::{Access, Atomic, Refused};
use super::super::psn::Psn;
use super::super::receive::ReceiveRequest;
use super::super::resources::Resources;
use super::super::wire::{Aeth, Extra, Headers, Kind, Nak, Part, Reth, Syndrome};
use super::{Qp, QpState, Target};

/// A message of several packets that has begun.
enum Message {
    Send { request: ReceiveRequest, received: u64 },
    Write { target: Target, length: u64, received: u64 },
}

/// A request whose duplicate is answered anew.
struct Record {
    first: Psn,
    last: Psn,
    what: Recorded,
}

#[derive(Clone, Copy)]
enum Recorded {
    Read(Reth),
    Atomic(u64),
}

/// An answer that has not left. There are few: of those with data as many as the peer may have in flight, of duplicates as
/// many again, one refusal, and an acknowledgement between two of the others.
#[derive(Clone, Copy)]
enum Reply {
    Syndrome { psn: Psn, syndrome: Syndrome },
    Read { first: Psn, reth: Reth, sent: u32, is_again: bool },
    Atomic { psn: Psn, value: u64, is_again: bool },
}

impl Reply {
    /// Whether it is data, of duplicates or of others.
    fn is_data(&self, of_duplicates: bool) -> bool {
        match self {
            Reply::Syndrome { .. } => false,
            Reply::Read { is_again, .. } | Reply::Atomic { is_again, .. } => *is_again == of_duplicates,
        }
    }

    /// Whether it has the data of this packet.
    fn answers(&self, packet: Psn, mtu: u32) -> bool {
        match self {
            Reply::Syndrome { .. } => false,
            Reply::Atomic { psn, .. } => *psn == packet,
            Reply::Read { first, reth, .. } => {
                let packets = reth.length.div_ceil(mtu).max(1);
                packet.since(*first) >= 0 && packet.since(first.plus(packets)) < 0
            }
        }
    }
}

/// Records older than so many packets are forgotten. One more message leaves them within half of the numbers, so that none
/// is ever taken for a later one; duplicates that are as late are nobody's.
const OLDEST_RECORD: i32 = 1 << 21;

/// State of the answering half.
#[derive(Default)]
pub struct Responder {
    /// The packet that is executed next.
    expected: Psn,
    /// Messages completed, 24 bits.
    msn: u32,
    message: Option<Message>,
    records: VecDeque<Record>,
    replies: VecDeque<Reply>,
    /// Whether a negative answer to `expected` has left, which is said once until that packet comes.
    has_refused: bool,
    has_received: bool,
}

impl Responder {
    pub fn start(&mut self, expected: Psn) {
        *self = Responder { expected, ..Responder::default() };
    }

    /// The receive request of a message that will not be completed.
    pub fn abandon(&mut self) -> Option<ReceiveRequest> {
        match self.message.take() {
            Some(Message::Send { request, .. }) => Some(request),
            _ => None,
        }
    }

    /// Up to where a duplicate is acknowledged: not beyond a read or atomic behind it, whose requester would take that for
    /// the loss of its answer, or for the answer.
    fn acknowledged_for(&self, duplicate: Psn) -> Psn {
        let next = self.records.iter().map(|record| record.first).filter(|first| first.since(duplicate) > 0);
        next.min_by_key(|first| first.since(duplicate)).unwrap_or(self.expected).previous()
    }

    fn forget_old(&mut self) {
        let expected = self.expected;
        while self.records.front().is_some_and(|record| expected.since(record.last) > OLDEST_RECORD) {
            self.records.pop_front();
        }
    }

    /// Answers a duplicate with data, instead of an answer to the same packet that has not left. One too many is dropped,
    /// as a network may; its sender asks again.
    fn reply_again(&mut self, reply: Reply, psn: Psn, mtu: u32, limit: usize) {
        let before = self.replies.len();
        self.replies.retain(|waiting| !waiting.answers(psn, mtu));
        let is_instead = self.replies.len() < before;
        if is_instead || self.replies.iter().filter(|waiting| waiting.is_data(true)).count() < limit {
            self.replies.push_back(reply);
        }
    }
}

/// One packet of the answer to a read.
struct ReadPart {
    psn: Psn,
    part: Part,
    rkey: u32,
    address: u64,
    length: usize,
    is_again: bool,
}

/// Why a request is refused.
enum Refusal {
    /// The peer is told, and the queue pair fails.
    Fatal(Nak),
    /// There is no receive buffer.
    NotReady,
}

impl Qp {
    /// A request of the peer.
    pub fn receive_request(&mut self, headers: &Headers, payload: &[u8], resources: &mut Resources) {
        if !self.receives_requests() {
            return;
        }
        if !std::mem::replace(&mut self.responder.has_received, true)
            && self.state() == QpState::ReadyToReceive
        {
            resources.events.push_back(Event::CommunicationEstablished(self.number));
        }
        match headers.psn.since(self.responder.expected) {
            0 => self.execute(headers, payload, resources),
            1.. => self.refuse_once(Syndrome::Nak(Nak::Sequence)),
            _ => self.answer_again(headers),
        }
    }

    /// A negative answer to the expected packet, which stays expected.
    fn refuse_once(&mut self, syndrome: Syndrome) {
        let responder = &mut self.responder;
        if !std::mem::replace(&mut responder.has_refused, true) {
            // One that has not left is of no use beside this one, which acknowledges what is ahead of it, too.
            let is_refusal = |reply: &Reply| matches!(reply, Reply::Syndrome { syndrome, .. } if *syndrome != Syndrome::Ack);
            responder.replies.retain(|reply| !is_refusal(reply));
            while let Some(Reply::Syndrome { .. }) = responder.replies.back() {
                responder.replies.pop_back();
            }
            responder.replies.push_back(Reply::Syndrome { psn: responder.expected, syndrome });
        }
    }

    fn execute(&mut self, headers: &Headers, payload: &[u8], resources: &mut Resources) {
        self.responder.has_refused = false;
        let done = match headers.kind {
            Kind::Send => self.execute_send(headers, payload, resources),
            Kind::Write => self.execute_write(headers, payload, resources),
            Kind::ReadRequest => self.execute_read(headers, resources),
            Kind::CompareSwap | Kind::FetchAdd => self.execute_atomic(headers, resources),
            _ => Err(Refusal::Fatal(Nak::InvalidRequest)),
        };
        match done {
            Ok(packets) => {
                let responder = &mut self.responder;
                responder.expected = responder.expected.plus(packets);
                responder.forget_old();
                if headers.part.is_last() {
                    responder.msn = responder.msn.wrapping_add(1) & 0x00ff_ffff;
                }
                let is_answered_by_data =
                    matches!(headers.kind, Kind::ReadRequest | Kind::CompareSwap | Kind::FetchAdd);
                if headers.wants_ack && !is_answered_by_data {
                    self.reply_ack(headers.psn);
                }
            }
            Err(Refusal::NotReady) => {
                self.refuse_once(Syndrome::ReceiverNotReady(self.attributes.min_rnr_timer));
            }
            Err(Refusal::Fatal(nak)) => {
                match nak {
                    Nak::RemoteAccess => resources.events.push_back(Event::QpAccessError(self.number)),
                    Nak::InvalidRequest => resources.events.push_back(Event::QpRequestError(self.number)),
                    Nak::Sequence | Nak::RemoteOperation => {}
                }
                self.refuse_once(Syndrome::Nak(nak));
                self.fail(resources);
            }
        }
    }

    /// Acknowledges up to this packet; one that waits behind another is told by it.
    fn reply_ack(&mut self, psn: Psn) {
        let replies = &mut self.responder.replies;
        if let Some(Reply::Syndrome { psn: last, syndrome: Syndrome::Ack }) = replies.back_mut() {
            // That of a duplicate is older.
            if psn.since(*last) > 0 {
                *last = psn;
            }
        } else {
            replies.push_back(Reply::Syndrome { psn, syndrome: Syndrome::Ack });
        }
    }

    /// Whether a packet of this part may come now, in a message of this kind.
    fn check_part(&self, headers: &Headers, payload: &[u8]) -> Result<(), Refusal> {
        let is_in_message = match &self.responder.message {
            None => false,
            Some(Message::Send { .. }) if headers.kind == Kind::Send => true,
            Some(Message::Write { .. }) if headers.kind == Kind::Write => true,
            Some(_) => return Err(Refusal::Fatal(Nak::InvalidRequest)),
        };
        let mtu = self.attributes.mtu as usize;
        let has_length = match headers.part {
            Part::First | Part::Middle => payload.len() == mtu,
            Part::Last => (1..=mtu).contains(&payload.len()),
            Part::Only => payload.len() <= mtu,
        };
        if headers.part.is_first() == is_in_message || !has_length {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        Ok(())
    }

    fn execute_send(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        resources: &mut Resources,
    ) -> Result<u32, Refusal> {
        self.check_part(headers, payload)?;
        // There are no keys that a peer could invalidate.
        if matches!(headers.extra, Extra::Invalidate(_)) {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        let (request, received) = match self.responder.message.take() {
            Some(Message::Send { request, received }) => (request, received),
            _ => {
                let request = self.take_receive(resources).ok_or(Refusal::NotReady)?;
                if let Some(status) = resources.next_receive() {
                    self.report_receive(resources, request.wr_id, status);
                    return Err(Refusal::Fatal(Nak::RemoteOperation));
                }
                (request, 0)
            }
        };
        if let Err(refused) =
            resources.memory.scatter(self.receive_domain(resources), &request.pieces, received, payload)
        {
            let nak = match refused {
                Refused::Length => Nak::InvalidRequest,
                Refused::Protection => Nak::RemoteOperation,
            };
            self.report_receive(resources, request.wr_id, refused.into());
            return Err(Refusal::Fatal(nak));
        }
        let received = received + payload.len() as u64;
        if headers.part.is_last() {
            self.report_message(request.wr_id, Opcode::Receive, received, headers, resources);
        } else {
            self.responder.message = Some(Message::Send { request, received });
        }
        Ok(1)
    }

    fn execute_write(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        resources: &mut Resources,
    ) -> Result<u32, Refusal> {
        self.check_part(headers, payload)?;
        let (target, length, received) = match &self.responder.message {
            Some(Message::Write { target, length, received }) => (*target, *length, *received),
            _ => {
                let reth = headers.reth.ok_or(Refusal::Fatal(Nak::InvalidRequest))?;
                self.check_access(reth, Access::REMOTE_WRITE, resources)?;
                (Target { address: reth.address, rkey: reth.rkey }, u64::from(reth.length), 0)
            }
        };
        let after = received + payload.len() as u64;
        let is_last = headers.part.is_last();
        if after > length || is_last && after != length {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        // The receive request is taken before anything is written, so that its absence changes nothing.
        let request = match headers.extra {
            Extra::Immediate(_) => Some(self.take_receive(resources).ok_or(Refusal::NotReady)?),
            _ => None,
        };
        let address = target.address.wrapping_add(received);
        let written =
            resources.memory.write(self.config.pd, target.rkey, address, Access::REMOTE_WRITE, payload);
        if written.is_err() {
            if let Some(request) = request {
                self.report_receive(resources, request.wr_id, Status::Flushed);
            }
            return Err(Refusal::Fatal(Nak::RemoteAccess));
        }
        self.responder.message = (!is_last).then_some(Message::Write { target, length, received: after });
        if let Some(request) = request {
            self.report_message(request.wr_id, Opcode::ReceiveWrite, length, headers, resources);
        }
        Ok(1)
    }

    fn execute_read(&mut self, headers: &Headers, resources: &mut Resources) -> Result<u32, Refusal> {
        let reth = headers.reth.ok_or(Refusal::Fatal(Nak::InvalidRequest))?;
        self.check_alone()?;
        if u64::from(reth.length) > super::requester::LARGEST_MESSAGE {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        self.check_access(reth, Access::REMOTE_READ, resources)?;
        let packets = reth.length.div_ceil(self.attributes.mtu).max(1);
        let last = headers.psn.plus(packets - 1);
        self.record(Record { first: headers.psn, last, what: Recorded::Read(reth) });
        self.responder.replies.push_back(Reply::Read { first: headers.psn, reth, sent: 0, is_again: false });
        Ok(packets)
    }

    fn execute_atomic(&mut self, headers: &Headers, resources: &mut Resources) -> Result<u32, Refusal> {
        let atomic = headers.atomic.ok_or(Refusal::Fatal(Nak::InvalidRequest))?;
        self.check_alone()?;
        if !self.attributes.access.contains(Access::REMOTE_ATOMIC) || atomic.address % 8 != 0 {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        let operation = match headers.kind {
            Kind::FetchAdd => Atomic::Add(atomic.operand),
            _ => Atomic::CompareSwap { compare: atomic.compare, swap: atomic.operand },
        };
        let found = resources.memory.atomic(self.config.pd, atomic.rkey, atomic.address, operation);
        let value = found.map_err(|_| Refusal::Fatal(Nak::RemoteAccess))?;
        self.record(Record { first: headers.psn, last: headers.psn, what: Recorded::Atomic(value) });
        self.responder.replies.push_back(Reply::Atomic { psn: headers.psn, value, is_again: false });
        Ok(1)
    }

    /// Reads and atomics come between messages, and as many at once as was agreed.
    fn check_alone(&self) -> Result<(), Refusal> {
        let waiting = self.responder.replies.iter().filter(|reply| reply.is_data(false)).count();
        if self.responder.message.is_some() || waiting >= usize::from(self.attributes.reads_in) {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        Ok(())
    }

    fn check_access(&self, reth: Reth, access: Access, resources: &Resources) -> Result<(), Refusal> {
        if !self.attributes.access.contains(access) {
            return Err(Refusal::Fatal(Nak::InvalidRequest));
        }
        let length = u64::from(reth.length);
        let checked = resources.memory.check(self.config.pd, reth.rkey, reth.address, length, access);
        checked.map_err(|_| Refusal::Fatal(Nak::RemoteAccess))
    }

    /// Keeps what duplicates are answered from, for as many as the peer may have in flight.
    fn record(&mut self, record: Record) {
        let records = &mut self.responder.records;
        while records.len() >= usize::from(self.attributes.reads_in).max(1) {
            records.pop_front();
        }
        records.push_back(record);
    }

    fn report_message(
        &self,
        wr_id: u64,
        opcode: Opcode,
        length: u64,
        headers: &Headers,
        resources: &mut Resources,
    ) {
        let mut completion = Completion::new(self.number, wr_id, Status::Success, opcode);
        completion.length = length as u32;
        completion.extra = headers.extra;
        completion.source_qp = self.attributes.destination_qp;
        resources.complete(self.config.receive_cq, completion, headers.is_solicited);
    }

    /// Answers a packet that was executed before.
    fn answer_again(&mut self, headers: &Headers) {
        let psn = headers.psn;
        let (mtu, limit) = (self.attributes.mtu, usize::from(self.attributes.reads_in));
        match headers.kind {
            Kind::Send | Kind::Write => {
                let acknowledged = self.responder.acknowledged_for(psn);
                self.reply_ack(acknowledged);
            }
            Kind::ReadRequest => {
                let Some(asked) = headers.reth else { return };
                let records = &self.responder.records;
                let is_same = records.iter().any(|record| {
                    let Recorded::Read(reth) = record.what else { return false };
                    let skipped = psn.since(record.first);
                    if skipped < 0 || record.last.since(psn) < 0 {
                        return false;
                    }
                    let skipped = skipped as u32 * mtu;
                    // It asks for the rest, as it was asked for the first time.
                    asked.rkey == reth.rkey
                        && asked.address == reth.address.wrapping_add(u64::from(skipped))
                        && asked.length <= reth.length - skipped
                });
                if is_same {
                    let reply = Reply::Read { first: psn, reth: asked, sent: 0, is_again: true };
                    self.responder.reply_again(reply, psn, mtu, limit);
                }
            }
            Kind::CompareSwap | Kind::FetchAdd => {
                let record = self.responder.records.iter().find(|record| record.first == psn);
                if let Some(Record { what: Recorded::Atomic(value), .. }) = record {
                    let reply = Reply::Atomic { psn, value: *value, is_again: true };
                    self.responder.reply_again(reply, psn, mtu, limit);
                }
            }
            _ => {}
        }
    }

    /// Sends answers, about so many packets. Whether there are more.
    pub fn send_replies(&mut self, resources: &mut Resources, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(reply) = self.responder.replies.front_mut() else { return false };
            let destination = self.attributes.destination_qp;
            let msn = self.responder.msn;
            match reply {
                Reply::Syndrome { psn, syndrome } => {
                    let mut headers = Headers::new(Kind::Acknowledge, Part::Only, destination, *psn);
                    headers.aeth = Some(Aeth { syndrome: *syndrome, msn });
                    self.responder.replies.pop_front();
                    self.send_headers(resources, &headers);
                }
                Reply::Atomic { psn, value, .. } => {
                    let mut headers = Headers::new(Kind::AtomicAcknowledge, Part::Only, destination, *psn);
                    headers.aeth = Some(Aeth { syndrome: Syndrome::Ack, msn });
                    headers.original = Some(*value);
                    self.responder.replies.pop_front();
                    self.send_headers(resources, &headers);
                }
                Reply::Read { first, reth, sent, is_again } => {
                    let mtu = self.attributes.mtu;
                    let packets = reth.length.div_ceil(mtu).max(1);
                    let part = ReadPart {
                        psn: first.plus(*sent),
                        part: Part::of(*sent == 0, *sent + 1 == packets),
                        rkey: reth.rkey,
                        address: reth.address.wrapping_add(u64::from(*sent * mtu)),
                        length: (reth.length - *sent * mtu).min(mtu) as usize,
                        is_again: *is_again,
                    };
                    *sent += 1;
                    if *sent == packets {
                        self.responder.replies.pop_front();
                    }
                    self.send_read_part(resources, &part);
                }
            }
        }
        !self.responder.replies.is_empty()
    }

    fn send_read_part(&mut self, resources: &mut Resources, part: &ReadPart) {
        let ReadPart { psn, rkey, address, length, .. } = *part;
        let mut headers = Headers::new(Kind::ReadResponse, part.part, self.attributes.destination_qp, psn);
        if part.part != Part::Middle {
            headers.aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: self.responder.msn });
        }
        let memory = &resources.memory;
        let pd = self.config.pd;
        let encoded =
            headers.encode(length, |place| memory.read(pd, rkey, address, Access::REMOTE_READ, place));
        match encoded {
            Ok(bytes) => self.send(resources, self.attributes.path, bytes),
            // The memory was deregistered meanwhile. A duplicate may come when its sender knows of that, and is nobody's then.
            Err(_) if part.is_again => {
                self.responder.replies.retain(|reply| !reply.answers(psn, self.attributes.mtu))
            }
            Err(_) => {
                if self.state() != QpState::Error {
                    resources.events.push_back(Event::QpAccessError(self.number));
                }
                self.responder.replies.clear();
                let syndrome = Syndrome::Nak(Nak::RemoteAccess);
                self.responder.replies.push_back(Reply::Syndrome { psn, syndrome });
                self.fail(resources);
            }
        }
    }
}
