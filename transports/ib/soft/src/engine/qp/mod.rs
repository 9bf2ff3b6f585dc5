//! A queue pair: its state, its attributes, its two queues.
//!
//! For `device`. `modify` has the transitions, `requester` and `responder` the two halves of a reliable connection,
//! `datagram` the unreliable kind.

mod datagram;
mod modify;
mod request;
mod requester;
mod responder;

use std::net::{IpAddr, Ipv4Addr};

use super::completion::{Completion, Opcode, Status};
use super::events::Event;
use super::memory::Access;
use super::psn::Psn;
use super::receive::{ReceiveQueue, ReceiveRequest};
use super::resources::{Outgoing, Resources};
use super::wire::{Extra, Headers};
use super::{CqId, Nanos, PdId, SrqId};

pub(super) use modify::Refused;
pub use modify::{MAX_READS, Mask};
pub use request::{SendData, SendKind, SendRequest, Target};
use requester::Requester;
use responder::Responder;

/// What a queue pair is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpKind {
    /// A reliable connection.
    Rc,
    /// Unreliable datagrams.
    Ud,
}

/// State of a queue pair. The numbers are those of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum QpState {
    /// It does nothing.
    Reset = 0,
    /// It takes receive requests.
    Init = 1,
    /// It receives.
    ReadyToReceive = 2,
    /// It sends too.
    ReadyToSend = 3,
    /// It ends what it has begun to send, and begins nothing.
    SendQueueDrain = 4,
    /// Its send queue failed; it receives.
    SendQueueError = 5,
    /// It failed.
    Error = 6,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capacity {
    /// Send requests.
    pub sends: usize,
    /// Receive requests; none with a shared queue.
    pub receives: usize,
    /// Pieces of a send request.
    pub send_pieces: usize,
    /// Pieces of a receive request.
    pub receive_pieces: usize,
    /// Bytes of inline data.
    pub inline: usize,
}

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The address of the peer's port.
    pub destination: IpAddr,
    /// Index of the own address in the port's table.
    pub source_index: u8,
}

/// What [`Device::modify_qp`](super::Device::modify_qp) sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The state.
    pub state: QpState,
    /// The state that the caller believes it is in, with [`Mask::CURRENT_STATE`]. Nothing else has a meaning.
    pub current_state: QpState,
    /// The port, which is 1.
    pub port: u8,
    /// Index of the partition, which is 0.
    pub pkey_index: u16,
    /// Key of datagrams.
    pub qkey: u32,
    /// What the peer may do.
    pub access: Access,
    /// The largest payload of a packet.
    pub mtu: u32,
    /// The peer's queue pair.
    pub destination_qp: u32,
    /// Number of the first packet that arrives.
    pub receive_psn: Psn,
    /// Number of the first packet that is sent.
    pub send_psn: Psn,
    /// Reads and atomics that this side has in flight at once.
    pub reads_out: u8,
    /// Reads and atomics of the peer that are in flight at once.
    pub reads_in: u8,
    /// How long a peer waits that finds no receive buffer, as the verbs code it.
    pub min_rnr_timer: u8,
    /// How long an acknowledgement is waited for: 4.096 us times 2^timeout; 0 is for ever.
    pub timeout: u8,
    /// How often packets are sent again.
    pub retry_count: u8,
    /// How often packets are sent again to a peer without receive buffers; 7 is for ever.
    pub rnr_retry: u8,
    /// The way to the peer.
    pub path: Path,
    /// Whether the end of draining is an event.
    pub tells_drained: bool,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            state: QpState::Reset,
            current_state: QpState::Reset,
            port: 1,
            pkey_index: 0,
            qkey: 0,
            access: Access::empty(),
            mtu: 1024,
            destination_qp: 0,
            receive_psn: Psn::default(),
            send_psn: Psn::default(),
            reads_out: 0,
            reads_in: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            path: Path { destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED), source_index: 0 },
            tells_drained: false,
        }
    }
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// What it is for.
    pub kind: QpKind,
    /// The domain of its memory.
    pub pd: PdId,
    /// Where ends of sends are reported.
    pub send_cq: CqId,
    /// Where received messages are reported.
    pub receive_cq: CqId,
    /// The shared receive queue that it uses.
    pub srq: Option<SrqId>,
    /// Its sizes.
    pub capacity: Capacity,
    /// Whether every send request has a completion, asked for or not.
    pub signals_all: bool,
}

/// A queue pair.
pub(super) struct Qp {
    pub number: u32,
    pub config: QpConfig,
    pub attributes: Attributes,
    requester: Requester,
    responder: Responder,
    receives: ReceiveQueue,
    /// Whether the device has it in its list of those with work.
    pub is_listed: bool,
    /// Its time among the device's timers.
    pub timer: Option<Nanos>,
}

impl Qp {
    pub fn new(number: u32, config: QpConfig) -> Qp {
        Qp {
            number,
            config,
            attributes: Attributes::default(),
            requester: Requester::default(),
            responder: Responder::default(),
            receives: ReceiveQueue::new(config.capacity.receives),
            is_listed: false,
            timer: None,
        }
    }

