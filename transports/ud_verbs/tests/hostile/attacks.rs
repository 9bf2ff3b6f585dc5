//! Hostile peers beside honest ones: their packets affect only their own connections, and cost a bounded amount.
//!
//! Built on the simulator.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::simulator::*;
use uct_ud_verbs::testing::header::kind;
use uct_ud_verbs::testing::{Failure, Settings};

/// The victim, an honest peer of it, and the hostile one.
const VICTIM: usize = 0;
const HONEST: usize = 1;
const HOSTILE: usize = 2;

/// A request (CONNECT) in the name of any interface: its identity, which of its requests, its address, the key that it
/// gives the connection, and the cookie.
#[derive(Clone, Copy)]
struct Request {
    identity: u64,
    ordinal: u32,
    address: usize,
    key: u32,
    cookie: u64,
}

impl Request {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[0] = kind::CONNECT;
        bytes.extend(b"udrv\x04\0\x10\0");
        bytes.extend(self.key.to_le_bytes());
        bytes.extend([0, 0, 16, 0, 0, 0, 0, 0]);
        bytes.extend(self.ordinal.to_le_bytes());
        bytes.extend(self.identity.to_le_bytes());
        bytes.push(8);
        bytes.extend((self.address as u64).to_le_bytes());
        bytes.extend(self.cookie.to_le_bytes());
        bytes
    }
}

