//! Messages that a placer takes where it likes them, and those that it leaves to the handler.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use uct_host::{AmId, Capabilities, Placer, Space};

use super::case;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::Pair;
use crate::random::pattern;
use crate::setup::Setup;

const ID: AmId = AmId::new(4).unwrap();
/// Messages of each flavour and length, and of those every so many is left to the handler, and every so many received to nowhere.
const ROUNDS: usize = 12;
const LEFT: usize = 5;
const UNWANTED: usize = 7;
/// Longest piece of a place that is given at once.
const PIECE: usize = 10_000;

/// Takes one message at a time, in its own memory.
#[derive(Default)]
struct Memory {
    space: RefCell<Vec<u8>>,
    offered: Cell<usize>,
    is_unwanted: Cell<bool>,
    /// What has arrived, from wherever.
    messages: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Placer for Memory {
    fn begin(&self, head: &[u8], length: usize) -> Option<u64> {
        assert!(head.len() < length && self.space.borrow().is_empty(), "one message at a time");
        self.offered.set(self.offered.get() + 1);
        self.is_unwanted.set(self.offered.get().is_multiple_of(UNWANTED));
        if self.offered.get().is_multiple_of(LEFT) {
            return None;
        }
        let mut space = self.space.borrow_mut();
        space.extend_from_slice(head);
        space.resize(length, 0);
        Some(self.offered.get() as u64)
    }

    fn place(&self, arrival: u64, offset: usize) -> Option<Space> {
        assert_eq!(arrival, self.offered.get() as u64);
        let mut space = self.space.borrow_mut();
        if self.is_unwanted.get() {
            let length = space.len();
            space[offset.min(length)..].fill(0);
            return None;
        }
        let rest = space.get_mut(offset..).filter(|rest| !rest.is_empty())?;
        let length = rest.len().min(PIECE);
        // SAFETY: the vector is neither moved nor read until the message has ended, and not referred to when this has returned.
        Some(unsafe { Space::new(NonNull::from(rest).cast(), length) })
    }

    fn end(&self, arrival: u64, length: usize) {
        assert_eq!((arrival, length), (self.offered.get() as u64, self.space.borrow().len()));
        let message = self.space.take();
        if self.is_unwanted.get() {
            self.messages.borrow_mut().push(Vec::new());
        } else {
            self.messages.borrow_mut().push(message);
        }
    }
}

fn go_where_they_are_wanted(setup: &Setup) {
    let pair = Pair::new(setup);
    let placer = Rc::new(Memory::default());
    let messages = Rc::clone(&placer.messages);
    let list = Rc::clone(&messages);
    pair.receiver.iface.set_am_handler(ID, move |message| list.borrow_mut().push(message.to_vec()));
    pair.receiver.iface.set_am_placer(ID, Rc::clone(&placer) as Rc<dyn Placer>);
    let completion = pair.sender.completion();
    let mut seed = setup.seed;
    let mut unwanted = 0;
    for flavour in Flavour::of(&pair.sender) {
        let (least, most) = flavour.limits(pair.sender.attributes());
        for size in [100, 16 << 10, 20_001, 65_536, 300_003, 1 << 20] {
            if !(least..=most).contains(&size) {
                continue;
            }
            for _ in 0..ROUNDS {
                seed += 1;
                let bytes = pattern(seed, size);
                let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
                pair.retry("a send", send).expect("a send");
                pair.until("the message", || !messages.borrow().is_empty());
                let received = messages.borrow_mut().remove(0);
                if received.is_empty() {
                    unwanted += 1;
                } else {
                    assert!(received == bytes, "{flavour:?}, {size} bytes");
                }
            }
        }
    }
    let offered = placer.offered.get();
    assert_eq!(unwanted, (1..=offered).filter(|n| n % UNWANTED == 0 && n % LEFT != 0).count());
    let places = pair.receiver.iface.places_messages();
    assert!(if places { offered > ROUNDS } else { offered == 0 }, "{offered} messages were offered");
    pair.receiver.iface.clear_am_placer();
    assert_eq!(Rc::strong_count(&placer), 1);
    let flavour = Flavour::of(&pair.sender)[0];
    let size = flavour.limits(pair.sender.attributes()).1.min(65_536);
    let bytes = pattern(seed, size);
    let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
    pair.retry("a send", send).expect("a send");
    pair.until("the message", || !messages.borrow().is_empty());
    assert!(messages.borrow()[0] == bytes && placer.offered.get() == offered, "it is the handler's");
}

const ANY: Needs = Needs::any(Capabilities::AM_BCOPY.union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[case(
    "long messages go where a placer wants them, to the handler or nowhere",
    ANY,
    go_where_they_are_wanted,
)];
