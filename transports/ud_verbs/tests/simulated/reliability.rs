//! Every message arrives once and in order, whatever the network does.
//!
//! Built on the simulator.

use crate::simulator::*;
use proptest::prelude::*;
use uct_ud_verbs::testing::{Psn, Settings};

/// Faults that follow from the seed, from harmless to severe.
fn faults(random: &mut Random) -> Faults {
    let severe = random.chance(300);
    let most = |mild, bad| if severe { bad } else { mild };
    Faults {
        loss: random.below(most(60, 300)),
        duplicate: random.below(most(50, 300)),
        reorder: random.below(most(100, 500)),
        detour: 1 + random.below(most(200, 20_000)) * MICROSECOND,
        delay: 1 + random.below(most(100, 5_000)) * MICROSECOND,
        jitter: random.below(most(20, 3_000)) * MICROSECOND,
        garbage: 0,
        ..Faults::default()
    }
}

/// A network of a few nodes and endpoints of all kinds, some of which close early; all that was sent must arrive.
fn storm(seed: u64) {
    println!("UCT_TEST_SEED={seed:#x}");
    let mut random = Random(seed);
    let faults = faults(&mut random);
    let settings = Settings {
        first_psn: Some(Psn((random.next() as u32) | if random.chance(500) { 0xffff_ff80 } else { 0 })),
        window_max: 1 + random.below(256) as u32,
        window_min: 1,
        window_initial: 1,
        held_max: random.below(200) as u32,
        // Closing early must not cut off what a bad network delivers late.
        close_timeout: std::time::Duration::from_secs(600),
        linger: std::time::Duration::from_secs(60),
        ..Settings::default()
    };
    let nodes = 2 + random.below(3) as usize;
    let mut network = Network::new(nodes, seed, faults.clone(), settings);
    let mut users = Vec::new();
    for _ in 0..1 + random.below(6) {
        let (from, to) = (random.below(nodes as u64) as usize, random.below(nodes as u64) as usize);
        let messages = random.below(120);
        if random.chance(300) {
            let pair = network.connect_endpoints(from, to, messages);
            network.pass(random.below(30) * MICROSECOND);
            network.complete(pair);
            users.extend([(pair.0, to), (pair.1, from)]);
        } else {
            users.push((network.connect(from, to, messages), to));
        }
        let last = users.last().expect("one was added").0;
        network.at_mut(last).close_after = random.chance(200);
        if random.chance(500) {
            network.pass(random.below(3000) * MICROSECOND);
        }
    }
    let is_done = network.run(3600 * SECOND, |network| network.is_flushed());
    assert!(is_done, "seed {seed}: not all arrived, {faults:?}, {}", network.describe());
    for (user, to) in &users {
        assert_eq!(network.delivered(*user, *to), network.at(*user).to_send, "seed {seed}");
    }
    assert_eq!(network.failures(), 0, "seed {seed}");
    users.iter().for_each(|(user, _)| network.close(*user));
    let is_gone =
        network.run(3600 * SECOND, |network| network.nodes.iter().all(|node| node.table.is_empty()));
    assert!(is_gone, "seed {seed}: connections stay after all have been closed");
}

#[test]
fn every_message_arrives_once_and_in_order_in_a_storm() {
    seeds(2000).for_each(storm);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..property::config() })]

    #[test]
    fn every_message_arrives_for_any_network(
        seed in any::<u64>(), loss in 0u64..250, duplicate in 0u64..250, reorder in 0u64..600,
        detour in 0u64..3_000_000, delay in 0u64..2_000_000, window in 1u32..=256, first in any::<u32>(),
    ) {
        let faults = Faults { loss, duplicate, reorder, detour, delay, ..Faults::default() };
        let settings = Settings { window_max: window, window_min: 1, window_initial: window.min(32),
            first_psn: Some(Psn(first)), ..Settings::default() };
        let mut network = Network::new(2, seed, faults, settings);
        let left = network.connect(0, 1, 150);
        let right = network.connect(1, 0, 150);
        prop_assert!(network.run(3600 * SECOND, |network| network.is_flushed()));
        prop_assert_eq!(network.delivered(left, 1), 150);
        prop_assert_eq!(network.delivered(right, 0), 150);
    }
}

