//! What is written is read back, and what is malformed is refused.

use proptest::prelude::*;

use super::{Element, Envelope, Frame, Head, Hello, MAX_HEAD, Malformed, whole_message};

const PAYLOAD: usize = 7;

fn all() -> Vec<Frame> {
    let (id, key, offset) = (0x0102_0304, u64::MAX - 1, 7);
    let element = Element { operation: 18, data_type: 9, count: u32::MAX };
    let mut frames = vec![
        Frame::Fetch { id, receiver: 9, wanted: 1 << 40 },
        Frame::Fragment { id },
        Frame::Done { id, status: 265 },
        Frame::Read { id, key, offset, length: 1 << 33 },
        Frame::Data { id, is_last: true },
        Frame::Rest,
        Frame::Pause,
        Frame::Resume,
        Frame::Atomic { id, key, offset, element, fetches: true, is_last: false },
        Frame::Atomic { id, key, offset, element, fetches: false, is_last: true },
        Frame::Write { id, key, offset, data: Some(3), is_last: true },
        Frame::Write { id, key, offset, data: None, is_last: false },
    ];
    for tag in [None, Some(0), Some(u64::MAX)] {
        for data in [None, Some(5)] {
            let envelope = Envelope { tag, data, delivery: tag.is_some() };
            frames.push(Frame::Message { id, envelope });
            frames.push(Frame::Begin { id, envelope, length: 1 << 19 });
            frames.push(Frame::Request { id, envelope, length: 1 << 20 });
        }
    }
    frames
}

#[test]
fn each_frame_is_read_as_it_was_written() {
    for frame in all() {
        let head = Head::of(&frame);
        let length = head.bytes().len();
        assert!(length <= MAX_HEAD);
        assert_eq!(Frame::parse(head.bytes(), length), Ok((frame, length)));
        let longer = Frame::parse(head.bytes(), length + PAYLOAD);
        assert_eq!(longer, if frame.has_payload() { Ok((frame, length)) } else { Err(Malformed::Long) });
    }
}

/// As [`whole_message`], by way of [`Frame::parse`].
fn parsed_message(bytes: &[u8]) -> Option<(u32, Envelope, usize)> {
    match Frame::parse(bytes, bytes.len()) {
        Ok((Frame::Message { id, envelope }, payload)) => Some((id, envelope, payload)),
        _ => None,
    }
}

#[test]
fn a_whole_message_is_read_the_same_both_ways() {
    for frame in all() {
        let head = Head::of(&frame);
        for length in 0..=head.bytes().len() {
            let bytes = &head.bytes()[..length];
            assert_eq!(whole_message(bytes), parsed_message(bytes), "{frame:?}, {length} bytes");
        }
    }
}

#[test]
fn a_frame_that_ends_in_a_field_is_refused() {
    for frame in all() {
        let head = Head::of(&frame);
        for length in 0..head.bytes().len() {
            let outcome = Frame::parse(&head.bytes()[..length], length);
            assert_eq!(outcome, Err(Malformed::Short), "{frame:?}");
        }
    }
}

#[test]
fn unknown_kinds_flags_and_reserved_bytes_are_refused() {
    assert_eq!(Frame::parse(&[0, 0, 0, 0, 0, 0, 0, 0], 8), Err(Malformed::Kind(0)));
    assert_eq!(Frame::parse(&[14, 0, 0, 0, 0, 0, 0, 0], 8), Err(Malformed::Kind(14)));
    assert_eq!(Frame::parse(&[1, 8, 0, 0, 0, 0, 0, 0], 8), Err(Malformed::Flags(8)));
    assert_eq!(Frame::parse(&[10, 0, 0, 0, 1, 0, 0, 0], 8), Err(Malformed::Reserved));
    assert_eq!(Frame::parse(&[13, 0, 0, 0, 1, 0, 0, 0], 8), Err(Malformed::Reserved));
    assert_eq!(Frame::parse(&[1, 0, 0, 1, 0, 0, 0, 0], 8), Err(Malformed::Reserved));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((_, payload)) = Frame::parse(&bytes, bytes.len()) {
            prop_assert!(payload <= bytes.len());
        }
        prop_assert_eq!(whole_message(&bytes), parsed_message(&bytes));
        let _ = Hello::parse(&bytes);
    }
}
