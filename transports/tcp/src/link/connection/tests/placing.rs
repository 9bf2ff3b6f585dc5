//! `receive`: long messages go where the application likes them.

use std::cell::UnsafeCell;

use super::*;
use crate::link::shared::PLACED_FROM;
use crate::proto::wire::control;

/// The id whose messages are offered.
const ID: u8 = 5;
/// Shorter ones are not.
const LONG: usize = PLACED_FROM;

/// A placer, and what it was called with.
pub(super) struct Placing {
    table: UnsafeCell<UctAmPlacer>,
    space: UnsafeCell<Vec<u8>>,
    /// Whether it takes messages.
    takes: Cell<bool>,
    /// Bytes from here on are received to nowhere.
    wanted: Cell<usize>,
    /// Longest piece of a place.
    piece: Cell<usize>,
    /// Bytes of the head of each message that was offered.
    heads: RefCell<Vec<usize>>,
    ended: RefCell<Vec<Vec<u8>>>,
}

impl Default for Placing {
    fn default() -> Placing {
        let table = UctAmPlacer {
            size: size_of::<UctAmPlacer>(),
            argument: ptr::null_mut(),
            ids: 0,
            begin: Some(begin),
            place: Some(place),
            end: Some(end),
        };
        Placing {
            table: UnsafeCell::new(table),
            space: UnsafeCell::default(),
            takes: Cell::new(true),
            wanted: Cell::new(usize::MAX),
            piece: Cell::new(usize::MAX),
            heads: RefCell::default(),
            ended: RefCell::default(),
        }
    }
}

impl Placing {
    /// The table, once this does not move any more.
    pub(super) fn table(&self) -> *const UctAmPlacer {
        // SAFETY: nothing else uses the table now.
        unsafe { (*self.table.get()).argument = ptr::from_ref(self).cast_mut().cast() };
        self.table.get()
    }

    fn offer(&self) {
        // SAFETY: as above.
        unsafe { (*self.table.get()).ids = 1 << ID };
    }
}

/// What the table belongs to.
fn of<'a>(argument: *mut c_void) -> &'a Placing {
    // SAFETY: the bed keeps it as long as its interface.
    unsafe { &*argument.cast::<Placing>() }
}

unsafe extern "C" fn begin(
    argument: *mut c_void,
    id: u32,
    head: *const c_void,
    head_length: usize,
    length: usize,
    arrival: *mut u64,
) -> UctStatus {
    let placing = of(argument);
    assert_eq!(id, u32::from(ID));
    placing.heads.borrow_mut().push(head_length);
    // SAFETY: the head is readable for the call.
    let head = unsafe { std::slice::from_raw_parts(head.cast::<u8>(), head_length) };
    let mut space = head.to_vec();
    space.resize(length, b'-');
    // SAFETY: nothing refers to the place between calls.
    unsafe { *placing.space.get() = space };
    // SAFETY: the caller's place for the answer.
    unsafe { arrival.write(placing.heads.borrow().len() as u64) };
    if placing.takes.get() { UCT_OK } else { UCT_ERR_NO_ELEM }
}

unsafe extern "C" fn place(
    argument: *mut c_void,
    arrival: u64,
    offset: usize,
    room: *mut usize,
) -> *mut c_void {
    let placing = of(argument);
    assert_eq!(arrival, placing.heads.borrow().len() as u64);
    if offset >= placing.wanted.get() {
        return ptr::null_mut();
    }
    // SAFETY: nothing refers to the place between calls.
    let space = unsafe { &mut *placing.space.get() };
    // SAFETY: the caller's place for the answer.
    unsafe { room.write(placing.piece.get()) };
    space[offset..].as_mut_ptr().cast()
}

unsafe extern "C" fn end(argument: *mut c_void, arrival: u64, length: usize) {
    let placing = of(argument);
    assert_eq!(arrival, placing.heads.borrow().len() as u64);
    // SAFETY: nothing refers to the place between calls.
    let space = std::mem::take(unsafe { &mut *placing.space.get() });
    assert_eq!(space.len(), length);
    placing.ended.borrow_mut().push(space);
}

impl Bed {
    /// With a placer that has seen a long message, so that the next one is offered.
    fn placing() -> Bed {
        let bed = Bed::new(&[]);
        bed.placing.offer();
        bed.write_at_once(&frame(ID, &pattern(LONG)));
        assert_eq!(bed.messages().len() + bed.placing.ended.take().len(), 1);
        bed.placing.heads.take();
        bed
    }

    /// All of it is there when this side looks.
    fn write_at_once(&self, bytes: &[u8]) {
        (&self.peer).write_all(bytes).expect("the socket has room");
        self.progress();
    }
}

