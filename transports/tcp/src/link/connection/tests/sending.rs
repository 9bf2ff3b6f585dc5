//! `send`: what leaves at once, what waits, and in which order.

use super::*;
use crate::link::connection::send::GATHERED;
use crate::proto::wire::{FEATURE_FILL, control, parse_frame};

#[test]
fn the_first_frame_of_an_epoch_leaves_at_once_and_the_next_ones_share_a_flush() {
    let bed = Bed::new(&[]);
    bed.iface.shared.next_epoch();
    bed.send(1, b"first").unwrap();
    assert_eq!(bed.read(), frame(1, b"first"));
    bed.send(2, b"second").unwrap();
    bed.send(3, &[]).unwrap();
    assert_eq!(bed.read(), []);
    assert!(bed.conn.has_queued());
    assert_eq!(bed.conn.queued_bytes(), 16 + 8);
    bed.iface.advance();
    assert_eq!(bed.read(), [frame(2, b"second"), frame(3, &[])].concat());
    assert!(!bed.conn.has_queued());
}

#[test]
fn a_frame_is_as_large_as_the_scratch_memory_and_no_larger() {
    let bed = Bed::new(&[]);
    let most = bed.iface.shared.scratch_size() - 8 - 8;
    bed.iface.shared.next_epoch();
    bed.send(1, &pattern(most)).unwrap();
    assert_eq!(bed.read(), frame(1, &pattern(most)));
    assert_eq!(bed.send(1, &pattern(most + 1)), Err(Error::INVALID_PARAM));
    assert_eq!(bed.read_all(), []);
}

#[test]
fn what_the_socket_does_not_take_waits_within_the_limit_and_arrives_in_order() {
    let bed = Bed::new(&[("tx_queue_size", "40000"), ("tx_buf_size", "16411")]);
    let payload = pattern(997);
    let sent = bed.fill(&payload);
    assert!(bed.conn.is_blocked());
    assert!(!bed.conn.has_room(&bed.iface.shared));
    let queued = bed.conn.queued_bytes();
    // A buffer is begun only below the limit, and filled to its end.
    assert!(queued > 40_000 - 1016 && queued <= 40_000 + 16_411, "{queued}");
    // Responses are queued regardless of the limit.
    bed.conn.send_control(&bed.iface.shared, crate::proto::wire::control::PONG);
    assert_eq!(bed.conn.queued_bytes(), queued + 8);
    assert!(bed.read_all() == [sent, frame(crate::proto::wire::control::PONG, &[])].concat());
    assert!(!bed.conn.is_blocked() && bed.conn.has_room(&bed.iface.shared) && !bed.conn.has_queued());
}

#[test]
fn a_response_is_whole_at_every_size_and_place() {
    let bed = Bed::new(&[("tx_queue_size", "40000"), ("tx_buf_size", "16411")]);
    let scratch = bed.iface.shared.scratch_size();
    for is_blocked in [false, true] {
        let mut sent = if is_blocked { bed.fill(&pattern(997)) } else { Vec::new() };
        for length in [0, 1, 8, scratch - 17, scratch - 16, scratch - 15, 60_001] {
            let data = pattern(length);
            bed.conn.queue_response(
                &bed.iface.shared,
                &frame_header(5, length).to_ne_bytes(),
                data.as_slice().into(),
            );
            sent.extend(frame(5, &data));
        }
        assert!(bed.read_all() == sent, "blocked: {is_blocked}");
    }
}

#[test]
fn a_response_that_is_queued_while_a_message_is_packed_follows_it() {
    let bed = Bed::new(&[]);
    let frames = [frame(5, b"odd"), frame(6, &[])].concat();
    bed.conn.while_packing(&bed.iface.shared, || {
        bed.conn.queue_response(
            &bed.iface.shared,
            &frame_header(5, 3).to_ne_bytes(),
            b"odd".as_slice().into(),
        );
        assert_eq!(bed.send(1, b"a message"), Err(Error::NO_RESOURCE));
        bed.conn.flush(&bed.iface.shared);
        assert_eq!(bed.read(), []);
    });
    bed.progress();
    bed.send(6, &[]).unwrap();
    assert_eq!(bed.read_all(), frames);
}

