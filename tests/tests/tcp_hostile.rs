//! Hostile peers: what they can make an interface spend, and that an honest peer beside them is served throughout.
//!
//! The attacker is a socket of the test that has the address of its victim, or none. Each case measures what it costs the victim and
//! holds that against the limit that docs/tcp.md names. Sizes are small unless `UCT_TEST_HOSTILE` is a factor that multiplies them.

#[path = "support/tcp.rs"]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use support::{Answer, Failures, Greeting, HELLO, ID, LIMIT, Side, drive, forged, key_of, play_peer, send};
use uct_core::{Access, Completion, Ep, Memory};

const PING: u8 = 34;
const PONG: u8 = 35;
const RESPONSE: u8 = 33;
const MIB: usize = 1 << 20;
/// What a test takes beside what it measures.
const SLACK: usize = 8 * MIB;

fn factor() -> usize {
    std::env::var("UCT_TEST_HOSTILE")
        .map_or(1, |factor| factor.parse().expect("UCT_TEST_HOSTILE is a number"))
}

/// One test at a time: they measure the memory and the descriptors of the process.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A victim, and an honest peer that has an endpoint to it.
struct Scene {
    victim: Side,
    honest: Side,
    ep: Ep,
    failures: Failures,
    before: usize,
    most: usize,
    longest: Duration,
}

impl Scene {
    fn new(settings: &[(&str, &str)]) -> Scene {
        let (victim, honest) = (Side::new(settings), Side::new(&[]));
        let (ep, failures) = honest.connect(&victim.address());
        send(&[&victim, &honest], &ep, 1);
        drive(&[&victim, &honest], || victim.count.get() == 1);
        let before = resident();
        Scene { victim, honest, ep, failures, before, most: before, longest: Duration::ZERO }
    }

    fn progress(&mut self) -> u32 {
        let start = Instant::now();
        let events = self.victim.worker.progress();
        self.longest = self.longest.max(start.elapsed());
        self.most = self.most.max(resident());
        events
    }

    /// The honest peer sends a message, and it arrives.
    #[track_caller]
    fn serve(&mut self) {
        let expected = self.victim.count.get() + 1;
        send(&[&self.victim, &self.honest], &self.ep, 1);
        let end = Instant::now() + LIMIT;
        while self.victim.count.get() < expected {
            self.progress();
            self.honest.worker.progress();
            assert!(Instant::now() < end, "the honest peer is not served");
        }
        assert!(self.failures.borrow().is_empty(), "{:?}", self.failures.borrow());
    }

    /// A peer that was given the address connects and sends.
    #[track_caller]
    fn serves_another(&self) {
        let another = Side::new(&[]);
        let (ep, failures) = another.connect(&self.victim.address());
        let expected = self.victim.count.get() + 1;
        let sides = [&self.victim, &another];
        send(&sides, &ep, 1);
        drive(&sides, || self.victim.count.get() >= expected || !failures.borrow().is_empty());
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
    }

    /// A connection of an attacker that has the address.
    fn enter(&mut self, sender: u64) -> TcpStream {
        let greeting = Greeting { sender, key: key_of(&self.victim.address()), ..Greeting::default() };
        let mut stream = TcpStream::connect(self.victim.socket()).unwrap();
        stream.write_all(&greeting.bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut answer, mut have) = ([0; HELLO], 0);
        drive(&[&self.victim], || {
            have += stream.read(&mut answer[have..]).unwrap_or(0);
            have == HELLO
        });
        assert!(!Answer::read(&answer).is_refusal(), "refused: {}", Answer::read(&answer).refusal());
        stream
    }

    fn grown(&self) -> usize {
        self.most.saturating_sub(self.before)
    }

    #[track_caller]
    fn report(&self, what: &str, memory: usize, progress: Duration) {
        println!(
            "{what}: {} KiB of memory at most (limit {} KiB), longest progress {:?} (limit {progress:?})",
            self.grown() >> 10,
            (memory + SLACK) >> 10,
            self.longest
        );
        assert!(self.grown() <= memory + SLACK, "{what}: {} bytes, expected up to {memory}", self.grown());
        assert!(self.longest <= progress, "{what}: a progress took {:?}", self.longest);
    }

