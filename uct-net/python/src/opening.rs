//! The operations of a net, as calls.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uct_net::Stage;

use crate::call::{Call, Outcome};
use crate::connected::Connected;
use crate::error::{argument, exception, seconds};
use crate::listening::Listening;
use crate::memory::Memory;
use crate::settings::{names, request};
use crate::state::NetState;

/// What an attempt to connect needs.
pub(crate) struct Wanted<'a, 'py> {
    pub(crate) address: &'a str,
    pub(crate) timeout: Option<f64>,
    pub(crate) require: Option<&'a Bound<'py, PyAny>>,
    pub(crate) request: Option<&'a Bound<'py, PyAny>>,
    pub(crate) private: &'a [u8],
}

/// A call that connects; `make` makes the object of the connection.
pub(crate) fn connect(
    py: Python<'_>,
    state: &Arc<NetState>,
    wanted: &Wanted<'_, '_>,
    make: fn(Python<'_>, Arc<Connected>) -> PyResult<Py<PyAny>>,
) -> PyResult<Call> {
    let net = state.net().map_err(|refused| exception(py, &refused))?;
    let mut connect = net.connect(wanted.address).private(wanted.private);
    if let Some(timeout) = wanted.timeout {
        connect = connect.within(seconds("timeout", timeout)?);
    }
    let require = wanted.require.map(|names_| names("require", names_)).transpose()?;
    for name in require.as_ref().unwrap_or(&state.require) {
        connect = connect.require(name);
    }
    if let Some(wanted) = wanted.request {
        connect = connect.request(request(wanted)?);
    }
    let own = Arc::clone(state);
    let work = async move {
        let connection = connect.await?;
        Ok(Outcome::made(move |py| make(py, Connected::new(&own, connection))))
    };
    Ok(Call::new(net, (Stage::Dial, wanted.address.into()), work))
}

/// A call that listens at an address; `make` makes the object of the listener.
pub(crate) fn listen(
    py: Python<'_>,
    state: &Arc<NetState>,
    address: &str,
    make: fn(Python<'_>, Arc<Listening>) -> PyResult<Py<PyAny>>,
) -> PyResult<Call> {
    let net = state.net().map_err(|refused| exception(py, &refused))?;
    let (own, listen) = (Arc::clone(state), net.listen(address));
    let work = async move {
        let listener = listen.await?;
        Ok(Outcome::made(move |py| make(py, Listening::new(&own, listener))))
    };
    Ok(Call::new(net, (Stage::Listen, address.into()), work))
}

/// Registered memory.
pub(crate) fn allocate(py: Python<'_>, state: &Arc<NetState>, length: usize) -> PyResult<Memory> {
    if length == 0 {
        return Err(PyValueError::new_err("memory of 0 bytes: expected at least 1"));
    }
    let net = state.net().map_err(|refused| exception(py, &refused))?;
    let memory = py.detach(|| net.allocate(length)).map_err(|refused| argument(py, &refused))?;
    Ok(Memory::new(memory, length, Arc::clone(state)))
}
