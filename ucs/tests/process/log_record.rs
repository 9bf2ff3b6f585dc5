//! A record as a plugin would send it.

use ucs::log::Record;

/// A message in braces, which nothing may take for a format.
pub const RECORD: Record<'static> =
    Record { level: 4, target: "uct_tcp::ep", file: "src/ep.rs", line: 42, message: "sent {8} bytes" };
