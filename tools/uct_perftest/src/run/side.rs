//! One end of the connection, and the course of a case on it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use uct_core::{Completion, MemorySlice, RemoteKey};
use uct_tools_common::Failure;

use super::buffer::Buffer;
use super::driver::Driver;
use super::net::Data;
use super::record::{Interim, Recorder, Times, batch};
use crate::kind::Class;
use crate::peer::Kind;
use crate::plan::{Case, Plan, ServerReport};

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The client: begins, and takes the times.
    Active,
    /// The server.
    Passive,
    /// Both at once: an endpoint to itself.
    Alone,
}

/// One end of the connection.
pub(crate) struct Side {
    pub(super) driver: Driver,
    pub(super) role: Role,
    pub(super) plan: Plan,
    pub(super) inbox: Rc<Inbox>,
    pub(super) buffers: Buffers,
    pub(super) data: Data,
    pub(super) ring: Ring,
    /// Phases so far: the warm-up and the measured part of every case.
    pub(super) phase: Cell<u64>,
    /// Messages of this case so far.
    pub(super) sequence: Cell<u64>,
    /// In this case the peer reaches this side's memory without it.
    pub(super) is_bystander: Cell<bool>,
}

/// What active messages leave behind.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Length that a message has, header included.
    pub expected: Cell<usize>,
    /// Messages of that length.
    pub data: Cell<u64>,
    /// Messages of another length.
    pub wrong: Cell<u64>,
    /// The last phase that the peer has done its part of.
    pub control: Cell<u64>,
    /// Messages that the peer has confirmed.
    pub confirmed: Cell<u64>,
}

/// Memory of a side, and the peer's.
pub(super) struct Buffers {
    /// What is sent when it is copied.
    pub payload: Buffer,
    /// Where zero copy sends from, and gets to.
    pub source: Option<uct_core::Memory>,
    /// What the peer accesses, and where in it the first aligned byte is.
    pub target: Option<(uct_core::Memory, usize)>,
    pub remote: Option<Remote>,
}

/// The peer's memory.
pub(super) struct Remote {
    /// An aligned address.
    pub address: u64,
    pub key: RemoteKey,
}

/// The completions of operations that may be outstanding, used in turn.
pub(super) struct Ring {
    completions: Vec<Completion>,
    next: Cell<usize>,
}

/// The result of a case.
pub(crate) struct Measured {
    pub times: Times,
    /// Processor time of the measured part, in nanoseconds.
    pub cpu_ns: u64,
    /// Messages of a wrong length.
    pub wrong: u64,
    /// The peer's figures; `None` for a side that talks to itself, and at the server.
    pub server: Option<ServerReport>,
}

impl Side {
    /// Goes through a case, in step with the peer.
    pub(crate) fn run(
        &self,
        case: &Case,
        wanted_batch: Option<u64>,
        report: &mut dyn FnMut(&Interim<'_>),
    ) -> Result<Measured, Failure> {
        self.prepare(case);
        self.barrier()?;

        let mut nothing = |_: &Interim<'_>| {};
        let mut recorder = Recorder::start(u64::MAX, false, &mut nothing)?;
        self.do_phase(case, case.warmup, &mut recorder)?;
        let warm = recorder.finish();

        let batch = match (self.role, wanted_batch) {
            // The server only follows.
            (Role::Passive, _) => u64::MAX,
            (_, Some(wanted)) => wanted.min(case.iterations),
            (_, None) if warm.iterations == 0 => 1,
            (_, None) => batch(warm.mean(), case.iterations),
        };
        let mut report = |interim: &Interim<'_>| {
            // With uct-net the peer sees that something moves, and a message now would be in the way.
            if !self.plan.test.class().is_net() {
                self.driver.give_sign();
            }
            report(interim);
        };
        let streams = !self.plan.test.is_ping_pong();
        let mut recorder = Recorder::start(batch, streams, &mut report)?;
        // Of what is timed alone: allocating and sorting samples belongs to no operation.
        let before = cpu_time();
        self.do_phase(case, case.iterations, &mut recorder)?;
        let cpu_ns = cpu_time().saturating_sub(before).as_nanos() as u64;
        let times = recorder.finish();

        let wrong = self.inbox.wrong.get();
        let server = match self.role {
            Role::Alone => None,
            Role::Passive => {
                let report = ServerReport { cpu_ns, wrong };
                self.driver.peer().map(|mut peer| peer.send_value(Kind::Report, &report)).transpose()?;
                None
            }
            Role::Active => {
                self.driver.peer().map(|mut peer| peer.receive_value(Kind::Report)).transpose()?
            }
        };
        Ok(Measured { times, cpu_ns, wrong, server })
    }

