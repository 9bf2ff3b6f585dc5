//! Which memory domain of this process a key belongs to, if any: its memory can then be accessed directly, and the calling thread may
//! be the one that drives the target.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The open memory domains of a component, by the identities in their keys ([`RemoteKey::identity`](super::RemoteKey)).
#[derive(Debug)]
pub struct KnownDomains<M>(Mutex<Vec<(u64, Weak<M>)>>);

impl<M> KnownDomains<M> {
    /// None; for a `static`.
    pub const fn new() -> KnownDomains<M> {
        KnownDomains(Mutex::new(Vec::new()))
    }

    /// Adds a domain, as long as it is held elsewhere.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_domains_is_found_by_its_own_identity_as_long_as_it_is_open() {
        let known = KnownDomains::new();
        let domains = [1, 2, 3].map(|identity| (identity, Arc::new(identity)));
        for (identity, domain) in &domains {
            known.add(*identity, domain);
            // Each interface of a domain adds it.
            known.add(*identity, domain);
        }
        for (identity, domain) in &domains {
            assert_eq!(known.find(*identity).as_ref(), Some(domain));
        }
        assert_eq!(known.find(4), None);
        let [(first, domain), rest @ ..] = domains;
        drop(domain);
        assert_eq!(known.find(first), None, "it is closed");
        for (identity, domain) in &rest {
            assert_eq!(known.find(*identity).as_ref(), Some(domain));
        }
        let again = Arc::new(first);
        known.add(first, &again);
        assert_eq!(known.find(first), Some(again));
        assert_eq!(known.lock().len(), 3, "what is closed is forgotten, and nothing is there twice");
    }
}
