//! Random operations over a network that loses, doubles, delays and damages packets, by seed: each ends exactly once, with
//! the right bytes.

use std::collections::VecDeque;

use fastrand::Rng;
use uct_ib_soft::engine::{
    Atomic, FaultPlan, Incident, Moment, Personality, QpState, SendData, SendKind, SendRequest, Status, Which,
};

use crate::net::{MTU, Pair, SECOND, Setup, request};

/// Operations of each side of a seed.
const OPERATIONS: usize = 24;
/// Bytes of memory that an operation has for itself, on both sides.
const SLOT: usize = 5 * MTU as usize;
/// Where the other side's atomics count.
const COUNTER: usize = 4 * OPERATIONS * SLOT;

/// What an operation has to have done in the end.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Message(usize),
    Written(usize),
    Read(usize),
    Added(u64),
}

/// Parts of each side's memory: what it sends from, what it reads into, what the peer writes and reads, receive buffers.
fn slot(part: usize, index: usize) -> usize {
    (part * OPERATIONS + index) * SLOT
}

fn pattern(side: usize, index: usize) -> u8 {
    (side * 97 + index * 3 + 1) as u8
}

struct Plan {
    expected: Vec<Expected>,
    requests: VecDeque<SendRequest>,
}

fn plan(pair: &mut Pair, side: usize, random: &mut Rng) -> Plan {
    let mut plan = Plan { expected: Vec::new(), requests: VecDeque::new() };
    let mut messages = 0;
    for index in 0..OPERATIONS {
        let length = random.usize(0..=SLOT);
        let own = slot(0, index);
        pair.sides[side].memory[own..own + length].fill(pattern(side, index));
        let remote = slot(2, index);
        pair.sides[1 - side].memory[remote..remote + SLOT].fill(pattern(1 - side, index) ^ 0xff);
        let data = |pair: &Pair, part| SendData::Pieces(pair.sides[side].pieces(slot(part, index), length));
        let (kind, data, expected) = match random.u8(0..4) {
            0 => {
                messages += 1;
                (SendKind::Send, data(pair, 0), Expected::Message(length))
            }
            1 => (
                SendKind::Write(pair.sides[1 - side].target(remote)),
                data(pair, 0),
                Expected::Written(length),
            ),
            2 => (SendKind::Read(pair.sides[1 - side].target(remote)), data(pair, 1), Expected::Read(length)),
            _ => {
                let add = random.u64(1..1000);
                let kind = SendKind::Atomic(pair.sides[1 - side].target(COUNTER), Atomic::Add(add));
                let data = SendData::Pieces(pair.sides[side].pieces(slot(1, index), 8));
                (kind, data, Expected::Added(add))
            }
        };
        plan.expected.push(expected);
        let is_fenced = random.u8(0..4) == 0;
        plan.requests.push_back(SendRequest { is_fenced, ..request(index as u64, kind, data) });
    }
    (0..messages).for_each(|index| pair.receive(1 - side, 1000 + index as u64, slot(3, index), SLOT));
    plan
}

/// Runs the plans of a seed; the completions of the sends of each side, in order.
fn run(pair: &mut Pair, plans: &mut [Plan; 2], random: &mut Rng) -> [Vec<(u64, Status)>; 2] {
    let mut ended = [Vec::new(), Vec::new()];
    let mut received = [0, 0];
    let limit = pair.net.now() + 3600 * SECOND;
    while ended.iter().any(|ended| ended.len() < OPERATIONS) {
        for (side, plan) in plans.iter_mut().enumerate() {
            for _ in 0..random.usize(0..4) {
                if let Some(request) = plan.requests.pop_front() {
                    pair.post(side, request).expect("there is room");
                }
            }
            while let Some(completion) = pair.poll(side) {
                if completion.wr_id < 1000 {
                    ended[side].push((completion.wr_id, completion.status));
                } else if completion.status == Status::Success {
                    assert_eq!(completion.wr_id, 1000 + received[side], "messages arrive in order");
                    received[side] += 1;
                }
            }
        }
        let until = pair.net.now() + random.u64(1..50_000);
        pair.net.run_until(until - pair.net.now(), |_| false);
        assert!(pair.net.now() < limit, "hangs: {ended:?}");
    }
    ended
}

fn check(pair: &Pair, plans: &[Plan; 2], seed: u64) {
    for (side, plan) in plans.iter().enumerate() {
        let (own, peer) = (&pair.sides[side].memory, &pair.sides[1 - side].memory);
        let (mut message, mut sum) = (0, 0);
        for (index, expected) in plan.expected.iter().enumerate() {
            let same = |bytes: &[u8], value| bytes.iter().all(|byte| *byte == value);
            let is_right = match *expected {
                Expected::Message(length) => {
                    let begin = slot(3, message);
                    message += 1;
                    same(&peer[begin..begin + length], pattern(side, index))
                }
                Expected::Written(length) => {
                    let begin = slot(2, index);
                    same(&peer[begin..begin + length], pattern(side, index))
                        && same(&peer[begin + length..begin + SLOT], pattern(1 - side, index) ^ 0xff)
                }
                Expected::Read(length) => {
                    let begin = slot(1, index);
                    same(&own[begin..begin + length], pattern(1 - side, index) ^ 0xff)
                }
                Expected::Added(add) => {
                    let begin = slot(1, index);
                    let found = u64::from_ne_bytes(own[begin..begin + 8].try_into().expect("eight"));
                    let was = sum;
                    sum += add;
                    found == was
                }
            };
            assert!(is_right, "seed {seed}, side {side}, operation {index}: {expected:?}");
        }
        let counted = u64::from_ne_bytes(peer[COUNTER..COUNTER + 8].try_into().expect("eight"));
        assert_eq!(counted, sum, "seed {seed}: atomics of side {side}");
    }
}

