//! A process that is stopped and killed.

#![allow(dead_code, reason = "each test program uses a part")]

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::LIMIT;

/// Such a process.
#[derive(Clone, Copy)]
pub struct Victim(u32);

impl Victim {
    pub fn new(process: u32) -> Victim {
        Victim(process)
    }

    fn signal(self, signal: Signal) {
        let process = Pid::from_raw(self.0.cast_signed()).expect("a process");
        kill_process(process, signal).expect("a child of this process");
    }

    /// Stops it, and waits until it is.
    pub fn stop(self) {
        self.signal(Signal::STOP);
        self.wait_for('T');
    }

    pub fn go_on(self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits until it is gone, but for its status.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        self.wait_for('Z');
    }

    /// Waits for a state of the process, as `/proc` has it.
    fn wait_for(self, state: char) {
        let begun = Instant::now();
        while !self.is_in(state) {
            assert!(begun.elapsed() < LIMIT, "process {} is not in state {state}", self.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_in(self, state: char) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/stat", self.0)).expect("it was not waited for");
        // The name of the program ahead of it may have any characters.
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    }

    /// Whether it has stopped itself.
    pub fn is_stopped(self) -> bool {
        self.is_in('T')
    }
}

/// Stops this process, and returns when it goes on. The signal is the calling thread's: one to the process may be taken by another
/// thread, and the caller would run on until that one has woken up.
pub fn stop_here() {
    // SAFETY: it has no preconditions.
    let outcome = unsafe { libc::raise(libc::SIGSTOP) };
    assert_eq!(outcome, 0, "it is this process");
}
