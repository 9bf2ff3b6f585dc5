//! GIDs: what the entries of a port's table are, and which one to use.
//!
//! For `port_address.rs`. Built on the context's GID query, which knows the types and network devices as well, and on sysfs where it
//! does not.
//! An index has no meaning (it moves when addresses come and go), so the choice goes by what an entry is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::error::IbError;
use crate::port::{LinkLayer, Port};
use crate::verbs::abi::IBV_GID_TYPE_ROCE_V2;
use crate::verbs::{Context, UsedGid};

/// A 128-bit port address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether the entry is unused.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// The first 64 bits: the subnet.
    pub fn subnet_prefix(self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().expect("16 bytes have a first 8"))
    }

    /// The last 64 bits: the port.
    pub fn interface_id(self) -> u64 {
        u64::from_be_bytes(*self.0.last_chunk().expect("16 bytes have a last 8"))
    }

    /// The IP address of a RoCE GID.
    pub fn ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// The GID of an IP address.
    pub fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }

    /// Whether it is an IPv4 address.
    pub fn is_ipv4(self) -> bool {
        self.ip().is_ipv4()
    }

    /// Whether it is a loopback address, as a device in software may have: each machine has the same ones.
    pub fn is_loopback(self) -> bool {
        self.ip().is_loopback()
    }

    /// Whether it is of link scope: fe80::/10, or 169.254/16.
    pub fn is_link_local(self) -> bool {
        match self.ip() {
            IpAddr::V4(address) => Ipv4Addr::is_link_local(&address),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What kind of address an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: Ethernet frames, not routable.
    RoceV1,
    /// RoCE version 2: UDP.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// An entry of the table that is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its index.
    pub index: u8,
    /// The address.
    pub gid: Gid,
    /// What it is.
    pub kind: GidKind,
    /// The network device that it belongs to, on Ethernet.
    pub netdev: Option<String>,
    /// Whether that device has this address now.
    pub is_assigned: bool,
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {} {} {}", self.index, self.gid, self.kind)?;
        match &self.netdev {
            Some(netdev) => write!(f, " on {netdev}"),
            None => Ok(()),
        }
    }
}

/// The entry that is used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// Why this one: a sentence.
    pub reason: String,
    /// The other entries, each with why not.
    pub rejected: Vec<String>,
}

/// The entries of the port's table that are in use. Asks the kernel, so it is not for the data path.
///
/// # Errors
/// The failed verb.
pub fn read_table(context: &Context, port: &Port) -> Result<Vec<GidEntry>, IbError> {
    let sysfs = Path::new("/sys/class/infiniband").join(context.device_name());
    // The address vector has eight bits for the index.
    let used = context.used_gids(port.number, port.gid_table_length.min(256))?;
    Ok(describe_table(
        port,
        &used,
        |index, what| {
            let file = sysfs.join(format!("ports/{}/gid_attrs/{what}/{index}", port.number));
            // An unused entry returns EINVAL, and a port of InfiniBand has no network devices: both are "nothing known".
            std::fs::read_to_string(file)
                .ok()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        },
        |index| ucs::sys::net::device_name(index).ok().flatten(),
        |netdev, address| {
            ucs::sys::net::device(netdev).ok().flatten().is_some_and(|device| device.has_address(address))
        },
    ))
}

/// What the entries in use are, from given sources.
fn describe_table(
    port: &Port,
    used: &[UsedGid],
    attribute: impl Fn(u32, &str) -> Option<String>,
    netdev_of: impl Fn(u32) -> Option<String>,
    is_assigned: impl Fn(&str, IpAddr) -> bool,
) -> Vec<GidEntry> {
    let mut entries = Vec::new();
    for &UsedGid { index, gid, attributes } in used {
        let gid = Gid(gid);
        let (is_v2, netdev) = match attributes {
            Some(known) => {
                let netdev = (known.netdev != 0).then(|| netdev_of(known.netdev)).flatten();
                (known.kind == IBV_GID_TYPE_ROCE_V2, netdev)
            }
            None => (attribute(index, "types").as_deref() == Some("RoCE v2"), attribute(index, "ndevs")),
        };
        let kind = match (port.link_layer, is_v2) {
            (LinkLayer::InfiniBand, _) => GidKind::InfiniBand,
            (LinkLayer::Ethernet, true) => GidKind::RoceV2,
            (LinkLayer::Ethernet, false) => GidKind::RoceV1,
        };
        let is_assigned = netdev.as_deref().is_some_and(|netdev| is_assigned(netdev, gid.ip()));
        entries.push(GidEntry { index: index as u8, gid, kind, netdev, is_assigned });
    }
    entries
}