#[test]
fn a_vector_leaves_whole_however_many_blocks_it_has() {
    let bed = Bed::new(&[]);
    let data = pattern(70 * 13);
    for count in [1, 31, 32, 33, 34, 70] {
        let blocks: Vec<&[u8]> = data.chunks(13).take(count).collect();
        let (entries, mut ending) = (entries(&blocks), Ending::new());
        let head = frame_header(9, count * 13).to_ne_bytes();
        let outcome =
            bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, ending.completion()).unwrap();
        assert_eq!(bed.read_all(), frame(9, &data[..count * 13]), "{count} blocks");
        assert_eq!(outcome == Outcome::Done, ending.status().is_none());
    }
}

#[test]
fn a_gathered_frame_is_whole_at_every_size_and_its_memory_is_free_behind_the_call() {
    for features in [0, FEATURE_FILL as u8] {
        let bed = Bed::new(&[("tx_seg_size", "64k"), ("tx_queue_size", "200000"), ("tx_buf_size", "70000")]);
        bed.conn.features.set(features);
        let gather = |data: &[u8]| {
            let mut copy = data.to_vec();
            let (first, second) = copy.split_at(data.len() / 3);
            let (entries, head) = (entries(&[first, second]), frame_header(9, data.len()).to_ne_bytes());
            let outcome = bed.conn.send_gathered(&bed.iface.shared, &head, vector(&entries));
            copy.fill(0xFF);
            outcome
        };
        let data = pattern(65_000);
        for length in [0, 1, GATHERED - 9, GATHERED - 8, GATHERED, 65_000] {
            gather(&data[..length]).unwrap();
            bed.progress();
            compare(&bed.read_all(), &[(9, &data[..length])], "alone");
        }
        // What waits for a flush goes first, and what the socket does not take arrives all the same.
        let mut sent: Vec<(u8, &[u8])> = Vec::new();
        loop {
            let outcome = bed.send(2, b"ahead").and_then(|()| {
                sent.push((2, b"ahead"));
                gather(&data[..60_000])
            });
            match outcome {
                Ok(()) => sent.push((9, &data[..60_000])),
                Err(error) => break assert_eq!(error, Error::NO_RESOURCE),
            }
        }
        assert!(bed.conn.is_blocked() && sent.len() > 2);
        compare(&bed.read_all(), &sent, "a socket that is full");
    }
}

#[test]
fn the_first_vector_of_an_epoch_leaves_at_once_and_the_next_ones_share_a_flush() {
    let bed = Bed::new(&[("tx_buf_size", "32k")]);
    let (data, mut endings) = (pattern(40_000), [(); 4].map(|()| Ending::new()));
    let mut send = |number: usize, length: usize| {
        let (entries, head) = (entries(&[&data[..length]]), frame_header(9, length).to_ne_bytes());
        let ending = endings[number].completion();
        bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, ending).unwrap()
    };
    bed.iface.shared.next_epoch();
    assert_eq!(send(0, 10_000), Outcome::Done);
    assert!(bed.read() == frame(9, &data[..10_000]));
    assert_eq!(send(1, 10_001), Outcome::InProgress);
    bed.send(2, b"between").unwrap();
    assert_eq!(bed.read(), []);
    // That much is worth a system call.
    assert_eq!(send(2, 24_000), Outcome::InProgress);
    let together = [frame(9, &data[..10_001]), frame(2, b"between"), frame(9, &data[..24_000])].concat();
    assert!(bed.read() == together);
    // One that is as large by itself waits for nothing, and nothing waits behind it.
    bed.send(2, b"ahead").unwrap();
    assert_eq!(send(3, 40_000), Outcome::Done);
    assert!(bed.read() == [frame(2, b"ahead"), frame(9, &data)].concat());
    bed.progress();
    let statuses = endings.each_ref().map(Ending::status);
    assert_eq!(statuses, [None, Some(UCT_OK), Some(UCT_OK), None]);
}

