//! Registered memory.
//!
//! Built on `uct_ib::verbs`.

use std::ptr::NonNull;
use std::sync::Arc;

use uct_ib::verbs::{Access, Mr, MrBuffer, Pd};
use uct_plugin::{Error, Failure, MemoryAccess, Result};

/// A registration.
pub(crate) struct Memh {
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) access: MemoryAccess,
    /// The device's key to it; of no meaning without bytes.
    lkey: u32,
    memory: Memory,
}

enum Memory {
    /// No bytes: there is nothing to register.
    Nothing,
    Given(Mr),
    Allocated(MrBuffer),
}

/// What the device must allow. It may write in any case, since memory is received and read into.
fn device_access(access: MemoryAccess) -> Access {
    let mut wanted = Access::LOCAL_WRITE;
    for (remote, verbs) in [
        (MemoryAccess::REMOTE_PUT, Access::REMOTE_WRITE),
        (MemoryAccess::REMOTE_GET, Access::REMOTE_READ),
        (MemoryAccess::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ] {
        if access.contains(remote) {
            wanted = wanted.and(verbs);
        }
    }
    wanted
}

/// The region widened to whole words of eight bytes, where it can be the target of atomics on four: they are emulated by
/// the device's compare-and-swap on the eight around them.
fn widen(base: u64, length: u64, access: MemoryAccess) -> (u64, u64) {
    if !access.contains(MemoryAccess::REMOTE_ATOMIC) {
        return (base, length);
    }
    let start = base & !7;
    let end = base.saturating_add(length).checked_next_multiple_of(8).unwrap_or(base + length);
    (start, end - start)
}

const fn writing() -> MemoryAccess {
    MemoryAccess::REMOTE_PUT.union(MemoryAccess::REMOTE_ATOMIC)
}

impl Memh {
    /// Registers `length` bytes at `address`.
    ///
    /// # Safety
    /// The memory stays valid as long as the registration.
    pub(crate) unsafe fn register(
        pd: &Arc<Pd>,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Memh, Failure> {
        let base = address.as_ptr() as u64;
        if length == 0 {
            return Ok(Memh { base, length: 0, access, lkey: 0, memory: Memory::Nothing });
        }
        if base.checked_add(length as u64).is_none() {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("{length} bytes at {base:#x} wrap around the end of the address space"),
            ));
        }
        let (start, bytes) = widen(base, length as u64, access);
        let before = (base - start) as usize;
        let start = address.as_ptr().wrapping_sub(before);
        let register = |access: Access| {
            // SAFETY: the caller keeps the memory valid; widening by less than a word
            // stays on the same pages.
            unsafe { Mr::register(pd, start, bytes as usize, access) }
        };
        let mr = match register(device_access(access)) {
            // Memory that may only be read can still be sent.
            Err(error) if error.is_bad_memory() && !access.intersects(writing()) => {
                register(if access.contains(MemoryAccess::REMOTE_GET) {
                    Access::REMOTE_READ
                } else {
                    Access::LOCAL_READ
                })
            }
            other => other,
        };
        let mr = mr?;
        Ok(Memh { base, length: length as u64, access, lkey: mr.lkey(), memory: Memory::Given(mr) })
    }

    /// Allocates at least `length` bytes and registers them; returns where they are and how many.
    pub(crate) fn allocate(
        pd: &Arc<Pd>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        let buffer = MrBuffer::new(pd, length, device_access(access))?;
        let address = NonNull::new(buffer.as_ptr()).ok_or(Error::NO_MEMORY)?;
        let length = buffer.length();
        let memh = Memh {
            base: address.as_ptr() as u64,
            length: length as u64,
            access,
            lkey: buffer.mr().lkey(),
            memory: Memory::Allocated(buffer),
        };
        Ok((address, length, memh))
    }

    /// The device's key for peers; of no meaning without bytes.
    pub(crate) fn rkey(&self) -> u32 {
        self.mr().map_or(0, Mr::rkey)
    }

    fn mr(&self) -> Option<&Mr> {
        match &self.memory {
            Memory::Nothing => None,
            Memory::Given(mr) => Some(mr),
            Memory::Allocated(buffer) => Some(buffer.mr()),
        }
    }

    /// The local key for these bytes; `None` if they are not all registered.
    #[inline]
    pub(crate) fn lkey(&self, address: u64, length: usize) -> Option<u32> {
        let offset = address.wrapping_sub(self.base);
        let fits = offset <= self.length && length as u64 <= self.length - offset;
        fits.then_some(self.lkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_for_atomics_is_widened_to_whole_words() {
        let atomic = MemoryAccess::REMOTE_ATOMIC;
        assert_eq!(widen(1004, 4, atomic), (1000, 8));
        assert_eq!(widen(1000, 16, atomic), (1000, 16));
        assert_eq!(widen(1004, 4, MemoryAccess::REMOTE_PUT), (1004, 4));
    }
}
