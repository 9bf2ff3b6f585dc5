//! Connections begin, end and fail as they should, whichever packet is lost.
//!
//! Built on the simulator.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::simulator::*;
use uct_ud_verbs::testing::header::kind;
use uct_ud_verbs::testing::{Discard, Failure, Header, Phase, Reason, Received, Settings, Time};

fn quiet(seed: u64) -> Network {
    Network::new(2, seed, Faults::default(), Settings::default())
}

/// Drops the first `count` datagrams of `lost`; answers where to read how many were dropped.
fn drop_first(network: &mut Network, lost: u8, count: u32) -> Rc<Cell<u32>> {
    let dropped = Rc::new(Cell::new(0));
    let counter = dropped.clone();
    network.filter = Some(Box::new(move |_, _, bytes| {
        let is_lost =
            Header::read(bytes).is_some_and(|header| header.kind() == lost) && counter.get() < count;
        counter.set(counter.get() + u32::from(is_lost));
        !is_lost
    }));
    dropped
}

fn is_gone(network: &mut Network) -> bool {
    network.nodes.iter().all(|node| node.table.is_empty())
}

#[test]
fn the_loss_of_any_kind_of_packet_is_made_good() {
    // Kind 3 is the fourth message; all others are the protocol's own.
    for lost in [kind::CONNECT, kind::CHALLENGE, kind::ACCEPT, kind::ACK, kind::PING, kind::FINISH, 0, 3] {
        for count in 1..=4 {
            let settings = Settings { window_initial: 16 * count, ..Settings::default() };
            let mut network = Network::new(2, u64::from(lost), Faults::default(), settings);
            let dropped = drop_first(&mut network, lost, count);
            let left = network.connect(0, 1, 40);
            network.pass(5 * MILLISECOND);
            let right = network.connect(1, 0, 40);
            assert!(
                network.run(5 * SECOND, |network| network.is_flushed()),
                "kind {lost:#x} lost {count} times"
            );
            let id = network.at(left).id;
            network.nodes[0].table.probe(network.now, id);
            assert!(network.run(5 * SECOND, |network| !network.nodes[0].table.is_probing(id)));
            network.close(left);
            network.close(right);
            assert!(network.run(20 * SECOND, is_gone), "kind {lost:#x} lost {count} times");
            assert_eq!(network.failures(), 0);
            assert_eq!(dropped.get(), count, "kind {lost:#x} was really lost");
        }
    }
}

#[test]
fn two_sides_that_connect_at_once_share_one_connection() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let faults = Faults { loss: random.below(300), duplicate: random.below(200), ..Faults::default() };
        let mut network = Network::new(2, seed, faults, Settings::default());
        let count = 1 + random.below(3);
        let mut users = Vec::new();
        for _ in 0..count {
            users.push(network.connect(0, 1, 20));
            network.pass(random.below(60) * MICROSECOND);
            users.push(network.connect(1, 0, 20));
            network.pass(random.below(60) * MICROSECOND);
        }
        assert!(network.run(600 * SECOND, |network| network.is_flushed()), "seed {seed}");
        for node in &network.nodes {
            assert_eq!(node.table.len() as u64, count, "seed {seed}: one connection for each pair");
        }
        users.iter().for_each(|user| network.close(*user));
        assert!(network.run(600 * SECOND, is_gone), "seed {seed}");
    }
}

#[test]
fn an_interface_may_connect_to_itself() {
    let mut network = Network::new(1, 4, Faults { loss: 100, ..Faults::default() }, Settings::default());
    let users = [network.connect(0, 0, 300), network.connect(0, 0, 300)];
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    assert!(users.iter().all(|user| network.delivered(*user, 0) == 300));
    users.iter().for_each(|user| network.close(*user));
    assert!(network.run(60 * SECOND, is_gone));
}

