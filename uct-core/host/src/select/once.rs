//! Warnings that a process gets once for each cause, however many peers they concern.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Causes that are remembered. No process has as many.
const MOST_CAUSES: usize = 64;

/// The causes of which this process has been warned.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether the process has not been warned of this cause yet. The cause is this side's: what peers say is no part of it.
pub(super) fn is_new(cause: String) -> bool {
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    warned.len() < MOST_CAUSES && warned.insert(cause)
}
