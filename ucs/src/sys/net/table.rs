//! The kernel's routing table, as text: whether a device leads to an address.
//!
//! Used by `net::snapshot`. Built on /proc/net. The kernel itself, asked by a socket that is bound to the device, does not tell: it takes an
//! address for a neighbour when it knows of no route.

use std::collections::HashMap;
use std::net::IpAddr;

/// Flags of an entry, from the kernel's `route.h`.
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// The main table of one family.
pub(super) struct Table {
    /// The networks to which a device leads.
    networks: HashMap<String, Vec<Network>>,
}

impl Table {
    /// The table of this thread's network namespace. `None` where it cannot be read.
    pub(super) fn read(is_ipv4: bool) -> Option<Table> {
        let file = if is_ipv4 { "/proc/thread-self/net/route" } else { "/proc/thread-self/net/ipv6_route" };
        Some(Table::parse(&std::fs::read_to_string(file).ok()?, is_ipv4))
    }

    fn parse(text: &str, is_ipv4: bool) -> Table {
        let mut networks: HashMap<String, Vec<Network>> = HashMap::new();
        for (device, network) in text.lines().filter_map(|line| entry(line, is_ipv4)) {
            match networks.get_mut(device) {
                Some(known) => known.push(network),
                None => drop(networks.insert(device.to_owned(), vec![network])),
            }
        }
        Table { networks }
    }

    /// Whether an entry through `device` covers `address`.
    pub(super) fn leads_to(&self, device: &str, address: IpAddr) -> bool {
        self.networks
            .get(device)
            .is_some_and(|networks| networks.iter().any(|network| network.covers(address)))
    }
}

/// What an entry covers: the addresses that agree with it in the bits of the mask.
#[derive(Debug, PartialEq, Eq)]
enum Network {
    V4 { destination: u32, mask: u32 },
    V6 { destination: u128, mask: u128 },
}

impl Network {
    fn covers(&self, address: IpAddr) -> bool {
        match (self, address) {
            // Addresses as they are in memory.
            (Network::V4 { destination, mask }, IpAddr::V4(address)) => {
                (u32::from_ne_bytes(address.octets()) ^ destination) & mask == 0
            }
            (Network::V6 { destination, mask }, IpAddr::V6(address)) => {
                (address.to_bits() ^ destination) & mask == 0
            }
            _ => false,
        }
    }
}

/// A line of the table, of an entry that is in use; `None` for a headline or one that makes no sense.
fn entry(line: &str, is_ipv4: bool) -> Option<(&str, Network)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
    let (device, flags, network) = if is_ipv4 {
        // Iface Destination Gateway Flags RefCnt Use Metric Mask …
        (fields.first()?, number(3)?, Network::V4 { destination: number(1)?, mask: number(7)? })
    } else {
        // Destination, its length, source, its length, next hop, metric, references, uses, flags, device.
        let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
        let length = number(1).filter(|&length| length <= 128)?;
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        (fields.get(9)?, number(8)?, Network::V6 { destination, mask })
    };
    (flags & (UP | REJECT) == UP).then_some((device, network))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(line: &str, device: &str, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        Table::parse(line, address.is_ipv4()).leads_to(device, address)
    }

    #[test]
    fn an_ipv4_entry_covers_what_its_mask_says() {
        let network = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert!(leads(network, "eth0", "192.0.2.77"));
        assert!(!leads(network, "eth1", "192.0.2.77"));
        assert!(!leads(network, "eth0", "192.0.3.77"));
        let default = "eth1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert!(leads(default, "eth1", "8.8.8.8"));
        let reject = "eth1\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0";
        assert!(!leads(reject, "eth1", "8.8.8.8"));
    }

    #[test]
    fn an_ipv6_entry_covers_what_its_prefix_says() {
        let zeroes = "0".repeat(32);
        let line = |to: &str, length: &str, flags: &str| {
            format!("{to} {length} {zeroes} 00 {zeroes} 00000100 00000001 00000000 {flags}     eth0")
        };
        let network = line("fd000000000000000000000000000000", "40", "00000001");
        assert!(leads(&network, "eth0", "fd00::7"));
        assert!(!leads(&network, "eth0", "fd01::7"));
        assert!(leads(&line(&zeroes, "00", "00000003"), "eth0", "2001:db8::1"));
        assert!(!leads(&line(&zeroes, "00", "00200200"), "eth0", "2001:db8::1"));
        assert!(!leads(&line(&zeroes, "81", "00000001"), "eth0", "2001:db8::1"));
    }

    #[test]
    fn lines_without_sense_are_passed_over() {
        for line in [
            "",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask",
            "eth0 0 0",
            "eth0 x 0 1 0 0 0 0",
        ] {
            assert_eq!(entry(line, true), None, "{line}");
            assert_eq!(entry(line, false), None, "{line}");
        }
    }
}
