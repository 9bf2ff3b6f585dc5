//! The address of a port as peers get it, and whether and how a peer's can be reached.
//!
//! For device addresses of the verbs interfaces. Built on `gid` and `port`. Bytes from peers are untrusted.
//!
//! Layout, 24 bytes:
//!
//! | offset | width | what |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | kind: 1 InfiniBand, 2 RoCE v1, 3 RoCE v2 |
//! | 2 | 1 | active MTU: 1 = 256 … 5 = 4096 bytes |
//! | 3 | 1 | zero |
//! | 4 | 2 | LID, little-endian. On Ethernet 0, but with a loopback GID a number of machine and network namespace |
//! | 6 | 2 | partition key, little-endian |
//! | 8 | 16 | GID, as on the wire |

use std::fmt;

use crate::gid::{Gid, GidKind};
use crate::port::Mtu;

/// Length of a packed address in bytes.
pub const DEVICE_ADDRESS_LENGTH: usize = 24;

const VERSION: u8 = 1;

/// The address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceAddress {
    /// What kind of network the port is on.
    pub kind: GidKind,
    /// The port's MTU.
    pub mtu: Mtu,
    /// The LID; 0 on Ethernet.
    pub lid: u16,
    /// With a loopback GID, which every machine has, what tells machines and network namespaces apart; otherwise 0.
    pub host: u16,
    /// The partition key; its highest bit means full member.
    pub pkey: u16,
    /// The GID.
    pub gid: Gid,
}

/// Why bytes are not an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Wrong length.
    #[error("the device address has {0} bytes, not {DEVICE_ADDRESS_LENGTH}")]
    Length(usize),
    /// Another version of the layout, or something else altogether.
    #[error(
        "the device address is of version {0}, this side knows version {VERSION}: use the same release on both sides"
    )]
    Version(u8),
    /// A field with a value that it cannot have.
    #[error("the device address is damaged: {0}")]
    Damaged(&'static str),
}

/// Why a peer's port cannot be reached from a local one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unreachable {
    /// One is InfiniBand, the other Ethernet, or the RoCE versions differ.
    Kind(GidKind, GidKind),
    /// InfiniBand subnets differ and no router is to be used.
    Subnet(u64, u64),
    /// One GID is IPv4, the other IPv6.
    Family(Gid, Gid),
    /// The peer's GID is link-local, ours is not, or the other way round.
    Scope(Gid, Gid),
    /// The peer's GID is a loopback address, ours is not, or the other way round.
    Loopback(Gid, Gid),
    /// Both GIDs are loopback addresses, of two machines or network namespaces.
    Host,
    /// Partition keys differ, or both are limited members.
    Partition(u16, u16),
    /// A peer on InfiniBand without a LID.
    NoLid,
    /// A datagram came from one GID, and names another as its sender's.
    Route(Gid, Gid),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(local, remote) => write!(f, "the link layers differ: {local} here, {remote} there"),
            Self::Subnet(local, remote) => {
                write!(f, "the InfiniBand subnets differ: {local:#018x} here, {remote:#018x} there")
            }
            Self::Family(local, remote) => {
                write!(f, "the GIDs are of different address families: {local} here, {remote} there")
            }
            Self::Scope(local, remote) => {
                write!(f, "one GID is link-local and the other is not: {local} here, {remote} there")
            }
            Self::Loopback(local, remote) => {
                write!(f, "one GID is a loopback address and the other is not: {local} here, {remote} there")
            }
            Self::Host => f.write_str(
                "the GIDs are loopback addresses of two machines, or of two network namespaces of one",
            ),
            Self::Partition(local, remote) => {
                write!(f, "the partition keys do not match: {local:#06x} here, {remote:#06x} there")
            }
            Self::NoLid => {
                f.write_str("the peer's port has no LID: its subnet manager has not configured it")
            }
            Self::Route(gid, named) => {
                write!(f, "the datagram came from the GID {gid}, and names {named} as its sender's")
            }
        }
    }
}

