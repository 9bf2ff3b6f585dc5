//! Each path of a handshake step by step, and both machines against each other over a line that loses, repeats, reorders and changes frames.

use std::collections::VecDeque;

use proptest::prelude::*;
use ucs::text::{PeerLines, PeerText};
use uct_host::IfaceAddress;
use uct_host::select::PeerAddresses;

use super::auth::{self, Nonce, Side};
use super::client::{self, Client};
use super::server::{self, Acceptance, Server};
use super::step::Wire;
use super::{Awaits, End, Failure, Frame, Proposal, RawFrame, Way};
use crate::proto::envelope::Token;
use crate::proto::frame::{HEADER, parse_header};

const KEY: &[u8] = b"a key of both of them";
const CLIENT: Nonce = [1; 32];
const SERVER: Nonce = [2; 32];
const LANES: usize = 4;

fn end(number: u64) -> End {
    End { token: Token::new(1, number), window: 1 << 20, endpoint: Vec::new() }
}

/// With the address of an endpoint, which the other side needs.
fn paired(number: u64) -> End {
    End { endpoint: vec![number as u8; 4], ..end(number) }
}

fn proposal(end: End) -> Proposal {
    let address = |byte| IfaceAddress { transport: "tcp".to_owned(), device: vec![byte], iface: vec![] };
    Proposal { own: address(1), theirs: address(2), end }
}

fn acceptance() -> Acceptance {
    let (private, explanation) = (b"of the server".to_vec(), PeerLines::new("CHOSEN tcp\n"));
    Acceptance { private, addresses: PeerAddresses::default(), explanation, end: end(100) }
}

fn raw(bytes: &[u8]) -> RawFrame {
    let (header, body) = bytes.split_first_chunk::<HEADER>().expect("a header");
    let (what, length) = parse_header(header).expect("of this protocol");
    assert_eq!(length, body.len());
    RawFrame { what, body: body.to_vec() }
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    Wire::default().write(frame).expect("short")
}

/// Both machines, and what each of them has to do next.
struct Pair {
    client: Client,
    server: Server,
    of_client: VecDeque<client::Action>,
    of_server: VecDeque<server::Action>,
}

impl Pair {
    fn new(client_key: Option<&[u8]>, server_key: Option<&[u8]>) -> Pair {
        let of = |key, nonce| (key, nonce);
        let (client, actions) = Client::new(
            b"of the client".to_vec(),
            PeerAddresses::default(),
            client_key.map(|key| of(key, CLIENT)),
        );
        let server = Server::new(server_key.map(|key| of(key, SERVER)), LANES);
        Pair { client, server, of_client: actions.into_iter().collect(), of_server: VecDeque::new() }
    }

    fn tell_client(&mut self, input: client::Input<'_>) {
        self.of_client.extend(self.client.handle(input));
    }

    fn tell_server(&mut self, input: server::Input<'_>) {
        self.of_server.extend(self.server.handle(input));
    }

    /// Frames go there and back until none is under way.
    fn run(&mut self) {
        loop {
            if let Some(client::Action::Send(_)) = self.of_client.front() {
                let Some(client::Action::Send(bytes)) = self.of_client.pop_front() else { unreachable!() };
                self.tell_server(server::Input::Received(&raw(&bytes)));
            } else if let Some(server::Action::Send(_)) = self.of_server.front() {
                let Some(server::Action::Send(bytes)) = self.of_server.pop_front() else { unreachable!() };
                self.tell_client(client::Input::Received(&raw(&bytes)));
            } else {
                return;
            }
        }
    }

    fn next_of_client(&mut self) -> client::Action {
        self.of_client.pop_front().expect("the client has something to do")
    }

    fn next_of_server(&mut self) -> server::Action {
        self.of_server.pop_front().expect("the server has something to do")
    }

