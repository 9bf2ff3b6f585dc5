//! A time that ends, for any thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ucs::memory::fork::Forked;

use super::confined::Confined;
use super::engine::Engine;
use super::outside::Signals;
use crate::flavour::Timer;
use crate::local::reactor::{CHILD_SLEEP, Sleep, due};

/// A time that ends, by the engine's timers.
pub struct Limit {
    /// None in a child of a fork: the engine's timers are the parent's.
    sleep: Result<Confined<RefCell<Sleep>>, Forked>,
    due: Instant,
    signal: Signals,
}

impl Limit {
    pub(super) fn new(engine: &Arc<Engine>, time: Duration) -> Limit {
        let made = engine.enter(|entered| {
            let sleep = entered.net().reactor.sleep(time);
            let due = sleep.due();
            entered.returns();
            (entered.confine(RefCell::new(sleep)), due)
        });
        let (sleep, due) = match made {
            Ok((sleep, due)) => (Ok(sleep), due),
            Err(forked) => (Err(forked), due(time)),
        };
        Limit { sleep, due, signal: Signals::default() }
    }

    /// In a child of a fork, where nothing else wakes the task.
    #[cold]
    fn poll_in_child(&self, context: &Context<'_>) -> Poll<()> {
        let left = self.due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        std::thread::sleep(left.min(CHILD_SLEEP));
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Timer for Limit {
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Ok(sleep) = &self.sleep else { return self.poll_in_child(context) };
        let waker = self.signal.waker(sleep.engine().outside(), context.waker());
        let waker = &waker;
        let polled = sleep.with(|entered, sleep| {
            let is_over = sleep.borrow_mut().poll_due(&mut Context::from_waker(waker));
            if is_over.is_pending() {
                entered.rest();
            }
            is_over
        });
        polled.unwrap_or_else(|_forked| self.poll_in_child(context))
    }
}
