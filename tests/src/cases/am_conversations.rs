//! Messages in both directions: replies, several replies, crossing messages. All arrive complete, once and in order.

use std::collections::VecDeque;

use uct_host::{AmId, Capabilities, Completion, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Inbox, Link, Side, connect, other_end, wait};
use crate::random::{Random, check_bytes, pattern};
use crate::setup::Setup;

/// What is said in a conversation.
const STEPS: usize = 4000;

/// One end.
struct Talker {
    side: Side,
    link: Link,
    /// What its messages are sent to.
    to: AmId,
    inbox: Inbox,
    /// What the other end has sent and this one has not taken.
    due: VecDeque<Vec<u8>>,
    completion: Completion,
}

impl Talker {
    fn new(side: &Side, link: Link, (to, own): (AmId, AmId)) -> Talker {
        let (inbox, completion) = (side.inbox(own), side.completion());
        Talker { side: side.clone(), link, to, inbox, due: VecDeque::new(), completion }
    }

    /// Takes received messages; returns their number.
    fn listen(&mut self) -> usize {
        self.side.worker.progress();
        let mut count = 0;
        while let Some(message) = self.inbox.take() {
            let due = self.due.pop_front().expect("a message that nobody sent");
            check_bytes("what the other said", &message, &due);
            count += 1;
        }
        count
    }
}

/// Says something: mostly as little as fits anywhere, now and then more.
fn say(talkers: &mut [Talker; 2], who: usize, random: &mut Random) {
    let talker = &talkers[who];
    let flavour = match random.below(4) {
        0 => *random.pick(&Flavour::of(&talker.side)),
        _ => Flavour::of(&talker.side)[0],
    };
    let (least, most) = flavour.limits(talker.side.attributes());
    let usual = [20, 20, 20, 80, 80, 3000][random.below(6)];
    let most = most.min(usual).max(least);
    let bytes = pattern(random.next(), least + random.below(most - least + 1));
    let (side, link, to) = (talker.side.clone(), talker.link.clone(), talker.to);
    let completion = talker.completion.clone();
    talkers[1 - who].due.push_back(bytes.clone());
    let progress = || talkers.iter_mut().map(Talker::listen).sum::<usize>() as u32;
    crate::pair::retry("a send", progress, || flavour.send(&side, &link, to, &bytes, &completion))
        .unwrap_or_else(|error| panic!("{flavour:?} of {} bytes: {error}", bytes.len()));
}

/// Waits until one end has heard something, while the other one does nothing but move on.
fn hear(talkers: &mut [Talker; 2], who: usize) {
    if talkers[who].due.is_empty() {
        return;
    }
    let heard = std::cell::Cell::new(0);
    let progress = || {
        talkers[1 - who].side.worker.progress();
        heard.set(talkers[who].listen());
        heard.get() as u32
    };
    wait("an answer", progress, || heard.get() > 0);
}

fn talk(setup: &Setup, links: impl FnOnce(&Side, &Side) -> (Link, Link)) {
    let first = setup.open(IfaceOptions::default());
    let (second, _) = other_end(setup, &first, IfaceOptions::default());
    let (to, back) = links(&first, &second);
    let ids = (AmId::new(7).unwrap(), AmId::new(8).unwrap());
    let mut talkers = [Talker::new(&first, to, ids), Talker::new(&second, back, (ids.1, ids.0))];
    let mut random = setup.random();
    let mut steps = 0;
    while steps < STEPS {
        let how_many = 1 + random.below(60);
        steps += how_many;
        match random.below(3) {
            // One asks, the other answers, now and then with more than is asked for.
            0 => {
                for turn in 0..how_many {
                    say(&mut talkers, turn % 2, &mut random);
                    if random.below(10) == 0 {
                        say(&mut talkers, turn % 2, &mut random);
                    }
                    hear(&mut talkers, 1 - turn % 2);
                }
            }
            // One talks.
            1 => {
                let who = random.below(2);
                (0..how_many).for_each(|_| say(&mut talkers, who, &mut random));
            }
            // Both talk and listen as they like.
            _ => {
                for _ in 0..how_many {
                    let who = random.below(2);
                    if random.below(2) == 0 {
                        say(&mut talkers, who, &mut random);
                    } else {
                        talkers[who].listen();
                    }
                }
            }
        }
    }
    for who in [0, 1] {
        while !talkers[who].due.is_empty() {
            hear(&mut talkers, who);
        }
    }
    for who in [0, 1] {
        let [first, second] = &mut talkers;
        let completion = [&first.completion, &second.completion][who].clone();
        wait("the completions", || (first.listen() + second.listen()) as u32, || completion.is_done());
        completion.result().expect("all was sent");
    }
    first.iface.clear_am_handlers();
    second.iface.clear_am_handlers();
}

fn connected_at_once(setup: &Setup) {
    talk(setup, connect);
}

/// The second end connects when it has been connected to, and may use what there is.
fn connected_in_turn(setup: &Setup) {
    talk(setup, |first, second| {
        let link = |from: &Side, to: &Side| {
            let (failures, handler) = crate::pair::recorder();
            let address = to.iface.address().unwrap_or_else(|error| panic!("no address: {error}"));
            let ep = from.iface.connect_with(&address, handler).unwrap_or_else(|refused| panic!("{refused}"));
            Link::new(ep, failures)
        };
        let to = link(first, second);
        let id = AmId::new(9).unwrap();
        let (inbox, completion) = (second.inbox(id), first.completion());
        let flavour = Flavour::of(first)[0];
        let mut progress = || first.worker.progress() + second.worker.progress();
        let hello = pattern(1, 16);
        crate::pair::retry("a hello", &mut progress, || flavour.send(first, &to, id, &hello, &completion))
            .expect("a hello");
        wait("the hello", progress, || !inbox.is_empty());
        (to, link(second, first))
    });
}

const MESSAGES: Capabilities =
    Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY);

pub(crate) const CASES: &[Case] = &[
    case(
        "answers and messages that cross arrive in order, between ends that connect at once",
        Needs::any(MESSAGES),
        connected_at_once,
    ),
    case(
        "answers and messages that cross arrive in order, over a connection that was there",
        Needs { all: Capabilities::CONNECT_TO_IFACE, ..Needs::any(MESSAGES) },
        connected_in_turn,
    ),
];