    /// Up to the client's choice.
    fn introduced(client_key: Option<&[u8]>, server_key: Option<&[u8]>) -> Pair {
        let mut pair = Pair::new(client_key, server_key);
        pair.run();
        let server::Action::Introduced { private, .. } = pair.next_of_server() else { panic!("no caller") };
        assert_eq!(private, b"of the client");
        assert_eq!(pair.server.awaits(), Awaits::Decision);
        pair.tell_server(server::Input::Accepted(acceptance()));
        pair.run();
        let client::Action::Welcomed { private, .. } = pair.next_of_client() else { panic!("not welcome") };
        assert_eq!(private, b"of the server");
        assert_eq!(pair.next_of_client(), client::Action::Choose(None));
        pair
    }

    fn chosen(&mut self, over_socket: bool, end: End) {
        self.tell_client(client::Input::Chosen { over_socket, proposal: proposal(end) });
        self.run();
    }

    /// The server is to open a lane in this way.
    fn opens(&mut self, way: Way) {
        let server::Action::Open(found, _) = self.next_of_server() else { panic!("no lane") };
        assert_eq!(found, way);
    }

    /// The next frame of the client arrives.
    fn deliver_to_server(&mut self) {
        let client::Action::Send(bytes) = self.next_of_client() else { panic!("no frame") };
        self.tell_server(server::Input::Received(&raw(&bytes)));
    }

    /// What the server sends arrives.
    fn deliver_to_client(&mut self) {
        while let Some(server::Action::Send(bytes)) = self.of_server.pop_front() {
            self.tell_client(client::Input::Received(&raw(&bytes)));
        }
    }

    /// The server refuses the client, which gets the reason, whatever it has sent meanwhile.
    fn refused(mut self) {
        self.tell_server(server::Input::Rejected("full"));
        self.deliver_to_client();
        let failed = client::Action::Fail(Failure::Rejected(PeerText::new("full")));
        assert_eq!(self.of_client.pop_back(), Some(failed));
        assert_eq!(self.server.awaits(), Awaits::Nothing);
    }

    /// A message crosses the lane both ways.
    fn connected(mut self, takes_socket: bool) {
        self.tell_client(client::Input::Replied);
        self.run();
        assert_eq!(self.next_of_client(), client::Action::Done);
        if takes_socket {
            assert_eq!(self.next_of_server(), server::Action::Take);
        }
        assert_eq!(self.server.awaits(), Awaits::Message { or_frame: false });
        self.tell_server(server::Input::Asked);
        assert_eq!(self.next_of_server(), server::Action::Done);
        assert_eq!((self.client.awaits(), self.server.awaits()), (Awaits::Nothing, Awaits::Nothing));
        assert!(self.of_client.is_empty() && self.of_server.is_empty());
    }
}

#[test]
fn the_first_lane_needs_no_answer() {
    for key in [None, Some(KEY)] {
        let mut pair = Pair::introduced(key, key);
        pair.chosen(false, end(7));
        pair.opens(Way::Direct);
        assert_eq!(pair.next_of_client(), client::Action::Open(end(100)));
        pair.tell_server(server::Input::Opened(end(100)));
        assert_eq!(pair.server.awaits(), Awaits::Use);
        pair.connected(false);
    }
}

#[test]
fn the_socket_becomes_the_first_lane() {
    for key in [None, Some(KEY)] {
        let mut pair = Pair::introduced(key, key);
        pair.chosen(true, end(7));
        pair.opens(Way::Takeover);
        assert_eq!(pair.next_of_client(), client::Action::Take(end(100)));
        pair.tell_server(server::Input::Opened(end(100)));
        pair.connected(true);
    }
}

#[test]
fn endpoints_that_need_each_other_wait_for_the_answer() {
    let mut pair = Pair::introduced(None, None);
    pair.chosen(false, paired(7));
    pair.opens(Way::Lane);
    pair.tell_server(server::Input::Opened(paired(8)));
    pair.run();
    assert_eq!(pair.next_of_client(), client::Action::Open(paired(8)));
    pair.connected(false);
}

