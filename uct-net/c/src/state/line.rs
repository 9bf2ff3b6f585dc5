//! Operations that wait for the next of something: messages, shared memory, notifications, callers. They are served in
//! the order of the calls, by one future, which is spawned when one has to wait for the first time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::flight::{Flight, Sweep};
use super::{Done, State};
use crate::failure::{Failure, Outcome};

/// See the module. `T` is what an operation brings with it.
pub struct Line<T> {
    waiting: RefCell<VecDeque<(Rc<Flight>, T)>>,
    /// Of the future that serves it.
    waker: RefCell<Option<Waker>>,
    is_served: Cell<bool>,
    is_closed: Cell<bool>,
}

/// The future that serves a line. When it ends, nothing waits any more.
pub struct Serving<T: Copy + 'static> {
    state: Rc<State>,
    line: Rc<Line<T>>,
}

impl<T: Copy + 'static> Line<T> {
    pub fn new() -> Rc<Line<T>> {
        Rc::new(Line {
            waiting: RefCell::default(),
            waker: RefCell::default(),
            is_served: Cell::new(false),
            is_closed: Cell::new(false),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Adds an operation. Returns its number, and whether a future has to be spawned that serves it.
    pub fn add(self: &Rc<Self>, state: &State, kind: u32, user: u64, what: T) -> (u64, bool) {
        let line: Rc<dyn Sweep> = Rc::<Line<T>>::clone(self);
        let flight = Rc::new(Flight::in_line(state.next_op(), user, kind, line));
        let op = state.add_flight(&flight);
        self.waiting.borrow_mut().push_back((flight, what));
        if self.is_closed.get() {
            self.close(state);
        }
        self.wake();
        (op, !self.is_served.replace(true))
    }

    /// Ends those that wait. The future that serves the line ends, too.
    pub fn close(&self, state: &State) {
        self.is_closed.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for (flight, _) in waiting {
            state.end(&flight, Err(Failure::canceled("this side has closed what it waits for")));
        }
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.borrow().clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Sweep for Line<T> {
    fn sweep(&self, state: &State) {
        let canceled: VecDeque<_> = {
            let mut waiting = self.waiting.borrow_mut();
            let (canceled, rest) = waiting.drain(..).partition(|(flight, _)| flight.is_canceled());
            *waiting = rest;
            canceled
        };
        for (flight, _) in canceled {
            state.end(&flight, Err(Failure::canceled("it was cancelled")));
        }
        let waker = self.waker.borrow().clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T: Copy + 'static> Serving<T> {
    pub fn new(state: &Rc<State>, line: &Rc<Line<T>>) -> Serving<T> {
        Serving { state: Rc::clone(state), line: Rc::clone(line) }
    }

    /// The first operation that waits, now or later. `None` when the line is closed.
    pub async fn next(&self) -> Option<(Rc<Flight>, T)> {
        poll_fn(|context| {
            if self.line.is_closed.get() {
                return Poll::Ready(None);
            }
            self.register(context);
            let waiting = self.line.waiting.borrow();
            waiting
                .front()
                .map_or(Poll::Pending, |(flight, what)| Poll::Ready(Some((Rc::clone(flight), *what))))
        })
        .await
    }

    /// What the first operation waits for, or `None` if it does not wait any more.
    pub async fn race<F: Future>(&self, flight: &Flight, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|context| {
            if self.line.is_closed.get() || flight.is_canceled() {
                return Poll::Ready(None);
            }
            self.register(context);
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// The first operation has ended.
    pub fn end(&self, flight: &Flight, outcome: Outcome<Done>) {
        self.line.waiting.borrow_mut().pop_front();
        self.state.end(flight, outcome);
    }

    /// As [`Serving::end`], for a message that is too long.
    pub fn end_too_long(&self, flight: &Flight, length: usize, failure: Failure) {
        self.line.waiting.borrow_mut().pop_front();
        if self.state.flights.borrow_mut().remove(&flight.op).is_some() {
            self.state.report_failure(flight.op, flight.user, flight.kind, length as u64, failure);
        }
    }

    pub fn state(&self) -> &Rc<State> {
        &self.state
    }

    fn register(&self, context: &Context<'_>) {
        let mut waker = self.line.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }
}

impl<T: Copy + 'static> Drop for Serving<T> {
    fn drop(&mut self) {
        self.line.close(&self.state);
    }
}
