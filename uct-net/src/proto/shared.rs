//! Memory of one side that the other one reads or writes: the payload of messages that share it.

/// Longest key: those of all transports of this workspace take a tenth of it, and keys wait for the application beside its messages.
pub(crate) const MAX_KEY: usize = 1024;

/// Memory that a peer shares: the payload of a message of kind `Share`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) key: Vec<u8>,
}

impl Shared {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.address.to_le_bytes(), self.length.to_le_bytes()].concat();
        bytes.extend_from_slice(&self.key);
        bytes
    }

    /// Reads untrusted bytes; the key is checked where it is unpacked.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Shared> {
        let (address, rest) = bytes.split_first_chunk::<8>()?;
        let (length, key) = rest.split_first_chunk::<8>()?;
        let (address, length) = (u64::from_le_bytes(*address), u64::from_le_bytes(*length));
        address.checked_add(length)?;
        if key.len() > MAX_KEY {
            return None;
        }
        Some(Shared { address, length, key: key.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_that_wraps_and_a_key_that_is_none_are_refused() {
        let shared = Shared { address: 4096, length: 100, key: vec![9; 24] };
        assert_eq!(Shared::parse(&shared.to_bytes()), Some(shared.clone()));
        assert_eq!(Shared::parse(&shared.to_bytes()[..15]), None);
        assert_eq!(Shared::parse(&Shared { length: u64::MAX, ..shared.clone() }.to_bytes()), None);
        let with_key = |length| Shared { key: vec![9; length], ..shared.clone() };
        assert_eq!(Shared::parse(&with_key(MAX_KEY).to_bytes()), Some(with_key(MAX_KEY)));
        assert_eq!(Shared::parse(&with_key(MAX_KEY + 1).to_bytes()), None);
    }
}
