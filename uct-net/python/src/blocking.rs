//! Waiting for a call in place. Other threads of Python run meanwhile, and signals are answered.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rustix::process::getpid;
use rustix::thread::gettid;
use uct_net::{Net, Result};

use crate::call::{Call, Outcome, Work};
use crate::error::timed_out;

/// How often the main thread looks for signals: each look takes about a tenth of a millisecond.
const TICK: Duration = Duration::from_millis(250);
/// Polls, each with a turn of the engine, ahead of the first timer: what comes within some microseconds needs none.
const POLLS: u32 = 16;

impl Call {
    /// Waits for its end, at most for so long.
    pub(crate) fn block(mut self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Py<PyAny>> {
        if self.is_quick
            && let Poll::Ready(outcome) = self.work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return self.finish(py, outcome);
        }
        let (net, work) = (&self.net, &mut self.work);
        let waiting = Waiting {
            net,
            work,
            polls: 0,
            deadline: limit.map(|limit| (Instant::now(), limit)),
            timer: None,
        };
        match py.detach(|| net.block_on(waiting)) {
            End::Ready(outcome) => self.finish(py, outcome),
            End::TimedOut(limit) => {
                let error = timed_out(self.about.0, &self.about.1, limit);
                self.finish(py, Err(error))
            }
            End::Interrupted(error) => Err(error),
        }
    }
}

/// How a wait ends.
enum End {
    Ready(Result<Outcome>),
    TimedOut(Duration),
    /// The handler of a signal has raised this.
    Interrupted(PyErr),
}

/// The end of a call, of its limit, or a signal.
struct Waiting<'a> {
    net: &'a Net,
    work: &'a mut Work,
    polls: u32,
    /// When it began, and the limit.
    deadline: Option<(Instant, Duration)>,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}

impl Waiting<'_> {
    /// The rest of the limit.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|(began, limit)| limit.saturating_sub(began.elapsed()))
    }
}

impl Future for Waiting<'_> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        self.polls += 1;
        if self.polls > 1
            && let Poll::Ready(outcome) = self.work.as_mut().poll(context)
        {
            return Poll::Ready(End::Ready(outcome));
        }
        // At first for this thread to become the one that drives, so that nothing is armed yet.
        if self.polls <= POLLS {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let left = self.left();
            if let (Some(Duration::ZERO), Some((_, limit))) = (left, self.deadline) {
                return Poll::Ready(End::TimedOut(limit));
            }
            if self.timer.is_none() {
                let tick = is_main_thread().then_some(TICK);
                let Some(time) = left.into_iter().chain(tick).min() else { return Poll::Pending };
                self.timer = Some(Box::pin(self.net.sleep(time)));
            }
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(context));
            }
            self.timer = None;
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                return Poll::Ready(End::Interrupted(error));
            }
        }
    }
}

/// Python handles signals in the main thread alone.
fn is_main_thread() -> bool {
    gettid() == getpid()
}
