//! Lists that a plugin hands over: read with bounds.
//!
//! Used by [`handshake`](super::handshake) and [`config`](super::config).

use super::failure::LoadFailureKind;

/// A list of a plugin, which may be empty.
///
/// # Safety
/// Where `first` is not null, `count` entries are readable there, for ever.
pub(super) unsafe fn array<T: 'static>(
    first: *const T,
    count: usize,
    what: &'static str,
    limit: usize,
) -> Result<&'static [T], LoadFailureKind> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > limit {
        return Err(LoadFailureKind::TooMany { what, count, limit });
    }
    if first.is_null() || !first.is_aligned() {
        let problem = format!("{count} are claimed, but the pointer to them is null or not aligned");
        return Err(LoadFailureKind::Text { what: format!("list of {what}"), problem });
    }
    // SAFETY: the pointer is aligned and not null, and the caller promises so many entries.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}
