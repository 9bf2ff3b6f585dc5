//! Messages: eager and asked for, expected and not, with all that matching tells apart.

use super::*;

const LENGTHS: [usize; 9] = [0, 1, 7, 4096, 8150, 16 << 10, (16 << 10) + 1, 100_000, 3 << 20];

#[test]
fn messages_of_each_length_arrive_whether_posted_or_not() {
    for (way, left, right, to_right, to_left) in pairs() {
        for is_posted in [true, false] {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                let bytes = pattern(length, number as u8);
                let mut space = vec![0; length + 3];
                let target = [buffer(&mut space)];
                let post = || right.endpoint.receive(&receive(&target, Some(7), 2)).unwrap();
                if is_posted {
                    post();
                }
                let source = [reading(&bytes)];
                let message = Send { data: Some(9), ..send(to_right, &source, Some(7), 1) };
                left.endpoint.send(&message).unwrap();
                if !is_posted {
                    // It is there, or its announcement, when the next one is.
                    let marker = send(to_right, &[], None, 0);
                    left.endpoint.send(&Send { mode: INJECT, ..marker }).unwrap();
                    right.endpoint.receive(&receive(&[], None, 3)).unwrap();
                    assert_eq!(right.got().entry().context, 3, "{way} {length}");
                    post();
                }
                let entry = until(&left, &right);
                let flags = flags::RECV | flags::TAGGED | flags::REMOTE_CQ_DATA;
                let expected = Entry { length, data: 9, tag: 7, source: to_left, ..Entry::new(2, flags) };
                assert_eq!(entry, expected, "{way} {length}");
                assert_eq!(left.sent().entry(), Entry::new(1, flags::SEND | flags::TAGGED));
                assert!(space[..length] == bytes && space[length..] == [0; 3], "{way} {length}");
            }
        }
        let messages = 3 * LENGTHS.len() as u64;
        assert_eq!(left.counters.send.as_ref().unwrap().value(), messages);
        assert_eq!(right.counters.receive.as_ref().unwrap().value(), messages);
    }
}

#[test]
fn a_message_counts_the_same_whatever_its_way_and_however_much_of_it_is_received() {
    for (way, left, right, to_right, _) in pairs() {
        for length in LENGTHS {
            for room in [0, 5] {
                let bytes = pattern(length, 1);
                let mut space = [0; 5];
                right.endpoint.receive(&receive(&[buffer(&mut space[..room])], Some(7), 2)).unwrap();
                left.endpoint.send(&send(to_right, &[reading(&bytes)], Some(7), 1)).unwrap();
                match right.got() {
                    Out::Entry(entry) => assert_eq!(entry.length, length),
                    Out::Error(error) => {
                        assert_eq!((error.errno, error.excess), (Errno::TRUNCATED, length - room))
                    }
                }
                left.sent().entry();
                let (sent, received) = (left.domain.totals().sent, right.domain.totals().received);
                assert_eq!(received, sent, "{way}: {length} bytes for {room}");
            }
        }
    }
}

/// The next entry of a message, while both sides make progress.
#[track_caller]
fn until(left: &Side, right: &Side) -> Entry {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(out) = right.try_next(&right.receive) {
            return out.entry();
        }
        left.domain.progress();
        right.domain.progress();
        assert!(Instant::now() < limit, "no message");
    }
}

#[test]
fn both_call_at_once_and_all_messages_arrive_in_order() {
    const MESSAGES: usize = 300;
    for (way, left, right, to_right, to_left) in pairs() {
        let length = |number: usize| [3, 40_000, 0, 500][number % 4];
        std::thread::scope(|scope| {
            for (side, to) in [(&left, to_right), (&right, to_left)] {
                scope.spawn(move || {
                    let mut spaces = vec![vec![0; 40_000]; MESSAGES];
                    for (number, space) in spaces.iter_mut().enumerate() {
                        let target = [buffer(space)];
                        side.endpoint.receive(&receive(&target, Some(1), number)).unwrap();
                    }
                    let messages: Vec<_> =
                        (0..MESSAGES).map(|number| pattern(length(number), number as u8)).collect();
                    for (number, message) in messages.iter().enumerate() {
                        let source = [reading(message)];
                        retry(side, || side.endpoint.send(&send(to, &source, Some(1), number)));
                    }
                    let mut seen = vec![false; MESSAGES];
                    for _ in 0..MESSAGES {
                        let entry = side.got().entry();
                        let number = entry.context;
                        assert!(!std::mem::replace(&mut seen[number], true));
                        assert_eq!(entry.length, length(number), "{way}");
                        assert!(spaces[number][..entry.length] == messages[number], "{way} {number}");
                    }
                    for _ in 0..MESSAGES {
                        side.sent().entry();
                    }
                });
            }
        });
    }
}