    pub fn state(&self) -> QpState {
        self.attributes.state
    }

    fn receives_requests(&self) -> bool {
        matches!(
            self.state(),
            QpState::ReadyToReceive
                | QpState::ReadyToSend
                | QpState::SendQueueDrain
                | QpState::SendQueueError
        )
    }

    /// Adds a receive request, or says that it cannot.
    pub fn post_receive(
        &mut self,
        request: ReceiveRequest,
        resources: &mut Resources,
    ) -> Result<(), PostRefused> {
        if self.state() == QpState::Reset || self.config.srq.is_some() {
            return Err(PostRefused::State);
        }
        if request.pieces.len() > self.config.capacity.receive_pieces {
            return Err(PostRefused::Size);
        }
        let wr_id = request.wr_id;
        if self.state() == QpState::Error {
            self.report_receive(resources, wr_id, Status::Flushed);
            return Ok(());
        }
        if self.receives.push(request) { Ok(()) } else { Err(PostRefused::Full) }
    }

    /// Puts packets that are due into `resources.out`, at most about so many. Whether there are more that could leave now.
    pub fn transmit(&mut self, resources: &mut Resources, now: Nanos, budget: usize) -> bool {
        match self.config.kind {
            QpKind::Rc => {
                let before = resources.out.len();
                let has_more_replies = self.send_replies(resources, budget);
                let left = budget.saturating_sub(resources.out.len() - before);
                self.send_requests(resources, now, left) || has_more_replies
            }
            QpKind::Ud => self.send_datagrams(resources, budget),
        }
    }

    /// The time of the next call of [`Qp::expire`], if none of another kind comes before.
    pub fn deadline(&self) -> Option<Nanos> {
        self.requester.deadline()
    }

    fn send(&self, resources: &mut Resources, path: Path, bytes: Vec<u8>) {
        // An address that was taken away sends nothing, as a cable that is not there.
        if let Some(source) = resources.address(path.source_index).filter(|_| resources.is_up) {
            resources.out.push_back(Outgoing { source, destination: path.destination, bytes });
        }
    }

    /// Sends a packet of headers alone.
    fn send_headers(&self, resources: &mut Resources, headers: &Headers) {
        let bytes = headers.encode(0, |_| Ok::<(), std::convert::Infallible>(()));
        let bytes = bytes.unwrap_or_else(|never| match never {});
        self.send(resources, self.attributes.path, bytes);
    }

    fn take_receive(&mut self, resources: &mut Resources) -> Option<ReceiveRequest> {
        match self.config.srq {
            Some(srq) => resources.take_shared(srq),
            None => self.receives.pop(),
        }
    }

    /// The domain of the memory of receive requests: that of the shared queue, if there is one.
    fn receive_domain(&self, resources: &Resources) -> PdId {
        let shared = self.config.srq.and_then(|srq| resources.srqs.get(srq.0));
        shared.map_or(self.config.pd, |queue| queue.pd)
    }

    fn report_receive(&self, resources: &mut Resources, wr_id: u64, status: Status) {
        let completion = Completion::new(self.number, wr_id, status, Opcode::Receive);
        resources.complete(self.config.receive_cq, completion, false);
    }

    /// To the state of failure: what was posted completes as flushed.
    fn fail(&mut self, resources: &mut Resources) {
        if matches!(self.state(), QpState::Error | QpState::Reset) {
            return;
        }
        self.attributes.state = QpState::Error;
        self.flush_sends(resources);
        if let Some(request) = self.responder.abandon() {
            self.report_receive(resources, request.wr_id, Status::Flushed);
        }
        while let Some(request) = self.receives.pop() {
            self.report_receive(resources, request.wr_id, Status::Flushed);
        }
        if self.config.srq.is_some() {
            resources.events.push_back(Event::LastReceiveReached(self.number));
        }
    }

    /// To the state of failure by itself, which this event reports: it answers nothing any more.
    pub fn kill(&mut self, event: fn(u32) -> Event, resources: &mut Resources) {
        if !matches!(self.state(), QpState::Error | QpState::Reset) {
            resources.events.push_back(event(self.number));
            self.fail(resources);
            self.responder = Responder::default();
        }
    }

    /// To the state that does nothing: what was posted is forgotten.
    fn reset(&mut self, resources: &mut Resources) {
        self.attributes = Attributes::default();
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.receives = ReceiveQueue::new(self.config.capacity.receives);
        for cq in [self.config.send_cq, self.config.receive_cq] {
            if let Some(queue) = resources.cqs.get_mut(cq.0) {
                queue.forget(self.number);
            }
        }
    }
}

/// Why a request is not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostRefused {
    /// The queue is full.
    Full,
    /// The state or the kind of the queue pair does not permit it.
    State,
    /// Too many pieces, too many bytes.
    Size,
}

/// What comes with the last packet of a message.
fn extra_if(is_last: bool, extra: Extra) -> Extra {
    if is_last { extra } else { Extra::None }
}
