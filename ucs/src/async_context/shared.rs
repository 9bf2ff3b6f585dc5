//! The context itself: registering, running handlers, replaying, closing.
//!
//! Used by `AsyncHandle`, the context's thread and `poll`. Built on `block`, `registry`, `pace`, `slot` and `event_set`.
//! Nothing outside of the module uses it.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::block::{Block, thread_token};
use super::handler::{Callback, HandlerId, Panicked, Schedule};
use super::pace::Pace;
use super::registry::{Registry, Source};
use super::slot::{SHUTDOWN_LIMIT, Slot};
use super::{AsyncError, Mode};
use crate::clock::{self, Deadline};
use crate::event_set::{EventFd, EventSet, Events, TimerFd};
use crate::pending_work::PendingWork;
use crate::status;
use crate::sys::SystemError;

/// How often a wait for a running handler is mentioned in the log.
const REMOVE_WARNING_INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct Shared {
    mode: Mode,
    pub(super) block: Block,
    pub(super) pace: Pace,
    registry: Mutex<Registry>,
    /// Signalled when a handler that was removed while it ran has returned.
    handler_returned: Condvar,
    /// Made with the first registration.
    io: OnceCell<Io>,
    pub(super) thread: Slot,
    /// What the thread does.
    serve: fn(&Arc<Shared>),
}

/// The context's descriptors.
pub(super) struct Io {
    pub(super) set: EventSet,
    pub(super) wake: EventFd,
    pub(super) timer: TimerFd,
}

impl Io {
    /// The numbers of the context's own descriptors in the set; handlers start at `registry::FIRST_ID`.
    pub(super) const WAKE: u64 = 0;
    pub(super) const TIMER: u64 = 1;

    fn new() -> Result<Io, SystemError> {
        let io = Io { set: EventSet::new()?, wake: EventFd::new()?, timer: TimerFd::new()? };
        io.set.add(&io.wake, Events::READ, Io::WAKE)?;
        io.set.add(&io.timer, Events::READ, Io::TIMER)?;
        Ok(io)
    }
}