fn seeds() -> u64 {
    std::env::var("SOFTVERBS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

#[test]
fn every_operation_ends_once_with_the_right_bytes_though_a_fifth_of_the_packets_is_lost() {
    for seed in 0..seeds() {
        let mut random = Rng::with_seed(seed);
        let share = f64::from(random.u32(0..=20)) / 100.0;
        let mut pair = Setup { personality: Personality::Rxe, ..Setup::lossy(seed, share) }.pair();
        let mut plans = [0, 1].map(|side| plan(&mut pair, side, &mut random));
        let ended = run(&mut pair, &mut plans, &mut random);
        for ended in ended {
            let expected: Vec<_> = (0..OPERATIONS as u64).map(|wr_id| (wr_id, Status::Success)).collect();
            assert_eq!(ended, expected, "seed {seed}");
        }
        check(&pair, &plans, seed);
    }
}

#[test]
fn every_operation_ends_once_though_the_cable_is_cut_at_some_moment() {
    for seed in 0..seeds() {
        let mut random = Rng::with_seed(!seed);
        let mut pair = Setup::lossy(seed, f64::from(random.u32(0..=20)) / 100.0).pair();
        let mut plans = [0, 1].map(|side| plan(&mut pair, side, &mut random));
        for (side, plan) in plans.iter_mut().enumerate() {
            for request in plan.requests.drain(..) {
                pair.post(side, request).expect("there is room");
            }
        }
        let cut = random.u64(1..100_000);
        pair.net.run_until(cut, |_| false);
        pair.net.is_cut = true;
        let ended = run(&mut pair, &mut plans, &mut random);
        for (side, ended) in ended.iter().enumerate() {
            let order: Vec<u64> = ended.iter().map(|end| end.0).collect();
            assert_eq!(order, (0..OPERATIONS as u64).collect::<Vec<_>>(), "seed {seed}");
            let good = ended.iter().take_while(|end| end.1 == Status::Success).count();
            if good < OPERATIONS {
                let is_failure = matches!(
                    ended[good].1,
                    Status::RetryExceeded | Status::RnrRetryExceeded | Status::Flushed
                );
                assert!(is_failure, "seed {seed}: {:?}", ended[good]);
                assert!(
                    ended[good + 1..].iter().all(|end| end.1 == Status::Flushed),
                    "seed {seed}: {ended:?}"
                );
                assert_eq!(pair.state(side), QpState::Error);
            }
        }
    }
}

#[test]
fn long_transfers_arrive_whole_though_a_tenth_of_the_packets_is_lost() {
    let length = 600 * MTU as usize;
    for seed in 0..seeds() / 8 {
        let mut pair = Setup { personality: Personality::Rxe, ..Setup::lossy(seed, 0.1) }.pair();
        let mut random = Rng::with_seed(seed);
        pair.sides[0].memory.iter_mut().for_each(|byte| *byte = random.u8(..));
        let data = SendData::Pieces(pair.sides[0].pieces(0, length));
        pair.post(0, request(1, SendKind::Write(pair.sides[1].target(8)), data)).expect("posted");
        assert_eq!(pair.wait(0).status, Status::Success);
        assert_eq!(pair.sides[0].memory[..length], pair.sides[1].memory[8..8 + length], "seed {seed}");
        pair.sides[0].memory.fill(0);
        let data = SendData::Pieces(pair.sides[0].pieces(16, length));
        pair.post(0, request(2, SendKind::Read(pair.sides[1].target(8)), data)).expect("posted");
        assert_eq!(pair.wait(0).status, Status::Success);
        assert_eq!(pair.sides[0].memory[16..16 + length], pair.sides[1].memory[8..8 + length], "seed {seed}");
    }
}

#[test]
fn every_operation_ends_once_though_requests_and_queue_pairs_fail_by_plan() {
    let mut failed = 0;
    for seed in 0..seeds() / 2 {
        let mut random = Rng::with_seed(seed.rotate_left(17));
        let mut pair = Setup::lossy(seed, f64::from(random.u32(0..=10)) / 100.0).pair();
        let mut plans = [0, 1].map(|side| plan(&mut pair, side, &mut random));
        for side in 0..2 {
            let status = Status::FAILURES[random.usize(0..Status::FAILURES.len())].0;
            let moment = match random.u8(0..3) {
                0 => Moment::Send(random.u64(1..50)),
                _ => Moment::Time(random.u64(1..200_000)),
            };
            let incidents = [Incident::KillQp, Incident::QpAccessError, Incident::CommunicationEstablished];
            let incidents = vec![(moment, incidents[random.usize(0..3)])];
            let (sends, receives) = (vec![(Which::Share(0.02), status)], vec![(Which::Share(0.02), status)]);
            pair.net.device(side).plan(FaultPlan {
                seed,
                sends,
                receives,
                incidents,
                ..FaultPlan::default()
            });
        }
        let ended = run(&mut pair, &mut plans, &mut random);
        for (side, ended) in ended.iter().enumerate() {
            let order: Vec<u64> = ended.iter().map(|end| end.0).collect();
            assert_eq!(order, (0..OPERATIONS as u64).collect::<Vec<_>>(), "seed {seed}, side {side}");
            let good = ended.iter().take_while(|end| end.1 == Status::Success).count();
            failed += usize::from(good < OPERATIONS);
            let rest = ended.iter().skip(good + 1);
            assert!(rest.clone().all(|end| end.1 == Status::Flushed), "seed {seed}: {ended:?}");
        }
    }
    assert!(failed > 0, "nothing went wrong");
}
