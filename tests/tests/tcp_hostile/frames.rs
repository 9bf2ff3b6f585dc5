//! Frames as no interface sends them: cut anywhere, of wrong lengths, requests that contradict themselves. Each ends its own
//! connection at most, and touches no memory.
//!
//! The peer is a socket of the test. What it writes is described in docs/tcp.md and in the engine of remote access
//! (`uct-core/plugin/src/rma/wire.rs`).

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use crate::support::{self, Greeting, ID, Side, drive, forged, frame, introduce, key_of, play_peer, send};
use uct_conformance::random::{Random, check_bytes, pattern};
use uct_core::{Access, Completion, Ep, Error, Memory};

const REQUEST: u8 = 32;
const RESPONSE: u8 = 33;

/// A side, and its endpoint to a peer that is a socket; and another side that has to go on.
struct Scene {
    a: Side,
    b: Side,
    good: Ep,
    ep: Ep,
    failures: support::Failures,
    peer: TcpStream,
}

impl Scene {
    fn new(settings: &[(&str, &str)]) -> Scene {
        let (a, b) = (Side::new(settings), Side::new(settings));
        let good = a.connect(&b.address()).0;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (ep, failures) = a.connect(&forged(&a, &listener));
        let peer = play_peer(&a, &listener);
        Scene { a, b, good, ep, failures, peer }
    }

    /// Writes all of it, with progress of the other end where there is no room.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.peer.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.a.worker.progress();
                }
                // What ended the connection may come before the last bytes are out.
                Err(_) => return,
            }
        }
    }

    /// Has the system offer more than its first window, which is 64 KiB: it grows with what is received.
    fn widen_window(&mut self) {
        let message = frame(ID.get(), &[0; 64 << 10]);
        for _ in 0..64 {
            self.write(&message);
        }
        drive(&[&self.a], || self.waiting_bytes() == 0);
    }

    /// Bytes that the peer has sent, and the side has not received yet.
    fn waiting_bytes(&self) -> usize {
        let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
        let own = port(self.peer.peer_addr().unwrap());
        let peers = port(self.peer.local_addr().unwrap());
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut ours = line.filter(|words| words[1].ends_with(&own) && words[2].ends_with(&peers));
        let words = ours.next().expect("the connection is not in the system's table");
        usize::from_str_radix(words[4].split(':').nth(1).unwrap(), 16).unwrap()
    }

    /// Reads a frame of this kind, and passes over others.
    fn read(&mut self, kind: u8) -> Vec<u8> {
        support::read_frame(&self.a, &mut self.peer, kind)
    }

    /// The connection ends for this reason, and nothing else does.
    #[track_caller]
    fn ends(&self, reason: &str) {
        drive(&[&self.a, &self.b], || !self.failures.borrow().is_empty());
        let (error, words) = self.failures.borrow()[0].clone();
        assert_eq!(error, Error::IO_ERROR, "{words}");
        assert!(words.contains(reason), "{words}; expected {reason}");
        assert_eq!(self.failures.borrow().len(), 1);
        self.goes_on();
    }

    #[track_caller]
    fn goes_on(&self) {
        let before = self.b.count.get();
        send(&[&self.a, &self.b], &self.good, 1);
        drive(&[&self.a, &self.b], || self.b.count.get() == before + 1);
    }
}

/// Memory that peers may use, and a request for it that is right.
struct Target {
    memory: Memory,
    request: Request,
}

#[derive(Clone)]
struct Request {
    opcode: u8,
    atomic: u8,
    secret: [u8; 8],
    address: u64,
    length: u32,
    slot: u32,
}

const SIZE: usize = 512 << 10;
/// Bytes of a receive buffer, in the tests about where it ends.
const BUFFER: usize = 16 << 10;

impl Target {
    fn new(a: &Side, access: Access) -> Target {
        let memory = a.iface.memory_domain().register(vec![0xee; SIZE], access).unwrap();
        let key = memory.packed_key().unwrap();
        let request = Request {
            opcode: 1,
            atomic: 0,
            secret: key[24..32].try_into().unwrap(),
            address: memory.address(),
            length: 0,
            slot: u32::from_le_bytes(key[16..20].try_into().unwrap()),
        };
        Target { memory, request }
    }

    #[track_caller]
    fn is_untouched(&self, what: &str) {
        check_bytes(what, &self.memory.to_vec(), &vec![0xee; SIZE]);
    }
}

impl Request {
    /// The payload of a frame, with these bytes behind the header.
    fn with(&self, data: &[u8]) -> Vec<u8> {
        let mut payload = vec![self.opcode, self.atomic, 0, 0];
        payload.extend_from_slice(&0_u32.to_le_bytes());
        payload.extend_from_slice(&self.secret);
        payload.extend_from_slice(&self.address.to_le_bytes());
        payload.extend_from_slice(&self.length.to_le_bytes());
        payload.extend_from_slice(&self.slot.to_le_bytes());
        payload.extend_from_slice(data);
        payload
    }
}