impl Shared {
    pub(super) fn new(mode: Mode, pending_work: PendingWork, serve: fn(&Arc<Shared>)) -> Shared {
        Shared {
            mode,
            block: Block::new(),
            pace: Pace::new(pending_work),
            registry: Mutex::new(Registry::new()),
            handler_returned: Condvar::new(),
            io: OnceCell::new(),
            thread: Slot::new(),
            serve,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// The registry. No handler and no closure's drop runs with it locked, so it cannot be poisoned half-way.
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn io(&self) -> Option<&Io> {
        self.io.get()
    }

    pub(super) fn handler_count(&self) -> usize {
        self.registry().len()
    }
}

/// Registering.
impl Shared {
    pub(super) fn add_fd(
        self: &Arc<Shared>,
        fd: RawFd,
        events: Events,
        callback: Callback,
    ) -> Result<HandlerId, AsyncError> {
        let mut registry = self.open_registry()?;
        let io = self.prepare(&registry)?;
        let id = registry.take_id();
        io.set.add_raw(fd, self.kernel_events(events), id.to_raw())?;
        registry.insert_fd(id, fd, events, callback);
        self.registered(&mut registry);
        Ok(id)
    }

    pub(super) fn add_timer(
        self: &Arc<Shared>,
        schedule: Schedule,
        callback: Callback,
    ) -> Result<HandlerId, AsyncError> {
        check(schedule)?;
        let mut registry = self.open_registry()?;
        self.prepare(&registry)?;
        let id = registry.take_id();
        registry.insert_timer(id, schedule, callback);
        self.registered(&mut registry);
        Ok(id)
    }

    pub(super) fn modify_fd(&self, id: HandlerId, events: Events) -> Result<(), AsyncError> {
        let mut registry = self.registry();
        let source = registry.source(id).ok_or(AsyncError::NoSuchHandler { id })?;
        let Source::Fd { fd, .. } = source else {
            return Err(AsyncError::WrongKind { id, expected: "file descriptor" });
        };
        // In a thread an unarmed one is armed with the new events when its handler has returned.
        let is_armed = self.mode == Mode::Poll || registry.is_armed(id);
        if let (true, Some(io)) = (is_armed, self.io()) {
            io.set.modify_raw(fd, self.kernel_events(events), id.to_raw())?;
        }
        registry.set_events(id, events);
        Ok(())
    }

    pub(super) fn modify_timer(&self, id: HandlerId, schedule: Schedule) -> Result<(), AsyncError> {
        check(schedule)?;
        let mut registry = self.registry();
        registry.source(id).ok_or(AsyncError::NoSuchHandler { id })?;
        if !registry.start_timer(id, schedule) {
            return Err(AsyncError::WrongKind { id, expected: "timer" });
        }
        self.timers_changed(&mut registry);
        Ok(())
    }

    pub(super) fn remove(&self, id: HandlerId) -> Result<(), AsyncError> {
        let mut registry = self.registry();
        let callback = self.take_out(&mut registry, id).ok_or(AsyncError::NoSuchHandler { id })?;
        let token = thread_token();
        while registry.running.is_some_and(|(running, thread)| running == id && thread != token) {
            let wait = self.handler_returned.wait_timeout(registry, REMOVE_WARNING_INTERVAL);
            let (guard, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
            registry = guard;
            if timeout.timed_out() {
                crate::log::warn!(%id, "still waiting for an asynchronous handler to return, in order to remove it");
            }
        }
        drop(registry);
        drop(callback);
        Ok(())
    }

    /// Takes a handler out of the registry and the kernel's set; returns its callback unless it is running.
    fn take_out(&self, registry: &mut Registry, id: HandlerId) -> Option<Option<Callback>> {
        let (source, callback) = registry.remove(id)?;
        if let (Source::Fd { fd, .. }, Some(io)) = (source, self.io()) {
            // A descriptor that was closed first has left the set by itself.
            let _ = io.set.remove_raw(fd);
        }
        self.pace.set_registered(if self.mode == Mode::Poll { registry.len() } else { 0 });
        Some(callback)
    }

    fn open_registry(&self) -> Result<MutexGuard<'_, Registry>, AsyncError> {
        let registry = self.registry();
        if registry.is_closed { Err(AsyncError::Closed) } else { Ok(registry) }
    }

    /// Makes the descriptors and, in a thread, the thread. The registry is locked, so this happens
    /// once.
    fn prepare(self: &Arc<Shared>, _locked: &MutexGuard<'_, Registry>) -> Result<&Io, SystemError> {
        let io = self.io.get_or_try_init(Io::new)?;
        if self.mode != Mode::Poll {
            let (context, serve) = (Arc::clone(self), self.serve);
            self.thread.start(move || {
                serve(&context);
                context.thread.note_ended();
            })?;
        }
        Ok(io)
    }

    fn registered(&self, registry: &mut Registry) {
        if self.mode == Mode::Poll {
            self.pace.set_registered(registry.len());
        }
        self.timers_changed(registry);
    }

    /// A timer may be due earlier than before.
    pub(super) fn timers_changed(&self, registry: &mut Registry) {
        if self.mode == Mode::Poll {
            self.pace.check_soon();
        } else {
            self.program_timer(registry);
        }
    }

    /// Sets the timer descriptor for the next timer, if that is earlier than what it is set for.
    pub(super) fn program_timer(&self, registry: &mut Registry) {
        let due = registry.next_due();
        if let (true, Some(io)) = (due < registry.programmed, self.io()) {
            match io.timer.set(Deadline::at_ticks(due).remaining()) {
                Ok(()) => registry.programmed = due,
                Err(error) => crate::log::error!(%error, "timers of an asynchronous context will be late"),
            }
        }
    }

    /// In a thread a descriptor reports once and is armed again when its handler has returned:
    /// otherwise one that is ready while the context is blocked would keep the thread spinning.
    fn kernel_events(&self, events: Events) -> Events {
        let wanted = events & (Events::READ | Events::WRITE);
        if self.mode == Mode::Poll { wanted } else { wanted | Events::ONE_SHOT }
    }
}

/// Running handlers.
impl Shared {
    #[inline]
    pub(super) fn block(&self) {
        self.block.enter();
    }

    #[inline]
    pub(super) fn unblock(&self) {
        let mut replayed = Vec::new();
        if !self.block.leave(|| self.replay(&mut replayed)) {
            crate::log::error!("an asynchronous context was unblocked by a thread that has not blocked it");
        }
        self.rearm_all(&replayed);
    }

    pub(super) fn is_blocked_here(&self) -> bool {
        self.block.is_entered_here()
    }

    /// Runs a handler now, or puts its events aside if the context is blocked. Returns the number of handlers
    /// that ran.
    pub(super) fn deliver(&self, id: HandlerId, events: Events) -> usize {
        if self.block.try_enter() {
            let ran = self.run(id, events);
            self.unblock();
            self.rearm_all(&[id]);
            return usize::from(ran);
        }
        self.registry().push_missed(id, events);
        if self.block.note_missed() && self.block.try_enter() {
            self.unblock();
        }
        0
    }

    /// Runs one handler; the block is entered. Returns whether there was something to run.
    pub(super) fn run(&self, id: HandlerId, events: Events) -> bool {
        let Some((mut callback, events)) = self.registry().begin(id, events, thread_token()) else {
            return false;
        };
        let outcome = callback.call(id, events);
        let mut registry = self.registry();
        if let Err(Panicked(message)) = outcome {
            let is_registered = self.take_out(&mut registry, id).is_some();
            crate::log::error!(%id, message, is_registered, "an asynchronous handler panicked and is removed");
        }
        if let Some(removed) = registry.end(id, callback) {
            // A thread that waits in `remove` may rely on the closure being gone.
            drop(registry);
            drop(removed);
            self.registry().running = None;
            self.handler_returned.notify_all();
        }
        true
    }

    /// Runs everything that was put aside; the block is entered.
    fn replay(&self, replayed: &mut Vec<HandlerId>) {
        if self.mode == Mode::Poll {
            // Descriptors report as long as they are ready and timers stay due, so looking again finds it
            // all.
            self.run_ready();
            return;
        }
        loop {
            let next = self.registry().pop_missed();
            let Some((id, events)) = next else { return };
            self.run(id, events);
            replayed.push(id);
        }
    }

    /// Lets handlers that have run be reported again. After the block is left, so that a replay comes to an
    /// end.
    fn rearm_all(&self, ids: &[HandlerId]) {
        if ids.is_empty() || self.mode == Mode::Poll {
            return;
        }
        let mut registry = self.registry();
        for &id in ids {
            match registry.source(id) {
                Some(Source::Fd { fd, events }) if registry.is_armed(id) => {
                    let rearmed =
                        self.io().map(|io| io.set.modify_raw(fd, self.kernel_events(events), id.to_raw()));
                    if let Some(Err(error)) = rearmed {
                        crate::log::debug!(%error, %id, "a descriptor was closed before its handler was removed");
                    }
                }
                Some(Source::Timer(_)) => registry.continue_timer(id),
                _ => {}
            }
        }
        self.program_timer(&mut registry);
    }
}

/// Waiting and closing.
impl Shared {
    pub(super) fn next_deadline(&self) -> Deadline {
        match self.mode {
            Mode::Poll => Deadline::at_ticks(self.registry().next_due()),
            Mode::Thread => Deadline::NEVER,
        }
    }

    pub(super) fn event_fd(self: &Arc<Shared>) -> Result<BorrowedFd<'_>, AsyncError> {
        let registry = self.open_registry()?;
        Ok(self.prepare(&registry)?.set.as_fd())
    }

    pub(super) fn arm(&self) -> status::Result {
        let mut registry = self.registry();
        let due = registry.next_due();
        if self.mode != Mode::Poll {
            return Ok(());
        }
        if due <= clock::ticks() {
            self.pace.check_soon();
            return Err(status::Error::BUSY);
        }
        if registry.programmed != due {
            // It may be set for a timer that has been removed, and may have fired for one that has run.
            if let Some(io) = self.io() {
                io.timer.clear()?;
            }
            registry.programmed = u64::MAX;
            self.program_timer(&mut registry);
        }
        // The thread that is woken finds what woke it.
        self.pace.check_soon();
        Ok(())
    }

    /// Removes all handlers and ends the thread.
    pub(super) fn close(&self) {
        let mut registry = self.registry();
        registry.is_closed = true;
        let ids = registry.ids();
        let callbacks: Vec<_> = ids.into_iter().map(|id| self.take_out(&mut registry, id)).collect();
        let deadline = Deadline::after(SHUTDOWN_LIMIT);
        let token = thread_token();
        let elsewhere = |registry: &mut Registry| registry.running.is_some_and(|(_, thread)| thread != token);
        let wait = self.handler_returned.wait_timeout_while(registry, SHUTDOWN_LIMIT, elsewhere);
        let (registry, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
        drop(registry);
        drop(callbacks);
        if timeout.timed_out() {
            let limit = SHUTDOWN_LIMIT;
            crate::log::error!(
                ?limit,
                "an asynchronous handler has not returned; its context is closed without it"
            );
        }
        if let Some(io) = self.io() {
            self.thread.stop(&io.wake, deadline.remaining());
        }
    }
}

fn check(schedule: Schedule) -> Result<(), AsyncError> {
    if schedule == Schedule::Every(Duration::ZERO) { Err(AsyncError::ZeroInterval) } else { Ok(()) }
}
