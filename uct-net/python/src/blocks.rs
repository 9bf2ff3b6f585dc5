//! The blocks of a transfer: tuples of three numbers, or rows of an array of integers.

use std::fmt::Debug;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use uct_net::{Block, Blocks};

use crate::buffer::kind;

/// The blocks that an object describes: `(local, remote, length)` each.
pub(crate) fn blocks(object: &Bound<'_, PyAny>) -> PyResult<Blocks> {
    rows::<i64>(object)
        .or_else(|| rows::<u64>(object))
        .or_else(|| rows::<i32>(object))
        .or_else(|| rows::<u32>(object))
        .or_else(|| rows::<i16>(object))
        .or_else(|| rows::<u16>(object))
        .or_else(|| rows::<i8>(object))
        .or_else(|| rows::<u8>(object))
        .unwrap_or_else(|| tuples(object))
}

/// The rows of an array of these numbers; `None` for anything else.
fn rows<T: Element + TryInto<u64> + Debug>(object: &Bound<'_, PyAny>) -> Option<PyResult<Blocks>> {
    let array = PyBuffer::<T>::get(object).ok()?;
    // PyO3 takes the other order of bytes for this one.
    if cfg!(target_endian = "little") && matches!(array.format().to_bytes().first(), Some(b'>' | b'!')) {
        return None;
    }
    if array.dimensions() != 2 || array.shape()[1] != 3 {
        let text = format!(
            "blocks as an array have the shape (n, 3): local, remote, length; not {:?}",
            array.shape()
        );
        return Some(Err(PyValueError::new_err(text)));
    }
    let number = |number: T| number.try_into().map_err(|_| out_of_range(&number));
    let block =
        |row: &[T]| Ok(Block { local: number(row[0])?, remote: number(row[1])?, length: number(row[2])? });
    Some(array.to_vec(object.py()).and_then(|numbers| numbers.chunks_exact(3).map(block).collect()))
}

fn tuples(object: &Bound<'_, PyAny>) -> PyResult<Blocks> {
    let py = object.py();
    let block = |tuple: PyResult<Bound<'_, PyAny>>| {
        let tuple = tuple?;
        let numbers = tuple.extract::<(u64, u64, u64)>().map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return out_of_range(&tuple);
            }
            let text = format!("a block is a tuple (local, remote, length) of integers, not {tuple:?}");
            PyTypeError::new_err(text)
        });
        let (local, remote, length) = numbers?;
        Ok(Block { local, remote, length })
    };
    let blocks = object.try_iter().map_err(|_| {
        let text = format!(
            "blocks are tuples (local, remote, length), or an array of integers of shape (n, 3), not {}",
            kind(object)
        );
        PyTypeError::new_err(text)
    });
    blocks?.map(block).collect()
}

fn out_of_range(number: &impl Debug) -> PyErr {
    PyValueError::new_err(format!(
        "{number:?} in the blocks: offsets and lengths are bytes, from 0 to 2**64 - 1"
    ))
}
