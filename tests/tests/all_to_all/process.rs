//! One process of a group: runs the commands from its socket, serves its peers meanwhile, and sleeps when there is
//! nothing to do.
//!
//! For `main`, in the processes that it starts. Built on `mesh` and on `uct_conformance::remote`.

use std::fmt;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uct_conformance::remote::Peer;
use uct_conformance::watchdog::Watchdog;
use uct_core::{Error, IfaceAddress, Worker};

use crate::mesh::Mesh;
use crate::report::Report;
use crate::rounds::Rounds;

/// Names the task to a process.
pub const VARIABLE: &str = "UCT_TEST_ALL_TO_ALL";

/// Ask all others.
pub const TALK: &[u8] = b"talk";
/// The same, with a few short questions only.
pub const TALK_BRIEFLY: &[u8] = b"talk briefly";
/// Make rounds of short messages; behind it their number, and the reply is the time that they took, in nanoseconds, both of 8 bytes.
pub const ROUNDS: &[u8] = b"rounds";
/// Send no more requests, and report when all replies have arrived.
pub const DRAIN: &[u8] = b"drain";
/// Tell how it goes.
pub const REPORT: &[u8] = b"report";
/// Leave.
pub const END: &[u8] = b"end";

/// Longest sleep: a wake-up that is lost costs that much, and no more.
const SLEEP: Duration = Duration::from_secs(1);
/// The same while a message waits for room.
const SHORT_SLEEP: Duration = Duration::from_millis(5);
/// How often it makes progress between two polls of the socket while there is something to do.
const TURNS: u32 = 16;
/// The test that started this process ends it long before.
const LIMIT: Duration = Duration::from_secs(86_400);

/// Which process this is.
#[derive(Debug, PartialEq, Eq)]
pub struct Task {
    /// The transport.
    pub transport: String,
    /// The device.
    pub device: String,
    /// The number of this process.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.transport, self.device, self.index, self.count)
    }
}

impl FromStr for Task {
    type Err = String;

    fn from_str(words: &str) -> Result<Task, String> {
        let problem = || format!("{VARIABLE}={words}: this program sets it for itself");
        let parts: Vec<&str> = words.split(' ').collect();
        let [transport, device, index, count] = parts[..] else { return Err(problem()) };
        Ok(Task {
            transport: transport.to_owned(),
            device: device.to_owned(),
            index: index.parse().map_err(|_| problem())?,
            count: count.parse().map_err(|_| problem())?,
        })
    }
}

