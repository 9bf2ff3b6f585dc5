//! Reading one value from a file of /proc or /sys.
//!
//! Used by the modules of `sys`. Built on `std::fs`. Nothing outside of `sys` uses it.
//! Absence is ordinary here (containers hide files, kernels lack them), so the result is an `Option`.

use std::path::Path;
use std::str::FromStr;

/// The file's text without the white space around it; `None` if it cannot be read or is empty.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The file's text as a value.
pub(crate) fn value<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The last part of where a symbolic link points.
pub(crate) fn link_name(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
