//! For the fuzz targets: any bytes of a peer are read, and what is read is written as it was.

use uct_core::IfaceAddress;

use super::frame::{HEADER, parse_header};
use super::handshake::Frame;
use super::lane_address::LaneAddress;

/// The private data of a connection manager, for interfaces with addresses as long as those of `rc_verbs`.
pub fn fuzz_lane_address(bytes: &[u8]) {
    let own = IfaceAddress { transport: "rc_verbs".to_owned(), device: vec![0; 24], iface: vec![0; 4] };
    match LaneAddress::parse(bytes, &own, 16) {
        Ok(address) => assert_eq!(address.to_bytes(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A frame of the handshake. Texts of a peer are changed if they are not readable, so the second reading is compared.
pub fn fuzz_frame(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk() else { return };
    let Ok((what, length)) = parse_header(header) else { return };
    let Some(Ok(frame)) = body.get(..length).map(|body| Frame::parse(what, body)) else { return };
    if let Ok(again) = frame.to_bytes() {
        assert_eq!(Frame::parse(what, &again[HEADER..]).expect("what was written is read"), frame);
    }
}
