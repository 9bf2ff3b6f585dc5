//! Regions of peers: written, read, and updated.

use super::*;

const ALL: Access = Access { read: true, write: true };

fn rma(to: u64, buffers: &[Buffer], key: u64, offset: u64, context: usize) -> Rma<'_> {
    Rma { to, buffers, remote: Remote { key, offset }, data: None, context, mode: REPORTED }
}

/// The next end of an operation of the left side, while both make progress.
#[track_caller]
fn ended(left: &Side, right: &Side) -> Out {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(out) = left.try_next(&left.transmit) {
            return out;
        }
        left.domain.progress();
        right.domain.progress();
        assert!(Instant::now() < limit, "it does not end");
    }
}

#[test]
fn bytes_are_written_and_read_back_and_no_others_change() {
    for (way, left, right, to_right, to_left) in pairs() {
        let mut memory = vec![0_u8; 1 << 20];
        let region = right.domain.register(buffer(&mut memory), 77, ALL).unwrap();
        for (length, offset) in [(0, 5), (1, 0), (9000, 3), (700_000, 1000)] {
            let bytes = pattern(length, 5);
            let (first, second) = bytes.split_at(length / 3);
            let source = [reading(first), reading(second)];
            let write = Rma { data: Some(4), ..rma(to_right, &source, 77, offset, 1) };
            left.endpoint.write(&write).unwrap();
            assert_eq!(ended(&left, &right).entry(), Entry::new(1, flags::RMA | flags::WRITE), "{way}");
            let flags = flags::RMA | flags::REMOTE_WRITE | flags::REMOTE_CQ_DATA;
            let entry = right.got().entry();
            let expected = Entry { data: 4, source: to_left, ..Entry::new(0, flags) };
            assert_eq!(Entry { length: 0, ..entry }, expected, "{way}");
            let mut back = vec![0; length];
            left.endpoint.read(&rma(to_right, &[buffer(&mut back)], 77, offset, 2)).unwrap();
            assert_eq!(ended(&left, &right).entry(), Entry::new(2, flags::RMA | flags::READ), "{way}");
            assert!(back == bytes, "{way} {length}");
        }
        drop(region);
        assert_eq!(memory[..3], [pattern(1, 5)[0], 0, 0]);
        assert_eq!(left.counters.write.as_ref().unwrap().value(), 4);
        assert_eq!(right.counters.remote_write.as_ref().unwrap().value(), 4);
        assert_eq!(right.counters.remote_read.as_ref().unwrap().value(), 4);
    }
}

#[test]
fn a_wrong_key_offset_or_access_is_an_error_entry_and_changes_nothing() {
    for (way, left, right, to_right, _) in pairs() {
        let (mut memory, mut secret) = (vec![1_u8; 100], vec![2_u8; 100]);
        let _region = right.domain.register(buffer(&mut memory), 1, ALL).unwrap();
        let shut = Access { read: false, write: false };
        let _shut = right.domain.register(buffer(&mut secret), 2, shut).unwrap();
        let long = vec![9_u8; 200_000];
        let cases = [
            (3, 0, 1, Errno::NO_KEY),
            (1, 100, 1, Errno::INVALID),
            (1, u64::MAX, 1, Errno::INVALID),
            (1, 1, 100, Errno::INVALID),
            (2, 0, 1, Errno::ACCESS),
            (2, 0, 200_000, Errno::ACCESS),
        ];
        for (key, offset, length, errno) in cases {
            let source = [reading(&long[..length])];
            left.endpoint.write(&rma(to_right, &source, key, offset, 8)).unwrap();
            let error = ended(&left, &right).error();
            assert_eq!((error.entry.context, error.errno), (8, errno), "{way}");
            let mut back = vec![0; length];
            left.endpoint.read(&rma(to_right, &[buffer(&mut back)], key, offset, 9)).unwrap();
            let error = ended(&left, &right).error();
            assert_eq!((error.entry.context, error.errno), (9, errno), "{way}");
            assert!(back.iter().all(|byte| *byte == 0));
        }
        assert!(memory.iter().all(|byte| *byte == 1) && secret.iter().all(|byte| *byte == 2), "{way}");
        // The connection goes on.
        left.endpoint.write(&rma(to_right, &[reading(b"fine")], 1, 0, 8)).unwrap();
        ended(&left, &right).entry();
        assert_eq!(&memory[..4], b"fine");
        assert_eq!(left.counters.write.as_ref().unwrap().errors(), cases.len() as u64);
    }
}

#[test]
fn a_revoked_region_is_read_no_further() {
    for (way, left, right, to_right, _) in pairs() {
        let mut memory = vec![1_u8; 8 << 20];
        let region = right.domain.register(buffer(&mut memory), 1, ALL).unwrap();
        let mut back = vec![0; 8 << 20];
        left.endpoint.read(&rma(to_right, &[buffer(&mut back)], 1, 0, 9)).unwrap();
        drop(region);
        // It ends, well if all had left before the region went.
        match ended(&left, &right) {
            Out::Entry(_) => assert!(back.iter().all(|byte| *byte == 1), "{way}"),
            Out::Error(error) => assert_eq!(error.errno, Errno::NO_KEY, "{way}"),
        }
    }
}