#[test]
fn lanes_that_fail_are_followed_by_others_and_at_last_by_the_socket() {
    let mut pair = Pair::introduced(Some(KEY), Some(KEY));
    pair.chosen(false, end(7));
    pair.opens(Way::Direct);
    assert_eq!(pair.next_of_client(), client::Action::Open(end(100)));
    pair.tell_server(server::Input::Unable("not this one".to_owned()));
    pair.run();
    let again = client::Action::Choose(Some("the peer: \"not this one\"".to_owned()));
    assert_eq!(pair.next_of_client(), again);
    pair.chosen(false, end(8));
    pair.opens(Way::Lane);
    pair.tell_server(server::Input::Opened(end(101)));
    pair.run();
    assert_eq!(pair.next_of_client(), client::Action::Open(end(101)));
    pair.tell_client(client::Input::LaneFailed("nothing came".to_owned()));
    assert_eq!(pair.next_of_client(), client::Action::Choose(Some("nothing came".to_owned())));
    pair.chosen(true, end(9));
    pair.opens(Way::Over);
    pair.tell_server(server::Input::Opened(end(102)));
    pair.run();
    assert_eq!(pair.next_of_client(), client::Action::Take(end(102)));
    pair.connected(true);
}

/// Both sides find out by themselves that the first lane does not work: the server's answer comes when the client waits for another one.
#[test]
fn an_answer_about_the_first_lane_is_not_taken_for_one_about_the_next() {
    for next in [false, true] {
        let mut pair = Pair::introduced(Some(KEY), Some(KEY));
        pair.chosen(false, end(7));
        pair.opens(Way::Direct);
        assert_eq!(pair.next_of_client(), client::Action::Open(end(100)));
        pair.tell_client(client::Input::LaneFailed("refused".to_owned()));
        assert_eq!(pair.next_of_client(), client::Action::Choose(Some("refused".to_owned())));
        pair.tell_client(client::Input::Chosen { over_socket: next, proposal: proposal(end(8)) });
        pair.tell_server(server::Input::Unable("not the first".to_owned()));
        pair.run();
        pair.opens(if next { Way::Over } else { Way::Lane });
        assert!(pair.of_client.is_empty(), "{:?}", pair.of_client);
        pair.tell_server(server::Input::Opened(end(101)));
        pair.run();
        let opens = if next { client::Action::Take(end(101)) } else { client::Action::Open(end(101)) };
        assert_eq!(pair.next_of_client(), opens);
        pair.connected(next);
    }
}

#[test]
fn an_answer_about_the_first_lane_is_passed_over_once() {
    let mut pair = Pair::introduced(None, None);
    pair.chosen(false, end(7));
    pair.next_of_client();
    pair.tell_client(client::Input::LaneFailed("refused".to_owned()));
    pair.next_of_client();
    let answer = raw(&bytes_of(&Frame::Unable { reason: PeerText::new("no"), of_first: true }));
    pair.tell_client(client::Input::Chosen { over_socket: false, proposal: proposal(end(8)) });
    pair.of_client.clear();
    pair.tell_client(client::Input::Received(&answer));
    assert!(pair.of_client.is_empty(), "{:?}", pair.of_client);
    pair.tell_client(client::Input::Received(&answer));
    assert_eq!(pair.next_of_client(), client::Action::Choose(Some("the peer: \"no\"".to_owned())));
}

#[test]
fn a_client_without_a_lane_says_so() {
    let mut pair = Pair::introduced(None, None);
    pair.tell_client(client::Input::NoneLeft("no lane"));
    pair.run();
    assert_eq!(pair.next_of_server(), server::Action::Fail(Failure::GaveUp(PeerText::new("no lane"))));
    assert_eq!(pair.next_of_client(), client::Action::Fail(Failure::Lane("no lane".to_owned())));
}

