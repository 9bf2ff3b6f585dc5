//! The operations of a connection, as calls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uct_net::{Connection, Result, Stage};

use crate::blocks::blocks;
use crate::buffer::{Source, Target};
use crate::call::{Call, Outcome};
use crate::error::{argument, exception};
use crate::explanation;
use crate::memory::{Memory, RemoteMemory};
use crate::moving::Moving;
use crate::state::{Member, NetState, Slot};

/// Messages up to this length are copied without letting other threads run.
const QUICK: usize = 64 << 10;
/// How long the end of a `with` waits until the peer's library has everything, and `close` if it is not told otherwise.
pub(crate) const LEAVING: Duration = Duration::from_secs(5);

/// A connection as both kinds of classes have it.
pub(crate) struct Connected {
    pub(crate) state: Arc<NetState>,
    connection: Slot<Connection>,
    peer: Arc<str>,
    private: Vec<u8>,
}

impl Member for Connected {
    fn end(&self) -> Option<(Connection, bool)> {
        let is_in_use = self.connection.is_in_use();
        self.connection.take().map(|connection| (connection, is_in_use))
    }
}

impl Connected {
    pub(crate) fn new(state: &Arc<NetState>, connection: Connection) -> Arc<Connected> {
        let connected = Arc::new(Connected {
            state: Arc::clone(state),
            peer: connection.peer().into(),
            private: connection.private().to_vec(),
            connection: Slot::new("connection", connection),
        });
        let member: Arc<dyn Member> = Arc::<Connected>::clone(&connected);
        state.add(Arc::downgrade(&member));
        connected
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn private(&self) -> &[u8] {
        &self.private
    }

    pub(crate) fn explanation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let connection = self.handle(py)?;
        explanation::dictionary(py, connection.explanation())
    }

    fn handle(&self, py: Python<'_>) -> PyResult<Connection> {
        self.connection.get().map_err(|refused| exception(py, &refused))
    }

