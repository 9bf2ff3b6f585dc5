//! Plain tests of the ring, in heap memory; small enough for Miri, which watches them for races and bad pointers.

use std::alloc::{Layout as Allocation, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::control::{Control, Credit, FIRST, SLOT_BYTES, STEP};
use super::layout::{FIRST_SLOTS, MAX_STRIDE, SLOT_OFFSET};
use super::sender::Refused;
use super::testing::{Talker, geometry};
use super::{
    BODY_WORDS, Corrupt, DOORBELL_BYTES, Delivery, Doorbell, Geometry, INLINE_BYTES, Layout, LayoutError,
    MappedDoorbell, MappedRing, MappedTurnLine, Place, Pool, Receiver, Sender, Sent, Short, TURN_LINE_BYTES,
    Trim, TurnLine,
};

fn must_ring(sender: &Sender<MappedRing>) -> Result<bool, Corrupt> {
    Ok(sender.attend()?.is_some())
}

/// Zeroed, page-aligned memory.
struct Pages {
    base: NonNull<u8>,
    allocation: Allocation,
}

// SAFETY: plain memory.
unsafe impl Send for Pages {}
// SAFETY: plain memory; what is done with it is checked by Miri.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(size: usize) -> Pages {
        let allocation = Allocation::from_size_align(size, 4096).expect("a size that exists");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(allocation) };
        Pages { base: NonNull::new(base).expect("memory"), allocation }
    }

    /// Reads a word.
    fn word(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.allocation.size());
        // SAFETY: inside the allocation.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: aligned and valid; nothing runs in parallel.
        unsafe { word.cast::<u64>().read() }
    }

    /// Overwrites a word, as a hostile peer would.
    fn scribble(&self, offset: usize, value: u64) {
        assert!(offset + 8 <= self.allocation.size());
        // SAFETY: inside the allocation.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: aligned and valid; nothing runs in parallel.
        unsafe { word.cast::<u64>().write(value) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.allocation) };
    }
}

fn ring(geometry: Geometry) -> (Arc<Pages>, Sender<MappedRing>, Receiver<MappedRing>) {
    let layout = Layout::new(geometry).expect("a valid shape");
    let pages = Arc::new(Pages::new(layout.size()));
    // SAFETY: the pages are large enough, aligned, and kept by every test to its end.
    let sender = Sender::new(unsafe { MappedRing::new(pages.base, layout) }, || 0);
    // SAFETY: as above; one sender and one receiver.
    let receiver = Receiver::new(unsafe { MappedRing::new(pages.base, layout) });
    sender.prepare();
    (pages, sender, receiver)
}

fn send(sender: &Sender<MappedRing>, bytes: &[u8]) -> Result<Sent, Refused> {
    if bytes.len() <= INLINE_BYTES {
        sender.send_inline(1, bytes.len(), |body| {
            // SAFETY: a body has room for INLINE_BYTES bytes.
            unsafe { ucs::memory::copy_small(body, bytes.as_ptr(), bytes.len()) };
        })
    } else {
        let place = if bytes.len() <= sender_small(sender) { Place::Small } else { Place::Bulk };
        let block = sender.reserve(place).ok_or(Refused::Full)?;
        sender.fill_block(&block, |target| {
            // SAFETY: the test sends nothing that is larger than a bulk block.
            unsafe { ucs::memory::copy_small(target, bytes.as_ptr(), bytes.len()) };
        });
        sender.send_block(1, block, bytes.len())
    }
}

fn sender_small(sender: &Sender<MappedRing>) -> usize {
    use super::RingMemory;
    sender.memory().layout().small_capacity()
}

fn receive(receiver: &Receiver<MappedRing>) -> Result<Option<Vec<u8>>, Corrupt> {
    let mut body = [0; BODY_WORDS];
    let Some(message) = receiver.next(&mut body)? else { return Ok(None) };
    Ok(Some(match message.data {
        Delivery::Inline { length } => body.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect(),
        Delivery::Block { place, index, length } => {
            // SAFETY: the block is ours until released, and holds `length` bytes.
            let bytes = receiver
                .block(place, index, |data| unsafe { std::slice::from_raw_parts(data, length) }.to_vec());
            receiver.release(place, index);
            bytes
        }
    }))
}

/// Where the message of so and so lies, in the first round.
fn slot_at(number: usize) -> usize {
    SLOT_OFFSET + number * SLOT_BYTES
}

/// A message whose bytes depend on its number.
fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at * 7) as u8).collect()
}

