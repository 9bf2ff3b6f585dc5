//! Socket addresses as C has them: `sockaddr_in` and `sockaddr_in6`.

use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::abi::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

const V4: usize = size_of::<libc::sockaddr_in>();
const V6: usize = size_of::<libc::sockaddr_in6>();

/// Reads an address; `None` if it is of another family or too short. What follows the address is not looked at.
pub fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::sa_family_t::from_ne_bytes(*bytes.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET if bytes.len() >= V4 => {
            let port = u16::from_be_bytes(part(bytes, offset_of!(libc::sockaddr_in, sin_port)));
            let address: [u8; 4] = part(bytes, offset_of!(libc::sockaddr_in, sin_addr));
            Some(SocketAddrV4::new(Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 if bytes.len() >= V6 => {
            let port = u16::from_be_bytes(part(bytes, offset_of!(libc::sockaddr_in6, sin6_port)));
            let address: [u8; 16] = part(bytes, offset_of!(libc::sockaddr_in6, sin6_addr));
            let scope = u32::from_ne_bytes(part(bytes, offset_of!(libc::sockaddr_in6, sin6_scope_id)));
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Bytes of an address of this family; `None` if it is no IP address.
pub fn length(family: libc::sa_family_t) -> Option<usize> {
    match i32::from(family) {
        libc::AF_INET => Some(V4),
        libc::AF_INET6 => Some(V6),
        _ => None,
    }
}

/// The bytes of an address.
pub fn write(address: SocketAddr) -> Vec<u8> {
    match address {
        SocketAddr::V4(address) => {
            let mut bytes = vec![0; V4];
            fill(&mut bytes, 0, &(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
            fill(&mut bytes, offset_of!(libc::sockaddr_in, sin_port), &address.port().to_be_bytes());
            fill(&mut bytes, offset_of!(libc::sockaddr_in, sin_addr), &address.ip().octets());
            bytes
        }
        SocketAddr::V6(address) => {
            let mut bytes = vec![0; V6];
            fill(&mut bytes, 0, &(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
            fill(&mut bytes, offset_of!(libc::sockaddr_in6, sin6_port), &address.port().to_be_bytes());
            fill(&mut bytes, offset_of!(libc::sockaddr_in6, sin6_addr), &address.ip().octets());
            fill(
                &mut bytes,
                offset_of!(libc::sockaddr_in6, sin6_scope_id),
                &address.scope_id().to_ne_bytes(),
            );
            bytes
        }
    }
}

/// libfabric's name for the form of an address.
pub fn format(address: SocketAddr) -> u32 {
    if address.is_ipv4() { FI_SOCKADDR_IN } else { FI_SOCKADDR_IN6 }
}

/// The caller has checked the length.
fn part<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[offset..offset + N]);
    part
}

fn fill(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["127.0.0.1:0", "10.1.2.3:65535", "[::1]:7000", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut bytes = write(address);
            let family = libc::sa_family_t::from_ne_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(length(family), Some(bytes.len()));
            assert_eq!(read(&bytes), Some(address));
            bytes.pop();
            assert_eq!(read(&bytes), None);
        }
        assert_eq!(write("127.0.0.1:258".parse().unwrap())[..8], [2, 0, 1, 2, 127, 0, 0, 1]);
        assert_eq!(read(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(read(&[2]), None);
    }
}