    /// A call of an operation.
    fn call<F: Future<Output = Result<Outcome>> + Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(Connection) -> F,
    ) -> PyResult<Call> {
        let connection = self.handle(py)?;
        let net = self.state.net().map_err(|refused| exception(py, &refused))?;
        let about = (Stage::Connected, Arc::clone(&self.peer));
        Ok(Call::new(net, about, work(connection)).using(self.connection.in_use()))
    }

    pub(crate) fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<Call> {
        if let Ok(memory) = data.cast::<Memory>() {
            let slice = memory.get().part();
            return self.call(data.py(), |connection| async move {
                connection.send_slice(slice).await.map(|()| Outcome::Nothing)
            });
        }
        let source = Source::of(data)?;
        let length = source.bytes().len();
        let call = self.call(data.py(), |connection| async move {
            connection.send(source.bytes()).await.map(|()| Outcome::Nothing)
        })?;
        Ok(call.quick(length <= QUICK).long(length > QUICK))
    }

    pub(crate) fn recv(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |connection| async move { connection.recv().await.map(Outcome::Message) })
    }

    pub(crate) fn recv_into(&self, target: &Bound<'_, PyAny>) -> PyResult<Call> {
        let mut bytes = Target::of(target)?;
        let is_long = bytes.len() > QUICK;
        let call = self.call(target.py(), |connection| async move {
            connection.recv_into(bytes.bytes()).await.map(|length| Outcome::Number(length as u64))
        })?;
        Ok(call.long(is_long))
    }

    /// Ends this side's messages; receiving goes on.
    pub(crate) fn shutdown(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |connection| async move {
            let mut stream = connection.into_stream();
            poll_fn(|context| stream.poll_shutdown(context)).await.map(|()| Outcome::Nothing)
        })
    }

    /// Closes it; `None` if it is closed.
    pub(crate) fn close(
        self: &Arc<Connected>,
        py: Python<'_>,
        limit: Option<Duration>,
    ) -> PyResult<Option<Call>> {
        if self.connection.is_closed() {
            return Ok(None);
        }
        let connected = Arc::clone(self);
        let call = self.call(py, |connection| async move {
            drop(connected.connection.take());
            let closed = match limit {
                Some(limit) => connection.close().within(limit).await,
                None => connection.close().await,
            };
            // Beside the slot, this call and the clone that is counted here.
            if Arc::strong_count(&connected.connection.in_use()) > 3 {
                connection.abort("closed");
            }
            closed.map(|()| Outcome::Nothing)
        })?;
        Ok(Some(call))
    }

    /// The end of a `with`: as [`Connected::close`], and no error if the connection has failed before, which the block
    /// was told.
    pub(crate) fn leave(self: &Arc<Connected>, py: Python<'_>) -> PyResult<Option<Call>> {
        let Ok(connection) = self.connection.get() else { return Ok(None) };
        let has_ended = pin!(connection.closed()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if has_ended {
            drop(self.connection.take());
            return Ok(None);
        }
        self.close(py, Some(LEAVING))
    }

    /// Ends it at once, with a reason for the peer.
    pub(crate) fn abort(&self, reason: &str) {
        if let Some(connection) = self.connection.take() {
            connection.abort(reason);
        }
    }

    pub(crate) fn share(&self, memory: &Bound<'_, Memory>) -> PyResult<Call> {
        let slice = memory.get().slice();
        self.call(memory.py(), |connection| async move {
            connection.share(&slice).await.map(|()| Outcome::Nothing)
        })
    }

    pub(crate) fn unshare(&self, memory: &Bound<'_, Memory>) -> PyResult<bool> {
        Ok(self.handle(memory.py())?.unshare(&memory.get().part()))
    }

    pub(crate) fn shared(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |connection| async move {
            let remote = connection.shared().await?;
            Ok(Outcome::made(|py| Ok(Py::new(py, RemoteMemory { remote })?.into_any())))
        })
    }

    pub(crate) fn put(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
    ) -> PyResult<Call> {
        let (slice, remote) = (local.get().part(), within(remote, offset, local.get().len())?);
        self.call(local.py(), |connection| async move {
            connection.put(slice, &remote, offset).await.map(|()| Outcome::Nothing)
        })
    }

    pub(crate) fn get(
        &self,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
    ) -> PyResult<Call> {
        let (slice, remote) = (local.get().part(), within(remote, offset, local.get().len())?);
        self.call(local.py(), |connection| async move {
            connection.get(slice, &remote, offset).await.map(|()| Outcome::Nothing)
        })
    }

    pub(crate) fn fetch_add(
        &self,
        remote: &Bound<'_, RemoteMemory>,
        offset: u64,
        value: u64,
    ) -> PyResult<Call> {
        let target = within(remote, offset, size_of::<u64>())?;
        self.call(remote.py(), |connection| async move {
            connection.fetch_add(&target, offset, value).await.map(Outcome::Number)
        })
    }

    pub(crate) fn flush(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |connection| async move { connection.flush().await.map(|()| Outcome::Nothing) })
    }

    pub(crate) fn notified(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |connection| async move { connection.notified().await.map(Outcome::Message) })
    }

    /// Starts a transfer.
    pub(crate) fn transfer(
        &self,
        is_put: bool,
        local: &Bound<'_, Memory>,
        remote: &Bound<'_, RemoteMemory>,
        wanted: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Moving> {
        let py = local.py();
        let (memory, remote, mut blocks) = (local.get(), &remote.get().remote, blocks(wanted)?);
        let (start, room) = (memory.start() as u64, memory.len() as u64);
        if let Some(beyond) =
            blocks.iter().find(|block| block.local.checked_add(block.length).is_none_or(|end| end > room))
        {
            let text = format!(
                "{} bytes from {} on are not part of a local memory of {room} bytes",
                beyond.length, beyond.local
            );
            return Err(PyValueError::new_err(text));
        }
        if start > 0 {
            blocks =
                blocks.iter().map(|block| uct_net::Block { local: block.local + start, ..block }).collect();
        }
        let notify = notify.map(Source::of).transpose()?;
        let connection = self.handle(py)?;
        let new = if is_put {
            connection.put_blocks(&memory.memory, remote, &blocks)
        } else {
            connection.get_blocks(&memory.memory, remote, &blocks)
        };
        let new = if let Some(data) = &notify { new.notify(data.bytes()) } else { new };
        let transfer = new.start().map_err(|refused| argument(py, &refused))?;
        Ok(Moving::new(&self.state, &self.peer, transfer))
    }
}

/// The peer's memory, for an operation on a part of it.
fn within(remote: &Bound<'_, RemoteMemory>, offset: u64, length: usize) -> PyResult<uct_net::RemoteMemory> {
    let remote = &remote.get().remote;
    let end = offset.checked_add(length as u64);
    if end.is_none_or(|end| end > remote.len()) {
        let text = format!(
            "{length} bytes from {offset} on are not part of the {} bytes that the peer shared",
            remote.len()
        );
        return Err(PyValueError::new_err(text));
    }
    Ok(remote.clone())
}
