//! Counters move by exactly what was done.

use std::cell::Cell;
use std::rc::Rc;

use uct_host::{AmId, AtomicOp, Capabilities, Count};

use super::case;
use crate::access::{Way, perform};
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::Pair;
use crate::random::pattern;
use crate::setup::Setup;

const ID: AmId = AmId::new(14).unwrap();

fn counters(setup: &Setup) {
    let pair = Pair::new(setup);
    let received = Rc::new(Cell::new(Count::default()));
    let seen = Rc::clone(&received);
    pair.receiver.iface.set_am_handler(ID, move |message| {
        let count = seen.get();
        seen.set(Count { operations: count.operations + 1, bytes: count.bytes + message.len() as u64 });
    });
    let mut expected = uct_host::Counters::default();
    let add = |count: &mut Count, bytes: usize| {
        count.operations += 1;
        count.bytes += bytes as u64;
    };
    let completion = pair.sender.completion();
    for flavour in Flavour::of(&pair.sender) {
        for size in flavour.sizes(pair.sender.attributes()).into_iter().take(20) {
            let bytes = pattern(1, size);
            let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
            pair.retry("a send", send).expect("a send");
            let count = match flavour {
                Flavour::Short | Flavour::ShortIov => &mut expected.am_short,
                Flavour::Bcopy | Flavour::BcopyIov => &mut expected.am_bcopy,
                Flavour::Zcopy => &mut expected.am_zcopy,
            };
            add(count, size);
        }
    }
    let messages: u64 =
        expected.am_short.operations + expected.am_bcopy.operations + expected.am_zcopy.operations;
    pair.until("all messages", || received.get().operations == messages);
    let bytes = expected.am_short.bytes + expected.am_bcopy.bytes + expected.am_zcopy.bytes;
    assert_eq!(received.get(), Count { operations: messages, bytes });
    assert_eq!(pair.receiver.iface.received(), received.get());

    let ways = Way::of(&pair.sender);
    if !ways.is_empty() {
        let memory = pair.receiver.memory(vec![0; 5000]);
        let key = pair.sender.key_to(&memory);
        for way in &ways {
            let (least, most) = way.limits(pair.sender.attributes());
            for size in [least, least.max(100).min(most)] {
                let data = pattern(2, size);
                let done =
                    perform(*way, &pair.sender, &pair.to, &data, memory.address(), &key, || pair.progress());
                done.unwrap_or_else(|error| panic!("{way:?}: {error}"));
                add(if way.is_put() { &mut expected.put } else { &mut expected.get }, size);
                expected.flush.operations += 1;
            }
        }
        if pair.sender.attributes().atomic64.fetch & AtomicOp::Add.bit() != 0 {
            let at = memory.address().next_multiple_of(8);
            let fetch = || pair.to.atomic64_fetch(AtomicOp::Add, 1, at, &key, &completion);
            let _ = pair.retry("an add", fetch).expect("an add");
            pair.until("the add", || completion.is_done());
            add(&mut expected.atomic, 8);
        }
    }
    let mut got = pair.to.counters();
    // A flush that has to be asked for again is an operation that was not accepted.
    expected.no_resource = got.no_resource;
    got.flush = expected.flush;
    assert_eq!(got, expected);
    assert_eq!(pair.back.counters().am_short.operations, 0, "an endpoint counts what another sent");
}

const MESSAGES: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[case("counters move by exactly what was done", MESSAGES, counters)];