#[test]
fn frames_and_vectors_of_all_sizes_keep_their_order() {
    let mut fills = 0;
    for (settings, room) in [
        (&[("tx_buf_size", "16k")] as &[_], "an epoch now and then"),
        (&[("tx_buf_size", "256k"), ("tx_queue_size", "40000")], "a socket that is full at times"),
    ] {
        let bed = Bed::new(settings);
        bed.conn.features.set(FEATURE_FILL as u8);
        let data = pattern(60_000);
        let (mut sent, mut came, mut posted) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..3000_usize {
            let length = [0, 7, 64, 900, 3001, 8000, 20_001, 60_000][turn * 7 % 8];
            // A page's first byte, and any other.
            let start = if turn.is_multiple_of(5) { data.as_ptr().align_offset(4096) } else { turn % 64 };
            let block = &data[start.min(data.len() - length)..][..length];
            let mut ending = Ending::new();
            let outcome = if turn.is_multiple_of(3) && length <= 8000 {
                bed.send(3, block)
            } else {
                let entries = entries(&[&block[..length / 3], &block[length / 3..]]);
                let head = frame_header(9, length).to_ne_bytes();
                let completion = ending.completion();
                let outcome = bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, completion);
                outcome.map(|outcome| {
                    if outcome == Outcome::InProgress {
                        posted.push(ending);
                    }
                })
            };
            match outcome {
                Ok(()) => sent.push((if turn.is_multiple_of(3) && length <= 8000 { 3 } else { 9 }, block)),
                Err(error) => {
                    assert_eq!(error, Error::NO_RESOURCE);
                    came.extend(bed.read());
                }
            }
            if turn.is_multiple_of(11) {
                bed.iface.shared.next_epoch();
            }
            if turn.is_multiple_of(17) {
                bed.iface.advance();
            }
            if turn.is_multiple_of(61) {
                came.extend(bed.read());
            }
        }
        came.extend(bed.read_all());
        assert!(posted.iter().all(|ending| ending.status() == Some(UCT_OK)), "{room}");
        fills += compare(&came, &sent, room);
    }
    assert!(fills > 0);
}

/// Compares what came with these frames, and returns how many fills were ahead of them.
#[track_caller]
fn compare(came: &[u8], frames: &[(u8, &[u8])], what: &str) -> usize {
    let (mut rest, mut fills) = (came, 0);
    for (kind, block) in frames {
        while rest.first() == Some(&control::FILL) {
            let (_, length) = parse_frame(u64::from_ne_bytes(rest[..8].try_into().unwrap()));
            rest = &rest[8 + length..];
            fills += 1;
        }
        let expected = frame(*kind, block);
        assert!(rest.starts_with(&expected), "{what}: {} bytes of kind {kind}", block.len());
        rest = &rest[expected.len()..];
    }
    assert!(rest.is_empty(), "{what}");
    fills
}

#[test]
fn a_connection_that_fails_ends_the_vectors_that_have_not_left_and_no_others() {
    let mut bed = Bed::new(&[]);
    let (data, mut endings) = (pattern(9000), [(); 3].map(|()| Ending::new()));
    let entries = entries(&[&data]);
    let head = frame_header(9, data.len()).to_ne_bytes();
    bed.iface.shared.next_epoch();
    let mut outcomes = Vec::new();
    for ending in &mut endings {
        let ending = ending.completion();
        outcomes.push(bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, ending).unwrap());
        bed.send(3, b"copied").unwrap();
    }
    assert_eq!(outcomes, [Outcome::Done, Outcome::InProgress, Outcome::InProgress]);
    assert!(bed.read() == frame(9, &data));
    bed.peer = UnixStream::pair().unwrap().0;
    bed.progress();
    let failure = bed.failure().unwrap().status().raw();
    let statuses = endings.each_ref().map(Ending::status);
    assert_eq!(statuses, [None, Some(failure), Some(failure)]);
}

