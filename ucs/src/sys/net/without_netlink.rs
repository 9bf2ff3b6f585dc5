//! The system's list of links where netlink is forbidden, as by systemd's `RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX`.
//!
//! Used by `interfaces` when `getifaddrs` fails. Built on /proc/net and `ioctl`. Of IPv4 it has the main address of each link.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use super::address::Address;
use super::ioctl::Ioctl;
use super::link::{Link, hexadecimal};

/// Every link of this thread's network namespace by name.
pub(super) fn links() -> io::Result<BTreeMap<String, Link>> {
    let ioctl = Ioctl::new()?;
    let names = fs::read_to_string("/proc/thread-self/net/dev")?;
    let ipv6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut links: BTreeMap<String, Link> = BTreeMap::new();
    // A line is `name: numbers…`, behind two of headings without a colon.
    for name in names.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())) {
        // One that has just gone has no answers.
        let (Some(index), Some(flags)) = (ioctl.index(name), ioctl.flags(name)) else { continue };
        let hardware_address =
            ioctl.hardware_address(name).map_or_else(String::new, |bytes| hexadecimal(&bytes));
        let ipv4 = ioctl.ipv4(name).map(|(address, prefix_length)| Address {
            address: address.into(),
            prefix_length,
            scope_id: 0,
        });
        let link = Link {
            index,
            flags,
            hardware_address,
            mtu: ioctl.mtu(name),
            addresses: ipv4.into_iter().collect(),
        };
        links.insert(name.to_owned(), link);
    }
    for (name, address) in ipv6.lines().filter_map(ipv6_line) {
        if let Some(link) = links.get_mut(name) {
            link.addresses.push(address);
        }
    }
    Ok(links)
}

/// A line of if_inet6: address, index, length of the prefix, scope and flags, in hexadecimal, and the name.
fn ipv6_line(line: &str) -> Option<(&str, Address)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |field: usize| u32::from_str_radix(fields.get(field)?, 16).ok();
    let address = Ipv6Addr::from_bits(u128::from_str_radix(fields.first()?, 16).ok()?);
    let scope_id = if address.is_unicast_link_local() { number(1)? } else { 0 };
    let prefix_length = u8::try_from(number(2)?).ok().filter(|&length| length <= 128)?;
    Some((fields.get(5)?, Address { address: IpAddr::V6(address), prefix_length, scope_id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_that_of_netlink() {
        let (with, without) = (crate::sys::net::interfaces::links().unwrap(), links().unwrap());
        assert_eq!(with.keys().collect::<Vec<_>>(), without.keys().collect::<Vec<_>>());
        for (name, link) in with {
            let other = &without[&name];
            // By ioctl there are the first 16 flags.
            let flags = link.flags & 0xffff;
            assert_eq!((link.index, flags, link.mtu), (other.index, other.flags, other.mtu), "{name}");
            if !other.hardware_address.is_empty() {
                assert_eq!(link.hardware_address, other.hardware_address, "{name}");
            }
            let main = link.addresses.iter().find(|own| own.address.is_ipv4());
            let of_ipv6 = link.addresses.iter().filter(|own| own.address.is_ipv6());
            let mut expected: Vec<&Address> = main.into_iter().chain(of_ipv6).collect();
            let mut found: Vec<&Address> = other.addresses.iter().collect();
            expected.sort_by_key(|own| own.address);
            found.sort_by_key(|own| own.address);
            assert_eq!(expected, found, "{name}");
        }
    }

    #[test]
    fn a_line_without_sense_is_passed_over() {
        let line = "fe800000000000000000000000000001 02 40 20 80     eth0";
        let (name, address) = ipv6_line(line).unwrap();
        assert_eq!((name, address.scope_id, address.prefix_length), ("eth0", 2, 64));
        for line in ["", "x 02 40 20 80 eth0", "fe80 02 40 20 80", "fe80 02 81 20 80 eth0"] {
            assert_eq!(ipv6_line(line), None, "{line}");
        }
    }
}
