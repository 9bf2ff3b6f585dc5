//! `frames`: requests for remote memory, signs of life, and what is no frame.

use uct_plugin::memory::MemoryAccess;
use uct_plugin::rma::{Opcode, REQUEST_HEADER, RESPONSE_HEADER, Request, Response, ResponseKind};
use uct_plugin::{AtomicOp, Status};

use super::*;
use crate::proto::wire::control;

/// A request for memory that is registered with the bed's interface, which lives as long.
pub(super) fn request(bed: &Bed, memory: &mut [u8], opcode: Opcode, length: usize) -> Request {
    let base = ptr::NonNull::from(&mut *memory).cast();
    // SAFETY: the interface ends ahead of the memory in every test.
    let region =
        unsafe { bed.iface.shared.regions().insert(base, memory.len(), MemoryAccess::all()) }.unwrap();
    Request {
        opcode,
        atomic: AtomicOp::Add,
        sequence: 1,
        slot: region.key() as u32,
        secret: region.secret(),
        address: base.as_ptr() as u64,
        length: length as u32,
        operands: [0; 2],
    }
}

pub(super) fn asked(request: &Request, data: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; request.frame_bytes()];
    request.write(&mut payload);
    frame(control::REQUEST, &[&payload, data].concat())
}

fn answer(kind: ResponseKind, status: Status, data: &[u8]) -> Vec<u8> {
    let header = Response { kind, sequence: 1, status, length: data.len() as u32 }.header();
    frame(control::RESPONSE, &[&header, data].concat())
}

#[test]
fn puts_of_every_size_are_written_and_acknowledged_and_leave_their_surroundings_alone() {
    for length in [0, 1, 7, 8, 16_383, 16_384, 16_385, 100_003] {
        let mut memory = vec![0xEE; length + 8];
        let bed = Bed::new(&[("rx_seg_size", "64k")]);
        let put = request(&bed, &mut memory, Opcode::Put, length);
        let frames = [asked(&put, &pattern(length)), frame(1, b"behind")].concat();
        let cut = frames.len() - length / 2 - 20;
        bed.write(&frames[..cut]);
        bed.write(&frames[cut..]);
        assert_eq!(bed.messages(), [(1, b"behind".to_vec())], "{length} bytes");
        assert_eq!(bed.read_all(), answer(ResponseKind::Acknowledgement, Status::OK, &[]));
        drop(bed);
        assert!(memory[..length] == pattern(length) && memory[length..] == [0xEE; 8], "{length} bytes");
    }
}

#[test]
fn a_put_that_has_begun_is_written_as_it_comes_from_16_kilobytes_on() {
    for (length, written) in [(100, 0), (16_383, 0), (16_384, 40), (16_385, 40)] {
        let mut memory = vec![0xEE; length];
        let bed = Bed::new(&[("rx_seg_size", "64k")]);
        let put = request(&bed, &mut memory, Opcode::Put, length);
        bed.write(&asked(&put, &pattern(length))[..8 + REQUEST_HEADER + 40]);
        assert_eq!(bed.failure(), None);
        drop(bed);
        let expected = [&pattern(written)[..], &vec![0xEE; length - written]].concat();
        assert!(memory == expected, "{length} bytes");
    }
}

/// Large puts with the sequence numbers from 1 on, which the peer writes at once, with what follows them.
fn write_puts(bed: &Bed, memory: &mut [u8], count: u32, behind: &[u8]) {
    let length = memory.len();
    let mut put = request(bed, memory, Opcode::Put, length);
    let puts = (1..=count).flat_map(|sequence| {
        put.sequence = sequence;
        asked(&put, &pattern(length))
    });
    let frames: Vec<u8> = puts.chain(behind.iter().copied()).collect();
    (&bed.peer).write_all(&frames).unwrap();
}

fn acknowledgement(sequence: u32) -> Vec<u8> {
    let kind = ResponseKind::Acknowledgement;
    frame(control::RESPONSE, &Response { kind, sequence, status: Status::OK, length: 0 }.header())
}

#[test]
fn large_puts_that_follow_one_another_are_acknowledged_together() {
    let mut memory = vec![0xEE; 20_000];
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    write_puts(&bed, &mut memory, 4, &[]);
    bed.progress();
    let expected = [1, 4].map(acknowledgement).concat();
    assert!(bed.read_all() == expected, "the first one alone, the others behind it together");
    write_puts(&bed, &mut memory, 1, &[]);
    bed.progress();
    assert_eq!(bed.read_all(), acknowledgement(1), "one that nothing follows");
}

