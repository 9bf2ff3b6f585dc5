//! The addresses of `tcp`. Numbers are little-endian but for ports and IP addresses, which are as in a packet.
//!
//! Device address, 28 bytes: where the device is.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `td` |
//! | 2 | version of the address |
//! | 3 | 1 for the loopback device, else 0 |
//! | 4..20 | identity of the machine, from boot to boot |
//! | 20..28 | network namespace |
//!
//! Interface address, 60 bytes: where it listens. An endpoint address, 68 bytes, is that and the endpoint's number.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `ti` |
//! | 2 | version of the wire: peers of other versions are not reachable, and the reason names both |
//! | 3 | number of sockets, 1 or 2 |
//! | 4..12 | random id of the interface, its name |
//! | 12..20 | random key of the interface, which admits a connection: only peers that have the address have it |
//! | 20..40 | first socket: family 4 or 6, 0, port (2), IP address (16; IPv4 in the first 4) |
//! | 40..60 | second socket, or zeros |
//! | 60..68 | number of the endpoint |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ucs::record::Format;

use super::version::VERSION;

/// Bytes of a device address.
pub(crate) const DEVICE: usize = 28;
/// Bytes of an interface address.
pub(crate) const IFACE: usize = 60;
/// Bytes of an endpoint address.
pub(crate) const EP: usize = 68;

/// Bytes of a socket's address.
pub(crate) const SOCKET: usize = 20;

/// Version of device addresses.
const DEVICE_VERSION: u8 = 2;
/// Of interface addresses, whose layout changes with it.
const IFACE_VERSION: u8 = VERSION as u8;
const _: () = assert!(IFACE_VERSION as u16 == VERSION);
const DEVICE_FORMAT: Format =
    Format { name: "device address of tcp", magic: b"td", version: Some(DEVICE_VERSION), length: DEVICE };
const IFACE_FORMAT: Format =
    Format { name: "interface address of tcp", magic: b"ti", version: Some(IFACE_VERSION), length: IFACE };
/// It begins as the interface address that it begins with.
const EP_FORMAT: Format = Format { name: "endpoint address of tcp", magic: b"", version: None, length: EP };

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceAddress {
    pub(crate) is_loopback: bool,
    pub(crate) host: [u8; 16],
    pub(crate) namespace: u64,
}

/// Where an interface listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IfaceAddress {
    pub(crate) id: u64,
    pub(crate) key: u64,
    /// One or two.
    pub(crate) sockets: Vec<SocketAddr>,
}

impl DeviceAddress {
    pub(crate) fn write(&self, buffer: &mut [u8]) {
        let mut fields = DEVICE_FORMAT.write(buffer);
        fields.bytes(&[u8::from(self.is_loopback)]).bytes(&self.host).u64(self.namespace);
    }

    /// Reads untrusted bytes; the refusal is human-readable.
    pub(crate) fn read(bytes: &[u8]) -> Result<DeviceAddress, String> {
        let mut fields = DEVICE_FORMAT.read(bytes)?;
        let flags = fields.u8();
        fields.check(flags <= 1, || format!("flags {flags:#x}"))?;
        Ok(DeviceAddress { is_loopback: flags == 1, host: fields.array(), namespace: fields.u64() })
    }
}

impl IfaceAddress {
    pub(crate) fn write(&self, buffer: &mut [u8]) {
        let mut sockets = [0; 2 * SOCKET];
        for (place, socket) in sockets.chunks_exact_mut(SOCKET).zip(&self.sockets) {
            write_socket(place, socket);
        }
        let mut fields = IFACE_FORMAT.write(buffer);
        fields.bytes(&[self.sockets.len() as u8]).u64(self.id).u64(self.key).bytes(&sockets);
    }

    /// Reads untrusted bytes; the refusal is human-readable.
    pub(crate) fn read(bytes: &[u8]) -> Result<IfaceAddress, String> {
        let mut fields = IFACE_FORMAT.read(bytes)?;
        let count = usize::from(fields.u8());
        fields.check((1..=2).contains(&count), || format!("{count} sockets, expected 1 or 2"))?;
        let (id, key) = (fields.u64(), fields.u64());
        let sockets = fields.bytes(count * SOCKET).chunks_exact(SOCKET).map(read_socket);
        let sockets: Vec<SocketAddr> = sockets.collect::<Result<_, _>>()?;
        let is_all = fields.bytes((2 - count) * SOCKET).iter().all(|&byte| byte == 0);
        fields.check(is_all, || "bytes behind the last socket".to_owned())?;
        Ok(IfaceAddress { id, key, sockets })
    }

