//! Sizes of objects that are offered.

use std::ffi::c_int;

/// Requests of a queue.
pub const MAX_REQUESTS: u32 = 16_384;
/// Pieces of a request.
pub const MAX_PIECES: u32 = 32;
/// Completions of a queue.
pub const MAX_COMPLETIONS: c_int = 1 << 20;
/// Bytes of inline data.
pub const MAX_INLINE: u32 = 512;
