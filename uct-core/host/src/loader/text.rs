//! Strings that a plugin hands over: read with bounds, checked, copied.
//!
//! Used by the handshake, and whatever else receives names from a plugin. Built on `uct-abi`.

use ucs::text::Visible;
use uct_abi::{UctStr, UctText};

use super::failure::LoadFailureKind;

/// Longest name of a component, in bytes.
pub const COMPONENT_NAME_LIMIT: usize = 16;
/// Longest name of a memory domain, in bytes.
pub const MD_NAME_LIMIT: usize = 16;
/// Longest name of a transport, in bytes.
pub const TL_NAME_LIMIT: usize = 10;
/// Longest name of a device, in bytes.
pub const DEVICE_NAME_LIMIT: usize = 32;

/// Longest text of any other kind that is taken from a plugin, in bytes.
const TEXT_LIMIT: usize = 64 * 1024;

/// Longest reason that a plugin can give, in bytes.
const REASON_CAPACITY: usize = 1024;

/// Reads a string of a plugin; an absent one is empty. `what` names it in the error: "name of a transport".
///
/// # Errors
/// Longer than any real text, a null pointer with a length, or not UTF-8.
///
/// # Safety
/// Where `text.data` is not null, `text.length` bytes there are readable.
pub(super) unsafe fn text(text: UctStr, what: &str) -> Result<String, LoadFailureKind> {
    // SAFETY: the caller promises what the function asks for.
    unsafe { text_within(text, what, TEXT_LIMIT) }
}

/// Reads a name that people will type, in lists too: one to `limit` visible ASCII characters but `,` and `^`.
///
/// # Errors
/// Anything else, with what was found.
///
/// # Safety
/// As for [`text`].
pub unsafe fn name(name: UctStr, what: &str, limit: usize) -> Result<String, LoadFailureKind> {
    // SAFETY: the caller promises what the function asks for.
    let name = unsafe { text_within(name, what, limit) }?;
    if is_name(name.as_bytes(), limit) {
        return Ok(name);
    }
    let problem = format!(
        "expected 1 to {limit} visible ASCII characters but `,` and `^`, found \"{}\"",
        name.escape_debug()
    );
    Err(LoadFailureKind::Text { what: what.to_owned(), problem })
}

/// Whether bytes are a name that people can type, in lists too.
pub fn is_name(bytes: &[u8], limit: usize) -> bool {
    let is_usable = |&byte: &u8| byte.is_ascii_graphic() && byte != b',' && byte != b'^';
    (1..=limit).contains(&bytes.len()) && bytes.iter().all(is_usable)
}

unsafe fn text_within(text: UctStr, what: &str, limit: usize) -> Result<String, LoadFailureKind> {
    let refused = |problem| Err(LoadFailureKind::Text { what: what.to_owned(), problem });
    if text.length == 0 {
        return Ok(String::new());
    }
    if text.data.is_null() {
        return refused(format!("{} bytes at a null pointer", text.length));
    }
    if text.length > limit {
        return refused(format!("{} bytes long, at most {limit} are allowed", text.length));
    }
    // SAFETY: the pointer is not null, and the caller promises that so many bytes are readable there.
    let bytes = unsafe { std::slice::from_raw_parts(text.data, text.length) };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => refused(format!("not UTF-8: {error}, in \"{}\"", bytes.escape_ascii())),
    }
}

/// Calls something that may write a reason, and returns what was written, as text on one line.
pub(super) fn with_reason<T>(call: impl FnOnce(*mut UctText) -> T) -> (T, String) {
    let mut buffer = [0_u8; REASON_CAPACITY];
    let mut reason = UctText { data: buffer.as_mut_ptr(), capacity: buffer.len(), length: 0 };
    let answer = call(&raw mut reason);
    let length = reason.length.min(REASON_CAPACITY);
    let text = String::from_utf8_lossy(&buffer[..length]);
    (answer, Visible(text.trim()).to_string())
}
