//! Frames of tens of kilobytes over `tcp`, which are received straight into the buffers of receives.

use std::sync::atomic::Ordering;

use super::super::inside::PLACED;
use super::*;

const LENGTHS: [usize; 6] = [20_000, 16 << 10, 65_000, 65_001, 150_003, 256 << 10];

/// Two endpoints whose frames take a message of the longest length whole, as those of a program's, or do not.
fn pair(seg_size: &str) -> (Side, Side, u64, u64) {
    let open = || Side::new(&domain_with("tcp", &[("tcp.tx_seg_size", seg_size)]));
    let (left, right) = (open(), open());
    let (to_right, to_left) = (left.knows(&right), right.knows(&left));
    (left, right, to_right, to_left)
}

/// Has `one` move a message of each length four times, and returns how many frames were placed in all. Its last argument differs each time.
fn exchange(mut one: impl FnMut(&Side, &Side, u64, usize, u8)) -> u64 {
    let before = PLACED.load(Ordering::Relaxed);
    for seg_size in ["64k", "257k"] {
        let (left, right, to_right, _) = pair(seg_size);
        // A first message of some length is announced.
        right.endpoint.receive(&receive(&[], Some(99), 9)).unwrap();
        left.endpoint.send(&send(to_right, &[], Some(99), 9)).unwrap();
        assert_eq!(check(&left, &right).entry().tag, 99);
        for round in 0..4 {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                one(&left, &right, to_right, length, (round * LENGTHS.len() + number) as u8);
            }
        }
    }
    PLACED.load(Ordering::Relaxed) - before
}

/// The next entry of the right side. The left side has one for what it has sent.
fn check(left: &Side, right: &Side) -> Out {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(out) = right.try_next(&right.receive) {
            left.sent().entry();
            return out;
        }
        left.domain.progress();
        right.domain.progress();
        assert!(Instant::now() < limit, "no message");
    }
}

#[test]
fn messages_go_to_the_buffers_of_receives_and_no_further() {
    let placed = exchange(|left, right, to, length, seed| {
        let bytes = pattern(length, seed);
        // As long, longer, shorter, and much shorter.
        let room = [length, length + 100, length - 10_000, 30][usize::from(seed % 4)];
        let mut space = vec![b'-'; room + 50];
        let (first, rest) = space.split_at_mut(room / 3);
        let (second, third) = rest.split_at_mut(5);
        let target = [buffer(first), buffer(second), buffer(&mut third[..room - room / 3 - 5])];
        right.endpoint.receive(&receive(&target, Some(7), 2)).unwrap();
        let source = [reading(&bytes)];
        let mode = if seed % 2 == 0 { REPORTED } else { DELIVERY };
        let message = Send { mode, ..send(to, &source, Some(7), 1) };
        retry(left, || left.endpoint.send(&message));
        match check(left, right) {
            Out::Entry(entry) => assert_eq!((entry.length, entry.tag), (length, 7)),
            Out::Error(error) => assert_eq!((error.errno, error.excess), (Errno::TRUNCATED, length - room)),
        }
        let count = room.min(length);
        assert!(space[..count] == bytes[..count], "{length} bytes for {room}");
        assert!(space[count..].iter().all(|byte| *byte == b'-'), "{length} bytes for {room}: no further");
    });
    assert!(placed > 12, "{placed} frames were placed");
}

#[test]
fn messages_go_into_the_middle_of_a_receive_of_many() {
    let mut space = vec![0; 4 << 20];
    let whole = [buffer(&mut space)];
    let base = whole[0].base().addr();
    let mut at = 0;
    let mut sent = Vec::new();
    let placed = exchange(|left, right, to, length, seed| {
        if seed == 0 {
            at = 0;
            sent.clear();
            right.endpoint.receive_many(&receive(&whole, None, 2), 300_000).unwrap();
        }
        let bytes = pattern(length, seed);
        left.endpoint.send(&send(to, &[reading(&bytes)], None, 1)).unwrap();
        let entry = check(left, right).entry();
        assert_eq!((entry.length, entry.buffer), (length, base + at));
        sent.push((at, bytes));
        at += length.next_multiple_of(8);
    });
    assert_eq!(sent.len(), 4 * LENGTHS.len());
    for (at, bytes) in sent {
        assert!(space[at..][..bytes.len()] == bytes, "at {at}");
    }
    assert!(placed > 12, "{placed} frames were placed");
}

#[test]
fn unexpected_messages_are_kept_and_later_ones_placed() {
    let placed = exchange(|left, right, to, length, seed| {
        let bytes = pattern(length, seed);
        let mut spaces = [vec![0; length], vec![0; length]];
        let targets = spaces.each_mut().map(|space| [buffer(space)]);
        let source = [reading(&bytes)];
        retry(left, || left.endpoint.send(&send(to, &source, Some(1), 1)));
        left.sent().entry();
        right.endpoint.receive(&receive(&targets[1], Some(2), 2)).unwrap();
        retry(left, || left.endpoint.send(&send(to, &source, Some(2), 1)));
        assert_eq!(check(left, right).entry().tag, 2);
        right.endpoint.receive(&receive(&targets[0], Some(1), 1)).unwrap();
        assert_eq!(right.got().entry().tag, 1);
        assert!(spaces.iter().all(|space| *space == bytes), "{length}");
    });
    assert!(placed > 6, "{placed} frames were placed");
}
