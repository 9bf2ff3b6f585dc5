//! An operation that has not ended.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{Done, State};
use crate::failure::{Failure, Outcome};

/// See the module.
pub struct Flight {
    pub op: u64,
    pub user: u64,
    pub kind: u32,
    is_canceled: Cell<bool>,
    /// Of the future that carries it out.
    waker: RefCell<Option<Waker>>,
    /// Where it waits for its turn.
    line: Option<Rc<dyn Sweep>>,
}

/// Something with operations that wait.
pub trait Sweep {
    /// Ends those that are cancelled.
    fn sweep(&self, state: &State);
}

impl Flight {
    pub fn new(op: u64, user: u64, kind: u32) -> Flight {
        Flight { op, user, kind, is_canceled: Cell::new(false), waker: RefCell::default(), line: None }
    }

    /// One that waits in a line.
    pub fn in_line(op: u64, user: u64, kind: u32, line: Rc<dyn Sweep>) -> Flight {
        Flight { line: Some(line), ..Flight::new(op, user, kind) }
    }

    pub fn is_canceled(&self) -> bool {
        self.is_canceled.get()
    }

    /// Has it end early.
    pub fn cancel(&self, state: &State) {
        self.is_canceled.set(true);
        if let Some(line) = &self.line {
            line.sweep(state);
        }
        let waker = self.waker.borrow_mut().take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// The output of the future, or `None` once the operation is cancelled.
    pub async fn race<F: Future>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|context: &mut Context<'_>| {
            if self.is_canceled() {
                return Poll::Ready(None);
            }
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            drop(waker);
            future.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// Ends an operation, whatever becomes of its future: each has exactly one event.
pub struct Ending {
    state: Rc<State>,
    flight: Rc<Flight>,
}

impl Ending {
    pub fn new(state: &Rc<State>, flight: Rc<Flight>) -> Ending {
        Ending { state: Rc::clone(state), flight }
    }

    pub fn end(self, outcome: Outcome<Done>) {
        self.state.end(&self.flight, outcome);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.state.end(&self.flight, Err(Failure::canceled("the library ended it: the log has the reason")));
    }
}
