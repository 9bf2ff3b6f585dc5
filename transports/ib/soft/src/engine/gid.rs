//! GIDs: IPv6 addresses, or IPv4 ones mapped into them (annex A17.3.1).

use std::net::{IpAddr, Ipv6Addr};

/// The GID of an address.
pub fn to_gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address of a GID.
pub fn from_gid(gid: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}