#[test]
fn every_size_arrives_as_it_was_sent() {
    let (_pages, sender, receiver) = ring(geometry(8, 2));
    let sizes = [0, 1, 7, 8, 9, 16, 55, 56, 57, 63, 64, 65, 128, 500, 960];
    for (number, size) in sizes.into_iter().enumerate() {
        let _ = send(&sender, &pattern(number, size)).expect("room for one");
        assert_eq!(receive(&receiver).expect("honest"), Some(pattern(number, size)), "size {size}");
        assert_eq!(receive(&receiver).expect("honest"), None);
    }
}

#[test]
fn a_full_ring_refuses_and_goes_on_after_credit() {
    let (_pages, sender, receiver) = ring(geometry(8, 2));
    for number in 0..8 {
        let _ = send(&sender, &pattern(number, 8)).expect("room for eight");
    }
    assert_eq!(send(&sender, &[1]), Err(Refused::Full));
    // Credit is given where the number of a message is a multiple of a quarter of the slots; the first has number 1.
    assert_eq!(receive(&receiver).expect("honest"), Some(pattern(0, 8)));
    let _ = send(&sender, &[1]).expect("room for one");
    assert_eq!(send(&sender, &[1]), Err(Refused::Full));
    assert_eq!(receive(&receiver).expect("honest"), Some(pattern(1, 8)));
    assert_eq!(send(&sender, &[1]), Err(Refused::Full), "credit comes in batches of two");
    assert_eq!(receive(&receiver).expect("honest"), Some(pattern(2, 8)));
    let _ = send(&sender, &[1]).expect("room after a batch of credit");
    let _ = send(&sender, &[1]).expect("room after a batch of credit");
    assert_eq!(send(&sender, &[1]), Err(Refused::Full));
}

#[test]
fn blocks_run_out_and_come_back_in_any_order() {
    let (_pages, sender, receiver) = ring(geometry(16, 3));
    for number in 0..3 {
        let _ = send(&sender, &pattern(number, 500)).expect("three blocks");
    }
    assert_eq!(send(&sender, &pattern(3, 500)), Err(Refused::Full));
    let mut kept = Vec::new();
    while let Some(message) = receiver.next(&mut [0; BODY_WORDS]).expect("honest") {
        let Delivery::Block { place, index, .. } = message.data else { panic!("500 bytes inline") };
        kept.push((place, index));
    }
    assert_eq!(receiver.held(Place::Bulk), 3);
    assert_eq!(send(&sender, &pattern(3, 500)), Err(Refused::Full), "all blocks are kept");
    receiver.release(kept[1].0, kept[1].1);
    let _ = send(&sender, &pattern(4, 500)).expect("one block is back");
    assert_eq!(send(&sender, &pattern(5, 500)), Err(Refused::Full));
    receiver.release(kept[0].0, kept[0].1);
    receiver.release(kept[2].0, kept[2].1);
    assert_eq!(receive(&receiver).expect("honest"), Some(pattern(4, 500)));
    assert_eq!(receiver.held(Place::Bulk), 0);
}

/// A peer of another build maps the same memory.
#[test]
fn each_pool_has_the_release_word_that_the_layout_gives_it() {
    let (pages, sender, receiver) = ring(geometry(8, 2));
    let words = || [128, 136].map(|offset| pages.word(offset) != 0);
    assert_eq!(words(), [false, false]);
    for (place, expected) in [(Place::Small, [true, false]), (Place::Bulk, [true, true])] {
        let length = if place == Place::Small { sender_small(&sender) } else { sender_small(&sender) + 1 };
        let _ = send(&sender, &pattern(0, length)).expect("a block is free");
        assert_eq!(receive(&receiver).expect("honest"), Some(pattern(0, length)));
        assert_eq!(words(), expected, "{place:?}");
    }
}

#[test]
fn a_cancelled_block_can_be_reserved_again() {
    let (_pages, sender, _receiver) = ring(geometry(8, 1));
    let block = sender.reserve(Place::Bulk).expect("one block");
    assert_eq!(sender.reserve(Place::Bulk), None);
    sender.cancel(block);
    assert!(sender.reserve(Place::Bulk).is_some());
}

#[test]
fn sequence_numbers_survive_their_wrap() {
    let layout = Layout::new(geometry(4, 1)).expect("a valid shape");
    let pages = Pages::new(layout.size());
    // SAFETY: the pages outlive both sides.
    let sender = Sender::new(unsafe { MappedRing::new(pages.base, layout) }, || 0);
    // SAFETY: as above.
    let receiver = Receiver::new(unsafe { MappedRing::new(pages.base, layout) });
    let start = STEP.wrapping_neg() - 5 * STEP;
    sender.start_at(start);
    receiver.start_at(start);
    for number in 0..20 {
        let _ = send(&sender, &pattern(number, 8)).expect("room");
        assert_eq!(receive(&receiver).expect("honest"), Some(pattern(number, 8)));
    }
}

