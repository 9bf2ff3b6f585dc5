//! The arguments of `Net`: options of the net, and keys of the configuration.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};
use uct_core::Context;
use uct_core::select::{Operation, Request};
use uct_net::{NetOptions, Wait};

use crate::buffer::kind;
use crate::error::seconds;

/// The operations that a transport can be chosen for.
const OPERATIONS: [Operation; 9] = [
    Operation::AmShort,
    Operation::AmBcopy,
    Operation::AmZcopy,
    Operation::PutShort,
    Operation::PutBcopy,
    Operation::PutZcopy,
    Operation::GetShort,
    Operation::GetBcopy,
    Operation::GetZcopy,
];

/// What a net is opened with.
pub(crate) struct Settings {
    pub(crate) context: Context,
    pub(crate) options: NetOptions,
}

impl Settings {
    /// Takes the options out of the keyword arguments; the others are keys of the configuration.
    pub(crate) fn of(
        tls: Option<&Bound<'_, PyAny>>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Settings> {
        let mut options = NetOptions::default();
        let mut context = Context::builder();
        if let Some(tls) = tls {
            context = context.set("tls", text("tls", tls)?);
        }
        for (name, value) in arguments.into_iter().flat_map(|arguments| arguments.iter()) {
            let name: String = name.extract()?;
            if name == "config_file" {
                context = context.config_file(value.extract::<std::path::PathBuf>()?);
            } else if !set_option(&mut options, &name, &value)? {
                context = context.set(&name, text(&name, &value)?);
            }
        }
        let context = context.build().map_err(|wrong| PyValueError::new_err(wrong.to_string()))?;
        Ok(Settings { context, options })
    }
}

/// Sets an option of that name, if there is one.
fn set_option(options: &mut NetOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let duration = || seconds(name, value.extract()?);
    match name {
        "wait" => options.wait = wait(value)?,
        "window" => options.window = value.extract()?,
        "max_message" => options.max_message = value.extract()?,
        "max_half_open" => options.max_half_open = value.extract()?,
        "max_connections" => options.max_connections = value.extract()?,
        "max_connections_per_source" => options.max_connections_per_source = value.extract()?,
        "reserved_descriptors" => options.reserved_descriptors = value.extract()?,
        "handshake_timeout" => options.handshake_timeout = duration()?,
        "lane_timeout" => options.lane_timeout = duration()?,
        "connect_timeout" => options.connect_timeout = duration()?,
        "shared_key" => options.shared_key = Some(key(value)?),
        "request" => options.request = request(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A shared key.
fn key(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = || format!("shared_key: expected bytes, not {}", kind(value));
    value.extract().map_err(|_| PyTypeError::new_err(text()))
}

/// How an idle thread waits: `"spin"`, `"sleep"`, or the seconds that it polls for.
fn wait(value: &Bound<'_, PyAny>) -> PyResult<Wait> {
    if let Ok(polls) = value.extract::<f64>() {
        return Ok(Wait::Adaptive(seconds("wait", polls)?));
    }
    match value.extract::<&str>() {
        Ok("spin") => Ok(Wait::Spin),
        Ok("sleep") => Ok(Wait::Sleep),
        _ => Err(PyValueError::new_err(format!(
            "wait = {value:?}: expected \"spin\", \"sleep\" or seconds to poll for"
        ))),
    }
}

/// What a transport is chosen for: the name of an operation, and bytes.
pub(crate) fn request(value: &Bound<'_, PyAny>) -> PyResult<Request> {
    let names = || OPERATIONS.map(Operation::name).join(", ");
    let expected = || {
        let text =
            format!("request = {value:?}: expected (operation, bytes), with an operation of {}", names());
        PyValueError::new_err(text)
    };
    let (name, size) = value.extract::<(String, usize)>().map_err(|_| expected())?;
    let operation = OPERATIONS.into_iter().find(|operation| operation.name() == name);
    operation.map(|operation| Request::new(operation, size)).ok_or_else(expected)
}

/// Names: one, or a list of them.
pub(crate) fn names(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(one) = value.extract::<String>() {
        return Ok(one
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect());
    }
    value.extract().map_err(|_| {
        PyTypeError::new_err(format!("{name}: expected a name or a list of names, not {}", kind(value)))
    })
}

/// A value of a key, as the configuration has it.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(if flag.is_true() { "yes" } else { "no" }.to_owned());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Ok(names(name, value)?.join(","));
    }
    Ok(value.str()?.to_string())
}

/// How long the rest is delivered for when a net ends.
pub(crate) const END: Duration = Duration::from_secs(1);
