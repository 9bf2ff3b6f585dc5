//! A victim that hostile peers attack, with an honest peer beside them, and what it costs the victim.
//!
//! For `tcp_hostile`. Built on `support/tcp.rs`.

use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use uct_core::{AmId, Ep, Error};

use crate::support::{Failures, Greeting, LIMIT, Side, drive, introduce_over, key_of, resident, send};

/// The messages of `Scene::honest_message`.
pub const HONEST: AmId = AmId::new(5).unwrap();
const MARK: u64 = 0x0123_4567_89AB_CDEF;
pub const MIB: usize = 1 << 20;
/// What a test takes beside what it measures.
const SLACK: usize = 8 * MIB;

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of warnings and errors that were logged.
pub static LOGGED: AtomicUsize = AtomicUsize::new(0);

struct CountBytes;

impl Write for CountBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A connection from an address of loopback to another one.
fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// A victim, and an honest peer that has an endpoint to it.
pub struct Scene {
    pub victim: Side,
    pub honest: Side,
    ep: Ep,
    failures: Failures,
    before: usize,
    most: usize,
    longest: Duration,
    /// Descriptors of the process: at the start, and at their most where the honest peer was served.
    descriptors: usize,
    most_descriptors: usize,
    /// Bytes of log at the start, and when that was.
    logged: usize,
    start: Instant,
    /// Messages of the honest peer that came by `honest_message`.
    marks: Rc<Cell<u64>>,
}

impl Scene {
    pub fn new(settings: &[(&str, &str)]) -> Scene {
        // The first one counts for the whole process.
        let counted = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
        let _ = counted.with_writer(|| CountBytes).try_init();
        let (victim, honest) = (Side::new(settings), Side::new(settings));
        let (ep, failures) = honest.connect(&victim.address());
        send(&[&victim, &honest], &ep, 1);
        drive(&[&victim, &honest], || victim.count.get() == 1);
        let marks = Rc::new(Cell::new(0));
        let marked = Rc::clone(&marks);
        victim.iface.set_am_handler(HONEST, move |message| {
            marked.set(marked.get() + u64::from(message.header() == Some(MARK)));
        });
        let (before, descriptors) = (resident(), descriptors());
        Scene {
            victim,
            honest,
            ep,
            failures,
            before,
            most: before,
            longest: Duration::ZERO,
            descriptors,
            most_descriptors: descriptors,
            logged: LOGGED.load(Ordering::Relaxed),
            start: Instant::now(),
            marks,
        }
    }

    pub fn progress(&mut self) -> u32 {
        let start = Instant::now();
        let events = self.victim.worker.progress();
        self.longest = self.longest.max(start.elapsed());
        self.most = self.most.max(resident());
        events
    }

    /// The honest peer sends a message, and it arrives.
    #[track_caller]
    pub fn serve(&mut self) {
        let expected = self.victim.count.get() + 1;
        send(&[&self.victim, &self.honest], &self.ep, 1);
        let end = Instant::now() + LIMIT;
        while self.victim.count.get() < expected {
            self.progress();
            self.honest.worker.progress();
            assert!(Instant::now() < end, "the honest peer is not served");
        }
        assert!(self.failures.borrow().is_empty(), "{:?}", self.failures.borrow());
        self.most_descriptors = self.most_descriptors.max(descriptors());
    }

    /// The same, where attackers may send messages too: the header tells.
    #[track_caller]
    pub fn honest_message(&mut self) {
        let marks = Rc::clone(&self.marks);
        let expected = marks.get() + 1;
        let end = Instant::now() + LIMIT;
        let mut is_sent = false;
        while marks.get() < expected {
            if !is_sent {
                match self.ep.am_short(HONEST, MARK, b"") {
                    Ok(()) => is_sent = true,
                    Err(error) => assert_eq!(error, Error::NO_RESOURCE),
                }
            }
            self.progress();
            self.honest.worker.progress();
            assert!(Instant::now() < end, "the honest peer is not served");
        }
        assert!(self.failures.borrow().is_empty(), "{:?}", self.failures.borrow());
    }

    /// A peer that was given the address connects and sends.
    #[track_caller]
    pub fn serves_another(&self) {
        self.serves_another_while(|| {});
    }

    /// The same, while an attacker goes on with what it does.
    #[track_caller]
    pub fn serves_another_while(&self, mut attack: impl FnMut()) {
        let another = Side::new(&[]);
        let (ep, failures) = another.connect(&self.victim.address());
        let expected = self.victim.count.get() + 1;
        let sides = [&self.victim, &another];
        send(&sides, &ep, 1);
        drive(&sides, || {
            attack();
            self.victim.count.get() >= expected || !failures.borrow().is_empty()
        });
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
    }

    /// A connection of an attacker that has the address.
    pub fn enter(&mut self, sender: u64) -> TcpStream {
        self.try_to_enter([127, 0, 0, 1], sender).unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }

    pub fn try_to_enter(&mut self, source: [u8; 4], sender: u64) -> Result<TcpStream, u32> {
        let greeting = Greeting { sender, key: key_of(&self.victim.address()), ..Greeting::default() };
        let mut stream = connect_from(source, self.victim.socket());
        let answer = introduce_over(&mut stream, &greeting, || {
            self.progress();
        });
        let answer = answer.expect("an answer to a hello");
        if answer.is_refusal() { Err(answer.refusal()) } else { Ok(stream) }
    }

    fn grown(&self) -> usize {
        self.most.saturating_sub(self.before)
    }

    /// The memory, and the longest call of progress: docs/limits.md says what one handles at most.
    #[track_caller]
    pub fn report(&self, what: &str, memory: usize, progress: Duration) {
        println!(
            "{what}: {} KiB of memory at most (limit {} KiB), longest progress {:?} (limit {progress:?})",
            self.grown() >> 10,
            (memory + SLACK) >> 10,
            self.longest
        );
        assert!(self.grown() <= memory + SLACK, "{what}: {} bytes, expected up to {memory}", self.grown());
        assert!(self.longest <= progress, "{what}: a progress took {:?}", self.longest);
    }

    /// The descriptors beside `sockets`, which the test and its victim have between them, and the log.
    #[track_caller]
    pub fn report_descriptors_and_log(&self, what: &str, sockets: usize) {
        let taken = self.most_descriptors.saturating_sub(self.descriptors + sockets);
        let logged = LOGGED.load(Ordering::Relaxed) - self.logged;
        let seconds = self.start.elapsed().as_secs() as usize + 1;
        println!("{what}: {taken} descriptors beside {sockets}, {logged} bytes of log in {seconds} s");
        assert!(taken <= 16, "{what}: {taken} descriptors beside {sockets}");
        assert!(logged <= 2048 * seconds, "{what}: {logged} bytes of log in {seconds} s");
    }

    /// Writes a repeated pattern until `most` bytes are written or the victim reads nothing more; returns the number.
    pub fn flood(&mut self, peer: &mut TcpStream, pattern: &[u8], most: usize) -> usize {
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
