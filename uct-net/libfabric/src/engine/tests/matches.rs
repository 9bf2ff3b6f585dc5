//! What matching tells apart: multi-receives, directed receives, peeks and claims.

use super::*;

/// The next thing in the right side's queue, while both make progress.
#[track_caller]
fn came(left: &Side, right: &Side) -> Out {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(out) = right.try_next(&right.receive) {
            return out;
        }
        left.domain.progress();
        right.domain.progress();
        assert!(Instant::now() < limit, "nothing came");
    }
}

#[test]
fn messages_lie_one_behind_the_other_in_a_multi_receive_until_it_is_used_up() {
    const SIZE: usize = 100_000;
    for (way, left, right, to_right, _) in pairs() {
        let mut spaces = [vec![0; SIZE], vec![0; SIZE]];
        let base: Vec<_> = spaces.iter().map(|space| space.as_ptr().addr()).collect();
        for (context, space) in spaces.iter_mut().enumerate() {
            right.endpoint.receive_many(&receive(&[buffer(space)], None, context), 8000).unwrap();
        }
        let lengths = [10, 40_000, 0, 50_000, 5000, 20_000, 30_000, 40_000];
        let messages: Vec<_> =
            lengths.iter().enumerate().map(|(n, length)| pattern(*length, n as u8)).collect();
        for message in &messages {
            let source = [reading(message)];
            retry(&left, || left.endpoint.send(&send(to_right, &source, None, 0)));
        }
        let (mut released, mut seen) = ([0; 2], 0);
        while seen < messages.len() || released[0] == 0 {
            let entry = came(&left, &right).entry();
            if entry.flags & flags::MULTI_RECV != 0 {
                released[entry.context] += 1;
            }
            if entry.buffer == 0 {
                continue;
            }
            let at = entry.buffer - base[entry.context];
            let bytes = &spaces[entry.context][at..at + entry.length];
            let number = messages.iter().position(|message| message == bytes);
            assert!(number.is_some(), "{way}: a message that was not sent, of {} bytes", entry.length);
            seen += 1;
        }
        assert_eq!(released, [1, 0], "{way}");
        right.endpoint.cancel(1).unwrap();
        let error = came(&left, &right).error();
        assert_eq!(error.errno, Errno::CANCELED, "{way}");
        // The program may use the buffer again.
        assert_ne!(error.entry.flags & flags::MULTI_RECV, 0, "{way}");
    }
}

#[test]
fn a_directed_receive_takes_messages_of_its_peer_alone() {
    for (way, left, right, to_right, to_left) in pairs() {
        let own = right.knows(&right);
        let mut spaces = [[0; 1]; 2];
        let [first, second] = &mut spaces;
        for (from, space, context) in [(own, first, 1), (to_left, second, 2)] {
            let target = [buffer(space)];
            let directed = Receive { from: Some(from), ..receive(&target, Some(1), context) };
            right.endpoint.receive(&directed).unwrap();
        }
        left.endpoint.send(&send(to_right, &[reading(b"l")], Some(1), 0)).unwrap();
        let entry = came(&left, &right).entry();
        assert_eq!((entry.context, entry.source), (2, to_left), "{way}");
        right.endpoint.send(&send(own, &[reading(b"r")], Some(1), 0)).unwrap();
        let entry = came(&left, &right).entry();
        assert_eq!((entry.context, entry.source), (1, own), "{way}");
        assert_eq!(spaces, [*b"r", *b"l"]);
    }
}

#[test]
fn a_peek_finds_what_is_there_and_a_claim_keeps_it_for_its_context() {
    for (way, left, right, to_right, to_left) in pairs() {
        for length in [20, 60_000] {
            let tag = Some(TagFilter { tag: 5, ignore: 0 });
            let peek = |context, action| Peek { from: None, tag, context, action };
            right.endpoint.peek(&peek(1, PeekAction::Look)).unwrap();
            let error = came(&left, &right).error();
            assert_eq!((error.entry.context, error.errno), (1, Errno::NO_MESSAGE), "{way}");

            let messages = [pattern(length, 1), pattern(length, 2), pattern(length, 3)];
            for (number, message) in messages.iter().enumerate() {
                let source = [reading(message)];
                left.endpoint.send(&send(to_right, &source, Some(5), number)).unwrap();
            }
            let limit = Instant::now() + LIMIT;
            let found = loop {
                assert!(Instant::now() < limit, "{way} {length}");
                right.endpoint.peek(&peek(2, PeekAction::Claim)).unwrap();
                match came(&left, &right) {
                    Out::Entry(entry) => break entry,
                    Out::Error(error) => assert_eq!(error.errno, Errno::NO_MESSAGE),
                }
            };
            let flags = flags::RECV | flags::TAGGED;
            let expected = Entry { length, tag: 5, source: to_left, ..Entry::new(2, flags) };
            assert_eq!(found, expected, "{way}");

            // The second one is thrown away, the third one received before the claimed one.
            loop {
                assert!(Instant::now() < limit, "{way} {length}");
                right.endpoint.peek(&peek(3, PeekAction::Discard)).unwrap();
                match came(&left, &right) {
                    Out::Entry(_) => break,
                    Out::Error(error) => assert_eq!(error.errno, Errno::NO_MESSAGE),
                }
            }
            let mut spaces = [vec![0; length], vec![0; length]];
            let [third, claimed] = &mut spaces;
            right.endpoint.receive(&receive(&[buffer(third)], Some(5), 4)).unwrap();
            assert_eq!(came(&left, &right).entry().context, 4, "{way}");
            right.endpoint.claim(&receive(&[buffer(claimed)], Some(5), 2), false).unwrap();
            assert_eq!(came(&left, &right).entry().context, 2, "{way}");
            assert!(spaces[0] == messages[2] && spaces[1] == messages[0], "{way}");
            let again = right.endpoint.claim(&receive(&[], Some(5), 2), false);
            assert_eq!(again, Err(Errno::NO_MESSAGE));
            for _ in 0..3 {
                let limit = Instant::now() + LIMIT;
                while left.try_next(&left.transmit).map(Out::entry).is_none() {
                    left.domain.progress();
                    right.domain.progress();
                    assert!(Instant::now() < limit);
                }
            }
        }
    }
}
