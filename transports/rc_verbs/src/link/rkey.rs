//! The keys that let peers use registered memory.
//!
//! A packed key, 28 bytes, little-endian: magic (4), remote key (4), first address (8), length (8), access (4). The access
//! is checked by the initiator, so that a mistake is an error of the call; the device of the target checks it again.

use uct_plugin::{Error, Failure, MemoryAccess, Result};

use crate::io::memory::Memh;

/// A remote key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rkey {
    key: u32,
    access: u32,
    base: u64,
    length: u64,
}

/// Bytes of a packed key.
pub(crate) const PACKED_KEY: usize = 28;
const MAGIC: u32 = u32::from_le_bytes(*b"rcmr");

/// Packs the key of a registration.
pub(crate) fn pack(memh: &Memh, buffer: &mut [u8]) -> Result {
    let buffer: &mut [u8; PACKED_KEY] = buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
    buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[4..8].copy_from_slice(&memh.rkey().to_le_bytes());
    buffer[8..16].copy_from_slice(&memh.base.to_le_bytes());
    buffer[16..24].copy_from_slice(&memh.length.to_le_bytes());
    buffer[24..28].copy_from_slice(&memh.access.bits().to_le_bytes());
    Ok(())
}

impl Rkey {
    /// Reads the bytes of a packed key.
    pub(crate) fn unpack(packed: &[u8]) -> Result<Self, Failure> {
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

/// Entry for fuzzing: reads arbitrary bytes as a packed key, and checks accesses to its region and one byte beyond on either side.
#[cfg(any(test, feature = "testing"))]
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