#[test]
fn a_handler_that_makes_progress_does_not_keep_back_the_acknowledgement_of_the_puts_ahead() {
    let mut memory = vec![0xEE; 20_000];
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    let (iface, peer) = (Rc::clone(&bed.iface), bed.peer.try_clone().unwrap());
    let seen = Rc::<Cell<usize>>::default();
    let noted = Rc::clone(&seen);
    bed.on_message(move |_, _| {
        rounds(&iface);
        noted.set((&peer).read(&mut [0; 4096]).unwrap_or(0));
    });
    write_puts(&bed, &mut memory, 2, &frame(1, b"behind"));
    bed.progress();
    assert_eq!(seen.get(), 2 * acknowledgement(1).len());
}

#[test]
fn the_zeros_behind_a_large_put_may_come_in_parts() {
    const LENGTH: usize = 20_001;
    let zeros = padded(LENGTH) - LENGTH;
    for (first, second) in (0..=zeros).flat_map(|first| (first..=zeros).map(move |second| (first, second))) {
        for is_refused in [false, true] {
            let mut memory = vec![0xEE; LENGTH + 8];
            let bed = Bed::new(&[("rx_seg_size", "16k")]);
            let mut put = request(&bed, &mut memory, Opcode::Put, LENGTH);
            put.secret ^= u64::from(is_refused);
            let put = asked(&put, &pattern(LENGTH));
            let end = put.len() - zeros;
            let frames = [put, frame(1, b"behind")].concat();
            let cuts = [0, 1000, end + first, end + second, frames.len()];
            for part in cuts.windows(2) {
                bed.write(&frames[part[0]..part[1]]);
            }
            let what = format!("{first} and {second} zeros have come, refused: {is_refused}");
            assert_eq!(bed.messages(), [(1, b"behind".to_vec())], "{what}");
            let kind = if is_refused { ResponseKind::Error } else { ResponseKind::Acknowledgement };
            assert_eq!(bed.read_all()[8], kind as u8, "{what}");
            drop(bed);
            let written = if is_refused { vec![0xEE; LENGTH] } else { pattern(LENGTH) };
            assert!(memory[..LENGTH] == written && memory[LENGTH..] == [0xEE; 8], "{what}");
        }
    }
}

#[test]
fn gets_of_every_size_answer_the_memory_also_where_it_waits() {
    for length in [1, 7, 8_000, 8_200, 8_500, 65_535] {
        let mut memory = pattern(length);
        let bed = Bed::new(&[]);
        let get = request(&bed, &mut memory, Opcode::Get, length);
        bed.write(&asked(&get, &[]));
        let expected = answer(ResponseKind::Data, Status::OK, &pattern(length));
        assert!(bed.read_all() == expected, "{length} bytes");
        let ahead = bed.fill(&pattern(500));
        bed.write(&asked(&get, &[]));
        assert!(bed.read_all() == [ahead, expected].concat(), "{length} bytes behind others");
    }
}

#[test]
fn refused_requests_are_answered_and_counted() {
    let mut memory = pattern(20_000);
    let bed = Bed::new(&[("max_refused", "3")]);
    let mut foreign = request(&bed, &mut memory, Opcode::Get, 8);
    foreign.secret ^= 1;
    let large = Request { opcode: Opcode::Put, length: 20_000, ..foreign };
    let small = Request { opcode: Opcode::Put, length: 3, ..foreign };
    for (request, data) in [(foreign, 0), (large, 20_000), (small, 3)] {
        let bytes = asked(&request, &vec![0; data]);
        // The data of the large one come in two parts.
        let cut = bytes.len() / 2 + 64;
        bed.write(&bytes[..cut.min(bytes.len())]);
        bed.write(&bytes[cut.min(bytes.len())..]);
        let answer = bed.read_all();
        assert_eq!((answer.len(), answer[8]), (8 + RESPONSE_HEADER, ResponseKind::Error as u8));
        assert_eq!(bed.failure(), None);
    }
    bed.write(&asked(&foreign, &[]));
    assert_eq!(bed.failure(), Some(Error::IO_ERROR));
    drop(bed);
    assert_eq!(memory, pattern(20_000));
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let put = Request {
        opcode: Opcode::Put,
        atomic: AtomicOp::Add,
        sequence: 1,
        slot: 0,
        secret: 0,
        address: 0,
        length: 20_000,
        operands: [0; 2],
    };
    let mut longer = asked(&put, &[0; 20_001]);
    longer.truncate(64);
    let signs = [control::PING, control::PONG, control::USE, control::UNUSE];
    let mut bad: Vec<_> = signs.map(|kind| frame_header(kind, 1).to_ne_bytes().to_vec()).into();
    bad.extend([
        longer,
        frame(control::FILL, &[0; 25]),
        frame(39, &[]),
        frame(255, &[]),
        frame(control::RESPONSE, &[1; RESPONSE_HEADER]),
    ]);
    bad.push(frame(control::REQUEST, &[0; REQUEST_HEADER - 1]));
    for bytes in bad {
        let bed = Bed::new(&[]);
        bed.write(&bytes);
        assert_eq!(bed.failure(), Some(Error::IO_ERROR), "{bytes:?}");
    }
}

