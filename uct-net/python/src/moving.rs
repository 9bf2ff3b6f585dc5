//! A transfer of blocks that has started, as both kinds of classes have it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use pyo3::prelude::*;
use ucs::Error as Status;
use uct_net::{Error, Moved, Result, Stage, Transfer};

use crate::call::{Call, Outcome};
use crate::error::{error, exception};
use crate::lock;
use crate::state::NetState;

/// What became of a transfer that has moved all of its blocks.
#[pyclass(frozen, get_all, module = "uct")]
pub(crate) struct Receipt {
    /// Transport and device that carried it.
    over: String,
    /// Number of blocks.
    blocks: usize,
    /// Their bytes.
    bytes: u64,
    /// Seconds from the start until the last block was with the transport.
    posted: f64,
    /// Seconds from the start until the end.
    elapsed: f64,
}

#[pymethods]
impl Receipt {
    fn __repr__(&self) -> String {
        let Receipt { over, blocks, bytes, elapsed, .. } = self;
        format!("<uct.Receipt: {blocks} blocks, {bytes} bytes over {over} in {elapsed:.6} s>")
    }
}

/// A transfer.
pub(crate) struct Moving {
    pub(crate) state: Arc<NetState>,
    peer: Arc<str>,
    phase: Arc<Mutex<Phase>>,
}

enum Phase {
    Running(Transfer),
    /// With its end.
    Ended(Transfer, Result<uct_net::Receipt>),
    Canceled(Moved),
}

impl Moving {
    pub(crate) fn new(state: &Arc<NetState>, peer: &Arc<str>, transfer: Transfer) -> Moving {
        let phase = Arc::new(Mutex::new(Phase::Running(transfer)));
        Moving { state: Arc::clone(state), peer: Arc::clone(peer), phase }
    }

    fn call(
        &self,
        py: Python<'_>,
        work: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> PyResult<Call> {
        let net = self.state.net().map_err(|refused| exception(py, &refused))?;
        Ok(Call::new(net, (Stage::Connected, Arc::clone(&self.peer)), work))
    }

    /// Its end. What waits may be given up, and the transfer goes on.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<Call> {
        let (phase, peer) = (Arc::clone(&self.phase), Arc::clone(&self.peer));
        self.call(py, async move {
            let receipt = poll_fn(|context| lock(&phase).poll_end(context, &peer)).await?;
            let receipt = Receipt {
                over: receipt.over.to_string(),
                blocks: receipt.blocks,
                bytes: receipt.bytes,
                posted: receipt.posted.as_secs_f64(),
                elapsed: receipt.elapsed.as_secs_f64(),
            };
            Ok(Outcome::made(|py| Ok(Py::new(py, receipt)?.into_any())))
        })
    }

    /// Begins no further block; done when none is in flight. Its outcome is the number of blocks that have moved.
    pub(crate) fn cancel(&self, py: Python<'_>) -> PyResult<Call> {
        let phase = Arc::clone(&self.phase);
        self.call(py, async move {
            let running = {
                let mut now = lock(&phase);
                match std::mem::replace(&mut *now, Phase::Canceled(Moved::default())) {
                    Phase::Running(transfer) => Some(transfer.cancel()),
                    ended => {
                        *now = ended;
                        None
                    }
                }
            };
            if let Some(cancel) = running {
                let moved = cancel.await;
                *lock(&phase) = Phase::Canceled(moved);
            }
            let count = lock(&phase).outcome().count();
            Ok(Outcome::Number(count as u64))
        })
    }

    /// Moves the same blocks once more.
    pub(crate) fn again(&self, py: Python<'_>) -> PyResult<()> {
        let mut phase = lock(&self.phase);
        let begun = match std::mem::replace(&mut *phase, Phase::Canceled(Moved::default())) {
            Phase::Running(mut transfer) => {
                let begun = transfer.again();
                *phase = Phase::Running(transfer);
                begun
            }
            Phase::Ended(mut transfer, end) => {
                let begun = transfer.again();
                *phase = if begun.is_ok() { Phase::Running(transfer) } else { Phase::Ended(transfer, end) };
                begun
            }
            Phase::Canceled(moved) => {
                *phase = Phase::Canceled(moved);
                Err(canceled(&self.peer))
            }
        };
        begun.map_err(|refused| exception(py, &refused))
    }

    /// How many blocks have moved so far.
    pub(crate) fn moved(&self) -> usize {
        match &*lock(&self.phase) {
            Phase::Running(transfer) | Phase::Ended(transfer, _) => transfer.moved(),
            Phase::Canceled(moved) => moved.count(),
        }
    }

    /// Number and status of each block that has not moved.
    pub(crate) fn missing(&self) -> Vec<(usize, String)> {
        let name = |status: Status| status.status().name().unwrap_or("UNKNOWN").to_owned();
        let outcome = lock(&self.phase).outcome();
        outcome.missing().map(|(number, status)| (number, name(status))).collect()
    }
}

impl Phase {
    fn outcome(&self) -> Moved {
        match self {
            Phase::Running(transfer) | Phase::Ended(transfer, _) => transfer.outcome(),
            Phase::Canceled(moved) => moved.clone(),
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>, peer: &str) -> Poll<Result<uct_net::Receipt>> {
        match self {
            Phase::Running(transfer) => {
                let Poll::Ready(end) = Pin::new(&mut *transfer).poll(context) else { return Poll::Pending };
                let running = std::mem::replace(self, Phase::Canceled(Moved::default()));
                if let Phase::Running(transfer) = running {
                    *self = Phase::Ended(transfer, end.clone());
                }
                Poll::Ready(end)
            }
            Phase::Ended(_, end) => Poll::Ready(end.clone()),
            Phase::Canceled(_) => Poll::Ready(Err(canceled(peer))),
        }
    }
}

fn canceled(peer: &str) -> Error {
    error(Stage::Connected, peer, Status::CANCELED, "the transfer was cancelled")
}
