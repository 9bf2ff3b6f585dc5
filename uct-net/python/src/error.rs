//! Errors of `uct-net` as the exceptions of `uct.errors`, and seconds of Python as durations.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use ucs::Error as Status;
use uct_net::{Error, Stage};

static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TIMED_OUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CLOSED: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (class, name) = if error.is_timeout() {
        (&TIMED_OUT, "TimedOut")
    } else if error.is_closed_by_peer() {
        (&CLOSED, "Closed")
    } else {
        (&ERROR, "Error")
    };
    let Error { stage, peer, status, reason, hint } = error;
    let status = status.status().name().unwrap_or("UNKNOWN");
    let made = class
        .import(py, "uct.errors", name)
        .and_then(|class| class.call1((stage.to_string(), peer, status, reason, hint.as_deref())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// What is wrong with the arguments is a `ValueError`.
pub(crate) fn argument(py: Python<'_>, error: &Error) -> PyErr {
    match error.status {
        Status::INVALID_PARAM | Status::OUT_OF_RANGE => PyValueError::new_err(error.reason.clone()),
        _ => exception(py, error),
    }
}

/// The end of an operation at its limit.
pub(crate) fn timed_out(stage: Stage, peer: &str, limit: Duration) -> Error {
    error(stage, peer, Status::TIMED_OUT, format!("not within {limit:?}"))
}

/// An error without a remedy.
pub(crate) fn error(stage: Stage, peer: &str, status: Status, reason: impl Into<String>) -> Error {
    Error { stage, peer: peer.to_owned(), status, reason: reason.into(), hint: None }
}

/// Seconds, as Python has them.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    let refused = |_| PyValueError::new_err(format!("{name} = {seconds}: expected seconds, 0 or more"));
    Duration::try_from_secs_f64(seconds).map_err(refused)
}

/// A limit of time; `None` for no limit.
pub(crate) fn limit(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    timeout.map(|timeout| seconds("timeout", timeout)).transpose()
}
