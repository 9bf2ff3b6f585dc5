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

use ucs::record::Format;

use crate::proto::wire::MAX_GRANT;

/// Bytes of an interface address.
pub(crate) const IFACE_LENGTH: usize = 4;

/// Bytes of an endpoint address.
pub(crate) const EP_LENGTH: usize = 16;

const VERSION: u8 = 1;

const IFACE_FORMAT: Format = Format {
    name: "interface address of rc_verbs",
    magic: b"rc",
    version: Some(VERSION),
    length: IFACE_LENGTH,
};
const EP_FORMAT: Format =
    Format { name: "endpoint address of rc_verbs", magic: b"", version: Some(VERSION), length: EP_LENGTH };

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

/// Checks a peer's interface address; the refusal is human-readable.
pub(crate) fn check_iface(bytes: &[u8]) -> Result<(), String> {
    let mut fields = IFACE_FORMAT.read(bytes)?;
    let last = fields.u8();
    fields.check(last == 0, || format!("it ends with {last}"))
}

impl EpAddress {
    /// The bytes for the peer.
    pub(crate) fn pack(&self) -> [u8; EP_LENGTH] {
        let mut bytes = [0; EP_LENGTH];
        let mut fields = EP_FORMAT.write(&mut bytes);
        fields.bytes(&[self.reads_in]).u16(self.window).u32(self.qp).u32(self.psn).u32(self.seg_size);
        bytes
    }

    /// Reads bytes that came from anywhere; the refusal is human-readable.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut fields = EP_FORMAT.read(bytes)?;
        let address = Self {
            reads_in: fields.u8(),
            window: fields.u16(),
            qp: fields.u32(),
            psn: fields.u32(),
            seg_size: fields.u32(),
        };
        let Self { window, qp, psn, seg_size, .. } = address;
        let words = |words: &'static str| move || words.to_owned();
        let is_number = qp != 0 && (qp | psn) >> 24 == 0;
        fields.check(is_number, words("queue pair and packet number have 24 bits"))?;
        fields.check(window != 0 && seg_size != 0, words("its window or segment size is 0"))?;
        let is_window = window <= MAX_GRANT;
        fields.check(is_window, || format!("a window of {window} messages, the largest is {MAX_GRANT}"))?;
        Ok(address)
    }
}

/// Entry for fuzzing: reads arbitrary bytes as each kind of address.
#[cfg(any(test, feature = "testing"))]
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

    #[test]
    fn queue_pairs_and_packets_have_numbers_of_24_bits_and_a_peer_has_a_window_and_buffers() {
        const MOST: u32 = 0xff_ffff;
        for (qp, psn) in [(1, 0), (MOST, MOST)] {
            let address = EpAddress { qp, psn, window: 1, seg_size: 1, ..ADDRESS };
            assert_eq!(EpAddress::parse(&address.pack()), Ok(address));
        }
        for (refused, words) in [
            (EpAddress { qp: 0, ..ADDRESS }, "24 bits"),
            (EpAddress { qp: MOST + 1, psn: 0, ..ADDRESS }, "24 bits"),
            (EpAddress { qp: 1, psn: MOST + 1, ..ADDRESS }, "24 bits"),
            (EpAddress { window: 0, ..ADDRESS }, "window or segment size is 0"),
            (EpAddress { seg_size: 0, ..ADDRESS }, "window or segment size is 0"),
        ] {
            let reason = EpAddress::parse(&refused.pack()).unwrap_err();
            assert!(reason.contains(words), "{refused:?}: {reason}");
        }
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            fuzz_address(&bytes);
        }
    }
}
