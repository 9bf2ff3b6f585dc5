//! Questions to every other process, and answers to theirs.
//!
//! For `process`. Built on `uct-core` as an application does. A question is a message of random length whose contents
//! follow from who asks whom, and which question it is; the answer is a sum of what arrived. So both sides notice what is
//! lost, twice there, out of order, or altered.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use uct_conformance::random::{Random, pattern};
use uct_core::{AmId, AmMessage, Ep, Error, Iface, IfaceAddress, SendFlags};

use crate::report::{Report, median, now};

const QUESTION: AmId = AmId::new(1).unwrap();
const ANSWER: AmId = AmId::new(2).unwrap();

/// Questions to one peer that may be open.
const WINDOW: usize = 16;
/// Questions to one peer in a brief talk.
pub const BRIEF_QUESTIONS: u64 = 20;
/// Longest of them.
const BRIEF: usize = 32;
/// Longest question.
const LONGEST: usize = 6000;
/// Where the asker's number begins in a header; below it is the number of the question.
const ASKER: u32 = 48;

/// One process and its peers.
pub struct Mesh {
    /// Whether it asks.
    pub asks: bool,
    /// Whether it asks a few short questions only.
    pub is_brief: bool,
    iface: Iface,
    index: usize,
    lanes: Vec<Option<Lane>>,
    heard: Rc<RefCell<Heard>>,
    random: Random,
    waits_for_room: bool,
}

/// The way to one peer.
struct Lane {
    ep: Ep,
    alive: bool,
    asked: u64,
    answered: u64,
    /// Sums that the next answers have to have.
    open: VecDeque<u64>,
}

/// What handlers leave for the next round.
#[derive(Default)]
struct Heard {
    /// How many questions of each peer came.
    questions: Vec<u64>,
    /// Answers to be sent: to whom, header, sum.
    owed: VecDeque<(usize, u64, u64)>,
    /// Returns that came: from whom, which, sum.
    answers: VecDeque<(usize, u64, u64)>,
    /// Peers whose endpoint failed, and when.
    failed: Vec<(usize, u64)>,
    /// How many of those were dealt with.
    failures_seen: usize,
    /// The first thing that was wrong.
    problem: Option<String>,
}

impl Mesh {
    /// Without peers yet.
    pub fn new(iface: Iface, index: usize, count: usize) -> Mesh {
        let heard = Rc::new(RefCell::new(Heard { questions: vec![0; count], ..Heard::default() }));
        let place = Rc::clone(&heard);
        iface.set_am_handler(QUESTION, move |message| place.borrow_mut().question(index, &message));
        let place = Rc::clone(&heard);
        iface.set_am_handler(ANSWER, move |message| place.borrow_mut().answer(&message));
        Mesh {
            asks: false,
            is_brief: true,
            iface,
            index,
            lanes: (0..count).map(|_| None).collect(),
            heard,
            random: Random::new(index as u64),
            waits_for_room: false,
        }
    }

    /// Connects to a peer.
    pub fn connect(&mut self, peer: usize, address: &IfaceAddress) -> Result<(), String> {
        let heard = Rc::clone(&self.heard);
        let failed = move |_| heard.borrow_mut().failed.push((peer, now()));
        let ep = self.iface.connect_with(address, failed).map_err(|refused| refused.to_string())?;
        self.lanes[peer] = Some(Lane { ep, alive: true, asked: 0, answered: 0, open: VecDeque::new() });
        Ok(())
    }

    /// The endpoints to those that are alive.
    pub fn endpoints(&self) -> Vec<Ep> {
        self.alive().map(|lane| lane.ep.clone()).collect()
    }

    /// Whether a message found no room in the last round.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Whether there is an answer to every question to a peer that is alive, the first ones included.
    pub fn all_are_answered(&self) -> bool {
        let owed = &self.heard.borrow().owed;
        owed.is_empty() && self.alive().all(|lane| lane.asked > 0 && lane.open.is_empty())
    }