#[test]
fn injected_writes_are_counted_and_their_buffers_are_free_at_once() {
    for (way, left, right, to_right, _) in pairs() {
        let mut memory = vec![0_u8; 4096 * 50];
        let _region = right.domain.register(buffer(&mut memory), 1, ALL).unwrap();
        for number in 0..50_u8 {
            let mut bytes = vec![number; 4096];
            let source = [buffer(&mut bytes)];
            let offset = u64::from(number) * 4096;
            let write = Rma { mode: INJECT, ..rma(to_right, &source, 1, offset, 0) };
            retry(&left, || left.endpoint.write(&write));
            bytes.fill(255);
        }
        let counter = left.counters.write.as_ref().unwrap();
        let limit = Instant::now() + LIMIT;
        while counter.value() < 50 {
            left.domain.progress();
            right.domain.progress();
            assert!(Instant::now() < limit, "{way}");
        }
        assert!(left.transmit.is_empty());
        for (number, part) in memory.chunks(4096).enumerate() {
            assert!(part.iter().all(|byte| usize::from(*byte) == number), "{way} {number}");
        }
    }
}

fn atomic<'a>(
    to: u64,
    operation: Operation,
    [operands, compare, results]: [&'a [Buffer]; 3],
    offset: u64,
    count: usize,
) -> Atomic<'a> {
    Atomic {
        to,
        operands,
        compare,
        results,
        remote: Remote { key: 1, offset },
        data_type: DataType::Uint64,
        operation,
        count,
        context: 6,
        mode: REPORTED,
    }
}

fn words(values: &mut [u64]) -> Buffer {
    // SAFETY: as `buffer`.
    unsafe { Buffer::new(values.as_mut_ptr().cast(), size_of_val(values)) }
}

#[test]
fn elements_are_updated_and_fetched_and_compared_whatever_their_number() {
    for (way, left, right, to_right, _) in pairs() {
        for count in [1, 3, 20_000] {
            let mut memory: Vec<u64> = (0..count as u64 + 1).collect();
            let region = right.domain.register(words(&mut memory), 1, ALL).unwrap();
            let mut add = vec![10; count];
            let mut former = vec![0; count];
            let operands = [words(&mut add)];
            let sum = atomic(to_right, Operation::Sum, [&operands, &[], &[]], 8, count);
            left.endpoint.atomic(&sum).unwrap();
            assert_eq!(ended(&left, &right).entry(), Entry::new(6, flags::ATOMIC | flags::WRITE));
            let results = [words(&mut former)];
            let fetch = atomic(to_right, Operation::Sum, [&operands, &[], &results], 8, count);
            left.endpoint.atomic(&fetch).unwrap();
            assert_eq!(ended(&left, &right).entry(), Entry::new(6, flags::ATOMIC | flags::READ));
            assert!(former.iter().copied().eq((1..=count as u64).map(|value| value + 10)), "{way}");
            // Every element but the first is what is compared with.
            let mut compare: Vec<u64> = (1..=count as u64).map(|value| value + 20).collect();
            compare[0] = 0;
            let mut swap = vec![7; count];
            let (operands, compare) = ([words(&mut swap)], [words(&mut compare)]);
            let swap = atomic(to_right, Operation::CompareSwap, [&operands, &compare, &results], 8, count);
            left.endpoint.atomic(&swap).unwrap();
            ended(&left, &right).entry();
            assert!(former.iter().copied().eq((1..=count as u64).map(|value| value + 20)), "{way}");
            let read = atomic(to_right, Operation::Read, [&[], &[], &results], 0, count);
            left.endpoint.atomic(&read).unwrap();
            ended(&left, &right).entry();
            assert_eq!(former[..count.min(3)], [0, 21, 7][..count.min(3)], "{way}");
            drop(region);
            left.endpoint.atomic(&read).unwrap();
            assert_eq!(ended(&left, &right).error().errno, Errno::NO_KEY, "{way}");
        }
    }
}

#[test]
fn atomic_calls_with_buffers_that_are_too_short_are_refused() {
    let (_, left, _right, to_right, _) = pairs().next().unwrap();
    let mut value = [0];
    let one = [words(&mut value)];
    for atomic in [
        atomic(to_right, Operation::Sum, [&one, &[], &[]], 0, 2),
        atomic(to_right, Operation::Sum, [&one, &[], &[]], 0, 0),
        atomic(to_right, Operation::Sum, [&one, &[], &[]], 0, usize::MAX),
        atomic(to_right, Operation::CompareSwap, [&one, &[], &one], 0, 1),
        atomic(to_right, Operation::Read, [&[], &[], &one], 0, 2),
        atomic(7, Operation::Sum, [&one, &[], &[]], 0, 1),
    ] {
        assert_eq!(left.endpoint.atomic(&atomic), Err(Errno::INVALID), "{atomic:?}");
    }
}
