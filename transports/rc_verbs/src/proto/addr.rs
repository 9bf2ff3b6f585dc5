//! The addresses of `rc_verbs`. The device address is `uct_ib`'s.
//!
//! Interface address, 4 bytes: `r`, `c`, version, zero.
//!
//! Endpoint address, 16 bytes, little-endian:
//!
//! | offset | width | what |
//! |---|---|---|
//! | 0 | 1 | version |
//! | 1 | 1 | reads and atomics that the endpoint takes at a time |
//! | 2 | 2 | messages that the peer may send to begin with |
//! | 4 | 4 | number of the queue pair, 24 bits |
//! | 8 | 4 | first packet number that the endpoint sends, 24 bits |
//! | 12 | 4 | size of a receive buffer in bytes |

use crate::proto::wire::MAX_GRANT;

/// Bytes of an interface address.
pub(crate) const IFACE_LENGTH: usize = 4;

/// Bytes of an endpoint address.
pub(crate) const EP_LENGTH: usize = 16;

const VERSION: u8 = 1;

/// The interface address: the same for all.
pub(crate) const IFACE: [u8; IFACE_LENGTH] = [b'r', b'c', VERSION, 0];

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EpAddress {
    pub(crate) reads_in: u8,
    pub(crate) window: u16,
    pub(crate) qp: u32,
    pub(crate) psn: u32,
    pub(crate) seg_size: u32,
}

/// Checks a peer's interface address; the error is a human-readable reason.
pub(crate) fn check_iface(bytes: &[u8]) -> Result<(), String> {
    match bytes {
        [b'r', b'c', VERSION, 0] => Ok(()),
        [b'r', b'c', version, _] => Err(format!(
            "the peer's rc_verbs is of version {version}, this side knows version {VERSION}: use the same release on \
             both sides"
        )),
        _ => Err(format!("{} bytes that are no interface address of rc_verbs", bytes.len())),
    }
}

impl EpAddress {
    /// The bytes for the peer.
    pub(crate) fn pack(&self) -> [u8; EP_LENGTH] {
        let mut bytes = [0; EP_LENGTH];
        bytes[0] = VERSION;
        bytes[1] = self.reads_in;
        bytes[2..4].copy_from_slice(&self.window.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.qp.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.psn.to_le_bytes());
        bytes[12..].copy_from_slice(&self.seg_size.to_le_bytes());
        bytes
    }

    /// Reads untrusted bytes; the error is a human-readable reason.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Ok(bytes) = <&[u8; EP_LENGTH]>::try_from(bytes) else {
            return Err(format!("an endpoint address of {} bytes, expected {EP_LENGTH}", bytes.len()));
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let address = Self {
            reads_in: bytes[1],
            window: u16::from_le_bytes([bytes[2], bytes[3]]),
            qp: word(4),
            psn: word(8),
            seg_size: word(12),
        };
        if bytes[0] != VERSION {
            return Err(format!(
                "an endpoint address of version {}, this side knows version {VERSION}",
                bytes[0]
            ));
        }
        if address.qp == 0 || address.qp >> 24 != 0 || address.psn >> 24 != 0 {
            return Err("a damaged endpoint address: queue pair and packet number have 24 bits".to_owned());
        }
        if address.window == 0 || address.seg_size == 0 {
            return Err("a damaged endpoint address: the peer would take no messages".to_owned());
        }
        if address.window > MAX_GRANT {
            let window = address.window;
            return Err(format!(
                "a damaged endpoint address: a window of {window} messages, the largest is {MAX_GRANT}"
            ));
        }
        Ok(address)
    }
}

/// Entry for fuzzing: reads arbitrary bytes as each kind of address.
pub fn fuzz_address(bytes: &[u8]) {
    match check_iface(bytes) {
        Ok(()) => assert_eq!(bytes, IFACE, "there is one interface address"),
        Err(reason) => assert!(!reason.is_empty(), "a refusal has a reason"),
    }
    match EpAddress::parse(bytes) {
        Ok(address) => {
            assert_eq!(address.pack(), bytes, "what is read is what was written");
            assert!((1..=MAX_GRANT).contains(&address.window), "a window of {} messages", address.window);
            assert!(address.qp != 0 && (address.qp | address.psn) >> 24 == 0, "numbers have 24 bits");
        }
        Err(reason) => assert!(!reason.is_empty(), "a refusal has a reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: EpAddress =
        EpAddress { reads_in: 4, window: 16, qp: 0x12345, psn: 0xabcdef, seg_size: 8192 };

    #[test]
    fn what_is_packed_is_read_back() {
        assert_eq!(EpAddress::parse(&ADDRESS.pack()), Ok(ADDRESS));
        assert_eq!(check_iface(&IFACE), Ok(()));
    }

    #[test]
    fn addresses_of_others_are_refused_with_a_reason() {
        assert!(check_iface(b"rc\x09\0").unwrap_err().contains("version 9"));
        assert!(check_iface(b"ud").unwrap_err().contains("2 bytes"));
        assert!(EpAddress::parse(&[0; 3]).unwrap_err().contains("3 bytes"));
        let largest = EpAddress { window: MAX_GRANT, ..ADDRESS };
        assert_eq!(EpAddress::parse(&largest.pack()), Ok(largest));
        let larger = EpAddress { window: MAX_GRANT + 1, ..ADDRESS };
        assert!(EpAddress::parse(&larger.pack()).unwrap_err().contains("32768 messages"));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            fuzz_address(&bytes);
        }
    }
}
