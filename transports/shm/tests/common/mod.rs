//! Two processes for a test: the test itself, and the same program started again in a role, perhaps in other namespaces.
//!
//! Used by the tests of this folder. Built on `uct-core`. The processes communicate over pipes, a line at a time; every wait has a limit.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../../ucs/testing/alone.rs"]
pub mod alone;
#[path = "../../../../ucs/testing/seed.rs"]
pub mod seed;
#[path = "../../../../ucs/testing/skip.rs"]
pub mod skip;

use std::backtrace::Backtrace;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use uct_core::configuration::Sources;
use uct_core::{Context, Error, Iface, IfaceOptions, Worker};

/// Longest wait for anything.
pub const LIMIT: Duration = Duration::from_secs(60);
const ROLE: &str = "SHM_TEST_ROLE";

/// The role that this process was started in, if it was.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A panic anywhere ends the process: one inside a transport would be caught and reported as an error event only.
fn panic_is_fatal() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(move |panic| {
            // Past the test harness, which would keep it to itself when the process ends.
            let _ = writeln!(std::io::stderr(), "{panic}\n{}", Backtrace::force_capture());
            std::process::exit(101);
        }));
    });
}

/// A worker and an interface of `transport`, with settings such as `shm.cma=n`.
pub fn open(transport: &str, settings: &[&str]) -> (Worker, Iface) {
    panic_is_fatal();
    let mut sources = Sources::default();
    for setting in settings {
        let (key, value) = setting.split_once('=').expect("KEY=VALUE");
        sources = sources.set(key, value);
    }
    let context = Context::builder().sources(sources).build().expect("a context");
    let resource = context.find(transport, "memory").expect("the transport is there");
    let worker = Worker::new(&context).expect("a worker");
    let iface =
        worker.open_resource(&resource, IfaceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    (worker, iface)
}

/// Repeats an operation while it is blocked.
pub fn until<T>(worker: &Worker, mut operation: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match operation() {
            Err(Error::NO_RESOURCE) => worker.progress(),
            result => return result,
        };
        assert!(start.elapsed() < LIMIT, "no resources came");
    }
}

/// The full name of a test in the module of the one that this thread runs.
pub fn sibling(test: &str) -> String {
    let thread = std::thread::current();
    let own = thread.name().and_then(|name| name.rsplit_once("::"));
    let (module, _) = own.expect("the thread of a test has its name");
    format!("{module}::{test}")
}

/// Another process in a role.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    /// Starts this program again as `test`, which is in the module of the calling one, in `role`, behind `wrapper` (such as `unshare --ipc`).
    pub fn start(wrapper: &[&str], test: &str, role: &str) -> Peer {
        let test = &sibling(test);
        let program = std::env::current_exe().expect("this program has a path");
        let mut words: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
        words.push(program.display().to_string());
        words.extend(["--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned));
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test harness writes, too. Lines for the test have a mark, which may follow text of the harness.
                if let Some((_, words)) = line.split_once("@@")
                    && sender.send(words.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Peer { child, input, lines }
    }

    /// The next line of the peer.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("the peer tells nothing")
    }

    /// The next line, if it is there.
    pub fn try_line(&self) -> Result<String, TryRecvError> {
        self.lines.try_recv()
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// The next line, while a worker goes on.
    pub fn line_with(&self, worker: &Worker) -> String {
        let start = Instant::now();
        loop {
            if let Ok(line) = self.lines.try_recv() {
                return line;
            }
            worker.progress();
            assert!(start.elapsed() < LIMIT, "the peer tells nothing");
        }
    }

    /// Tells the peer a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the peer listens");
    }

    /// Its process number, that of the wrapper if there is one.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the test that has started this process.
pub fn say(words: &str) {
    println!("@@{words}");
    std::io::stdout().flush().expect("somebody listens");
}

/// The lines of the test that has started this process; ends when that does.
pub fn heard() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        // The other process is gone.
        std::process::exit(1);
    });
    lines
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Text as bytes.
pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect()
}
