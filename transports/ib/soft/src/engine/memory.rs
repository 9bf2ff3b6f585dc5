//! Registered memory, its keys, and every access of the device to memory of the application.
//!
//! For queue pairs. All unsafe code of the engine is here. Each access checks key, protection domain, range and permission,
//! packet by packet, so that deregistered memory is never touched.

use ucs::sync::atomic::Ordering;
use ucs::sync::fixed::AtomicU64;

use slab::Slab;

use super::PdId;
use super::completion::Status;

bitflags::bitflags! {
    /// What may be done with memory, or to a queue pair. The bits are those of the verbs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// The device may write for its owner: receive buffers, and where reads and atomics put what they found.
        const LOCAL_WRITE = 1;
        /// A peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read.
        const REMOTE_READ = 1 << 2;
        /// A peer may use atomics.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

/// A piece of local memory of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The key of the region that it is in.
    pub lkey: u32,
}

/// Why memory is not accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Key, domain, range or permission is wrong.
    Protection,
    /// The pieces are shorter than what goes there.
    Length,
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        match refused {
            Refused::Protection => Status::LocalProtection,
            Refused::Length => Status::LocalLength,
        }
    }
}

struct Region {
    pd: PdId,
    address: u64,
    length: u64,
    access: Access,
    generation: u8,
}

/// The regions of a device.
#[derive(Default)]
pub struct Memory {
    regions: Slab<Region>,
    /// Counts registrations, so that a key is not valid again at once for another region.
    generation: u8,
}