/// Sends messages of these lengths, cut into chunks of these, and checks that each arrives.
fn cut(lengths: impl Iterator<Item = usize>, mut chunk: impl FnMut(&mut Random) -> usize) {
    let mut scene = Scene::new(&[("rx_seg_size", "16k"), ("max_message", "64k")]);
    let seed = Random::fresh_seed();
    println!("seed {seed:#x}");
    let expected = Rc::new(Cell::new(0_u64));
    let next = Rc::clone(&expected);
    scene.a.iface.set_am_handler(ID, move |message| {
        let bytes = message.to_vec();
        check_bytes("a message", &bytes, &pattern(seed ^ next.get(), bytes.len()));
        next.set(next.get() + 1);
    });
    let (mut stream, mut count) = (Vec::new(), 0);
    for length in lengths {
        stream.extend(frame(ID.get(), &pattern(seed ^ count, length)));
        count += 1;
    }
    let mut random = Random::new(seed);
    let mut rest = stream.as_slice();
    while !rest.is_empty() {
        let (now, behind) = rest.split_at(rest.len().min(1 + chunk(&mut random)));
        scene.write(now);
        rest = behind;
        for _ in 0..random.below(3) {
            scene.a.worker.progress();
        }
    }
    drive(&[&scene.a], || expected.get() == count || !scene.failures.borrow().is_empty());
    assert!(scene.failures.borrow().is_empty(), "{:?}", scene.failures);
    scene.goes_on();
}

#[test]
fn messages_arrive_whole_however_the_stream_is_cut() {
    let mut random = Random::new(Random::fresh_seed());
    let lengths = (0..12_000).map(move |_| match random.below(200) {
        0..3 => BUFFER - 128 + random.below(192),
        3 => random.below(3 * BUFFER),
        4..20 => random.below(700),
        _ => random.below(64),
    });
    cut(lengths, |random| {
        let most = *random.pick(&[9, 80, 700, 6000]);
        random.below(most)
    });
}

#[test]
fn a_message_that_is_cut_where_a_buffer_ends_arrives_whole() {
    // The last message that begins in a buffer ends 8 or 16 bytes behind its end, whatever the first one's place.
    for first in [0, 8, 16] {
        let lengths = std::iter::once(first).chain(std::iter::repeat_n(16, 3 * BUFFER / 24));
        cut(lengths, |random| random.below(14));
    }
}

#[test]
fn the_longest_message_arrives_and_one_byte_more_ends_the_connection() {
    const MOST: usize = 64 << 10;
    let mut scene = Scene::new(&[("max_message", "64k")]);
    scene.write(&frame(ID.get(), &[7; MOST]));
    drive(&[&scene.a], || scene.a.count.get() == 1);
    // A part is enough: what is not all there has to be waited for, and so is checked ahead.
    scene.write(&frame(ID.get(), &[7; MOST + 1])[..4096]);
    scene.ends("longer than");
    assert_eq!(scene.a.count.get(), 1);

    // A complete frame is checked as well.
    let mut scene = Scene::new(&[("max_message", "64k"), ("rcvbuf", "512k")]);
    let whole = frame(ID.get(), &[7; MOST + 1]);
    scene.widen_window();
    let before = scene.a.count.get();
    scene.peer.write_all(&whole).unwrap();
    drive(&[], || scene.waiting_bytes() == whole.len());
    scene.ends("longer than");
    assert_eq!(scene.a.count.get(), before, "it was delivered");

    let mut scene = Scene::new(&[("max_message", "64k")]);
    let target = Target::new(&scene.a, Access::ALL);
    let put = Request { length: MOST as u32 + 1, ..target.request.clone() };
    scene.write(&frame(REQUEST, &put.with(&[1; MOST + 1]))[..4096]);
    scene.ends("longer than");
    target.is_untouched("a put that is too long");
}