#[test]
fn short_messages_are_taken_up_to_a_limit_and_to_the_first_of_another_kind() {
    let (_pages, sender, receiver) = ring(geometry(8, 2));
    let mut next = 0;
    let take = |limit, first: usize| {
        let mut seen = Vec::new();
        let each = |short: Short, data: &[u8]| {
            assert!(data.as_ptr().cast::<u128>().is_aligned());
            seen.push((short.tag(), data.to_vec()));
        };
        let count = receiver.take_shorts(limit, each) as usize;
        let sent = |number| (1, pattern(number, 8 + number % 3 * 16));
        assert_eq!(seen, (first..first + count).map(sent).collect::<Vec<_>>());
        // SAFETY: the pages are there to the end.
        let is_due = unsafe { receiver.watch().has_news() };
        assert_eq!(is_due, receiver.has_message(), "what is watched is the next message");
        count
    };
    // Many rounds, so that a limit falls anywhere with regard to credit and to the end of the slots.
    for round in 0..100 {
        for number in next..next + 5 {
            let _ = send(&sender, &pattern(number, 8 + number % 3 * 16)).expect("room for five");
        }
        let limit = round % 4 + 1;
        assert_eq!(take(limit as u32, next), limit);
        assert_eq!(take(8, next + limit), 5 - limit);
        next += 5;
        // In a block: left alone.
        let _ = send(&sender, &pattern(next, 60)).expect("room");
        assert_eq!(take(8, next), 0);
        assert_eq!(receive(&receiver).expect("honest"), Some(pattern(next, 60)));
        next += 1;
    }
}

#[test]
fn less_than_half_of_a_ring_is_received_and_not_reported() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for slots in [4, 8, 16, 64] {
        let (pages, sender, receiver) = ring(geometry(slots, 2));
        for number in 0..if cfg!(miri) { 100 } else { 5000 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            assert_eq!(sender.has_room(), Ok(true));
            if state >> 63 == 0 {
                let _ = sender.try_out_of_ring(|_| ()).expect("room for one");
                receiver.pass();
            } else {
                let _ = send(&sender, &pattern(number, 8)).expect("room for one");
                assert_eq!(receive(&receiver).expect("honest"), Some(pattern(number, 8)));
            }
            assert_eq!(sender.position(), receiver.position());
            let unadvertised = receiver.position() - Credit(pages.word(0)).head();
            assert!(unadvertised / STEP < u64::from(slots / 2), "{unadvertised} of {slots} slots");
        }
    }
}

#[test]
fn an_idle_ring_asks_for_the_doorbell_and_an_active_one_does_not() {
    let (_pages, sender, receiver) = ring(geometry(16, 1));
    assert_eq!(send(&sender, &[1]), Ok(Sent::Attend), "nobody listens yet");
    assert_eq!(must_ring(&sender), Ok(true));
    receiver.set_fence(false);
    receiver.set_active();
    assert_eq!(send(&sender, &[1]), Ok(Sent::Attend), "the word has changed");
    assert_eq!(must_ring(&sender), Ok(false));
    assert_eq!(send(&sender, &[1]), Ok(Sent::Quiet));
    receiver.set_idle();
    for _ in 0..2 {
        assert_eq!(send(&sender, &[1]), Ok(Sent::Attend));
        assert_eq!(must_ring(&sender), Ok(true));
    }
}

#[test]
fn a_sender_whose_messages_are_received_wakes_nobody_and_the_next_message_does() {
    let (_pages, sender, receiver) = ring(geometry(16, 1));
    receiver.set_fence(false);
    assert_eq!(send(&sender, &[1]), Ok(Sent::Attend));
    assert_eq!(receive(&receiver), Ok(Some(vec![1])));
    receiver.set_idle();
    // As when the welcome comes late.
    assert_eq!(sender.attend(), Ok(None));
    for is_first in [true, false] {
        assert_eq!(send(&sender, &[1]), Ok(Sent::Attend));
        assert_eq!(sender.attend(), Ok(Some(is_first)));
    }
}

#[test]
fn the_doorbell_remembers_who_rang_and_wakes_once() {
    let pages = Pages::new(DOORBELL_BYTES);
    // SAFETY: the page outlives both.
    let listener = Doorbell::new(unsafe { MappedDoorbell::new(pages.base) });
    // SAFETY: as above.
    let ringer = Doorbell::new(unsafe { MappedDoorbell::new(pages.base) });
    assert!(!ringer.ring(5), "nobody has armed");
    assert!(listener.has_rung());
    listener.arm();
    assert!(ringer.ring(4095));
    assert!(!ringer.ring(64), "woken already");
    assert!(listener.disarm(), "somebody woke us");
    let mut heard = Vec::new();
    listener.take(|ring| heard.push(ring));
    assert_eq!(heard, [5, 64, 4095]);
    assert!(!listener.has_rung());
    listener.arm();
    assert!(!listener.disarm(), "nobody woke us");
}