impl DeviceAddress {
    /// The bytes for peers.
    pub fn pack(&self) -> [u8; DEVICE_ADDRESS_LENGTH] {
        let mut bytes = [0; DEVICE_ADDRESS_LENGTH];
        bytes[0] = VERSION;
        bytes[1] = match self.kind {
            GidKind::InfiniBand => 1,
            GidKind::RoceV1 => 2,
            GidKind::RoceV2 => 3,
        };
        bytes[2] = self.mtu.code();
        let lid_or_host = if self.gid.is_loopback() { self.host } else { self.lid };
        bytes[4..6].copy_from_slice(&lid_or_host.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.pkey.to_le_bytes());
        bytes[8..].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads bytes that came from anywhere.
    ///
    /// # Errors
    /// [`AddressError`] for anything that [`DeviceAddress::pack`] cannot have made.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        let bytes: &[u8; DEVICE_ADDRESS_LENGTH] =
            bytes.try_into().map_err(|_| AddressError::Length(bytes.len()))?;
        let [version, kind, mtu, zero, low, high, pkey0, pkey1, gid @ ..] = *bytes;
        if version != VERSION {
            return Err(AddressError::Version(version));
        }
        let kind = match kind {
            1 => GidKind::InfiniBand,
            2 => GidKind::RoceV1,
            3 => GidKind::RoceV2,
            _ => return Err(AddressError::Damaged("an unknown kind of network")),
        };
        let (gid, lid_or_host) = (Gid(gid), u16::from_le_bytes([low, high]));
        let (lid, host) = if gid.is_loopback() { (0, lid_or_host) } else { (lid_or_host, 0) };
        let address = Self {
            kind,
            mtu: Mtu::from_code(mtu).ok_or(AddressError::Damaged("an MTU that does not exist"))?,
            lid,
            host,
            pkey: u16::from_le_bytes([pkey0, pkey1]),
            gid,
        };
        if zero != 0 {
            return Err(AddressError::Damaged("a reserved byte is not zero"));
        }
        if address.gid.is_zero() {
            return Err(AddressError::Damaged("the GID is zero"));
        }
        if address.gid.0[0] == 0xff
            || matches!(address.gid.ip(), std::net::IpAddr::V4(ip) if ip.is_multicast())
        {
            return Err(AddressError::Damaged("the GID is a multicast address"));
        }
        if kind != GidKind::InfiniBand && address.lid != 0 {
            return Err(AddressError::Damaged("a LID on Ethernet"));
        }
        if address.lid >= 0xc000 {
            return Err(AddressError::Damaged("the LID is a multicast address"));
        }
        Ok(address)
    }

