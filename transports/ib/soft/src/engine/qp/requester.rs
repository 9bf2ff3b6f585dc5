//! The half of a reliable connection that sends requests: segments, window, acknowledgements, retries.
//!
//! For queue pairs. Retransmission goes back to the oldest packet without an answer, as the specification has it (9.7.5, 9.9.2).

use std::collections::VecDeque;

use super::super::Nanos;
use super::super::completion::{Completion, Status};
use super::super::events::Event;
use super::super::memory::{Access, Atomic, Refused};
use super::super::psn::Psn;
use super::super::resources::{Personality, Resources};
use super::super::wire::{AtomicEth, Headers, Kind, Nak, Part, Reth, Syndrome};
use super::{Attributes, PostRefused, Qp, QpKind, QpState, SendData, SendKind, SendRequest, extra_if};

/// Bytes without an answer at most, and packets; few enough for the buffer that a socket has by default.
const WINDOW_BYTES: u32 = 128 << 10;
const WINDOW_PACKETS: u32 = 128;
/// Bytes of a message at most; its packets are far less than half of the numbers, whatever their size.
pub const LARGEST_MESSAGE: u64 = 1 << 30;

/// A request that was posted and has not ended.
struct Entry {
    request: SendRequest,
    length: u64,
    /// Numbers of its first and its last packet, or of those of its answer. Set when it is begun.
    first: Psn,
    last: Psn,
    is_begun: bool,
    /// Packets of its answer that have arrived.
    answered: u32,
    /// A failure on this side, which is reported when those before it have ended.
    failed: Option<Status>,
}

impl Entry {
    /// The packet that it continues with when it is sent again: behind the answers that have arrived.
    fn resume(&self) -> Psn {
        self.first.plus(self.answered)
    }
}

/// State of the sending half.
#[derive(Default)]
pub struct Requester {
    queue: VecDeque<Entry>,
    /// The request that is sent next, by its place in the queue.
    next: usize,
    /// The packet that is sent next.
    psn: Psn,
    /// The oldest packet without an answer.
    unacked: Psn,
    /// Behind the last packet that was ever sent.
    sent: Psn,
    reads: u8,
    retries: u8,
    rnr_retries: u8,
    /// When an answer is missed.
    deadline: Option<Nanos>,
    /// Until when a peer without receive buffers is left alone.
    pause: Option<Nanos>,
    /// Whether a missing answer of a read was noticed since the last progress.
    has_noticed_gap: bool,
}

impl Requester {
    pub fn starting_at(attributes: &Attributes) -> Requester {
        let psn = attributes.send_psn;
        Requester {
            psn,
            unacked: psn,
            sent: psn,
            retries: attributes.retry_count,
            rnr_retries: attributes.rnr_retry,
            ..Requester::default()
        }
    }

    pub fn deadline(&self) -> Option<Nanos> {
        self.pause.or(self.deadline)
    }

    /// Continues with this packet.
    fn go_to(&mut self, psn: Psn) {
        self.psn = psn;
        self.next = self
            .queue
            .iter()
            .position(|entry| !entry.is_begun || entry.last.since(psn) >= 0)
            .unwrap_or(self.queue.len());
    }

    /// Whether all that was begun has ended.
    fn is_drained(&self) -> bool {
        self.queue.front().is_none_or(|entry| !entry.is_begun)
    }
}

/// How long the codes of receiver-not-ready timers are, in microseconds.
const RNR_DELAYS: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120,
    7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
];

/// Packets without an answer at most.
fn window(mtu: u32) -> u32 {
    (WINDOW_BYTES / mtu).min(WINDOW_PACKETS)
}

/// Packets of a message of this length.
fn packets(length: u64, mtu: u32) -> u32 {
    length.div_ceil(u64::from(mtu)).max(1) as u32
}

