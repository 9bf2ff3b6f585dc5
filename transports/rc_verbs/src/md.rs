//! The memory domain of a device: registration, and the keys that let peers use it.
//!
//! For: zero copy, put, get and atomics. Stands on `uct_ib::verbs`.
//!
//! A packed key, 28 bytes, little-endian: magic (4), remote key (4), first address (8), length (8), access (4). The access
//! is checked by the initiator, so that a mistake is an error of the call; the device of the target checks it again.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use uct_ib::verbs::{Access, Mr, MrBuffer, Pd};
use uct_ib::{IbDevice, component};
use uct_plugin::{Component, Error, Failure, Md, MdAttr, MemoryAccess, Result, Settings};

use crate::config::RcConfig;

/// The component `rc_verbs`.
pub(crate) struct RcComponent;

/// The memory domain of a device.
pub(crate) struct RcMd {
    pub(crate) device: IbDevice,
    pub(crate) pd: Arc<Pd>,
}

/// A registration.
pub(crate) struct Memh {
    base: u64,
    length: u64,
    access: MemoryAccess,
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

/// A remote key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rkey {
    key: u32,
    access: u32,
    base: u64,
    length: u64,
}

const PACKED_KEY: usize = 28;
const MAGIC: u32 = u32::from_le_bytes(*b"rcmr");

impl Component for RcComponent {
    const NAME: &'static str = "rc_verbs";
    type Md = RcMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        component::memory_domains()
    }

    fn open(name: &str, settings: &Settings<'_>) -> Result<RcMd, Failure> {
        let config = RcConfig::from_settings(settings)?;
        let (device, pd) = component::open(name, config.fork_init)?;
        Ok(RcMd { device, pd })
    }
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

impl Md for RcMd {
    type Memh = Memh;
    type Rkey = Rkey;

    fn attributes(&self) -> MdAttr {
        component::md_attributes(&self.device, PACKED_KEY)
    }

    unsafe fn register(
        &self,
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
            // SAFETY: the caller keeps the memory valid until `deregister`; widening by less than a word
            // stays on the same pages.
            unsafe { Mr::register(&self.pd, start, bytes as usize, access) }
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

    fn allocate(&self, length: usize, access: MemoryAccess) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        let buffer = MrBuffer::new(&self.pd, length, device_access(access))?;
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

    fn advise(&self, _memh: &Memh, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        uct_plugin::memory::advise(address, length, advice)
    }

    fn pack(&self, memh: &Memh, buffer: &mut [u8]) -> Result {
        let buffer: &mut [u8; PACKED_KEY] = buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
        buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        buffer[4..8].copy_from_slice(&memh.mr().map_or(0, Mr::rkey).to_le_bytes());
        buffer[8..16].copy_from_slice(&memh.base.to_le_bytes());
        buffer[16..24].copy_from_slice(&memh.length.to_le_bytes());
        buffer[24..28].copy_from_slice(&memh.access.bits().to_le_bytes());
        Ok(())
    }

    fn unpack(&self, buffer: &[u8]) -> Result<Rkey, Failure> {
        Rkey::unpack(buffer)
    }

    fn compare(&self, left: &Rkey, right: &Rkey) -> Result<Ordering> {
        Ok(left.cmp(right))
    }
}

const fn writing() -> MemoryAccess {
    MemoryAccess::REMOTE_PUT.union(MemoryAccess::REMOTE_ATOMIC)
}

impl Memh {
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

impl Rkey {
    fn unpack(packed: &[u8]) -> Result<Self, Failure> {
        let refuse = |what: String| {
            Err(Failure::new(
                Error::INVALID_PARAM,
                format!("{what}; expected the {PACKED_KEY} bytes that a peer's key packs to"),
            ))
        };
        let Ok(packed) = <&[u8; PACKED_KEY]>::try_from(packed) else {
            return refuse(format!("a remote key of {} bytes", packed.len()));
        };
        let half =
            |at: usize| u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        if half(0) != MAGIC {
            return refuse("a remote key of another kind".to_owned());
        }
        let key = Self { key: half(4), base: word(8), length: word(16), access: half(24) };
        if key.base.checked_add(key.length).is_none() {
            return refuse("a remote key that wraps around the end of the address space".to_owned());
        }
        Ok(key)
    }

    /// The verbs' key, after a check that the access may be made.
    #[inline(always)]
    pub(crate) fn check(&self, address: u64, length: usize, access: MemoryAccess) -> Result<u32> {
        let offset = address.wrapping_sub(self.base);
        if offset > self.length || length as u64 > self.length - offset {
            Err(Error::OUT_OF_RANGE)
        } else if self.access & access.bits() != access.bits() {
            Err(Error::INVALID_PARAM)
        } else {
            Ok(self.key)
        }
    }
}

/// Entry for fuzzing: reads arbitrary bytes as a packed key, and asks it for what it covers and for one byte more on either side.
pub fn fuzz_key(bytes: &[u8]) {
    match Rkey::unpack(bytes) {
        Ok(key) => {
            assert_eq!(bytes.len(), PACKED_KEY);
            let (nothing, length) = (MemoryAccess::empty(), key.length as usize);
            assert_eq!(key.check(key.base, length, nothing), Ok(key.key));
            assert_eq!(key.check(key.base + key.length, 0, nothing), Ok(key.key));
            assert_eq!(key.check(key.base.wrapping_sub(1), 1, nothing), Err(Error::OUT_OF_RANGE));
            assert_eq!(key.check(key.base + key.length, 1, nothing), Err(Error::OUT_OF_RANGE));
            let granted = MemoryAccess::from_bits_truncate(key.access);
            assert_eq!(key.check(key.base, length, granted), Ok(key.key));
            for right in MemoryAccess::all().difference(granted).iter() {
                assert_eq!(key.check(key.base, length, right), Err(Error::INVALID_PARAM), "{right:?}");
            }
        }
        Err(refused) => assert!(!refused.reason.is_empty(), "a refusal has a reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_region_for_atomics_is_widened_to_whole_words() {
        let atomic = MemoryAccess::REMOTE_ATOMIC;
        assert_eq!(widen(1004, 4, atomic), (1000, 8));
        assert_eq!(widen(1000, 16, atomic), (1000, 16));
        assert_eq!(widen(1004, 4, MemoryAccess::REMOTE_PUT), (1004, 4));
    }

    #[test]
    fn an_access_beyond_the_region_or_not_granted_is_refused() {
        let key = Rkey { key: 7, access: MemoryAccess::REMOTE_GET.bits(), base: 1000, length: 64 };
        for (address, length, expected) in [
            (1000, 64, Ok(7)),
            (1064, 0, Ok(7)),
            (1063, 2, Err(Error::OUT_OF_RANGE)),
            (999, 1, Err(Error::OUT_OF_RANGE)),
            (1000, usize::MAX, Err(Error::OUT_OF_RANGE)),
        ] {
            assert_eq!(key.check(address, length, MemoryAccess::REMOTE_GET), expected);
        }
        assert_eq!(key.check(1000, 1, MemoryAccess::REMOTE_PUT), Err(Error::INVALID_PARAM));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_bytes_are_unpacked_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            fuzz_key(&bytes);
        }
    }
}
