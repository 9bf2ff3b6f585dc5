//! Active messages of every flavour and size arrive whole and in order.

use uct_host::{AmId, Capabilities, Flush, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::message::{Flavour, HEADER};
use crate::pair::Pair;
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(7).unwrap();

/// Sends every size by one flavour, waits now and then, and compares.
fn every_size(setup: &Setup, flavour: Flavour) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let sizes = flavour.sizes(pair.sender.attributes());
    let completion = pair.sender.completion();
    let mut expected = 0;
    let mut check = |inbox: &crate::pair::Inbox| {
        while let Some(message) = inbox.take() {
            let what = format!("message {expected} of {} bytes", sizes[expected]);
            check_bytes(&what, &message, &pattern(setup.seed + expected as u64, sizes[expected]));
            expected += 1;
        }
        expected
    };
    for (index, &size) in sizes.iter().enumerate() {
        let bytes = pattern(setup.seed + index as u64, size);
        let posted = pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion));
        posted.unwrap_or_else(|error| panic!("{flavour:?} of {size} bytes: {error}"));
        check(&inbox);
    }
    pair.until("all messages", || check(&inbox) == sizes.len());
    pair.until("the completion", || completion.is_done());
    completion.result().expect("all was sent");
    pair.settle();
    assert!(inbox.is_empty(), "a message arrived twice");
}

fn short(setup: &Setup) {
    every_size(setup, Flavour::Short);
}

fn short_iov(setup: &Setup) {
    every_size(setup, Flavour::ShortIov);
}

fn bcopy(setup: &Setup) {
    every_size(setup, Flavour::Bcopy);
}

fn bcopy_iov(setup: &Setup) {
    every_size(setup, Flavour::BcopyIov);
}

fn zcopy(setup: &Setup) {
    every_size(setup, Flavour::Zcopy);
}

fn mixed_flavours(setup: &Setup) {
    const COUNT: usize = 2000;
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let mut random = setup.random();
    let flavours = Flavour::of(&pair.sender);
    let completion = pair.sender.completion();
    let mut sent = Vec::new();
    let mut arrived = 0;
    for index in 0..COUNT {
        let flavour = *random.pick(&flavours);
        let (least, most) = flavour.limits(pair.sender.attributes());
        // Mostly small, so that many are in flight at a time; sometimes a large one in several pieces.
        let most = most.min(if random.below(20) == 0 { 100_000 } else { 300 });
        let size = least.max(HEADER) + random.below(most.max(least).max(HEADER) - least.max(HEADER) + 1);
        let mut bytes = pattern(random.next(), size);
        bytes[..8].copy_from_slice(&(index as u64).to_ne_bytes());
        let posted = pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion));
        posted.unwrap_or_else(|error| panic!("{flavour:?} of {size} bytes: {error}"));
        sent.push(bytes);
        while let Some(message) = inbox.take() {
            check_bytes(&format!("message {arrived} of {COUNT}"), &message, &sent[arrived]);
            sent[arrived] = Vec::new();
            arrived += 1;
        }
    }
    pair.until("all messages", || {
        while let Some(message) = inbox.take() {
            check_bytes(&format!("message {arrived} of {COUNT}"), &message, &sent[arrived]);
            arrived += 1;
        }
        arrived == COUNT && completion.is_done()
    });
}

fn burst_of_largest_short(setup: &Setup) {
    const COUNT: u64 = 1000;
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_short.min(1 << 16);
    let payload = pattern(setup.seed, size);
    for index in 0..COUNT {
        pair.retry("a short send", || pair.to.am_short(ID, index, &payload)).expect("a send");
    }
    for index in 0..COUNT {
        pair.until("a short message", || !inbox.is_empty());
        let message = inbox.take().expect("it is there");
        check_bytes("the header", &message[..8], &index.to_ne_bytes());
        check_bytes("the payload", &message[8..], &payload);
    }
}

