//! One interface with many peers: what its timers and keepalive cost, an incast of all peers, and a storm of their connects.
//!
//! Built on the simulator. Sizes are small unless `UCT_TEST_PEERS` is a number of peers. Figures are printed; what is asserted is counted or is
//! simulated time.

use std::time::{Duration, Instant};

use crate::simulator::*;
use uct_ud_verbs::testing::header::kind;
use uct_ud_verbs::testing::{Body, ConnectionId, Header, Settings, Table, Time};

/// Time in which the receiver handles a datagram, and datagrams that it has buffers for.
const SERVICE: u64 = MICROSECOND;
const BUFFERS: u32 = 2048;
const KEEPALIVE: u64 = 20 * SECOND;

fn sizes() -> Vec<usize> {
    let given = std::env::var("UCT_TEST_PEERS").ok();
    given.map_or(vec![1000, 3000], |peers| vec![peers.parse().expect("UCT_TEST_PEERS is a number")])
}

fn settings(seed: u64) -> Settings {
    Settings {
        connections_max: 1 << 20,
        connections_per_port: 1 << 20,
        seed: seed.into(),
        ..Settings::default()
    }
}

/// An interface that is connected to many, which are behind two others; datagrams take no time.
struct Crowd {
    tables: Vec<Table<Simulated>>,
    ids: Vec<ConnectionId>,
    now: Time,
    /// PINGs sent so far.
    probes: u64,
    datagrams: u64,
}

impl Crowd {
    fn new(peers: usize) -> Crowd {
        let settings = |node: u64| Settings { timeout_initial: Duration::from_secs(1), ..settings(node + 1) };
        let table = |node: u64| Table::new(settings(node), &node.to_le_bytes()).expect("settings in range");
        let tables = (0..3).map(table).collect();
        let mut crowd =
            Crowd { tables, ids: Vec::new(), now: Time::from_nanos(SECOND), probes: 0, datagrams: 0 };
        for peer in 0..peers {
            let to = 1 + peer % 2;
            let identity = crowd.tables[to].identity();
            let id = crowd.tables[0].connect(crowd.now, identity, origin(to), || Ok::<_, ()>(to));
            crowd.ids.push(id.expect("a connection"));
            crowd.exchange();
            // A million connects in two seconds.
            crowd.now = crowd.now.plus(2 * MICROSECOND);
        }
        assert!(crowd.tables.iter().map(Table::len).sum::<usize>() == 2 * peers, "all are connected");
        crowd
    }

    /// Delivers what the tables have to send, until none has anything.
    fn exchange(&mut self) {
        while self.tables.iter().any(Table::has_output) {
            for from in 0..self.tables.len() {
                while let Some(transmit) = self.tables[from].poll_transmit(self.now) {
                    let to = *transmit.path;
                    let Body::Control(bytes) = transmit.body else { continue };
                    let bytes = bytes.to_vec();
                    self.datagrams += 1;
                    let is_probe = Header::read(&bytes).is_some_and(|header| header.kind() == kind::PING);
                    self.probes += u64::from(is_probe);
                    self.tables[to].receive_control(self.now, &origin(from), &bytes, node_of);
                }
            }
        }
        for table in &mut self.tables {
            while table.poll_event().is_some() {}
        }
    }