    /// Reads an endpoint address.
    pub(crate) fn read_ep(bytes: &[u8]) -> Result<(IfaceAddress, u64), String> {
        let mut fields = EP_FORMAT.read(bytes)?;
        Ok((IfaceAddress::read(fields.bytes(IFACE))?, fields.u64()))
    }
}

/// Writes a socket's address over zeros.
pub(crate) fn write_socket(place: &mut [u8], socket: &SocketAddr) {
    place[2..4].copy_from_slice(&socket.port().to_be_bytes());
    match socket.ip() {
        IpAddr::V4(address) => {
            place[0] = 4;
            place[4..8].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            place[0] = 6;
            place[4..20].copy_from_slice(&address.octets());
        }
    }
}

/// Reads a socket's address; the refusal is the reason.
pub(crate) fn read_socket(bytes: &[u8]) -> Result<SocketAddr, String> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip: IpAddr = match bytes[0] {
        4 if bytes[8..].iter().all(|&byte| byte == 0) => {
            Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]).into()
        }
        6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[4..20]);
            Ipv6Addr::from(octets).into()
        }
        family => return Err(format!("not an address of tcp: address family {family}, expected 4 or 6")),
    };
    if port == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(format!("not an address of tcp: no listener can have {}", SocketAddr::new(ip, port)));
    }
    Ok(SocketAddr::new(ip, port))
}

/// Entry for fuzzing: reads arbitrary bytes as each kind of address.
#[cfg(any(test, feature = "testing"))]
pub fn fuzz_address(bytes: &[u8]) {
    if let Ok(address) = DeviceAddress::read(bytes) {
        let mut again = [0; DEVICE];
        address.write(&mut again);
        assert_eq!(again, bytes, "what is read is what was written");
    }
    if let Ok(address) = IfaceAddress::read(bytes) {
        let mut again = [0; IFACE];
        address.write(&mut again);
        assert_eq!(IfaceAddress::read(&again), Ok(address));
    }
    let _ = IfaceAddress::read_ep(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn iface() -> [u8; IFACE] {
        let sockets = vec!["10.1.2.3:4567".parse().unwrap(), "[fd00::1]:89".parse().unwrap()];
        let mut bytes = [0xAA; IFACE];
        IfaceAddress { id: 0x1122_3344_5566_7788, key: 0x99AA, sockets }.write(&mut bytes);
        bytes
    }

    #[test]
    fn addresses_survive_the_wire() {
        let address = IfaceAddress::read(&iface()).unwrap();
        assert_eq!((address.id, address.key), (0x1122_3344_5566_7788, 0x99AA));
        assert_eq!(address.sockets[0], "10.1.2.3:4567".parse().unwrap());
        assert_eq!(address.sockets[1], "[fd00::1]:89".parse().unwrap());
        let device = DeviceAddress { is_loopback: true, host: [7; 16], namespace: 99 };
        let mut bytes = [0; DEVICE];
        device.write(&mut bytes);
        assert_eq!(DeviceAddress::read(&bytes), Ok(device));
    }

    #[test]
    fn every_refusal_says_what_is_wrong() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = iface();
            bytes[at] = byte;
            IfaceAddress::read(&bytes).unwrap_err()
        };
        assert!(IfaceAddress::read(&[0; 3]).unwrap_err().contains("3 bytes, expected 60"));
        assert!(
            changed(0, b'x').contains("not a interface") || changed(0, b'x').contains("interface address")
        );
        let versions = format!("version 9, this side knows version {VERSION}");
        assert!(changed(2, 9).contains(&versions), "{}", changed(2, 9));
        assert!(changed(3, 3).contains("3 sockets"));
        assert!(changed(20, 5).contains("family 5"));
        assert!(changed(3, 1).contains("behind the last socket"));
        assert!(IfaceAddress::read_ep(&iface()).unwrap_err().contains("expected 68"));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            fuzz_address(&bytes);
        }

        #[test]
        fn mutated_addresses_never_panic(at in 0..IFACE, byte in any::<u8>()) {
            let mut bytes = iface();
            bytes[at] = byte;
            fuzz_address(&bytes);
        }
    }
}
