//! Moves the worker on, and waits: spinning or asleep, but never for ever.

use std::cell::{Cell, RefCell, RefMut};
use std::hint::spin_loop;
use std::time::Duration;

use uct_core::{DeviceKind, Ep, Error, Worker, clock};
use uct_tools_common::Failure;

use crate::kind::Wait;
use crate::peer::{Kind, Peer};

/// Turns without an event until a spinning side looks whether all is well, and lets others run. Far more than a
/// message takes on any transport that is worth spinning for.
const SPINS: u32 = 1024;
/// The same for a side that spins for a moment before it sleeps.
const ADAPTIVE_SPINS: u32 = 256;
/// Longest sleep: after it the side looks whether the peer is still there.
const NAP: Duration = Duration::from_millis(100);
/// Sleep of a side that has no part in what goes on, where the transport cannot wake it.
const DOZE: Duration = Duration::from_millis(1);
/// Time between two looks for messages beside the measured ones.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One side's engine.
pub(super) struct Driver {
    pub worker: Worker,
    pub ep: Ep,
    /// `None` for a side that talks to itself.
    peer: Option<RefCell<Peer>>,
    patience: Duration,
    spins: u32,
    sleeps: bool,
    /// Between two reads of memory that the peer writes, a hint tells the processor to wait: the line is transferred sooner
    /// so. Anything else is only found later.
    pauses: bool,
    next_look: Cell<u64>,
    /// When the peer last said that it is still at it.
    last_sign: Cell<u64>,
}

/// How a wait is going.
#[derive(Default)]
pub(super) struct Waiting {
    turns: u32,
    since: Option<u64>,
}

impl Driver {
    pub(super) fn new(ep: Ep, peer: Option<Peer>, wait: Wait, patience: Duration) -> Driver {
        Driver {
            worker: ep.iface().worker(),
            pauses: ep.iface().resource().kind == DeviceKind::SharedMemory,
            ep,
            peer: peer.map(RefCell::new),
            patience,
            spins: match wait {
                Wait::Poll => SPINS,
                Wait::Event => 1,
                Wait::Adaptive => ADAPTIVE_SPINS,
            },
            sleeps: wait != Wait::Poll,
            next_look: Cell::new(0),
            last_sign: Cell::new(clock::ticks()),
        }
    }

    /// Moves on until `done`.
    #[inline(always)]
    pub(super) fn wait(&self, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let mut waiting = Waiting::default();
        while !done() {
            // As `turn`, but that a turn which brought something has no result to look at.
            if self.worker.progress() > 0 {
                waiting.turns = 0;
                continue;
            }
            self.turn_in_vain(&mut waiting)?;
        }
        Ok(())
    }

    /// Makes progress until `done`, asleep between events: the processor is free for the code that does the work, which on
    /// software RoCE is a thread of the kernel.
    pub(super) fn doze(&self, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let mut waiting = Waiting::default();
        while !done() {
            if self.worker.progress() == 0 {
                self.look_around(&mut waiting)?;
                match self.worker.wait(NAP) {
                    Err(Error::UNSUPPORTED) => std::thread::sleep(DOZE),
                    slept => awake(slept)?,
                }
            }
        }
        Ok(())
    }

    /// Starts an operation, moving on while there is no resource for it.
    #[inline(always)]
    pub(super) fn post<T>(&self, mut attempt: impl FnMut() -> uct_core::Result<T>) -> Result<T, Failure> {
        let mut waiting = Waiting::default();
        loop {
            match attempt() {
                Ok(posted) => return Ok(posted),
                Err(Error::NO_RESOURCE) => self.turn(&mut waiting)?,
                Err(error) => return Err(self.refused(error)),
            }
        }
    }

    #[inline(always)]
    fn turn(&self, waiting: &mut Waiting) -> Result<(), Failure> {
        if self.worker.progress() > 0 {
            waiting.turns = 0;
            return Ok(());
        }
        self.turn_in_vain(waiting)
    }

    #[inline(always)]
    fn turn_in_vain(&self, waiting: &mut Waiting) -> Result<(), Failure> {
        waiting.turns += 1;
        if waiting.turns < self.spins {
            if self.pauses {
                spin_loop();
            }
            return Ok(());
        }
        self.rest(waiting)
    }

    #[cold]
    #[inline(never)]
    fn rest(&self, waiting: &mut Waiting) -> Result<(), Failure> {
        self.look_around(waiting)?;
        if !self.sleeps {
            // Where both sides share a processor, the other one has to run too.
            std::thread::yield_now();
            return Ok(());
        }
        awake(self.worker.wait(NAP))
    }

    /// Whether all is well, and the peer has not been silent for longer than there is patience.
    fn look_around(&self, waiting: &mut Waiting) -> Result<(), Failure> {
        waiting.turns = 0;
        self.check()?;
        let now = clock::ticks();
        let since = *waiting.since.get_or_insert(now);
        let waited = clock::ticks_to_duration(now.saturating_sub(since.max(self.last_sign.get())));
        if waited > self.patience {
            let seconds = self.patience.as_secs_f64();
            return Err(
                format!("nothing came from the peer for {seconds} s; allow more with --timeout").into()
            );
        }
        Ok(())
    }

    /// Looks whether endpoint and peer are alive.
    fn check(&self) -> Result<(), Failure> {
        if self.ep.failure().is_some() {
            return Err(self.failed());
        }
        let now = clock::ticks();
        if let Some(peer) = &self.peer
            && now >= self.next_look.get()
        {
            self.next_look.set(now.saturating_add(clock::duration_to_ticks(LOOK_INTERVAL)));
            if peer.borrow_mut().look()? {
                self.last_sign.set(now);
            }
        }
        Ok(())
    }

    /// Why the endpoint failed. The peer's reason says more than the transport's error.
    fn failed(&self) -> Failure {
        let given_up = self.peer().and_then(|mut peer| peer.given_up());
        let failure = || self.ep.failure().map_or_else(String::new, ToString::to_string);
        given_up.unwrap_or_else(|| format!("the connection failed: {}", failure()).into())
    }

    #[cold]
    fn refused(&self, error: Error) -> Failure {
        if self.ep.failure().is_some() {
            return self.failed();
        }
        format!("{}: {error}", self.ep.iface().resource()).into()
    }

    /// Tells a peer that waits that this side is still active.
    pub(super) fn give_sign(&self) {
        if let Some(mut peer) = self.peer() {
            // Whether the peer is there shows elsewhere.
            let _ = peer.send(Kind::Alive, &[]);
        }
    }

    /// The other side, for messages beside the measured ones.
    pub(super) fn peer(&self) -> Option<RefMut<'_, Peer>> {
        self.peer.as_ref().map(RefCell::borrow_mut)
    }

    /// How long the peer may be silent.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// A new phase begins: what the peer said before does not count.
    pub(super) fn start(&self) {
        self.last_sign.set(clock::ticks());
    }
}

fn awake(slept: uct_core::Result<bool>) -> Result<(), Failure> {
    slept.map(drop).map_err(|error| format!("cannot sleep until something happens: {error}").into())
}
