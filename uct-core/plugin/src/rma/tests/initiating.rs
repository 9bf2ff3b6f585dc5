//! `initiator`: what waits for room, how far operations are, and what ends without its responses.

use super::*;

/// Destination of a get to all of this memory, which outlives it in every test.
fn place(memory: &mut [u8]) -> Destination {
    // SAFETY: the tests keep the memory until the get has ended.
    unsafe { Destination::block(NonNull::new(memory.as_mut_ptr()).unwrap(), memory.len()) }
}

/// Requests what may be requested of gets; the lengths.
fn pump(pair: &mut Pair) -> Vec<u32> {
    let (requests, mut lengths) = (&mut pair.requests, Vec::new());
    pair.initiator.pump(|request| {
        lengths.push(request.length);
        requests.push_back(frame(request, &[]));
        Ok(())
    });
    lengths
}

/// The peer carries out the first request that it has not seen; its answer, or its acknowledgement, comes.
fn answer_one(pair: &mut Pair) -> u32 {
    let request = pair.requests.pop_front().expect("a request");
    let answer = pair.target.serve(&pair.regions, &pair.accessor, &request).unwrap();
    let answer = answer.map(|answer| answer.to_vec());
    let answer = answer.or_else(|| Some(pair.target.acknowledge()?.to_vec())).expect("an answer");
    pair.initiator.answer(&answer).unwrap()
}

#[test]
fn a_get_is_requested_in_segments_as_far_as_the_limit_and_on_with_each_answer() {
    let mut pair = Pair::new();
    pair.initiator = Initiator::new(Limits { get_bytes: 32, ..LIMITS });
    let mut memory: [u64; 9] = std::array::from_fn(|index| index as u64);
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let mut here = [0; 65];
    assert!(!pair.initiator.wants_pump(), "there is no get");
    let mut host = Host::new();
    pair.initiator.get(7, place(&mut here), 65, &key, address, host.completion().into()).unwrap();
    assert!(pair.initiator.wants_pump());
    assert_eq!(pump(&mut pair), [16, 16]);
    assert!(!pair.initiator.wants_pump(), "as much is outstanding as may be");
    assert_eq!(pump(&mut pair), []);
    for more in [&[16][..], &[16], &[1]] {
        assert_eq!(answer_one(&mut pair), 0);
        assert!(pair.initiator.wants_pump());
        assert_eq!(pump(&mut pair), more);
    }
    assert!(!pair.initiator.wants_pump(), "all of it is requested");
    assert_eq!(pair.initiator.admit(), Ok(()));
    assert_eq!((answer_one(&mut pair), answer_one(&mut pair), host.result()), (0, 1, Some(Status::OK)));
    assert_eq!(here[..], memory.map(u64::to_ne_bytes).concat()[..65]);
}

#[test]
fn where_there_was_no_room_a_quarter_of_it_is_free_before_more_is_requested() {
    let mut pair = Pair::new();
    pair.initiator = Initiator::new(Limits { get_bytes: 128, ..LIMITS });
    let mut memory: [u64; 40] = std::array::from_fn(|index| index as u64);
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let mut here = [0; 320];
    pair.initiator.get(7, place(&mut here), 320, &key, address, Notify::Nobody).unwrap();
    assert_eq!(pump(&mut pair), [16; 8]);
    for more in [&[][..], &[16, 16], &[], &[16, 16]] {
        assert_eq!(answer_one(&mut pair), 0);
        assert_eq!(pair.initiator.wants_pump(), !more.is_empty());
        assert_eq!(pump(&mut pair), more);
    }
    pair.settle();
    assert_eq!(here[..], memory.map(u64::to_ne_bytes).concat()[..]);
    assert!(pair.initiator.is_idle());
}