#[test]
fn long_messages_go_to_their_places_wherever_the_bytes_are_cut() {
    let frames = [frame(1, b"ahead"), frame(ID, &pattern(LONG + 3)), frame(2, b"behind")].concat();
    let ends =
        [0, 1, 7, 8, 15, 16, 17, 24, 30, 600, LONG, LONG + 16, LONG + 26, LONG + 27, LONG + 30, LONG + 33];
    for cut in ends.into_iter().chain([frames.len()]) {
        for piece in [usize::MAX, 5000] {
            let bed = Bed::placing();
            bed.placing.piece.set(piece);
            bed.write_at_once(&frames[..cut]);
            bed.write_at_once(&frames[cut..]);
            // What comes behind a frame that was begun and is short is read with it.
            let mut messages = bed.messages();
            messages.extend(bed.placing.ended.take().into_iter().map(|message| (ID, message)));
            messages.sort();
            let expected = [(1, b"ahead".to_vec()), (2, b"behind".to_vec()), (ID, pattern(LONG + 3))];
            assert!(messages == expected, "cut at {cut}");
            assert_eq!(bed.failure(), None);
        }
    }
}

#[test]
fn only_a_little_of_a_long_message_is_copied_also_behind_short_ones() {
    let bed = Bed::placing();
    for round in 0..8 {
        let short = frame(1, b"short").repeat(round % 3);
        bed.write_at_once(&[short, frame(ID, &pattern(LONG))].concat());
        bed.write_at_once(&frame(2, b"a reply"));
    }
    let heads = bed.placing.heads.take();
    assert!(heads.len() == 8 && heads.iter().all(|head| *head < 512), "{heads:?}");
    assert_eq!(bed.placing.ended.take().len(), 8);
}

#[test]
fn many_short_messages_are_read_at_once_again() {
    let bed = Bed::placing();
    let short = frame(1, &pattern(100));
    bed.write_at_once(&short.repeat(100));
    assert_eq!(bed.messages().len(), 100);
    // The next long message is there as a whole with others, and is not offered.
    bed.write_at_once(&[short.repeat(3), frame(ID, &pattern(LONG)), short].concat());
    assert_eq!((bed.messages().len(), bed.placing.heads.take().len()), (5, 0));
}

#[test]
fn messages_that_are_short_or_of_another_id_or_not_taken_are_the_handlers() {
    let bed = Bed::placing();
    let others = [(ID, LONG - 1), (ID + 1, LONG), (ID + 1, 3 * LONG)];
    for (id, length) in others {
        bed.write_at_once(&frame(id, &pattern(length)));
        assert!(bed.messages() == [(id, pattern(length))], "{length} bytes of {id}");
    }
    assert_eq!(bed.placing.heads.take(), []);
    let bed = Bed::placing();
    bed.placing.takes.set(false);
    for length in [LONG, 300_000] {
        bed.write(&[frame(ID, &pattern(length)), frame(1, b"behind")].concat());
        assert!(bed.messages() == [(ID, pattern(length)), (1, b"behind".to_vec())], "{length} bytes");
    }
    assert_eq!((bed.placing.heads.borrow().is_empty(), bed.placing.ended.take().len()), (false, 0));
}

#[test]
fn what_nobody_wants_is_received_to_nowhere() {
    for wanted in [0, 10_000, LONG, 5 * LONG] {
        let bed = Bed::placing();
        bed.placing.wanted.set(wanted);
        bed.write(&[frame(ID, &pattern(5 * LONG)), frame(1, b"behind")].concat());
        let ended = bed.placing.ended.take();
        assert!(ended.len() == 1 && ended[0].len() == 5 * LONG);
        let end = wanted.clamp(bed.placing.heads.borrow()[0], 5 * LONG);
        assert!(ended[0][..end] == pattern(5 * LONG)[..end], "{wanted} wanted bytes");
        assert_eq!(bed.messages(), [(1, b"behind".to_vec())]);
    }
}

#[test]
fn a_message_whose_connection_ends_does_not_end() {
    let bed = Bed::placing();
    bed.write_at_once(&frame(ID, &pattern(LONG))[..LONG / 2]);
    assert_eq!(bed.placing.heads.borrow().len(), 1);
    bed.peer.shutdown(std::net::Shutdown::Both).unwrap();
    bed.progress();
    assert!(bed.failure().is_some() && bed.placing.ended.take().is_empty());
}

#[test]
fn a_frame_of_no_message_is_not_offered() {
    let bed = Bed::placing();
    bed.write(&frame_header(control::FILL, LONG).to_ne_bytes());
    assert_eq!((bed.failure(), bed.placing.heads.take().len()), (Some(Error::IO_ERROR), 0));
}