    /// Whether `peer` can be reached from here; a local decision, without traffic.
    ///
    /// # Errors
    /// The reason why not.
    pub fn reach(&self, peer: &Self) -> Result<(), Unreachable> {
        if self.kind != peer.kind {
            return Err(Unreachable::Kind(self.kind, peer.kind));
        }
        // Keys match if their low 15 bits do and at least one side is a full member.
        if (self.pkey ^ peer.pkey) & 0x7fff != 0 || (self.pkey | peer.pkey) & 0x8000 == 0 {
            return Err(Unreachable::Partition(self.pkey, peer.pkey));
        }
        if self.kind == GidKind::InfiniBand {
            if self.gid.subnet_prefix() != peer.gid.subnet_prefix() {
                return Err(Unreachable::Subnet(self.gid.subnet_prefix(), peer.gid.subnet_prefix()));
            }
            if peer.lid == 0 {
                return Err(Unreachable::NoLid);
            }
            return Ok(());
        }
        if self.gid.is_ipv4() != peer.gid.is_ipv4() {
            return Err(Unreachable::Family(self.gid, peer.gid));
        }
        if self.gid.is_link_local() != peer.gid.is_link_local() {
            return Err(Unreachable::Scope(self.gid, peer.gid));
        }
        if self.gid.is_loopback() != peer.gid.is_loopback() {
            return Err(Unreachable::Loopback(self.gid, peer.gid));
        }
        if self.gid.is_loopback() && self.host != peer.host {
            return Err(Unreachable::Host);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn roce(address: &str) -> DeviceAddress {
        DeviceAddress {
            kind: GidKind::RoceV2,
            mtu: Mtu::LARGEST,
            lid: 0,
            host: 0,
            pkey: 0xffff,
            gid: Gid::from_ip(address.parse().expect("an address")),
        }
    }

    fn infiniband(lid: u16) -> DeviceAddress {
        let mut gid = [0; 16];
        gid[0] = 0xfe;
        gid[1] = 0x80;
        gid[15] = 1;
        DeviceAddress {
            kind: GidKind::InfiniBand,
            mtu: Mtu::LARGEST,
            lid,
            host: 0,
            pkey: 0xffff,
            gid: Gid(gid),
        }
    }

    #[test]
    fn what_is_packed_is_read_back() {
        let loopback = DeviceAddress { host: 0xfedc, ..roce("127.64.0.1") };
        for address in [roce("10.7.0.1"), roce("fd00::7"), infiniband(9), loopback] {
            assert_eq!(DeviceAddress::parse(&address.pack()), Ok(address));
        }
    }

    #[test]
    fn a_loopback_address_is_reached_from_its_own_machine_and_from_loopback_alone() {
        let own = DeviceAddress { host: 7, ..roce("127.64.0.1") };
        assert_eq!(own.reach(&DeviceAddress { host: 7, ..roce("127.90.3.4") }), Ok(()));
        let elsewhere = DeviceAddress { host: 8, ..roce("127.90.3.4") };
        assert_eq!(own.reach(&elsewhere), Err(Unreachable::Host));
        for (here, there) in [(own, roce("10.7.0.1")), (roce("10.7.0.1"), own)] {
            assert_eq!(here.reach(&there), Err(Unreachable::Loopback(here.gid, there.gid)));
        }
    }

    #[test]
    fn a_peer_of_another_link_layer_is_unreachable_with_the_reason() {
        let reason = roce("10.7.0.1").reach(&infiniband(9)).expect_err("unreachable");
        assert_eq!(reason.to_string(), "the link layers differ: RoCE v2 here, InfiniBand there");
    }

    #[test]
    fn families_scopes_subnets_and_partitions_must_match() {
        let here = roce("10.7.0.1");
        assert_eq!(here.reach(&roce("10.9.0.1")), Ok(()));
        assert!(matches!(here.reach(&roce("fd00::1")), Err(Unreachable::Family(..))));
        assert!(matches!(roce("fd00::1").reach(&roce("fe80::1")), Err(Unreachable::Scope(..))));
        assert_eq!(infiniband(1).reach(&infiniband(2)), Ok(()));
        assert_eq!(infiniband(1).reach(&infiniband(0)), Err(Unreachable::NoLid));
        let mut other_subnet = infiniband(2);
        other_subnet.gid.0[7] = 1;
        assert!(matches!(infiniband(1).reach(&other_subnet), Err(Unreachable::Subnet(..))));
        let limited = DeviceAddress { pkey: 0x7fff, ..here };
        assert_eq!(here.reach(&limited), Ok(()));
        assert!(matches!(limited.reach(&limited), Err(Unreachable::Partition(..))));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(address) = DeviceAddress::parse(&bytes) {
                prop_assert_eq!(address.pack().to_vec(), bytes);
                let _ = roce("10.7.0.1").reach(&address);
            }
        }

        #[test]
        fn a_flipped_bit_never_reads_as_the_same_address(bit in 0..DEVICE_ADDRESS_LENGTH * 8) {
            let address = roce("10.7.0.1");
            let mut bytes = address.pack();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(DeviceAddress::parse(&bytes), Ok(address));
        }
    }
}
