//! Address handles for who sent a datagram.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uct_ib_abi::*;

use super::convert;
use super::memory::ibv_create_ah;
use super::objects::{refused, set_errno};
use crate::engine::Path;

/// The header that is in front of a received datagram.
type Route = [u8; 40];

/// Who sent a datagram, by the header in front of it: one of IPv6, or of IPv4 in its last 20 bytes.
fn sender(route: &Route) -> IpAddr {
    let [_, _, _, _, _, _, _, _, v6 @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = route;
    let [.., a, b, c, d, _, _, _, _] = route;
    match route[0] >> 4 {
        6 => IpAddr::V6(Ipv6Addr::from(*v6)),
        _ => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
    }
}

/// See `ibv_init_ah_from_wc(3)`.
///
/// # Safety
/// The completion is that of a datagram, `route` the header in front of it, and `attr` a place for an address vector.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    _: *mut ibv_context,
    port: u8,
    completion: *const ibv_wc,
    route: *const Route,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    let flags = unsafe { (*completion).wc_flags };
    if port != 1 || flags & IBV_WC_GRH == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    let destination = sender(unsafe { &*route });
    // SAFETY: the caller's promise.
    unsafe { attr.write(convert::address_vector(Path { destination, source_index: 0 })) };
    0
}

/// See `ibv_create_ah_from_wc(3)`.
///
/// # Safety
/// As [`ibv_init_ah_from_wc`]; the domain lives.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    domain: *mut ibv_pd,
    completion: *const ibv_wc,
    route: *const Route,
    port: u8,
) -> *mut ibv_ah {
    let path = Path { destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED), source_index: 0 };
    let mut attr = convert::address_vector(path);
    // SAFETY: the caller's promise, and a place of this function. The context is not used.
    if unsafe { ibv_init_ah_from_wc(std::ptr::null_mut(), port, completion, route, &mut attr) } != 0 {
        return refused(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { ibv_create_ah(domain, &mut attr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_in_the_header_of_either_kind() {
        let mut route = [0; 40];
        route[20] = 0x45;
        route[32..36].copy_from_slice(&[127, 64, 1, 2]);
        assert_eq!(sender(&route), IpAddr::V4(Ipv4Addr::new(127, 64, 1, 2)));
        let mut route = [0; 40];
        route[0] = 0x60;
        route[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        route[24..40].copy_from_slice(&[9; 16]);
        assert_eq!(sender(&route), IpAddr::V6(Ipv6Addr::LOCALHOST));
    }
}