#[test]
fn a_message_to_oneself_is_delivered_before_its_completion_says_so() {
    let domain = domain("tcp");
    let side = Side::new(&domain);
    let own = side.knows(&side);
    for length in [5, 200_000] {
        let (bytes, mut space) = (pattern(length, 1), vec![0; length]);
        let source = [reading(&bytes)];
        let message = Send { mode: DELIVERY, ..send(own, &source, None, 1) };
        side.endpoint.send(&message).unwrap();
        for _ in 0..100 {
            side.domain.progress();
        }
        assert!(side.transmit.is_empty(), "nobody has received it yet");
        let target = [buffer(&mut space)];
        side.endpoint.receive(&receive(&target, None, 2)).unwrap();
        assert_eq!(side.got().entry().source, own);
        side.sent().entry();
        assert!(space == bytes);
    }
}

#[test]
fn a_canceled_receive_is_an_error_entry_and_takes_no_message() {
    for (way, left, right, to_right, _) in pairs() {
        for tag in [Some(1), None] {
            let mut spaces = [[0; 8]; 2];
            for (context, space) in spaces.iter_mut().enumerate() {
                right.endpoint.receive(&receive(&[buffer(space)], tag, context)).unwrap();
            }
            right.endpoint.cancel(0).unwrap();
            assert_eq!(right.endpoint.cancel(0), Err(Errno::NOT_FOUND));
            let error = right.got().error();
            assert_eq!((error.entry.context, error.errno), (0, Errno::CANCELED), "{way}");
            let source = [reading(b"message")];
            left.endpoint.send(&send(to_right, &source, tag, 0)).unwrap();
            assert_eq!(until(&left, &right).context, 1, "{way}");
            assert_eq!(spaces, [*b"\0\0\0\0\0\0\0\0", *b"message\0"], "{way}");
        }
    }
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_cut_and_says_so() {
    for (way, left, right, to_right, _) in pairs() {
        for length in [100, 100_000] {
            let (bytes, mut space) = (pattern(length, 3), vec![0; 60]);
            let (source, target) = ([reading(&bytes)], [buffer(&mut space)]);
            right.endpoint.receive(&receive(&target, Some(2), 5)).unwrap();
            left.endpoint.send(&send(to_right, &source, Some(2), 0)).unwrap();
            let limit = Instant::now() + LIMIT;
            let error = loop {
                left.domain.progress();
                right.domain.progress();
                if let Some(out) = right.try_next(&right.receive) {
                    break out.error();
                }
                assert!(Instant::now() < limit);
            };
            assert_eq!((error.errno, error.excess), (Errno::TRUNCATED, length - 60), "{way}");
            assert_eq!((error.entry.context, error.entry.length), (5, 60), "{way}");
            assert!(space == bytes[..60], "{way}");
            left.sent().entry();
        }
    }
}

#[test]
fn a_sender_of_unexpected_messages_has_to_wait_and_none_is_lost() {
    const ALL: usize = 20_000;
    for (way, left, right, to_right, _) in pairs().skip(1) {
        for length in [1000, 33_000] {
            let message = pattern(length, 1);
            let source = [reading(&message)];
            let (mut taken, mut refused) = (0, 0);
            while taken < ALL && refused < 1000 {
                match left.endpoint.send(&send(to_right, &source, Some(1), taken)) {
                    Ok(()) => (taken, refused) = (taken + 1, 0),
                    Err(errno) => {
                        assert_eq!(errno, Errno::AGAIN);
                        refused += 1;
                    }
                }
                left.domain.progress();
                right.domain.progress();
            }
            assert!(taken < ALL, "{way}: {length} bytes are kept without a bound");
            let mut space = vec![0; length];
            let target = [buffer(&mut space)];
            for number in 0..taken {
                right.endpoint.receive(&receive(&target, Some(1), number)).unwrap();
                assert_eq!(until(&left, &right).length, length, "{way} {number}");
            }
            assert!(space == message, "{way}");
            for _ in 0..taken {
                left.sent().entry();
            }
        }
    }
}
