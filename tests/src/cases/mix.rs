//! Random operations of all kinds, interleaved, against a model; and the same for longer, with an eye on memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use uct_host::{AmId, AtomicOp, Capabilities, Completion, Error, Fetched, Flush, Memory, RemoteKey};

use super::case;
use crate::access::{Started, Way};
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Inbox, Link, Pair, connect};
use crate::random::{Random, check_bytes, pattern};
use crate::remote::{Peer, Process};
use crate::setup::Setup;

/// Places in the target's memory, each of which is the object of at most one operation at a time.
const PLACES: usize = 24;
/// Bytes of each; the first 8 are aligned, so that atomics fit.
const PLACE: usize = 4096;

/// One endpoint, the memory it works on, and what both should hold.
struct Lane {
    link: Link,
    _back: Link,
    id: AmId,
    inbox: Inbox,
    messages: VecDeque<Vec<u8>>,
    sends: Completion,
    memory: Option<(Memory, RemoteKey)>,
    model: Vec<u8>,
    busy: Vec<Option<Work>>,
}

/// What goes on at a place.
enum Work {
    /// Reads these bytes.
    Get(Started, Vec<u8>),
    /// Writes; it is visible once a flush behind it is done.
    Put(Completion),
    /// Returns this old value.
    Fetch(Completion, Fetched, u64),
}

impl Work {
    fn completion(&self) -> &Completion {
        match self {
            Work::Get(started, _) => &started.completion,
            Work::Put(completion) | Work::Fetch(completion, ..) => completion,
        }
    }
}

impl Lane {
    fn new(pair: &Pair, id: AmId, seed: u64) -> Lane {
        let (link, back) = connect(&pair.sender, &pair.receiver);
        let model = pattern(seed, PLACES * PLACE);
        let memory = (!Way::of(&pair.sender).is_empty()).then(|| {
            let memory = pair.receiver.allocate(PLACES * PLACE);
            memory.write(0, &model);
            let key = pair.sender.key_to(&memory);
            (memory, key)
        });
        Lane {
            link,
            _back: back,
            id,
            inbox: pair.receiver.inbox(id),
            messages: VecDeque::new(),
            sends: pair.sender.completion(),
            memory,
            model,
            busy: (0..PLACES).map(|_| None).collect(),
        }
    }

    /// Starts something at random; nothing where there is no room.
    fn act(&mut self, pair: &Pair, random: &mut Random) {
        match random.below(40) {
            0..18 => self.send(pair, random),
            18..32 => self.access(pair, random),
            32..38 => self.atomic(pair, random),
            38 => pair.retry("a fence", || self.link.fence()).expect("a fence"),
            _ => self.settle(pair),
        }
        self.receive();
    }

    fn send(&mut self, pair: &Pair, random: &mut Random) {
        let flavour = *random.pick(&Flavour::of(&pair.sender));
        let (least, most) = flavour.limits(pair.sender.attributes());
        let most = most.min(if random.below(30) == 0 { 60_000 } else { 500 }).max(least);
        let bytes = pattern(random.next(), least + random.below(most - least + 1));
        match flavour.send(&pair.sender, &self.link, self.id, &bytes, &self.sends) {
            Ok(_) => self.messages.push_back(bytes),
            Err(Error::NO_RESOURCE) => {}
            Err(error) => panic!("{flavour:?} of {} bytes: {error}", bytes.len()),
        }
    }

    fn access(&mut self, pair: &Pair, random: &mut Random) {
        let place = random.below(PLACES);
        let Some((memory, key)) = self.memory.as_ref().filter(|_| self.busy[place].is_none()) else { return };
        let way = *random.pick(&Way::of(&pair.sender));
        let (least, most) = way.limits(pair.sender.attributes());
        let length = least.max(random.below(PLACE.min(most) + 1));
        let start = place * PLACE + random.below(PLACE - length + 1);
        let data = pattern(random.next(), length);
        let there = &mut self.model[start..start + length];
        let work = match way.start(&pair.sender, &self.link, &data, memory.address() + start as u64, key) {
            Err(Error::NO_RESOURCE) => return,
            Err(error) => panic!("{way:?} of {length} bytes: {error}"),
            Ok(started) if way.is_put() => {
                there.copy_from_slice(&data);
                Work::Put(started.completion)
            }
            Ok(started) => Work::Get(started, there.to_vec()),
        };
        self.busy[place] = Some(work);
    }

    fn atomic(&mut self, pair: &Pair, random: &mut Random) {
        let place = random.below(PLACES);
        let Some((memory, key)) = self.memory.as_ref().filter(|_| self.busy[place].is_none()) else { return };
        let ops = pair.sender.attributes().atomic64;
        let op = *random.pick(&[AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor]);
        let value = random.next();
        let cell = &mut self.model[place * PLACE..place * PLACE + 8];
        let old = u64::from_le_bytes((&*cell).try_into().expect("8 bytes"));
        let new = match op {
            AtomicOp::Add => old.wrapping_add(value),
            AtomicOp::And => old & value,
            AtomicOp::Or => old | value,
            _ => old ^ value,
        };
        let remote = memory.address() + (place * PLACE) as u64;
        let completion = pair.sender.completion();
        let fetches = random.below(2) == 0 && ops.fetch & op.bit() != 0;
        let answer = if fetches {
            self.link.atomic64_fetch(op, value, remote, key, &completion).map(Some)
        } else if ops.post & op.bit() != 0 {
            self.link.atomic64_post(op, value, remote, key).map(|()| None)
        } else {
            return;
        };
        let fetched = match answer {
            Ok(fetched) => fetched,
            Err(Error::NO_RESOURCE) => return,
            Err(error) => panic!("{op:?}: {error}"),
        };
        cell.copy_from_slice(&new.to_le_bytes());
        self.busy[place] = Some(match fetched {
            Some(fetched) => Work::Fetch(completion, fetched, old),
            None => Work::Put(completion),
        });
    }

