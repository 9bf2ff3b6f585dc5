//! The processes of a test, seen from the test: starts them, sends commands, collects results.
//!
//! For the tests in `main.rs`. Built on the sockets of `uct_conformance::remote`. A process that finds something wrong
//! ends, which is heard here.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use uct_conformance::remote::Peer;

use crate::mesh::BRIEF_QUESTIONS;
use crate::process::{self, Task};
use crate::report::{Report, now};

/// How long all processes together may take for what is not a matter of time.
const LIMIT: Duration = Duration::from_secs(60);

/// Processes that are connected with each other.
pub struct Group {
    members: Vec<Option<Member>>,
    /// From the first process that had the others' addresses until each had an answer from each other one.
    pub connect_time: Duration,
}

struct Member {
    child: Child,
    peer: Peer,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Group {
    /// Starts `count` processes and waits until each is connected with each other one.
    pub fn start(transport: &str, device: &str, count: usize) -> Result<Group, String> {
        let mut members = Vec::with_capacity(count);
        for index in 0..count {
            let task = Task { transport: transport.to_owned(), device: device.to_owned(), index, count };
            members.push(Some(Member::start(&task)?));
        }
        let mut group = Group { members, connect_time: Duration::ZERO };
        let addresses = group.hear("the address")?;
        let start = Instant::now();
        for address in addresses {
            group.say(&address);
        }
        group.hear("that it is connected")?;
        group.connect_time = start.elapsed();
        Ok(group)
    }

    /// Lets all ask each other for a time, then waits until every question is answered.
    pub fn talk(&mut self, time: Duration) -> Result<(), String> {
        self.say(process::TALK);
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            std::thread::sleep(left.min(Duration::from_millis(200)));
            self.check_alive()?;
        }
        self.drain()
    }

    /// Lets all ask each other until each pair had this many answers.
    pub fn talk_until_each_pair_had(&mut self, answers: u64) -> Result<(), String> {
        self.talk_until(process::TALK, answers)
    }

    /// Lets all ask each other a few short questions, and waits for all answers.
    pub fn talk_briefly(&mut self) -> Result<(), String> {
        self.talk_until(process::TALK_BRIEFLY, BRIEF_QUESTIONS)
    }

    /// Has all make rounds of short messages; returns the longest time that a process took.
    pub fn make_rounds(&mut self, rounds: u64) -> Result<Duration, String> {
        self.say(&[process::ROUNDS, &rounds.to_le_bytes()].concat());
        let times = self.hear("the time of its rounds")?;
        let nanoseconds =
            times.iter().filter_map(|time| time.as_slice().try_into().ok().map(u64::from_le_bytes));
        Ok(Duration::from_nanos(nanoseconds.max().unwrap_or(0)))
    }

    fn talk_until(&mut self, order: &[u8], answers: u64) -> Result<(), String> {
        self.say(order);
        let start = Instant::now();
        while self.reports()?.iter().any(|report| report.least_answered < answers) {
            if start.elapsed() > LIMIT {
                return Err(format!("not {answers} answers for each pair within {} s", LIMIT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.drain()
    }

    /// Kills a process while all exchange messages; returns the time until the last of the others had the failure reported, once each.
    pub fn kill(&mut self, victim: usize) -> Result<Duration, String> {
        self.say(process::TALK);
        std::thread::sleep(Duration::from_millis(300));
        let mut member = self.members[victim].take().expect("it is alive");
        let (start, killed_at) = (Instant::now(), now());
        member.child.kill().map_err(|error| format!("process {victim} cannot be killed: {error}"))?;
        drop(member);
        loop {
            let reports = self.reports()?;
            if let Some(wrong) = reports.iter().find(|report| {
                report.failures > 1 || (report.failures == 1 && report.failed != victim as u64)
            }) {
                return Err(format!(
                    "process {victim} was killed, and another one had these failures reported: {wrong:?}"
                ));
            }
            let told = reports.iter().filter(|report| report.failures == 1).count();
            if told == reports.len() {
                let last = reports.iter().map(|report| report.failed_at).max().unwrap_or(killed_at);
                self.drain()?;
                return Ok(Duration::from_nanos(last.saturating_sub(killed_at)));
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{told} of {} processes were told that one was killed", reports.len()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The state of each process that is alive.
    pub fn reports(&mut self) -> Result<Vec<Report>, String> {
        self.say(process::REPORT);
        self.hear("its report")?.iter().map(|bytes| Report::unpack(bytes)).collect()
    }

    /// Each process had answers from each other one, and no endpoint failed.
    pub fn check_all_talked(&self, all: &[Report]) -> Result<(), String> {
        match all.iter().position(|report| report.least_answered == 0 || report.failures > 0) {
            None => Ok(()),
            Some(index) => Err(format!("process {index}: {:?}", all[index])),
        }
    }

    /// Each process had further answers from each other one that is alive, and no endpoint failed besides the one.
    pub fn check_all_went_on(&self, before: &[Report], after: &[Report]) -> Result<(), String> {
        for (before, after) in before.iter().zip(after) {
            if after.failures != 1 || after.least_answered <= before.least_answered {
                return Err(format!("before the kill {before:?}, after it {after:?}"));
            }
        }
        Ok(())
    }

    /// Ends all; each has to have found everything right.
    pub fn end(mut self) -> Result<(), String> {
        self.say(process::END);
        let start = Instant::now();
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            loop {
                match member.child.try_wait().map_err(|error| error.to_string())? {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("process {index} failed: {status}")),
                    None if start.elapsed() > LIMIT => return Err(format!("process {index} does not end")),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        Ok(())
    }

    /// Waits until every question is answered.
    fn drain(&mut self) -> Result<(), String> {
        self.say(process::DRAIN);
        self.hear("that all is answered").map(drop)
    }

    fn say(&mut self, message: &[u8]) {
        for member in self.members.iter_mut().flatten() {
            member.peer.send(message);
        }
    }

    /// A message of each process that is alive.
    fn hear(&mut self, what: &str) -> Result<Vec<Vec<u8>>, String> {
        let start = Instant::now();
        let mut heard = vec![None; self.members.len()];
        loop {
            self.check_alive()?;
            let mut missing = None;
            for (index, member) in self.members.iter_mut().enumerate() {
                if let Some(member) = member.as_mut().filter(|_| heard[index].is_none()) {
                    heard[index] = member.peer.poll();
                    missing = missing.or(heard[index].is_none().then_some(index));
                }
            }
            let Some(index) = missing else {
                return Ok(heard.into_iter().flatten().collect());
            };
            if start.elapsed() > LIMIT {
                return Err(format!("process {index} does not tell {what} within {} s", LIMIT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn check_alive(&mut self) -> Result<(), String> {
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            if let Some(status) = member.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("process {index} ended: {status}; what it printed is above"));
            }
        }
        Ok(())
    }
}

impl Member {
    fn start(task: &Task) -> Result<Member, String> {
        let words = |error: std::io::Error| format!("process {} does not start: {error}", task.index);
        let (near, far) = UnixStream::pair().map_err(words)?;
        let program = std::env::current_exe().map_err(words)?;
        let child = Command::new(program)
            .env(process::VARIABLE, task.to_string())
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(words)?;
        Ok(Member { child, peer: Peer::new(near) })
    }
}
