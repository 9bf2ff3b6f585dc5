//! What endpoints of the libfabric provider send each other.
//!
//! For the list of parsers. Built on the provider's crate.

use uct_fi::wire::{Element, Envelope, Frame, Head, Hello};

/// A frame with its payload.
pub(crate) fn frame(bytes: &[u8]) {
    if let Ok((frame, payload)) = Frame::parse(bytes, bytes.len()) {
        assert_eq!(Head::of(&frame).bytes(), &bytes[..payload], "what is read is what was written");
        assert!(frame.has_payload() || payload == bytes.len());
    }
}

pub(crate) fn frame_seeds() -> Vec<Vec<u8>> {
    let (id, key, offset) = (7, 1 << 40, 4096);
    let envelope = Envelope { tag: Some(5), data: Some(9), delivery: true };
    let untagged = Envelope { tag: None, data: None, delivery: false };
    let element = Element { operation: 2, data_type: 6, count: 1 };
    let frames = [
        Frame::Message { id, envelope },
        Frame::Message { id, envelope: untagged },
        Frame::Request { id, envelope, length: 1 << 20 },
        Frame::Fetch { id, receiver: 3, wanted: 1 << 20 },
        Frame::Fragment { id },
        Frame::Done { id, status: 22 },
        Frame::Write { id, key, offset, data: Some(1), is_last: true },
        Frame::Read { id, key, offset, length: 65536 },
        Frame::Data { id, is_last: true },
        Frame::Atomic { id, key, offset, element, fetches: true, is_last: true },
    ];
    let with_payload = |frame: &Frame| {
        let mut bytes = Head::of(frame).bytes().to_vec();
        if frame.has_payload() {
            bytes.extend([1; 8]);
        }
        bytes
    };
    frames.iter().map(with_payload).collect()
}

/// The private data of a handshake.
pub(crate) fn hello(bytes: &[u8]) {
    match Hello::parse(bytes) {
        Ok(hello) => assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello)),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

pub(crate) fn hello_seeds() -> Vec<Vec<u8>> {
    let addresses = ["127.0.0.1:7000", "[fe80::1%3]:65535"];
    addresses.map(|text| Hello { address: text.parse().expect("it is an address") }.to_bytes()).to_vec()
}
