//! The kernel's routing table, as text: whether a device leads to an address.
//!
//! Used by `net::route`. Built on /proc/net. WorkSource the kernel itself, by a socket that is bound to the device,
//! does not do: it takes an address for a neighbour when it knows of no route.

use std::net::IpAddr;

/// Flags of an entry, from the kernel's `route.h`.
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// Whether the main table has an entry through `device` that covers `address`. `None` where the table cannot
/// be read.
pub(super) fn leads_to(device: &str, address: IpAddr) -> Option<bool> {
    // The table of this thread's network namespace.
    let file =
        if address.is_ipv4() { "/proc/thread-self/net/route" } else { "/proc/thread-self/net/ipv6_route" };
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.lines().filter_map(|line| Entry::parse(line, address)).any(|entry| entry.leads(device)))
}

/// An entry with its meaning for one address.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'line> {
    device: &'line str,
    flags: u32,
    covers: bool,
}

impl<'line> Entry<'line> {
    /// A line of the table for the address's family; `None` for a headline or one that makes no sense.
    fn parse(line: &'line str, address: IpAddr) -> Option<Entry<'line>> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match address {
            IpAddr::V4(address) => {
                // Iface Destination Gateway Flags RefCnt Use Metric Mask …; addresses as they are in memory.
                let number = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
                let (destination, flags, mask) = (number(1)?, number(3)?, number(7)?);
                let address = u32::from_ne_bytes(address.octets());
                Some(Entry { device: fields.first()?, flags, covers: address & mask == destination & mask })
            }
            IpAddr::V6(address) => {
                // Destination, its length, source, its length, next hop, metric, references, uses, flags,
                // device.
                let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
                let length = u32::from_str_radix(fields.get(1)?, 16).ok().filter(|&length| length <= 128)?;
                let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
                let difference = address.to_bits() ^ destination;
                let covers = difference.checked_shr(128 - length).unwrap_or(0) == 0;
                Some(Entry { device: fields.get(9)?, flags, covers })
            }
        }
    }

    fn leads(&self, device: &str) -> bool {
        self.device == device && self.covers && self.flags & (UP | REJECT) == UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(line: &str, device: &str, address: &str) -> bool {
        Entry::parse(line, address.parse().unwrap()).is_some_and(|entry| entry.leads(device))
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
        let v4 = "1.2.3.4".parse().unwrap();
        for line in [
            "",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask",
            "eth0 0 0",
            "eth0 x 0 1 0 0 0 0",
        ] {
            assert_eq!(Entry::parse(line, v4), None, "{line}");
            assert_eq!(Entry::parse(line, "::1".parse().unwrap()), None, "{line}");
        }
    }
}
