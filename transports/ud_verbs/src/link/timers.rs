//! The timers of an interface in the worker's asynchronous context.
//!
//! Built on `uct_plugin::Worker`. A slow timer always runs, for keepalive and the like; a fast one
//! as long as something is due soon. Neither waits for the worker's thread: if that is inside, it handles what is due.
//! While the worker sleeps a tick would wake it, so one that comes only when something is due takes the fast one's place.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use uct_plugin::{AsyncId, Result, Worker};

use crate::link::core::Core;
use crate::link::lock::{Guard, Lock};
use crate::proto::Time;

/// Interval of the slow timer.
const SLOW: Duration = Duration::from_nanos(SLOW_NANOS);
const SLOW_NANOS: u64 = 500_000_000;

/// Ticks without need after which the fast timer is stopped.
const QUIET: u32 = 50;

/// Calls in a row, after which a worker that has slept counts as awake.
const AWAKE: u32 = 32;

/// The timers of an interface: the slow one, and what starts the fast one.
pub(crate) struct Timers {
    lock: Arc<Lock<Core>>,
    worker: Worker,
    /// Interval of the fast timer.
    tick: Duration,
    /// The timer that always runs, slowly.
    slow: Cell<Option<AsyncId>>,
}

impl Timers {
    /// None runs yet.
    pub(crate) fn new(lock: &Arc<Lock<Core>>, worker: Worker, tick: Duration) -> Timers {
        Timers { lock: Arc::clone(lock), worker, tick, slow: Cell::new(None) }
    }

    /// Starts the slow timer.
    pub(crate) fn start_slow(&self) -> Result {
        self.slow.set(Some(self.start(SLOW)?));
        Ok(())
    }

    /// Starts a timer that ticks until it is removed, which [`Timers::stop`] does at the latest.
    fn start(&self, interval: Duration) -> Result<AsyncId> {
        let argument = Arc::as_ptr(&self.lock).cast_mut().cast::<c_void>();
        // SAFETY: the shared state lives as long as the interface, which removes its timers when it is closed; `tick` may be
        // called from any thread that `Lock` was made for, for it visits, and never enters.
        unsafe { self.worker.async_add_timer(interval, tick, argument) }
    }

    /// Starts the fast timer if something is due before the slow one ticks.
    #[cold]
    pub(crate) fn keep_ticking(&self, guard: &Guard<'_, Core>) {
        let (is_wanted, sleeper) = guard.with(|core| {
            if !is_near(core) {
                return (false, None);
            }
            // A worker that sleeps between messages is likely to sleep again soon.
            if core.asleep_until.is_some() && core.calls_since_sleep < AWAKE {
                core.calls_since_sleep += 1;
                core.pending_work.add();
                return (false, None);
            }
            core.asleep_until = None;
            (true, core.timer.take())
        });
        if let Some(timer) = sleeper {
            self.worker.async_remove(timer);
        }
        if is_wanted {
            self.begin(guard, self.tick);
        }
    }

    /// The worker is about to sleep: lets a timer wake it when something is due, and not before.
    pub(crate) fn prepare_sleep(&self, guard: &Guard<'_, Core>) {
        let (old_timer, interval) = guard.with(|core| {
            core.calls_since_sleep = 0;
            let deadline = core.table.refresh_timeout();
            let until = core.asleep_until.unwrap_or_default();
            core.asleep_until = Some(Time::NEVER);
            core.is_ticking = false;
            if deadline.since(core.clock.now()) >= SLOW_NANOS {
                return (core.timer.take(), None);
            }
            let patience = deadline.since(core.clock.now()).max(1);
            // As late again does no harm, and the timer need not be moved with every message.
            let latest = deadline.plus(patience);
            if core.timer.is_some() && deadline <= until && until <= latest {
                core.asleep_until = Some(until);
                return (None, None);
            }
            core.asleep_until = Some(latest);
            (core.timer.take(), Some(Duration::from_nanos(latest.since(core.clock.now()))))
        });
        if let Some(timer) = old_timer {
            self.worker.async_remove(timer);
        }
        if let Some(interval) = interval {
            self.begin(guard, interval);
        }
    }

    fn begin(&self, guard: &Guard<'_, Core>, interval: Duration) {
        match self.start(interval) {
            Ok(timer) => guard.with(|core| {
                core.timer = Some(timer);
                core.is_ticking = core.asleep_until.is_none();
                core.quiet_ticks = 0;
            }),
            Err(error) => {
                ucs::log::debug!(%error, "the fast timer could not be started; the slow one is used")
            }
        }
    }

    /// Stops them all.
    pub(crate) fn stop(&self, guard: &Guard<'_, Core>) {
        let fast = guard.with(|core| core.timer.take());
        for timer in self.slow.take().into_iter().chain(fast) {
            self.worker.async_remove(timer);
        }
    }
}

/// Whether the next deadline comes before the slow timer's next tick may, as far as is known.
fn is_near(core: &Core) -> bool {
    core.has_deferred() || core.table.next_timeout() < core.clock.now().plus(SLOW_NANOS)
}

unsafe extern "C" fn tick(argument: *mut c_void, _id: u64, _events: u32) {
    // A panic must not leave this function; one of these kept in the tick is a bug that the next progress meets again.
    let outcome = std::panic::catch_unwind(|| {
        // SAFETY: the interface keeps the shared state until its timers are removed (`start`).
        let shared = unsafe { &*argument.cast::<Lock<Core>>() };
        let ticked = shared.visit(|core| {
            core.tick();
            core.quiet_ticks = if is_near(core) { 0 } else { core.quiet_ticks + 1 };
            let unneeded = if core.quiet_ticks > QUIET { core.timer.take() } else { None };
            core.is_ticking &= unneeded.is_none();
            (unneeded, core.worker, core.has_reports())
        });
        // Without a result, the worker's thread is inside, and finds the flag that work is due.
        let Some((unneeded, worker, has_reports)) = ticked else { return };
        if let Some(timer) = unneeded {
            worker.async_remove(timer);
        }
        if has_reports {
            worker.wake();
        }
    });
    if outcome.is_err() {
        ucs::log::error!("a timer of ud_verbs panicked");
    }
}

impl Core {
    /// As the timer's tick, in its place.
    #[cold]
    pub(crate) fn tick_in_progress(&mut self) {
        self.tick();
        self.idle_ticks = 0;
    }
}
