//! Where the bytes of an announced message can be read.

/// The sender's registered memory: the address of its first byte, 8 bytes, little endian, and the key, as the transport packs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer(Box<[u8]>);

/// Bytes of the address.
const ADDRESS: usize = size_of::<u64>();
/// Most bytes of a key.
const MAX_KEY: usize = 400;

impl Offer {
    /// An offer; `None` if the key is too long.
    pub fn new(address: u64, key: &[u8]) -> Option<Offer> {
        Offer::parse([&address.to_le_bytes(), key].concat())
    }

    /// Reads an offer; `None` if it is malformed.
    pub fn parse(bytes: Vec<u8>) -> Option<Offer> {
        let key = bytes.len().checked_sub(ADDRESS)?;
        (1..=MAX_KEY).contains(&key).then(|| Offer(bytes.into()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The address.
    pub fn address(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.0[at]))
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.0[ADDRESS..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_and_no_other_bytes_are() {
        let offer = Offer::new(u64::MAX - 1, b"key").unwrap();
        assert_eq!((offer.address(), offer.key()), (u64::MAX - 1, &b"key"[..]));
        let bytes = offer.bytes();
        assert_eq!(Offer::parse(bytes.to_vec()), Some(offer.clone()));
        for length in 0..=ADDRESS {
            assert_eq!(Offer::parse(bytes[..length].to_vec()), None);
        }
        assert_eq!(Offer::new(0, &[0; MAX_KEY + 1]), None);
        assert!(Offer::new(0, &[0; MAX_KEY]).is_some());
    }
}