    /// Writes a repeated pattern until `most` bytes are out or the victim takes nothing more; answers how many are.
    fn flood(&mut self, peer: &mut TcpStream, pattern: &[u8], most: usize) -> usize {
        let (mut sent, mut last) = (0, Instant::now());
        while sent < most && last.elapsed() < Duration::from_millis(300) {
            match peer.write(&pattern[sent % pattern.len()..]) {
                Ok(written) => {
                    sent += written;
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return sent,
            }
            self.progress();
            if sent % (64 * pattern.len()) < pattern.len() {
                self.serve();
            }
        }
        self.serve();
        sent
    }
}

fn frame(kind: u8, length: usize) -> [u8; 8] {
    let mut header = [kind, 0, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&(length as u32).to_le_bytes());
    header
}

/// The largest frame of a request for memory of the victim's, as an honest interface sends it.
fn request_for(memory: &Memory) -> Vec<u8> {
    let initiator = Side::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, _failures) = initiator.connect(&forged(&initiator, &listener));
    let mut stream = play_peer(&initiator, &listener);
    let key = initiator.iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
    let completion = Completion::new(&initiator.worker);
    let get = || ep.get_bcopy(8192, memory.address(), &key, &completion, |_: &[u8]| {});
    drive(&[&initiator], || get().is_ok());
    let mut bytes = Vec::new();
    let mut request = None;
    drive(&[&initiator], || {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).unwrap_or(0);
        bytes.extend_from_slice(&chunk[..count]);
        while request.is_none() && bytes.len() >= 8 {
            let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            let whole = 8 + length.next_multiple_of(8);
            if bytes.len() < whole {
                break;
            }
            let rest = bytes.split_off(whole);
            let one = std::mem::replace(&mut bytes, rest);
            request = (one[0] == 32).then_some(one);
        }
        request.is_some()
    });
    request.unwrap()
}

#[test]
fn a_flood_of_pings_by_a_peer_that_reads_nothing_is_held_up() {
    let _alone = alone();
    let mut scene = Scene::new(&[]);
    let mut peer = scene.enter(1);
    let sent = scene.flood(&mut peer, &frame(PING, 0).repeat(8192), 64 * MIB * factor());
    assert!(sent < 32 * MIB, "{sent} bytes were read from a peer that reads nothing");
    scene.report("pings", 3 * MIB, Duration::from_secs(2));

    // Once it reads it gets each answer, and the rest of what it has sent is read.
    let sent = sent / 8 * 8;
    let (mut pongs, mut bytes) = (0, vec![0; 1 << 16]);
    let end = Instant::now() + LIMIT;
    while pongs < sent {
        scene.progress();
        match peer.read(&mut bytes) {
            Ok(received @ 1..) => {
                let first = bytes[..received].iter().find(|&&byte| byte != 0 && byte != PONG);
                assert_eq!(first, None, "no pong");
                pongs += received;
            }
            _ => assert!(Instant::now() < end, "{pongs} of {sent} bytes of answers"),
        }
    }
    scene.serve();
}

#[test]
fn a_flood_of_requests_by_a_peer_that_reads_nothing_is_held_up() {
    let _alone = alone();
    let mut scene = Scene::new(&[]);
    let memory = scene.victim.iface.memory_domain().register(vec![7; 8192], Access::ALL).unwrap();
    let request = request_for(&memory);
    let mut peer = scene.enter(1);
    // Each byte asks for two hundred.
    let sent = scene.flood(&mut peer, &request.repeat(4096), 64 * MIB * factor());
    assert!(sent < 32 * MIB, "{sent} bytes were read from a peer that reads nothing");
    scene.report("requests", 3 * MIB, Duration::from_secs(2));
    let (mut answers, mut bytes) = (0, vec![0; 1 << 18]);
    let expected = 4096 * 8;
    drive(&[&scene.victim], || {
        if let Ok(received @ 1..) = peer.read(&mut bytes) {
            assert!(answers > 0 || bytes[0] == RESPONSE);
            answers += received;
        }
        answers >= expected
    });
}

