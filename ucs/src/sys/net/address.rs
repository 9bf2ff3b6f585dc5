//! An address of a network device, with the network that it belongs to.
//!
//! Used by `interfaces` and `device`. No dependencies.

use std::net::IpAddr;

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Leading bits that name the network: 0..=32 for IPv4, 0..=128 for IPv6.
    pub prefix_length: u8,
    /// The interface index for a link-local IPv6 address, 0 otherwise.
    pub scope_id: u32,
}

impl Address {
    /// Whether both addresses have the same network bits.
    pub fn network_contains(&self, address: IpAddr) -> bool {
        let length = u32::from(self.prefix_length);
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - length.min(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - length.min(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_its_prefix_says() {
        let network = |text: &str, prefix_length| Address {
            address: text.parse().unwrap(),
            prefix_length,
            scope_id: 0,
        };
        let contains = |network: Address, text: &str| network.network_contains(text.parse().unwrap());
        assert!(contains(network("10.1.2.3", 24), "10.1.2.250"));
        assert!(!contains(network("10.1.2.3", 24), "10.1.3.3"));
        assert!(contains(network("10.1.2.3", 0), "8.8.8.8"));
        assert!(!contains(network("10.1.2.3", 32), "10.1.2.4"));
        assert!(contains(network("fd00::1", 64), "fd00::2:3"));
        assert!(!contains(network("fd00::1", 64), "fd01::1"));
        assert!(!contains(network("fd00::1", 0), "10.1.2.3"));
    }
}