#[test]
fn what_was_sent_before_the_close_still_arrives() {
    for seed in 0..100 {
        let mut network =
            Network::new(2, seed, Faults { loss: 200, ..Faults::default() }, Settings::default());
        let user = network.connect(0, 1, 20);
        network.at_mut(user).close_after = true;
        assert!(network.run(60 * SECOND, is_gone), "seed {seed}");
        assert_eq!(network.delivered(user, 1), 20, "seed {seed}");
    }
}

#[test]
fn the_other_side_goes_on_when_one_side_closes() {
    let mut network = quiet(1);
    let left = network.connect(0, 1, 10);
    network.pass(MILLISECOND);
    let right = network.connect(1, 0, 10);
    network.pass(5 * MILLISECOND);
    network.close(left);
    network.pass(10 * SECOND);
    network.at_mut(right).to_send = 50;
    assert!(network.run(SECOND, |network| network.at(right).acknowledged == 50));
    assert_eq!(network.failures(), 0);
    // A new endpoint does not disturb it.
    let again = network.connect(0, 1, 30);
    network.at_mut(right).to_send = 80;
    assert!(network.run(SECOND, |network| network.is_flushed()));
    network.close(right);
    network.close(again);
    assert!(network.run(30 * SECOND, is_gone));
}

#[test]
fn a_dead_peer_is_one_failure_in_bounded_time() {
    for (messages, is_connected) in [(0, false), (100_000, true)] {
        let mut network = quiet(7);
        let user = network.connect(0, 1, messages);
        if is_connected {
            network.pass(2 * MILLISECOND);
            assert!(network.at(user).acknowledged > 0);
        }
        network.nodes[1].is_dead = true;
        let begin = network.now;
        network.pass(120 * SECOND);
        let failures = network.at(user).failures.clone();
        assert_eq!(failures.len(), 1, "once");
        assert_eq!(failures[0].1, Failure::Silent);
        let took = failures[0].0.since(begin);
        assert!((29 * SECOND..31 * SECOND).contains(&took), "{took} ns");
        let endpoint = network.at(user);
        assert_eq!(endpoint.acknowledged + endpoint.abandoned, endpoint.sent, "every buffer comes back");
        network.close(user);
        assert!(network.run(5 * SECOND, |network| network.nodes[0].table.is_empty()));
    }
}

#[test]
fn the_death_of_an_idle_peer_is_noticed_by_keepalive() {
    let mut network = quiet(8);
    let user = network.connect(0, 1, 1);
    network.pass(SECOND);
    let before = network.datagrams;
    network.pass(300 * SECOND);
    assert_eq!(network.failures(), 0);
    let asked = network.datagrams - before;
    assert!((10..80).contains(&asked), "{asked} datagrams in 300 s of idling");
    network.nodes[1].is_dead = true;
    network.pass(60 * SECOND);
    assert_eq!(network.at(user).failures.len(), 1);
}

#[test]
fn a_connection_that_nobody_owns_goes_away_when_its_peer_dies() {
    let mut network = quiet(8);
    network.connect(0, 1, 1);
    network.pass(SECOND);
    assert_eq!(network.nodes[1].table.len(), 1);
    network.nodes[0].is_dead = true;
    assert!(network.run(60 * SECOND, |network| network.nodes[1].table.is_empty()));
}

/// Who waits for a response probes already, and who expects a first message gives its peer time for it.
#[test]
fn keepalive_leaves_alone_what_is_awaited_anyway() {
    let wait = Duration::from_secs(20);
    let settings = Settings {
        timeout_initial: wait,
        timeout_min: wait,
        timeout_max: wait,
        give_up: Duration::from_secs(200),
        ..Settings::default()
    };
    // The node whose turns are looked at, and the messages that the other side has for it.
    for (node, messages) in [(0, 1), (1, 0)] {
        let mut network = Network::new(2, 8, Faults::default(), settings.clone());
        let probes = Rc::new(Cell::new(0));
        let counter = probes.clone();
        network.filter = Some(Box::new(move |from, _, bytes| {
            let is_probe = Header::read(bytes).is_some_and(|header| header.kind() == kind::PING);
            counter.set(counter.get() + u32::from(is_probe && from == node));
            true
        }));
        let user = network.connect(0, 1, messages);
        assert!(network.run(SECOND, |network| network.is_flushed() && network.at(user).connected == 1));
        network.is_down = true;
        // Each place has its turn once in 20 s, and is probed then if it was silent for 10 s.
        network.pass(15 * SECOND);
        network.at_mut(user).to_send += messages;
        network.pass(7 * SECOND);
        let id = network.nodes[node].table.ids().next().expect("a connection");
        assert_eq!((probes.get(), network.nodes[node].table.is_probing(id)), (0, false), "node {node}");
        assert_eq!(network.nodes[node].table.counters().timeouts, 0, "its own time has not come");
    }
}

