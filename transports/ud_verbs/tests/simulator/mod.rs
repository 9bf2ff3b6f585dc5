//! A network of interfaces in one thread, with its own clock, that goes wrong as a seed says.
//!
//! Built on the protocol's public interface; used by the tests beside it.
#![allow(dead_code, reason = "every test file uses a part")]

#[path = "../../../../ucs/testing/property.rs"]
pub mod property;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

pub use property::seed::given;
use uct_ud_verbs::testing::header::kind;
use uct_ud_verbs::testing::{
    Body, ConnectionId, Event, Failure, Handles, Header, Origin, Phase, Ready, Received, Settings, Table,
    Time,
};

pub const MICROSECOND: u64 = 1_000;
pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A small generator of numbers (SplitMix64): the same seed, the same run.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// The seeds of a test's runs: the one that is given, or the first `count`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    given().map_or(0..count, |seed| seed..seed.saturating_add(1))
}

/// What the network does to datagrams; chances are per mille.
#[derive(Clone, Debug)]
pub struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    /// Chance that a datagram takes `detour` longer.
    pub reorder: u64,
    pub detour: u64,
    pub delay: u64,
    pub jitter: u64,
    /// Time that each datagram to a node takes, one after the other; and how many may wait for it.
    pub service: u64,
    pub queue: u64,
    /// Chance that bytes of nobody's making arrive as well: parts of real datagrams, damaged.
    pub garbage: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            loss: 0,
            duplicate: 0,
            reorder: 0,
            detour: 500 * MICROSECOND,
            delay: 20 * MICROSECOND,
            jitter: 0,
            service: 0,
            queue: u64::MAX,
            garbage: 0,
        }
    }
}

pub struct Simulated;

impl Handles for Simulated {
    type Send = Vec<u8>;
    type Receive = Vec<u8>;
    type Path = usize;

    fn origin(address: &[u8]) -> Option<Origin> {
        node_of(address).map(origin)
    }
}

/// The node of an address.
pub fn node_of(address: &[u8]) -> Option<usize> {
    address.try_into().ok().map(|bytes| u64::from_le_bytes(bytes) as usize)
}

/// Where datagrams of a node come from.
pub fn origin(node: usize) -> Origin {
    Origin { port: (node as u128 + 1).to_le_bytes(), qp: 7 }
}

/// Endpoint `serial` of node `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId {
    pub node: usize,
    pub serial: usize,
}

pub struct Endpoint {
    pub id: ConnectionId,
    /// Messages that the user has yet to send.
    pub to_send: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub abandoned: u64,
    pub is_closed: bool,
    /// To be closed when all has been sent.
    pub close_after: bool,
    pub failures: Vec<(Time, Failure)>,
    pub connected: u32,
}

pub struct Node {
    pub table: Table<Simulated>,
    pub endpoints: Vec<Endpoint>,
    /// Messages that arrived, by the endpoint that sent them.
    pub delivered: HashMap<EndpointId, u64>,
    /// The last message, whose acknowledgement was put off so that the node's own messages go first.
    late: Option<Header>,
    /// Every other message may be received on the short way.
    is_short: bool,
    /// It neither sends nor receives, nor does anything else.
    pub is_dead: bool,
    pub owner: HashMap<ConnectionId, usize>,
    /// Damaged bytes may pass for datagrams: what is delivered is not looked at.
    pub is_lenient: bool,
    /// What this node sends is not looked at either.
    pub doubts: Option<usize>,
    /// Messages that arrived, in all.
    pub received: u64,
    /// Connections of which something may be fetched, and on which something may be sent.
    touched: Vec<ConnectionId>,
    /// That may be any of its connections.
    is_unknown: bool,
    /// It has something to do at once.
    is_busy: bool,
    /// When the network looks after it next.
    timeout: Time,
}

impl Node {
    fn touch(&mut self, id: Option<ConnectionId>) {
        self.touched.extend(id);
    }
}

type Filter = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

/// A datagram in flight: when it arrives, a number that makes the order unique, to whom, from where, and its bytes.
type OnWire = Reverse<(Time, u64, usize, usize, Vec<u8>)>;