#[test]
fn a_caller_that_is_refused_in_any_step_gets_the_reason() {
    for key in [None, Some(KEY)] {
        Pair::new(key, key).refused();
        let mut introduced = Pair::new(key, key);
        introduced.run();
        introduced.next_of_server();
        introduced.refused();
        let chosen = |over_socket, own| {
            let mut pair = Pair::introduced(key, key);
            pair.tell_client(client::Input::Chosen { over_socket, proposal: proposal(own) });
            pair
        };
        chosen(true, end(7)).refused();
        for own in [end(7), paired(7)] {
            chosen(false, own.clone()).refused();
            let opening = || {
                let mut pair = chosen(false, own.clone());
                pair.deliver_to_server();
                pair.next_of_server();
                pair
            };
            opening().refused();
            let mut opened = opening();
            opened.tell_server(server::Input::Opened(own.clone()));
            opened.deliver_to_client();
            opened.refused();
        }
    }
}

#[test]
fn a_caller_that_has_proved_nothing_yet_and_takes_only_sealed_frames_gets_the_reason_under_a_seal() {
    let mut pair = Pair::new(Some(KEY), Some(KEY));
    pair.deliver_to_server();
    pair.deliver_to_client();
    pair.refused();
}

#[test]
fn a_caller_whose_socket_is_the_lane_is_sent_no_frame() {
    let mut pair = Pair::introduced(None, None);
    pair.chosen(true, end(7));
    pair.opens(Way::Takeover);
    pair.tell_server(server::Input::Rejected("full"));
    assert!(pair.of_server.is_empty());
    let mut pair = Pair::introduced(None, None);
    pair.chosen(true, end(7));
    pair.opens(Way::Takeover);
    pair.tell_server(server::Input::Opened(end(100)));
    assert_eq!(pair.next_of_server(), server::Action::Take);
    pair.tell_server(server::Input::Rejected("full"));
    assert!(pair.of_server.is_empty());
}

#[test]
fn sides_without_a_common_key_part_with_words() {
    let outcome = |client, server| {
        let mut pair = Pair::new(client, server);
        pair.run();
        (pair.of_client.pop_front(), pair.of_server.pop_front())
    };
    let (client, server) = outcome(Some(KEY), None);
    let words = "this side has no shared key: set shared_key on both or on neither";
    assert_eq!(client, Some(client::Action::Fail(Failure::Rejected(PeerText::new(words)))));
    assert_eq!(server, Some(server::Action::Fail(Failure::OneKey(words))));
    let (client, server) = outcome(None, Some(KEY));
    let words = "this side requires a shared key: set shared_key";
    assert_eq!(client, Some(client::Action::Fail(Failure::Rejected(PeerText::new(words)))));
    assert_eq!(server, Some(server::Action::Fail(Failure::OneKey(words))));
    let (client, server) = outcome(Some(b"another key than the server's"), Some(KEY));
    assert_eq!(client, Some(client::Action::Fail(Failure::NoKey(Side::Server))));
    assert_eq!(server, None, "it waits for the client's proof");
}

#[test]
fn a_wrong_proof_of_a_caller_is_refused_with_words() {
    let mut server = Server::new(Some((KEY, SERVER)), LANES);
    server.handle(server::Input::Received(&raw(&bytes_of(&Frame::Ask { nonce: CLIENT }))));
    let answer = raw(&bytes_of(&Frame::Answer { proof: [0; 32] }));
    let actions = server.handle(server::Input::Received(&answer));
    let mut wire = Wire::default();
    wire.seal(auth::seals(KEY, &CLIENT, &SERVER).1);
    let refusal = Frame::Refused { reason: PeerText::new("the caller does not know the shared key") };
    let refusal = wire.write(&refusal).expect("short");
    let fail = server::Action::Fail(Failure::NoKey(Side::Client));
    assert_eq!(actions.into_vec(), [server::Action::Send(refusal), fail]);
}