/// Runs of a test with random choices: `usual` of them, or as many as the environment asks for.
fn runs(usual: u64) -> u64 {
    std::env::var("UCT_TEST_HOSTILE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(usual)
}

/// Everything that was sent so far: from, to, bytes.
type Heard = Rc<RefCell<Vec<(usize, usize, Vec<u8>)>>>;

/// Records every datagram, as a process does that reads the traffic.
fn listen(network: &mut Network) -> Heard {
    let heard = Heard::default();
    let all = heard.clone();
    network.filter = Some(Box::new(move |from, to, bytes| {
        all.borrow_mut().push((from, to, bytes.clone()));
        true
    }));
    heard
}

/// The cookies that the hostile peer was sent, by the key that it gave.
fn cookies(heard: &Heard) -> Vec<(u32, u64)> {
    let heard = heard.borrow();
    let mine = heard.iter().filter(|(_, to, bytes)| *to == HOSTILE && bytes[0] == kind::CHALLENGE);
    let field = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    mine.map(|(_, _, bytes)| {
        (field(bytes, 4), u64::from(field(bytes, 24)) | u64::from(field(bytes, 28)) << 32)
    })
    .collect()
}

/// Requests in another's name, with all that can be known of it: with the own address or with the other's, from the own port
/// or from the other's, for which the attacker has to forge whole packets.
#[test]
fn a_request_in_anothers_name_takes_neither_its_place_nor_its_messages() {
    for (address, origin) in [(HOSTILE, HOSTILE), (HONEST, HOSTILE), (HONEST, HONEST), (HOSTILE, HONEST)] {
        for is_asking in [false, true] {
            let mut network = Network::new(3, 1, Faults::default(), Settings::default());
            let heard = listen(&mut network);
            let identity = network.nodes[HONEST].table.identity();
            let early = is_asking.then(|| network.connect(VICTIM, HONEST, 20));
            let mut request = Request { identity, ordinal: 0, address, key: 77, cookie: 0 };
            network.put(origin, VICTIM, request.to_bytes());
            network.pass(100 * MICROSECOND);
            // A challenge that reached the hostile peer is answered.
            for (_, cookie) in cookies(&heard) {
                request.cookie = cookie;
                network.put(origin, VICTIM, request.to_bytes());
            }
            network.pass(MILLISECOND);
            let user = early.unwrap_or_else(|| network.connect(VICTIM, HONEST, 20));
            let back = network.connect(HONEST, VICTIM, 20);
            assert!(network.run(10 * SECOND, |network| network.is_flushed()), "{}", network.describe());
            assert_eq!((network.delivered(user, HONEST), network.delivered(back, VICTIM)), (20, 20));
            let heard = heard.borrow();
            let mut messages = heard.iter().filter(|(_, _, bytes)| bytes[0] < kind::MESSAGE_END);
            assert!(messages.all(|(_, to, _)| *to != HOSTILE), "a message went to the hostile peer");
        }
    }
}

#[test]
fn requests_without_an_answer_to_the_challenge_take_no_place() {
    let settings = Settings { connections_max: 64, ..Settings::default() };
    let mut network = Network::new(3, 1, Faults::default(), settings);
    for turn in 0..10_000u64 {
        let address = if turn % 2 == 0 { HOSTILE } else { HONEST };
        let request = Request { identity: turn, ordinal: 0, address, key: turn as u32, cookie: turn };
        network.put(address, VICTIM, request.to_bytes());
    }
    network.pass(MILLISECOND);
    assert!(network.nodes[VICTIM].table.is_empty());
    assert!(network.nodes[VICTIM].table.counters().challenges > 0);
    assert_eq!(network.nodes[VICTIM].table.next_timeout(), uct_ud_verbs::testing::Time::NEVER);
}

/// A flood of identities, each of which answers its challenge.
fn flood(network: &mut Network, heard: &Heard, count: u64) {
    for turn in 0..count {
        let mut request =
            Request { identity: turn, ordinal: 0, address: HOSTILE, key: turn as u32, cookie: 0 };
        network.put(HOSTILE, VICTIM, request.to_bytes());
        network.pass(50 * MICROSECOND);
        for (key, cookie) in cookies(heard) {
            request = Request { identity: u64::from(key), key, cookie, ..request };
            network.put(HOSTILE, VICTIM, request.to_bytes());
        }
        heard.borrow_mut().clear();
    }
}

#[test]
fn a_flood_of_identities_keeps_no_honest_peer_out_and_ends_by_itself() {
    let settings =
        Settings { connections_max: 64, connections_per_port: 16, keepalive: None, ..Settings::default() };
    let mut network = Network::new(3, 1, Faults::default(), settings);
    let heard = listen(&mut network);
    flood(&mut network, &heard, 200);
    assert_eq!(network.nodes[VICTIM].table.len(), 16, "no more than a port may have");
    let user = network.connect(HONEST, VICTIM, 20);
    assert!(network.run(10 * SECOND, |network| network.is_flushed()), "{}", network.describe());
    assert_eq!(network.delivered(user, VICTIM), 20);
    // Nobody shows signs of life on the others: they end, and their places are free.
    assert!(network.run(60 * SECOND, |network| network.nodes[VICTIM].table.len() == 1));
    heard.borrow_mut().clear();
    flood(&mut network, &heard, 40);
    assert_eq!(network.nodes[VICTIM].table.len(), 17);
}

#[test]
fn peers_cannot_take_the_last_places() {
    let settings = Settings { connections_max: 64, ..Settings::default() };
    let mut network = Network::new(3, 1, Faults::default(), settings);
    let heard = listen(&mut network);
    flood(&mut network, &heard, 200);
    assert_eq!(network.nodes[VICTIM].table.len(), 56);
    for _ in 0..8 {
        network.connect(VICTIM, HONEST, 20);
    }
    assert!(network.run(10 * SECOND, |network| network.is_flushed()), "{}", network.describe());
}

#[test]
fn a_peer_that_accepts_a_connection_and_falls_silent_times_out() {
    let settings = Settings { keepalive: None, give_up: Duration::from_secs(2), ..Settings::default() };
    let mut network = Network::new(2, 1, Faults::default(), settings);
    network.connect(1, VICTIM, 0);
    network.filter = Some(Box::new(|from, _, bytes| from == VICTIM || bytes[0] == kind::CONNECT));
    network.pass(SECOND);
    assert_eq!(network.nodes[VICTIM].table.len(), 1);
    assert!(network.run(10 * SECOND, |network| network.nodes[VICTIM].table.is_empty()));
}

/// A RESET with another's key and its queue pair and port, as only a host that forges whole frames can send it.
#[derive(Clone, Copy)]
struct Reset {
    /// The first 8 bytes of a header to the connection: kind, flags, key.
    to: [u8; 8],
    psn: u32,
    ack: u32,
}

impl Reset {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.to.to_vec();
        bytes[0] = kind::RESET;
        bytes.extend(self.psn.to_le_bytes());
        bytes.extend(self.ack.to_le_bytes());
        bytes.extend([0, 0]);
        bytes
    }
}

