//! What the system reports about one link, by whichever means.
//!
//! `interfaces` and `without_netlink` fill it in; `snapshot` keeps it. No dependencies.

use super::address::Address;

/// What the kernel reports about one link.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) index: u32,
    /// `IFF_*` bits.
    pub(super) flags: u32,
    /// The hardware address, lower-case hexadecimal with colons, as /sys prints it.
    pub(super) hardware_address: String,
    /// The largest packet in bytes; `None` of a link that has just gone.
    pub(super) mtu: Option<u32>,
    pub(super) addresses: Vec<Address>,
}

/// Bytes as /sys prints them.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}