#[test]
fn without_keepalive_an_idle_connection_is_silent() {
    let settings = Settings { keepalive: None, ..Settings::default() };
    let mut network = Network::new(2, 8, Faults::default(), settings);
    network.connect(0, 1, 1);
    network.pass(SECOND);
    let before = network.datagrams;
    network.pass(1000 * SECOND);
    assert_eq!(network.datagrams, before);
}

#[test]
fn a_probe_finds_a_dead_peer() {
    let settings = Settings { keepalive: None, give_up: Duration::from_secs(2), ..Settings::default() };
    let mut network = Network::new(2, 8, Faults::default(), settings);
    let user = network.connect(0, 1, 1);
    network.pass(SECOND);
    let id = network.at(user).id;
    network.nodes[0].table.probe(network.now, id);
    assert!(network.run(SECOND, |network| !network.nodes[0].table.is_probing(id)), "it lives");
    network.nodes[1].is_dead = true;
    network.nodes[0].table.probe(network.now, id);
    network.pass(3 * SECOND);
    assert_eq!(network.at(user).failures.len(), 1);
}

#[test]
fn a_link_that_comes_back_in_time_costs_nothing_but_time() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 50_000);
    network.pass(MILLISECOND);
    network.is_down = true;
    network.pass(20 * SECOND);
    network.is_down = false;
    let begin = network.now;
    assert!(network.run(60 * SECOND, |network| network.is_flushed()));
    assert!(network.now.since(begin) < 3 * SECOND);
    assert_eq!((network.failures(), network.delivered(user, 1)), (0, 50_000));
}

#[test]
fn the_window_becomes_small_at_the_third_timeout_in_a_row() {
    // The first burst on a link that comes back after so many timeouts. The whole window is acknowledged then.
    let burst = |timeouts| {
        let mut network = quiet(3);
        network.connect(0, 1, 100_000);
        network.pass(5 * MILLISECOND);
        network.is_down = true;
        assert!(network.run(20 * SECOND, |network| network.nodes[0].table.counters().timeouts == timeouts));
        network.is_down = false;
        let (mut begin, mut most) = (None, 0);
        assert!(network.run(20 * SECOND, |network| {
            let count = network.under_way(1);
            if count > 1 {
                begin.get_or_insert(network.now);
            }
            most = most.max(count);
            begin.is_some_and(|begin| network.now.since(begin) > 30 * MICROSECOND)
        }));
        most
    };
    // Back to half of the window, and no further at once.
    // The next timeout of two is the third.
    assert_eq!([0, 1, 2, 3].map(burst).map(|count| count / 100), [2, 2, 1, 1]);
}

#[test]
fn a_link_that_stays_down_fails_both_sides_once() {
    let mut network = quiet(3);
    let users = [network.connect(0, 1, 100_000), network.connect(1, 0, 100_000)];
    network.pass(MILLISECOND);
    network.is_down = true;
    network.pass(200 * SECOND);
    for user in users {
        assert_eq!(network.at(user).failures.len(), 1);
    }
}

