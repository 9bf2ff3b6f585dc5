//! The classes of `uct`: each call blocks the calling thread, and no other one.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::call::item;
use crate::connected::{Connected, LEAVING};
use crate::error::limit;
use crate::listening::Listening;
use crate::memory::{Memory, RemoteMemory};
use crate::moving::Moving;
use crate::opening::{self, Wanted};
use crate::settings::{END, Settings, names};
use crate::state::NetState;

/// All permitted transports, open, and the connections over them. Use it as a context manager: its end closes what was
/// made with it.
///
/// Named settings, all of which have a default: `tls` and `require` (names of transports), `wait` ("spin", "sleep" or
/// seconds); in bytes `window` and `max_message`; in seconds `connect_timeout`, `handshake_timeout` and `lane_timeout`;
/// `shared_key` (bytes), `request` (operation, bytes), `config_file` (path); counts `max_half_open`, `max_connections`,
/// `max_connections_per_source` and `reserved_descriptors`. Every other name is a key of the configuration.
#[pyclass(frozen, module = "uct")]
pub(crate) struct Net {
    state: Arc<NetState>,
}

#[pymethods]
impl Net {
    #[new]
    #[pyo3(signature = (*, tls=None, require=None, **settings))]
    fn new(
        py: Python<'_>,
        tls: Option<&Bound<'_, PyAny>>,
        require: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Net> {
        let require = require.map(|require| names("require", require)).transpose()?.unwrap_or_default();
        Ok(Net { state: NetState::open(py, Settings::of(tls, settings)?, require)? })
    }

    /// Connects to a listener: `"host:port"`, `"[::1]:port"`, `"unix:/path"`. Returns when the listener's program has
    /// accepted.
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
    ) -> PyResult<Py<PyAny>> {
        let wanted = Wanted { address, timeout, require, request, private };
        opening::connect(py, &self.state, &wanted, Connection::made)?.block(py, None)
    }

    /// Listens at an address; with port 0 the system chooses one.
    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<Py<PyAny>> {
        opening::listen(py, &self.state, address, Listener::made)?.block(py, None)
    }

    /// Registered memory, zeroed, for all connections of this net.
    fn allocate(&self, py: Python<'_>, length: usize) -> PyResult<Memory> {
        opening::allocate(py, &self.state, length)
    }

    /// Closes its connections and listeners. What was sent last is delivered within the limit (seconds).
    #[pyo3(signature = (timeout=END.as_secs_f64()), text_signature = "($self, timeout=1.0)")]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let limit = limit(Some(timeout))?.unwrap_or(END);
        match self.state.close(limit) {
            Some(call) => call.block(py, None).map(drop),
            None => Ok(()),
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py, END.as_secs_f64())
    }
}

/// Waits for callers at an address. Iterating over it accepts them, one after the other.
#[pyclass(frozen, module = "uct")]
pub(crate) struct Listener {
    listening: Arc<Listening>,
}

impl Listener {
    fn made(py: Python<'_>, listening: Arc<Listening>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Listener { listening })?.into_any())
    }
}

#[pymethods]
impl Listener {
    /// The address that `connect` takes.
    #[getter]
    fn address(&self) -> &str {
        self.listening.address()
    }

    /// The port; `None` for a Unix socket.
    #[getter]
    fn port(&self) -> Option<u16> {
        self.listening.port()
    }