#[test]
fn garbage_between_the_datagrams_does_no_harm() {
    for seed in seeds(300) {
        let faults = Faults { garbage: 300, loss: 20, ..Faults::default() };
        let mut network =
            Network::new(2, seed, faults, Settings { connections_max: 16, ..Settings::default() });
        network.connect(0, 1, 200);
        network.connect(1, 0, 200);
        // Damaged bytes that pass for a datagram of the peer's can break a connection, or a content: the checksum of the
        // network keeps them out. Here they must not hang, panic, or leave a buffer behind: either side has what it was
        // sent acknowledged, or learns that the other makes no sense.
        let is_settled = network.run(120 * SECOND, |network| {
            let mut users = network.nodes.iter().flat_map(|node| &node.endpoints);
            users.all(|user| user.acknowledged == user.to_send || !user.failures.is_empty())
        });
        assert!(is_settled, "seed {seed}: neither done nor failed {}", network.describe());
        for node in &network.nodes {
            for user in node.endpoints.iter().filter(|user| !user.failures.is_empty()) {
                assert_eq!(
                    user.acknowledged + user.abandoned,
                    user.sent,
                    "seed {seed}: every buffer comes back"
                );
            }
        }
    }
}

#[test]
fn a_quiet_network_needs_no_retransmission_and_few_acknowledgements() {
    let mut network = Network::new(2, 1, Faults::default(), Settings::default());
    let user = network.connect(0, 1, 10_000);
    let begin = network.now;
    assert!(network.run(10 * SECOND, |network| network.is_flushed()));
    // A round trip is 40 µs and the window grows to 256: 40 windows, and the growth.
    assert!(network.now.since(begin) < 5 * MILLISECOND, "{} ns", network.now.since(begin));
    assert_eq!(network.nodes[0].table.counters().resent, 0);
    assert_eq!(network.delivered(user, 1), 10_000);
    let acknowledgements = network.nodes[1].table.counters().acknowledgements;
    assert!(acknowledgements < 1000, "{acknowledgements} acknowledgements for 10000 messages");
}

#[test]
fn replies_carry_the_acknowledgements() {
    let mut network = Network::new(2, 1, Faults::default(), Settings::default());
    let left = network.connect(0, 1, 0);
    network.pass(MILLISECOND);
    let right = network.connect(1, 0, 0);
    for round in 1..=1000 {
        for user in [left, right] {
            network.at_mut(user).to_send = round;
            let to = 1 - user.node;
            assert!(network.run(SECOND, |network| network.delivered(user, to) == round));
        }
    }
    let acknowledgements: u64 = network.nodes.iter().map(|node| node.table.counters().acknowledgements).sum();
    assert!(acknowledgements < 20, "{acknowledgements} acknowledgements in 1000 round trips");
    assert_eq!(network.nodes[0].table.room(), 32, "a peer that waits for answers needs little room");
}

#[test]
fn five_per_cent_loss_costs_little_more_than_what_is_lost() {
    let faults = Faults { loss: 50, ..Faults::default() };
    let mut network = Network::new(2, 5, faults, Settings::default());
    network.connect(0, 1, 20_000);
    let begin = network.now;
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    let resent = network.nodes[0].table.counters().resent;
    assert!((900..1800).contains(&resent), "{resent} of 20000 sent again");
    let took = network.now.since(begin);
    // 20000 messages, a round trip of 40 µs, a window of about 6: 0.14 s and the timeouts.
    assert!(took < 2 * SECOND, "{took} ns");
}

#[test]
fn a_network_that_reorders_without_loss_is_learned() {
    let faults =
        Faults { reorder: 250, detour: 100 * MICROSECOND, delay: 50 * MICROSECOND, ..Faults::default() };
    let mut network = Network::new(2, 9, faults, Settings::default());
    network.connect(0, 1, 20_000);
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    let resent = network.nodes[0].table.counters().resent;
    assert!(resent < 2000, "{resent} of 20000 sent again, none was lost");
}

#[test]
fn a_network_that_is_merely_slow_is_not_flooded() {
    // All windows together keep the link busy for many times the first timeout.
    let faults = Faults { service: 100 * MICROSECOND, ..Faults::default() };
    let mut network = Network::new(2, 4, faults, Settings::default());
    for _ in 0..128 {
        network.connect(0, 1, 100);
    }
    let begin = network.now;
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    let took = network.now.since(begin);
    let resent = network.nodes[0].table.counters().resent;
    assert!(resent < 128, "{resent} of 12800 sent again, none was lost");
    // 12800 messages at 100 µs are 1.3 s.
    assert!(took < 2 * SECOND, "{took} ns");
}