#[test]
fn one_peers_death_does_not_touch_the_others() {
    let mut network = Network::new(5, 3, Faults { loss: 20, ..Faults::default() }, Settings::default());
    let users: Vec<_> = (1..5).map(|node| network.connect(0, node, 1_000_000)).collect();
    network.pass(5 * MILLISECOND);
    network.nodes[2].is_dead = true;
    for user in [users[0], users[2], users[3]] {
        let sent = network.at(user).sent;
        network.at_mut(user).to_send = sent + 5000;
    }
    network.pass(40 * SECOND);
    for (index, user) in users.iter().enumerate() {
        let endpoint = network.at(*user);
        assert_eq!(endpoint.failures.len(), usize::from(index == 1), "node {}", index + 1);
        assert!(index == 1 || endpoint.acknowledged == endpoint.to_send);
    }
}

#[test]
fn an_interface_that_closes_is_noticed_at_once() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 100);
    network.pass(20 * MILLISECOND);
    let now = network.now;
    network.nodes[1].table.shutdown(now);
    assert!(network.run(MILLISECOND, |network| network.failures() == 1));
    assert_eq!(network.at(user).failures[0].1, Failure::Reset);
    network.pass(SECOND);
    assert_eq!(network.failures(), 1, "once");
}

#[test]
fn a_lost_reset_is_repeated_when_the_peer_speaks() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 10);
    network.pass(20 * MILLISECOND);
    let dropped = drop_first(&mut network, kind::RESET, 1);
    let now = network.now;
    network.nodes[1].table.shutdown(now);
    network.pass(MILLISECOND);
    assert_eq!((dropped.get(), network.failures()), (1, 0));
    network.at_mut(user).to_send = 11;
    assert!(network.run(MILLISECOND, |network| network.failures() == 1));
}

#[test]
fn a_peer_of_another_version_is_refused_with_both_versions() {
    let mut network = quiet(3);
    network.filter = Some(Box::new(|from, _, bytes| {
        if from == 0 && Header::read(bytes).is_some_and(|header| header.kind() == kind::CONNECT) {
            bytes[16 + 4] = 9;
        }
        true
    }));
    let user = network.connect(0, 1, 5);
    assert!(network.run(SECOND, |network| network.failures() == 1));
    let failure = network.at(user).failures[0].1;
    assert_eq!(failure, Failure::OtherVersion(4, 0));
    assert!(failure.to_string().contains("version 4.0"), "{failure}");
    assert_eq!(network.phase(user), Phase::Failed(failure));
    network.pass(5 * SECOND);
    assert!(network.nodes[1].table.is_empty(), "nothing stays of the refused");
}

#[test]
fn requests_carry_the_address_that_the_port_has_now() {
    let mut network = quiet(1);
    let address = |node: u64| node.to_le_bytes();
    // The address that it had before: requests that carry it come from elsewhere.
    network.nodes[0].table.set_address(&address(7)).expect("a length in range");
    let user = network.connect(0, 1, 20);
    network.pass(100 * MILLISECOND);
    assert_eq!((network.at(user).connected, network.failures()), (0, 0));
    network.nodes[0].table.set_address(&address(0)).expect("a length in range");
    assert!(network.run(SECOND, |network| network.is_flushed()), "{}", network.describe());
    assert_eq!(network.delivered(user, 1), 20);
}

#[test]
fn a_full_interface_ignores_requests_and_refuses_its_own_user() {
    let settings = Settings { connections_max: 2, give_up: Duration::from_secs(1), ..Settings::default() };
    let mut network = Network::new(4, 3, Faults::default(), settings);
    for node in 1..4 {
        network.connect(node, 0, 1);
    }
    network.pass(5 * SECOND);
    assert_eq!(network.failures(), 1, "the third got no answer");
    let now = network.now;
    let refused = network.nodes[0].table.connect(now, 77, origin(1), || Ok::<_, Failure>(1)).map(|_| ());
    assert!(refused.expect_err("full").to_string().contains("2 connections"));
}

