//! The rules one by one, with what clients rely on.

use uct_fi::matching::*;

fn message(source: u32, tag: u64, length: u64) -> Envelope {
    Envelope { source, tag, length, data: None }
}

const ANY: Filter = Filter { source: None, tag: 0, ignore: u64::MAX };

fn tagged(tag: u64) -> Filter {
    Filter { source: None, tag, ignore: 0 }
}

#[test]
fn a_message_takes_the_earliest_receive_and_a_receive_the_earliest_message() {
    let mut matching = Matching::new();
    assert_eq!(matching.post(tagged(5), "exact"), None);
    assert_eq!(matching.post(ANY, "any"), None);
    let landing = matching.arrive(&message(0, 7, 1)).expect("any tag");
    assert_eq!(landing, Landing { receive: "any", part: None });
    assert_eq!(matching.arrive(&message(0, 7, 1)), None);
    matching.keep(message(0, 7, 1), 'a');
    matching.keep(message(0, 7, 2), 'b');
    let (receive, met) = matching.post(tagged(7), "late").expect("a message is there");
    assert_eq!((receive, met.payload, met.envelope.length), ("late", 'a', 1));
    assert_eq!(matching.arrive(&message(1, 5, 0)).map(|landing| landing.receive), Some("exact"));
}

#[test]
fn a_multi_receive_is_released_with_the_last_message_that_is_complete() {
    let mut matching: Matching<_, ()> = Matching::new();
    assert_eq!(matching.post_multi(ANY, "buffer", 100, 40), []);
    let mut part = || matching.arrive(&message(0, 0, 30)).and_then(|landing| landing.part);
    let (first, second) = (part().expect("room"), part().expect("room"));
    assert_eq!((first.offset, first.length, second.offset, second.length), (0, 30, 32, 30));
    assert_eq!(part(), None, "36 bytes are left, less than the minimum");
    assert_eq!(matching.finish(second.id), None, "the first message is not complete");
    assert_eq!(matching.finish(first.id), Some(Released { receive: "buffer", why: Why::Consumed }));
    assert_eq!(matching.finish(first.id), None, "an id from before finds nothing");
}

#[test]
fn a_message_that_does_not_fit_into_the_rest_of_a_buffer_goes_to_the_next_one() {
    let mut matching: Matching<_, ()> = Matching::new();
    for buffer in ["first", "second"] {
        assert_eq!(matching.post_multi(ANY, buffer, 100, 1), []);
    }
    let small = matching.arrive(&message(0, 0, 50)).and_then(|landing| landing.part).expect("room");
    assert_eq!(matching.finish(small.id), None, "there is more room");
    let large = matching.arrive(&message(0, 0, 120)).expect("an unused buffer");
    assert_eq!(large.receive, "second");
    assert_eq!(large.part.map(|part| (part.offset, part.length)), Some((0, 100)), "truncated");
    assert_eq!(matching.next_released(), Some(Released { receive: "first", why: Why::Consumed }));
    assert_eq!(matching.next_released(), None);
}

#[test]
fn a_claimed_message_is_for_its_receive_alone() {
    let mut matching = Matching::<&str, _>::new();
    matching.keep(message(3, 9, 4), "claimed");
    let (id, found) = matching.peek(&tagged(9)).expect("a message is there");
    assert_eq!(found.envelope, message(3, 9, 4));
    assert!(matching.claim(id, 0x10));
    assert_eq!(matching.peek(&ANY), None);
    assert_eq!(matching.post(ANY, "another"), None);
    assert_eq!(matching.take_claimed(0x20), None);
    assert_eq!(matching.take_claimed(0x10).map(|message| message.payload), Some("claimed"));
    assert_eq!(matching.take_claimed(0x10), None);
}

#[test]
fn a_failed_source_ends_what_waits_for_it_alone() {
    let mut matching = Matching::new();
    matching.keep(message(1, 1, 4), "complete");
    matching.keep(message(1, 2, 4), "still arriving");
    matching.keep(message(2, 2, 4), "of another");
    for (source, name) in [(Some(1), "directed"), (Some(2), "at another"), (None, "at any")] {
        assert_eq!(matching.post(Filter { source, ..tagged(100) }, name), None);
    }
    let failed = matching.fail_source(1, |payload| *payload == "complete");
    assert_eq!(failed.receives, ["directed"]);
    assert_eq!(failed.messages.iter().map(|m| m.payload).collect::<Vec<_>>(), ["still arriving"]);
    assert_eq!(matching.post(ANY, "next").map(|(_, m)| m.payload), Some("complete"));
    assert_eq!(matching.post(ANY, "next").map(|(_, m)| m.payload), Some("of another"));
    assert_eq!(matching.arrive(&message(1, 100, 0)).map(|landing| landing.receive), Some("at any"));
}
