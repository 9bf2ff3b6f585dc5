//! The system's list of links and addresses, copied out of `getifaddrs`.
//!
//! Used by `net::snapshot`. Built on libc.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::Address;
use super::ioctl::Ioctl;
use super::link::{Link, hexadecimal};
use super::without_netlink;
use crate::sys::SystemError;

/// Every link of this network namespace by name. A link without an address is listed too.
pub(super) fn links() -> Result<BTreeMap<String, Link>, SystemError> {
    match by_netlink() {
        Err(error) => without_netlink::links().map_err(|_| match error.errno {
            libc::EAFNOSUPPORT | libc::EACCES | libc::EPERM => error.advise(
                "a sandbox forbids netlink, and also what takes its place, /proc/net and sockets of IPv4: permit AF_NETLINK \
                 (systemd: RestrictAddressFamilies=AF_NETLINK AF_INET AF_INET6 AF_UNIX)",
            ),
            _ => error,
        }),
        links => links,
    }
}

fn by_netlink() -> Result<BTreeMap<String, Link>, SystemError> {
    let list = List::read()?;
    let mut links: BTreeMap<String, Link> = BTreeMap::new();
    for entry in list.entries() {
        // SAFETY: `ifa_name` of a list entry is a NUL-terminated string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let link = links.entry(name.to_string_lossy().into_owned()).or_default();
        link.flags = entry.ifa_flags;
        match socket_address(entry.ifa_addr) {
            Some(SocketAddress::Link { index, hardware_address }) => {
                link.index = index;
                link.hardware_address = hardware_address;
            }
            Some(SocketAddress::Ip { address, scope_id }) => {
                let prefix_length = match socket_address(entry.ifa_netmask) {
                    Some(SocketAddress::Ip { address: IpAddr::V4(mask), .. }) => mask.to_bits().count_ones(),
                    Some(SocketAddress::Ip { address: IpAddr::V6(mask), .. }) => mask.to_bits().count_ones(),
                    _ => u8::MAX.into(),
                };
                let longest = if address.is_ipv4() { 32 } else { 128 };
                let prefix_length = u8::try_from(prefix_length.min(longest)).unwrap_or(u8::MAX);
                link.addresses.push(Address { address, prefix_length, scope_id });
            }
            None => {}
        }
    }
    // An alias ("eth0:1") has addresses and no link of its own.
    links.retain(|_, link| link.index != 0);
    if let Ok(ioctl) = Ioctl::new() {
        links.iter_mut().for_each(|(name, link)| link.mtu = ioctl.mtu(name));
    }
    Ok(links)
}

/// The list that `getifaddrs` allocates, freed on drop.
struct List(*mut libc::ifaddrs);

impl List {
    fn read() -> Result<List, SystemError> {
        let mut head = std::ptr::null_mut();
        // SAFETY: the call writes one pointer through its argument.
        let answer = unsafe { libc::getifaddrs(&raw mut head) };
        if answer == 0 { Ok(List(head)) } else { Err(SystemError::last("list the network devices")) }
    }

    fn entries(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: `getifaddrs` made the head null or a valid entry, and the list lives as long as `self`.
        let first = unsafe { self.0.as_ref() };
        std::iter::successors(first, |entry| {
            // SAFETY: `ifa_next` is null or the next entry of the same list.
            unsafe { entry.ifa_next.as_ref() }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `getifaddrs` and is freed once, here.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

enum SocketAddress {
    Link { index: u32, hardware_address: String },
    Ip { address: IpAddr, scope_id: u32 },
}

/// Copies an address out of a list entry; `None` for null and for families that are of no interest.
fn socket_address(address: *const libc::sockaddr) -> Option<SocketAddress> {
    // SAFETY: addresses in a `getifaddrs` list are null or point to at least a `sockaddr`.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an AF_INET address is a `sockaddr_in`.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddress::Ip { address: address.into(), scope_id: 0 })
        }
        libc::AF_INET6 => {
            // SAFETY: an AF_INET6 address is a `sockaddr_in6`.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddress::Ip { address: ip.into(), scope_id: address.sin6_scope_id })
        }
        libc::AF_PACKET => {
            // SAFETY: an AF_PACKET address is a `sockaddr_ll`, and glibc keeps room for its longest form.
            let address = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
            let length = usize::from(address.sll_halen).min(address.sll_addr.len());
            let hardware_address = hexadecimal(&address.sll_addr[..length]);
            let index = address.sll_ifindex.cast_unsigned();
            Some(SocketAddress::Link { index, hardware_address })
        }
        _ => None,
    }
}