pub struct Network {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    pub random: Random,
    /// Sees every datagram (from, to, bytes), may change it, and answers whether it goes on.
    pub filter: Option<Filter>,
    /// No datagram passes.
    pub is_down: bool,
    pub datagrams: u64,
    wire: BinaryHeap<OnWire>,
    count: u64,
    /// When each node's link has served what waits for it.
    busy_until: Vec<Time>,
    /// Nodes with something to do at once.
    busy: Vec<usize>,
    /// When nodes have something to do.
    timeouts: BinaryHeap<Reverse<(Time, usize)>>,
}

impl Network {
    pub fn new(nodes: usize, seed: u64, faults: Faults, settings: Settings) -> Network {
        let mut random = Random(seed);
        let busy_until = vec![Time::default(); nodes];
        let nodes = (0..nodes)
            .map(|node| {
                let settings = Settings { seed: random.next().into(), ..settings.clone() };
                let table = Table::new(settings, &(node as u64).to_le_bytes()).expect("settings in range");
                Node {
                    table,
                    endpoints: Vec::new(),
                    delivered: HashMap::new(),
                    late: None,
                    is_short: false,
                    is_dead: false,
                    owner: HashMap::new(),
                    is_lenient: faults.garbage != 0,
                    doubts: None,
                    received: 0,
                    touched: Vec::new(),
                    is_unknown: false,
                    is_busy: false,
                    timeout: Time::NEVER,
                }
            })
            .collect();
        Network {
            now: Time::from_nanos(SECOND),
            nodes,
            faults,
            random,
            filter: None,
            is_down: false,
            datagrams: 0,
            wire: BinaryHeap::new(),
            count: 0,
            busy_until,
            busy: Vec::new(),
            timeouts: BinaryHeap::new(),
        }
    }

    /// An endpoint of `from`, connected to the interface of `to`, that will send `messages`.
    pub fn connect(&mut self, from: usize, to: usize, messages: u64) -> EndpointId {
        let identity = self.nodes[to].table.identity();
        let now = self.now;
        let id = self.nodes[from]
            .table
            .connect(now, identity, origin(to), || Ok::<_, ()>(to))
            .expect("a connection");
        self.endpoint(from, id, messages)
    }

    /// Two endpoints connected to each other. The second learns its peer later, by [`Network::complete`].
    pub fn connect_endpoints(
        &mut self,
        left: usize,
        right: usize,
        messages: u64,
    ) -> (EndpointId, EndpointId) {
        let ids = [left, right].map(|node| self.nodes[node].table.create(self.now).expect("a connection"));
        let invitation = self.nodes[right].table.invitation(ids[1]);
        self.nodes[left]
            .table
            .connect_to(self.now, ids[0], invitation, origin(right), right)
            .expect("not connected before");
        (self.endpoint(left, ids[0], messages), self.endpoint(right, ids[1], messages))
    }

    pub fn complete(&mut self, (left, right): (EndpointId, EndpointId)) {
        let invitation = self.nodes[left.node].table.invitation(self.at(left).id);
        let id = self.at(right).id;
        self.nodes[right.node]
            .table
            .connect_to(self.now, id, invitation, origin(left.node), left.node)
            .expect("not connected before");
    }

    fn endpoint(&mut self, node: usize, id: ConnectionId, messages: u64) -> EndpointId {
        let endpoints = &mut self.nodes[node].endpoints;
        endpoints.push(Endpoint {
            id,
            to_send: messages,
            sent: 0,
            acknowledged: 0,
            abandoned: 0,
            is_closed: false,
            close_after: false,
            failures: Vec::new(),
            connected: 0,
        });
        let serial = endpoints.len() - 1;
        let before = self.nodes[node].owner.insert(id, serial);
        assert!(
            before.is_none_or(|before| self.nodes[node].endpoints[before].is_closed),
            "one user per connection"
        );
        EndpointId { node, serial }
    }

    pub fn at(&self, endpoint: EndpointId) -> &Endpoint {
        &self.nodes[endpoint.node].endpoints[endpoint.serial]
    }

    pub fn at_mut(&mut self, endpoint: EndpointId) -> &mut Endpoint {
        &mut self.nodes[endpoint.node].endpoints[endpoint.serial]
    }

    pub fn delivered(&self, from: EndpointId, to: usize) -> u64 {
        self.nodes[to].delivered.get(&from).copied().unwrap_or(0)
    }