impl Qp {
    /// Adds a send request, or says that it cannot.
    pub fn post_send(&mut self, request: SendRequest, resources: &mut Resources) -> Result<(), PostRefused> {
        let capacity = &self.config.capacity;
        let is_datagram = matches!(request.kind, SendKind::Datagram { .. });
        if is_datagram != (self.config.kind == QpKind::Ud) {
            return Err(PostRefused::State);
        }
        let has_room = match &request.data {
            SendData::Pieces(pieces) => pieces.len() <= capacity.send_pieces,
            SendData::Inline(bytes) => bytes.len() <= capacity.inline && !request.kind.is_read(),
        };
        let length = request.data.length();
        let largest = if is_datagram { u64::from(resources.config.mtu) } else { LARGEST_MESSAGE };
        let is_atomic = matches!(request.kind, SendKind::Atomic(..));
        if !has_room || length > largest || is_atomic && length != 8 {
            return Err(PostRefused::Size);
        }
        let state = self.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::ReadyToReceive) {
            return Err(PostRefused::State);
        }
        if self.requester.queue.len() >= capacity.sends {
            return Err(PostRefused::Full);
        }
        // Every request counts that is taken, whatever becomes of it.
        let failed = resources.next_send(self.number);
        if matches!(state, QpState::Error | QpState::SendQueueError) {
            self.report_send(resources, &request, Status::Flushed, 0);
            return Ok(());
        }
        self.requester.queue.push_back(Entry {
            request,
            length,
            first: Psn::default(),
            last: Psn::default(),
            is_begun: false,
            answered: 0,
            failed,
        });
        Ok(())
    }

    /// Sends what the window permits. Whether more could leave now.
    pub fn send_requests(&mut self, resources: &mut Resources, now: Nanos, budget: usize) -> bool {
        if !matches!(self.state(), QpState::ReadyToSend | QpState::SendQueueDrain) {
            return false;
        }
        // Its end has been taken out by `expire`, which comes first.
        if self.requester.pause.is_some() {
            return false;
        }
        for _ in 0..budget {
            if !self.send_one(resources) {
                return false;
            }
            if self.requester.deadline.is_none() {
                self.requester.deadline = self.answer_missed(now);
            }
        }
        true
    }

    /// Sends one packet. Whether it could.
    fn send_one(&mut self, resources: &mut Resources) -> bool {
        if !self.begin_next(resources) {
            return false;
        }
        let mtu = u64::from(self.attributes.mtu);
        let requester = &self.requester;
        let psn = requester.psn;
        let entry = &requester.queue[requester.next];
        let index = psn.since(entry.first) as u64;
        let window = u64::from(window(self.attributes.mtu));
        let request = &entry.request;
        let destination = self.attributes.destination_qp;
        let mut after = psn.plus(1);
        let encoded = match request.kind {
            SendKind::Read(target) => {
                let skipped = index * mtu;
                // A long read is asked for in parts, each as long as the window, so that its answers do not flood this side. What is
                // asked for again ends where its part ended, since the responder knows it so.
                let part = (window - index % window) * mtu;
                let length = part.min(entry.length - skipped);
                after = psn.plus(packets(length, self.attributes.mtu));
                let mut headers = Headers::new(Kind::ReadRequest, Part::Only, destination, psn);
                headers.wants_ack = true;
                headers.reth = Some(Reth {
                    address: target.address.wrapping_add(skipped),
                    rkey: target.rkey,
                    length: length as u32,
                });
                headers.encode(0, |_| Ok(()))
            }
            SendKind::Atomic(target, operation) => {
                let (kind, operand, compare) = match operation {
                    Atomic::Add(operand) => (Kind::FetchAdd, operand, 0),
                    Atomic::CompareSwap { compare, swap } => (Kind::CompareSwap, swap, compare),
                };
                let mut headers = Headers::new(kind, Part::Only, destination, psn);
                headers.wants_ack = true;
                headers.atomic =
                    Some(AtomicEth { address: target.address, rkey: target.rkey, operand, compare });
                headers.encode(0, |_| Ok(()))
            }
            SendKind::Send | SendKind::Write(_) => {
                let (is_first, is_last) = (psn == entry.first, psn == entry.last);
                let begin = index * mtu;
                let length = (entry.length - begin).min(mtu) as usize;
                let kind = if request.kind == SendKind::Send { Kind::Send } else { Kind::Write };
                let mut headers = Headers::new(kind, Part::of(is_first, is_last), destination, psn);
                headers.extra = extra_if(is_last, request.extra);
                headers.is_solicited = is_last && request.is_solicited;
                headers.wants_ack = is_last || (index + 1).is_multiple_of(window / 4);
                if let SendKind::Write(target) = request.kind
                    && is_first
                {
                    let length = entry.length as u32;
                    headers.reth = Some(Reth { address: target.address, rkey: target.rkey, length });
                }
                headers.encode(length, |place| match &request.data {
                    SendData::Inline(bytes) => {
                        place.copy_from_slice(&bytes[begin as usize..begin as usize + length]);
                        Ok(())
                    }
                    SendData::Pieces(pieces) => resources.memory.gather(self.config.pd, pieces, begin, place),
                })
            }
            SendKind::Datagram { .. } => return false,
        };
        let is_whole = after.since(entry.last) > 0;
        match encoded {
            Ok(bytes) => {
                self.send(resources, self.attributes.path, bytes);
                let requester = &mut self.requester;
                requester.psn = after;
                if after.since(requester.sent) > 0 {
                    requester.sent = after;
                }
                if is_whole {
                    requester.next += 1;
                }
                true
            }
            Err(refused) => {
                self.refuse_next(refused, resources);
                false
            }
        }
    }

    /// Whether the next request may send a packet; begins it if it is new.
    fn begin_next(&mut self, resources: &mut Resources) -> bool {
        let state = self.state();
        let requester = &mut self.requester;
        let next = requester.next;
        let Some(entry) = requester.queue.get(next) else { return false };
        let in_flight = requester.psn.since(requester.unacked);
        if entry.failed.is_some() {
            if state != QpState::SendQueueDrain {
                self.report_failed_front(resources);
            }
            return false;
        }
        if in_flight >= window(self.attributes.mtu) as i32 {
            return false;
        }
        let is_read = entry.request.kind.is_read();
        if entry.is_begun {
            // The next part of a read waits for the one before it, so that there are no more reads than agreed.
            let is_next_part = is_read && requester.psn != entry.first && requester.psn == requester.sent;
            return !is_next_part || in_flight == 0;
        }
        let waits_for_reads = entry.request.is_fenced && requester.reads > 0;
        let has_too_many = is_read && requester.reads >= self.attributes.reads_out;
        if waits_for_reads || has_too_many || state == QpState::SendQueueDrain {
            return false;
        }
        if let SendData::Pieces(pieces) = &entry.request.data {
            let access = if is_read { Access::LOCAL_WRITE } else { Access::empty() };
            if let Err(refused) = resources.memory.check_pieces(self.config.pd, pieces, access) {
                self.refuse_next(refused, resources);
                return false;
            }
        }
        let first = requester.psn;
        let entry = &mut requester.queue[next];
        let count = match entry.request.kind {
            SendKind::Atomic(..) => 1,
            _ => packets(entry.length, self.attributes.mtu),
        };
        entry.first = first;
        entry.last = first.plus(count - 1);
        entry.is_begun = true;
        requester.reads += u8::from(is_read);
        true
    }

    /// The next request cannot be executed on this side.
    fn refuse_next(&mut self, refused: Refused, resources: &mut Resources) {
        let next = self.requester.next;
        self.requester.queue[next].failed = Some(refused.into());
        self.report_failed_front(resources);
    }

    fn report_failed_front(&mut self, resources: &mut Resources) {
        if let Some(status) = self.requester.queue.front().and_then(|entry| entry.failed) {
            self.fail_front(status, resources);
        }
    }

    /// Ends the oldest request with a failure, and the queue pair with it.
    fn fail_front(&mut self, status: Status, resources: &mut Resources) {
        if !self.requester.queue.is_empty() {
            self.end_front(status, resources);
        }
        self.fail(resources);
    }

    /// Takes the oldest request out of the queue, and reports how it ended.
    fn end_front(&mut self, status: Status, resources: &mut Resources) {
        let requester = &mut self.requester;
        let Some(entry) = requester.queue.pop_front() else { return };
        requester.next = requester.next.saturating_sub(1);
        if entry.is_begun && entry.request.kind.is_read() {
            requester.reads -= 1;
        }
        if entry.request.is_signaled || self.config.signals_all || status != Status::Success {
            self.report_send(resources, &entry.request, status, entry.length as u32);
        }
    }

    pub(super) fn report_send(
        &self,
        resources: &mut Resources,
        request: &SendRequest,
        status: Status,
        length: u32,
    ) {
        let mut completion = Completion::new(self.number, request.wr_id, status, request.kind.opcode());
        completion.length = length;
        resources.complete(self.config.send_cq, completion, false);
    }

    /// Ends all requests as never executed.
    pub(super) fn flush_sends(&mut self, resources: &mut Resources) {
        while !self.requester.queue.is_empty() {
            self.end_front(Status::Flushed, resources);
        }
        self.requester = Requester::default();
    }

    /// When an answer to what is sent now is missed: after the time that was agreed, and after up to four times as long when it was
    /// missed before, as the specification permits (9.7.6.1.3). A peer may have no processor for long, and what is sent again
    /// meanwhile is of no use.
    fn answer_missed(&self, now: Nanos) -> Option<Nanos> {
        let timeout = self.attributes.timeout;
        let missed = self.attributes.retry_count.saturating_sub(self.requester.retries);
        (timeout != 0).then(|| now + (4096_u64 << timeout << missed.min(2)))
    }

    /// An answer of the peer that is not data.
    pub fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome, resources: &mut Resources, now: Nanos) {
        let requester = &self.requester;
        let is_known = psn.since(requester.unacked) >= 0 && psn.since(requester.sent) < 0;
        if !is_known || !matches!(self.state(), QpState::ReadyToSend | QpState::SendQueueDrain) {
            return;
        }
        match syndrome {
            Syndrome::Ack => {
                let has_gap = self.progress_to(psn.plus(1), resources, now);
                self.notice_gap(has_gap, resources, now);
            }
            Syndrome::ReceiverNotReady(code) => {
                self.progress_to(psn, resources, now);
                self.pause(code, resources, now);
            }
            Syndrome::Nak(Nak::Sequence) => {
                self.progress_to(psn, resources, now);
                // Responders as rdma_rxe's also refuse what was sent behind a packet that found no buffer: all of it is going to be
                // sent again as it is.
                if self.requester.pause.is_none() {
                    self.retry(resources, now);
                }
            }
            Syndrome::Nak(nak) => {
                let has_gap = self.progress_to(psn, resources, now);
                let is_front = self
                    .requester
                    .queue
                    .front()
                    .is_some_and(|entry| psn.since(entry.first) >= 0 && entry.last.since(psn) >= 0);
                if !is_front {
                    self.notice_gap(has_gap, resources, now);
                    return;
                }
                let status = match nak {
                    Nak::RemoteAccess => Status::RemoteAccess,
                    Nak::RemoteOperation => Status::RemoteOperation,
                    Nak::InvalidRequest | Nak::Sequence => Status::RemoteInvalidRequest,
                };
                self.fail_front(status, resources);
            }
        }
        self.tell_drained(resources);
    }

    /// Data of a read.
    pub fn read_answered(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        resources: &mut Resources,
        now: Nanos,
    ) {
        let Some(()) = self.come_to_answer(headers.psn, resources, now) else { return };
        let mtu = self.attributes.mtu as usize;
        let entry = &self.requester.queue[0];
        let offset = u64::from(entry.answered) * mtu as u64;
        let SendData::Pieces(pieces) = &entry.request.data else { return };
        let is_last = headers.psn == entry.last;
        let expected = if is_last { (entry.length - offset) as usize } else { mtu };
        let is_read = matches!(entry.request.kind, SendKind::Read(_));
        if !is_read || is_refusal(headers) || payload.len() != expected || is_last && !headers.part.is_last()
        {
            self.fail_front(Status::BadResponse, resources);
            return;
        }
        if let Err(refused) = resources.memory.scatter(self.config.pd, pieces, offset, payload) {
            self.fail_front(refused.into(), resources);
            return;
        }
        self.answer_arrived(is_last, resources, now);
    }

    /// The value that an atomic operation found.
    pub fn atomic_answered(&mut self, headers: &Headers, value: u64, resources: &mut Resources, now: Nanos) {
        let Some(()) = self.come_to_answer(headers.psn, resources, now) else { return };
        let entry = &self.requester.queue[0];
        let SendData::Pieces(pieces) = &entry.request.data else { return };
        if !matches!(entry.request.kind, SendKind::Atomic(..)) || is_refusal(headers) {
            self.fail_front(Status::BadResponse, resources);
            return;
        }
        if resources.memory.scatter(self.config.pd, pieces, 0, &value.to_ne_bytes()).is_err() {
            self.fail_front(Status::LocalProtection, resources);
            return;
        }
        self.answer_arrived(true, resources, now);
    }

    /// Ends what is older than the read or atomic that this answer is for. `None` if the answer is for none, is not the
    /// next, or came before.
    fn come_to_answer(&mut self, psn: Psn, resources: &mut Resources, now: Nanos) -> Option<()> {
        let requester = &self.requester;
        if psn.since(requester.unacked) < 0
            || psn.since(requester.sent) >= 0
            || !matches!(self.state(), QpState::ReadyToSend | QpState::SendQueueDrain)
        {
            return None;
        }
        let older =
            requester.queue.iter().take_while(|entry| entry.is_begun && entry.last.since(psn) < 0).count();
        let is_for_a_read = requester.queue.get(older).is_some_and(|entry| {
            entry.is_begun && psn.since(entry.first) >= 0 && entry.request.kind.is_read()
        });
        if !is_for_a_read {
            return None;
        }
        let first = self.requester.queue[older].first;
        if self.progress_to(first, resources, now) {
            self.notice_gap(true, resources, now);
            return None;
        }
        let entry = self.requester.queue.front()?;
        match psn.since(entry.resume()) {
            0 => Some(()),
            1.. => {
                self.notice_gap(true, resources, now);
                None
            }
            _ => None,
        }
    }

    /// One more packet of the oldest request's answer is there.
    fn answer_arrived(&mut self, is_last: bool, resources: &mut Resources, now: Nanos) {
        let entry = &mut self.requester.queue[0];
        entry.answered += 1;
        let unacked = entry.resume();
        if is_last {
            self.end_front(Status::Success, resources);
        }
        self.advance(unacked, now);
        self.report_failed_front(resources);
        self.tell_drained(resources);
    }

    /// Ends what has no packet at or behind `before`. Whether a read or atomic is among it whose answer is missing, where
    /// it stops.
    fn progress_to(&mut self, before: Psn, resources: &mut Resources, now: Nanos) -> bool {
        let mut reached = before;
        let mut has_gap = false;
        while let Some(entry) = self.requester.queue.front() {
            if !entry.is_begun || before.since(entry.first) <= 0 {
                break;
            }
            if entry.request.kind.is_read() {
                reached = entry.resume();
                has_gap = true;
                break;
            }
            if before.since(entry.last) <= 0 {
                break;
            }
            self.end_front(Status::Success, resources);
        }
        if reached.since(self.requester.unacked) > 0 {
            self.advance(reached, now);
        }
        self.report_failed_front(resources);
        has_gap
    }

    /// Everything before `unacked` is answered.
    fn advance(&mut self, unacked: Psn, now: Nanos) {
        self.requester.retries = self.attributes.retry_count;
        self.requester.rnr_retries = self.attributes.rnr_retry;
        let deadline = self.answer_missed(now);
        let requester = &mut self.requester;
        requester.unacked = unacked;
        requester.has_noticed_gap = false;
        if unacked.since(requester.psn) > 0 {
            // What is being sent again has arrived the first time.
            requester.go_to(unacked);
        }
        requester.deadline = if unacked == requester.sent { None } else { deadline };
    }

    /// A later answer says that one of a read or atomic is lost: asks for it again, once until there is progress.
    fn notice_gap(&mut self, has_gap: bool, resources: &mut Resources, now: Nanos) {
        if has_gap && !self.requester.has_noticed_gap && self.state() != QpState::Error {
            self.retry(resources, now);
            self.requester.has_noticed_gap = true;
        }
    }

    /// Sends again from the oldest packet without an answer on, or fails if that was done too often.
    fn retry(&mut self, resources: &mut Resources, now: Nanos) {
        let is_endless = resources.config.personality == Personality::Rxe && self.attributes.retry_count == 7;
        if self.state() == QpState::Error || self.requester.queue.is_empty() {
            return;
        }
        if self.requester.retries == 0 && !is_endless {
            self.fail_front(Status::RetryExceeded, resources);
            return;
        }
        self.requester.retries = self.requester.retries.saturating_sub(1);
        let deadline = self.answer_missed(now);
        let requester = &mut self.requester;
        requester.go_to(requester.unacked);
        requester.deadline = deadline;
    }

    /// The peer has no receive buffer: waits as long as it says.
    fn pause(&mut self, code: u8, resources: &mut Resources, now: Nanos) {
        if self.state() == QpState::Error || self.requester.queue.is_empty() {
            return;
        }
        if self.requester.rnr_retries == 0 {
            self.fail_front(Status::RnrRetryExceeded, resources);
            return;
        }
        let requester = &mut self.requester;
        if self.attributes.rnr_retry != 7 {
            requester.rnr_retries -= 1;
        }
        // The peer is there, and says itself how often it may be asked.
        requester.retries = self.attributes.retry_count;
        requester.go_to(requester.unacked);
        requester.deadline = None;
        requester.pause = Some(now + RNR_DELAYS[usize::from(code & 31)] * 1000);
    }

    /// Does what is due at this time.
    pub fn expire(&mut self, resources: &mut Resources, now: Nanos) {
        if self.requester.pause.is_some_and(|until| until <= now) {
            self.requester.pause = None;
        }
        if self.requester.deadline.is_some_and(|deadline| deadline <= now) {
            self.requester.deadline = None;
            self.retry(resources, now);
        }
    }

    /// The end of draining is told once, if that was asked for.
    pub(super) fn tell_drained(&mut self, resources: &mut Resources) {
        if self.state() == QpState::SendQueueDrain
            && self.attributes.tells_drained
            && self.requester.is_drained()
        {
            self.attributes.tells_drained = false;
            resources.events.push_back(Event::SendQueueDrained(self.number));
        }
    }

    /// Takes the next datagram request, with the status that it ends with if that is decided.
    pub(super) fn next_datagram(&mut self) -> Option<(SendRequest, Option<Status>)> {
        self.requester.queue.pop_front().map(|entry| (entry.request, entry.failed))
    }
}

/// Whether an answer with data says that there is none, which it may not.
fn is_refusal(headers: &Headers) -> bool {
    headers.aeth.is_some_and(|aeth| aeth.syndrome != Syndrome::Ack)
}
