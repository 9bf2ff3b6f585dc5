//! The initiator's side: what a connection asks for of its peer's memory, and what waits for the answers.

use std::ptr::NonNull;
use std::rc::Weak;

use ucs::clock::ticks;
use uct_plugin::PendingGroup;
use uct_plugin::memory::{Accessor, MemoryAccess, PACKED_KEY, Regions, RemoteKey};
use uct_plugin::rma::{Destination, Notify, RESPONSE_HEADER, Target, Waiter};

use super::living::{Waiting, come_and_go};
use super::*;
use crate::link::shared::GET_SEGMENT;
use crate::proto::wire::{FRAME_HEADER, control, parse_frame};

/// Memory of the peer's, which carries out the requests for it.
struct Far {
    target: Target,
    regions: Regions,
    accessor: Accessor,
    key: RemoteKey,
    address: u64,
}

impl Far {
    /// The memory outlives it in every test.
    fn of(memory: &mut [u8]) -> Far {
        let (regions, mut packed) = (Regions::default(), [0; PACKED_KEY]);
        let base = NonNull::from(&mut *memory).cast::<u8>();
        // SAFETY: as said.
        let region = unsafe { regions.insert(base, memory.len(), MemoryAccess::all()) }.unwrap();
        regions.pack(&region, &mut packed).unwrap();
        let key = RemoteKey::unpack(&packed).unwrap();
        let address = base.as_ptr() as u64;
        Far { target: Target::default(), regions, accessor: Accessor::default(), key, address }
    }

    /// The frames that answer those that have come, of which all are requests for a get.
    fn answers(&self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            let (kind, length) = parse_frame(u64::from_ne_bytes(bytes[..8].try_into().unwrap()));
            assert_eq!(kind, control::REQUEST);
            let answer = self.target.serve(&self.regions, &self.accessor, &bytes[8..8 + length]).unwrap();
            answers.push(frame(control::RESPONSE, &answer.expect("a get has an answer").to_vec()));
            bytes = &bytes[8 + padded(length)..];
        }
        answers
    }
}

/// Begins a get of all of the memory for owner 1.
fn get(bed: &Bed, far: &Far, here: &mut [u8]) -> Waiter {
    let (waiter, length) = (Waiter::default(), here.len());
    // SAFETY: the place outlives the get in every test.
    let place = unsafe { Destination::block(NonNull::from(&mut *here).cast(), length) };
    let notify = Notify::Waiter(waiter.clone());
    bed.conn.initiator.get(1, place, length, &far.key, far.address, notify).unwrap();
    bed.conn.pump(&bed.iface.shared);
    waiter
}

#[test]
fn a_large_get_asks_for_a_megabyte_and_then_for_a_quarter_when_that_has_come() {
    const LENGTH: usize = (3 << 20) + 5;
    const AT_ONCE: usize = (1 << 20) / GET_SEGMENT;
    let (mut memory, mut here, bed) = (pattern(LENGTH), vec![0; LENGTH], Bed::new(&[]));
    let far = Far::of(&mut memory);
    let waiter = get(&bed, &far, &mut here);
    let mut answers: std::collections::VecDeque<_> = far.answers(&bed.read_all()).into();
    assert_eq!(answers.len(), AT_ONCE);
    let mut left = LENGTH.div_ceil(GET_SEGMENT) - AT_ONCE;
    while let Some(answer) = answers.pop_front() {
        assert_eq!(waiter.result(), None);
        assert!(bed.conn.has_unfinished());
        bed.write(&answer);
        let more = far.answers(&bed.read_all());
        let is_quarter = answers.len() == AT_ONCE - AT_ONCE / 4;
        assert_eq!(
            more.len(),
            if is_quarter { left.min(AT_ONCE / 4) } else { 0 },
            "{left} segments are left"
        );
        left -= more.len();
        answers.extend(more);
    }
    assert_eq!((waiter.result(), left), (Some(Ok(())), 0));
    assert!(!bed.conn.has_unfinished() && here == memory);
}

#[test]
fn a_side_that_waits_for_an_answer_is_not_done_before_that() {
    let (mut memory, mut here, bed) = (pattern(100), [0; 100], Bed::new(&[]));
    let far = Far::of(&mut memory);
    bed.conn.attach(&bed.iface.shared, Weak::new());
    bed.read_all();
    let waiter = get(&bed, &far, &mut here);
    come_and_go(&bed);
    let answers = far.answers(&bed.read_all());
    assert_eq!((answers.len(), bed.failure()), (1, None));
    bed.write(&answers[0]);
    assert_eq!((waiter.result(), bed.read_all()), (Some(Ok(())), frame(control::UNUSE, &[])));
}

#[test]
fn a_flush_ends_with_the_last_answer_also_where_the_request_still_has_to_leave() {
    for is_blocked in [false, true] {
        let (mut memory, mut here, bed) = (pattern(100), [0; 100], Bed::new(&[]));
        let (far, mut endings) = (Far::of(&mut memory), [Ending::new(), Ending::new()]);
        let ahead = if is_blocked { bed.fill(&pattern(900)) } else { Vec::new() };
        let waiter = get(&bed, &far, &mut here);
        let [first, second] = &mut endings;
        for (owner, ending) in [(1, first), (2, second)] {
            let outcome = bed.conn.flush_for(&bed.iface.shared, owner, ending.completion());
            assert_eq!(outcome, Ok(Outcome::InProgress));
        }
        let bytes = bed.read_all();
        assert_eq!(endings.each_ref().map(Ending::status), [None, None], "blocked: {is_blocked}");
        bed.write(&far.answers(&bytes[ahead.len()..])[0]);
        assert_eq!(waiter.result(), Some(Ok(())));
        assert_eq!(endings.each_ref().map(Ending::status), [Some(UCT_OK); 2], "blocked: {is_blocked}");
    }
}

