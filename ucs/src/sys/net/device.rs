//! One network device, as the system reports it.
//!
//! For listing resources, prices and reachability. Built on `net::snapshot` and /sys/class/net.
//! Transports and `uct_info` use it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::address::Address;
use super::link::Link;
use super::snapshot;
use super::speed::{Kind, Origin, Speed};
use crate::sys::{SystemError, read};

const CLASS: &str = "/sys/class/net";

/// A network device.
#[derive(Clone, Debug)]
pub struct Device {
    /// The name, unique in its network namespace: "eth0".
    pub name: String,
    /// The interface index, at least 1.
    pub index: u32,
    /// What kind of device it is.
    pub kind: Kind,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it is operational: switched on, with a link.
    pub is_running: bool,
    /// The speed and where that number comes from.
    pub speed: Speed,
    /// The largest packet in bytes, without the link's header.
    pub mtu: u32,
    /// Its IPv4 and IPv6 addresses, in the system's order.
    pub addresses: Vec<Address>,
    /// The NUMA node it is attached to, where the system knows.
    pub numa_node: Option<u32>,
    /// The driver's name, of a device that has one in /sys.
    pub driver: Option<String>,
    /// The device's directory below /sys/devices, of which the PCI address is a part; `None` for a virtual
    /// device.
    pub pci_path: Option<PathBuf>,
}

/// How far the addresses of a device reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// This machine.
    Loopback,
    /// As far as there are routes.
    Wide,
    /// The link of the device only, or nowhere: it is down, or has no address.
    Link,
}

/// Every device of this network namespace, ordered by name. Reads some files per device; not for the data
/// path.
pub fn devices() -> Result<Vec<Device>, SystemError> {
    let snapshot = snapshot::current()?;
    Ok(snapshot.links.iter().map(|(name, link)| Device::from_link(name, link)).collect())
}

/// The device of that name, if there is one.
pub fn device(name: &str) -> Result<Option<Device>, SystemError> {
    Ok(snapshot::current()?.links.get(name).map(|link| Device::from_link(name, link)))
}

/// The name of the device of this interface index, if there is one. Reads no files.
pub fn device_name(index: u32) -> Result<Option<String>, SystemError> {
    let snapshot = snapshot::current()?;
    let mut links = snapshot.links.iter();
    Ok(links.find(|(_, link)| link.index == index).map(|(name, _)| name.clone()))
}

/// The name of the device that has this address, if one has. Reads no files.
pub fn holder(address: IpAddr) -> Result<Option<String>, SystemError> {
    Ok(snapshot::current()?.holder(address).map(str::to_owned))
}

/// How far the addresses of a device reach, if there is one of that name. Reads no files.
pub fn reach(name: &str) -> Result<Option<Reach>, SystemError> {
    let snapshot = snapshot::current()?;
    let reach = |link: &Link| match () {
        () if has(link.flags, libc::IFF_LOOPBACK) => Reach::Loopback,
        () if has(link.flags, libc::IFF_UP) && link.addresses.iter().any(|own| own.scope_id == 0) => {
            Reach::Wide
        }
        () => Reach::Link,
    };
    Ok(snapshot.links.get(name).map(reach))
}

impl Device {
    fn from_link(name: &str, link: &Link) -> Device {
        let facts = Facts::read(name, link);
        Device {
            index: link.index,
            kind: facts.kind,
            is_up: has(link.flags, libc::IFF_UP),
            is_running: has(link.flags, libc::IFF_UP | libc::IFF_RUNNING),
            speed: Speed::from_report(facts.speed, facts.kind),
            mtu: link.mtu.unwrap_or(FALLBACK_MTU),
            addresses: link.addresses.clone(),
            numa_node: facts.numa_node,
            driver: facts.driver,
            pci_path: facts.pci_path,
            name: name.to_owned(),
        }
    }

    /// Whether it is the loopback device.
    pub fn is_loopback(&self) -> bool {
        self.kind == Kind::Loopback
    }

    /// Whether it is made of software, loopback included.
    pub fn is_virtual(&self) -> bool {
        matches!(self.kind, Kind::Loopback | Kind::Virtual)
    }

