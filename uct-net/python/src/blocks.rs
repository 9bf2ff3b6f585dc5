//! The blocks of a transfer: tuples of three numbers, or rows of an array of integers.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use uct_net::{Block, Blocks};

use crate::buffer::kind;

/// The blocks that an object describes: `(local, remote, length)` each.
pub(crate) fn blocks(object: &Bound<'_, PyAny>) -> PyResult<Blocks> {
    if let Ok(array) = PyBuffer::<i64>::get(object) {
        return rows(object, &array, |number| u64::try_from(number).ok());
    }
    if let Ok(array) = PyBuffer::<u64>::get(object) {
        return rows(object, &array, Some);
    }
    if let Ok(array) = PyBuffer::<i32>::get(object) {
        return rows(object, &array, |number| u64::try_from(number).ok());
    }
    if let Ok(array) = PyBuffer::<u32>::get(object) {
        return rows(object, &array, |number| Some(u64::from(number)));
    }
    let expected = || {
        let text = format!(
            "blocks are tuples (local, remote, length), or an array of integers of shape (n, 3), not {}",
            kind(object)
        );
        PyTypeError::new_err(text)
    };
    let block = |tuple: PyResult<Bound<'_, PyAny>>| {
        let tuple = tuple?;
        let numbers = tuple.extract::<(i128, i128, i128)>();
        let (local, remote, length) = numbers.map_err(|_| {
            PyTypeError::new_err(format!(
                "a block is a tuple (local, remote, length) of integers, not {tuple:?}"
            ))
        })?;
        let number = |number: i128| u64::try_from(number).map_err(|_| negative(number));
        Ok(Block { local: number(local)?, remote: number(remote)?, length: number(length)? })
    };
    object.try_iter().map_err(|_| expected())?.map(block).collect()
}

/// The rows of an array.
fn rows<T: Element + Into<i128>>(
    object: &Bound<'_, PyAny>,
    array: &PyBuffer<T>,
    number: impl Fn(T) -> Option<u64>,
) -> PyResult<Blocks> {
    if array.dimensions() != 2 || array.shape()[1] != 3 {
        let text = format!(
            "blocks as an array have the shape (n, 3): local, remote, length; not {:?}",
            array.shape()
        );
        return Err(PyValueError::new_err(text));
    }
    let numbers = array.to_vec(object.py())?;
    let number = |value: T| number(value).ok_or_else(|| negative(value.into()));
    let block =
        |row: &[T]| Ok(Block { local: number(row[0])?, remote: number(row[1])?, length: number(row[2])? });
    numbers.chunks_exact(3).map(block).collect()
}

fn negative(number: i128) -> PyErr {
    PyValueError::new_err(format!("{number} in a block: offsets and lengths are bytes, from 0 to 2**64 - 1"))
}
