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
