//! Registered memory as an object with a writable buffer, and memory that a peer has shared.

#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use uct_net::MemorySlice;

use crate::error::exception;
use crate::state::NetState;

/// Registered memory of a net, or a part of it. Its buffer is writable: `memoryview(memory)`,
/// `numpy.frombuffer(memory)`.
///
/// A peer that it is shared with may read and write it at any time. `memory[a:b]` is a part of it, for one operation or
/// to be shared.
#[pyclass(frozen, module = "uct")]
pub(crate) struct Memory {
    pub(crate) memory: uct_net::Memory,
    pub(crate) state: Arc<NetState>,
    start: usize,
    end: usize,
    /// As it was allocated: all of it is shared then, with what rounding has added.
    is_whole: bool,
}

impl Memory {
    pub(crate) fn new(memory: uct_net::Memory, length: usize, state: Arc<NetState>) -> Memory {
        Memory { memory, state, start: 0, end: length, is_whole: true }
    }

    /// It, for an operation.
    pub(crate) fn slice(&self) -> MemorySlice {
        if self.is_whole { (&self.memory).into() } else { self.part() }
    }

    /// It, to the byte.
    pub(crate) fn part(&self) -> MemorySlice {
        self.memory.slice(self.start..self.end)
    }

    /// Where it begins in what was allocated: blocks count from there.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.len()
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let Ok(slice) = index.cast::<PySlice>() else {
            let text = "memory[a:b] is a part of the memory; memoryview(memory) has its bytes";
            return Err(PyTypeError::new_err(text));
        };
        let place = slice.indices(self.len().cast_signed())?;
        if place.step != 1 {
            return Err(PyIndexError::new_err("a part of memory has no step"));
        }
        let (start, length) = (place.start.cast_unsigned(), place.slicelength);
        let (memory, state) = (self.memory.clone(), Arc::clone(&self.state));
        let start = self.start + start.min(self.len());
        let is_whole = self.is_whole && length == self.len();
        Ok(Memory { memory, state, start, end: start + length, is_whole })
    }

    fn __repr__(&self) -> String {
        format!("<uct.Memory of {} bytes>", self.len())
    }

    /// # Safety
    /// As Python calls it: `view` is its own.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        // SAFETY: Python gives a view of its own, not null.
        unsafe { (*view).obj = ptr::null_mut() };
        if let Err(forked) = this.state.check_fork() {
            return Err(exception(py, &forked));
        }
        let place = this.memory.address().wrapping_add(this.start);
        let length = this.len().cast_signed();
        // SAFETY: the view is Python's. The bytes stay in place as long as the memory, which this object holds, and the
        // view holds this object.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), place.cast(), length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
    }
}

/// Memory that the peer has shared, for `put`, `get` and transfers of blocks.
#[pyclass(frozen, module = "uct")]
pub(crate) struct RemoteMemory {
    pub(crate) remote: uct_net::RemoteMemory,
}

#[pymethods]
impl RemoteMemory {
    fn __len__(&self) -> usize {
        usize::try_from(self.remote.len()).unwrap_or(usize::MAX)
    }

    fn __repr__(&self) -> String {
        format!("<uct.RemoteMemory of {} bytes>", self.remote.len())
    }
}