#[test]
fn a_mark_is_reached_when_all_that_was_posted_ahead_of_it_was_carried_out() {
    let mut pair = Pair::new();
    let mut memory = [0; 4];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let is_reached = |pair: &Pair, mark| {
        let is_reached = pair.initiator.has_reached(mark);
        assert_eq!(pair.initiator.flushed(7, mark), is_reached.then_some(Ok(())));
        is_reached
    };
    let before = pair.initiator.mark();
    assert!(is_reached(&pair, before), "nothing is outstanding");
    let mut hosts = [Host::new(), Host::new(), Host::new()];
    let mut marks = Vec::new();
    for host in &mut hosts {
        pair.put(&key, address, &[1; 8], host.completion().into());
        marks.push(pair.initiator.mark());
    }
    assert!(is_reached(&pair, before), "later operations do not count");
    for done in 0..=3 {
        for (index, mark) in marks.iter().enumerate() {
            assert_eq!(is_reached(&pair, *mark), index < done, "mark {index}, {done} are done");
        }
        if done < 3 {
            assert_eq!(answer_one(&mut pair), 1);
        }
    }
}

#[test]
fn what_a_mark_waited_for_may_have_failed_which_is_told_once_and_to_its_owner() {
    let mut pair = Pair::new();
    let mut memory = [5];
    let (region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    pair.regions.remove(&region);
    for owner in [7, 8] {
        let request = pair.initiator.put(&key, address, 8).unwrap();
        pair.send(&request, &[1; 8]);
        pair.initiator.posted(owner, &request, Operation::Acknowledged(Notify::Nobody));
    }
    let mark = pair.initiator.mark();
    assert_eq!(pair.initiator.flushed(7, mark), None);
    pair.settle();
    assert_eq!(pair.initiator.flushed(9, mark), Some(Ok(())));
    for owner in [8, 7] {
        assert_eq!(pair.initiator.flushed(owner, mark), Some(Err(Error::INVALID_PARAM)), "owner {owner}");
        assert_eq!(pair.initiator.flushed(owner, mark), Some(Ok(())), "owner {owner}");
    }
}

#[test]
fn an_operation_in_pieces_ends_with_its_last_one_and_has_the_error_of_any() {
    for failing in [None, Some(0), Some(1), Some(2)] {
        let mut pair = Pair::new();
        let mut memory = [0; 3];
        let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
        let mut host = Host::new();
        for piece in 0..3 {
            let mut request = pair.initiator.put(&key, address + 8 * piece, 8).unwrap();
            request.secret ^= u64::from(failing == Some(piece));
            pair.send(&request, &[1; 8]);
            let operation =
                if piece < 2 { Operation::Piece } else { Operation::Acknowledged(host.completion().into()) };
            pair.initiator.posted(7, &request, operation);
            assert_eq!(host.result(), None);
            if piece == 0 {
                assert_eq!(answer_one(&mut pair), 0, "the last piece is still to be posted");
                assert!(!pair.initiator.is_idle());
            }
        }
        assert_eq!((answer_one(&mut pair), host.result()), (0, None), "{failing:?}");
        assert_eq!(answer_one(&mut pair), 1);
        let expected = if failing.is_some() { Status::INVALID_PARAM } else { Status::OK };
        assert_eq!(host.result(), Some(expected), "{failing:?}");
        assert!(pair.initiator.is_idle());
    }
}

#[test]
fn a_cancelled_get_leaves_that_of_another_owner_alone() {
    let mut pair = Pair::new();
    let mut memory: [u64; 16] = std::array::from_fn(|index| index as u64);
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (mut first, mut second) = ([0xEE; 16], [0xEE; 100]);
    let (mut cancelled, mut other) = (Host::new(), Host::new());
    pair.initiator.get(7, place(&mut first), 16, &key, address, cancelled.completion().into()).unwrap();
    assert_eq!(pump(&mut pair), [16]);
    pair.initiator.get(8, place(&mut second), 100, &key, address, other.completion().into()).unwrap();
    assert_eq!(pump(&mut pair), [16]);
    pair.initiator.cancel(7, Error::CANCELED);
    assert_eq!((cancelled.result(), other.result()), (Some(Status::CANCELED), None));
    assert_eq!(pair.initiator.admit(), Err(Error::NO_RESOURCE), "the other one is not wholly requested");
    pair.settle();
    assert_eq!((first, other.result()), ([0xEE; 16], Some(Status::OK)));
    assert_eq!(second[..], memory.map(u64::to_ne_bytes).concat()[..100]);
}

#[test]
fn a_cancelled_get_requests_nothing_more_and_delays_no_later_operation() {
    for pumps in [false, true] {
        let mut pair = Pair::new();
        let mut memory = [1; 16];
        let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
        let (mut here, mut host) = ([0xEE; 100], Host::new());
        pair.initiator.get(7, place(&mut here), 100, &key, address, host.completion().into()).unwrap();
        if pumps {
            assert_eq!(pump(&mut pair), [16, 16]);
        }
        pair.initiator.cancel(7, Error::CANCELED);
        assert_eq!(host.result(), Some(Status::CANCELED));
        assert_eq!((pair.initiator.admit(), pair.initiator.is_idle()), (Ok(()), !pumps));
        assert_eq!(pump(&mut pair), []);
        let mut next = Host::new();
        pair.put(&key, address, &[1; 8], next.completion().into());
        pair.settle();
        assert_eq!((next.result(), here), (Some(Status::OK), [0xEE; 100]));
        assert!(pair.initiator.is_idle());
        let mut again = Host::new();
        pair.initiator.get(7, place(&mut here), 100, &key, address, again.completion().into()).unwrap();
        assert_eq!(pump(&mut pair), [16, 16], "what was cancelled takes up no room");
        pair.settle();
        assert_eq!(again.result(), Some(Status::OK));
    }
}

#[test]
fn a_get_to_a_vector_writes_its_blocks_in_order_wherever_they_end() {
    for block in [1, 3, 7, 15, 16, 17, 39, 40] {
        let mut pair = Pair::new();
        let mut memory = [0x0807_0605_0403_0201, 9, 10, 11, 12];
        let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
        let mut here = [0xEE; 44];
        let entry = |part: &mut [u8]| uct_abi::UctIov {
            buffer: part.as_mut_ptr().cast(),
            length: part.len(),
            memh: std::ptr::null_mut(),
            stride: 0,
            count: 1,
        };
        let entries: Vec<_> = here[..40].chunks_mut(block).map(entry).collect();
        // SAFETY: the entries and their memory outlive the get.
        let iov = unsafe { crate::Iov::new(entries.as_ptr(), entries.len()) };
        // SAFETY: as above.
        let place = unsafe { Destination::of_iov(iov) };
        assert_eq!(format!("{place:?}"), "Memory");
        let mut host = Host::new();
        pair.initiator.get(7, place, 40, &key, address, host.completion().into()).unwrap();
        pair.settle();
        assert_eq!(host.result(), Some(Status::OK));
        assert_eq!(here[..], [memory.map(u64::to_ne_bytes).concat(), vec![0xEE; 4]].concat(), "{block}");
    }
}

#[test]
fn a_request_is_refused_whose_access_the_key_does_not_permit() {
    let pair = Pair::new();
    let mut memory = [0];
    let add = Atomic { width: Width::Bits64, change: Change::Op(AtomicOp::Add, 1) };
    let post = Operation::Acknowledged(Notify::Nobody);
    let every = [MemoryAccess::REMOTE_PUT, MemoryAccess::REMOTE_GET, MemoryAccess::REMOTE_ATOMIC];
    for granted in every {
        let (_region, key, address) = pair.register(&mut memory, granted);
        let refused_unless = |access| if access == granted { Ok(()) } else { Err(Error::INVALID_PARAM) };
        let put = pair.initiator.put(&key, address, 8).map(drop);
        let atomic = pair.initiator.atomic(add, &key, address, &post).map(drop);
        let get = pair.initiator.get(7, place(&mut [0; 8]), 8, &key, address, Notify::Nobody);
        pair.initiator.cancel(7, Error::CANCELED);
        assert_eq!([put, get, atomic], every.map(refused_unless), "{granted:?}");
    }
}

#[test]
fn one_answer_ends_all_that_was_asked_for_ahead_of_it() {
    let mut pair = Pair::new();
    let mut memory = [0];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (mut put, mut get, mut here) = (Host::new(), Host::new(), [0; 8]);
    pair.put(&key, address, &[1; 8], Notify::Nobody);
    pair.put(&key, address, &[2; 8], put.completion().into());
    pair.initiator.get(7, place(&mut here), 8, &key, address, get.completion().into()).unwrap();
    pump(&mut pair);
    for request in pair.requests.drain(..2).collect::<Vec<_>>() {
        assert!(pair.target.serve(&pair.regions, &pair.accessor, &request).unwrap().is_none());
    }
    assert_eq!(answer_one(&mut pair), 2);
    assert_eq!((put.result(), get.result(), here), (Some(Status::OK), Some(Status::OK), [2; 8]));
    assert!(pair.initiator.is_idle());
}

#[test]
fn a_get_of_no_bytes_ends_with_its_own_answer() {
    for is_requested in [false, true] {
        let mut pair = Pair::new();
        let mut memory = [0];
        let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
        let (mut put, mut get) = (Host::new(), Host::new());
        pair.put(&key, address, &[1; 8], put.completion().into());
        pair.initiator.get(7, place(&mut []), 0, &key, address, get.completion().into()).unwrap();
        if is_requested {
            assert_eq!(pump(&mut pair), [0]);
        }
        assert_eq!((answer_one(&mut pair), put.result(), get.result()), (1, Some(Status::OK), None));
        assert_eq!(pump(&mut pair).len(), usize::from(!is_requested));
        assert_eq!((answer_one(&mut pair), get.result()), (1, Some(Status::OK)));
    }
}

#[test]
fn the_old_value_of_an_atomic_has_the_bytes_of_its_width_or_is_no_answer() {
    const VALUE: u64 = 0x0102_0304_0506_0708;
    for (width, bytes, expected) in [
        (Width::Bits32, 4, Ok(VALUE & 0xFFFF_FFFF)),
        (Width::Bits64, 8, Ok(VALUE)),
        (Width::Bits32, 8, Err(())),
        (Width::Bits64, 4, Err(())),
        (Width::Bits64, 0, Err(())),
    ] {
        let pair = Pair::new();
        let mut memory = [0];
        let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
        let mut old = 0_u64;
        let operation =
            Operation::Fetch(OldValue::new(width, NonNull::from(&mut old).cast()), Notify::Nobody);
        let atomic = Atomic { width, change: Change::Op(AtomicOp::Add, 1) };
        let request = pair.initiator.atomic(atomic, &key, address, &operation).unwrap();
        pair.initiator.posted(7, &request, operation);
        let kind = ResponseKind::Value;
        let response = Response { kind, sequence: request.sequence, status: Status::OK, length: bytes };
        let value = &VALUE.to_le_bytes()[..bytes as usize];
        let answered = pair.initiator.answer(&[&response.header(), value].concat());
        let words = Malformed("a response of another kind than the request");
        assert_eq!(answered, expected.map(|_| 1).map_err(|()| words), "{bytes} bytes for {width:?}");
        assert_eq!(old, expected.unwrap_or(0));
    }
}

/// A put of 8 bytes, and behind it a get of all of this memory that is wholly requested; the peer's answers to the get.
fn answers_behind_a_put(
    pair: &mut Pair,
    memory: &mut [u64],
    destination: Destination,
    host: &mut Host,
) -> Vec<Vec<u8>> {
    let length = memory.len() * 8;
    let (_region, key, address) = pair.register(memory, MemoryAccess::all());
    pair.put(&key, address, &memory[0].to_le_bytes(), Notify::Nobody);
    pair.initiator.get(7, destination, length, &key, address, host.completion().into()).unwrap();
    pump(pair);
    let mut answers = Vec::new();
    while let Some(request) = pair.requests.pop_front() {
        answers.extend(
            pair.target.serve(&pair.regions, &pair.accessor, &request).unwrap().map(|answer| answer.to_vec()),
        );
    }
    answers
}

#[test]
fn data_of_a_response_are_received_where_they_belong() {
    let mut pair = Pair::new();
    let (mut memory, mut here) = ([1, 2, 3, 4, 5], [0xEE_u8; 40]);
    let (start, mut host) = (NonNull::new(here.as_mut_ptr()).unwrap(), Host::new());
    let answers = answers_behind_a_put(&mut pair, &mut memory, place(&mut here), &mut host);
    assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 24]);
    let (mut offset, ends) = (0, [0, 0, 1]);
    for (number, answer) in answers.iter().enumerate() {
        // Of the first 15 bytes no response is known; all others are a part of it.
        for come in 0..=answer.len() {
            let arriving = pair.initiator.arriving(&answer[..come], answer.len());
            let Some((arriving, data)) = arriving else {
                assert!(come < RESPONSE_HEADER, "response {number}, {come} bytes");
                continue;
            };
            assert_eq!(arriving.length(), answer.len() - RESPONSE_HEADER);
            assert_eq!(data, &answer[RESPONSE_HEADER..come]);
            assert_eq!(
                pair.initiator.place(&arriving).map(|place| place.addr().get() - start.addr().get()),
                Some(offset)
            );
        }
        let (arriving, data) = pair.initiator.arriving(answer, answer.len()).unwrap();
        // SAFETY: the place is for all data of the response.
        unsafe {
            pair.initiator
                .place(&arriving)
                .unwrap()
                .copy_from_nonoverlapping(NonNull::from(data).cast(), data.len())
        };
        assert_eq!(pair.initiator.arrived(&arriving), Ok(ends[number]));
        offset += data.len();
    }
    assert_eq!((host.result(), pair.initiator.is_idle()), (Some(Status::OK), true));
    assert_eq!(here[..], memory.map(u64::to_ne_bytes).concat()[..]);
}

