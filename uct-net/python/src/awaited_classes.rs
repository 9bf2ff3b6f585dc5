//! The classes of `uct.aio`: each call is awaited.

use std::sync::Arc;

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::connected::{Connected, LEAVING};
use crate::error::limit;
use crate::listening::Listening;
use crate::memory::{Memory, RemoteMemory};
use crate::moving::Moving;
use crate::opening::{self, Wanted};
use crate::operation::Operation;
use crate::settings::{END, Settings, names};
use crate::state::NetState;

/// As `uct.Net`, for asyncio: `async with`.
#[pyclass(frozen, module = "uct.aio", name = "AioNet")]
pub(crate) struct AioNet {
    state: Arc<NetState>,
}

#[pymethods]
impl AioNet {
    #[new]
    #[pyo3(signature = (*, tls=None, require=None, **settings))]
    fn new(
        py: Python<'_>,
        tls: Option<&Bound<'_, PyAny>>,
        require: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<AioNet> {
        let require = require.map(|require| names("require", require)).transpose()?.unwrap_or_default();
        Ok(AioNet { state: NetState::open(py, Settings::of(tls, settings)?, require)? })
    }

    #[pyo3(signature = (address, timeout=None, *, require=None, request=None, private=&b""[..]))]
    #[pyo3(text_signature = "($self, address, timeout=None, *, require=None, request=None, private=b'')")]
    fn connect(
        &self,
        py: Python<'_>,
        address: &str,
        timeout: Option<f64>,
        require: Option<&Bound<'_, PyAny>>,
        request: Option<&Bound<'_, PyAny>>,
        private: &[u8],
    ) -> PyResult<Operation> {
        let wanted = Wanted { address, timeout, require, request, private };
        let call = opening::connect(py, &self.state, &wanted, AioConnection::made)?;
        Ok(Operation::new("connect", &self.state, call))
    }

    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<Operation> {
        let call = opening::listen(py, &self.state, address, AioListener::made)?;
        Ok(Operation::new("listen", &self.state, call))
    }

    /// As `uct.Net.allocate`: blocks while the pages are made.
    fn allocate(&self, py: Python<'_>, length: usize) -> PyResult<Memory> {
        opening::allocate(py, &self.state, length)
    }

    #[pyo3(signature = (timeout=END.as_secs_f64()), text_signature = "($self, timeout=1.0)")]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<Operation> {
        let limit = limit(Some(timeout))?.unwrap_or(END);
        Ok(Operation::of("close", py, &self.state, self.state.close(limit)))
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Operation {
        let own = slf.clone().into_any().unbind();
        Operation::ready(&slf.get().state, own)
    }

    #[pyo3(signature = (*_raised))]
    fn __aexit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<Operation> {
        self.close(py, END.as_secs_f64())
    }
}

/// As `uct.Listener`, for asyncio: `async for`.
#[pyclass(frozen, module = "uct.aio", name = "AioListener")]
pub(crate) struct AioListener {
    listening: Arc<Listening>,
}

impl AioListener {
    fn made(py: Python<'_>, listening: Arc<Listening>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, AioListener { listening })?.into_any())
    }
}

#[pymethods]
impl AioListener {
    #[getter]
    fn address(&self) -> &str {
        self.listening.address()
    }

    #[getter]
    fn port(&self) -> Option<u16> {
        self.listening.port()
    }

    fn accept(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("accept", &self.listening.state, self.listening.accept(py, AioConnection::made)?))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.listening.close());
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Ends when the listener is closed.
    fn __anext__(&self, py: Python<'_>) -> PyResult<Operation> {
        let call = self.listening.next(py, AioConnection::made)?;
        let end = || PyStopAsyncIteration::new_err(());
        Ok(Operation::new("__anext__", &self.listening.state, call.ok_or_else(end)?))
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Operation {
        let own = slf.clone().into_any().unbind();
        Operation::ready(&slf.get().listening.state, own)
    }

    #[pyo3(signature = (*_raised))]
    fn __aexit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> Operation {
        self.close(py);
        Operation::ready(&self.listening.state, py.None())
    }
}

/// As `uct.Connection`, for asyncio: `async for`, `async with`.
#[pyclass(frozen, module = "uct.aio", name = "AioConnection")]
pub(crate) struct AioConnection {
    connected: Arc<Connected>,
}

impl AioConnection {
    fn made(py: Python<'_>, connected: Arc<Connected>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, AioConnection { connected })?.into_any())
    }
}

#[pymethods]
impl AioConnection {
    #[getter]
    fn peer(&self) -> &str {
        self.connected.peer()
    }