#[test]
fn a_takeover_that_the_server_cannot_do_is_the_end() {
    let mut pair = Pair::introduced(None, None);
    pair.chosen(true, end(7));
    pair.opens(Way::Takeover);
    pair.tell_server(server::Input::Unable("no such interface".to_owned()));
    assert_eq!(pair.next_of_server(), server::Action::Fail(Failure::Lane("no such interface".to_owned())));
    assert_eq!(pair.next_of_client(), client::Action::Take(end(100)));
    pair.tell_client(client::Input::LaneFailed("nothing came".to_owned()));
    assert_eq!(pair.next_of_client(), client::Action::Fail(Failure::Lane("nothing came".to_owned())));
}

#[test]
fn lanes_without_end_are_the_end() {
    let mut server = Server::new(None, LANES);
    let hello = Frame::Hello { private: Vec::new(), addresses: PeerAddresses::default() };
    server.handle(server::Input::Received(&raw(&bytes_of(&hello))));
    server.handle(server::Input::Accepted(acceptance()));
    let lane = raw(&bytes_of(&Frame::Propose(Way::Lane, proposal(end(1)))));
    for _ in 0..LANES {
        let actions = server.handle(server::Input::Received(&lane));
        assert!(matches!(actions[..], [server::Action::Open(Way::Lane, _)]));
        server.handle(server::Input::Unable("no".to_owned()));
    }
    let actions = server.handle(server::Input::Received(&lane));
    assert_eq!(actions.last(), Some(&server::Action::Fail(Failure::TooManyLanes)));
}

/// All frames, without their seals.
fn all() -> Vec<Frame> {
    let Acceptance { private, addresses, explanation, end: first } = acceptance();
    let ways = [Way::Lane, Way::Over, Way::Direct, Way::Takeover];
    let mut frames = vec![
        Frame::Hello { private: Vec::new(), addresses: PeerAddresses::default() },
        Frame::Welcome { private, addresses, explanation, end: first },
        Frame::Refused { reason: PeerText::new("no") },
        Frame::Ready { end: end(5) },
        Frame::Unable { reason: PeerText::new("not this one"), of_first: false },
        Frame::Connected,
        Frame::Ask { nonce: CLIENT },
        Frame::Challenge { nonce: SERVER, proof: [0; 32] },
        Frame::Answer { proof: [0; 32] },
    ];
    frames.extend(ways.map(|way| Frame::Propose(way, proposal(end(6)))));
    frames
}

#[test]
fn a_frame_out_of_order_is_an_error_that_names_it() {
    let expected_of_client: [(&str, &[&str]); 3] = [
        ("welcome", &["Welcome", "Refused"]),
        ("answer", &["Ready", "Unable", "Refused"]),
        ("message of the first lane", &["Unable", "Refused"]),
    ];
    for (stage, expected) in expected_of_client {
        for frame in all() {
            let mut pair =
                if stage == "welcome" { Pair::new(None, None) } else { Pair::introduced(None, None) };
            if stage != "welcome" {
                let own = if stage == "answer" { paired(7) } else { end(7) };
                pair.tell_client(client::Input::Chosen { over_socket: false, proposal: proposal(own) });
            }
            pair.of_client.clear();
            pair.tell_client(client::Input::Received(&raw(&bytes_of(&frame))));
            let name = frame.name();
            let is_refused = pair.next_of_client() == client::Action::Fail(Failure::OutOfOrder(name));
            assert_eq!(is_refused, !expected.contains(&name), "{name} as {stage}");
        }
    }
    let expected_of_server: [(&str, &[&str]); 3] = [
        ("first", &["Hello"]),
        ("choice", &["Lane", "Over", "Direct", "Takeover", "Unable"]),
        ("use", &["Lane", "Over", "Connected", "Unable"]),
    ];
    for (stage, expected) in expected_of_server {
        for frame in all() {
            let mut pair =
                if stage == "first" { Pair::new(None, None) } else { Pair::introduced(None, None) };
            if stage == "use" {
                pair.chosen(false, end(7));
                pair.tell_server(server::Input::Opened(end(100)));
            }
            pair.of_server.clear();
            pair.tell_server(server::Input::Received(&raw(&bytes_of(&frame))));
            let name = frame.name();
            let failure = match (stage, name) {
                ("first", "Ask") => continue,
                _ => server::Action::Fail(Failure::OutOfOrder(name)),
            };
            let is_refused = pair.of_server.contains(&failure);
            assert_eq!(is_refused, !expected.contains(&name), "{name} as {stage}");
        }
    }
}