/// Chooses among the entries: the one at `wanted` if that is given, otherwise the best by what it is.
///
/// On InfiniBand the first entry is the port itself. On Ethernet RoCE v2 goes before v1; addresses that leave the link
/// before those that do not; addresses that the network device really has before others; IPv4 before IPv6.
///
/// # Errors
/// [`IbError::GidIndexRange`], [`IbError::GidEmpty`], [`IbError::NoGid`].
pub fn choose(entries: &[GidEntry], port: &Port, wanted: Option<u32>) -> Result<GidChoice, IbError> {
    if let Some(index) = wanted {
        return by_index(entries, port, index);
    }
    let mut ranked: Vec<&GidEntry> = entries.iter().collect();
    ranked.sort_by_key(|entry| (std::cmp::Reverse(rank(entry)), entry.index));
    let Some((best, rest)) = ranked.split_first() else {
        return Err(IbError::NoGid {
            device: port.device.clone(),
            port: port.number,
            seen: vec!["the table is empty".to_owned()],
        });
    };
    Ok(GidChoice {
        entry: (*best).clone(),
        reason: describe(best),
        rejected: rest.iter().map(|entry| format!("{entry}: {}", why_not(entry, best))).collect(),
    })
}

fn by_index(entries: &[GidEntry], port: &Port, index: u32) -> Result<GidChoice, IbError> {
    let length = port.gid_table_length.min(256);
    if index >= length {
        return Err(IbError::GidIndexRange { device: port.device.clone(), port: port.number, index, length });
    }
    let Some(entry) = entries.iter().find(|entry| u32::from(entry.index) == index) else {
        return Err(IbError::GidEmpty {
            device: port.device.clone(),
            port: port.number,
            index,
            used: entries.iter().map(ToString::to_string).collect(),
        });
    };
    Ok(GidChoice {
        entry: entry.clone(),
        reason: format!("asked for by index; {}", describe(entry)),
        rejected: Vec::new(),
    })
}

/// More is better, the first member counts most.
fn rank(entry: &GidEntry) -> (bool, bool, bool, bool) {
    (entry.kind != GidKind::RoceV1, !entry.gid.is_link_local(), entry.is_assigned, entry.gid.is_ipv4())
}

fn describe(entry: &GidEntry) -> String {
    if entry.kind == GidKind::InfiniBand {
        return "the port's own GID".to_owned();
    }
    let scope = if entry.gid.is_link_local() { "link-local" } else { "not link-local" };
    let assigned = match (&entry.netdev, entry.is_assigned) {
        (Some(netdev), true) => format!("an address of {netdev}"),
        (Some(netdev), false) => format!("not an address of {netdev}"),
        (None, _) => "of no network device".to_owned(),
    };
    format!("{}, {scope}, {assigned}", entry.kind)
}