    /// The next caller, as a connection.
    #[pyo3(signature = (timeout=None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.listening.accept(py, Connection::made)?.block(py, limit(timeout)?)
    }

    /// Closes it; connections that it has made go on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.listening.close());
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.listening.next(py, Connection::made)? {
            Some(call) => item(py, call.block(py, None)),
            None => Ok(None),
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// A connection to another process. Iterating over it receives messages, until the peer closes it.
#[pyclass(frozen, module = "uct")]
pub(crate) struct Connection {
    connected: Arc<Connected>,
}

impl Connection {
    fn made(py: Python<'_>, connected: Arc<Connected>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Connection { connected })?.into_any())
    }
}

#[pymethods]
impl Connection {
    /// The peer's address, as text for humans.
    #[getter]
    fn peer(&self) -> &str {
        self.connected.peer()
    }

    /// The private data that the peer sent when it connected.
    #[getter]
    fn private<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.connected.private())
    }

    /// Which transport was chosen, and why.
    #[getter]
    fn explanation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.connected.explanation(py)
    }

    /// Sends a message: a bytes-like object, an array, a tensor of the host, or memory of the net. After `TimedOut` it
    /// was withdrawn if nothing of it had left; what had begun to leave is delivered.
    #[pyo3(signature = (data, timeout=None))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.send(data)?.block(py, limit(timeout)?)
    }

    /// The next message, as bytes.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.recv(py)?.block(py, limit(timeout)?)
    }

    /// Receives the next message into a writable buffer; returns its length.
    #[pyo3(signature = (buffer, timeout=None))]
    fn recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.connected.recv_into(buffer)?.block(py, limit(timeout)?)
    }

    /// Ends this side's messages; receiving goes on.
    #[pyo3(signature = (timeout=None))]
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.shutdown(py)?.block(py, limit(timeout)?)
    }

    /// Closes it, when the peer's library has everything.
    #[pyo3(signature = (timeout=LEAVING.as_secs_f64()), text_signature = "($self, timeout=5.0)")]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        match self.connected.close(py, limit(timeout)?)? {
            Some(call) => call.block(py, None).map(drop),
            None => Ok(()),
        }
    }

    /// Ends it at once, with a reason for the peer.
    fn abort(&self, reason: &str) {
        self.connected.abort(reason);
    }

    /// Lets the peer read and write memory, or a part of it.
    #[pyo3(signature = (memory, timeout=None))]
    fn share(&self, py: Python<'_>, memory: &Bound<'_, Memory>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.share(memory)?.block(py, limit(timeout)?)
    }

    /// Takes back what was shared of exactly this part; returns whether anything was.
    fn unshare(&self, memory: &Bound<'_, Memory>) -> PyResult<bool> {
        self.connected.unshare(memory)
    }

    /// The next memory that the peer has shared.
    #[pyo3(signature = (timeout=None))]
    fn shared(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.shared(py)?.block(py, limit(timeout)?)
    }

    /// Writes local memory to the peer's, from byte `offset` on.
    #[pyo3(signature = (local, remote, offset=0, timeout=None))]
    fn put(
        &self,
        py: Python<'_>,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.connected.put(local, remote, offset)?.block(py, limit(timeout)?)
    }

    /// Reads the peer's memory from byte `offset` on into local memory.
    #[pyo3(signature = (local, remote, offset=0, timeout=None))]
    fn get(
        &self,
        py: Python<'_>,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.connected.get(local, remote, offset)?.block(py, limit(timeout)?)
    }

    /// Adds 0 to 2**64 - 1 to a word of 64 bits of the peer's memory, which wraps; returns the old value.
    #[pyo3(signature = (remote, offset, value, timeout=None))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
        value: u64,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.connected.fetch_add(remote, offset, value)?.block(py, limit(timeout)?)
    }

    /// Done when all puts and atomics that have started have taken effect.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.flush(py)?.block(py, limit(timeout)?)
    }

    /// Starts to read blocks of the peer's memory.
    #[pyo3(signature = (local, remote, blocks, notify=None))]
    fn get_blocks(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        blocks: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Transfer> {
        Ok(Transfer { moving: self.connected.transfer(false, local, remote, blocks, notify)? })
    }

    /// Starts to write blocks to the peer's memory.
    #[pyo3(signature = (local, remote, blocks, notify=None))]
    fn put_blocks(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        blocks: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Transfer> {
        Ok(Transfer { moving: self.connected.transfer(true, local, remote, blocks, notify)? })
    }

    /// The next notification of a transfer of the peer's.
    #[pyo3(signature = (timeout=None))]
    fn notified(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.connected.notified(py)?.block(py, limit(timeout)?)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        item(py, self.connected.recv(py)?.next().block(py, None))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.connected.leave(py)? {
            Some(call) => call.block(py, None).map(drop),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<uct.Connection to {}>", self.connected.peer())
    }
}

/// A transfer of blocks that has started. It goes on until its end, `cancel`, or its last reference.
#[pyclass(frozen, module = "uct")]
pub(crate) struct Transfer {
    moving: Moving,
}

#[pymethods]
impl Transfer {
    /// Waits for its end.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.moving.end(py)?.block(py, limit(timeout)?)
    }

    /// Begins no further block, and waits until none is in flight; returns how many have moved.
    fn cancel(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.moving.cancel(py)?.block(py, None)
    }

    /// Moves the same blocks once more, after the end.
    fn again(&self, py: Python<'_>) -> PyResult<()> {
        self.moving.again(py)
    }

    /// How many blocks have moved so far.
    #[getter]
    fn moved(&self) -> usize {
        self.moving.moved()
    }

    /// Number and status of each block that has not moved.
    fn missing(&self) -> Vec<(usize, String)> {
        self.moving.missing()
    }
}
