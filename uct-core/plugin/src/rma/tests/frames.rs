//! `wire` and `target`: every kind of request as a frame, and what its answer holds.

use std::slice;

use super::*;

/// Every operation, with the bytes of its operands and of the memory that it changes as an atomic.
const OPCODES: [(Opcode, u8, usize, usize); 8] = [
    (Opcode::Put, 1, 0, 0),
    (Opcode::Get, 2, 0, 0),
    (Opcode::Post32, 3, 8, 4),
    (Opcode::Post64, 4, 8, 8),
    (Opcode::Fetch32, 5, 8, 4),
    (Opcode::Fetch64, 6, 8, 8),
    (Opcode::Cswap32, 7, 16, 4),
    (Opcode::Cswap64, 8, 16, 8),
];

/// A request whose numbers all differ.
fn request(opcode: Opcode, atomic: AtomicOp, length: u32, operands: [u64; 2]) -> Request {
    Request {
        opcode,
        atomic,
        sequence: 0x0102,
        slot: 0x0304,
        secret: 0x0506,
        address: 0x0708,
        length,
        operands,
    }
}

#[test]
fn every_request_is_read_as_it_was_written() {
    let mut longest = 0;
    for (opcode, number, operands, atomic) in OPCODES {
        assert_eq!((opcode.operand_bytes(), opcode.atomic_bytes()), (operands, atomic), "{opcode:?}");
        let values = [0x1112_1314_1516_1718, 0x2122_2324_2526_2728];
        let kept = std::array::from_fn(|index| if index * 8 < operands { values[index] } else { 0 });
        let length = if atomic > 0 { atomic as u32 } else { 77 };
        let op = if atomic > 0 { AtomicOp::Xor } else { AtomicOp::Add };
        let written = request(opcode, op, length, kept);
        let bytes = frame(&written, &[]);
        assert_eq!((bytes.len(), bytes[0]), (32 + operands, number), "{opcode:?}");
        assert_eq!((bytes.len(), bytes[1]), (written.frame_bytes(), op as u8));
        assert_eq!(Request::read(&bytes), Ok((written, &[][..])));
        longest = longest.max(bytes.len());
    }
    assert_eq!(longest, MAX_REQUEST);
    for number in [0, 9, 255] {
        let mut bytes = frame(&request(Opcode::Get, AtomicOp::Add, 1, [0; 2]), &[]);
        bytes[0] = number;
        assert_eq!(Request::read(&bytes), Err(Malformed("a request for an unknown operation")));
    }
}

#[test]
fn a_frame_of_another_length_than_its_request_is_none() {
    let malformed = |bytes: &[u8]| Request::read(bytes).unwrap_err().0;
    for (opcode, _, operands, atomic) in OPCODES {
        let bytes = frame(&request(opcode, AtomicOp::Add, atomic as u32, [1, 2]), &[]);
        assert_eq!(malformed(&bytes[..31]), "a request is shorter than its header");
        let more = [&bytes[..], &[0]].concat();
        match opcode {
            Opcode::Put => assert_eq!(Request::read(&more).unwrap().1, [0], "the data follow"),
            Opcode::Get => assert_eq!(malformed(&more), "a get carries data"),
            _ => {
                let words = "an atomic has another length than its kind";
                assert_eq!(malformed(&more), words, "{opcode:?}");
                assert_eq!(malformed(&bytes[..31 + operands]), "a request is shorter than its operands");
                for length in [atomic - 1, atomic + 1, 12 - atomic] {
                    let wrong = frame(&request(opcode, AtomicOp::Add, length as u32, [1, 2]), &[]);
                    assert_eq!(malformed(&wrong), words, "{opcode:?} of {length} bytes");
                }
            }
        }
    }
}

#[test]
fn every_atomic_becomes_the_request_of_its_width_and_has_a_result_if_asked_for() {
    use Width::{Bits32, Bits64};
    let pair = Pair::new();
    let mut memory = [0];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let mut old = 0_u64;
    let place = |width| OldValue::new(width, NonNull::from(&mut old).cast());
    let operations = [Bits32, Bits64].map(place).map(|place| Operation::Fetch(place, Notify::Nobody));
    let add = Change::Op(AtomicOp::Add, 6);
    let swap = Change::CompareSwap { compare: 10, swap: 0x0102_0304_0506_0708 };
    for (width, change, fetches, opcode, after) in [
        (Bits32, add, false, Opcode::Post32, 16),
        (Bits64, add, false, Opcode::Post64, 16),
        (Bits32, add, true, Opcode::Fetch32, 16),
        (Bits64, add, true, Opcode::Fetch64, 16),
        (Bits32, swap, true, Opcode::Cswap32, 0x0506_0708),
        (Bits64, swap, true, Opcode::Cswap64, 0x0102_0304_0506_0708),
    ] {
        pair.target.acknowledge();
        // SAFETY: the memory is this test's; nothing else uses it between requests.
        unsafe { (address as *mut u64).write(10) };
        let post = Operation::Acknowledged(Notify::Nobody);
        let operation = if fetches { &operations[usize::from(width == Bits64)] } else { &post };
        let request = pair.initiator.atomic(Atomic { width, change }, &key, address, operation).unwrap();
        assert_eq!((request.opcode, request.length as usize), (opcode, width.bytes()));
        let bytes = frame(&request, &[]);
        let answer = pair.target.serve(&pair.regions, &pair.accessor, &bytes).unwrap();
        assert_eq!(answer.is_some(), fetches, "{opcode:?}");
        assert_eq!(pair.target.has_unacknowledged(), !fetches, "{opcode:?}");
        if let Some(answer) = answer {
            let bytes = answer.to_vec();
            let (response, value) = Response::read(&bytes).unwrap();
            assert_eq!((response.kind, response.sequence), (ResponseKind::Value, request.sequence));
            assert_eq!(value, &10_u64.to_le_bytes()[..width.bytes()]);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { (address as *const u64).read() }, after, "{opcode:?}");
    }
}