#[test]
fn a_late_copy_of_a_request_does_not_disturb_a_newer_connection() {
    let mut network = quiet(3);
    let kept = Rc::new(std::cell::RefCell::new(Vec::new()));
    let copies = kept.clone();
    network.filter = Some(Box::new(move |_, to, bytes| {
        if Header::read(bytes).is_some_and(|header| header.kind() == kind::CONNECT) {
            copies.borrow_mut().push((to, bytes.clone()));
        }
        true
    }));
    let first = network.connect(0, 1, 10);
    network.pass(20 * MILLISECOND);
    network.close(first);
    network.pass(10 * SECOND);
    let second = network.connect(1, 0, 10);
    network.pass(20 * MILLISECOND);
    for (to, bytes) in kept.borrow().iter() {
        network.nodes[*to].table.receive_control(network.now, &origin(1 - *to), bytes, |_| Some(1 - *to));
    }
    network.at_mut(second).to_send = 100;
    assert!(network.run(SECOND, |network| network.at(second).acknowledged == 100));
    assert_eq!(network.failures(), 0);
    assert_eq!(network.nodes[1].table.len(), 1, "the copy made no connection of its own");
}

#[test]
fn a_connection_that_is_ending_is_not_taken_for_a_new_endpoint() {
    let mut network = quiet(3);
    let left = network.connect(0, 1, 5);
    network.pass(20 * MILLISECOND);
    network.close(left);
    // The goodbye of node 0 arrives; that of node 1, and all that it says after, does not.
    network.filter = Some(Box::new(|from, _, _| from == 0));
    network.pass(5 * MILLISECOND);
    let right = network.connect(1, 0, 10);
    network.filter = None;
    assert!(network.run(5 * SECOND, |network| network.at(right).acknowledged == 10));
    network.close(right);
    assert!(network.run(30 * SECOND, is_gone));
}

#[test]
fn a_connection_whose_end_has_just_arrived_is_not_taken_for_a_new_endpoint() {
    let mut network = quiet(3);
    let left = network.connect(0, 1, 5);
    network.pass(20 * MILLISECOND);
    let finish = Rc::new(std::cell::RefCell::new(Vec::new()));
    let caught = finish.clone();
    network.filter = Some(Box::new(move |_, _, bytes| {
        let is_finish = Header::read(bytes).is_some_and(|header| header.kind() == kind::FINISH);
        if is_finish {
            caught.replace(bytes.clone());
        }
        !is_finish
    }));
    network.close(left);
    network.pass(MILLISECOND);
    // It arrives, and before this side has said anything to it, its user connects.
    let bytes = finish.take();
    let header = Header::read(&bytes).expect("a whole header");
    let now = network.now;
    let received = network.nodes[1].table.receive(now, &origin(0), header, bytes);
    assert!(matches!(received, Received::Discard(Some(_), _, Discard::Consumed)), "{received:?}");
    network.filter = None;
    let right = network.connect(1, 0, 10);
    assert_eq!(network.nodes[1].table.len(), 2, "a new connection");
    assert!(network.run(5 * SECOND, |network| network.at(right).acknowledged == 10));
    network.close(right);
    assert!(network.run(30 * SECOND, is_gone));
}

#[test]
fn giving_up_is_not_put_off_by_the_back_off() {
    let settings = Settings { timeout_max: Duration::from_secs(20), ..Settings::default() };
    let mut network = Network::new(2, 3, Faults::default(), settings);
    let user = network.connect(0, 1, 100_000);
    network.pass(2 * MILLISECOND);
    network.nodes[1].is_dead = true;
    let begin = network.now;
    network.pass(60 * SECOND);
    let took = network.at(user).failures[0].0.since(begin);
    assert!((29 * SECOND..31 * SECOND).contains(&took), "{took} ns");
}

