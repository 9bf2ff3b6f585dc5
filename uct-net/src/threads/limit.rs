//! A time that ends, for any thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::confined::Confined;
use super::engine::Engine;
use super::outside::Signals;
use crate::flavour::Timer;
use crate::local::reactor::Sleep;

/// A time that ends, by the engine's timers.
pub struct Limit {
    sleep: Confined<RefCell<Sleep>>,
    signal: Signals,
}

impl Limit {
    pub(super) fn new(engine: &Arc<Engine>, time: Duration) -> Limit {
        let sleep = engine.enter(|entered| {
            let sleep = RefCell::new(entered.net().reactor.sleep(time));
            entered.returns();
            entered.confine(sleep)
        });
        Limit { sleep, signal: Signals::default() }
    }
}

impl Timer for Limit {
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let waker = self.signal.waker(self.sleep.engine().outside(), context.waker());
        let waker = &waker;
        self.sleep.with(|entered, sleep| {
            let is_over = sleep.borrow_mut().poll_due(&mut Context::from_waker(waker));
            if is_over.is_pending() {
                entered.rest();
            }
            is_over
        })
    }
}
