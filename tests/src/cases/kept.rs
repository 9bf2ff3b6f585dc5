//! Messages that are kept beyond their handler, in place or copied.

use std::cell::RefCell;
use std::rc::Rc;

use uct_host::{AmId, Capabilities, Error, Flush, IfaceOptions, KeptMessage};

use super::case;
use crate::case::{Case, Needs};
use crate::message::{Flavour, HEADER};
use crate::pair::{Pair, Side};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(4).unwrap();

/// Messages that a handler of this id keeps.
pub(super) fn keep_all(side: &Side, id: AmId) -> Rc<RefCell<Vec<KeptMessage>>> {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&kept);
    side.iface.set_am_handler(id, move |message| list.borrow_mut().push(message.keep()));
    kept
}

fn stay_as_they_are(setup: &Setup) {
    let pair = Pair::new(setup);
    let kept = keep_all(&pair.receiver, ID);
    let completion = pair.sender.completion();
    let mut sent = Vec::new();
    for flavour in Flavour::of(&pair.sender) {
        let (least, most) = flavour.limits(pair.sender.attributes());
        for size in [least, least + 1, 100, 1000, 8000, 40_000] {
            if (least..=most).contains(&size) {
                let bytes = pattern(setup.seed + sent.len() as u64, size);
                let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
                pair.retry("a send", send).expect("a send");
                sent.push(bytes);
            }
        }
    }
    pair.until("all messages", || kept.borrow().len() == sent.len());
    // More traffic must not reach into what is kept.
    let other = AmId::new(5).unwrap();
    let inbox = pair.receiver.inbox(other);
    let flavour = Flavour::of(&pair.sender)[0];
    let noise = vec![0xee; flavour.limits(pair.sender.attributes()).1.min(500)];
    for _ in 0..200 {
        pair.retry("noise", || flavour.send(&pair.sender, &pair.to, other, &noise, &completion))
            .expect("a send");
    }
    pair.until("the noise", || inbox.len() == 200);
    for (index, (message, bytes)) in kept.borrow().iter().zip(&sent).enumerate() {
        check_bytes(&format!("kept message {index}"), message, bytes);
    }
    kept.borrow_mut().clear();
}

fn headroom(setup: &Setup) {
    for rx_headroom in [1, 8, 12, 16, 40, 128, 1000] {
        let pair = Pair::with(setup, IfaceOptions { rx_headroom, ..IfaceOptions::default() });
        let kept = keep_all(&pair.receiver, ID);
        let completion = pair.sender.completion();
        let mut sent = Vec::new();
        for flavour in Flavour::of(&pair.sender) {
            let (least, most) = flavour.limits(pair.sender.attributes());
            for size in [least.max(HEADER), most.min(3000), most.min(100_000)] {
                let bytes = pattern(sent.len() as u64, size);
                let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
                pair.retry("a send", send).expect("a send");
                sent.push(bytes);
            }
        }
        pair.until("all messages", || kept.borrow().len() == sent.len());
        for message in kept.borrow_mut().iter_mut() {
            let (ahead, data) = message.with_headroom();
            assert_eq!(ahead.len(), rx_headroom);
            ahead.fill(0xab);
            data[0] ^= 0xff;
        }
        for (message, bytes) in kept.borrow_mut().iter_mut().zip(&sent) {
            let (ahead, data) = message.with_headroom();
            assert!(ahead.iter().all(|&byte| byte == 0xab), "the headroom of a message is another's");
            data[0] ^= 0xff;
            check_bytes("a kept message", data, bytes);
        }
        kept.borrow_mut().clear();
    }
}

fn in_any_order(setup: &Setup) {
    let pair = Pair::new(setup);
    let kept = keep_all(&pair.receiver, ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let mut random = setup.random();
    for next in 0..1000_u64 {
        let mut bytes = pattern(next, 200.min(flavour.limits(pair.sender.attributes()).1));
        bytes[..8].copy_from_slice(&next.to_ne_bytes());
        pair.retry("a send", || {
            let sent = flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
            if sent.is_err() {
                kept.borrow_mut().clear();
            }
            sent
        })
        .expect("a send");
        pair.progress();
        let mut kept = kept.borrow_mut();
        while kept.len() > 20 {
            let at = random.below(kept.len());
            let message = kept.swap_remove(at);
            let number = u64::from_ne_bytes(message[..8].try_into().expect("8 bytes"));
            check_bytes("the kept message", &message[8..], &pattern(number, message.len())[8..]);
        }
    }
}

fn outlive_the_endpoint(setup: &Setup) {
    let pair = Pair::new(setup);
    let kept = keep_all(&pair.receiver, ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(setup.seed, 100.min(flavour.limits(pair.sender.attributes()).1));
    pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion)).expect("a send");
    pair.until("the message", || kept.borrow().len() == 1);
    drop(pair);
    check_bytes("the kept message", &kept.borrow()[0], &bytes);
}

fn many(setup: &Setup) {
    // Where a transport has a limit of its own, it is set low enough to be reached.
    let limited = setup.configure("max_kept", "64");
    let pair = Pair::new(setup);
    let kept = keep_all(&pair.receiver, ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(setup.seed, 64.min(flavour.limits(pair.sender.attributes()).1));
    let mut accepted = 0;
    let mut refused = 0;
    while accepted < 5000 && refused < 200 {
        match flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion) {
            Ok(_) => {
                accepted += 1;
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error, Error::NO_RESOURCE, "what runs out is a resource");
                refused += 1;
                pair.progress();
                if refused > 20 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        }
    }
    assert!(accepted > 0);
    if limited {
        assert!(accepted < 5000, "max_kept = 64, and yet {accepted} messages were taken");
    }
    pair.to.check_alive();
    // Room comes back with the messages, and everything that was accepted arrives.
    let mut arrived = 0;
    pair.until("all that was accepted", || {
        let messages = kept.take();
        for message in &messages {
            check_bytes("a kept message", message, &bytes);
        }
        arrived += messages.len();
        arrived == accepted
    });
    pair.retry("a send afterwards", || {
        kept.borrow_mut().clear();
        flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion)
    })
    .expect("there is room again");
    pair.flush(&pair.to, Flush::empty()).expect("a flush");
}

const ANY: Needs = Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY));

pub(super) const CASES: &[Case] = &[
    case("kept messages stay as they are whatever arrives", ANY, stay_as_they_are),
    case("kept messages have the headroom that was asked for", ANY, headroom),
    case("kept messages are given back in any order", ANY, in_any_order),
    case("kept messages outlive endpoint and interface", ANY, outlive_the_endpoint),
    case("many kept messages hold the sender up and it recovers", ANY, many),
];