    /// Whether `address` is one of its own.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether `address` is in the network of one of its addresses, so that no router is between.
    pub fn is_neighbour(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.network_contains(address))
    }

    /// Where the speed comes from.
    pub fn speed_origin(&self) -> Origin {
        self.speed.origin
    }
}

/// Used where the kernel does not report the MTU because the device has just gone: the MTU of every
/// Ethernet.
const FALLBACK_MTU: u32 = 1500;

/// What /sys reports about a device.
struct Facts {
    kind: Kind,
    speed: Option<i64>,
    numa_node: Option<u32>,
    driver: Option<String>,
    pci_path: Option<PathBuf>,
}

impl Facts {
    fn read(name: &str, link: &Link) -> Facts {
        let directory = Path::new(CLASS).join(name);
        let is_loopback = has(link.flags, libc::IFF_LOOPBACK);
        if !describes(&directory, link) {
            let kind = if is_loopback { Kind::Loopback } else { Kind::Virtual };
            return Facts { kind, speed: None, numa_node: None, driver: None, pci_path: None };
        }
        let pci_path = directory.join("device").canonicalize().ok();
        let kind = if is_loopback {
            Kind::Loopback
        } else if directory.join("phy80211").exists() || directory.join("wireless").exists() {
            Kind::Wireless
        } else if pci_path.is_some() {
            Kind::Physical
        } else {
            Kind::Virtual
        };
        // The tun driver of older kernels always reports 10 Mb/s.
        let is_placeholder = |&speed: &i64| speed == 10 && directory.join("tun_flags").exists();
        Facts {
            kind,
            speed: read::value(directory.join("speed")).filter(|speed| !is_placeholder(speed)),
            // −1, "no node", does not parse.
            numa_node: read::value(directory.join("device/numa_node")),
            driver: read::link_name(directory.join("device/driver")),
            pci_path,
        }
    }
}

/// Whether the directory is about this link and not about one of that name in another network namespace.
fn describes(directory: &Path, link: &Link) -> bool {
    let same_index = read::value(directory.join("ifindex")) == Some(link.index);
    same_index && read::text(directory.join("address")).unwrap_or_default() == link.hardware_address
}

fn has(flags: u32, wanted: i32) -> bool {
    flags & wanted.cast_unsigned() == wanted.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_listed_with_its_address_and_a_named_default_speed() {
        let devices = devices().unwrap();
        let loopback = devices.iter().find(|device| device.is_loopback()).expect("no loopback device");
        assert_eq!(loopback.index, 1);
        assert_eq!(device_name(1).unwrap().as_ref(), Some(&loopback.name));
        assert_eq!(device_name(0).unwrap(), None);
        assert!(loopback.is_virtual());
        assert!(loopback.mtu >= 16_384, "{loopback:?}");
        assert_eq!(loopback.speed.megabits, super::super::LOOPBACK_MEGABITS);
        assert!(matches!(loopback.speed_origin(), Origin::NamedDefault("loopback")));
        if loopback.is_up {
            let address = Address { address: Ipv4Addr::LOCALHOST.into(), prefix_length: 8, scope_id: 0 };
            assert!(loopback.addresses.contains(&address), "{loopback:?}");
            assert!(loopback.has_address(address.address));
            assert!(loopback.is_neighbour(Ipv4Addr::new(127, 9, 9, 9).into()));
        }
    }

    #[test]
    fn every_device_has_a_speed_above_zero_and_a_sensible_mtu() {
        for found in devices().unwrap() {
            assert!(found.speed.megabits > 0, "{found:?}");
            assert!(found.mtu >= 68, "{found:?}");
            let again = device(&found.name).unwrap().expect("listed, then not found");
            assert_eq!(again.index, found.index);
        }
    }

    #[test]
    fn an_unknown_device_is_none() {
        assert!(device("no-such-device-here-at-all").unwrap().is_none());
    }

    #[test]
    fn a_directory_of_another_namespace_is_not_believed() {
        let foreign = Link { index: 1, hardware_address: "02:00:00:00:00:77".into(), ..Default::default() };
        assert!(!describes(Path::new("/sys/class/net/lo"), &foreign));
        assert_eq!(Facts::read("lo", &foreign).speed, None);
    }
}