    /// Compares what arrived, and what ended, with the model.
    fn receive(&mut self) {
        while let Some(message) = self.inbox.take() {
            let expected = self.messages.pop_front().expect("a message that nobody sent");
            check_bytes("a message", &message, &expected);
        }
        for place in &mut self.busy {
            match place.take_if(|work| !matches!(work, Work::Put(_)) && work.completion().is_done()) {
                Some(Work::Get(started, expected)) => {
                    started.completion.result().expect("a get");
                    check_bytes("what was read", &started.read(), &expected);
                }
                Some(Work::Fetch(completion, fetched, old)) => {
                    completion.result().expect("an atomic");
                    assert_eq!(
                        fetched.old_value(&completion),
                        old,
                        "an atomic brought another value than was there"
                    );
                    // It is done at the peer, too, so the place is free.
                }
                Some(Work::Put(_)) | None => {}
            }
        }
    }

    /// Waits until all that was started is done at the peer.
    fn settle(&mut self, pair: &Pair) {
        pair.until("what is outstanding", || {
            self.busy.iter().flatten().all(|work| work.completion().is_done()) && self.sends.is_done()
        });
        self.sends.result().expect("the sends");
        pair.flush(&self.link, Flush::REMOTE).expect("a flush");
        self.receive();
        for place in &mut self.busy {
            if let Some(Work::Put(completion)) = place.take() {
                completion.result().expect("a put");
            }
        }
    }

    /// Nothing is missing, and the memory is the model's.
    fn finish(&mut self, pair: &Pair) {
        self.settle(pair);
        pair.until("all messages", || {
            self.receive();
            self.messages.is_empty()
        });
        if let Some((memory, _)) = &self.memory {
            check_bytes("memory in the end", &memory.to_vec()[..self.model.len()], &self.model);
        }
        self.link.check_alive();
    }
}

fn lanes(pair: &Pair, count: u8, seed: u64) -> Vec<Lane> {
    (0..count).map(|id| Lane::new(pair, AmId::new(id).expect("an id"), seed + u64::from(id))).collect()
}

fn ten_thousand(setup: &Setup) {
    let pair = Pair::new(setup);
    let mut random = setup.random();
    let mut lanes = lanes(&pair, 4, setup.seed);
    for _ in 0..10_000 {
        let lane = random.below(lanes.len());
        lanes[lane].act(&pair, &mut random);
        if random.below(4) == 0 {
            pair.progress();
        }
    }
    for lane in &mut lanes {
        lane.finish(&pair);
    }
}

/// Kilobytes of memory that this process has in use.
fn resident() -> usize {
    let statistics = std::fs::read_to_string("/proc/self/statm").expect("the statistics of this process");
    let pages: usize =
        statistics.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() / 1024
}

fn soak(setup: &Setup) {
    // In a process of its own, since memory is counted by process.
    let mut process = Process::start(setup);
    process.finish_within(setup.soak() + Duration::from_secs(60));
}

/// Kilobytes that the process may grow by in the second half; allocators round.
const GROWTH: usize = 4096;

fn soaking(setup: &Setup, _peer: &mut Peer) {
    let pair = Pair::new(setup);
    let mut random = setup.random();
    let mut all = lanes(&pair, 8, setup.seed);
    let start = Instant::now();
    let mut half = None;
    let mut count = 0_u64;
    while start.elapsed() < setup.soak() {
        for _ in 0..500 {
            let lane = random.below(all.len());
            all[lane].act(&pair, &mut random);
            if random.below(4) == 0 {
                pair.progress();
            }
        }
        count += 500;
        // Endpoints come and go, too.
        let lane = random.below(all.len());
        all[lane].finish(&pair);
        all[lane] = Lane::new(&pair, AmId::new(lane as u8).expect("an id"), count);
        if half.is_none() && start.elapsed() * 2 > setup.soak() {
            half = Some(resident());
        }
    }
    all.iter_mut().for_each(|lane| lane.finish(&pair));
    let (half, end) = (half.expect("half of the time has passed"), resident());
    let found = format!("{count} operations: {half} kB in use at half time, {end} kB in the end");
    assert!(end <= half + GROWTH, "{found}");
    eprintln!("{found}");
}

const MESSAGES: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case("ten thousand random operations of all kinds do what a model does", MESSAGES, ten_thousand),
    Case {
        peer: Some(soaking),
        ..case("random operations over eight endpoints for some time need no more memory", MESSAGES, soak)
    },
];