#[test]
fn each_wait_is_a_quarter_longer_for_an_answer_to_a_request_and_half_for_an_acknowledgement() {
    let wait = Duration::from_millis(10);
    let settings = Settings {
        timeout_initial: wait,
        timeout_min: wait,
        timeout_max: Duration::from_secs(5),
        ..Settings::default()
    };
    // Milliseconds of the first ten waits, each of which is shortened by up to a half.
    let ten = |is_connected: bool| {
        let mut network = Network::new(2, 3, Faults::default(), settings.clone());
        network.connect(0, 1, 100_000);
        if is_connected {
            network.pass(5 * MILLISECOND);
        }
        network.is_down = true;
        let begin = network.now;
        assert!(network.run(20 * SECOND, |network| network.nodes[0].table.counters().timeouts == 10));
        network.now.since(begin) / MILLISECOND
    };
    let longest = |first: f64, growth: f64| (0..10).map(|count| first * growth.powi(count)).sum::<f64>();
    for (is_connected, longest) in [(false, longest(5.0, 1.25)), (true, longest(10.0, 1.5))] {
        let took = ten(is_connected) as f64;
        assert!((longest / 2.0..=longest).contains(&took), "{is_connected}: {took} of {longest} ms");
    }
}

#[test]
fn a_process_that_was_asleep_does_not_take_its_peers_for_dead() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 100_000);
    network.pass(2 * MILLISECOND);
    // Nothing of node 0 moves for longer than it waits for others: its process was stopped.
    network.nodes[0].is_dead = true;
    network.pass(20 * SECOND);
    let now = network.now;
    network.nodes[0].is_dead = false;
    network.nodes[0].table.handle_timeout(now.plus(40 * SECOND));
    network.now = now.plus(40 * SECOND);
    network.at_mut(user).to_send = network.at(user).sent + 10;
    assert!(network.run(20 * SECOND, |network| network.is_flushed()));
    assert_eq!(network.failures(), 0);
}

#[test]
fn a_refused_access_fails_both_sides_with_the_reason_even_if_the_word_is_lost() {
    let mut network = quiet(3);
    let left = network.connect(0, 1, 10);
    network.pass(5 * MILLISECOND);
    let right = network.connect(1, 0, 10);
    network.pass(5 * MILLISECOND);
    drop_first(&mut network, kind::RESET, 2);
    let (now, id) = (network.now, network.at(right).id);
    network.nodes[1].table.refuse(now, id, Reason::ACCESS);
    network.at_mut(left).to_send = 20;
    assert!(network.run(5 * SECOND, |network| network.failures() == 2));
    assert_eq!(network.at(right).failures[0].1, Failure::AccessForbidden);
    assert_eq!(network.at(left).failures[0].1, Failure::AccessRefused);
    let endpoint = network.at(left);
    assert_eq!((endpoint.acknowledged, endpoint.abandoned), (10, 10), "nothing was acknowledged after it");
}

#[test]
fn a_message_that_acknowledges_what_was_never_sent_is_thrown_away() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 10);
    network.pass(20 * MILLISECOND);
    let mut is_first = true;
    network.filter = Some(Box::new(move |from, _, bytes| {
        if from == 0 && std::mem::take(&mut is_first) {
            bytes[12] ^= 0x80;
        }
        true
    }));
    network.at_mut(user).to_send = 11;
    network.pass(MILLISECOND);
    assert_eq!(network.delivered(user, 1), 10);
    assert_eq!(network.nodes[1].table.counters().discarded, 1);
    assert!(network.run(SECOND, |network| network.at(user).acknowledged == 11));
}

#[test]
fn what_waited_on_a_connection_that_fails_leaves_its_place_to_others() {
    let settings = Settings { held_max: 4, ..Settings::default() };
    let mut network = Network::new(2, 3, Faults::default(), settings);
    for round in 1..=5 {
        // The first message of each connection is lost for good, so that the next ones wait for it.
        network.filter =
            Some(Box::new(|_, _, bytes| Header::read(bytes).is_none_or(|header| header.kind() != 0)));
        network.connect(0, 1, 8);
        network.pass(5 * MILLISECOND);
        assert_eq!(network.nodes[1].table.counters().reordered, 4 * round, "round {round}");
        let now = network.now;
        network.nodes[0].table.shutdown(now);
        assert!(network.run(10 * SECOND, |network| network.nodes[1].table.is_empty()), "round {round}");
    }
}

