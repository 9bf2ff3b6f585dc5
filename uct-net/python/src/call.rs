//! One operation on a net: its future, and its outcome as an object of Python. `blocking` waits for it in place,
//! `operation` is awaited.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ucs::Error as Status;
use uct_net::{Error, Message, Net, Result, Stage};

use crate::error::exception;

/// The future of an operation.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;
type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What an operation has brought, before it is an object of Python.
pub(crate) enum Outcome {
    /// `None`.
    Nothing,
    /// A message, which becomes `bytes`.
    Message(Message),
    /// A length, or the value of a word.
    Number(u64),
    /// Anything else.
    Made(Make),
}

impl Outcome {
    pub(crate) fn made(make: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static) -> Outcome {
        Outcome::Made(Box::new(make))
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Outcome::Nothing => Ok(py.None()),
            Outcome::Message(message) => Ok(PyBytes::new(py, &message).into_any().unbind()),
            Outcome::Number(number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
            Outcome::Made(make) => make(py),
        }
    }
}

/// An operation that has not ended.
pub(crate) struct Call {
    pub(crate) net: Net,
    pub(crate) work: Work,
    /// Mostly done at its first poll, which copies few bytes.
    pub(crate) is_quick: bool,
    /// Copies many bytes: others run meanwhile.
    pub(crate) is_long: bool,
    /// An item of an iteration, which ends in order.
    is_next: bool,
    /// For the error of a limit.
    pub(crate) about: (Stage, Arc<str>),
    /// Says that what it uses is in use.
    _using: Option<Arc<()>>,
}

impl Call {
    pub(crate) fn new(
        net: Net,
        about: (Stage, Arc<str>),
        work: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Call {
        Call {
            net,
            work: Box::pin(work),
            is_quick: false,
            is_long: false,
            is_next: false,
            about,
            _using: None,
        }
    }

    pub(crate) fn using(self, using: Arc<()>) -> Call {
        Call { _using: Some(using), ..self }
    }

    pub(crate) fn quick(self, is_quick: bool) -> Call {
        Call { is_quick, ..self }
    }

    pub(crate) fn long(self, is_long: bool) -> Call {
        Call { is_long, ..self }
    }

    /// An item of an iteration.
    pub(crate) fn next(self) -> Call {
        Call { is_next: true, ..self }
    }

    /// Polls it in this thread, which drives the net meanwhile: what is not ready at once is then not armed in vain.
    pub(crate) fn poll(&mut self, py: Python<'_>, waker: &Waker) -> Poll<Result<Outcome>> {
        let Call { net, work, .. } = self;
        let mut context = Context::from_waker(waker);
        if self.is_quick {
            return work.as_mut().poll(&mut context);
        }
        let mut is_driving = false;
        let drive = std::future::poll_fn(|driver| {
            if std::mem::replace(&mut is_driving, true) {
                return Poll::Ready(work.as_mut().poll(&mut Context::from_waker(waker)));
            }
            driver.waker().wake_by_ref();
            Poll::Pending
        });
        if self.is_long { py.detach(|| net.block_on(drive)) } else { net.block_on(drive) }
    }

    /// The outcome as Python has it.
    pub(crate) fn finish(self, py: Python<'_>, outcome: Result<Outcome>) -> PyResult<Py<PyAny>> {
        match outcome {
            Ok(outcome) => outcome.into_python(py),
            Err(error) if self.is_next && is_end(&error) => Err(PyStopAsyncIteration::new_err(())),
            Err(error) => Err(exception(py, &error)),
        }
    }
}

/// Whether an iteration ends with this error: the peer has closed, or this side has.
fn is_end(error: &Error) -> bool {
    error.is_closed_by_peer() || error.stage == Stage::Close && error.status == Status::CANCELED
}

/// What a blocking iteration returns: `None` at its end.
pub(crate) fn item(py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    match outcome {
        Err(end) if end.is_instance_of::<PyStopAsyncIteration>(py) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// The end of an awaited operation, as Python's protocol has it: an exception with the value.
pub(crate) fn stop(value: Py<PyAny>) -> PyErr {
    PyStopIteration::new_err((value,))
}
