//! Receives the log records of plugins.

use std::slice;

use ucs::log::{Record, max_level_number, receive};
use uct_abi::{UctLogRecord, UctStr};

/// Takes one record of a plugin and gives it to the subscriber of this process.
pub(crate) unsafe extern "C" fn log(record: *const UctLogRecord) {
    // SAFETY: the record is valid for the call (`UctHost::log`).
    let record = unsafe { &*record };
    // SAFETY: its strings are as well.
    let target = unsafe { words(record.target) };
    // SAFETY: as above.
    let message = unsafe { words(record.message) };
    // SAFETY: as above.
    let file = unsafe { words(record.file) };
    receive::emit(&Record { level: record.level, target, file, line: record.line, message });
}

/// The most verbose level that is in use.
pub(crate) unsafe extern "C" fn level() -> u32 {
    max_level_number()
}

/// # Safety
/// `text` is valid for `'a`.
pub(crate) unsafe fn words<'a>(text: UctStr) -> &'a str {
    if text.length == 0 || text.data.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(text.data, text.length) };
    str::from_utf8(bytes).unwrap_or("(not UTF-8)")
}