#[test]
fn what_is_not_the_next_data_of_a_get_has_no_place() {
    let arrives = |pair: &Pair, answer: &[u8]| pair.initiator.arriving(answer, answer.len()).is_some();
    let answer = |kind, sequence, status, length: usize| {
        let response = Response { kind, sequence, status, length: length as u32 };
        [&response.header()[..], &vec![0; length]].concat()
    };
    let (mut pair, mut memory, mut here, mut host) = (Pair::new(), [1, 2, 3, 4, 5], [0xEE; 40], Host::new());
    let answers = answers_behind_a_put(&mut pair, &mut memory, place(&mut here), &mut host);
    assert!(arrives(&pair, &answers[0]));
    // The put is request 1, the get 2 to 4, of 16 bytes each but the last one.
    for sequence in 0..8 {
        let data = answer(ResponseKind::Data, sequence, Status::OK, 16);
        assert_eq!(arrives(&pair, &data), (2..=4).contains(&sequence), "request {sequence}");
    }
    for length in [0, 8, 15, 17, 24] {
        assert!(!arrives(&pair, &answer(ResponseKind::Data, 2, Status::OK, length)), "{length} bytes");
    }
    for (kind, status) in [
        (ResponseKind::Acknowledgement, Status::OK),
        (ResponseKind::Value, Status::OK),
        (ResponseKind::Error, Status::OUT_OF_RANGE),
    ] {
        assert!(!arrives(&pair, &answer(kind, 2, status, 16)), "{kind:?}");
    }
    // Its length is not that of the frame, or more has come than it has.
    assert!(pair.initiator.arriving(&answers[0], 31).is_none());
    assert!(pair.initiator.arriving(&answers[0], 33).is_none());
    assert!(pair.initiator.arriving(&[&answers[0][..], &[0]].concat(), 32).is_none());
    let (arriving, _) = pair.initiator.arriving(&answers[0], 32).unwrap();
    pair.initiator.cancel(7, Error::CANCELED);
    assert!(pair.initiator.place(&arriving).is_none() && !arrives(&pair, &answers[0]), "it was given up");
}

