//! A port that is ready for use: its GID, keys and MTU decided, and the paths from it to peers.
//!
//! For the interfaces of the verbs transports. Built on `port`, `gid` and `addr`.

use ucs::sys::host::host_id;
use ucs::sys::namespace::Namespace;

use crate::addr::{DeviceAddress, Unreachable};
use crate::error::IbError;
use crate::gid::{self, Gid, GidChoice};
use crate::port::{LinkLayer, Mtu, Port};
use crate::verbs::{AddressVector, Context, GlobalRoute};

/// What the user may decide about a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortPreferences {
    /// GID index; `None` chooses by what the entries are.
    pub gid_index: Option<u32>,
    /// Path MTU in bytes; `None` is the port's.
    pub path_mtu: Option<u32>,
    /// Index into the partition key table.
    pub pkey_index: u16,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Traffic class of global routes, 0 to 255.
    pub traffic_class: u8,
    /// Hops before a packet is dropped, 1 to 255.
    pub hop_limit: u8,
    /// On InfiniBand: use global routes also inside the subnet.
    pub is_global: bool,
}

impl Default for PortPreferences {
    fn default() -> Self {
        Self {
            gid_index: None,
            path_mtu: None,
            pkey_index: 0,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            is_global: false,
        }
    }
}

/// A port with everything that peers and paths need.
#[derive(Clone, Debug)]
pub struct PortAddress {
    /// The port as it was asked.
    pub port: Port,
    /// The GID in use, and why.
    pub gid: GidChoice,
    /// The partition key at the index of the preferences.
    pub pkey: u16,
    /// The MTU that this side wants at most.
    pub mtu: Mtu,
    /// As in [`DeviceAddress::host`].
    host: u16,
    preferences: PortPreferences,
}

impl PortAddress {
    /// Asks for the port and its tables, and decides. Call it again after an address change or when the port is active
    /// again: entries move.
    ///
    /// # Errors
    /// No such port, a port that is down, a GID index out of range or empty, no usable GID, an MTU above the port's, or
    /// a failed verb.
    pub fn new(context: &Context, number: u8, preferences: PortPreferences) -> Result<Self, IbError> {
        let port = Port::query(context, number)?;
        port.require_active()?;
        let gid = gid::choose(&gid::read_table(context, &port)?, &port, preferences.gid_index)?;
        let pkey = context.query_pkey(number, preferences.pkey_index)?;
        ucs::log::debug!(
            device = %port.device, port = number, gid = %gid.entry, reason = %gid.reason, "chose the GID"
        );
        Self::of(port, gid, pkey, preferences)
    }

    /// Of what was read of a port; a local decision.
    ///
    /// # Errors
    /// An MTU above the port's.
    pub fn of(port: Port, gid: GidChoice, pkey: u16, preferences: PortPreferences) -> Result<Self, IbError> {
        let mtu = Self::decide_mtu(&port, preferences.path_mtu)?;
        let host = if gid.entry.gid.is_loopback() { host_number() } else { 0 };
        Ok(Self { port, gid, pkey, mtu, host, preferences })
    }

    fn decide_mtu(port: &Port, wanted: Option<u32>) -> Result<Mtu, IbError> {
        let active = port.active_mtu;
        match wanted {
            None => Ok(active),
            Some(bytes) => {
                Mtu::from_bytes(bytes).filter(|&mtu| mtu <= active).ok_or_else(|| IbError::MtuTooBig {
                    device: port.device.clone(),
                    port: port.number,
                    wanted: bytes,
                    active: active.bytes(),
                })
            }
        }
    }

    /// The address for peers.
    pub fn device_address(&self) -> DeviceAddress {
        DeviceAddress {
            kind: self.gid.entry.kind,
            mtu: self.mtu,
            lid: self.port.lid,
            host: self.host,
            pkey: self.pkey,
            gid: self.gid.entry.gid,
        }
    }

    /// Index of the partition key in the port's table.
    pub fn pkey_index(&self) -> u16 {
        self.preferences.pkey_index
    }