#[test]
fn what_is_cancelled_or_fails_ends_and_a_late_answer_goes_nowhere() {
    let (mut memory, mut here, bed) = (pattern(100), [0; 100], Bed::new(&[]));
    let far = Far::of(&mut memory);
    let waiter = get(&bed, &far, &mut here);
    bed.conn.cancel(&bed.iface.shared, 2);
    assert_eq!(waiter.result(), None, "it is another owner's");
    bed.conn.cancel(&bed.iface.shared, 1);
    assert_eq!(waiter.result(), Some(Err(Error::CANCELED)));
    bed.write(&far.answers(&bed.read_all())[0]);
    assert_eq!((bed.failure(), here), (None, [0; 100]));
    let waiter = get(&bed, &far, &mut here);
    bed.conn.fail(&bed.iface.shared, Error::IO_ERROR, "a test");
    assert_eq!(waiter.result(), Some(Err(Error::IO_ERROR)));
    assert!(!bed.conn.has_unfinished());
}

#[test]
fn a_silent_peer_that_owes_an_answer_is_asked_for_a_sign_of_life() {
    let (mut memory, mut here, bed) = (pattern(100), [0; 100], Bed::new(&[]));
    let far = Far::of(&mut memory);
    bed.conn.heard.set(false);
    bed.conn.tick(&bed.iface.shared, ticks(), true);
    assert_eq!(bed.read_all(), [], "nobody waits for it");
    get(&bed, &far, &mut here);
    bed.read_all();
    bed.conn.tick(&bed.iface.shared, ticks(), true);
    assert_eq!(bed.read_all(), frame(control::PING, &[]));
}

#[test]
fn a_request_that_waits_behind_a_large_get_is_served_once_all_of_that_is_asked_for() {
    const LENGTH: usize = (1 << 20) + 1;
    let (mut memory, mut here, bed) = (pattern(LENGTH), vec![0; LENGTH], Bed::new(&[]));
    let (group, mut waiting, far) = (PendingGroup::default(), Waiting::new(), Far::of(&mut memory));
    get(&bed, &far, &mut here);
    waiting.wait(&bed, &group);
    bed.conn.note_pending(&bed.iface.shared);
    let answers = far.answers(&bed.read_all());
    // A quarter of a megabyte has to come first.
    let (ahead, behind) = answers.split_at(answers.len() / 4);
    for answer in ahead {
        assert_eq!(waiting.served(), 0);
        bed.write(answer);
    }
    assert_eq!((waiting.served(), group.len(), behind.is_empty()), (1, 0, false));
}

#[test]
fn a_large_answer_is_received_straight_to_its_place_and_nowhere_once_it_is_given_up() {
    const LENGTH: usize = (32 << 10) + 5;
    const PART: usize = 10_000;
    for is_given_up in [false, true] {
        let (mut memory, mut here, bed) = (pattern(LENGTH), vec![0; LENGTH], Bed::new(&[]));
        let far = Far::of(&mut memory);
        let waiter = get(&bed, &far, &mut here);
        let answer = far.answers(&bed.read_all()).remove(0);
        bed.write(&answer[..PART]);
        bed.write(&answer[PART..2 * PART]);
        let come = 2 * PART - FRAME_HEADER - RESPONSE_HEADER;
        assert_eq!((waiter.result(), &here[..come]), (None, &memory[..come]));
        if is_given_up {
            bed.conn.cancel(&bed.iface.shared, 1);
        }
        bed.write(&answer[2 * PART..]);
        let result = if is_given_up { Err(Error::CANCELED) } else { Ok(()) };
        assert_eq!((waiter.result(), bed.failure()), (Some(result), None));
        let rest = if is_given_up { &[0; LENGTH][come..] } else { &memory[come..] };
        assert!(here[come..] == *rest, "given up: {is_given_up}");
        // The next frame is read from its start.
        let waiter = get(&bed, &far, &mut here);
        bed.write(&far.answers(&bed.read_all())[0]);
        assert_eq!((waiter.result(), here == memory), (Some(Ok(())), true));
    }
}

#[test]
fn a_loss_behind_a_refused_access_names_that_as_the_likely_reason_and_another_one_does_not() {
    let losses = [(Error::CONNECTION_RESET, true), (Error::CONNECTION_RESET, false), (Error::IO_ERROR, true)];
    for (error, is_refused) in losses {
        let (mut memory, mut other, mut here) = (pattern(100), pattern(100), [0; 100]);
        let (bed, far) = (Bed::new(&[]), Far::of(&mut memory));
        let waiter = get(&bed, &far, &mut here);
        // The key is not one of the other memory's.
        let answering = if is_refused { &Far::of(&mut other) } else { &far };
        bed.write(&answering.answers(&bed.read_all())[0]);
        assert_eq!(waiter.result().map(|result| result.is_err()), Some(is_refused));
        bed.conn.fail(&bed.iface.shared, error, "a test");
        let words = bed.iface.shared.last_failure();
        let is_named = words.contains("had refused accesses");
        assert_eq!(is_named, is_refused && error == Error::CONNECTION_RESET, "{words}");
    }
}
