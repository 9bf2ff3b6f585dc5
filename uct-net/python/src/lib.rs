//! The compiled part of the Python package `uct`, over the `Send` flavour of `uct-net`.
//!
//! | room | holds | may use |
//! |---|---|---|
//! | `buffer`, `blocks`, `settings`, `error`, `explanation` | what Python's objects become here, and back | each other |
//! | `call` | one operation: its future, and its outcome as an object of Python | `error` |
//! | `blocking` | waiting for a call in place | `call` |
//! | `event_loop`, `patience` | what wakes tasks of an event loop of asyncio, and how long that polls | nothing |
//! | `state` | what all objects of a net share; how it ends | all of these |
//! | `operation` | awaiting a call | all of these |
//! | `memory`, `connected`, `moving`, `listening`, `opening` | the operations of memory, connections, transfers, listeners and nets, as calls | all of these |
//! | `blocking_classes`, `awaited_classes` | the classes of `uct` and of `uct.aio` | all of these |

use pyo3::prelude::*;

mod awaited_classes;
mod blocking;
mod blocking_classes;
mod blocks;
mod buffer;
mod call;
mod connected;
mod error;
mod event_loop;
mod explanation;
mod listening;
mod memory;
mod moving;
mod opening;
mod operation;
mod patience;
mod settings;
mod state;

#[pymodule]
mod _uct {
    #[pymodule_export]
    use crate::awaited_classes::{AioConnection, AioListener, AioNet, AioTransfer};
    #[pymodule_export]
    use crate::blocking_classes::{Connection, Listener, Net, Transfer};
    #[pymodule_export]
    use crate::memory::{Memory, RemoteMemory};
    #[pymodule_export]
    use crate::moving::Receipt;
    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::state::close_all;
}

/// Locks it. What a panic has left is as good as what an error leaves.
pub(crate) fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