    #[getter]
    fn private<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.connected.private())
    }

    #[getter]
    fn explanation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.connected.explanation(py)
    }

    fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<Operation> {
        Ok(Operation::new("send", &self.connected.state, self.connected.send(data)?))
    }

    fn recv(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("recv", &self.connected.state, self.connected.recv(py)?))
    }

    fn recv_into(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Operation> {
        Ok(Operation::new("recv_into", &self.connected.state, self.connected.recv_into(buffer)?))
    }

    fn shutdown(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("shutdown", &self.connected.state, self.connected.shutdown(py)?))
    }

    #[pyo3(signature = (timeout=LEAVING.as_secs_f64()), text_signature = "($self, timeout=5.0)")]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Operation> {
        Ok(Operation::of("close", py, &self.connected.state, self.connected.close(py, limit(timeout)?)?))
    }

    fn abort(&self, reason: &str) {
        self.connected.abort(reason);
    }

    fn share(&self, memory: &Bound<'_, Memory>) -> PyResult<Operation> {
        Ok(Operation::new("share", &self.connected.state, self.connected.share(memory)?))
    }

    fn unshare(&self, memory: &Bound<'_, Memory>) -> PyResult<bool> {
        self.connected.unshare(memory)
    }

    fn shared(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("shared", &self.connected.state, self.connected.shared(py)?))
    }

    #[pyo3(signature = (local, remote, offset=0))]
    fn put(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
    ) -> PyResult<Operation> {
        Ok(Operation::new("put", &self.connected.state, self.connected.put(local, remote, offset)?))
    }

    #[pyo3(signature = (local, remote, offset=0))]
    fn get(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
    ) -> PyResult<Operation> {
        Ok(Operation::new("get", &self.connected.state, self.connected.get(local, remote, offset)?))
    }

    fn fetch_add(&self, remote: &Bound<'_, RemoteMemory>, offset: u64, value: u64) -> PyResult<Operation> {
        Ok(Operation::new(
            "fetch_add",
            &self.connected.state,
            self.connected.fetch_add(remote, offset, value)?,
        ))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("flush", &self.connected.state, self.connected.flush(py)?))
    }

    #[pyo3(signature = (local, remote, blocks, notify=None))]
    fn get_blocks(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        blocks: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AioTransfer> {
        Ok(AioTransfer { moving: self.connected.transfer(false, local, remote, blocks, notify)? })
    }

    #[pyo3(signature = (local, remote, blocks, notify=None))]
    fn put_blocks(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        blocks: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AioTransfer> {
        Ok(AioTransfer { moving: self.connected.transfer(true, local, remote, blocks, notify)? })
    }

    fn notified(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("notified", &self.connected.state, self.connected.notified(py)?))
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("__anext__", &self.connected.state, self.connected.recv(py)?.next()))
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Operation {
        let own = slf.clone().into_any().unbind();
        Operation::ready(&slf.get().connected.state, own)
    }

    #[pyo3(signature = (*_raised))]
    fn __aexit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<Operation> {
        Ok(Operation::of("__aexit__", py, &self.connected.state, self.connected.leave(py)?))
    }

    fn __repr__(&self) -> String {
        format!("<uct.aio.Connection to {}>", self.connected.peer())
    }
}

/// As `uct.Transfer`, for asyncio: it is awaited itself. A task that is cancelled stops waiting, and the transfer goes
/// on.
#[pyclass(frozen, module = "uct.aio", name = "AioTransfer")]
pub(crate) struct AioTransfer {
    moving: Moving,
}

#[pymethods]
impl AioTransfer {
    fn __await__(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("__await__", &self.moving.state, self.moving.end(py)?))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new("cancel", &self.moving.state, self.moving.cancel(py)?))
    }

    fn again(&self, py: Python<'_>) -> PyResult<()> {
        self.moving.again(py)
    }

    #[getter]
    fn moved(&self) -> usize {
        self.moving.moved()
    }

    fn missing(&self) -> Vec<(usize, String)> {
        self.moving.missing()
    }
}