#[test]
fn data_that_begin_a_page_come_behind_fill_if_the_peer_understands_it() {
    let data = pattern(3 * 4096);
    let page = &data[data.as_ptr().align_offset(4096)..][..4096];
    for (takes_fill, filled) in [(false, [].as_slice()), (true, &frame(control::FILL, &[0; 16]))] {
        let bed = Bed::new(&[]);
        bed.conn.features.set(if takes_fill { FEATURE_FILL as u8 } else { 0 });
        bed.iface.shared.next_epoch();
        let (entries, head) = (entries(&[page]), frame_header(9, page.len()).to_ne_bytes());
        bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, None).unwrap();
        assert!(bed.read() == [filled, &frame(9, page)].concat());
    }
}

#[test]
fn fill_moves_the_longest_block_of_a_frame() {
    let data = pattern(6 * 4096);
    let page = &data[data.as_ptr().align_offset(4096)..][..5 * 4096];
    for ahead in [0, 5, 16, 23, 24, 31, 100] {
        let blocks = entries(&[&data[..ahead], page, &data[..3]]);
        let payload = [&data[..ahead], page, &data[..3]].concat();
        let head = frame_header(9, payload.len()).to_ne_bytes();
        for in_place in [false, true] {
            let bed = Bed::new(&[]);
            bed.conn.features.set(FEATURE_FILL as u8);
            bed.iface.shared.next_epoch();
            if in_place {
                bed.conn.send_vector(&bed.iface.shared, &head, vector(&blocks), 1, None).unwrap();
            } else {
                bed.conn.send_gathered(&bed.iface.shared, &head, vector(&blocks)).unwrap();
            }
            let (came, frame) = (bed.read(), frame(9, &payload));
            let fill = came.len() - frame.len();
            assert!(came[fill..] == frame, "{ahead} bytes ahead");
            let place = (fill + head.len() + ahead) % 4096;
            assert!(!(1..32).contains(&place), "{ahead} bytes ahead: at {place} of a page");
            assert_eq!(fill == 0, head.len() + ahead >= 32, "{ahead} bytes ahead: {fill} bytes of fill");
        }
    }
}

#[test]
fn a_vector_ends_when_its_last_byte_has_left_or_when_it_is_cancelled() {
    let bed = Bed::new(&[("tx_queue_size", "1m")]);
    let (data, mut endings, mut sent) = (pattern(30_003), [Ending::new(), Ending::new()], Vec::new());
    while !bed.conn.is_blocked() {
        bed.iface.shared.next_epoch();
        bed.send(3, &data[..900]).unwrap();
        sent.extend(frame(3, &data[..900]));
    }
    let entries = entries(&[&data[..10_000], &data[10_000..]]);
    for (owner, ending) in (1..).zip(&mut endings) {
        let head = frame_header(9, data.len()).to_ne_bytes();
        bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), owner, ending.completion()).unwrap();
        sent.extend(frame(9, &data));
    }
    bed.progress();
    bed.conn.cancel(&bed.iface.shared, 2);
    assert_eq!((endings[0].status(), endings[1].status()), (None, Some(Error::CANCELED.status().raw())));
    assert!(bed.read_all() == sent);
    assert_eq!(endings[0].status(), Some(UCT_OK));
}

#[test]
fn a_send_that_fails_has_no_room_until_progress_ends_the_connection() {
    let mut bed = Bed::new(&[]);
    bed.write(&frame(4, b"the last words"));
    bed.messages();
    (&bed.peer).write_all(&frame(4, b"later")).unwrap();
    bed.peer = UnixStream::pair().unwrap().0;
    bed.iface.shared.next_epoch();
    assert_eq!(bed.send(1, b"into the void"), Err(Error::NO_RESOURCE));
    assert_eq!(bed.conn.state(), State::Established);
    assert_eq!(bed.conn.error(), Some(Error::NO_RESOURCE));
    bed.progress();
    assert_eq!(bed.messages(), [(4, b"later".to_vec())]);
    assert!(bed.failure().is_some());
    assert_eq!(bed.send(1, b"more"), Err(bed.failure().unwrap()));
}

