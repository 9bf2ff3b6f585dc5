//! A side over `tcp`, and peers that are sockets of the test: they may do what no interface does.
//!
//! For the tests `tcp_*`. Built on the format of a hello, of a frame and of an address, which docs/tcp.md describes.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::{AmId, Context, Ep, Error, Iface, IfaceAddress, Worker};

pub const ID: AmId = AmId::new(3).unwrap();
pub const LIMIT: Duration = Duration::from_secs(60);
pub const HELLO: usize = 112;
/// The id of the interface that does not exist.
pub const FORGED: u64 = 0x0BAD_CAFE;

/// One side: a worker with an interface on loopback that counts what it receives.
pub struct Side {
    pub worker: Worker,
    pub iface: Iface,
    pub count: Rc<Cell<u64>>,
    pub sum: Rc<Cell<u64>>,
}

/// Limits that a peer keeps though it is given no processor for long.
const PATIENT: [(&str, &str); 3] =
    [("connect_timeout", "5m"), ("hello_timeout", "5m"), ("user_timeout", "5m")];

impl Side {
    /// With these values of keys of `tcp`, and limits of time that a busy machine does not reach.
    pub fn new(settings: &[(&str, &str)]) -> Side {
        let mut builder = Context::builder().set("tls", "tcp");
        for (key, value) in PATIENT.iter().chain(settings) {
            builder = builder.set(format!("tcp.{key}"), *value);
        }
        let worker = Worker::new(&builder.build().unwrap()).unwrap();
        let iface = worker.open("tcp", "lo").unwrap();
        let (count, sum) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u64)));
        let (counted, summed) = (Rc::clone(&count), Rc::clone(&sum));
        iface.set_am_handler(ID, move |message| {
            counted.set(counted.get() + 1);
            summed.set(summed.get().wrapping_add(message.header().unwrap_or(0)));
        });
        Side { worker, iface, count, sum }
    }

    pub fn address(&self) -> IfaceAddress {
        self.iface.address().unwrap()
    }

    /// Where it listens, read from its address as docs/tcp.md describes it.
    pub fn socket(&self) -> SocketAddr {
        let bytes = self.address().iface;
        assert_eq!(bytes[20], 4, "IPv4 comes first");
        let port = u16::from_be_bytes([bytes[22], bytes[23]]);
        SocketAddr::from(([bytes[24], bytes[25], bytes[26], bytes[27]], port))
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.iface.transport_counters();
        counters.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub fn connect(&self, peer: &IfaceAddress) -> (Ep, Failures) {
        let failures = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&failures);
        let ep = self.iface.connect_with(peer, move |failure| {
            seen.borrow_mut().push((failure.error, failure.reason));
        });
        (ep.unwrap(), failures)
    }
}

/// Drives the sides until `done`.
#[track_caller]
pub fn drive(sides: &[&Side], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        let events: u32 = sides.iter().map(|side| side.worker.progress()).sum();
        assert!(Instant::now() < end, "not done after {LIMIT:?}");
        if events == 0 {
            std::thread::yield_now();
        }
    }
}

#[track_caller]
pub fn send(sides: &[&Side], ep: &Ep, header: u64) {
    drive(sides, || match ep.am_short(ID, header, b"data") {
        Ok(()) => true,
        Err(Error::NO_RESOURCE) => false,
        Err(error) => panic!("{error}"),
    });
}

/// The address of an interface that does not exist, at a socket of the test's.
pub fn forged(model: &Side, listener: &TcpListener) -> IfaceAddress {
    let mut address = model.address();
    address.iface[4..12].copy_from_slice(&FORGED.to_le_bytes());
    let port = listener.local_addr().unwrap().port();
    address.iface[22..24].copy_from_slice(&port.to_be_bytes());
    address.iface[3] = 1;
    address.iface[40..60].fill(0);
    address
}

/// Writes the check sum of a hello.
pub fn seal(hello: &mut [u8; HELLO]) {
    let sum = hello[..HELLO - 8].iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    hello[HELLO - 8..].copy_from_slice(&sum.to_le_bytes());
}

/// The id of an interface, as docs/tcp.md and its address describe it.
pub fn id_of(address: &IfaceAddress) -> u64 {
    u64::from_le_bytes(address.iface[4..12].try_into().unwrap())
}

/// What its address lets in with.
pub fn key_of(address: &IfaceAddress) -> u64 {
    u64::from_le_bytes(address.iface[12..20].try_into().unwrap())
}

/// The hello of a side that connects.
#[derive(Clone, Copy)]
pub struct Greeting {
    pub sender: u64,
    pub key: u64,
    pub token: u64,
    pub max_message: u64,
    pub flags: u32,
}

