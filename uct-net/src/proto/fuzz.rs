//! For the fuzz targets: any bytes of a peer are read, what is read is written as it was, and both machines of the handshake take them.

use ucs::text::PeerLines;
use uct_host::IfaceAddress;
use uct_host::select::PeerAddresses;

use super::envelope::Token;
use super::frame::{HEADER, parse_header};
use super::handshake::{Awaits, Client, End, Frame, Proposal, RawFrame, Server, client, server};
use super::lane_address::LaneAddress;

/// The private data of a connection manager, for interfaces with addresses as long as those of `rc_verbs`.
pub fn fuzz_lane_address(bytes: &[u8]) {
    let own = IfaceAddress { transport: "rc_verbs".to_owned(), device: vec![0; 24], iface: vec![0; 4] };
    match LaneAddress::parse(bytes, &own, 16) {
        Ok(address) => assert_eq!(address.to_bytes(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Frames of the handshake, one behind the other. Texts of a peer are changed if they are not readable, so the second reading is compared.
pub fn fuzz_frame(bytes: &[u8]) {
    let frames = frames(bytes);
    for RawFrame { what, body } in &frames {
        let Ok(frame) = Frame::parse(*what, body) else { continue };
        if let Ok(again) = frame.body() {
            assert_eq!(Frame::parse(*what, &again).expect("what was written is read"), frame);
        }
    }
    call(&frames);
    for key in [None, Some((&b"a key of both of them"[..], [7; 32]))] {
        take(&frames, key);
    }
}

fn frames(mut bytes: &[u8]) -> Vec<RawFrame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>()
        && let Ok((what, length)) = parse_header(header)
        && let Some((body, rest)) = rest.split_at_checked(length)
    {
        frames.push(RawFrame { what, body: body.to_vec() });
        bytes = rest;
    }
    frames
}

fn end() -> End {
    End { token: Token::new(1, 2), window: 1 << 20, endpoint: Vec::new() }
}

/// A client is sent the frames. Every other lane fails, and it has a few of them.
fn call(frames: &[RawFrame]) {
    let address = IfaceAddress { transport: "tcp".to_owned(), device: vec![1], iface: vec![2] };
    let (mut machine, mut actions) = Client::new(Vec::new(), PeerAddresses::default(), None);
    let (mut frames, mut lanes) = (frames.iter(), 0);
    loop {
        let is_over =
            actions.iter().any(|action| matches!(action, client::Action::Done | client::Action::Fail(_)));
        assert_eq!(is_over, machine.awaits() == Awaits::Nothing);
        actions = machine.handle(match machine.awaits() {
            Awaits::Nothing => return,
            Awaits::Decision if lanes < 5 => {
                lanes += 1;
                let proposal = Proposal { own: address.clone(), theirs: address.clone(), end: end() };
                client::Input::Chosen { over_socket: lanes == 4, proposal }
            }
            Awaits::Decision => client::Input::NoneLeft("no lane is left"),
            Awaits::Message { or_frame: false } if lanes % 2 == 0 => client::Input::Replied,
            Awaits::Message { or_frame: false } => client::Input::LaneFailed("no message".to_owned()),
            Awaits::Frame(_) | Awaits::Use | Awaits::Message { .. } => {
                let Some(frame) = frames.next() else { return };
                client::Input::Received(frame)
            }
        });
    }
}

/// A server is sent them. It opens every other lane.
fn take(frames: &[RawFrame], key: Option<(&[u8], [u8; 32])>) {
    const LANES: usize = 5;
    let mut machine = Server::new(key, LANES);
    let (mut frames, mut lanes, mut is_introduced) = (frames.iter(), 0, false);
    loop {
        let input = match machine.awaits() {
            Awaits::Nothing => return,
            Awaits::Decision if !is_introduced => {
                is_introduced = true;
                let explanation = PeerLines::new("");
                let (private, addresses, end) = (Vec::new(), PeerAddresses::default(), end());
                server::Input::Accepted(server::Acceptance { private, addresses, explanation, end })
            }
            Awaits::Decision => {
                lanes += 1;
                assert!(lanes <= LANES);
                if lanes % 2 == 0 {
                    server::Input::Unable("not this one".to_owned())
                } else {
                    server::Input::Opened(end())
                }
            }
            Awaits::Message { .. } => server::Input::Asked,
            Awaits::Frame(_) | Awaits::Use => {
                let Some(frame) = frames.next() else { return };
                server::Input::Received(frame)
            }
        };
        let actions = machine.handle(input);
        let is_over =
            actions.iter().any(|action| matches!(action, server::Action::Done | server::Action::Fail(_)));
        assert_eq!(is_over, machine.awaits() == Awaits::Nothing);
    }
}
