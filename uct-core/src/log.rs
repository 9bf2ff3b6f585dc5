//! The host's end of the plugins' log.

use std::slice;

use tracing::level_filters::LevelFilter;
use uct_abi::*;

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
    let line = record.line;
    match record.level {
        UCT_LOG_ERROR => tracing::error!(target: "uct_plugin", module = target, file, line, "{message}"),
        UCT_LOG_WARN => tracing::warn!(target: "uct_plugin", module = target, file, line, "{message}"),
        UCT_LOG_INFO => tracing::info!(target: "uct_plugin", module = target, file, line, "{message}"),
        UCT_LOG_DEBUG => tracing::debug!(target: "uct_plugin", module = target, file, line, "{message}"),
        _ => tracing::trace!(target: "uct_plugin", module = target, file, line, "{message}"),
    }
}

/// The most verbose level that anybody listens to.
pub(crate) unsafe extern "C" fn level() -> u32 {
    match LevelFilter::current().into_level() {
        None => 0,
        Some(tracing::Level::ERROR) => UCT_LOG_ERROR,
        Some(tracing::Level::WARN) => UCT_LOG_WARN,
        Some(tracing::Level::INFO) => UCT_LOG_INFO,
        Some(tracing::Level::DEBUG) => UCT_LOG_DEBUG,
        Some(tracing::Level::TRACE) => UCT_LOG_TRACE,
    }
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
