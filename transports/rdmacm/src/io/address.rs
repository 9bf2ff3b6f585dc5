//! Socket addresses as librdmacm takes and gives them.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// The address as the library takes it.
pub(super) fn to_raw(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: the structure has integers only, for which zero is a value.
    let mut raw: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let place = &raw mut raw;
    match address {
        SocketAddr::V4(v4) => {
            let value = sockaddr_in {
                sin_family: AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than the structure and aligned for every socket address.
            unsafe { place.cast::<sockaddr_in>().write(value) };
        }
        SocketAddr::V6(v6) => {
            let value = sockaddr_in6 {
                sin6_family: AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(value) };
        }
    }
    raw
}

/// The address that the library gave; `None` for another family than IPv4 and IPv6.
pub(super) fn from_raw(raw: &sockaddr_storage) -> Option<SocketAddr> {
    let place = std::ptr::from_ref(raw);
    match i32::from(raw.ss_family) {
        AF_INET => {
            // SAFETY: the family determines the structure; the storage is large enough and aligned.
            let v4 = unsafe { place.cast::<sockaddr_in>().read() };
            let ip = IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip, u16::from_be(v4.sin_port)))
        }
        AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { place.cast::<sockaddr_in6>().read() };
            let port = u16::from_be(v6.sin6_port);
            let ip = v6.sin6_addr.s6_addr.into();
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_structures_of_the_library() {
        for text in ["10.7.0.1:7000", "0.0.0.0:0", "[::1]:1", "[2001:db8::7]:65535", "[fe80::1%3]:7000"] {
            let address: SocketAddr = text.parse().expect(text);
            assert_eq!(from_raw(&to_raw(address)), Some(address), "{text}");
        }
        // SAFETY: the structure has integers only, for which zero is a value.
        let none: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        assert_eq!(from_raw(&none), None);
    }
}
