//! The device: its objects, and the packets that come in and go out.
//!
//! For links, which drive it, and for `abi`, which applications call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use slab::Slab;

use super::completion::{Completion, CompletionQueue};
use super::events::Event;
use super::faults::{FaultPlan, Faults, Incident, Verb};
use super::memory::Access;
use super::qp::{Attributes, Mask, PostRefused, Qp, QpConfig, QpKind, QpState, Refused, SendRequest};
use super::receive::{ReceiveRequest, SharedQueue};
use super::resources::{Config, Outgoing, Resources};
use super::wire::{DEFAULT_PKEY, Headers, Kind};
use super::{CqId, Nanos, PdId, SrqId};

/// Packets of one queue pair before the next has its turn.
const TURN: usize = 32;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Where it comes from.
    pub source: IpAddr,
    /// The address that it came to.
    pub destination: IpAddr,
    /// Headers, payload and padding, without the ICRC, which has been checked.
    pub bytes: &'a [u8],
}

/// Why an object is not made, changed or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such object.
    #[error("no such object")]
    NotFound,
    /// Others use it.
    #[error("others use it")]
    InUse,
    /// An argument is out of range, or does not go with the state.
    #[error("invalid")]
    Invalid,
    /// There is no room.
    #[error("no room")]
    Full,
    /// The device or the object has failed.
    #[error("it has failed")]
    Failed,
    /// It was planned so, with this error number.
    #[error("refused by plan, with error number {0}")]
    Planned(i32),
}

impl From<PostRefused> for Refusal {
    fn from(refused: PostRefused) -> Refusal {
        match refused {
            PostRefused::Full => Refusal::Full,
            PostRefused::State | PostRefused::Size => Refusal::Invalid,
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        ucs::log::debug!(?refused, "a queue pair is not modified");
        Refusal::Invalid
    }
}

/// A verbs device.
pub struct Device {
    resources: Resources,
    pds: Slab<usize>,
    qps: BTreeMap<u32, Qp>,
    next_qp: u32,
    /// Queue pairs that may have packets to send.
    ready: VecDeque<u32>,
    /// Deadlines, one of each queue pair that has one; one that has moved to later is found out when it comes.
    timers: Timers,
}

type Timers = BTreeSet<(Nanos, u32)>;

impl Device {
    /// A device without objects.
    pub fn new(config: Config) -> Device {
        // 0 and 1 are those of subnet management.
        let next_qp = (config.first_qp & 0x00ff_ffff).max(2);
        Device {
            resources: Resources::new(config),
            pds: Slab::new(),
            qps: BTreeMap::new(),
            next_qp,
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Has this go wrong from now on. What was planned before is forgotten.
    pub fn plan(&mut self, plan: FaultPlan) {
        self.resources.faults = (!plan.is_empty()).then(|| Box::new(Faults::new(plan)));
    }

    /// Whether a call may begin. Calls that post or modify ask by themselves; those that make something have to be asked for.
    ///
    /// # Errors
    /// [`Refusal::Failed`]: the device has failed. [`Refusal::Planned`].
    pub fn admit(&mut self, verb: Verb) -> Result<(), Refusal> {
        if self.resources.is_failed {
            return Err(Refusal::Failed);
        }
        self.check_plan(verb)
    }

    /// As [`Device::admit`], for a call that a device that has failed takes as well.
    ///
    /// # Errors
    /// [`Refusal::Planned`].
    pub fn check_plan(&mut self, verb: Verb) -> Result<(), Refusal> {
        let refused = self.resources.faults.as_mut().and_then(|faults| faults.refuse(verb));
        refused.map_or(Ok(()), |errno| Err(Refusal::Planned(errno)))
    }

    /// Whether the port carries traffic.
    pub fn is_up(&self) -> bool {
        self.resources.is_up
    }

    /// What it was made of.
    pub fn config(&self) -> &Config {
        &self.resources.config
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        PdId(self.pds.insert(0))
    }

    /// Ends a protection domain that nothing uses.
    ///
    /// # Errors
    /// [`Refusal::InUse`], [`Refusal::NotFound`].
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), Refusal> {
        let users = self.pds.get(pd.0).ok_or(Refusal::NotFound)?;
        if *users > 0 || self.resources.memory.is_used(pd) {
            return Err(Refusal::InUse);
        }
        self.pds.remove(pd.0);
        Ok(())
    }

    /// Registers memory; returns its key, which is the local and the remote one.
    ///
    /// # Safety
    /// The memory stays valid for what `access` permits until it is deregistered, and other threads access it meanwhile only as
    /// with a device that reads and writes it on its own.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such domain. [`Refusal::Invalid`]: the range wraps around, or a peer may write where the
    /// device may not.
    pub unsafe fn register(
        &mut self,
        pd: PdId,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<u32, Refusal> {
        self.pds.get(pd.0).ok_or(Refusal::NotFound)?;
        let writes_for_peers = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let needs_local = writes_for_peers && !access.contains(Access::LOCAL_WRITE);
        if address.checked_add(length).is_none() || needs_local {
            return Err(Refusal::Invalid);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { self.resources.memory.register(pd, address, length, access) })
    }

    /// Ends a registration: no access happens behind this call.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn deregister(&mut self, key: u32) -> Result<(), Refusal> {
        if self.resources.memory.deregister(key) { Ok(()) } else { Err(Refusal::NotFound) }
    }

    /// How many regions are registered.
    pub fn regions(&self) -> usize {
        self.resources.memory.len()
    }

    /// Makes a completion queue for so many completions.
    pub fn create_cq(&mut self, capacity: usize) -> CqId {
        CqId(self.resources.cqs.insert(CompletionQueue::new(capacity)))
    }

    /// Ends a completion queue that nothing uses.
    ///
    /// # Errors
    /// [`Refusal::InUse`], [`Refusal::NotFound`].
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), Refusal> {
        let queue = self.resources.cqs.get(cq.0).ok_or(Refusal::NotFound)?;
        if queue.users > 0 {
            return Err(Refusal::InUse);
        }
        self.resources.cqs.remove(cq.0);
        self.resources.announced.retain(|announced| *announced != cq);
        self.resources.events.retain(|event| *event != Event::CqError(cq));
        Ok(())
    }

