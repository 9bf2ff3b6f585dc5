//! A test program that this one starts: a test of its own, chosen by the environment.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that is ended when this is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The name by which this program knows one of its tests: the path of the function inside of the crate.
pub fn name<T: Fn()>(_test: T) -> &'static str {
    std::any::type_name::<T>().split_once("::").expect("it begins with the crate").1
}

/// This program, with one of its tests.
pub fn program(test: impl Fn()) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([name(test), "--exact", "--nocapture"]);
    command
}

/// Starts a test of this program in a process of its own, with one more variable.
pub fn start(test: impl Fn(), (name, value): (&str, &str)) -> Running {
    let mut command = program(test);
    command.env(name, value).stdout(Stdio::piped());
    Running(command.spawn().expect("it starts"))
}

/// What follows `word` in the line that begins with it, and the reader of the rest.
pub fn line(child: &mut Child, word: &str) -> (String, BufReader<ChildStdout>) {
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("text") > 0, "{word:?} was not printed");
        if let Some(rest) = line.trim().strip_prefix(word) {
            return (rest.trim().to_owned(), lines);
        }
    }
}
