//! What an endpoint says of itself in a handshake.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"uctF";
/// The version of the frames, too.
const VERSION: u16 = 1;

/// The private data of a handshake: where the endpoint listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The endpoint's name.
    pub address: SocketAddr,
}

/// Why private data are not those of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHello {
    /// Other bytes, as of another program.
    Other,
    /// Another version.
    Version(u16),
    /// No address of a listener.
    Address,
}

impl fmt::Display for NotHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotHello::Other => f.write_str("the peer is no endpoint of libfabric"),
            NotHello::Version(version) => {
                write!(f, "the peer speaks version {version}, and this side version {VERSION}")
            }
            NotHello::Address => f.write_str("the peer has named no address that can be called"),
        }
    }
}

/// | offset | bytes | field, little endian |
/// |---|---|---|
/// | 0 | 4 | `uctF` |
/// | 4 | 2 | version |
/// | 6 | 2 | port |
/// | 8 | 4 | 4 or 6: the family |
/// | 12 | 4 | scope of an IPv6 address |
/// | 16 | 16 | the address; of IPv4 the first 4 bytes, then 0 |
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: U16,
    port: U16,
    family: U32,
    scope: U32,
    address: [u8; 16],
}

impl Hello {
    /// As private data.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut address = [0; 16];
        let (family, scope) = match self.address {
            SocketAddr::V4(v4) => {
                address[..4].copy_from_slice(&v4.ip().octets());
                (4, 0)
            }
            SocketAddr::V6(v6) => {
                address = v6.ip().octets();
                (6, v6.scope_id())
            }
        };
        let raw = Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            port: U16::new(self.address.port()),
            family: U32::new(family),
            scope: U32::new(scope),
            address,
        };
        raw.as_bytes().to_vec()
    }

    /// Reads private data.
    ///
    /// # Errors
    /// They are not those of an endpoint that this one can talk to.
    pub fn parse(bytes: &[u8]) -> Result<Hello, NotHello> {
        let raw = Raw::ref_from_bytes(bytes).map_err(|_| NotHello::Other)?;
        if raw.magic != MAGIC {
            return Err(NotHello::Other);
        }
        if raw.version.get() != VERSION {
            return Err(NotHello::Version(raw.version.get()));
        }
        let [a, b, c, d, rest @ ..] = raw.address;
        let address = match raw.family.get() {
            4 if rest == [0; 12] => SocketAddr::from(([a, b, c, d], raw.port.get())),
            6 => {
                let address = raw.address.into();
                std::net::SocketAddrV6::new(address, raw.port.get(), 0, raw.scope.get()).into()
            }
            _ => return Err(NotHello::Address),
        };
        let is_no_host = match address.ip() {
            IpAddr::V4(v4) => v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast(),
        };
        if address.port() == 0 || is_no_host {
            return Err(NotHello::Address);
        }
        Ok(Hello { address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["10.1.2.3:7000", "[fe80::1%3]:1", "[2001:db8::1]:65535"] {
            let hello = Hello { address: text.parse().unwrap() };
            assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        }
    }

    #[test]
    fn what_is_no_address_of_a_listener_is_refused() {
        let hello = |text: &str| Hello { address: text.parse().unwrap() }.to_bytes();
        for text in ["0.0.0.0:1", "10.0.0.1:0", "224.0.0.1:1", "[::]:1", "[ff02::1]:1", "255.255.255.255:1"] {
            assert_eq!(Hello::parse(&hello(text)), Err(NotHello::Address), "{text}");
        }
        let good = hello("10.0.0.1:1");
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Hello::parse(&bytes)
        };
        assert_eq!(changed(0, 0), Err(NotHello::Other));
        assert_eq!(changed(4, 2), Err(NotHello::Version(2)));
        assert_eq!(changed(8, 5), Err(NotHello::Address));
        assert_eq!(changed(20, 1), Err(NotHello::Address));
        assert_eq!(Hello::parse(&good[1..]), Err(NotHello::Other));
    }
}