fn why_not(entry: &GidEntry, best: &GidEntry) -> &'static str {
    let (entry, best) = (rank(entry), rank(best));
    if entry.0 != best.0 {
        "RoCE v1, which is not routed"
    } else if entry.1 != best.1 {
        "link-local"
    } else if entry.2 != best.2 {
        "not an address of its network device now"
    } else if entry.3 != best.3 {
        "IPv6, and there is IPv4"
    } else {
        "as good, and later in the table"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::GidAttributes;
    use crate::verbs::abi::IBV_GID_TYPE_ROCE_V1;

    fn entry(index: u8, address: &str, kind: GidKind, is_assigned: bool) -> GidEntry {
        let gid = Gid::from_ip(address.parse().expect("an address"));
        GidEntry { index, gid, kind, netdev: Some("eth0".into()), is_assigned }
    }

    fn port() -> Port {
        Port { gid_table_length: 8, ..Port::for_tests(LinkLayer::Ethernet) }
    }

    #[test]
    fn the_choice_goes_by_what_an_entry_is_and_not_by_its_index() {
        let mut entries = vec![
            entry(0, "fe80::1", GidKind::RoceV2, true),
            entry(1, "10.7.0.1", GidKind::RoceV1, true),
            entry(2, "10.7.0.9", GidKind::RoceV2, false),
            entry(3, "fd00::1", GidKind::RoceV2, true),
            entry(4, "10.7.0.1", GidKind::RoceV2, true),
        ];
        for _ in 0..entries.len() {
            entries.rotate_left(1);
            let choice = choose(&entries, &port(), None).expect("a choice");
            assert_eq!(choice.entry.index, 4);
            assert_eq!(choice.reason, "RoCE v2, not link-local, an address of eth0");
            assert_eq!(choice.rejected.len(), 4);
        }
        let mut next_best = Vec::new();
        while let Ok(choice) = choose(&entries, &port(), None) {
            next_best.push(choice.entry.index);
            entries.retain(|entry| *entry != choice.entry);
        }
        assert_eq!(next_best, [4, 3, 2, 0, 1]);
    }

    #[test]
    fn every_rejected_entry_says_why() {
        let entries =
            [entry(0, "fe80::1", GidKind::RoceV2, true), entry(1, "10.7.0.1", GidKind::RoceV2, true)];
        let choice = choose(&entries, &port(), None).expect("a choice");
        assert_eq!(choice.rejected, ["index 0 fe80::1 RoCE v2 on eth0: link-local"]);
    }

    #[test]
    fn an_index_out_of_range_names_the_range() {
        let error = choose(&[], &port(), Some(8)).expect_err("no such index");
        assert_eq!(
            error.to_string(),
            "GID index 8 is out of range: port 1 of device `mlx5_0` has indices 0 to 7"
        );
    }

    #[test]
    fn an_empty_index_names_what_is_in_use() {
        let entries = [entry(1, "10.7.0.1", GidKind::RoceV2, true)];
        let error = choose(&entries, &port(), Some(0)).expect_err("nothing there");
        assert!(error.to_string().contains("index 1 ::ffff:10.7.0.1 RoCE v2 on eth0"), "{error}");
    }

    #[test]
    fn a_table_without_entries_is_an_error_and_not_a_panic() {
        let error = choose(&[], &port(), None).expect_err("nothing to choose");
        assert!(matches!(error, IbError::NoGid { .. }), "{error}");
    }

    fn used(address: &str, attributes: Option<GidAttributes>) -> UsedGid {
        UsedGid { index: 2, gid: Gid::from_ip(address.parse().expect("an address")).0, attributes }
    }

    /// A table of one entry, where sysfs knows RoCE v1 on eth7 and the kernel has a network device eth0 of index 3.
    fn described(used: UsedGid) -> GidEntry {
        let mut table = describe_table(
            &port(),
            &[used],
            |_, what| Some(if what == "types" { "IB/RoCE v1".into() } else { "eth7".into() }),
            |index| (index == 3).then(|| "eth0".to_owned()),
            |netdev, address| netdev == "eth0" && address.is_ipv4(),
        );
        table.remove(0)
    }

    #[test]
    fn types_and_devices_come_from_the_table_where_the_library_has_it() {
        let attributes = GidAttributes { kind: IBV_GID_TYPE_ROCE_V2, netdev: 3 };
        let known = described(used("10.7.0.1", Some(attributes)));
        assert_eq!(known, entry(2, "10.7.0.1", GidKind::RoceV2, true));
        let v1 = GidAttributes { kind: IBV_GID_TYPE_ROCE_V1, ..attributes };
        assert_eq!(described(used("10.7.0.1", Some(v1))).kind, GidKind::RoceV1);
        let of_sysfs = described(used("10.7.0.1", None));
        assert_eq!((of_sysfs.kind, of_sysfs.netdev.as_deref()), (GidKind::RoceV1, Some("eth7")));
    }

    #[test]
    fn an_entry_without_a_network_device_is_chosen_if_there_is_no_other() {
        for netdev in [0, 4] {
            let attributes = GidAttributes { kind: IBV_GID_TYPE_ROCE_V2, netdev };
            let alone = described(used("127.64.0.1", Some(attributes)));
            assert_eq!((alone.netdev.as_deref(), alone.is_assigned), (None, false));
            let choice = choose(std::slice::from_ref(&alone), &port(), None).expect("a choice");
            assert_eq!(choice.entry, alone);
            assert_eq!(choice.reason, "RoCE v2, not link-local, of no network device");
        }
    }
}