#[test]
fn an_input_that_is_not_awaited_is_an_error() {
    let mut pair = Pair::new(None, None);
    pair.tell_client(client::Input::Replied);
    pair.tell_server(server::Input::Asked);
    assert!(pair.of_client.contains(&client::Action::Fail(Failure::NotAwaited)));
    assert!(pair.of_server.contains(&server::Action::Fail(Failure::NotAwaited)));
}

#[test]
fn a_field_of_a_newer_peer_is_answered_with_words() {
    let frame = Frame::Hello { private: Vec::new(), addresses: PeerAddresses::default() };
    let mut body = frame.body().expect("short");
    body.extend_from_slice(&[&[0xff, 0xff][..], &0_u32.to_le_bytes()].concat());
    let newer = RawFrame { what: frame.number(), body };
    let actions = Server::new(None, LANES).handle(server::Input::Received(&newer));
    let [server::Action::Send(farewell), server::Action::Fail(Failure::Bad(bad))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(bad.is_newer && bad.reason.contains("update the older one"), "{bad}");
    let RawFrame { what, body } = raw(farewell);
    assert_eq!(Frame::parse(what, &body), Ok(Frame::Refused { reason: PeerText::new(&bad.reason) }));
}

/// What the line does to a frame.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Drop,
    Repeat,
    Swap,
    Change(usize),
    Replace(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        8 => Just(Fault::None),
        1 => Just(Fault::Drop),
        1 => Just(Fault::Repeat),
        1 => Just(Fault::Swap),
        1 => any::<usize>().prop_map(Fault::Change),
        1 => any::<usize>().prop_map(Fault::Replace),
    ]
}

fn put(line: &mut VecDeque<RawFrame>, bytes: &[u8], fault: Fault) {
    let mut frame = raw(bytes);
    match fault {
        Fault::None => line.push_back(frame),
        Fault::Drop => {}
        Fault::Repeat => line.extend([frame.clone(), frame]),
        Fault::Swap => line.push_front(frame),
        Fault::Change(at) => {
            if !frame.body.is_empty() {
                let at = at % frame.body.len();
                frame.body[at] ^= 1 << (at % 8);
            }
            line.push_back(frame);
        }
        Fault::Replace(which) => {
            let frames = all();
            line.push_back(raw(&bytes_of(&frames[which % frames.len()])));
        }
    }
}

/// How a run has ended on both sides: connected, an error, or waiting for what does not come, which a limit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Connected,
    Failed,
    Waits,
}

