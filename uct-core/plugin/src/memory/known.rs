//! Which memory domain of this process a key belongs to, where it belongs to one: its memory is then at hand, and its owner may be
//! the very thread that asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The open memory domains of a component, by the identities in their keys ([`RemoteKey::identity`](super::RemoteKey)).
#[derive(Debug)]
pub struct KnownDomains<M>(Mutex<Vec<(u64, Weak<M>)>>);

impl<M> KnownDomains<M> {
    /// None; for a `static`.
    pub const fn new() -> KnownDomains<M> {
        KnownDomains(Mutex::new(Vec::new()))
    }

    /// Adds a domain, as long as somebody else holds it.
    pub fn add(&self, identity: u64, md: &Arc<M>) {
        let mut known = self.lock();
        known.retain(|(_, md)| md.strong_count() > 0);
        if !known.iter().any(|(other, _)| *other == identity) {
            known.push((identity, Arc::downgrade(md)));
        }
    }

    /// The domain of this process that a key of this identity belongs to.
    pub fn find(&self, identity: u64) -> Option<Arc<M>> {
        self.lock().iter().find(|(other, _)| *other == identity)?.1.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Weak<M>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Default for KnownDomains<M> {
    fn default() -> KnownDomains<M> {
        KnownDomains::new()
    }
}
