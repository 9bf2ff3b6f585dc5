//! What is written is read back, and what is malformed is refused.

use proptest::prelude::*;

use super::{Element, Envelope, Frame, Head, MAX_HEAD, Malformed};

const PAYLOAD: &[u8] = b"payload";

fn all() -> Vec<Frame<'static>> {
    let (id, key, offset, payload) = (0x0102_0304, u64::MAX - 1, 7, PAYLOAD);
    let element = Element { operation: 18, data_type: 9, count: u32::MAX };
    let mut frames = vec![
        Frame::Fetch { id, receiver: 9, wanted: 1 << 40 },
        Frame::Fragment { id, payload },
        Frame::Done { id, status: 265 },
        Frame::Read { id, key, offset, length: 1 << 33 },
        Frame::Data { id, is_last: true, payload },
        Frame::Atomic { id, key, offset, element, fetches: true, is_last: false, payload },
        Frame::Atomic { id, key, offset, element, fetches: false, is_last: true, payload },
        Frame::Write { id, key, offset, data: Some(3), is_last: true, payload },
        Frame::Write { id, key, offset, data: None, is_last: false, payload },
    ];
    for tag in [None, Some(0), Some(u64::MAX)] {
        for data in [None, Some(5)] {
            let envelope = Envelope { tag, data, delivery: tag.is_some() };
            frames.push(Frame::Message { id, envelope, payload });
            frames.push(Frame::Request { id, envelope, length: 1 << 20 });
        }
    }
    frames
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Head::of(frame).bytes().to_vec();
    let has_payload = !matches!(
        frame,
        Frame::Request { .. } | Frame::Fetch { .. } | Frame::Done { .. } | Frame::Read { .. }
    );
    if has_payload {
        bytes.extend_from_slice(PAYLOAD);
    }
    bytes
}

#[test]
fn each_frame_is_read_as_it_was_written() {
    for frame in all() {
        assert_eq!(Frame::parse(&bytes(&frame)), Ok(frame));
        assert!(Head::of(&frame).bytes().len() <= MAX_HEAD);
    }
}

#[test]
fn a_frame_that_ends_in_a_field_or_goes_on_is_refused() {
    for frame in all() {
        let head = Head::of(&frame);
        for length in 0..head.bytes().len() {
            assert_eq!(Frame::parse(&head.bytes()[..length]), Err(Malformed::Short), "{frame:?}");
        }
    }
    let mut done = bytes(&Frame::Done { id: 1, status: 0 });
    done.push(0);
    assert_eq!(Frame::parse(&done), Err(Malformed::Long));
}

#[test]
fn unknown_kinds_flags_and_reserved_bytes_are_refused() {
    assert_eq!(Frame::parse(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed::Kind(0)));
    assert_eq!(Frame::parse(&[10, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed::Kind(10)));
    assert_eq!(Frame::parse(&[1, 8, 0, 0, 0, 0, 0, 0]), Err(Malformed::Flags(8)));
    assert_eq!(Frame::parse(&[1, 0, 0, 1, 0, 0, 0, 0]), Err(Malformed::Reserved));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Frame::parse(&bytes);
    }
}