/// Runs both machines over a line with faults. A lane carries messages if both have opened it to each other's end, and `lanes` says so.
/// Returns both outcomes, and the numbers of tokens that each side believes the other has.
fn run(is_keyed: bool, faults: &[Fault], lanes: &[bool]) -> (Outcome, Outcome, Vec<Vec<u8>>) {
    let key = is_keyed.then_some(KEY);
    let mut pair = Pair::new(key, key);
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    let mut faults = faults.iter().copied().chain(std::iter::repeat(Fault::None));
    let mut lanes = lanes.iter().copied().chain(std::iter::repeat(true));
    let (mut client, mut server) = (Outcome::Waits, Outcome::Waits);
    let (mut works, mut chosen, mut heard) = (true, 0, Vec::new());
    let (mut client_open, mut server_open) = (false, false);
    for _ in 0..400 {
        let mut is_idle = true;
        while let Some(action) = pair.of_client.pop_front() {
            is_idle = false;
            match action {
                client::Action::Send(bytes) => put(&mut there, &bytes, faults.next().expect("endless")),
                client::Action::Welcomed { private, .. } => heard.push(private),
                client::Action::Choose(_) => {
                    client_open = false;
                    chosen += 1;
                    works = lanes.next().expect("endless");
                    let own = if chosen == 2 { paired(chosen) } else { end(chosen) };
                    if chosen > 5 {
                        pair.tell_client(client::Input::NoneLeft("no lane is left"));
                    } else {
                        let proposal = proposal(own);
                        pair.tell_client(client::Input::Chosen { over_socket: chosen == 5, proposal });
                    }
                }
                client::Action::Open(_) | client::Action::Take(_) => client_open = true,
                client::Action::Done => client = Outcome::Connected,
                client::Action::Fail(_) => client = Outcome::Failed,
            }
        }
        while let Some(action) = pair.of_server.pop_front() {
            is_idle = false;
            match action {
                server::Action::Send(bytes) => put(&mut back, &bytes, faults.next().expect("endless")),
                server::Action::Introduced { private, .. } => {
                    heard.push(private);
                    pair.tell_server(server::Input::Accepted(acceptance()));
                }
                server::Action::Open(_, found) => {
                    heard.push(found.end.token.to_bytes().to_vec());
                    server_open = works || found.end.token == end(3).token;
                    let input = match server_open {
                        true => server::Input::Opened(end(200)),
                        false => server::Input::Unable("not this one".to_owned()),
                    };
                    pair.tell_server(input);
                }
                server::Action::Take => {}
                server::Action::Done => server = Outcome::Connected,
                server::Action::Fail(_) => server = Outcome::Failed,
            }
        }
        let takes =
            |awaits| matches!(awaits, Awaits::Frame(_) | Awaits::Use | Awaits::Message { or_frame: true });
        if takes(pair.server.awaits())
            && let Some(frame) = there.pop_front()
        {
            pair.tell_server(server::Input::Received(&frame));
        } else if takes(pair.client.awaits())
            && let Some(frame) = back.pop_front()
        {
            pair.tell_client(client::Input::Received(&frame));
        } else if let (Awaits::Message { .. }, true) =
            (pair.client.awaits(), client_open && server_open && works)
        {
            pair.tell_client(client::Input::Replied);
        } else if let Awaits::Message { .. } = pair.client.awaits() {
            pair.tell_client(client::Input::LaneFailed("no message came back".to_owned()));
        } else if let (Awaits::Message { .. }, true) = (pair.server.awaits(), client == Outcome::Connected) {
            pair.tell_server(server::Input::Asked);
        } else if is_idle {
            return (client, server, heard);
        }
    }
    panic!("a run without end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Both are connected, or at least one side has an error or waits until its limit; never one that believes in a connection while the
    /// other goes on. With a key, no side takes what the other has not sent.
    #[test]
    fn any_run_ends_and_connects_both_sides_or_none(
        is_keyed in any::<bool>(),
        faults in prop::collection::vec(fault(), 0..12),
        lanes in prop::collection::vec(any::<bool>(), 0..6),
    ) {
        let (client, server, heard) = run(is_keyed, &faults, &lanes);
        if server == Outcome::Connected {
            prop_assert_eq!(client, Outcome::Connected);
        }
        if is_keyed {
            let known: Vec<Vec<u8>> = (1..6).map(|number| end(number).token.to_bytes().to_vec()).collect();
            for heard in heard {
                let is_sent = heard == b"of the client" || heard == b"of the server" || known.contains(&heard);
                prop_assert!(is_sent, "{heard:?} was taken and never sent");
            }
        }
    }

    /// Without faults of the line, whatever the lanes do.
    #[test]
    fn a_line_without_faults_connects(
        is_keyed in any::<bool>(),
        lanes in prop::collection::vec(any::<bool>(), 0..3),
    ) {
        let (client, server, _) = run(is_keyed, &[], &lanes);
        prop_assert_eq!((client, server), (Outcome::Connected, Outcome::Connected));
    }
}