/// A pair that has talked and rests, and the RESET that the honest peer would send to the victim now.
fn rest(seed: u64) -> (Network, EndpointId, Reset) {
    let settings = Settings { keepalive: None, ..Settings::default() };
    let mut network = Network::new(2, seed, Faults::default(), settings);
    let heard = listen(&mut network);
    let user = network.connect(VICTIM, HONEST, 40);
    let back = network.connect(HONEST, VICTIM, 30);
    assert!(network.run(10 * SECOND, |network| network.is_flushed()), "{}", network.describe());
    // The acknowledgement of the last message is in flight.
    network.pass(SECOND);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let heard = heard.borrow();
    // One connection carries both directions, so what the two last said is where its halves are.
    let last = |from: usize| heard.iter().rev().find(|(sender, ..)| *sender == from).expect("they talked");
    let (said, answered) = (&last(HONEST).2, &last(VICTIM).2);
    let next = |bytes: &[u8]| word(bytes, 8).wrapping_add(u32::from(bytes[0] < kind::CONTROL));
    let to = *said.first_chunk().expect("a header");
    let reset = Reset { to, psn: next(said), ack: next(answered) };
    assert_eq!((network.delivered(user, HONEST), network.delivered(back, VICTIM)), (40, 30));
    (network, user, reset)
}

#[test]
fn a_reset_counts_only_with_the_key_and_both_sequence_numbers() {
    let seed = given().unwrap_or(1);
    println!("UCT_TEST_SEED={seed:#x}");
    let (mut network, user, honest) = rest(seed);
    let mut random = Random(seed);
    let mut forged = Vec::new();
    for off in [1u32, 2, 300, 1 << 16, 1 << 31] {
        forged.push(Reset { psn: honest.psn.wrapping_sub(off), ..honest });
        forged.push(Reset { ack: honest.ack.wrapping_sub(off), ..honest });
        forged.push(Reset { ack: honest.ack.wrapping_add(off), ..honest });
    }
    // No honest peer is further ahead than a window and a goodbye.
    forged.extend([258, 300, 1 << 16].map(|off| Reset { psn: honest.psn.wrapping_add(off), ..honest }));
    forged.extend((0..1000).map(|_| Reset {
        psn: random.next() as u32,
        ack: random.next() as u32,
        ..honest
    }));
    // The key: 16 bits of token, 12 bits above the index.
    for bit in (16..32).chain(52..64) {
        let to = (u64::from_le_bytes(honest.to) ^ 1 << bit).to_le_bytes();
        forged.push(Reset { to, ..honest });
    }
    for reset in forged {
        network.put(HONEST, VICTIM, reset.to_bytes());
    }
    network.pass(MILLISECOND);
    network.at_mut(user).to_send += 20;
    assert!(network.run(10 * SECOND, |network| network.is_flushed()), "{}", network.describe());
    assert_eq!((network.failures(), network.delivered(user, HONEST)), (0, 60), "{}", network.describe());
    let honest = Reset { ack: honest.ack.wrapping_add(20), ..honest };
    network.put(HONEST, VICTIM, honest.to_bytes());
    network.pass(MILLISECOND);
    assert_eq!(network.at(user).failures.len(), 1, "the peer's own reset counts");
}

/// A peer that cuts the connection off while both sides send, over a network that does anything to datagrams.
fn cut_off(seed: u64) {
    let mut random = Random(seed);
    let faults = Faults {
        loss: random.below(200),
        duplicate: random.below(100),
        reorder: random.below(300),
        jitter: random.below(100) * MICROSECOND,
        ..Faults::default()
    };
    let mut network = Network::new(2, seed, faults, Settings::default());
    let there = network.connect(VICTIM, HONEST, 2000);
    let back = network.connect(HONEST, VICTIM, 2000);
    let context = |network: &Network| format!("UCT_TEST_SEED={seed:#x}: {}", network.describe());
    let connected = |network: &mut Network| network.at(there).connected > 0 && network.at(back).connected > 0;
    assert!(network.run(60 * SECOND, connected), "{}", context(&network));
    network.pass(random.below(20 * MILLISECOND));
    let (now, id) = (network.now, network.at(back).id);
    network.nodes[HONEST].table.abort(now, id);
    let ended = |network: &mut Network| {
        network.at(there).acknowledged == 2000 || !network.at(there).failures.is_empty()
    };
    assert!(network.run(60 * SECOND, ended), "{}", context(&network));
    if network.at(there).acknowledged < 2000 {
        assert_eq!(network.at(there).failures[0].1, Failure::Reset, "{}", context(&network));
    }
}

#[test]
fn a_peer_that_cuts_off_is_understood_whatever_the_network_does() {
    seeds(runs(200)).for_each(cut_off);
}