#[test]
fn a_link_with_a_short_queue_is_shared() {
    let faults = Faults { service: 20 * MICROSECOND, queue: 100, ..Faults::default() };
    let mut network = Network::new(2, 4, faults, Settings::default());
    let users: Vec<_> = (0..16).map(|_| network.connect(0, 1, 2000)).collect();
    let begin = network.now;
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    let took = network.now.since(begin);
    // 32000 messages at 20 µs are 0.64 s.
    assert!(took < 2 * SECOND, "{took} ns");
    let resent = network.nodes[0].table.counters().resent;
    assert!(resent < 12_000, "{resent} of 32000 sent again");
    assert!(users.iter().all(|user| network.delivered(*user, 1) == 2000));
}

#[test]
fn the_window_is_never_exceeded() {
    for (mine, peers) in [(1, 256), (256, 1), (8, 64), (64, 8)] {
        let mut network = Network::new(2, 3, Faults { loss: 100, ..Faults::default() }, Settings::default());
        for (node, window) in [(0u64, mine), (1, peers)] {
            let settings = Settings {
                window_max: window,
                window_min: 1,
                window_initial: 1,
                seed: node.into(),
                ..Settings::default()
            };
            network.nodes[node as usize].table =
                uct_ud_verbs::testing::Table::new(settings, &node.to_le_bytes()).expect("in range");
        }
        let user = network.connect(0, 1, 2000);
        let done = network.run(600 * SECOND, |network| {
            let outstanding = network.nodes[0].table.outstanding(network.at(user).id);
            assert!(outstanding <= mine.min(peers), "{outstanding} outstanding");
            network.is_flushed()
        });
        assert!(done);
    }
}

#[test]
fn there_is_room_for_what_is_under_way() {
    /// What the transport keeps ready for datagrams that are no messages, at least.
    const SPARE: u32 = 32;
    let some = |loss, reorder| Faults { loss, reorder, detour: 100 * MICROSECOND, ..Faults::default() };
    for (faults, seed) in [(Faults::default(), 1), (some(10, 0), 2), (some(0, 100), 3), (some(50, 50), 4)] {
        let mut network = Network::new(3, seed, faults, Settings::default());
        network.connect(0, 1, 10_000);
        network.connect(2, 1, 3_000);
        let mut most = 0;
        let done = network.run(600 * SECOND, |network| {
            let (under_way, room) = (network.under_way(1), network.nodes[1].table.room());
            most = most.max(under_way);
            assert!(under_way <= room + SPARE, "{under_way} datagrams in flight, room for {room}");
            network.is_flushed()
        });
        assert!(done);
        assert!(most > 32 || network.faults.loss > 0, "{most} datagrams in flight at most");
    }
    let mut network = Network::new(2, 5, Faults::default(), Settings::default());
    let user = network.connect(0, 1, 1000);
    network.pass(SECOND);
    network.close(user);
    network.pass(60 * SECOND);
    assert_eq!(network.nodes[1].table.room(), 0, "a peer that is gone needs none");
}

#[test]
fn sequence_numbers_wrap_unnoticed() {
    let settings = Settings { first_psn: Some(Psn(u32::MAX - 500)), ..Settings::default() };
    let faults = Faults { loss: 50, reorder: 100, duplicate: 50, ..Faults::default() };
    let mut network = Network::new(2, 11, faults, settings);
    let left = network.connect(0, 1, 2000);
    let right = network.connect(1, 0, 2000);
    assert!(network.run(600 * SECOND, |network| network.is_flushed()));
    assert_eq!((network.delivered(left, 1), network.delivered(right, 0)), (2000, 2000));
}

#[test]
fn first_windows_fit_into_the_receivers_buffers() {
    const BUFFERS: u32 = 256;
    let settings = Settings { receives: BUFFERS, ..Settings::default() };
    for (peers, least) in [(4, 4 * 10), (64, 200), (400, 400)] {
        let mut network = Network::new(2, 3, Faults::default(), settings.clone());
        // Those of before have given their part back.
        let gone: Vec<_> = (0..100).map(|_| network.connect(0, 1, 1)).collect();
        network.pass(50 * MILLISECOND);
        gone.into_iter().for_each(|user| network.close(user));
        network.pass(20 * SECOND);
        let users: Vec<_> = (0..peers).map(|_| network.connect(0, 1, 0)).collect();
        network.pass(50 * MILLISECOND);
        users.iter().for_each(|user| network.at_mut(*user).to_send = 100);
        network.pass(0);
        let burst = network.under_way(1);
        assert!((least..=BUFFERS + peers).contains(&burst), "{burst} packets of {peers} peers");
        assert!(users.iter().all(|user| network.at(*user).sent > 0), "one packet of each at least");
        assert!(network.run(SECOND, |network| network.is_flushed()));
    }
}