    /// Ends the conversation: neither side closes its endpoint before the other one is done.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        if let Some(mut peer) = self.driver.peer() {
            peer.send(Kind::Done, &[])?;
            peer.receive(Kind::Done)?;
        }
        Ok(())
    }

    /// Tells the peer why this side gives up.
    pub(crate) fn give_up(&self, failure: Failure) -> Failure {
        match self.driver.peer() {
            Some(mut peer) => peer.give_up(failure),
            None => failure,
        }
    }

    /// All that has to be in place before the peer begins.
    fn prepare(&self, case: &Case) {
        self.sequence.set(0);
        self.is_bystander.set(!self.plan.test.needs_the_target(case.layout, &self.driver.ep.iface()));
        self.inbox.data.set(0);
        self.inbox.wrong.set(0);
        self.inbox.confirmed.set(0);
        self.inbox.expected.set(crate::plan::HEADER + case.size);
        if let Some((target, _)) = &self.buffers.target {
            target.fill(0, target.len(), 0);
        }
    }

    fn barrier(&self) -> Result<(), Failure> {
        if let Some(mut peer) = self.driver.peer() {
            peer.send(Kind::Ready, &[])?;
            peer.receive(Kind::Ready)?;
        }
        Ok(())
    }

    fn do_phase(&self, case: &Case, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        self.phase.set(self.phase.get() + 1);
        self.driver.start();
        match self.plan.test.class() {
            Class::Am => self.am(case, count, recorder),
            Class::Put => self.put(case, count, recorder),
            Class::Get => self.get(case, count, recorder),
            Class::Post => self.post_atomics(case, count, recorder),
            Class::Fetch(op) => self.fetch_atomics(op, case, count, recorder),
            Class::Connect => self.connections(count, recorder),
            Class::Await => self.awaited(case, count, recorder),
            Class::Stream => self.streamed(case, count, recorder),
        }
    }

    /// The part of the local memory that zero copy uses.
    pub(super) fn source_slice(&self, size: usize) -> Result<[MemorySlice; 1], Failure> {
        let source = self.buffers.source.as_ref().ok_or("no memory was prepared for zero copy")?;
        Ok([source.slice(..size)])
    }

    pub(super) fn remote(&self) -> Result<&Remote, Failure> {
        self.buffers.remote.as_ref().ok_or_else(|| "the peer named no memory".into())
    }

    pub(super) fn target(&self) -> Result<(&uct_core::Memory, usize), Failure> {
        let (memory, base) = self.buffers.target.as_ref().ok_or("no memory was prepared for the peer")?;
        Ok((memory, *base))
    }
}

impl Ring {
    pub(super) fn new(completions: Vec<Completion>) -> Ring {
        Ring { completions, next: Cell::new(0) }
    }

    /// The completion, if there is only one.
    pub(super) fn only(&self) -> Option<&Completion> {
        match self.completions.as_slice() {
            [completion] => Some(completion),
            _ => None,
        }
    }

    /// The next completion, once its operation has ended.
    #[inline(always)]
    pub(super) fn take(&self, driver: &Driver) -> Result<&Completion, Failure> {
        let index = self.next.get();
        let completion = &self.completions[index];
        self.next.set(if index + 1 == self.completions.len() { 0 } else { index + 1 });
        if !completion.is_done() {
            driver.wait(|| completion.is_done())?;
        }
        Ok(completion)
    }

    /// Waits for all operations; the first error of one is an error here.
    pub(super) fn drain(&self, driver: &Driver) -> Result<(), Failure> {
        for completion in &self.completions {
            driver.wait(|| completion.is_done())?;
            completion.result().map_err(|error| format!("an operation failed: {error}"))?;
        }
        Ok(())
    }
}

/// Processor time of this thread, of the system in its name included.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
