//! The timers of an interface in the worker's asynchronous context.
//!
//! For: the interface. Stands on `uct_plugin::Worker`. A slow timer always runs, for keepalive and the like; a fast one
//! as long as something is due soon. Neither waits for the worker's thread: if that is inside, it sees to what is due.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use uct_plugin::{AsyncId, Result};

use crate::core::Core;
use crate::iface::UdIface;
use crate::shared::{Guard, Shared};

/// Interval of the slow timer.
pub(crate) const SLOW: Duration = Duration::from_millis(500);

/// Ticks without need after which the fast timer is stopped.
const QUIET: u32 = 50;

/// Starts a timer that ticks until it is removed, which `Iface::close` does at the latest.
pub(crate) fn start(iface: &UdIface, interval: Duration) -> Result<AsyncId> {
    let argument = Arc::as_ptr(&iface.shared).cast_mut().cast::<c_void>();
    // SAFETY: the shared state lives as long as the interface, which removes its timers when it is closed; `tick` may be
    // called from any thread, for it tries to take hold, and never enters.
    unsafe { iface.worker.async_add_timer(interval, tick, argument) }
}

/// Starts the fast timer if something is due before the slow one sees to it.
#[cold]
pub(crate) fn keep_ticking(iface: &UdIface, guard: &Guard<'_, Core>) {
    let is_wanted = guard.with(|core| core.timer.is_none() && is_near(core));
    if !is_wanted {
        return;
    }
    match start(iface, iface.tick) {
        Ok(timer) => guard.with(|core| {
            core.timer = Some(timer);
            core.quiet_ticks = 0;
        }),
        Err(error) => tracing::debug!(%error, "the fast timer could not be started; the slow one stands in"),
    }
}

/// Whether the next deadline comes before the slow timer's next tick may.
fn is_near(core: &Core) -> bool {
    let slow = u64::try_from(SLOW.as_nanos()).unwrap_or(u64::MAX);
    core.table.next_timeout() < core.now.plus(slow)
}

unsafe extern "C" fn tick(argument: *mut c_void, _id: u64, _events: u32) {
    // A panic must not leave this function; one of these kept in the tick is a bug that the next progress meets again.
    let outcome = std::panic::catch_unwind(|| {
        // SAFETY: the interface keeps the shared state until its timers are removed (`start`).
        let shared = unsafe { &*argument.cast::<Shared<Core>>() };
        // Without the value, the worker's thread is inside, and finds word that something is due.
        let Some(guard) = shared.try_enter() else { return };
        let (unneeded, worker, has_events) = guard.with(|core| {
            core.tick();
            core.quiet_ticks = if is_near(core) { 0 } else { core.quiet_ticks + 1 };
            let unneeded = if core.quiet_ticks > QUIET { core.timer.take() } else { None };
            (unneeded, core.worker, core.table.has_events())
        });
        drop(guard);
        if let Some(timer) = unneeded {
            worker.async_remove(timer);
        }
        if has_events {
            worker.wake();
        }
    });
    if outcome.is_err() {
        tracing::error!("a timer of ud_verbs panicked");
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