    /// Deals with what came, and sends what there is room for; whether anything happened.
    pub fn advance(&mut self) -> Result<bool, String> {
        self.waits_for_room = false;
        let mut moved = self.take_failures();
        moved |= self.take_answers()?;
        moved |= self.give_answers()?;
        let first = self.alive().any(|lane| lane.asked == 0);
        if self.asks || first {
            moved |= self.ask(first && !self.asks)?;
        }
        Ok(moved)
    }

    /// What this knows of a report.
    pub fn report(&self) -> Report {
        let heard = self.heard.borrow();
        Report {
            answered: self.lanes.iter().flatten().map(|lane| lane.answered).sum(),
            least_answered: self.alive().map(|lane| lane.answered).min().unwrap_or(0),
            median_answered: median(self.alive().map(|lane| lane.answered)),
            failures: heard.failed.len() as u64,
            failed: heard.failed.first().map_or(0, |(peer, _)| *peer as u64),
            failed_at: heard.failed.first().map_or(0, |(_, at)| *at),
            ..Report::default()
        }
    }

    fn alive(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flatten().filter(|lane| lane.alive)
    }

    fn take_failures(&mut self) -> bool {
        let mut heard = self.heard.borrow_mut();
        let heard = &mut *heard;
        let new = &heard.failed[heard.failures_seen..];
        for &(peer, _) in new {
            if let Some(lane) = &mut self.lanes[peer] {
                lane.alive = false;
                lane.open.clear();
            }
            heard.owed.retain(|(to, ..)| *to != peer);
        }
        let any = !new.is_empty();
        heard.failures_seen = heard.failed.len();
        any
    }

    fn take_answers(&mut self) -> Result<bool, String> {
        let mut heard = self.heard.borrow_mut();
        if let Some(problem) = heard.problem.take() {
            return Err(problem);
        }
        let any = !heard.answers.is_empty();
        for (peer, number, sum) in heard.answers.drain(..) {
            let lane = self.lanes.get_mut(peer).and_then(Option::as_mut);
            let lane = lane.ok_or_else(|| format!("an answer of process {peer}, which nobody asked"))?;
            let expected = lane.open.pop_front();
            if !lane.alive && expected.is_none() {
                continue;
            }
            if expected != Some(sum) || number != lane.answered {
                return Err(format!(
                    "process {peer} answers question {number} with {sum:#x}; expected {expected:x?} to question {}",
                    lane.answered
                ));
            }
            lane.answered += 1;
        }
        Ok(any)
    }

    fn give_answers(&mut self) -> Result<bool, String> {
        let mut any = false;
        // Once around. Answers to a peer without room wait, and keep their order.
        let count = self.heard.borrow().owed.len();
        let mut full = Vec::new();
        for _ in 0..count {
            let Some((peer, header, sum)) = self.heard.borrow_mut().owed.pop_front() else { break };
            let Some(lane) = self.lanes[peer].as_ref().filter(|lane| lane.alive) else { continue };
            let posted = if full.contains(&peer) {
                Err(Error::NO_RESOURCE)
            } else {
                lane.ep.am_short(ANSWER, header, &sum.to_le_bytes())
            };
            match posted {
                Ok(()) => any = true,
                Err(Error::NO_RESOURCE) => {
                    self.waits_for_room = true;
                    full.push(peer);
                    self.heard.borrow_mut().owed.push_back((peer, header, sum));
                }
                Err(error) => self.expect_failure(peer, error)?,
            }
        }
        Ok(any)
    }

