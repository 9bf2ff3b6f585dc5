//! Lays a plugin's table over one whose every optional slot returns `UCT_ERR_UNSUPPORTED`.
//!
//! Used by [`handshake`](super::handshake). Built on [`table`](super::table). Done once for each table, when the plugin
//! is loaded; afterwards a call needs no check of size or null.

use std::mem::MaybeUninit;

use super::{failure::LoadFailureKind, table::Table};

/// Copies a plugin's table: at most as much as both sides know, and only whole words. Mandatory slots must be there;
/// of the rest every one that is missing or null is replaced.
///
/// `subject` names in messages what the table belongs to.
///
/// # Safety
/// Where `offered` is not null and aligned, it points to a table that is readable up to its `size` and at least up to
/// the end of the field `size` itself.
pub(super) unsafe fn overlay<T: Table>(offered: *const T, subject: &str) -> Result<T, LoadFailureKind> {
    if offered.is_null() || !offered.is_aligned() {
        return Err(LoadFailureKind::NoTable { table: T::NAME, subject: subject.to_owned() });
    }
    let size = offered.wrapping_byte_add(T::SIZE_OFFSET).cast::<usize>();
    // SAFETY: the caller promises that the field `size` is readable; it is aligned, since the table is.
    let size = unsafe { size.read() };
    if size < T::MINIMUM {
        return Err(LoadFailureKind::TableTooShort {
            table: T::NAME,
            subject: subject.to_owned(),
            offered: size,
            minimum: T::MINIMUM,
        });
    }
    let mut table = MaybeUninit::<T>::zeroed();
    // A slot of which only a part is there is not there.
    let known = size.min(size_of::<T>()) & !(size_of::<usize>() - 1);
    // SAFETY: `known` is no more than the plugin's table has, by its `size`, nor than ours has; ours is new
    // memory.
    unsafe { offered.cast::<u8>().copy_to_nonoverlapping(table.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: all bytes are initialised, and `Table` promises that every pattern of bits is a value.
    let mut table = unsafe { table.assume_init() };
    if let Some(slot) = table.missing_slot() {
        return Err(LoadFailureKind::MissingSlot { table: T::NAME, subject: subject.to_owned(), slot });
    }
    table.fill();
    Ok(table)
}
