//! Locks of this flavour.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. What a thread that panicked has left is whole: nothing here panics between two states.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