    /// Asks each peer with fewer open questions than it may have, one question each.
    fn ask(&mut self, first_only: bool) -> Result<bool, String> {
        let (count, mut any) = (self.lanes.len(), false);
        let start = self.random.below(count);
        for peer in (start..count).chain(0..start) {
            let length = self.length();
            let Some(lane) = self.lanes[peer].as_mut().filter(|lane| lane.alive) else { continue };
            let is_done = self.is_brief && lane.asked >= BRIEF_QUESTIONS;
            if lane.open.len() >= WINDOW || is_done || (first_only && lane.asked > 0) {
                continue;
            }
            let contents = question(self.index, peer, lane.asked, length);
            let header = (self.index as u64) << ASKER | lane.asked;
            let posted = if contents.len() <= self.iface.attributes().am.max_short {
                lane.ep.am_short(QUESTION, header, &contents)
            } else {
                let pack = |buffer: &mut [u8]| {
                    let (front, rest) = buffer.split_at_mut(8);
                    front.copy_from_slice(&header.to_ne_bytes());
                    rest[..contents.len()].copy_from_slice(&contents);
                    8 + contents.len()
                };
                lane.ep.am_bcopy(QUESTION, SendFlags::empty(), pack).map(drop)
            };
            match posted {
                Ok(()) => {
                    lane.asked += 1;
                    lane.open.push_back(sum(&contents));
                    any = true;
                }
                Err(Error::NO_RESOURCE) => self.waits_for_room = true,
                Err(error) => self.expect_failure(peer, error)?,
            }
        }
        Ok(any)
    }

    /// An operation may fail a moment before the error handler is called, and for no other reason.
    fn expect_failure(&mut self, peer: usize, error: Error) -> Result<(), String> {
        match &self.lanes[peer] {
            Some(lane) if lane.ep.failure().is_none() => {
                Err(format!("a message to process {peer} answers {error}, and its endpoint did not fail"))
            }
            _ => Ok(()),
        }
    }

    /// Short ones mostly; now and then one that needs a buffer.
    fn length(&mut self) -> usize {
        if self.is_brief {
            return self.random.below(BRIEF + 1);
        }
        let most = self.iface.attributes().am.max_bcopy.min(LONGEST) - 8;
        match self.random.below(20) {
            0 => self.random.below(most + 1),
            1..6 => self.random.below(most.min(1000) + 1),
            _ => self.random.below(65),
        }
    }
}

impl Heard {
    /// A question came: is it the next one, and what it should be?
    fn question(&mut self, index: usize, message: &AmMessage<'_>) {
        let bytes = message.to_vec();
        let Some((header, contents)) = bytes.split_first_chunk::<8>() else {
            return self.wrong(format!("a question of {} bytes", bytes.len()));
        };
        let header = u64::from_ne_bytes(*header);
        let (asker, number) = ((header >> ASKER) as usize, header & ((1 << ASKER) - 1));
        let Some(next) = self.questions.get_mut(asker) else {
            return self.wrong(format!("a question of process {asker}, which is none"));
        };
        let expected = *next;
        *next += 1;
        if number != expected {
            return self
                .wrong(format!("question {number} of process {asker} came instead of question {expected}"));
        }
        if contents != question(asker, index, number, contents.len()) {
            return self.wrong(format!(
                "question {number} of process {asker}, {} bytes, is altered",
                contents.len()
            ));
        }
        let header = (index as u64) << ASKER | number;
        self.owed.push_back((asker, header, sum(contents)));
    }

    fn answer(&mut self, message: &AmMessage<'_>) {
        let bytes = message.to_vec();
        let [header, sum] = bytes.as_chunks::<8>().0 else {
            return self.wrong(format!("an answer of {} bytes", bytes.len()));
        };
        let header = u64::from_ne_bytes(*header);
        let (peer, number) = ((header >> ASKER) as usize, header & ((1 << ASKER) - 1));
        self.answers.push_back((peer, number, u64::from_le_bytes(*sum)));
    }

    fn wrong(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// What a question contains.
fn question(asker: usize, asked: usize, number: u64, length: usize) -> Vec<u8> {
    let seed = ((asker as u64) << 48) ^ ((asked as u64) << 32) ^ number;
    pattern(seed, length)
}

/// A sum in which each byte and its place count.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(7)
    })
}