    pub fn close(&mut self, endpoint: EndpointId) {
        let now = self.now;
        let node = &mut self.nodes[endpoint.node];
        let user = &mut node.endpoints[endpoint.serial];
        if !std::mem::replace(&mut user.is_closed, true) {
            node.table.close(now, user.id);
        }
    }

    /// Lets the network run until `done` says so or `limit` nanoseconds have passed; answers whether it is done. `done` changes nothing.
    pub fn run(&mut self, limit: u64, mut done: impl FnMut(&mut Network) -> bool) -> bool {
        let end = self.now.plus(limit);
        let mut turns = 0u64;
        // The test may have done anything.
        self.timeouts.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].is_unknown = true;
            self.nodes[node].timeout = Time::NEVER;
            self.rouse(node);
        }
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            turns += 1;
            assert!(turns < 200_000_000, "the network does not come to rest");
            let arrival = self.wire.peek().map_or(Time::NEVER, |Reverse(next)| next.0);
            let timeout = self.timeouts.peek().map_or(Time::NEVER, |Reverse(next)| next.0);
            let next = arrival.min(timeout).max(self.now);
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next;
            while self.wire.peek().is_some_and(|Reverse(next)| next.0 <= self.now) {
                let Some(Reverse((_, _, node, from, bytes))) = self.wire.pop() else { break };
                self.arrive(from, node, bytes);
                self.rouse(node);
            }
            while let Some(Reverse((time, index))) = self.timeouts.peek().copied()
                && time <= self.now
            {
                self.timeouts.pop();
                let node = &mut self.nodes[index];
                if node.timeout != time || node.is_dead {
                    continue;
                }
                node.timeout = Time::NEVER;
                if node.table.next_timeout() <= self.now
                    && let Some(header) = node.late.take()
                {
                    node.table.complete_plain(self.now, header);
                }
                node.table.handle_timeout(self.now);
                self.rouse(index);
            }
        }
    }

    /// The node may have something to do at once.
    fn rouse(&mut self, node: usize) {
        if !std::mem::replace(&mut self.nodes[node].is_busy, true) {
            self.busy.push(node);
        }
    }

    /// Runs for `duration` nanoseconds.
    pub fn pass(&mut self, duration: u64) {
        self.run(duration, |_| false);
    }

    /// Lets every node do what it can do at once.
    fn settle(&mut self) {
        let mut busy = std::mem::take(&mut self.busy);
        busy.sort_unstable();
        for node in busy.drain(..) {
            self.nodes[node].is_busy = false;
            if self.nodes[node].is_dead {
                continue;
            }
            self.schedule_output(node);
            if let Some(header) = self.nodes[node].late.take() {
                self.nodes[node].table.complete_plain(self.now, header);
                self.schedule_output(node);
            }
            let Node { table, touched, is_unknown, timeout, .. } = &mut self.nodes[node];
            touched.clear();
            *is_unknown = false;
            if table.next_timeout() < *timeout {
                *timeout = table.next_timeout();
                self.timeouts.push(Reverse((*timeout, node)));
            }
        }
        self.busy = busy;
    }

    /// Fetches news, and sends what is to be sent.
    fn schedule_output(&mut self, node: usize) {
        self.collect(node);
        self.send(node);
        let mut packets = Vec::new();
        while let Some(transmit) = self.nodes[node].table.poll_transmit(self.now) {
            let bytes = match transmit.body {
                Body::Control(bytes) => bytes.to_vec(),
                Body::Message(header, rest) => [&header[..], rest].concat(),
            };
            packets.push((*transmit.path, bytes));
        }
        packets.into_iter().for_each(|(to, bytes)| self.transmit(node, to, bytes));
        self.collect(node);
    }

    /// Sends what the users want to send and the windows admit.
    fn send(&mut self, node: usize) {
        let Node { endpoints, touched, is_unknown, owner, .. } = &self.nodes[node];
        let serials: Vec<usize> = match is_unknown {
            true => (0..endpoints.len()).collect(),
            false => touched.iter().filter_map(|id| owner.get(id).copied()).collect(),
        };
        for serial in serials {
            loop {
                let Node { table, endpoints, .. } = &mut self.nodes[node];
                let user = &mut endpoints[serial];
                if user.is_closed || user.sent == user.to_send {
                    break;
                }
                let id = user.id;
                let message_kind = (user.sent % 32) as u8;
                let Some(next) = table.next(id) else { break };
                let header = next.header(message_kind, 0);
                let to = *next.path().expect("a connected endpoint has a path");
                let body = message(EndpointId { node, serial }, user.sent);
                user.sent += 1;
                next.sent(self.now, message_kind, 0, body.clone());
                self.transmit(node, to, [&header[..], &body].concat());
            }
            let user = &self.nodes[node].endpoints[serial];
            if user.close_after && user.sent == user.to_send {
                self.close(EndpointId { node, serial });
            }
        }
    }

    /// Fetches news and buffers.
    fn collect(&mut self, node: usize) {
        let now = self.now;
        let Node { table, endpoints, owner, touched, is_unknown, .. } = &mut self.nodes[node];
        let ids = if *is_unknown { table.ids().collect() } else { touched.clone() };
        for id in ids {
            match owner.get(&id) {
                Some(serial) if !endpoints[*serial].is_closed => {
                    let user = &mut endpoints[*serial];
                    while let Some(body) = table.pop_acknowledged(id) {
                        assert_eq!(sequence(&body), user.acknowledged, "acknowledged in order, once");
                        user.acknowledged += 1;
                    }
                }
                _ => {
                    while let Some(body) = table.pop_acknowledged(id) {
                        note_late(endpoints, &body, true);
                    }
                }
            }
        }
        while let Some(event) = table.poll_event() {
            match event {
                Event::Connected(id) => {
                    endpoints[owner[&id]].connected += 1;
                    touched.push(id);
                }
                Event::Ready(id) => touched.push(id),
                Event::Failed(id, failure) => {
                    let user = &mut endpoints[owner[&id]];
                    assert!(!user.is_closed, "a closed endpoint does not fail");
                    user.failures.push((now, failure));
                    while table.pop_abandoned(id).is_some() {
                        user.abandoned += 1;
                    }
                    while table.pop_undelivered(id).is_some() {}
                }
                Event::Over(id) => {
                    while let Some(body) = table.pop_abandoned(id) {
                        note_late(endpoints, &body, false);
                    }
                    while table.pop_undelivered(id).is_some() {}
                    let _ = table.remove(id);
                    owner.remove(&id);
                }
            }
        }
    }

    fn transmit(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        self.datagrams += 1;
        if let Some(filter) = &mut self.filter
            && !filter(from, to, &mut bytes)
        {
            return;
        }
        if self.random.chance(self.faults.garbage) {
            let mut garbage = bytes.clone();
            garbage.truncate(self.random.below(garbage.len() as u64 + 1) as usize);
            for _ in 0..=self.random.below(4) {
                let place = self.random.below(garbage.len() as u64) as usize;
                if let Some(byte) = garbage.get_mut(place) {
                    *byte = self.random.next() as u8;
                }
            }
            self.put(from, to, garbage);
        }
        if self.is_down || self.random.chance(self.faults.loss) {
            return;
        }
        if self.random.chance(self.faults.duplicate) {
            self.put(from, to, bytes.clone());
        }
        self.put(from, to, bytes);
    }

    /// Sends a datagram, whatever is in it.
    pub fn put(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let mut delay = self.faults.delay + self.random.below(self.faults.jitter + 1);
        if self.random.chance(self.faults.reorder) {
            delay += self.random.below(self.faults.detour + 1);
        }
        let start = self.busy_until[to].max(self.now);
        if self.faults.service != 0 && start.since(self.now) / self.faults.service >= self.faults.queue {
            return;
        }
        let end = start.plus(self.faults.service);
        self.busy_until[to] = end;
        self.count += 1;
        self.wire.push(Reverse((end.plus(delay), self.count, to, from, bytes)));
    }

    fn arrive(&mut self, sender: usize, to: usize, bytes: Vec<u8>) {
        let from = &origin(sender);
        let node = &mut self.nodes[to];
        if node.is_dead {
            return;
        }
        let Some(header) = Header::read(&bytes) else { return };
        if !header.is_sequenced() {
            let id = node.table.receive_control(self.now, from, &bytes, node_of);
            node.touch(id);
            return;
        }
        node.is_short = !node.is_short;
        if node.is_short
            && node.late.is_none()
            && let Some((id, has_news)) = node.table.receive_plain(from, header, |_| false)
        {
            node.touch(Some(id));
            if has_news {
                node.late = Some(header);
            } else {
                node.table.complete_plain(self.now, header);
            }
            deliver(node, sender, &bytes);
            return;
        }
        let (id, mut ready) = match node.table.receive(self.now, from, header, bytes) {
            Received::Deliver(id, bytes) => (id, VecDeque::from([bytes])),
            Received::Discard(Some(id), ..) => (id, VecDeque::new()),
            Received::Held(id) => return node.touch(Some(id)),
            Received::Discard(None, ..) => return,
        };
        node.touch(Some(id));
        loop {
            while let Some(bytes) = ready.pop_front() {
                deliver(node, sender, &bytes);
            }
            match node.table.pop_ready(id) {
                Some(Ready::Deliver(bytes)) => ready.push_back(bytes),
                Some(Ready::Free(_)) => {}
                None => return,
            }
        }
    }

    /// Datagrams in flight to a node.
    pub fn under_way(&self, to: usize) -> u32 {
        self.wire.iter().filter(|Reverse(datagram)| datagram.2 == to).count() as u32
    }

    /// All that was sent has arrived and is acknowledged.
    pub fn is_flushed(&self) -> bool {
        let alive = self.nodes.iter().filter(|node| !node.is_dead);
        alive
            .flat_map(|node| &node.endpoints)
            .all(|user| user.sent == user.to_send && user.acknowledged == user.sent)
    }

    /// How far every endpoint has come, in words.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            out += &format!("\nnode {number}: {:?}", node.table.counters());
            for user in &node.endpoints {
                out += &format!(
                    "\n  {:?} sent {} of {}, acknowledged {}, abandoned {}, closed {}, failures {:?}",
                    user.id,
                    user.sent,
                    user.to_send,
                    user.acknowledged,
                    user.abandoned,
                    user.is_closed,
                    user.failures
                );
            }
        }
        out
    }

    pub fn failures(&self) -> usize {
        self.nodes.iter().flat_map(|node| &node.endpoints).map(|user| user.failures.len()).sum()
    }

    pub fn phase(&self, endpoint: EndpointId) -> Phase {
        self.nodes[endpoint.node].table.phase(self.at(endpoint).id)
    }
}