#[test]
fn a_peer_that_only_ever_challenges_is_given_up() {
    let settings = Settings { give_up: Duration::from_millis(100), ..Settings::default() };
    let mut network = Network::new(3, 1, Faults::default(), settings);
    let mut count = 0u64;
    network.filter = Some(Box::new(move |from, _, bytes| {
        if from == HOSTILE && bytes[0] == kind::CHALLENGE {
            count += 1;
            bytes[24..32].copy_from_slice(&count.to_le_bytes());
        }
        true
    }));
    let user = network.connect(VICTIM, HOSTILE, 20);
    let begin = network.now;
    let ended = network.run(SECOND, |network| !network.at(user).failures.is_empty());
    assert!(ended, "{}", network.describe());
    let (failed, failure) = network.at(user).failures[0];
    assert_eq!(failure, Failure::Silent);
    assert!(failed.since(begin) <= 101 * MILLISECOND, "{}", network.describe());
}

/// A random packet from the attacker's port: an earlier packet of any node, changed, to any node.
fn babble(network: &mut Network, random: &mut Random, heard: &Heard) {
    let heard = heard.borrow();
    let Some((_, _, bytes)) = heard.get(random.below(heard.len() as u64) as usize) else { return };
    let mut bytes = bytes.clone();
    for _ in 0..random.below(4) {
        let place = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[place] = random.next() as u8,
            1 => bytes[place] ^= 1 << random.below(8),
            2 => bytes.truncate(place.max(1)),
            _ => bytes[0] = kind::CONTROL + random.below(8) as u8,
        }
    }
    let to = if random.chance(900) { VICTIM } else { HONEST };
    drop(heard);
    network.put(HOSTILE, to, bytes);
}

/// A pair that talks, and an attacker that receives all packets and sends random ones. The attacker also has a connection of its
/// own, on which it sends malformed packets. Nothing of it reaches the pair; the victim's endpoint to it is done or fails in time.
fn hostile(seed: u64) {
    println!("UCT_TEST_SEED={seed:#x}");
    let mut random = Random(seed);
    let faults = Faults { loss: random.below(30), duplicate: random.below(30), ..Faults::default() };
    let settings = Settings { connections_max: 48, connections_per_port: 16, ..Settings::default() };
    let mut network = Network::new(3, seed, faults, settings);
    let heard = Heard::default();
    let (all, mut nonsense) = (heard.clone(), Random(seed ^ 1));
    let degree = random.below(300);
    network.filter = Some(Box::new(move |from, to, bytes| {
        all.borrow_mut().push((from, to, bytes.clone()));
        if from == HOSTILE && nonsense.chance(degree) {
            let place = nonsense.below(bytes.len() as u64) as usize;
            bytes[place] = nonsense.next() as u8;
        }
        true
    }));
    // What arrives from the hostile peer may have any content.
    let pair = [network.connect(VICTIM, HONEST, 300), network.connect(HONEST, VICTIM, 300)];
    let doubtful = [network.connect(VICTIM, HOSTILE, 100), network.connect(HOSTILE, VICTIM, 100)];
    network.nodes.iter_mut().for_each(|node| node.doubts = Some(HOSTILE));
    network.nodes[HOSTILE].is_lenient = true;
    for _ in 0..400 {
        babble(&mut network, &mut random, &heard);
        network.pass(random.below(40) * MICROSECOND);
    }
    let context = |network: &Network| format!("seed {seed}: {}", network.describe());
    let is_done = network.run(60 * SECOND, |network| {
        pair.iter().all(|user| network.at(*user).acknowledged == network.at(*user).to_send)
    });
    assert!(is_done, "{}", context(&network));
    for user in pair {
        assert_eq!(network.delivered(user, 1 - user.node), 300, "{}", context(&network));
        assert!(network.at(user).failures.is_empty(), "{}", context(&network));
    }
    let end = |network: &mut Network, user| {
        let user = network.at(user);
        user.acknowledged == user.to_send || !user.failures.is_empty()
    };
    assert!(network.run(120 * SECOND, |network| end(network, doubtful[0])), "{}", context(&network));
    // Everything that is there because of it goes when it does.
    network.nodes[HOSTILE].is_dead = true;
    doubtful.iter().chain(&pair).for_each(|user| network.close(*user));
    let is_empty = |network: &mut Network| {
        network.nodes[VICTIM].table.is_empty() && network.nodes[HONEST].table.is_empty()
    };
    assert!(network.run(200 * SECOND, is_empty), "{}", context(&network));
}

#[test]
fn random_packets_at_any_time_harm_only_their_sender() {
    seeds(runs(300)).for_each(hostile);
}