impl Memory {
    /// Registers memory; returns its key, which is local and remote key.
    ///
    /// # Safety
    /// The memory stays valid for what `access` permits until [`Memory::deregister`], and other threads access it
    /// meanwhile only as with a device that reads and writes it on its own.
    pub unsafe fn register(&mut self, pd: PdId, address: u64, length: u64, access: Access) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index = self.regions.insert(Region { pd, address, length, access, generation });
        // Index 0 has a key that is not 0, which programs take for "none".
        ((index as u32 + 1) << 8) | u32::from(generation)
    }

    /// Ends a registration. Whether there was one.
    pub fn deregister(&mut self, key: u32) -> bool {
        match self.index(key) {
            Some(index) => {
                self.regions.remove(index);
                true
            }
            None => false,
        }
    }

    /// Whether a domain has regions.
    pub fn is_used(&self, pd: PdId) -> bool {
        self.regions.iter().any(|(_, region)| region.pd == pd)
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    fn index(&self, key: u32) -> Option<usize> {
        let index = (key >> 8).checked_sub(1)? as usize;
        self.regions
            .get(index)
            .is_some_and(|region| u32::from(region.generation) == key & 0xff)
            .then_some(index)
    }

    /// Checks an access to `length` bytes at `address`. No bytes need no key.
    pub fn check(
        &self,
        pd: PdId,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), Refused> {
        if length == 0 {
            return Ok(());
        }
        let region = self.index(key).map(|index| &self.regions[index]).ok_or(Refused::Protection)?;
        let is_inside = address >= region.address
            && (address - region.address).checked_add(length).is_some_and(|end| end <= region.length);
        if region.pd == pd && is_inside && region.access.contains(access) {
            Ok(())
        } else {
            Err(Refused::Protection)
        }
    }

    /// Reads bytes of a region into `out`.
    pub fn read(
        &self,
        pd: PdId,
        key: u32,
        address: u64,
        access: Access,
        out: &mut [u8],
    ) -> Result<(), Refused> {
        self.check(pd, key, address, out.len() as u64, access)?;
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: `check` found a region that contains the bytes, and who registered it keeps it valid; `out` is a
        // packet of the device, which no region overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Writes bytes into a region.
    pub fn write(
        &self,
        pd: PdId,
        key: u32,
        address: u64,
        access: Access,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        self.check(pd, key, address, bytes.len() as u64, access)?;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: as in `read`; `access` has a permission to write, for which the region was registered.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Executes an atomic operation on eight aligned bytes; returns what they were.
    pub fn atomic(&self, pd: PdId, key: u32, address: u64, operation: Atomic) -> Result<u64, Refused> {
        self.check(pd, key, address, 8, Access::REMOTE_ATOMIC)?;
        debug_assert_eq!(address % 8, 0, "the responder refuses others");
        let place = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
        // SAFETY: as in `read`; the address is a multiple of eight.
        let value = unsafe { AtomicU64::from_ptr(place) };
        // SYNC: atomics of the processors on the same place are in one order with these.
        Ok(match operation {
            Atomic::Add(operand) => value.fetch_add(operand, Ordering::AcqRel),
            Atomic::CompareSwap { compare, swap } => value
                .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|found| found),
        })
    }

    /// Whether every piece may be accessed so.
    pub fn check_pieces(&self, pd: PdId, pieces: &[Piece], access: Access) -> Result<(), Refused> {
        pieces
            .iter()
            .try_for_each(|piece| self.check(pd, piece.lkey, piece.address, u64::from(piece.length), access))
    }

    /// Reads from pieces, beginning so many bytes behind their begin.
    pub fn gather(&self, pd: PdId, pieces: &[Piece], offset: u64, out: &mut [u8]) -> Result<(), Refused> {
        let mut done = 0;
        for (piece, begin, length) in cut(pieces, offset, out.len()) {
            let place = &mut out[done..done + length];
            self.read(pd, piece.lkey, piece.address.wrapping_add(begin), Access::empty(), place)?;
            done += length;
        }
        if done == out.len() { Ok(()) } else { Err(Refused::Length) }
    }

    /// Writes into pieces, beginning so many bytes behind their begin.
    pub fn scatter(&self, pd: PdId, pieces: &[Piece], offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        if pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>() < offset + bytes.len() as u64 {
            return Err(Refused::Length);
        }
        let mut done = 0;
        for (piece, begin, length) in cut(pieces, offset, bytes.len()) {
            let part = &bytes[done..done + length];
            self.write(pd, piece.lkey, piece.address.wrapping_add(begin), Access::LOCAL_WRITE, part)?;
            done += length;
        }
        Ok(())
    }
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds, and wraps around.
    Add(u64),
    /// Sets to `swap` what is equal to `compare`.
    CompareSwap {
        /// What it has to be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
}

/// The parts of pieces that `length` bytes from `offset` on are in: piece, begin in it, bytes.
fn cut(pieces: &[Piece], offset: u64, length: usize) -> impl Iterator<Item = (&Piece, u64, usize)> {
    let (mut skip, mut left) = (offset, length);
    pieces.iter().filter_map(move |piece| {
        let available = u64::from(piece.length);
        if skip >= available || left == 0 {
            skip = skip.saturating_sub(available);
            return None;
        }
        let begin = std::mem::take(&mut skip);
        let taken = usize::try_from(available - begin).unwrap_or(usize::MAX).min(left);
        left -= taken;
        Some((piece, begin, taken))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(memory: &mut Memory, bytes: &mut [u8], access: Access) -> (u64, u32) {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the tests keep the bytes longer than the table.
        let key = unsafe { memory.register(PdId(0), address, bytes.len() as u64, access) };
        (address, key)
    }

    #[test]
    fn pieces_are_read_and_written_across_their_borders() {
        let mut bytes = [0_u8; 32];
        let mut memory = Memory::default();
        let (address, lkey) = registered(&mut memory, &mut bytes, Access::LOCAL_WRITE);
        let pieces = [(16, 3), (0, 0), (8, 4), (0, 2)].map(|(offset, length)| Piece {
            address: address + offset,
            length,
            lkey,
        });
        memory.scatter(PdId(0), &pieces, 1, &[1, 2, 3, 4, 5, 6, 7]).expect("inside");
        let mut found = [0; 9];
        memory.gather(PdId(0), &pieces, 0, &mut found).expect("inside");
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(memory.scatter(PdId(0), &pieces, 3, &[0; 7]), Err(Refused::Length));
        assert_eq!(memory.gather(PdId(0), &pieces, 8, &mut found), Err(Refused::Length));
        assert_eq!(bytes[16..19], [0, 1, 2]);
    }

    #[test]
    fn keys_domains_ranges_and_permissions_are_checked() {
        let mut bytes = [0_u8; 32];
        let mut memory = Memory::default();
        let (address, key) = registered(&mut memory, &mut bytes, Access::REMOTE_READ);
        let check = |memory: &Memory, pd, key, address, length, access| {
            memory.check(PdId(pd), key, address, length, access)
        };
        let read = Access::REMOTE_READ;
        assert_eq!(check(&memory, 0, key, address, 32, read), Ok(()));
        assert_eq!(check(&memory, 0, key, address + 32, 0, read), Ok(()));
        for (pd, key, address, length, access) in [
            (1, key, address, 32, read),
            (0, key ^ 1, address, 32, read),
            (0, 0, address, 32, read),
            (0, key, address + 1, 32, read),
            (0, key, address - 1, 2, read),
            (0, key, address, u64::MAX, read),
            (0, key, address, 8, Access::REMOTE_WRITE),
        ] {
            assert_eq!(check(&memory, pd, key, address, length, access), Err(Refused::Protection));
        }
        assert!(memory.deregister(key) && !memory.deregister(key));
        assert_eq!(check(&memory, 0, key, address, 1, read), Err(Refused::Protection));
        let (_, again) = registered(&mut memory, &mut bytes, read);
        assert_ne!(key, again, "the place is the same, the key is not");
    }

    #[test]
    fn atomics_return_what_was_there() {
        let mut words = [5_u64; 2];
        let mut memory = Memory::default();
        let address = words.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the words outlive the table.
        let key = unsafe { memory.register(PdId(0), address, 16, Access::REMOTE_ATOMIC) };
        assert_eq!(memory.atomic(PdId(0), key, address, Atomic::Add(u64::MAX)), Ok(5));
        assert_eq!(memory.atomic(PdId(0), key, address, Atomic::CompareSwap { compare: 5, swap: 9 }), Ok(4));
        assert_eq!(memory.atomic(PdId(0), key, address, Atomic::CompareSwap { compare: 4, swap: 9 }), Ok(4));
        assert_eq!(memory.atomic(PdId(0), key, address + 16, Atomic::Add(1)), Err(Refused::Protection));
        assert_eq!(words, [9, 5]);
    }
}
