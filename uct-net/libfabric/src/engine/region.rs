//! Regions: memory that peers may read and write, by key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, Errno};

/// What peers may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read it. Atomic operations that fetch need this too.
    pub read: bool,
    /// Write it. Atomic operations that change it need this too.
    pub write: bool,
}

/// The regions of a domain.
#[derive(Default)]
pub(super) struct Regions {
    by_key: Mutex<HashMap<u64, (Buffer, Access)>>,
}

/// A registered region. Dropping this revokes its key: the memory is the program's afterwards. It waits for a peer's access that is being carried
/// out, at most for one fragment.
pub struct Region {
    regions: Arc<Regions>,
    key: u64,
}

impl Region {
    pub(super) fn new(
        regions: &Arc<Regions>,
        key: u64,
        memory: Buffer,
        access: Access,
    ) -> Result<Region, Errno> {
        let mut by_key = regions.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if by_key.contains_key(&key) {
            return Err(Errno::NO_KEY);
        }
        by_key.insert(key, (memory, access));
        Ok(Region { regions: Arc::clone(regions), key })
    }

    /// Its key, for peers.
    pub fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.regions.by_key.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Regions {
    /// Uses bytes of a region, which is not revoked meanwhile. The work is short.
    ///
    /// # Errors
    /// No region has this key, it ends before the bytes do, or it does not permit the access.
    pub(super) fn with<T>(
        &self,
        key: u64,
        offset: u64,
        length: usize,
        wanted: Access,
        work: impl FnOnce(Buffer) -> T,
    ) -> Result<T, Errno> {
        let by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let (memory, access) = by_key.get(&key).ok_or(Errno::NO_KEY)?;
        if wanted.read && !access.read || wanted.write && !access.write {
            return Err(Errno::ACCESS);
        }
        let offset = usize::try_from(offset).map_err(|_| Errno::INVALID)?;
        let end = offset.checked_add(length).ok_or(Errno::INVALID)?;
        if end > memory.len() {
            return Err(Errno::INVALID);
        }
        Ok(work(memory.part(offset, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access { read: true, write: false };
    const WRITE: Access = Access { read: false, write: true };

    #[test]
    fn a_key_opens_its_bytes_and_no_others_until_it_is_revoked() {
        let regions = Arc::new(Regions::default());
        let mut bytes = [0_u8; 16];
        // SAFETY: the bytes outlive the region.
        let memory = unsafe { Buffer::new(bytes.as_mut_ptr(), bytes.len()) };
        let region = Region::new(&regions, 7, memory, WRITE).unwrap();
        assert_eq!(Region::new(&regions, 7, memory, WRITE).err(), Some(Errno::NO_KEY));
        assert_eq!(regions.with(7, 8, 8, WRITE, |part| part.write(&[1; 9])), Ok(8));
        assert_eq!(regions.with(7, 8, 8, READ, |_| ()), Err(Errno::ACCESS));
        for (offset, length) in [(8, 9), (17, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(regions.with(7, offset, length, WRITE, |_| ()), Err(Errno::INVALID));
        }
        assert_eq!(regions.with(6, 0, 0, WRITE, |_| ()), Err(Errno::NO_KEY));
        drop(region);
        assert_eq!(regions.with(7, 0, 0, WRITE, |_| ()), Err(Errno::NO_KEY));
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
    }
}