#[test]
fn requests_that_contradict_themselves_end_their_connection_and_touch_nothing() {
    type Change = (&'static str, fn(&Request) -> Vec<u8>, &'static str);
    const LARGE: usize = 100 << 10;
    let changes: &[Change] = &[
        (
            "a put with a byte more",
            |good| Request { length: 63, ..good.clone() }.with(&[1; 64]),
            "another length",
        ),
        (
            "a put with a byte less",
            |good| Request { length: 65, ..good.clone() }.with(&[1; 64]),
            "another length",
        ),
        (
            "a large put with a byte more",
            |good| Request { length: LARGE as u32 - 1, ..good.clone() }.with(&[1; LARGE]),
            "another length",
        ),
        (
            "a large put with a byte less",
            |good| Request { length: LARGE as u32 + 1, ..good.clone() }.with(&[1; LARGE]),
            "another length",
        ),
        (
            "a large request that is no put",
            |good| Request { opcode: 2, length: LARGE as u32, ..good.clone() }.with(&[1; LARGE]),
            "carries data",
        ),
        (
            "a get with data",
            |good| Request { opcode: 2, length: 8, ..good.clone() }.with(&[1; 8]),
            "carries data",
        ),
        (
            "a get of more than an answer holds",
            |good| Request { opcode: 2, length: (256 << 10) + 1, ..good.clone() }.with(&[]),
            "requests more",
        ),
        (
            "an atomic without operand",
            |good| Request { opcode: 4, length: 8, ..good.clone() }.with(&[]),
            "operands",
        ),
        (
            "an atomic with half of one",
            |good| Request { opcode: 6, length: 8, ..good.clone() }.with(&[1; 4]),
            "operands",
        ),
        (
            "an atomic with too many",
            |good| Request { opcode: 6, length: 8, ..good.clone() }.with(&[1; 16]),
            "length",
        ),
        (
            "a swap with one operand",
            |good| Request { opcode: 8, length: 8, ..good.clone() }.with(&[1; 8]),
            "operands",
        ),
        (
            "an atomic on no bytes",
            |good| Request { opcode: 4, length: 0, ..good.clone() }.with(&[1; 8]),
            "length",
        ),
        (
            "an atomic on 4 of 8 bytes",
            |good| Request { opcode: 6, length: 4, ..good.clone() }.with(&[1; 8]),
            "length",
        ),
        ("an unknown operation", |good| Request { opcode: 9, ..good.clone() }.with(&[]), "unknown operation"),
        (
            "an unknown atomic",
            |good| Request { opcode: 4, atomic: 7, ..good.clone() }.with(&[1; 8]),
            "unknown atomic",
        ),
        ("half a header", |good| good.with(&[])[..16].to_vec(), "shorter"),
    ];
    for (what, change, reason) in changes {
        let mut scene = Scene::new(&[]);
        let target = Target::new(&scene.a, Access::ALL);
        println!("{what}");
        // What is large is judged by its first part, and what is small when all of it is there.
        let frame = frame(REQUEST, &change(&target.request));
        let (first, rest) = frame.split_at(frame.len().min(4096));
        scene.write(first);
        for _ in 0..20 {
            scene.a.worker.progress();
        }
        scene.write(rest);
        scene.ends(reason);
        target.is_untouched(what);
    }
}