#[test]
fn an_answer_has_its_header_and_its_data_apart() {
    let pair = Pair::new();
    let mut memory = [0x0807_0605_0403_0201];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (slot, secret) = key.place();
    let atomic = (Opcode::Fetch32, 4, false, ResponseKind::Value);
    let read = (Opcode::Get, 5, false, ResponseKind::Data);
    let outside = (Opcode::Get, 9, true, ResponseKind::Error);
    for (opcode, length, is_refusal, kind) in [atomic, read, outside] {
        let request =
            Request { slot, secret, address, ..request(opcode, AtomicOp::And, length, [u64::MAX, 0]) };
        let frame = frame(&request, &[]);
        let answer = pair.target.serve(&pair.regions, &pair.accessor, &frame).unwrap().unwrap();
        assert_eq!(answer.is_refusal(), is_refusal, "{opcode:?}");
        let (start, bytes) = answer.data();
        let expected: &[u8] = if is_refusal { &[] } else { &[1, 2, 3, 4, 5][..length as usize] };
        // SAFETY: the data are readable as long as the answer is there.
        assert_eq!(unsafe { slice::from_raw_parts(start, bytes) }, expected, "{opcode:?}");
        assert_eq!(answer.frame_bytes(), RESPONSE_HEADER + expected.len());
        assert_eq!(answer.to_vec(), [answer.header(), expected].concat());
        let status = if is_refusal { Status::OUT_OF_RANGE } else { Status::OK };
        let header = Response { kind, sequence: request.sequence, status, length: bytes as u32 };
        assert_eq!(*answer.header(), header.header());
    }
}

#[test]
fn what_was_carried_out_is_acknowledged_once_unless_an_answer_says_so() {
    let pair = Pair::new();
    let mut memory = [0];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (slot, secret) = key.place();
    let serve = |opcode, sequence, length: u32, data: &[u8]| {
        let request = request(opcode, AtomicOp::Add, length, [0; 2]);
        let frame = frame(&Request { slot, secret, address, sequence, ..request }, data);
        pair.target.serve(&pair.regions, &pair.accessor, &frame).map(|answer| answer.is_some())
    };
    assert!(!pair.target.has_unacknowledged());
    for sequence in [3, 4] {
        assert_eq!(serve(Opcode::Put, sequence, 2, &[1, 2]), Ok(false));
    }
    assert!(pair.target.has_unacknowledged());
    let kind = ResponseKind::Acknowledgement;
    let expected = Response { kind, sequence: 4, status: Status::OK, length: 0 }.header();
    assert_eq!(pair.target.acknowledge(), Some(expected));
    assert!(!pair.target.has_unacknowledged());
    assert_eq!(pair.target.acknowledge(), None);
    assert_eq!(serve(Opcode::Put, 5, 2, &[1, 2]), Ok(false));
    assert_eq!(serve(Opcode::Get, 6, 2, &[]), Ok(true));
    assert!(!pair.target.has_unacknowledged());
    let words = Malformed("a put has another length than its frame");
    assert_eq!(serve(Opcode::Put, 7, 3, &[1, 2]), Err(words));
    assert_eq!(serve(Opcode::Put, 7, 1, &[1, 2]), Err(words));
}

#[test]
fn what_peers_have_read_and_written_is_counted_and_what_was_refused_is_not() {
    let pair = Pair::new();
    let mut memory = [0; 4];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (slot, secret) = key.place();
    let serve = |opcode, length: u32, secret, data: &[u8]| {
        let request = request(opcode, AtomicOp::Add, length, [0; 2]);
        let frame = frame(&Request { slot, secret, address, sequence: 1, ..request }, data);
        pair.target.serve(&pair.regions, &pair.accessor, &frame).unwrap().map(|answer| answer.is_refusal())
    };
    let counts = || pair.accessor.served().counters().map(|(_, count)| count);
    assert_eq!(serve(Opcode::Put, 3, secret, &[1, 2, 3]), None);
    assert_eq!(counts(), [1, 3, 0, 0, 0, 0]);
    assert_eq!(serve(Opcode::Get, 20, secret, &[]), Some(false));
    assert_eq!(serve(Opcode::Post32, 4, secret, &[]), None);
    assert_eq!(serve(Opcode::Fetch64, 8, secret, &[]), Some(false));
    assert_eq!(counts(), [1, 3, 1, 20, 2, 12]);
    // With another key, and beyond the end.
    for opcode in [Opcode::Put, Opcode::Get, Opcode::Fetch64] {
        let data: &[u8] = if opcode == Opcode::Put { &[0; 8] } else { &[] };
        assert_eq!(serve(opcode, 8, secret + 1, data), Some(true), "{opcode:?}");
    }
    assert_eq!(serve(Opcode::Get, 33, secret, &[]), Some(true));
    assert_eq!(counts(), [1, 3, 1, 20, 2, 12]);
}