#[test]
fn a_receiver_survives_scribbled_slots() {
    let slot = slot_at(0);
    let word = |place, detail| Control::new(FIRST, 1, place, detail).0;
    let cases = [
        (word(Place::Inline, 57), 0, Corrupt::Inline { length: 57 }),
        (word(Place::Small, 2), 8, Corrupt::Block { index: 2 }),
        (word(Place::Bulk, 63), 8, Corrupt::Block { index: 63 }),
        (word(Place::Small, 1), 65, Corrupt::Length { length: 65, capacity: 64 }),
        (word(Place::Bulk, 1), u64::MAX, Corrupt::Length { length: u32::MAX, capacity: 1024 }),
        (FIRST | 3 << 14, 0, Corrupt::Place { control: FIRST | 3 << 14 }),
    ];
    for (control, body, expected) in cases {
        let (pages, _sender, receiver) = ring(geometry(8, 2));
        pages.scribble(slot + 8, body);
        pages.scribble(slot, control);
        assert_eq!(receive(&receiver), Err(expected));
    }
}

#[test]
fn a_receiver_refuses_a_block_that_it_still_holds() {
    let (pages, sender, receiver) = ring(geometry(8, 2));
    let _ = send(&sender, &pattern(0, 500)).expect("room");
    assert!(receiver.next(&mut [0; BODY_WORDS]).expect("honest").is_some());
    pages.scribble(slot_at(1) + 8, 8);
    pages.scribble(slot_at(1), Control::new(FIRST + STEP, 1, Place::Bulk, 0).0);
    assert_eq!(receive(&receiver), Err(Corrupt::Block { index: 0 }));
}

#[test]
fn a_sender_survives_a_scribbled_credit_word() {
    // The first message is number 1; what is acknowledged is the one behind the last that was received.
    for head in [2u64, 4000, u64::MAX / STEP, u64::MAX / STEP / 2 + 1] {
        let (pages, sender, _receiver) = ring(geometry(8, 2));
        pages.scribble(0, head * STEP);
        let sent = send(&sender, &[1]).expect("the first eight need no credit");
        assert_eq!(sent, Sent::Attend);
        if head == 2 {
            assert_eq!(must_ring(&sender), Ok(false), "one message was sent, so this is possible");
        } else {
            assert_eq!(must_ring(&sender), Err(Corrupt::Credit { head, tail: 2 }));
        }
    }
    let (pages, sender, _receiver) = ring(geometry(8, 2));
    for _ in 0..4 {
        let _ = send(&sender, &[1]).expect("room");
    }
    pages.scribble(0, 4 * STEP);
    assert_eq!(must_ring(&sender), Ok(false));
    pages.scribble(0, 3 * STEP);
    assert_eq!(must_ring(&sender), Err(Corrupt::Credit { head: 3, tail: 5 }), "credit went backwards");
}

#[test]
fn a_shape_from_a_peer_is_checked() {
    let good = geometry(8, 2);
    assert!(Layout::new(good).is_ok());
    let pool = |count, stride| Pool { count, stride };
    let cases = [
        (Geometry { slots: 0, ..good }, LayoutError::Slots(0)),
        (Geometry { slots: 12, ..good }, LayoutError::Slots(12)),
        (Geometry { slots: 2, first: 2, ..good }, LayoutError::Slots(2)),
        (Geometry { slots: 131_072, ..good }, LayoutError::Slots(131_072)),
        (Geometry { slots: 1 << 31, ..good }, LayoutError::Slots(1 << 31)),
        (Geometry { first: 0, ..good }, LayoutError::First(0)),
        (Geometry { first: 9, ..good }, LayoutError::First(9)),
        (Geometry { slots: 64, first: FIRST_SLOTS + 1, ..good }, LayoutError::First(FIRST_SLOTS + 1)),
        (Geometry { small: pool(0, 128), ..good }, LayoutError::Count(0)),
        (Geometry { bulk: pool(65, 128), ..good }, LayoutError::Count(65)),
        (Geometry { bulk: pool(1, 100), ..good }, LayoutError::Stride(100)),
        (Geometry { small: pool(1, 0), ..good }, LayoutError::Stride(0)),
        (Geometry { bulk: pool(1, MAX_STRIDE + 64), ..good }, LayoutError::Stride(MAX_STRIDE + 64)),
        (Geometry { bulk: pool(64, 0xffff_ffc0), ..good }, LayoutError::Stride(0xffff_ffc0)),
    ];
    for (geometry, expected) in cases {
        assert_eq!(Layout::new(geometry), Err(expected));
    }
    let limits = [
        Geometry { slots: 4, first: 1, small: pool(1, 64), bulk: pool(64, MAX_STRIDE) },
        Geometry { slots: 4, first: 4, ..good },
        Geometry { slots: 65_536, first: FIRST_SLOTS, ..good },
    ];
    for geometry in limits {
        assert_eq!(Layout::new(geometry).map(|layout| *layout.geometry()), Ok(geometry));
    }
}