    /// Lets time pass; returns the largest number of probes at once.
    fn pass(&mut self, duration: u64) -> u64 {
        let end = self.now.plus(duration);
        let mut largest = 0;
        loop {
            let next = self.tables.iter().map(Table::next_timeout).min().unwrap_or(Time::NEVER);
            if next > end {
                self.now = end;
                return largest;
            }
            self.now = self.now.max(next);
            let before = self.probes;
            self.tables.iter_mut().for_each(|table| table.handle_timeout(self.now));
            self.exchange();
            largest = largest.max(self.probes - before);
        }
    }
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

#[test]
fn a_timer_with_one_deadline_due_examines_few_connections_however_many_wait() {
    for peers in sizes() {
        let before = resident();
        let mut crowd = Crowd::new(peers);
        let bytes = (resident() - before) / (2 * peers);
        // One message of each is not acknowledged, for a second.
        for id in &crowd.ids {
            crowd.now = crowd.now.plus(900 * MILLISECOND / peers as u64);
            crowd.tables[0].next(*id).expect("a window").sent(crowd.now, 0, 0, Vec::new());
            crowd.tables[0].handle_timeout(crowd.now);
        }
        // Of two messages of one peer the second is to be acknowledged in a millisecond.
        let id = crowd.tables[1].ids().next().expect("a connection");
        for _ in 0..2 {
            let next = crowd.tables[1].next(id).expect("a window");
            let header = next.header(0, 0);
            next.sent(crowd.now, 0, 0, Vec::new());
            let header = Header::read(&header).expect("a whole header");
            let _ = crowd.tables[0].receive(crowd.now, &origin(1), header, Vec::new());
            while crowd.tables[0].poll_transmit(crowd.now).is_some() {}
        }
        let table = &mut crowd.tables[0];
        let (begin, acknowledgements) = (table.counters().examined, table.counters().acknowledgements);
        let (mut most, mut longest) = (0, 0);
        while table.poll_transmit(crowd.now).is_none() {
            crowd.now = crowd.now.max(table.next_timeout());
            let (before, start) = (table.counters().examined, Instant::now());
            table.handle_timeout(crowd.now);
            longest = longest.max(start.elapsed().as_nanos());
            most = most.max(table.counters().examined - before);
        }
        assert_eq!(table.counters().acknowledgements, acknowledgements + 1);
        let (before, start) = (table.counters().examined, Instant::now());
        table.acknowledge_now(crowd.now);
        table.refresh_timeout();
        let (asleep, sleep) = (table.counters().examined - before, start.elapsed().as_nanos());
        println!(
            "{peers} peers: {bytes} bytes a connection; a timer with one deadline due: {most} connections examined, {longest} ns; \
             before a sleep: {asleep} connections, {sleep} ns"
        );
        assert!(most <= 80, "{most} of {peers} connections examined");
        assert!(asleep <= 80, "{asleep} of {peers} connections examined");
        let table = &mut crowd.tables[0];
        let end = crowd.now.plus(10 * SECOND);
        while table.next_timeout() < end && table.counters().timeouts < peers as u64 {
            crowd.now = crowd.now.max(table.next_timeout());
            let before = table.counters().examined;
            table.handle_timeout(crowd.now);
            most = most.max(table.counters().examined - before);
            while table.poll_transmit(crowd.now).is_some() {}
        }
        println!("    until all are due: {most} connections examined at most in a call");
        assert!(most <= 4096 + 80, "{most} of {peers} connections examined");
        let examined = crowd.tables[0].counters().examined - begin;
        assert!(crowd.tables[0].counters().timeouts >= peers as u64, "all are due by now");
        assert!(
            (peers as u64..=5 * peers as u64).contains(&examined),
            "{examined} examinations of {peers} connections, each of which was due"
        );
    }
}

#[test]
fn keepalive_probes_each_idle_connection_once_an_interval_and_few_at_once() {
    for peers in sizes() {
        let mut crowd = Crowd::new(peers);
        crowd.pass(3 * KEEPALIVE);
        let (probes, datagrams) = (crowd.probes, crowd.datagrams);
        let largest = crowd.pass(KEEPALIVE);
        let (probes, datagrams) = (crowd.probes - probes, crowd.datagrams - datagrams);
        println!(
            "{peers} peers: keepalive: {probes} probes, {datagrams} datagrams in {} s, {largest} at once at most",
            KEEPALIVE / SECOND
        );
        let (expected, share) = (peers as u64, peers as u64 / 50);
        assert!(probes.abs_diff(expected) <= share, "{probes} probes of {peers} peers");
        assert_eq!(datagrams, 2 * probes, "a probe and its reply");
        assert!(largest <= 2 * (17 + peers as u64 / 10_000), "{largest} at once");
    }
}

/// Peers that connect to node 0 at the same moment, and how many nanoseconds that took.
fn storm(peers: usize, seed: u64) -> (Network, Vec<EndpointId>, u64) {
    let nodes = peers.min(1000);
    let faults =
        Faults { service: SERVICE, queue: u64::from(BUFFERS), jitter: 10 * MICROSECOND, ..Faults::default() };
    let mut network = Network::new(1 + nodes, seed, faults, settings(0));
    let users: Vec<_> = (0..peers).map(|peer| network.connect(1 + peer % nodes, 0, 0)).collect();
    let begin = network.now;
    let mut connected = 0;
    let done = network.run(600 * SECOND, |network| {
        while users.get(connected).is_some_and(|user| network.at(*user).connected != 0) {
            connected += 1;
        }
        connected == peers
    });
    assert!(done, "{connected} of {peers} are connected");
    let took = network.now.since(begin);
    (network, users, took)
}

#[test]
fn a_storm_of_connects_ends_in_three_service_times_for_each() {
    for peers in sizes() {
        // An eighth of an interface's connections is not for its peers.
        let peers = peers.min(900_000);
        let (network, _, took) = storm(peers, 1);
        let share = took as f64 / (SERVICE * peers as u64) as f64;
        println!(
            "{peers} peers: storm: {share:.2} service times a connect, {:.1} datagrams a connect",
            network.datagrams as f64 / peers as f64
        );
        assert!(share <= 3.0, "{share:.2} service times a connect");
    }
}

#[test]
fn an_incast_keeps_its_receiver_busy_with_new_messages() {
    for peers in sizes() {
        let peers = peers.min(900_000);
        // At least a tenth of a second, so that a timeout at its end is a small part of it.
        let messages = (100_000 / peers as u64).max(50).min(5_000_000 / peers as u64);
        let (mut network, users, _) = storm(peers, 2);
        network.pass(50 * MILLISECOND);
        users.iter().for_each(|user| network.at_mut(*user).to_send = messages);
        let count = |network: &Network| -> [u64; 3] {
            let counters = network.nodes.iter().map(|node| node.table.counters());
            [
                network.datagrams,
                counters.clone().map(|it| it.resent).sum(),
                counters.map(|it| it.timeouts).sum(),
            ]
        };
        let (before, begin) = (count(&network), network.now);
        let all = peers as u64 * messages;
        let mut most = Time::NEVER;
        let done = network.run(600 * SECOND, |network| {
            if network.nodes[0].received >= all * 9 / 10 {
                most = most.min(network.now);
            }
            network.nodes[0].received == all
        });
        assert!(done, "{} of {all} messages", network.nodes[0].received);
        let ideal = all * SERVICE;
        let goodput = ideal as f64 / network.now.since(begin) as f64;
        let early = ideal as f64 * 0.9 / most.since(begin) as f64;
        let [datagrams, resent, timeouts] = std::array::from_fn(|at| count(&network)[at] - before[at]);
        println!(
            "{peers} peers: incast: {:.1} % of the service rate ({:.1} % until nine tenths are there); {datagrams} datagrams for \
             {all} messages, {resent} of them again, {timeouts} timeouts, {} failures",
            goodput * 100.0,
            early * 100.0,
            network.failures(),
        );
        assert!(goodput >= 0.8, "{goodput:.3} of the service rate");
        assert_eq!(network.failures(), 0);
    }
}