/// Message number `sequence` of an endpoint: its sender, its number, and bytes that follow from both.
fn message(from: EndpointId, sequence: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&(from.node as u32).to_le_bytes());
    body.extend_from_slice(&(from.serial as u32).to_le_bytes());
    body.extend_from_slice(&sequence.to_le_bytes());
    let mut random = Random(sequence ^ (from.serial as u64) << 32);
    let length = random.below(40);
    body.extend((0..length).map(|_| random.next() as u8));
    body
}

fn sequence(body: &[u8]) -> u64 {
    body[8..16].try_into().map_or(u64::MAX, u64::from_le_bytes)
}

fn deliver(node: &mut Node, sender: usize, bytes: &[u8]) {
    node.received += 1;
    if node.is_lenient || node.doubts == Some(sender) {
        return;
    }
    let header = Header::read(bytes).expect("a whole header");
    let body = &bytes[16..];
    let field = |range: std::ops::Range<usize>| body[range].try_into().map_or(0, u32::from_le_bytes) as usize;
    let from = EndpointId { node: field(0..4), serial: field(4..8) };
    assert_eq!(from.node, sender, "it names itself as the sender");
    let expected = node.delivered.entry(from).or_default();
    assert_eq!(sequence(body), *expected, "each message of {from:?} once and in order");
    assert_eq!(body, message(from, *expected), "contents of {from:?}");
    assert_eq!(u64::from(header.kind()), *expected % 32, "kind");
    assert!(header.kind() < kind::MESSAGE_END);
    *expected += 1;
}

fn note_late(endpoints: &mut [Endpoint], body: &[u8], arrived: bool) {
    let serial = body[4..8].try_into().map_or(0, u32::from_le_bytes) as usize;
    let user = &mut endpoints[serial];
    if arrived {
        user.acknowledged += 1;
    } else {
        user.abandoned += 1;
    }
}