/// Both sides compute it, each in its own build.
#[test]
fn all_parts_of_a_ring_are_where_the_layout_says() {
    let pool = |count, stride| Pool { count, stride };
    let shape = Geometry { slots: 64, first: 24, small: pool(3, 64), bulk: pool(2, 1024) };
    for rest in [4096, 1 << 20] {
        let layout = Layout::with_rest(shape, rest).expect("a valid shape");
        // 40 slots, 3 small blocks and 2 bulk blocks are less than a page each.
        let (small, bulk, end) = (rest + 4096, rest + 8192, rest + 12_288);
        assert_eq!((layout.rest(), layout.size()), (rest..end, end));
        assert_eq!([0, 1, 2].map(|index| layout.small(index)), [small, small + 64, small + 128]);
        assert_eq!([0, 1].map(|index| layout.bulk(index)), [bulk, bulk + 1024]);
        assert_eq!([layout.turn_line(), layout.named(), layout.closed()], [256, 384, 144]);
        let (first, others) = (layout.first_part(), layout.rest_part());
        assert_eq!((first.start, first.last, first.in_use, first.batch()), (512, 512 + 23 * 64, 24, 6));
        assert_eq!(
            (others.start, others.last, others.in_use, others.batch()),
            (rest, rest + 39 * 64, 64, 16)
        );
        assert_eq!((first.window(), others.window()), (24 * STEP, 64 * STEP));
        assert!(layout.can_grow());
        assert_eq!([first.start, first.last].map(|slot| layout.part_of(slot)), [first; 2]);
        assert_eq!([others.start, others.last].map(|slot| layout.part_of(slot)), [others; 2]);
    }
    let all_first = Layout::new(geometry(8, 2)).expect("a valid shape");
    assert!(!all_first.can_grow());
    let first = Layout::new(Geometry { first: 3, ..geometry(8, 2) }).expect("a valid shape").first_part();
    assert_eq!(first.batch(), 1, "of few slots each message is reported");
    // Pools of more than a page.
    let large = Geometry { slots: 256, first: 24, small: pool(64, 2048), bulk: pool(8, 65_536) };
    let layout = Layout::new(large).expect("a valid shape");
    let small = 4096 + (232 * 64_usize).next_multiple_of(4096);
    assert_eq!((layout.small(0), layout.bulk(0)), (small, small + 64 * 2048));
    assert_eq!(layout.size(), layout.bulk(0) + 8 * 65_536);
}

/// What has never been used takes no memory.
#[test]
fn as_many_small_blocks_are_used_as_messages_are_in_flight_and_two_otherwise() {
    let layout = Layout::new(geometry(64, 16)).expect("a valid shape");
    let pages = Pages::new(layout.size());
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the pages outlive both sides.
    let ring = || unsafe { MappedRing::new(pages.base, layout) };
    let (sender, receiver) =
        (Sender::new(ring(), || CLOCK.fetch_add(LONG, Ordering::SeqCst)), Receiver::new(ring()));
    sender.prepare();
    let receive_block = || {
        let message = receiver.next(&mut [0; BODY_WORDS]).expect("honest").expect("a message");
        let Delivery::Block { place: Place::Small, index, length: 60 } = message.data else {
            panic!("{message:?}")
        };
        index
    };
    let send_block = || send(&sender, &[7; 60]).map(|_| ());
    for _ in 0..50 {
        send_block().expect("room for one");
        let index = receive_block();
        assert!(index < 2, "block {index} for one message at a time");
        receiver.release(Place::Small, index);
        assert!(!sender.can_trim());
    }
    for most in [2_u32, 3, 5, 9, 16] {
        let held: Vec<u32> = (0..most)
            .map(|_| {
                send_block().expect("room");
                receive_block()
            })
            .collect();
        let highest = held.iter().max().expect("some");
        assert!(*highest < most.next_power_of_two(), "block {highest} for {most} messages");
        assert_eq!(sender.can_trim(), most > 2, "{most} messages");
        if most == 16 {
            assert!(send_block() == Err(Refused::Full) && !sender.has_block(Place::Small), "all are in use");
        }
        held.into_iter().for_each(|index| receiver.release(Place::Small, index));
        // The receiver reports its position, and the sender takes back what it uses no more.
        receiver.set_idle();
        let steps = [(); 4].map(|()| sender.trim(LONG).expect("honest"));
        assert_eq!(steps.contains(&Trim::Free(layout.rest())), most > 2, "{most} messages: {steps:?}");
        assert!(!sender.can_trim());
    }
}