#[test]
fn requests_beyond_what_is_granted_are_refused_and_touch_nothing() {
    type Change = (&'static str, fn(&mut Request) -> Vec<u8>);
    let changes: &[Change] = &[
        ("a byte beyond the end", |put| {
            (put.address, put.length) = (put.address + SIZE as u64 - 63, 64);
            vec![1; 64]
        }),
        ("a byte ahead of the start", |put| {
            (put.address, put.length) = (put.address - 1, 64);
            vec![1; 64]
        }),
        ("around the end of the address space", |put| {
            (put.address, put.length) = (u64::MAX - 7, 64);
            vec![1; 64]
        }),
        ("a large put, a byte beyond the end", |put| {
            put.length = SIZE as u32 + 1;
            vec![1; SIZE + 1]
        }),
        ("another slot", |put| {
            (put.slot, put.length) = (put.slot ^ 1, 64);
            vec![1; 64]
        }),
        ("another secret", |put| {
            (put.secret[7], put.length) = (put.secret[7] ^ 0x80, 64);
            vec![1; 64]
        }),
        ("an atomic that is not aligned", |put| {
            (put.opcode, put.address, put.length) = (4, put.address + 4, 8);
            vec![1; 8]
        }),
        ("an atomic beyond the end", |put| {
            (put.opcode, put.address, put.length) = (4, put.address + SIZE as u64, 8);
            vec![1; 8]
        }),
        ("a get beyond the end", |put| {
            (put.opcode, put.address, put.length) = (2, put.address + SIZE as u64 - 63, 64);
            vec![]
        }),
    ];
    for (what, change) in changes {
        let mut scene = Scene::new(&[]);
        let target = Target::new(&scene.a, Access::ALL);
        let mut request = target.request.clone();
        let data = change(&mut request);
        println!("{what}");
        scene.write(&frame(REQUEST, &request.with(&data)));
        let answer = scene.read(RESPONSE);
        assert_eq!(answer[0], 4, "{what} is answered with an error");
        target.is_untouched(what);
        assert!(scene.failures.borrow().is_empty());
        scene.goes_on();
    }
    let mut scene = Scene::new(&[]);
    let target = Target::new(&scene.a, Access::REMOTE_GET);
    scene.write(&frame(REQUEST, &Request { length: 64, ..target.request.clone() }.with(&[1; 64])));
    assert_eq!(scene.read(RESPONSE)[0], 4, "a put to memory that may only be read");
    target.is_untouched("a put to memory that may only be read");
}

#[test]
fn a_large_put_that_is_cut_anywhere_near_its_end_writes_its_bytes_alone() {
    for length in [100_001, 100_003, 100_007, 100_008] {
        for cut in 0..24 {
            let mut scene = Scene::new(&[]);
            let target = Target::new(&scene.a, Access::ALL);
            let data = pattern(length as u64, length);
            let put =
                frame(REQUEST, &Request { length: length as u32, ..target.request.clone() }.with(&data));
            let (first, rest) = put.split_at(put.len() - cut);
            scene.write(first);
            for _ in 0..20 {
                scene.a.worker.progress();
            }
            // What is right behind the padding is the next frame.
            scene.write(&[rest, &frame(ID.get(), &[0; 8])].concat());
            assert_eq!(scene.read(RESPONSE)[0], 1, "an acknowledgement");
            drive(&[&scene.a], || scene.a.count.get() == 1);
            let memory = target.memory.to_vec();
            check_bytes("what was put", &memory[..length], &data);
            check_bytes("what is behind", &memory[length..], &vec![0xee; SIZE - length]);
        }
    }
}

#[test]
fn the_longest_put_arrives_where_no_more_than_a_message_may_be_announced() {
    const MOST: usize = 64 << 10;
    let settings = [("max_message", "64k"), ("max_announced", "64k"), ("rx_seg_size", "16k")];
    let mut scene = Scene::new(&settings);
    let target = Target::new(&scene.a, Access::ALL);
    let data = pattern(3, MOST);
    let put = frame(REQUEST, &Request { length: MOST as u32, ..target.request.clone() }.with(&data));
    // Of its header too little has come to tell a put.
    let (first, rest) = put.split_at(24);
    scene.write(first);
    for _ in 0..20 {
        scene.a.worker.progress();
    }
    scene.write(rest);
    assert_eq!(scene.read(RESPONSE)[0], 1, "an acknowledgement");
    check_bytes("what was put", &target.memory.to_vec()[..MOST], &data);
}

#[test]
fn an_answer_with_another_number_of_bytes_ends_the_connection() {
    for brought in [0_usize, 99, 101, 5000] {
        let mut scene = Scene::new(&[]);
        let memory = scene.a.iface.memory_domain().register(vec![0; 8192], Access::ALL).unwrap();
        let key = scene.a.iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
        let completion = Completion::new(&scene.a.worker);
        let unpacked = Rc::new(RefCell::new(None));
        let place = Rc::clone(&unpacked);
        let unpack = move |data: &[u8]| *place.borrow_mut() = Some(data.len());
        scene.ep.get_bcopy(100, memory.address(), &key, &completion, unpack).unwrap();
        let request = scene.read(REQUEST);
        let mut answer = vec![2, 0, 0, 0];
        answer.extend_from_slice(&request[4..8]);
        answer.extend_from_slice(&0_u32.to_le_bytes());
        answer.extend_from_slice(&(brought as u32).to_le_bytes());
        answer.resize(16 + brought, 1);
        scene.write(&frame(RESPONSE, &answer));
        scene.ends("another length than was requested");
        assert!(completion.is_done() && completion.result().is_err());
        assert_eq!(*unpacked.borrow(), None);
    }
}

#[test]
fn a_peer_that_may_send_larger_messages_is_refused() {
    let scene = Scene::new(&[("max_message", "64k")]);
    let greeting = Greeting { key: key_of(&scene.a.address()), ..Greeting::default() };
    for (max_message, kind, refusal) in [((64 << 10) + 1, 3, 4_u32), (64 << 10, 2, 0)] {
        let (_kept, answer) = introduce(&scene.a, &Greeting { max_message, ..greeting });
        let answer = answer.expect("an answer").bytes;
        assert_eq!(
            (answer[6], &answer[48..52]),
            (kind, &refusal.to_le_bytes()[..]),
            "of {max_message} bytes"
        );
    }
    scene.goes_on();
}

#[test]
fn no_more_half_open_connections_wait_than_are_allowed() {
    let scene = Scene::new(&[("max_half_open", "4")]);
    let strangers: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(scene.a.socket()).unwrap()).collect();
    let mut most = 0;
    for _ in 0..2000 {
        scene.a.worker.progress();
        most = most.max(scene.a.counter("half_open"));
    }
    assert!((1..=4).contains(&most), "{most} of 20 strangers wait");
    drop(strangers);
    let late = Side::new(&[]);
    let ep = late.connect(&scene.a.address()).0;
    let before = scene.a.count.get();
    send(&[&scene.a, &late], &ep, 1);
    drive(&[&scene.a, &late], || scene.a.count.get() == before + 1);
}
