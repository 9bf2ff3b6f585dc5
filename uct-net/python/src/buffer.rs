//! Bytes of Python's objects, in place: what has the buffer protocol, or DLPack and NumPy beside it.

#![expect(unsafe_code, reason = "bytes that belong to objects of Python")]

use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Bytes to send. The object keeps them in place until this is dropped.
pub(crate) struct Source(PyUntypedBuffer);

/// Bytes to receive into. The object keeps them in place until this is dropped.
pub(crate) struct Target(PyUntypedBuffer);

impl Source {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Source> {
        contiguous(object).map(Source)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous (`contiguous`) and its object exports it until it is released by the drop.
        // The bytes are only copied: a program that writes to them meanwhile sends some of the old and some of the new
        // ones, as docs/python.md says.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

impl Target {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Target> {
        let buffer = contiguous(object)?;
        if buffer.readonly() {
            return Err(PyTypeError::new_err(format!(
                "{} is read-only: receive into what is writable",
                kind(object)
            )));
        }
        Ok(Target(buffer))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as in `Source::bytes`; it is writable (`Target::of`). The bytes are only written: a program that uses
        // them before the call has ended finds some of the old and some of the new ones.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// The buffer of an object, whose bytes follow one another.
fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = match PyUntypedBuffer::get(object) {
        Ok(buffer) => buffer,
        Err(refused) if refused.is_instance_of::<PyBufferError>(object.py()) => {
            without_dimensions(object)?.ok_or(refused)?
        }
        // One with a buffer that it does not give now, such as a view that was released, says so itself.
        Err(refused) if !refused.is_instance_of::<PyTypeError>(object.py()) => return Err(refused),
        Err(_) if has_dlpack(object)? => PyUntypedBuffer::get(&from_dlpack(object)?)?,
        Err(_) => {
            let text = format!(
                "expected a bytes-like object, an array or a tensor in host memory, not {}",
                kind(object)
            );
            return Err(PyTypeError::new_err(text));
        }
    };
    if !buffer.is_c_contiguous() {
        let text = "the bytes of the array do not follow one another: numpy.ascontiguousarray makes a copy whose bytes do";
        return Err(PyValueError::new_err(text));
    }
    Ok(buffer)
}

/// The buffer of an array or number without dimensions, which has no shape; `None` for another object.
fn without_dimensions(object: &Bound<'_, PyAny>) -> PyResult<Option<PyUntypedBuffer>> {
    let view = PyMemoryView::from(object)?;
    if view.getattr(intern!(object.py(), "ndim"))?.extract::<usize>()? > 0 {
        return Ok(None);
    }
    let flat = view.call_method1(intern!(object.py(), "cast"), ("B",))?;
    PyUntypedBuffer::get(&flat).map(Some)
}

fn has_dlpack(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.hasattr(intern!(object.py(), "__dlpack__"))
}

/// An array over the bytes of a tensor, by NumPy.
fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let Ok(numpy) = object.py().import(intern!(object.py(), "numpy")) else {
        let text = format!("{} has DLPack and no buffer: install NumPy, which reads DLPack", kind(object));
        return Err(PyTypeError::new_err(text));
    };
    numpy.call_method1(intern!(object.py(), "from_dlpack"), (object,))
}

/// The name of an object's type, for errors.
pub(crate) fn kind(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "this object".to_owned(), |name| name.to_string())
}