/// The task of this process, if it was started for one.
pub fn task() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// Does it.
pub fn run(task: &str) -> ExitCode {
    let _watchdog = Watchdog::new(format!("a process of {task}"), LIMIT);
    let outcome = task.parse::<Task>().and_then(|task| {
        let index = task.index;
        let mut socket = Peer::of_standard_input();
        take_part(&task, &mut socket).map_err(|problem| format!("process {index}: {problem}"))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn take_part(task: &Task, socket: &mut Peer) -> Result<(), String> {
    let words = |error: &dyn fmt::Display| error.to_string();
    let context = uct_core::Context::builder()
        .set("tls", task.transport.as_str())
        // Many processes share the processors: one that answers late is no dead one.
        .set("tcp.connect_timeout", "5m")
        .build()
        .map_err(|error| words(&error))?;
    let worker = Worker::new(&context).map_err(|error| words(&error))?;
    let iface = worker.open(&task.transport, &task.device).map_err(|error| words(&error))?;
    let memory_alone = memory();

    let address = iface.address().map_err(|error| words(&error))?;
    socket.send(&address.pack().map_err(|error| words(&error))?);
    let rounds = Rounds::new(&iface, task.index, task.count);
    let mut mesh = Mesh::new(iface, task.index, task.count);
    for peer in 0..task.count {
        let packed = socket.receive("an address", || worker.progress());
        if peer != task.index {
            let (address, _) = IfaceAddress::unpack(&packed).map_err(|error| words(&error))?;
            mesh.connect(peer, &address)?;
        }
    }
    // Each asks each other one once by itself, so that all that is made at the first use is there.
    let mut member = Member { worker, mesh, rounds, memory_alone, sleeps: 0 };
    member.serve(socket, |member, socket| {
        let first = member.mesh.all_are_answered();
        if first {
            socket.say("connected");
        }
        Ok(first)
    })?;
    let mut state = State::Quiet;
    member.serve(socket, |member, socket| member.obey(socket, &mut state))
}

/// What the test asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Quiet,
    Draining,
}

struct Member {
    worker: Worker,
    mesh: Mesh,
    rounds: Rounds,
    memory_alone: u64,
    sleeps: u64,
}

impl Member {
    /// Makes progress, and sleeps when there is none, until `done`, which is asked now and then and after each sleep.
    fn serve(
        &mut self,
        socket: &mut Peer,
        mut done: impl FnMut(&mut Member, &mut Peer) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut turns = 0;
        loop {
            let mut moved = self.worker.progress() > 0;
            moved |= self.mesh.advance()?;
            turns += 1;
            if moved && turns < TURNS {
                continue;
            }
            turns = 0;
            if done(self, socket)? {
                return Ok(());
            }
            if !moved {
                self.sleep(socket)?;
            }
        }
    }

    /// Makes rounds of short messages, and replies with the time. It yields and does not sleep, as ranks of MPI that share processors.
    fn make_rounds(&mut self, count: u64, socket: &mut Peer) -> Result<(), String> {
        self.rounds.start(self.mesh.endpoints(), count);
        loop {
            if let Some(time) = self.rounds.advance()? {
                socket.send(&(time.as_nanos() as u64).to_le_bytes());
                return Ok(());
            }
            if self.worker.progress() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Sleeps until a peer or the test wants something.
    fn sleep(&mut self, socket: &Peer) -> Result<(), String> {
        match self.worker.arm() {
            Ok(()) => {}
            Err(Error::BUSY) => return Ok(()),
            Err(error) => return Err(format!("arm: {error}")),
        }
        self.sleeps += 1;
        let limit = if self.mesh.waits_for_room() { SHORT_SLEEP } else { SLEEP };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let (events, told) = (self.worker.event_fd(), socket.as_fd());
        let mut fds = [PollFd::new(&events, PollFlags::IN), PollFd::new(&told, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    /// Does what the test says; whether it is to leave.
    fn obey(&mut self, socket: &mut Peer, state: &mut State) -> Result<bool, String> {
        while let Some(order) = socket.poll() {
            match order.as_slice() {
                TALK | TALK_BRIEFLY => {
                    self.mesh.asks = true;
                    self.mesh.is_brief = order == TALK_BRIEFLY;
                }
                DRAIN => {
                    self.mesh.asks = false;
                    *state = State::Draining;
                }
                [rounds @ .., _, _, _, _, _, _, _, _] if rounds == ROUNDS => {
                    let count = order.last_chunk().expect("8 bytes");
                    self.make_rounds(u64::from_le_bytes(*count), socket)?;
                }
                REPORT => socket.send(&self.report().pack()),
                END => return Ok(true),
                other => return Err(format!("the test says {:?}", String::from_utf8_lossy(other))),
            }
        }
        if *state == State::Draining && self.mesh.all_are_answered() {
            *state = State::Quiet;
            socket.say("drained");
        }
        Ok(false)
    }

    fn report(&self) -> Report {
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        Report {
            memory_alone: self.memory_alone,
            memory: memory(),
            share: share(),
            descriptors,
            sleeps: self.sleeps,
            ..self.mesh.report()
        }
    }
}

/// This process's share of the kilobytes in use: of a page that several processes map, a part.
fn share() -> u64 {
    kilobytes("/proc/self/smaps_rollup", &["Pss_Anon:", "Pss_Shmem:"])
}

/// Kilobytes in use, shared ones included; pages of files, such as the program's, are not.
fn memory() -> u64 {
    kilobytes("/proc/self/status", &["RssAnon:", "RssShmem:"])
}

/// The sum of these lines of a file of the system.
fn kilobytes(file: &str, lines: &[&str]) -> u64 {
    let text = std::fs::read_to_string(file).expect("a file about this process");
    let of = |name: &&str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of kilobytes")
    };
    lines.iter().map(of).sum()
}