#[test]
fn large_messages_that_are_announced_cost_nothing_until_they_come() {
    let _alone = alone();
    let mut scene = Scene::new(&[]);
    let giants = 40;
    let mut peers: Vec<TcpStream> = (0..giants).map(|number| scene.enter(number)).collect();
    for peer in &mut peers {
        peer.write_all(&frame(ID.get(), 64 << 20)).unwrap();
        for _ in 0..10 {
            scene.progress();
        }
        scene.serve();
    }
    scene.report("announced giants", 0, Duration::from_secs(1));
    // There is room for one that comes: those that bring nothing end.
    let large = vec![5; 64 << 20];
    let mut honest = scene.enter(100);
    let before = scene.victim.count.get();
    let mut message = frame(ID.get(), large.len()).to_vec();
    message.extend_from_slice(&large);
    let mut done = 0;
    let end = Instant::now() + LIMIT;
    while scene.victim.count.get() == before {
        if done < message.len() {
            done += honest.write(&message[done..]).unwrap_or(0);
        }
        scene.progress();
        assert!(Instant::now() < end, "{done} bytes are out, and the message has not come");
    }
    scene.serve();
    scene.serves_another();
}

#[test]
fn an_echo_server_that_waits_for_room_in_its_handler_keeps_a_small_stack() {
    let _alone = alone();
    let messages = 100_000 * factor() as u64;
    let (address, from_server) = std::sync::mpsc::channel();
    let server = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        let server = Side::new(&[]);
        address.send(server.address()).unwrap();
        let (worker, count) = (server.worker.clone(), server.count.clone());
        let reply: std::rc::Rc<std::cell::OnceCell<Ep>> = std::rc::Rc::default();
        let (client, _) = from_client(&server, &reply);
        server.iface.set_am_handler(ID, move |message| {
            count.set(count.get() + 1);
            let header = message.header().unwrap();
            worker.progress();
            let ep = reply.get().expect("an endpoint");
            worker.retry(LIMIT, || ep.am_short(ID, header, b"")).expect("an answer");
        });
        let _client = client;
        let end = Instant::now() + 4 * LIMIT;
        while server.count.get() < messages {
            server.worker.progress();
            assert!(Instant::now() < end, "{} of {messages} messages", server.count.get());
        }
        // The answers leave.
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            server.worker.progress();
        }
        server.iface.clear_am_handlers();
    });
    let server = server.unwrap();
    let client = Side::new(&[]);
    EXCHANGE.lock().unwrap().replace(client.address());
    let (ep, failures) = client.connect(&from_server.recv_timeout(LIMIT).unwrap());
    let mut sent = 0;
    let end = Instant::now() + 4 * LIMIT;
    while client.count.get() < messages {
        while sent < messages && ep.am_short(ID, sent, b"").is_ok() {
            sent += 1;
        }
        client.worker.progress();
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
        assert!(Instant::now() < end, "{} of {messages} answers", client.count.get());
    }
    assert_eq!(client.sum.get(), messages * (messages - 1) / 2);
    server.join().unwrap();
}

/// The address of the client in the test above.
static EXCHANGE: std::sync::Mutex<Option<uct_core::IfaceAddress>> = std::sync::Mutex::new(None);

fn from_client(server: &Side, reply: &std::rc::Rc<std::cell::OnceCell<Ep>>) -> (Ep, Failures) {
    let end = Instant::now() + LIMIT;
    let address = loop {
        if let Some(address) = EXCHANGE.lock().unwrap().take() {
            break address;
        }
        assert!(Instant::now() < end);
        std::thread::yield_now();
    };
    let (ep, failures) = server.connect(&address);
    assert!(reply.set(ep.clone()).is_ok());
    (ep, failures)
}
