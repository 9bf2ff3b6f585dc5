//! The table in which a process shows its peers which of its registrations live, and the names by which peers announce copies.

/// Registrations that may live at a time.
pub(crate) const ENTRIES: usize = 1 << 20;
/// Bytes of the table; pages are used when their entries are.
pub(crate) const TABLE_BYTES: usize = ENTRIES * size_of::<u64>();

/// The entry of a key. Any key has one: its index is cut to fit.
pub(crate) fn entry(key: u64) -> usize {
    key as u32 as usize % ENTRIES
}

/// What that entry holds while the registration of `key` lives: never 0, and a multiple of 2^32 (`Window::new`).
pub(crate) fn live_value(key: u64) -> u64 {
    const GENERATION: u64 = 1 << 32;
    (key & !(GENERATION - 1)).wrapping_add(GENERATION).max(GENERATION)
}

/// What a registration is named by that a peer has the kernel copy to or from: never 0. Of its secret, which a peer without the key cannot
/// name; the key is in the table that all peers read.
pub(crate) fn name(secret: u64) -> u64 {
    secret.wrapping_add(1).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of both processes, each in its own build.
    #[test]
    fn a_key_has_the_entry_of_its_number_and_the_value_of_its_generation() {
        for (key, place) in [(0, 0), (7, 7), (7 << 32 | 5, 5), (ENTRIES as u64 - 1, ENTRIES - 1)] {
            assert_eq!(entry(key), place, "{key:#x}");
        }
        assert_eq!(entry(ENTRIES as u64 + 3), 3, "any number has a place in the table");
        for (key, generation) in [(0, 1), (u64::from(u32::MAX), 1), (7 << 32 | 5, 8)] {
            assert_eq!(live_value(key), generation << 32, "{key:#x}");
        }
        assert_eq!(live_value(u64::MAX), 1 << 32, "0 is that of no registration");
        assert_eq!(TABLE_BYTES, 8 << 20);
    }

    #[test]
    fn a_copy_is_named_by_its_secret_and_never_by_zero() {
        assert_eq!([0, 7, u64::MAX - 1, u64::MAX].map(name), [1, 8, u64::MAX, 1]);
    }
}
