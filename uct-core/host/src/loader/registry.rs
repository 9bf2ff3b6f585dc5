//! What this process has loaded already: a plugin is checked once and started once, whatever number of contexts ask.
//!
//! Used by [`load`](super::load). Built on [`handshake`](super::handshake). A plugin is known by the address of its
//! table, which it keeps for ever: the same file under two names has one, a copy of the file another.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use uct_abi::{UctHost, UctPlugin};

use super::{
    failure::LoadFailureKind,
    handshake::{Prepared, prepare, start},
};

static REGISTRY: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

struct Entry {
    prepared: Result<Prepared, LoadFailureKind>,
    started: Option<Result<(), LoadFailureKind>>,
}

/// The plugin of this table, checked now or earlier.
///
/// # Safety
/// As for [`prepare`].
pub(super) unsafe fn prepared(table: *const UctPlugin) -> Result<Prepared, LoadFailureKind> {
    // SAFETY: the caller promises what `prepare` asks for.
    let check = || Entry { prepared: unsafe { prepare(table) }, started: None };
    entries().entry(table.addr()).or_insert_with(check).prepared.clone()
}

/// Starts the plugin of this table, which [`prepared`] returned, unless that was done or tried before; then it
/// returns the same again. Other threads wait meanwhile, so that none uses a plugin that is not ready. An `init` must
/// not load plugins.
pub(super) fn started(
    table: *const UctPlugin,
    plugin: &Prepared,
    host: &'static UctHost,
) -> Result<(), LoadFailureKind> {
    match entries().get_mut(&table.addr()) {
        Some(entry) => entry.started.get_or_insert_with(|| start(plugin, host)).clone(),
        None => start(plugin, host),
    }
}

/// A panic while it was locked left at worst a plugin out that will be tried again.
fn entries() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