#[test]
fn a_get_that_was_refused_in_part_or_goes_to_several_places_has_no_place() {
    let (mut pair, mut memory, mut here, mut host) = (Pair::new(), [1, 2, 3, 4, 5], [0xEE; 40], Host::new());
    let answers = answers_behind_a_put(&mut pair, &mut memory, place(&mut here), &mut host);
    let refusal =
        Response { kind: ResponseKind::Error, sequence: 2, status: Status::OUT_OF_RANGE, length: 0 };
    assert_eq!(pair.initiator.answer(&refusal.header()), Ok(0), "others of it are outstanding");
    assert!(pair.initiator.arriving(&answers[1], answers[1].len()).is_none());

    let (mut pair, mut blocks, mut host) = (Pair::new(), [[0xEE_u8; 20]; 2], Host::new());
    let entries = blocks.each_mut().map(|block| uct_abi::UctIov {
        buffer: block.as_mut_ptr().cast(),
        length: 20,
        memh: std::ptr::null_mut(),
        stride: 0,
        count: 1,
    });
    // SAFETY: entries and blocks outlive the get.
    let iov = unsafe { crate::Iov::new(entries.as_ptr(), entries.len()) };
    // SAFETY: as above.
    let destination = unsafe { Destination::of_iov(iov) };
    let answers = answers_behind_a_put(&mut pair, &mut memory, destination, &mut host);
    for answer in &answers {
        assert!(pair.initiator.arriving(answer, answer.len()).is_none());
        pair.initiator.answer(answer).unwrap();
    }
    assert_eq!(host.result(), Some(Status::OK));
    assert_eq!(blocks.as_flattened(), memory.map(u64::to_ne_bytes).as_flattened());
}