#[test]
fn each_kind_of_frame_has_its_longest() {
    let bed = Bed::new(&[("max_message", "1m")]);
    let longest = [
        (0, 1 << 20),
        (31, 1 << 20),
        (control::REQUEST, (1 << 20) + REQUEST_HEADER),
        (control::RESPONSE, super::super::GET_SEGMENT + RESPONSE_HEADER),
        (control::PING, 0),
        (control::FILL, 24),
        (200, 0),
    ];
    for (kind, length) in longest {
        assert!(bed.iface.shared.check_length(kind, length).is_ok(), "kind {kind}");
        assert!(bed.iface.shared.check_length(kind, length + 1).is_err(), "kind {kind}");
    }
}

#[test]
fn one_question_is_asked_until_it_is_answered() {
    let bed = Bed::new(&[]);
    bed.conn.probe(&bed.iface.shared);
    bed.conn.probe(&bed.iface.shared);
    assert_eq!(bed.read_all(), frame(control::PING, &[]));
    bed.write(&frame(control::PONG, &[]));
    bed.conn.probe(&bed.iface.shared);
    assert_eq!(bed.read_all(), frame(control::PING, &[]));
    bed.write(&frame(control::PING, &[]));
    assert_eq!(bed.read_all(), frame(control::PONG, &[]));
}

#[test]
fn a_large_put_begins_with_its_header_in_whatever_parts_that_comes() {
    let length = 20_000;
    for (first, goes_straight) in [(8, false), (8 + 31, false), (8 + 32, true), (8 + 33, true)] {
        let mut memory = vec![0xEE; length];
        let bed = Bed::new(&[("rx_seg_size", "16k")]);
        let put = request(&bed, &mut memory, Opcode::Put, length);
        let (address, bytes) = (put.address as *const u8, asked(&put, &pattern(length)));
        bed.write(&bytes[..first]);
        bed.write(&bytes[first..8 + REQUEST_HEADER + 1000]);
        assert_eq!(bed.failure(), None, "{first} bytes first");
        // SAFETY: the memory is the test's, registered and not written now.
        let last = unsafe { address.wrapping_add(999).read() };
        assert_eq!(last == pattern(1000)[999], goes_straight, "{first} bytes first");
        bed.write(&bytes[8 + REQUEST_HEADER + 1000..]);
        assert_eq!(bed.read_all(), answer(ResponseKind::Acknowledgement, Status::OK, &[]));
        drop(bed);
        assert!(memory == pattern(length), "{first} bytes first");
    }
}

#[test]
fn fill_is_taken_and_means_nothing() {
    let bed = Bed::new(&[]);
    let fills = [0, 1, 8, 23, 24].map(|length| frame(control::FILL, &vec![0xEE; length])).concat();
    bed.write(&[fills, frame(1, b"behind")].concat());
    assert_eq!((bed.failure(), bed.messages()), (None, vec![(1, b"behind".to_vec())]));
    assert_eq!(bed.read_all(), []);
}

#[test]
fn what_was_carried_out_while_the_socket_is_full_is_acknowledged_when_it_has_room() {
    let mut memory = vec![0; 8];
    let bed = Bed::new(&[]);
    let put = request(&bed, &mut memory, Opcode::Put, 8);
    let sent = bed.fill(&pattern(500));
    let queued = bed.conn.queued_bytes();
    bed.write(&asked(&put, &pattern(8)));
    bed.conn.mark_dirty(&bed.iface.shared);
    bed.progress();
    assert_eq!(bed.conn.queued_bytes(), queued);
    let acknowledgement = answer(ResponseKind::Acknowledgement, Status::OK, &[]);
    assert!(bed.read_all() == [sent, acknowledgement].concat());
    drop(bed);
    assert_eq!(memory, pattern(8));
}

#[test]
fn signs_and_news_of_use_carry_nothing() {
    for kind in [control::PING, control::PONG, control::USE, control::UNUSE] {
        let bed = Bed::new(&[]);
        bed.write(&frame(kind, &[0; 8]));
        assert_eq!((bed.failure(), bed.read()), (Some(Error::IO_ERROR), Vec::new()), "kind {kind}");
        assert!(bed.iface.shared.last_failure().contains("without payload has one"), "kind {kind}");
    }
}
