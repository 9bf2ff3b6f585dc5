//! For the tests of the tools: programs as their users start them, under a watchdog, without the `UCT_*` variables of
//! whoever runs the tests. The tests include this file; it is part of no library.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A program that runs; it is killed when the test is done with it.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    line: String,
}

/// A command with its variables cleared of ours, and without a file of measured times.
pub fn command(program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UCT_")) {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", "/nonexistent");
    command
}

/// Starts it.
pub fn start(command: &mut Command) -> Running {
    let line = format!("{command:?}");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    Running { child, stdout, stderr, line }
}

/// Runs it to its end.
pub fn run(command: &mut Command) -> Ended {
    start(command).end()
}

fn drain(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            match self.child.try_wait().expect("a child can be waited for") {
                Some(status) => break status,
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                None => {
                    self.kill();
                    let _ = self.child.wait();
                    let (stdout, stderr) = self.output();
                    panic!("{} is still running after {LIMIT:?}\n{stdout}{stderr}", self.line);
                }
            }
        };
        let (stdout, stderr) = self.output();
        Ended { code: status.code(), stdout, stderr }
    }

    fn output(&mut self) -> (String, String) {
        let text = |reader: &mut Option<JoinHandle<String>>| {
            reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        (text(&mut self.stdout), text(&mut self.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The output of a program that succeeded.
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The one line of a program that failed.
    pub fn failure(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !line.contains(" WARN ")).collect();
        assert_eq!(lines.len(), 1, "expected one line: {}", self.stderr);
        lines[0].to_owned()
    }
}
