//! The addresses of `ud_verbs`. The device address is `uct_ib`'s.
//!
//! Interface address, 16 bytes, little-endian:
//!
//! | offset | width | what |
//! |---|---|---|
//! | 0 | 2 | `u`, `d` |
//! | 2 | 1 | version |
//! | 3 | 1 | zero |
//! | 4 | 4 | number of the queue pair, 24 bits |
//! | 8 | 8 | identity of the interface |
//!
//! Endpoint address, 22 bytes: the first 8 as above but for `u`, `e` and a version of its own; then 14 bytes of
//! [`Invitation`].
//!
//! The address that a connection request carries, 28 bytes: a device address (24), the number of the queue pair (4).

use ucs::record::{Format, Reader};
use uct_ib::{DEVICE_ADDRESS_LENGTH, DeviceAddress, GidKind};

use super::control::Invitation;
use super::origin::Origin;

/// Bytes of an interface address.
pub(crate) const IFACE_LENGTH: usize = 16;
/// Bytes of an endpoint address.
pub(crate) const EP_LENGTH: usize = 8 + Invitation::SIZE;
/// Bytes of the address in a connection request.
pub(crate) const REQUEST_LENGTH: usize = DEVICE_ADDRESS_LENGTH + 4;

const VERSION: u8 = 1;
const EP_VERSION: u8 = 2;
const IFACE_FORMAT: Format = Format {
    name: "interface address of ud_verbs",
    magic: b"ud",
    version: Some(VERSION),
    length: IFACE_LENGTH,
};
const EP_FORMAT: Format = Format {
    name: "endpoint address of ud_verbs",
    magic: b"ue",
    version: Some(EP_VERSION),
    length: EP_LENGTH,
};

/// The address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IfaceAddress {
    pub(crate) qp: u32,
    pub(crate) identity: u64,
}

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EpAddress {
    pub(crate) qp: u32,
    pub(crate) invitation: Invitation,
}

impl IfaceAddress {
    /// The bytes for peers.
    pub(crate) fn pack(self) -> [u8; IFACE_LENGTH] {
        let mut bytes = [0; IFACE_LENGTH];
        IFACE_FORMAT.write(&mut bytes).bytes(&[0]).u32(self.qp).u64(self.identity);
        bytes
    }

    /// Reads bytes that came from anywhere; the refusal is human-readable.
    pub(crate) fn parse(bytes: &[u8]) -> Result<IfaceAddress, String> {
        let mut fields = IFACE_FORMAT.read(bytes)?;
        Ok(IfaceAddress { qp: queue_pair(&mut fields)?, identity: fields.u64() })
    }
}

impl EpAddress {
    /// The bytes for the peer.
    pub(crate) fn pack(self) -> [u8; EP_LENGTH] {
        let mut bytes = [0; EP_LENGTH];
        EP_FORMAT.write(&mut bytes).bytes(&[0]).u32(self.qp).bytes(&self.invitation.to_bytes());
        bytes
    }

    /// Reads bytes that came from anywhere; the refusal is human-readable.
    pub(crate) fn parse(bytes: &[u8]) -> Result<EpAddress, String> {
        let mut fields = EP_FORMAT.read(bytes)?;
        let qp = queue_pair(&mut fields)?;
        match Invitation::from_bytes(fields.bytes(Invitation::SIZE)) {
            Some(invitation) => Ok(EpAddress { qp, invitation }),
            None => Err(fields.damaged("its windows are not 1 to 256")),
        }
    }
}

/// The address that connection requests of an interface carry.
pub(crate) fn pack_request(device: &DeviceAddress, qp: u32) -> [u8; REQUEST_LENGTH] {
    let mut bytes = [0; REQUEST_LENGTH];
    bytes[..DEVICE_ADDRESS_LENGTH].copy_from_slice(&device.pack());
    bytes[DEVICE_ADDRESS_LENGTH..].copy_from_slice(&qp.to_le_bytes());
    bytes
}

/// Reads the address of a connection request, which came from anywhere.
pub(crate) fn parse_request(bytes: &[u8]) -> Option<(DeviceAddress, u32)> {
    let bytes: &[u8; REQUEST_LENGTH] = bytes.try_into().ok()?;
    let (device, qp) = bytes.split_at(DEVICE_ADDRESS_LENGTH);
    let qp = u32::from_le_bytes(qp.try_into().ok()?);
    is_queue_pair(qp).then_some((DeviceAddress::parse(device).ok()?, qp))
}

/// The origin of what a queue pair behind a port sends.
pub(crate) fn origin(device: &DeviceAddress, qp: u32) -> Origin {
    let port = match device.kind {
        GidKind::InfiniBand => port_of_lid(device.lid),
        GidKind::RoceV1 | GidKind::RoceV2 => device.gid.0,
    };
    Origin { port, qp }
}