    /// Takes the oldest completion.
    pub fn poll_cq(&mut self, cq: CqId) -> Option<Completion> {
        self.resources.cqs.get_mut(cq.0)?.poll()
    }

    /// Whether a queue has failed for lack of room.
    pub fn is_overrun(&self, cq: CqId) -> bool {
        self.resources.cqs.get(cq.0).is_some_and(CompletionQueue::is_overrun)
    }

    /// Asks for an announcement of the next completion, or the next solicited one.
    pub fn arm_cq(&mut self, cq: CqId, only_solicited: bool) {
        if let Some(queue) = self.resources.cqs.get_mut(cq.0) {
            queue.arm(only_solicited);
        }
    }

    /// Takes a queue that has an announcement.
    pub fn next_announced(&mut self) -> Option<CqId> {
        self.resources.announced.pop_front()
    }

    /// Takes an asynchronous event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.resources.events.pop_front()
    }

    /// Makes a shared receive queue for so many requests.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such domain.
    pub fn create_srq(&mut self, pd: PdId, capacity: usize) -> Result<SrqId, Refusal> {
        *self.pds.get_mut(pd.0).ok_or(Refusal::NotFound)? += 1;
        Ok(SrqId(self.resources.srqs.insert(SharedQueue::new(pd, capacity))))
    }