#[test]
fn memory_is_given_back_after_its_time_and_when_all_is_received_and_returned() {
    let layout = Layout::new(geometry(64, 4)).expect("a valid shape");
    let pages = Pages::new(layout.size());
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the pages outlive both sides.
    let ring = || unsafe { MappedRing::new(pages.base, layout) };
    let (sender, receiver) = (Sender::new(ring(), || CLOCK.load(Ordering::SeqCst)), Receiver::new(ring()));
    sender.prepare();
    let free = Trim::Free(layout.rest());
    let trim_at = |time| {
        CLOCK.store(time, Ordering::SeqCst);
        sender.trim(100).expect("honest")
    };
    assert!(!sender.can_trim() && sender.has_room_for_any());
    let _ = send(&sender, &[1; 500]).expect("a bulk block");
    assert!(sender.can_trim());
    assert_eq!([0, 1000].map(trim_at), [Trim::Nothing, Trim::Nothing], "it is not received");
    let message = receiver.next(&mut [0; BODY_WORDS]).expect("honest").expect("a message");
    let Delivery::Block { place, index, .. } = message.data else { panic!("{message:?}") };
    receiver.set_idle();
    assert_eq!(trim_at(2000), Trim::Nothing, "the receiver has the block");
    receiver.release(place, index);
    let _ = send(&sender, &[1]).expect("room");
    assert_eq!(receive(&receiver).expect("honest"), Some(vec![1]));
    receiver.set_idle();
    let steps = [3000, 3099, 3100, 3101].map(trim_at);
    assert_eq!(steps, [Trim::Nothing, Trim::Nothing, free, Trim::Nothing], "100 ns after the last message");
    // All bulk blocks in use: there is room for some messages, and not for any.
    let blocks: Vec<_> = (0..4).map(|_| sender.reserve(Place::Bulk).expect("a block")).collect();
    assert!(!sender.has_room_for_any() && sender.has_room() == Ok(true));
    blocks.into_iter().for_each(|block| sender.cancel(block));
    assert!(sender.has_room_for_any());
    while send(&sender, &[1]).is_ok() {}
    assert!(!sender.has_room_for_any(), "no slot is free");
}

