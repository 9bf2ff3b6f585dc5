//! Whether the mappings of the caller's memory permit what a registration is to permit.
//!
//! Used by `memory`, ahead of the transport, so that all of them refuse the same. Built on `ucs::memory::mapped`.

#![forbid(unsafe_code)]

use std::ptr::NonNull;

use ucs::memory::mapped;
use ucs::{Error, Result};

use super::MemoryDomain;
use super::access::Access;
use crate::error::Refused;

/// Checks that they permit reading, and writing if peers may write; returns whether they permit writing.
/// Where the system does not say, that is the caller's promise.
pub(super) fn check(
    md: &MemoryDomain,
    address: NonNull<u8>,
    length: usize,
    access: Access,
) -> Result<bool, Refused> {
    let start = address.as_ptr().addr();
    // One that wraps around is refused for that.
    let Some(end) = start.checked_add(length).filter(|end| *end > start) else { return Ok(true) };
    let Ok(permitted) = mapped::permitted(start..end) else { return Ok(true) };
    let refused = |reason| Refused {
        operation: "register memory",
        subject: md.name().to_owned(),
        status: Error::INVALID_PARAM,
        reason,
    };
    if permitted.readable_to < end {
        let at = permitted.readable_to;
        return Err(refused(format!(
            "of the {length} bytes at {address:p}, those from {at:#x} on are not mapped, or may not be read"
        )));
    }
    let is_writable = permitted.writable_to == end;
    if !is_writable && access.intersects(Access::REMOTE_PUT | Access::REMOTE_ATOMIC) {
        let at = permitted.writable_to;
        return Err(refused(format!(
            "of the {length} bytes at {address:p}, those from {at:#x} on may only be read, but the access lets peers \
             write to them; register them for REMOTE_GET alone, or map them for writing"
        )));
    }
    Ok(is_writable)
}