fn both_directions(setup: &Setup) {
    const COUNT: usize = 500;
    let pair = Pair::new(setup);
    let flavours = Flavour::of(&pair.sender);
    let other = AmId::new(8).unwrap();
    let (there, here) = (pair.receiver.inbox(ID), pair.sender.inbox(other));
    let completions = [pair.sender.completion(), pair.receiver.completion()];
    for index in 0..COUNT {
        let flavour = flavours[index % flavours.len()];
        let (least, most) = flavour.limits(pair.sender.attributes());
        let bytes = pattern(setup.seed + index as u64, least.max(200.min(most)));
        for (side, ep, id, completion) in [
            (&pair.sender, &pair.to, ID, &completions[0]),
            (&pair.receiver, &pair.back, other, &completions[1]),
        ] {
            pair.retry("a send", || flavour.send(side, ep, id, &bytes, completion)).expect("a send");
        }
    }
    pair.until("all messages", || there.len() == COUNT && here.len() == COUNT);
    for index in 0..COUNT {
        let flavour = flavours[index % flavours.len()];
        let (least, most) = flavour.limits(pair.sender.attributes());
        let bytes = pattern(setup.seed + index as u64, least.max(200.min(most)));
        for inbox in [&there, &here] {
            check_bytes("a message", &inbox.take().expect("it is there"), &bytes);
        }
    }
    for completion in &completions {
        pair.until("the completions", || completion.is_done());
    }
}

fn every_id(setup: &Setup) {
    let pair = Pair::new(setup);
    let ids: Vec<AmId> = (0..AmId::COUNT as u8).filter_map(AmId::new).collect();
    let inboxes: Vec<_> = ids.iter().map(|id| pair.receiver.inbox(*id)).collect();
    let completion = pair.sender.completion();
    for flavour in Flavour::of(&pair.sender) {
        for id in &ids {
            let bytes = pattern(u64::from(id.get()), 64.max(flavour.limits(pair.sender.attributes()).0));
            let send = || flavour.send(&pair.sender, &pair.to, *id, &bytes, &completion);
            pair.retry("a send", send).expect("a send");
        }
        for (id, inbox) in ids.iter().zip(&inboxes) {
            let bytes = pattern(u64::from(id.get()), 64.max(flavour.limits(pair.sender.attributes()).0));
            pair.until("a message of each id", || inbox.len() == 1);
            check_bytes(&format!("{flavour:?} of id {}", id.get()), &inbox.take().expect("one"), &bytes);
        }
    }
    assert_eq!(AmId::new(AmId::COUNT as u8), None, "there is no id 32");
}

fn aligned(setup: &Setup) {
    for rx_headroom in [0, 8, 40, 64] {
        let options = IfaceOptions { rx_headroom, ..IfaceOptions::default() };
        let pair = Pair::with(setup, options);
        let addresses = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = std::rc::Rc::clone(&addresses);
        pair.receiver.iface.set_am_handler(ID, move |message| {
            seen.borrow_mut().push(message.as_ptr() as usize);
        });
        let completion = pair.sender.completion();
        let mut count = 0;
        for flavour in Flavour::of(&pair.sender) {
            let (least, most) = flavour.limits(pair.sender.attributes());
            // Odd sizes, so that whatever follows in a stream is not aligned by itself.
            for size in [least, least + 1, least + 13, least + 101] {
                if size <= most {
                    let bytes = pattern(setup.seed, size);
                    let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
                    pair.retry("a send", send).expect("a send");
                    count += 1;
                }
            }
        }
        pair.until("all messages", || addresses.borrow().len() == count);
        for address in addresses.borrow().iter() {
            assert_eq!(address % 8, 0, "data at {address:#x}, with {rx_headroom} bytes of headroom");
        }
        pair.flush(&pair.to, Flush::empty()).expect("a flush");
    }
}

const ANY: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case("am_short of every size arrives whole and in order", Needs::all(Capabilities::AM_SHORT), short),
    case(
        "am_short_iov of every size arrives whole and in order",
        Needs::all(Capabilities::AM_SHORT),
        short_iov,
    ),
    case("am_bcopy of every size arrives whole and in order", Needs::all(Capabilities::AM_BCOPY), bcopy),
    case(
        "am_bcopy_iov of every size arrives whole and in order",
        Needs::all(Capabilities::AM_BCOPY),
        bcopy_iov,
    ),
    case("am_zcopy of every size arrives whole and in order", Needs::all(Capabilities::AM_ZCOPY), zcopy),
    case("messages of mixed flavours and sizes arrive in order", ANY, mixed_flavours),
    case(
        "a burst of the largest short messages arrives",
        Needs::all(Capabilities::AM_SHORT),
        burst_of_largest_short,
    ),
    case("both ends send to each other at once", ANY, both_directions),
    case("each id has its own handler", ANY, every_id),
    case("received data are aligned to 8 bytes whatever the headroom", ANY, aligned),
];