#[test]
fn a_thousand_idle_connections_cost_nothing_to_wait_for() {
    let mut network =
        Network::new(2, 3, Faults::default(), Settings { keepalive: None, ..Settings::default() });
    for _ in 0..1000 {
        network.connect(0, 1, 1);
    }
    assert!(network.run(10 * SECOND, |network| network.is_flushed()));
    network.pass(SECOND);
    assert_eq!(network.nodes[0].table.next_timeout(), Time::NEVER);
}

#[test]
fn a_connection_that_a_peer_made_is_probed_only_if_nothing_arrives_on_it() {
    for (messages, probes) in [(0, 1), (1, 0)] {
        let settings = Settings { keepalive: None, ..Settings::default() };
        let mut network = Network::new(2, 3, Faults::default(), settings);
        let sent = Rc::new(Cell::new(0));
        let counter = sent.clone();
        network.filter = Some(Box::new(move |_, _, bytes| {
            let is_probe = Header::read(bytes).is_some_and(|header| header.kind() == kind::PING);
            counter.set(counter.get() + u32::from(is_probe));
            true
        }));
        network.connect(0, 1, messages);
        network.pass(14 * SECOND);
        assert_eq!(sent.get(), 0, "{messages} messages");
        network.pass(60 * SECOND);
        assert_eq!((sent.get(), network.nodes[1].table.len()), (probes, 1), "{messages} messages");
    }
}

#[test]
fn before_a_sleep_the_next_deadline_is_known_to_a_tick() {
    const TICK: u64 = 4096;
    let mut network =
        Network::new(2, 3, Faults::default(), Settings { keepalive: None, ..Settings::default() });
    let users: Vec<_> = (0..20).map(|_| network.connect(0, 1, 5)).collect();
    assert!(network.run(5 * MILLISECOND, |network| network.is_flushed()));
    network.is_down = true;
    network.at_mut(users[7]).to_send += 1;
    network.pass(MICROSECOND);
    let now = network.now;
    let table = &mut network.nodes[0].table;
    let deadline = table.refresh_timeout();
    assert!(deadline.since(now) > 2 * MILLISECOND, "what is acknowledged does not count");
    assert_eq!(table.refresh_timeout(), deadline);
    table.handle_timeout(Time::from_nanos(deadline.as_nanos() - 1));
    assert_eq!(table.counters().timeouts, 0, "it is not due");
    table.handle_timeout(deadline.plus(TICK));
    assert_eq!(table.counters().timeouts, 1);
}

#[test]
fn before_a_sleep_acknowledgements_do_not_wait() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 1);
    assert!(network.run(5 * MILLISECOND, |network| network.is_flushed()));
    let before = network.nodes[1].table.counters().acknowledgements;
    network.at_mut(user).to_send = 2;
    assert!(network.run(MILLISECOND, |network| network.delivered(user, 1) == 2));
    let now = network.now;
    let table = &mut network.nodes[1].table;
    assert_eq!((table.has_output(), table.counters().acknowledgements), (false, before));
    table.acknowledge_now(now);
    assert!(table.has_output());
    network.pass(0);
    assert_eq!(network.nodes[1].table.counters().acknowledgements, before + 1);
}

#[test]
fn an_acknowledgement_is_requested_only_of_what_is_outstanding() {
    let mut network = quiet(3);
    let user = network.connect(0, 1, 1);
    assert!(network.run(5 * MILLISECOND, |network| network.is_flushed()));
    network.pass(20 * MILLISECOND);
    let id = network.at(user).id;
    let table = &mut network.nodes[0].table;
    table.request_ack(id);
    assert!(!table.has_output(), "all is acknowledged");
    network.is_down = true;
    network.at_mut(user).to_send += 1;
    network.pass(MICROSECOND);
    let table = &mut network.nodes[0].table;
    assert!(!table.has_output());
    table.request_ack(id);
    assert!(table.has_output(), "a message is outstanding");
}