#[test]
fn a_place_is_inside_its_block_to_the_last_byte() {
    let mut block = [0_u8; 10];
    let (start, destination) = (block.as_mut_ptr().addr(), place(&mut block));
    for offset in 0..12 {
        for length in 0..12 {
            let place = destination.place(offset, length).map(|place| place.addr().get() - start);
            assert_eq!(place, (offset + length <= 10).then_some(offset), "{length} bytes from {offset}");
        }
    }
    assert_eq!(destination.place(1, usize::MAX), None);
}

#[test]
fn an_answer_to_what_is_behind_a_get_does_not_end_it_without_its_data() {
    let (mut pair, mut memory, mut here, mut host) = (Pair::new(), [1, 2, 3, 4, 5], [0xEE; 40], Host::new());
    let answers = answers_behind_a_put(&mut pair, &mut memory, place(&mut here), &mut host);
    let acknowledgement =
        Response { kind: ResponseKind::Acknowledgement, sequence: 5, status: Status::OK, length: 0 };
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    pair.put(&key, address, &[1; 8], Notify::Nobody);
    for answer in &answers[..2] {
        assert_eq!(pair.initiator.answer(answer), Ok(0));
    }
    assert_eq!(pair.initiator.answer(&acknowledgement.header()), Err(Malformed("a response is missing")));
    assert_eq!(host.result(), None);
}

#[test]
fn a_get_of_nothing_ends_with_its_own_answer_and_no_earlier() {
    let (mut pair, mut memory, mut host) = (Pair::new(), [1], Host::new());
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    pair.put(&key, address, &[2; 8], Notify::Nobody);
    pair.initiator.get(7, place(&mut []), 0, &key, address, host.completion().into()).unwrap();
    answer_one(&mut pair);
    assert_eq!((host.result(), pair.initiator.is_idle()), (None, false), "it was not requested yet");
    pair.settle();
    assert_eq!((host.result(), pair.initiator.is_idle()), (Some(Status::OK), true));
}