/// How an [`Origin`] holds a LID: a GID never begins so.
#[inline]
pub(crate) fn port_of_lid(lid: u16) -> [u8; 16] {
    let mut port = [0; 16];
    port[..2].copy_from_slice(&lid.to_be_bytes());
    port
}

/// Reads what both kinds of address begin with: a zero, and the number of the queue pair.
fn queue_pair(fields: &mut Reader<'_>) -> Result<u32, String> {
    let (zero, qp) = (fields.u8(), fields.u32());
    if zero == 0 && is_queue_pair(qp) {
        return Ok(qp);
    }
    Err(fields.damaged("a queue pair's number has 24 bits and is not 0"))
}

fn is_queue_pair(number: u32) -> bool {
    number != 0 && number >> 24 == 0
}

/// Entry for fuzzing: reads arbitrary bytes as each kind of address.
#[cfg(any(test, feature = "testing"))]
pub fn fuzz_address(bytes: &[u8]) {
    match IfaceAddress::parse(bytes) {
        Ok(address) => assert_eq!(address.pack(), bytes, "what is read is what was written"),
        Err(reason) => assert!(!reason.is_empty(), "a refusal has a reason"),
    }
    match EpAddress::parse(bytes) {
        Ok(address) => assert_eq!(address.pack(), bytes, "what is read is what was written"),
        Err(reason) => assert!(!reason.is_empty(), "a refusal has a reason"),
    }
    if let Some((device, qp)) = parse_request(bytes) {
        assert_eq!(parse_request(&pack_request(&device, qp)), Some((device, qp)));
        let _ = origin(&device, qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint() -> EpAddress {
        let invitation =
            Invitation::from_bytes(&[16, 0, 1, 2, 3, 4, 5, 6, 64, 0, 9, 9, 9, 9]).expect("an invitation");
        EpAddress { qp: 0x12_3456, invitation }
    }

    #[test]
    fn what_is_packed_is_read_back() {
        let iface = IfaceAddress { qp: 17, identity: 0x0123_4567_89ab_cdef };
        assert_eq!(IfaceAddress::parse(&iface.pack()), Ok(iface));
        assert_eq!(EpAddress::parse(&endpoint().pack()), Ok(endpoint()));
    }

    #[test]
    fn a_request_names_the_origin_of_its_datagrams() {
        let mut bytes = [0; DEVICE_ADDRESS_LENGTH];
        // An InfiniBand port with LID 0x1234, and a RoCE port of a GID.
        bytes[..6].copy_from_slice(&[1, 1, 5, 0, 0x34, 0x12]);
        bytes[8] = 0xfe;
        let by_lid = DeviceAddress::parse(&bytes).expect("an address");
        bytes[1] = 3;
        bytes[4..6].fill(0);
        let by_gid = DeviceAddress::parse(&bytes).expect("an address");
        let mut lid = [0; 16];
        lid[..2].copy_from_slice(&[0x12, 0x34]);
        for (device, port) in [(by_lid, lid), (by_gid, by_gid.gid.0)] {
            let packed = pack_request(&device, 17);
            assert_eq!(parse_request(&packed), Some((device, 17)));
            assert_eq!(origin(&device, 17), Origin { port, qp: 17 });
            assert_eq!(parse_request(&packed[1..]), None);
            for wrong in [0, 1 << 24] {
                assert_eq!(parse_request(&pack_request(&device, wrong)), None, "queue pair {wrong}");
            }
        }
    }

    #[test]
    fn addresses_of_others_are_refused_with_a_reason() {
        let mut bytes = IfaceAddress { qp: 17, identity: 1 }.pack();
        assert!(IfaceAddress::parse(&bytes[..15]).unwrap_err().contains("15 bytes"));
        bytes[2] = 9;
        assert!(IfaceAddress::parse(&bytes).unwrap_err().contains("version 9"));
        bytes[0] = b'x';
        assert!(IfaceAddress::parse(&bytes).unwrap_err().contains("no interface address"));
        let mut bytes = endpoint().pack();
        bytes[7] = 1;
        assert!(EpAddress::parse(&bytes).unwrap_err().contains("24 bits"));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            fuzz_address(&bytes);
        }

        #[test]
        fn any_damage_to_a_request_is_read_without_a_panic(place in 0..REQUEST_LENGTH, value in any::<u8>()) {
            let mut bytes = [0u8; REQUEST_LENGTH];
            bytes[..3].copy_from_slice(&[1, 3, 5]);
            bytes[8] = 0xfd;
            bytes[24] = 7;
            bytes[place] = value;
            fuzz_address(&bytes);
        }
    }
}
