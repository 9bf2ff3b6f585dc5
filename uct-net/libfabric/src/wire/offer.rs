//! Where the bytes of an announced message can be read.

/// The sender's registered memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its first byte.
    pub address: u64,
    /// The key, as the transport packs it.
    pub key: Box<[u8]>,
}

/// Most bytes of a key.
const MAX_KEY: usize = 400;

impl Offer {
    /// The bytes of an offer: the address, of 8 bytes, little endian, and the key. `None` if the key is too long.
    pub fn to_bytes(address: u64, key: &[u8]) -> Option<Vec<u8>> {
        let is_fit = (1..=MAX_KEY).contains(&key.len());
        is_fit.then(|| [&address.to_le_bytes(), key].concat())
    }

    /// Reads an offer; `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Offer> {
        let (address, key) = bytes.split_first_chunk::<8>()?;
        let is_fit = (1..=MAX_KEY).contains(&key.len());
        is_fit.then(|| Offer { address: u64::from_le_bytes(*address), key: key.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_and_no_other_bytes_are() {
        let bytes = Offer::to_bytes(u64::MAX - 1, b"key").unwrap();
        assert_eq!(Offer::parse(&bytes), Some(Offer { address: u64::MAX - 1, key: (*b"key").into() }));
        for length in 0..=8 {
            assert_eq!(Offer::parse(&bytes[..length]), None);
        }
        assert_eq!(Offer::to_bytes(0, &[0; MAX_KEY + 1]), None);
        assert_eq!(Offer::parse(&[0; 8 + MAX_KEY + 1]), None);
    }
}