impl Default for Greeting {
    fn default() -> Greeting {
        Greeting { sender: 77, key: 0, token: 1, max_message: 1 << 16, flags: 1 }
    }
}

impl Greeting {
    pub fn bytes(&self) -> [u8; HELLO] {
        let mut hello = [0; HELLO];
        hello[..8].copy_from_slice(b"UCTt\x04\x00\x01\x00");
        hello[16..24].copy_from_slice(&self.sender.to_le_bytes());
        hello[24..32].copy_from_slice(&self.key.to_le_bytes());
        hello[32..40].copy_from_slice(&self.token.to_le_bytes());
        hello[40..48].copy_from_slice(&self.max_message.to_le_bytes());
        hello[52..56].copy_from_slice(&self.flags.to_le_bytes());
        seal(&mut hello);
        hello
    }
}

/// The answer to it.
pub struct Answer {
    pub bytes: [u8; HELLO],
}

impl Answer {
    pub fn is_refusal(&self) -> bool {
        self.bytes[6] == 3
    }

    pub fn refusal(&self) -> u32 {
        u32::from_le_bytes(self.bytes[48..52].try_into().unwrap())
    }
}

/// Turns a received hello into the answer that accepts it.
pub fn accept(hello: &[u8; HELLO]) -> [u8; HELLO] {
    let mut answer = *hello;
    answer[6..8].copy_from_slice(&2_u16.to_le_bytes());
    answer[16..24].copy_from_slice(&FORGED.to_le_bytes());
    answer[24..40].fill(0);
    answer[56..].fill(0);
    seal(&mut answer);
    answer
}

/// Takes the connection of `side` and accepts it.
pub fn play_peer(side: &Side, listener: &TcpListener) -> TcpStream {
    let (mut stream, hello) = receive_hello(side, listener);
    stream.write_all(&accept(&hello)).unwrap();
    stream
}

/// Takes the connection of `side` and reads its hello.
pub fn receive_hello(side: &Side, listener: &TcpListener) -> (TcpStream, [u8; HELLO]) {
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    drive(&[side], || {
        stream = listener.accept().ok();
        stream.is_some()
    });
    let (mut stream, _) = stream.unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut hello, mut have) = ([0; HELLO], 0);
    drive(&[side], || {
        have += stream.read(&mut hello[have..]).unwrap_or(0);
        have == HELLO
    });
    (stream, hello)
}

/// Introduces itself to a side over a new connection and reads the answer, if there is one, while `advance` makes progress.
pub fn introduce_over(
    stream: &mut TcpStream,
    greeting: &Greeting,
    mut advance: impl FnMut(),
) -> Option<Answer> {
    stream.write_all(&greeting.bytes()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut answer, mut have) = ([0; HELLO], 0);
    let end = Instant::now() + LIMIT;
    while have < HELLO {
        advance();
        match stream.read(&mut answer[have..]) {
            Ok(0) => return None,
            Ok(received) => have += received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        assert!(Instant::now() < end, "no answer to a hello");
    }
    Some(Answer { bytes: answer })
}

/// Connects to a side, sends a hello, and reads the reply, if there is one.
pub fn introduce(side: &Side, greeting: &Greeting) -> (TcpStream, Option<Answer>) {
    let mut stream = TcpStream::connect(side.socket()).unwrap();
    let answer = introduce_over(&mut stream, greeting, || {
        side.worker.progress();
    });
    (stream, answer)
}

/// The header of a frame.
pub fn frame_header(kind: u8, length: usize) -> [u8; 8] {
    let mut header = [kind, 0, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&(length as u32).to_le_bytes());
    header
}

/// A frame with the zeros behind it.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = frame_header(kind, payload.len()).to_vec();
    frame.extend_from_slice(payload);
    frame.resize(frame.len().next_multiple_of(8), 0);
    frame
}

/// Reads until a frame of this kind arrives, and returns its payload; other frames are skipped.
#[track_caller]
pub fn read_frame(side: &Side, stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    let (mut bytes, mut payload) = (Vec::new(), None);
    drive(&[side], || {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).unwrap_or(0);
        bytes.extend_from_slice(&chunk[..count]);
        while payload.is_none() && bytes.len() >= 8 {
            let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            let whole = 8 + length.next_multiple_of(8);
            if bytes.len() < whole {
                break;
            }
            let rest = bytes.split_off(whole);
            let one = std::mem::replace(&mut bytes, rest);
            payload = (one[0] == kind).then(|| one[8..8 + length].to_vec());
        }
        payload.is_some()
    });
    payload.unwrap()
}

/// Bytes of memory that the process has.
pub fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

/// What endpoints failed with.
pub type Failures = Rc<RefCell<Vec<(Error, String)>>>;
