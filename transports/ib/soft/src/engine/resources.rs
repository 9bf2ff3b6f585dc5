//! What the queue pairs of a device share: memory, completion queues, shared receive queues, and what leaves the device.
//!
//! For queue pairs, which get it for each call.

use std::collections::VecDeque;
use std::net::IpAddr;

use slab::Slab;

use super::completion::{Completion, CompletionQueue, Pushed, Status};
use super::events::Event;
use super::faults::{Faults, Incident};
use super::memory::Memory;
use super::receive::{ReceiveRequest, SharedQueue};
use super::{CqId, SrqId};

/// Whose habits a device has where the specification leaves room, or is broken in practice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Personality {
    /// Those of the specification.
    #[default]
    Specification,
    /// Those of the kernel's rdma_rxe: a retry count of 7 is for ever.
    Rxe,
}

/// What a device is told when it is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses of its port, in the order of its table of GIDs.
    pub addresses: Vec<IpAddr>,
    /// The largest payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu: u32,
    /// Its habits.
    pub personality: Personality,
    /// The first number of a queue pair, 24 bits; later ones follow.
    pub first_qp: u32,
    /// How many lower bits of the numbers it may vary, 8 to 24; the others stay those of the first.
    pub qp_bits: u32,
}

/// A packet that leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The address that it leaves from.
    pub source: IpAddr,
    /// The address that it goes to.
    pub destination: IpAddr,
    /// Headers, payload and padding, without the ICRC.
    pub bytes: Vec<u8>,
}

/// What queue pairs share.
pub(super) struct Resources {
    pub config: Config,
    pub memory: Memory,
    pub cqs: Slab<CompletionQueue>,
    pub srqs: Slab<SharedQueue>,
    /// Queues with an announcement that was not taken yet.
    pub announced: VecDeque<CqId>,
    pub events: VecDeque<Event>,
    pub out: VecDeque<Outgoing>,
    /// What goes wrong by plan, if anything does.
    pub faults: Option<Box<Faults>>,
    /// What has happened and has to be acted upon; with the queue pair that was in use.
    pub incidents: VecDeque<(Incident, Option<u32>)>,
    /// Completion queues that have failed, and whose queue pairs have not yet.
    pub overrun: Vec<CqId>,
    /// Whether the port carries traffic.
    pub is_up: bool,
    /// Whether the device has failed.
    pub is_failed: bool,
}

impl Resources {
    pub fn new(config: Config) -> Resources {
        Resources {
            config,
            memory: Memory::default(),
            cqs: Slab::new(),
            srqs: Slab::new(),
            announced: VecDeque::new(),
            events: VecDeque::new(),
            out: VecDeque::new(),
            faults: None,
            incidents: VecDeque::new(),
            overrun: Vec::new(),
            is_up: true,
            is_failed: false,
        }
    }

    /// Reports a completion to a queue.
    pub fn complete(&mut self, cq: CqId, completion: Completion, is_solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq.0).filter(|_| !self.is_failed) else { return };
        match queue.push(completion, is_solicited) {
            Pushed::Silent | Pushed::Lost => {}
            Pushed::Announced => self.announced.push_back(cq),
            Pushed::Overrun => self.report_overrun(cq),
        }
    }

    fn report_overrun(&mut self, cq: CqId) {
        self.events.push_back(Event::CqError(cq));
        self.overrun.push(cq);
    }

    /// A queue fails as for lack of room.
    pub fn overrun(&mut self, cq: CqId) {
        if self.cqs.get_mut(cq.0).is_some_and(CompletionQueue::overrun) {
            self.report_overrun(cq);
        }
    }

    /// A send request of this queue pair is posted: the status that it ends with, if that is decided.
    pub fn next_send(&mut self, qp: u32) -> Option<Status> {
        let (status, incidents) = self.faults.as_mut()?.next_send();
        self.incidents.extend(incidents.into_iter().map(|incident| (incident, Some(qp))));
        status
    }

    /// A message takes a receive request: the status that it ends with, if that is decided.
    pub fn next_receive(&mut self) -> Option<Status> {
        self.faults.as_mut()?.next_receive()
    }

    /// Takes a receive request from a shared queue.
    pub fn take_shared(&mut self, srq: SrqId) -> Option<ReceiveRequest> {
        let (request, is_below) = self.srqs.get_mut(srq.0)?.pop();
        if is_below {
            self.events.push_back(Event::SrqLimitReached(srq));
        }
        request
    }

    /// The address of this index of the port's table.
    pub fn address(&self, index: u8) -> Option<IpAddr> {
        self.config.addresses.get(usize::from(index)).copied()
    }
}
