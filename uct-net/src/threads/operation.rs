//! An operation of the flavour for one thread, as a future for any thread.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ucs::memory::fork::Forked;

use super::confined::Confined;
use super::engine::{Engine, Entered};
use super::outside::Signals;
use crate::error::{Error, Result, Stage, THIS_PROCESS};

type Local<L> = Pin<Box<dyn Future<Output = Result<L>>>>;

/// The future of an operation. Dropping it cancels the operation, unless the function that returned it documents otherwise.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Operation<T> {
    /// Refused in a child of a fork.
    task: Result<Box<dyn Task<T>>, Forked>,
    /// For that error.
    stage: Stage,
    signal: Signals,
}

trait Task<T>: Send + Sync {
    fn poll(&self, context: &mut Context<'_>, signal: &Signals) -> Result<Poll<Result<T>>, Forked>;
}

/// A future of the engine's, and what makes its output one for any thread.
struct Running<L: 'static, T> {
    future: Confined<RefCell<Local<L>>>,
    finish: fn(&Entered<'_>, L) -> T,
}

impl<T: Send + 'static> Operation<T> {
    /// Has the engine work at what `begin` returns. What that borrows is its own.
    pub(super) fn new<L: 'static, F: Future<Output = Result<L>> + 'static>(
        engine: &Arc<Engine>,
        stage: Stage,
        begin: impl FnOnce(&Entered<'_>) -> F + Send,
        finish: fn(&Entered<'_>, L) -> T,
    ) -> Operation<T> {
        let future = engine.enter(|entered| {
            let future: Local<L> = Box::pin(begin(entered));
            entered.returns();
            entered.confine(RefCell::new(future))
        });
        let task = future.map(|future| Box::new(Running { future, finish }) as Box<dyn Task<T>>);
        Operation { task, stage, signal: Signals::default() }
    }
}

impl<L, T: Send> Task<T> for Running<L, T> {
    fn poll(&self, context: &mut Context<'_>, signal: &Signals) -> Result<Poll<Result<T>>, Forked> {
        let waker = signal.waker(self.future.engine().outside(), context.waker());
        let (waker, finish) = (&waker, self.finish);
        self.future.with(|entered, future| {
            let outcome = future.borrow_mut().as_mut().poll(&mut Context::from_waker(waker));
            if outcome.is_pending() {
                entered.rest();
            }
            outcome.map_ok(|output| finish(entered, output))
        })
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let polled = match &self.task {
            Ok(task) => task.poll(context, &self.signal),
            Err(forked) => Err(*forked),
        };
        polled.unwrap_or_else(|forked| Poll::Ready(Err(Error::forked(self.stage, THIS_PROCESS, forked))))
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}