#[test]
fn two_threads_exchange_mixed_sizes_with_back_pressure() {
    let most = if cfg!(miri) { 100 } else { 20_000 };
    let (_pages, sender, receiver) = ring(geometry(16, 3));
    // Where threads wait long for a processor, fewer will do: a full ring waits for the other thread.
    let (count, start) = (Arc::new(AtomicUsize::new(usize::MAX)), Instant::now());
    let sent = Arc::clone(&count);
    let producer = std::thread::spawn(move || {
        let mut number = 0;
        while number < most && (number < most / 20 || start.elapsed() < Duration::from_secs(10)) {
            match send(&sender, &pattern(number, number * 37 % 900)) {
                Ok(Sent::Quiet) => number += 1,
                Ok(Sent::Attend) => {
                    sender.attend().expect("the receiver is honest");
                    number += 1;
                }
                Err(Refused::Full) => std::thread::yield_now(),
                Err(refused) => panic!("{refused}"),
            }
        }
        sent.store(number, Ordering::SeqCst);
    });
    receiver.set_fence(false);
    receiver.set_active();
    let mut number = 0;
    while number < count.load(Ordering::SeqCst) {
        match receive(&receiver).expect("the sender is honest") {
            Some(bytes) => {
                assert_eq!(bytes, pattern(number, number * 37 % 900), "message {number}");
                number += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    producer.join().expect("the sender has not failed");
}

/// Both sides of two rings and a ping-pong line.
fn talkers() -> (Pages, [Talker<MappedRing, MappedTurnLine>; 2]) {
    let layout = Layout::new(geometry(4, 1)).expect("a valid shape");
    let pages = Pages::new(2 * layout.size());
    // SAFETY: inside the pages.
    let second = unsafe { pages.base.add(layout.size()) };
    // SAFETY: as above.
    let line = unsafe { pages.base.add(layout.turn_line()) };
    // SAFETY: the pages are large enough, aligned, and kept by every test to its end.
    let ring = |base| unsafe { MappedRing::new(base, layout) };
    // SAFETY: as above; nothing else uses the line.
    let end = |is_first| unsafe { MappedTurnLine::new(line, is_first) };
    let first = Talker::new(ring(pages.base), ring(second), end(true), true);
    let other = Talker::new(ring(second), ring(pages.base), end(false), false);
    (pages, [first, other])
}

#[test]
fn a_reply_travels_in_the_line_and_what_nobody_waits_for_in_the_ring() {
    let (_pages, [mut first, mut other]) = talkers();
    for round in 1..=20 {
        assert!(first.send() && other.receive() && other.send() && first.receive());
        assert_eq!((first.answered, other.answered), (round, round), "all of a conversation");
    }
    for _ in 0..3 {
        assert!(first.send());
    }
    assert_eq!(first.answered, 21, "the first of three, and then it is the other's turn");
    for _ in 0..3 {
        assert!(other.receive());
    }
    assert!(!other.receive() && !first.receive());
}

#[test]
fn messages_in_line_and_rings_arrive_in_order() {
    let (_pages, mut talkers) = talkers();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..if cfg!(miri) { 300 } else { 100_000 } {
        let talker = &mut talkers[next(2) as usize];
        if next(2) == 0 {
            talker.send();
        } else {
            talker.receive();
        }
    }
    while talkers[0].receive() {}
    while talkers[1].receive() {}
    let [first, other] = talkers;
    assert_eq!((first.received, other.received), (other.sent, first.sent));
    assert!(first.answered > 0 && first.answered < first.sent && other.answered > 0);
}

#[test]
fn a_turn_line_takes_nothing_but_a_message_at_its_position() {
    let pages = Pages::new(4096);
    // SAFETY: a line of its own, kept to the end.
    let end = TurnLine::new(unsafe { MappedTurnLine::new(pages.base, true) }, false);
    let mut copy = super::Body::new();
    let mut taken = |word: Control| {
        pages.scribble(size_of::<u64>(), word.0);
        let has = end.has(FIRST);
        let taken = end.take(FIRST, &mut copy).map(|short| copy.bytes(short).len());
        assert_eq!(has, taken.is_some(), "{word:?}");
        taken
    };
    assert_eq!(taken(Control(0)), None, "zeroed memory");
    assert_eq!(taken(Control(u64::MAX)), None);
    assert_eq!(taken(Control::short(FIRST + STEP, 3, 8)), None, "a later one");
    assert_eq!(taken(Control::short(FIRST + Control::SHARED, 3, 8)), None, "another ring's");
    let longest = Control::short(FIRST, 3, TURN_LINE_BYTES);
    assert_eq!(taken(Control(longest.0 + (1 << 8))), None, "longer than it holds");
    assert_eq!(taken(longest), Some(TURN_LINE_BYTES));
    assert!(end.is_owner() && !end.has(FIRST), "now it is ours to write");
}

#[test]
fn the_longest_message_of_a_turn_line_is_copied_whole() {
    let pages = Pages::new(4096);
    // SAFETY: a line of its own, kept to the end.
    let [near, far] = [true, false]
        .map(|is_first| TurnLine::new(unsafe { MappedTurnLine::new(pages.base, is_first) }, is_first));
    let mut copy = super::Body::new();
    for length in 0..=TURN_LINE_BYTES {
        let bytes = pattern(length, length);
        let (from, to) = if near.is_owner() { (&near, &far) } else { (&far, &near) };
        // SAFETY: a body has room for TURN_LINE_BYTES.
        let fill = |body: *mut u8| unsafe { body.copy_from(bytes.as_ptr(), length) };
        from.send(Control::short(FIRST, 3, length), fill);
        assert!(to.has(FIRST) && !to.is_owner() && !from.is_owner());
        let short = to.take(FIRST, &mut copy).expect("it was sent");
        assert_eq!((short.tag(), copy.bytes(short)), (3, &bytes[..]));
        assert!(to.is_owner() && !to.has(FIRST), "now it is the other's to write");
    }
}

#[test]
fn a_block_in_a_turn_line_is_checked_by_the_ring() {
    let layout = Layout::new(geometry(4, 2)).expect("a valid shape");
    let pages = Pages::new(layout.size());
    // SAFETY: the pages outlive the receiver.
    let receiver = Receiver::new(unsafe { MappedRing::new(pages.base, layout) });
    let line = layout.turn_line();
    let taken = |word: Control, length: u64| {
        // SAFETY: inside the pages.
        let base = unsafe { pages.base.add(line) };
        // SAFETY: a line of its own, kept to the end.
        let end = TurnLine::new(unsafe { MappedTurnLine::new(base, true) }, false);
        pages.scribble(line + 8, word.0);
        pages.scribble(line + 16, length);
        let in_block = end.take_block(receiver.position());
        assert_eq!(in_block.is_some(), end.is_owner());
        in_block
            .map(|in_block| receiver.accept_out_of_ring(in_block).map(|message| (message.tag, message.data)))
    };
    let block = |place, index| Control::block_in_line(FIRST, 7, place, index);
    assert!(taken(Control(0), 8).is_none() && taken(Control::short(FIRST, 7, 8), 8).is_none());
    assert!(taken(Control(block(Place::Small, 0).0 + STEP), 8).is_none(), "a later one");
    assert!(taken(Control(block(Place::Small, 0).0 + Control::SHARED), 8).is_none(), "another ring's");
    assert!(matches!(taken(block(Place::Small, 2), 8), Some(Err(Corrupt::Block { index: 2 }))));
    assert!(matches!(
        taken(block(Place::Small, 1), 65),
        Some(Err(Corrupt::Length { length: 65, capacity: 64 }))
    ));
    assert!(matches!(
        taken(block(Place::Bulk, 1), u64::MAX),
        Some(Err(Corrupt::Length { capacity: 1024, .. }))
    ));
    let received = taken(block(Place::Bulk, 1), 1024);
    assert!(matches!(
        received,
        Some(Ok((7, Delivery::Block { place: Place::Bulk, index: 1, length: 1024 })))
    ));
    assert_eq!(receiver.position(), FIRST + STEP);
    let again = Control(block(Place::Bulk, 1).0 + STEP);
    assert!(matches!(taken(again, 8), Some(Err(Corrupt::Block { index: 1 }))), "the receiver holds it");
}

/// Nanoseconds that a test sets.
static TIME: AtomicU64 = AtomicU64::new(0);

/// Longer than `BUSY`.
const LONG: u64 = 1 << 30;

#[test]
fn a_ring_grows_while_it_is_busy_and_is_small_again_when_it_is_idle() {
    let shape = Geometry { first: 6, ..geometry(64, 16) };
    let layout = Layout::new(shape).expect("a valid shape");
    let pages = Pages::new(layout.size());
    // SAFETY: the pages outlive both sides.
    let sender = Sender::new(unsafe { MappedRing::new(pages.base, layout) }, || TIME.load(Ordering::SeqCst));
    // SAFETY: as above.
    let receiver = Receiver::new(unsafe { MappedRing::new(pages.base, layout) });
    sender.prepare();
    let is_used = || (layout.rest().step_by(8)).any(|at| pages.word(at) != 0);
    let (mut sent, mut received) = (0, 0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let rounds = if cfg!(miri) { 3 } else { 300 };
    for round in 0..rounds {
        TIME.fetch_add(LONG, Ordering::SeqCst);
        // A little at a time, for a long time.
        for _ in 0..50 {
            TIME.fetch_add(LONG, Ordering::SeqCst);
            let _ = send(&sender, &pattern(sent, 8)).expect("room for one");
            assert_eq!(receive(&receiver).expect("honest"), Some(pattern(received, 8)));
            (sent, received) = (sent + 1, received + 1);
        }
        assert!(!is_used() && !sender.can_trim(), "round {round}: six slots are enough");
        // Much, with any number in flight.
        let mut most = 0;
        for _ in 0..2000 {
            if next(2) == 0 {
                let length = [8, 60, 500][next(3) as usize];
                match send(&sender, &pattern(sent, length)) {
                    Ok(_) => sent += 1,
                    Err(refused) => assert_eq!(refused, Refused::Full),
                }
                most = most.max(sent - received);
            } else if let Some(bytes) = receive(&receiver).expect("honest") {
                assert_eq!(bytes, pattern(received, bytes.len()));
                received += 1;
            }
        }
        assert!(most > 6 && is_used() && sender.can_trim(), "round {round}: {most} were in flight");
        assert_eq!(sender.trim(LONG), Ok(Trim::Nothing), "messages are in flight, or just were");
        while receive(&receiver).expect("honest").is_some() {
            received += 1;
        }
        // The receiver reports its position when it stops to poll.
        receiver.set_idle();
        let mut steps = Vec::new();
        while sender.can_trim() {
            TIME.fetch_add(LONG, Ordering::SeqCst);
            let step = sender.trim(LONG).expect("honest");
            match &step {
                Trim::Nothing => (),
                Trim::Return => {
                    let _ = send(&sender, &pattern(sent, 8)).expect("room for one");
                    assert_eq!(receive(&receiver).expect("honest"), Some(pattern(received, 8)));
                    (sent, received) = (sent + 1, received + 1);
                    receiver.set_idle();
                }
                Trim::Free(rest) => rest.clone().step_by(8).for_each(|at| pages.scribble(at, 0)),
            }
            steps.push(step);
            assert!(steps.len() < 6, "{steps:?}");
        }
        assert_eq!(steps.last(), Some(&Trim::Free(layout.rest())));
    }
    assert_eq!(sent, received);
}
