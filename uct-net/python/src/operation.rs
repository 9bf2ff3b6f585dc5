//! A call that is awaited: an object with the protocol of coroutines, which suspends the task only if the call does not
//! end at once.

use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;

use crate::call::{Call, stop};
use crate::event_loop::{Driven, EventLoop, Wait, Wakeup};
use crate::state::NetState;

/// An operation of `uct.aio`, to be awaited once. It begins when it is awaited; when its task is cancelled it ends as
/// documented for each.
#[pyclass(frozen, module = "uct.aio")]
pub(crate) struct Operation {
    /// Of the method that made it.
    name: &'static str,
    state: Arc<NetState>,
    running: Mutex<Running>,
}

struct Running {
    /// Until it has ended.
    call: Option<Call>,
    is_begun: bool,
    /// The outcome of an operation that needs no call.
    value: Option<Py<PyAny>>,
    /// What the task waits for, in an event loop.
    wait: Option<Wait>,
}

impl Operation {
    pub(crate) fn new(name: &'static str, state: &Arc<NetState>, call: Call) -> Operation {
        Operation::with(name, state, Some(call), None)
    }

    /// One that is done at once, with this outcome.
    pub(crate) fn ready(state: &Arc<NetState>, value: Py<PyAny>) -> Operation {
        Operation::with("", state, None, Some(value))
    }

    /// The call, if there is anything to do.
    pub(crate) fn of(
        name: &'static str,
        py: Python<'_>,
        state: &Arc<NetState>,
        call: Option<Call>,
    ) -> Operation {
        call.map_or_else(|| Operation::ready(state, py.None()), |call| Operation::new(name, state, call))
    }

    fn with(
        name: &'static str,
        state: &Arc<NetState>,
        call: Option<Call>,
        value: Option<Py<PyAny>>,
    ) -> Operation {
        let running = Running { call, is_begun: false, value, wait: None };
        Operation { name, state: Arc::clone(state), running: Mutex::new(running) }
    }

    /// Polls it. Returns what the task has to wait for; the end is an exception.
    fn step(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let busy = |_| PyRuntimeError::new_err("another task awaits this operation");
        let mut running = self.running.try_lock().map_err(busy)?;
        running.wait = None;
        running.is_begun = true;
        if let Some(value) = running.value.take() {
            return Err(stop(value));
        }
        let Some(call) = &mut running.call else {
            return Err(PyRuntimeError::new_err("this operation has been awaited already"));
        };
        let wakeup = Arc::new(Wakeup::default());
        match call.poll(py, &Waker::from(Arc::clone(&wakeup))) {
            Poll::Ready(outcome) => {
                let call = running.call.take();
                drop(running);
                let value = call.map(|call| call.finish(py, outcome)).transpose()?;
                Err(stop(value.unwrap_or_else(|| py.None())))
            }
            Poll::Pending => {
                let event_loop = self.state.loops.current(py, || self.driven())?;
                let Some(wait) = EventLoop::wait(&event_loop, &wakeup)? else {
                    // It was woken already, or others have their turn: the task comes again in the loop's next round.
                    return Ok(py.None());
                };
                let future = wait.future.clone_ref(py);
                running.wait = Some(wait);
                Ok(future)
            }
        }
    }

    /// The net, as event loops know it.
    fn driven(&self) -> Weak<dyn Driven> {
        let driven: Arc<dyn Driven> = Arc::<NetState>::clone(&self.state);
        Arc::downgrade(&driven)
    }

    /// Ends it.
    fn end(&self) {
        if let Ok(mut running) = self.running.try_lock() {
            let ended = (running.call.take(), running.value.take(), running.wait.take());
            drop(running);
            drop(ended);
        }
    }
}

/// An `await` that was forgotten is reported, as that of a coroutine is.
impl Drop for Operation {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        if running.call.is_some() && !running.is_begun {
            never_awaited(self.name);
        }
    }
}

#[cold]
fn never_awaited(name: &str) {
    let warn = |py: Python<'_>| -> PyResult<()> {
        let sys = py.import(intern!(py, "sys"));
        let is_ending = sys.and_then(|sys| sys.call_method0(intern!(py, "is_finalizing"))?.is_truthy());
        // A module that is not found is gone already.
        if is_ending.unwrap_or(true) {
            return Ok(());
        }
        let text = CString::new(format!("'{name}' of uct.aio was never awaited"))?;
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
    };
    // Not attached once the interpreter has ended.
    Python::try_attach(|py| {
        // It may be dropped while an exception is on its way.
        let raised = PyErr::take(py);
        if let Err(failed) = warn(py) {
            failed.write_unraisable(py, None);
        }
        if let Some(raised) = raised {
            raised.restore(py);
        }
    });
}

#[pymethods]
impl Operation {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.step(py)
    }

    /// As a coroutine's, so that `asyncio.create_task` takes it.
    fn send(&self, py: Python<'_>, _value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        self.step(py)
    }

    /// As a coroutine's: ends the operation and raises the exception.
    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.end();
        let exception = match value {
            Some(value) if value.is_instance_of::<pyo3::exceptions::PyBaseException>() => value,
            Some(value) => kind.call1((value,))?,
            None if kind.is_callable() => kind.call0()?,
            None => kind,
        };
        if let Some(traceback) = traceback {
            exception.setattr(intern!(py, "__traceback__"), traceback)?;
        }
        Err(PyErr::from_value(exception))
    }

    /// As a coroutine's: ends the operation.
    fn close(&self) {
        self.end();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.running.try_lock() {
            Ok(running) => {
                visit.call(&running.value)?;
                running.wait.as_ref().map_or(Ok(()), |wait| visit.call(&wait.future))
            }
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.end();
    }
}
