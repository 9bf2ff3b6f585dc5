//! An address vector: socket addresses by index.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The index of no address (`FI_ADDR_NOTAVAIL`, and `FI_ADDR_UNSPEC` where any is meant).
pub const NOT_AVAILABLE: u64 = u64::MAX;

/// Socket addresses by index, for any thread. An address that is inserted again has the same index.
#[derive(Default)]
pub struct AddressVector {
    inner: RwLock<Inner>,
    /// Changes with each insertion and removal.
    version: AtomicU64,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Option<(SocketAddr, u32)>>,
    free: Vec<usize>,
    indices: HashMap<SocketAddr, usize>,
}

impl AddressVector {
    /// An empty one.
    pub fn new() -> AddressVector {
        AddressVector::default()
    }

    /// The index of an address, which is inserted if it is new.
    pub fn insert(&self, address: SocketAddr) -> u64 {
        let mut inner = self.write();
        if let Some(&index) = inner.indices.get(&address) {
            if let Some((_, uses)) = &mut inner.slots[index] {
                *uses += 1;
            }
            return index as u64;
        }
        let index = inner.free.pop().unwrap_or(inner.slots.len());
        if index == inner.slots.len() {
            inner.slots.push(None);
        }
        inner.slots[index] = Some((address, 1));
        inner.indices.insert(address, index);
        self.changed();
        index as u64
    }

    /// Removes an address as often as it was inserted; returns whether there was one.
    pub fn remove(&self, index: u64) -> bool {
        let mut inner = self.write();
        let Ok(index) = usize::try_from(index) else { return false };
        let Some(Some((address, uses))) = inner.slots.get_mut(index) else { return false };
        *uses -= 1;
        if *uses > 0 {
            return true;
        }
        let address = *address;
        inner.slots[index] = None;
        inner.indices.remove(&address);
        inner.free.push(index);
        self.changed();
        true
    }

    /// The address with this index.
    pub fn address(&self, index: u64) -> Option<SocketAddr> {
        let slot = *self.read().slots.get(usize::try_from(index).ok()?)?;
        slot.map(|(address, _)| address)
    }

    /// The index of an address, or [`NOT_AVAILABLE`].
    pub fn index(&self, address: &SocketAddr) -> u64 {
        self.read().indices.get(address).map_or(NOT_AVAILABLE, |&index| index as u64)
    }

    /// Changes when an answer of this object may have changed.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        // SYNC: pairs with `changed`, inside the lock that orders the answers.
        self.version.load(Ordering::Acquire)
    }

    fn changed(&self) {
        // SYNC: pairs with `version`.
        self.version.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn the_same_address_has_the_same_index_until_it_is_removed_as_often() {
        let vector = AddressVector::new();
        assert_eq!([1, 2, 1].map(|port| vector.insert(address(port))), [0, 1, 0]);
        assert_eq!(vector.address(1), Some(address(2)));
        assert_eq!(vector.index(&address(3)), NOT_AVAILABLE);
        assert!(vector.remove(0));
        assert_eq!(vector.index(&address(1)), 0);
        let before = vector.version();
        assert!(vector.remove(0));
        assert_ne!(vector.version(), before);
        assert_eq!(vector.index(&address(1)), NOT_AVAILABLE);
        assert!(!vector.remove(0));
        assert!(!vector.remove(NOT_AVAILABLE));
        assert_eq!(vector.insert(address(3)), 0);
    }
}