#[test]
fn a_message_that_no_memory_is_left_for_is_refused_and_an_incomplete_one_ends_the_connection() {
    let bed = Bed::without_memory();
    let payload = [7; 8000];
    // The socket takes some at once; the first that it takes in part cannot be completed.
    while bed.conn.error().is_none() {
        bed.iface.shared.next_epoch();
        bed.send(3, &payload).unwrap();
    }
    assert_eq!(bed.conn.state(), State::Established, "progress ends it");
    bed.progress();
    assert_eq!(bed.failure(), Some(Error::NO_MEMORY));
    assert!(bed.iface.shared.last_failure().contains("no memory for a send buffer"));

    let bed = Bed::without_memory();
    bed.iface.shared.next_epoch();
    bed.send(3, b"first").unwrap();
    assert_eq!(bed.send(3, b"it would be collected"), Err(Error::NO_MEMORY));
    bed.iface.shared.next_epoch();
    bed.send(3, b"second").unwrap();
    assert_eq!(bed.read(), [frame(3, b"first"), frame(3, b"second")].concat());
}

#[test]
fn what_a_socket_takes_in_parts_arrives_whole() {
    let bed = Bed::new(&[]);
    bed.narrow();
    let data = pattern(20_003);
    let frame_of = |length| bed.send(3, &data[..length]);
    let response_of = |length| {
        let head = frame_header(5, length).to_ne_bytes();
        bed.conn.queue_response(&bed.iface.shared, &head, data[..length].into());
        Ok(())
    };
    let vector_of = |length| {
        let entries = entries(&[&data[..length / 2], &data[length / 2..length]]);
        let head = frame_header(9, length).to_ne_bytes();
        bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, None).map(drop)
    };
    type Send<'a> = &'a dyn Fn(usize) -> Result;
    let ways: [(u8, Send<'_>, &[usize]); 3] =
        [(3, &frame_of, &[8000]), (5, &response_of, &[8000, 9001, 20_003]), (9, &vector_of, &[9001, 20_003])];
    for (kind, send, lengths) in ways {
        for &length in lengths {
            bed.iface.shared.next_epoch();
            send(length).unwrap();
            let queued = bed.conn.queued_bytes();
            assert!(queued > 0 && queued < padded(length), "{queued} bytes of a frame of kind {kind} wait");
            assert!(bed.read_all() == frame(kind, &data[..length]), "{length} bytes of kind {kind}");
            assert!(!bed.conn.is_blocked() && !bed.conn.has_queued());
        }
    }
}

#[test]
fn small_responses_share_a_flush_and_large_ones_leave_at_once() {
    let bed = Bed::new(&[]);
    let scratch = bed.iface.shared.scratch_size();
    // With its header, and the zeros for which there has to be a place.
    let small = scratch - 8 - 8;
    for (length, waits) in [(0, true), (small - 1, true), (small, true), (small + 1, false), (60_001, false)]
    {
        bed.iface.shared.next_epoch();
        bed.send(1, b"first").unwrap();
        assert_eq!(bed.read(), frame(1, b"first"));
        let (data, head) = (pattern(length), frame_header(5, length).to_ne_bytes());
        bed.conn.queue_response(&bed.iface.shared, &head, data.as_slice().into());
        let expected = frame(5, &data);
        assert!(bed.read() == if waits { &[] } else { expected.as_slice() }, "{length} bytes");
        assert_eq!(bed.conn.queued_bytes(), if waits { expected.len() } else { 0 });
        assert!(!bed.conn.is_blocked());
        assert!(bed.read_all() == if waits { expected.as_slice() } else { &[] }, "{length} bytes");
    }
}

#[test]
fn a_socket_that_had_no_room_is_sent_to_when_it_reports_room_and_no_earlier() {
    let bed = Bed::new(&[]);
    let sent = bed.fill(&pattern(900));
    let first = bed.read();
    bed.conn.flush_unless_blocked(&bed.iface.shared);
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 1, None), Ok(Outcome::InProgress));
    assert_eq!(bed.send(3, &pattern(900)), Err(Error::NO_RESOURCE));
    assert_eq!((bed.conn.is_blocked(), bed.read()), (true, Vec::new()));
    assert!([first, bed.read_all()].concat() == sent);
    // Where nothing waits, the first frame of an epoch still leaves at once.
    bed.iface.shared.next_epoch();
    bed.conn.flush_unless_blocked(&bed.iface.shared);
    bed.send(1, b"first").unwrap();
    assert_eq!(bed.read(), frame(1, b"first"));
}

