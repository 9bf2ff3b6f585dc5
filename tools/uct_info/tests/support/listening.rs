//! A program that listens for measurements with it, and where.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// `uct_info --calibrate --listen`; it is ended with this.
pub struct Listening {
    child: Child,
    pub port: u16,
    output: BufReader<std::process::ChildStdout>,
}

impl Listening {
    /// Starts it, and waits until it listens.
    pub fn start(command: &mut Command) -> Listening {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut first = String::new();
        output.read_line(&mut first).expect("text");
        let port = first.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port: {first:?}"));
        Listening { child, port, output }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line
    }

    /// Whether it has ended well; the rest of its lines.
    pub fn end(mut self) -> (bool, String) {
        let mut rest = String::new();
        while self.output.read_line(&mut rest).expect("text") > 0 {}
        (self.child.wait().expect("a child can be waited for").success(), rest)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