    /// Arms the event for a number of requests below this one; 0 disarms it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]; [`Refusal::Invalid`]: above the capacity.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: usize) -> Result<(), Refusal> {
        let queue = self.resources.srqs.get_mut(srq.0).ok_or(Refusal::NotFound)?;
        if queue.set_limit(limit) { Ok(()) } else { Err(Refusal::Invalid) }
    }

    /// Capacity and armed limit of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Option<(usize, usize)> {
        self.resources.srqs.get(srq.0).map(|queue| (queue.capacity(), queue.limit()))
    }

    /// Adds a receive request to a shared queue.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::NotFound`].
    pub fn post_srq_receive(&mut self, srq: SrqId, request: ReceiveRequest) -> Result<(), Refusal> {
        self.admit(Verb::PostSharedReceive)?;
        let queue = self.resources.srqs.get_mut(srq.0).ok_or(Refusal::NotFound)?;
        if queue.is_failed {
            return Err(Refusal::Failed);
        }
        if queue.push(request) { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Ends a shared receive queue that nothing uses.
    ///
    /// # Errors
    /// [`Refusal::InUse`], [`Refusal::NotFound`].
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), Refusal> {
        let queue = self.resources.srqs.get(srq.0).ok_or(Refusal::NotFound)?;
        if queue.users > 0 {
            return Err(Refusal::InUse);
        }
        let queue = self.resources.srqs.remove(srq.0);
        self.pds[queue.pd.0] -= 1;
        self.resources
            .events
            .retain(|event| !matches!(event, Event::SrqLimitReached(id) | Event::SrqError(id) if *id == srq));
        Ok(())
    }

    /// Makes a queue pair; returns its number.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such domain or queue. [`Refusal::Full`]: all 2^24 numbers are in use.
    pub fn create_qp(&mut self, config: QpConfig) -> Result<u32, Refusal> {
        let has_queues =
            [config.send_cq, config.receive_cq].iter().all(|cq| self.resources.cqs.contains(cq.0));
        let has_srq = config.srq.is_none_or(|srq| self.resources.srqs.contains(srq.0));
        if !has_queues || !has_srq || !self.pds.contains(config.pd.0) {
            return Err(Refusal::NotFound);
        }
        let bits = self.resources.config.qp_bits;
        // Not all of them, so that a number rests before it is used again.
        if self.qps.len() >= 1 << (bits.min(21) - 1) {
            return Err(Refusal::Full);
        }
        while self.qps.contains_key(&self.next_qp) {
            self.next_qp = next_number(self.next_qp, bits);
        }
        let number = self.next_qp;
        self.next_qp = next_number(number, bits);
        self.count_users(&config, 1);
        self.qps.insert(number, Qp::new(number, config));
        Ok(number)
    }

    fn count_users(&mut self, config: &QpConfig, change: isize) {
        let add = |users: &mut usize| *users = users.saturating_add_signed(change);
        if let Some(users) = self.pds.get_mut(config.pd.0) {
            add(users);
        }
        for cq in [config.send_cq, config.receive_cq] {
            if let Some(queue) = self.resources.cqs.get_mut(cq.0) {
                add(&mut queue.users);
            }
        }
        if let Some(queue) = config.srq.and_then(|srq| self.resources.srqs.get_mut(srq.0)) {
            add(&mut queue.users);
        }
    }

    /// Changes attributes of a queue pair, all of them or none.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]; [`Refusal::Invalid`]: no such transition, an attribute that it needs is missing, one that it
    /// does not take is there, a value is out of range.
    pub fn modify_qp(&mut self, qp: u32, attributes: &Attributes, mask: Mask) -> Result<(), Refusal> {
        // What ends a queue pair goes through even if the device has failed.
        let is_end =
            mask.contains(Mask::STATE) && matches!(attributes.state, QpState::Reset | QpState::Error);
        if !(is_end && self.resources.is_failed) {
            self.admit(Verb::ModifyQp)?;
        }
        self.with(qp, |qp, resources| qp.modify(attributes, mask, resources)).ok_or(Refusal::NotFound)??;
        Ok(())
    }

    /// Attributes and parts of a queue pair.
    pub fn query_qp(&self, qp: u32) -> Option<(&Attributes, &QpConfig)> {
        self.qps.get(&qp).map(|qp| (&qp.attributes, &qp.config))
    }

    /// Ends a queue pair, and forgets its completions.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn destroy_qp(&mut self, qp: u32) -> Result<(), Refusal> {
        let removed = self.qps.remove(&qp).ok_or(Refusal::NotFound)?;
        self.count_users(&removed.config, -1);
        if let Some(timer) = removed.timer {
            self.timers.remove(&(timer, qp));
        }
        for cq in [removed.config.send_cq, removed.config.receive_cq] {
            if let Some(queue) = self.resources.cqs.get_mut(cq.0) {
                queue.forget(qp);
            }
        }
        self.resources.events.retain(|event| {
            !matches!(event,
                Event::QpFatal(number) | Event::QpRequestError(number) | Event::QpAccessError(number)
                | Event::CommunicationEstablished(number) | Event::SendQueueDrained(number)
                | Event::LastReceiveReached(number) if *number == qp)
        });
        Ok(())
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::Full`]; [`Refusal::Invalid`]: the state does not permit it, or it is too large.
    pub fn post_send(&mut self, qp: u32, request: SendRequest) -> Result<(), Refusal> {
        self.admit(Verb::PostSend)?;
        self.with(qp, |qp, resources| qp.post_send(request, resources)).ok_or(Refusal::NotFound)??;
        Ok(())
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// As [`Device::post_send`].
    pub fn post_receive(&mut self, qp: u32, request: ReceiveRequest) -> Result<(), Refusal> {
        self.admit(Verb::PostReceive)?;
        self.with(qp, |qp, resources| qp.post_receive(request, resources)).ok_or(Refusal::NotFound)??;
        Ok(())
    }

    /// Takes a packet that arrived, or drops it where the specification has it dropped.
    pub fn receive(&mut self, packet: Incoming<'_>, now: Nanos) {
        if !self.resources.is_up {
            return;
        }
        let Ok((headers, payload)) = Headers::decode(packet.bytes) else { return };
        if headers.pkey != DEFAULT_PKEY || payload.len() > self.resources.config.mtu as usize {
            return;
        }
        self.with(headers.destination_qp, |qp, resources| {
            if (headers.kind == Kind::Datagram) != (qp.config.kind == QpKind::Ud) {
                return;
            }
            match headers.kind {
                Kind::Datagram => qp.receive_datagram(&headers, payload, &packet, resources),
                _ if packet.source != qp.attributes.path.destination => {}
                Kind::Acknowledge => {
                    if let Some(aeth) = headers.aeth {
                        qp.acknowledge(headers.psn, aeth.syndrome, resources, now);
                    }
                }
                Kind::ReadResponse => qp.read_answered(&headers, payload, resources, now),
                Kind::AtomicAcknowledge => {
                    if let Some(value) = headers.original {
                        qp.atomic_answered(&headers, value, resources, now);
                    }
                }
                _ => qp.receive_request(&headers, payload, resources),
            }
        });
    }

    /// Does what is due, and puts about so many packets at most out for [`Device::next_outgoing`]. Whether more could leave now.
    pub fn run(&mut self, now: Nanos, budget: usize) -> bool {
        if let Some(faults) = &mut self.resources.faults {
            self.resources
                .incidents
                .extend(faults.take_due(now).into_iter().map(|incident| (incident, None)));
            self.settle();
        }
        if self.resources.is_failed {
            return false;
        }
        while let Some(&timer) = self.timers.first().filter(|timer| timer.0 <= now) {
            self.timers.remove(&timer);
            self.with(timer.1, |qp, resources| {
                qp.timer = None;
                if qp.deadline().is_some_and(|deadline| deadline <= now) {
                    qp.expire(resources, now);
                }
            });
        }
        let end = self.resources.out.len() + budget;
        while self.resources.out.len() < end {
            let Some(number) = self.ready.pop_front() else { return false };
            let Some(qp) = self.qps.get_mut(&number) else { continue };
            qp.is_listed = false;
            let turn = TURN.min(end - self.resources.out.len());
            if qp.transmit(&mut self.resources, now, turn) {
                qp.is_listed = true;
                self.ready.push_back(number);
            }
            note_deadline(qp, &mut self.timers);
            self.settle();
        }
        !self.ready.is_empty()
    }

    /// Takes a packet that leaves.
    pub fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.resources.out.pop_front()
    }

    /// When [`Device::run`] has something to do next, unless something arrives or is posted before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let planned = self.resources.faults.as_ref().and_then(|faults| faults.next_time());
        let timer = self.timers.first().map(|timer| timer.0).filter(|_| !self.resources.is_failed);
        planned.into_iter().chain(timer).min()
    }

    /// State of a queue pair.
    pub fn state(&self, qp: u32) -> Option<QpState> {
        self.qps.get(&qp).map(Qp::state)
    }

    /// Calls `change` with a queue pair, and notes what it has to do then.
    fn with<R>(&mut self, number: u32, change: impl FnOnce(&mut Qp, &mut Resources) -> R) -> Option<R> {
        let qp = self.qps.get_mut(&number)?;
        let result = change(qp, &mut self.resources);
        if !std::mem::replace(&mut qp.is_listed, true) {
            self.ready.push_back(number);
        }
        note_deadline(qp, &mut self.timers);
        self.settle();
        Some(result)
    }

    /// What follows from failed queues, and from what has happened by itself.
    fn settle(&mut self) {
        loop {
            if let Some(cq) = self.resources.overrun.pop() {
                self.fail_those(|config| config.send_cq == cq || config.receive_cq == cq);
            } else if let Some((incident, qp)) = self.resources.incidents.pop_front() {
                self.happen(incident, qp);
            } else {
                return;
            }
        }
    }

    /// Fails the queue pairs of this kind, with an event each.
    fn fail_those(&mut self, is_one: impl Fn(&QpConfig) -> bool) {
        for qp in self.qps.values_mut().filter(|qp| is_one(&qp.config)) {
            qp.kill(Event::QpFatal, &mut self.resources);
        }
    }

    /// Something happens by itself: to the queue pair that was in use and its queues, or to the first that there is.
    fn happen(&mut self, incident: Incident, in_use: Option<u32>) {
        ucs::log::info!(?incident, ?in_use, "softverbs: it happens by plan");
        let resources = &mut self.resources;
        let first = resources.config.first_qp;
        // Numbers are given one after the other, and begin again behind the last.
        let qp = match in_use {
            Some(number) => self.qps.get_mut(&number),
            None => self.qps.values_mut().min_by_key(|qp| qp.number.wrapping_sub(first)),
        };
        let cq = qp
            .as_ref()
            .map(|qp| qp.config.send_cq)
            .or_else(|| resources.cqs.iter().next().map(|(index, _)| super::CqId(index)));
        let srq = match qp.as_ref().and_then(|qp| qp.config.srq) {
            None => resources.srqs.iter().next().map(|(index, _)| SrqId(index)),
            own => own,
        };
        let number = qp.as_ref().map(|qp| qp.number);
        let event = match incident {
            Incident::KillQp => return qp.into_iter().for_each(|qp| qp.kill(Event::QpFatal, resources)),
            Incident::QpRequestError => {
                return qp.into_iter().for_each(|qp| qp.kill(Event::QpRequestError, resources));
            }
            Incident::QpAccessError => {
                return qp.into_iter().for_each(|qp| qp.kill(Event::QpAccessError, resources));
            }
            Incident::CommunicationEstablished => number.map(Event::CommunicationEstablished),
            Incident::SendQueueDrained => number.map(Event::SendQueueDrained),
            Incident::LastReceiveReached => number.map(Event::LastReceiveReached),
            Incident::CqOverrun => return cq.into_iter().for_each(|cq| resources.overrun(cq)),
            Incident::SrqError => {
                let Some(srq) = srq else { return };
                resources.srqs[srq.0].is_failed = true;
                resources.events.push_back(Event::SrqError(srq));
                return self.fail_those(|config| config.srq == Some(srq));
            }
            Incident::SrqLimitReached => srq.map(Event::SrqLimitReached),
            Incident::PortDown => std::mem::replace(&mut resources.is_up, false).then_some(Event::PortError),
            Incident::PortUp => {
                let is_news = !resources.is_failed && !std::mem::replace(&mut resources.is_up, true);
                is_news.then_some(Event::PortActive)
            }
            Incident::DeviceFatal => {
                (resources.is_failed, resources.is_up) = (true, false);
                Some(Event::DeviceFatal)
            }
            Incident::LidChange => Some(Event::LidChange),
            Incident::PkeyChange => Some(Event::PkeyChange),
            Incident::SubnetManagerChange => Some(Event::SubnetManagerChange),
            Incident::ClientReregister => Some(Event::ClientReregister),
            Incident::GidChange => Some(Event::GidChange),
        };
        resources.events.extend(event);
    }
}

/// Has a queue pair's deadline among the timers, unless an earlier one of it is there.
fn note_deadline(qp: &mut Qp, timers: &mut Timers) {
    if let Some(deadline) = qp.deadline()
        && qp.timer.is_none_or(|timer| deadline < timer)
    {
        if let Some(later) = qp.timer.replace(deadline) {
            timers.remove(&(later, qp.number));
        }
        timers.insert((deadline, qp.number));
    }
}

/// The number behind this one, among those with the same upper bits, and without the two of subnet management.
fn next_number(number: u32, bits: u32) -> u32 {
    let mask = (1 << bits.min(24)) - 1;
    let next = number & !mask | (number + 1) & mask;
    if next < 2 { 2 } else { next }
}