#[test]
fn frames_are_taken_up_to_the_limit_of_the_queue_where_nothing_leaves() {
    // Two buffers are full, and a frame of 24 bytes needs a place of 32.
    for (settings, expected) in [
        (&[("tx_buf_size", "16k"), ("tx_queue_size", "32799")], Err(Error::NO_RESOURCE)),
        (&[("tx_buf_size", "16k"), ("tx_queue_size", "32800")], Ok(())),
    ] {
        let bed = Bed::new(settings);
        bed.fill(&pattern(900));
        bed.queue_exactly(32_768);
        assert_eq!(bed.send(1, &[0; 16]), expected, "{settings:?}");
    }
}

#[test]
fn frames_of_one_epoch_leave_when_the_queue_is_full_and_the_socket_is_not() {
    let bed = Bed::new(&[("tx_buf_size", "16k"), ("tx_queue_size", "32k")]);
    let mut sent = Vec::new();
    for _ in 0..80 {
        bed.send(1, &pattern(900)).unwrap();
        sent.extend(frame(1, &pattern(900)));
    }
    assert!(!bed.conn.is_blocked() && bed.read_all() == sent);
    bed.queue_exactly(32_768);
    assert!(bed.conn.has_room(&bed.iface.shared), "it drains");
    let bed = Bed::unconnected(&[("tx_buf_size", "16k"), ("tx_queue_size", "32k")]);
    let most = 32_768 - bed.iface.shared.scratch_size();
    for (queued, has_room) in [(most, true), (most + 1, false)] {
        bed.queue_exactly(queued);
        assert_eq!(bed.conn.has_room(&bed.iface.shared), has_room, "{queued} bytes wait");
    }
}

#[test]
fn a_vector_as_large_as_a_buffer_waits_for_nothing() {
    let bed = Bed::new(&[("tx_buf_size", "32k")]);
    let data = pattern(32_768);
    for (length, expected) in [(32_768 - 8, Outcome::Done), (32_768 - 9, Outcome::InProgress)] {
        bed.iface.shared.next_epoch();
        bed.send(1, b"first").unwrap();
        let (entries, head) = (entries(&[&data[..length]]), frame_header(9, length).to_ne_bytes());
        let outcome = bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, None);
        assert_eq!(outcome, Ok(expected), "{length} bytes");
        bed.read_all();
    }
}

#[test]
fn nothing_leaves_while_a_message_is_packed() {
    let bed = Bed::new(&[]);
    bed.iface.shared.next_epoch();
    bed.send(1, b"first").unwrap();
    bed.send(2, b"second").unwrap();
    bed.read();
    bed.conn.while_packing(&bed.iface.shared, || {
        bed.conn.flush(&bed.iface.shared);
        assert_eq!(bed.read(), []);
    });
    assert_eq!(bed.read_all(), frame(2, b"second"));
}

#[test]
fn what_is_sent_asks_for_progress_once_and_so_does_what_is_collected() {
    let bed = Bed::new(&[]);
    bed.iface.advance();
    bed.requests.set(0);
    for _ in 0..3 {
        bed.send(3, &[1; 8]).unwrap();
        assert_eq!(bed.requests.replace(0), 1, "for the reply");
        bed.send(3, &[2; 8]).unwrap();
        bed.send(3, &[3; 8]).unwrap();
        assert_eq!(bed.requests.replace(0), 1);
        bed.iface.advance();
        bed.iface.advance();
        assert_eq!(bed.requests.get(), 0);
    }
}