    /// The path to a peer's port.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn vector_to(&self, peer: &DeviceAddress) -> Result<AddressVector, Unreachable> {
        self.device_address().reach(peer)?;
        let is_ethernet = self.port.link_layer == LinkLayer::Ethernet;
        let global = (is_ethernet || self.preferences.is_global).then_some(GlobalRoute {
            dgid: peer.gid.0,
            sgid_index: self.gid.entry.index,
            hop_limit: self.preferences.hop_limit,
            traffic_class: self.preferences.traffic_class,
        });
        Ok(AddressVector {
            port: self.port.number,
            dlid: peer.lid,
            source_path_bits: 0,
            service_level: self.preferences.service_level,
            global,
        })
    }

    /// The path back to the sender of a datagram that names `peer` as its port, and whose global routing header, if it has one,
    /// names `route`. A datagram without one is answered without one; so an InfiniBand port cannot have paths made to GIDs that are
    /// not its own.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn vector_back(
        &self,
        peer: &DeviceAddress,
        route: Option<Gid>,
    ) -> Result<AddressVector, Unreachable> {
        let mut vector = self.vector_to(peer)?;
        if self.port.link_layer == LinkLayer::InfiniBand && vector.global.is_some() {
            match route {
                Some(gid) if gid != peer.gid => return Err(Unreachable::Route(gid, peer.gid)),
                Some(_) => {}
                None => vector.global = None,
            }
        }
        Ok(vector)
    }

    /// The MTU of the path to a peer: the smaller of the two.
    pub fn path_mtu(&self, peer: &DeviceAddress) -> Mtu {
        self.mtu.min(peer.mtu)
    }

    /// The sender's GID in the 40 bytes ahead of a received datagram, which hold an IPv4 header in their last 20 bytes or a
    /// global routing header (laid out as IPv6's).
    #[inline]
    pub fn source_gid(header: &[u8; 40]) -> Gid {
        let is_ipv6 = header[0] >> 4 == 6;
        if !is_ipv6 && header[20] >> 4 == 4 {
            let address = [header[32], header[33], header[34], header[35]];
            return Gid::from_ip(std::net::Ipv4Addr::from(address).into());
        }
        Gid(*header[8..].first_chunk().expect("the header is long enough"))
    }
}

/// A number of this machine and of the network namespace that its loopback addresses are in. Two of them differ, but for one pair in 65,536.
fn host_number() -> u16 {
    let id = u128::from_le_bytes(host_id().0);
    let mixed = (id as u64 ^ (id >> 64) as u64 ^ Namespace::Net.own()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The high bits of a product depend on all bits of its factors.
    (mixed >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::{GidEntry, GidKind};

    fn gid(interface: u8) -> Gid {
        Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, interface])
    }

    fn infiniband(is_global: bool) -> PortAddress {
        let entry =
            GidEntry { index: 0, gid: gid(1), kind: GidKind::InfiniBand, netdev: None, is_assigned: true };
        let choice = GidChoice { entry, reason: "the first".to_owned(), rejected: Vec::new() };
        let preferences = PortPreferences { is_global, ..PortPreferences::default() };
        PortAddress::of(Port::for_tests(LinkLayer::InfiniBand), choice, 0xffff, preferences).expect("an MTU")
    }

    #[test]
    fn the_way_back_on_infiniband_goes_to_the_gid_that_the_datagram_came_from() {
        let peer = DeviceAddress { lid: 9, gid: gid(2), ..infiniband(true).device_address() };
        for is_global in [false, true] {
            let port = infiniband(is_global);
            let local = AddressVector { global: None, ..port.vector_to(&peer).expect("reachable") };
            assert_eq!(port.vector_back(&peer, None), Ok(local), "without a route, as it came");
            assert_eq!(port.vector_back(&peer, Some(peer.gid)), port.vector_to(&peer));
        }
        let forged = infiniband(true).vector_back(&peer, Some(gid(3)));
        assert_eq!(forged, Err(Unreachable::Route(gid(3), gid(2))));
        let port = infiniband(false);
        assert_eq!(port.vector_back(&peer, Some(gid(3))), port.vector_to(&peer), "the GID is not used");
    }

    #[test]
    fn the_address_of_a_loopback_gid_names_this_machine() {
        let of = |address: &str| {
            let gid = Gid::from_ip(address.parse().expect("an address"));
            let entry = GidEntry { index: 0, gid, kind: GidKind::RoceV2, netdev: None, is_assigned: false };
            let choice = GidChoice { entry, reason: "alone".to_owned(), rejected: Vec::new() };
            let port = Port::for_tests(LinkLayer::Ethernet);
            PortAddress::of(port, choice, 0xffff, PortPreferences::default())
                .expect("an MTU")
                .device_address()
        };
        assert_eq!(of("127.64.0.1").host, host_number());
        assert_eq!(of("127.64.0.1").reach(&of("127.99.0.1")), Ok(()));
        assert_eq!(of("10.7.0.1").host, 0);
    }

    #[test]
    fn an_mtu_above_the_ports_names_both() {
        let port = Port {
            active_mtu: Mtu::from_bytes(1024).expect("an MTU"),
            ..Port::for_tests(LinkLayer::Ethernet)
        };
        assert_eq!(PortAddress::decide_mtu(&port, Some(512)).expect("smaller is fine").bytes(), 512);
        let error = PortAddress::decide_mtu(&port, Some(4096)).expect_err("too big");
        assert!(error.to_string().contains("4096 is more than the active MTU 1024"), "{error}");
    }

    #[test]
    fn the_source_is_found_behind_either_header() {
        let mut ipv4 = [0u8; 40];
        ipv4[20] = 0x45;
        ipv4[32..36].copy_from_slice(&[10, 7, 0, 1]);
        assert_eq!(PortAddress::source_gid(&ipv4).to_string(), "::ffff:10.7.0.1");
        let mut ipv6 = [0u8; 40];
        ipv6[0] = 0x60;
        ipv6[8] = 0xfd;
        ipv6[23] = 9;
        assert_eq!(PortAddress::source_gid(&ipv6).to_string(), "fd00::9");
    }
}
