//! Which address an endpoint gets: the program's, or one of a permitted network device that others reach.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ucs::sys::net;
use ucs::units::NameList;

use crate::abi::*;

use super::hints::Hints;
use super::refused;

/// The address of this side and of the peer, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
}

/// Which family an address may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Any,
    V4,
    V6,
}

impl Family {
    fn of_format(format: u32) -> Result<Family, String> {
        match format {
            FI_FORMAT_UNSPEC | FI_SOCKADDR => Ok(Family::Any),
            FI_SOCKADDR_IN => Ok(Family::V4),
            FI_SOCKADDR_IN6 => Ok(Family::V6),
            other => refused("addr_format", other, "FI_SOCKADDR_IN or FI_SOCKADDR_IN6"),
        }
    }

    fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    fn has(self, address: IpAddr) -> bool {
        self == Family::Any || self == Family::of(address)
    }
}

/// Where a program listens, or what it wants to reach: its words, `FI_SOURCE` says which, then its hints.
pub fn addresses(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: Option<&Hints<'_>>,
    permitted: &NameList,
) -> Result<Addresses, String> {
    let mut family = Family::of_format(hints.map_or(FI_FORMAT_UNSPEC, |hints| hints.info.addr_format))?;
    let mut source = hints.map(|hints| hints.source.known("src_addr")).transpose()?.flatten();
    let mut destination = hints.map(|hints| hints.destination.known("dest_addr")).transpose()?.flatten();
    if node.is_some() || service.is_some() {
        let named = look_up(node, service, flags & FI_NUMERICHOST != 0, family)?;
        *(if flags & FI_SOURCE != 0 { &mut source } else { &mut destination }) = Some(named);
    }
    for address in [source, destination].into_iter().flatten() {
        if !family.has(address.ip()) {
            return Err(format!("{address} is not of the family that is asked for"));
        }
        family = Family::of(address.ip());
    }
    Ok(Addresses { source: Some(own_address(family, source, destination, permitted)?), destination })
}

/// The address of an endpoint, if the program wants this one.
pub fn own(format: u32, asked: Option<SocketAddr>, permitted: &NameList) -> Result<SocketAddr, String> {
    let family = match asked {
        Some(asked) => Family::of(asked.ip()),
        None => Family::of_format(format)?,
    };
    own_address(family, asked, None, permitted)
}

fn own_address(
    family: Family,
    asked: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    permitted: &NameList,
) -> Result<SocketAddr, String> {
    match asked {
        Some(own) if !own.ip().is_unspecified() => check_own(own.ip(), permitted).map(|()| own),
        // Peers need an address that they can call, so that a wildcard stands for the one that is chosen.
        own => Ok(SocketAddr::new(choose(family, peer, permitted)?, own.map_or(0, |own| own.port()))),
    }
}

fn look_up(
    node: Option<&str>,
    service: Option<&str>,
    is_numeric: bool,
    family: Family,
) -> Result<SocketAddr, String> {
    let any = if family == Family::V6 { "::" } else { "0.0.0.0" };
    let (node, service) = (node.unwrap_or(any), service.unwrap_or("0"));
    if is_numeric && node.parse::<IpAddr>().is_err() {
        return Err(format!("node {node:?} is no IP address, and FI_NUMERICHOST is set"));
    }
    let found = net::look_up(node, service).map_err(|error| error.to_string())?;
    let fitting = found.into_iter().find(|address| family.has(address.ip()));
    fitting.ok_or_else(|| format!("node {node:?} has no address of the family that is asked for"))
}

fn check_own(address: IpAddr, permitted: &NameList) -> Result<(), String> {
    let holder = net::holder(address).map_err(|error| error.to_string())?;
    // All of 127.0.0.0/8 is the loopback device's, which has one of them.
    let holder = holder.or_else(|| address.is_loopback().then(loopback).flatten());
    match holder {
        Some(device) if permitted.contains(&device) => Ok(()),
        Some(device) => {
            Err(format!("{address} is the address of {device}, which UCT_NET_DEVICES does not permit"))
        }
        None => Err(format!("{address} is not an address of this machine")),
    }
}

fn loopback() -> Option<String> {
    net::devices().ok()?.into_iter().find(net::Device::is_loopback).map(|device| device.name)
}

/// The address that leads to the peer, else that of the default route, else the first that others reach, else loopback.
fn choose(family: Family, peer: Option<SocketAddr>, permitted: &NameList) -> Result<IpAddr, String> {
    // An address of the documentation, to which a packet would take the default route. None is sent.
    let far = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 9));
    let routes = [peer.filter(|peer| !peer.ip().is_unspecified()), (family != Family::V6).then_some(far)];
    for peer in routes.into_iter().flatten() {
        if let Ok(route) = net::route_source(peer)
            && check_own(route.source.ip(), permitted).is_ok()
        {
            return Ok(route.source.ip());
        }
    }
    let devices = net::devices().map_err(|error| error.to_string())?;
    let permitted = devices.into_iter().filter(|device| device.is_up && permitted.contains(&device.name));
    let found = first(permitted.collect(), family);
    found.ok_or_else(|| {
        "no network device that UCT_NET_DEVICES permits has an address of the family that is asked for"
            .to_owned()
    })
}

/// The first address of a device that others reach, those of hardware ahead, else of loopback; of each IPv4 ahead of IPv6.
fn first(mut devices: Vec<net::Device>, family: Family) -> Option<IpAddr> {
    devices.sort_by_key(net::Device::is_virtual);
    let (local, reached): (Vec<_>, Vec<_>) = devices.into_iter().partition(net::Device::is_loopback);
    [reached, local].into_iter().find_map(|devices| {
        let usable = |family: Family| {
            let addresses = devices.iter().flat_map(|device| &device.addresses);
            // A link's own addresses need the name of a device, which differs between machines.
            addresses.filter(|own| own.scope_id == 0).map(|own| own.address).find(|own| family.has(*own))
        };
        match family {
            Family::Any => usable(Family::V4).or_else(|| usable(Family::V6)),
            family => usable(family),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(node: &str, flags: u64, permitted: &str) -> Result<Addresses, String> {
        addresses(Some(node), Some("7000"), flags, None, &permitted.parse().unwrap())
    }

    #[test]
    fn the_program_decides_by_its_words() {
        let address = Some("127.0.0.1:7000".parse().unwrap());
        let own = named("127.0.0.1", FI_SOURCE, "all").unwrap();
        assert_eq!(own, Addresses { source: address, destination: None });
        let peer = named("127.0.0.1", 0, "all").unwrap();
        assert_eq!(peer.destination, address);
        assert_eq!(peer.source, Some("127.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn what_is_not_permitted_or_not_here_is_refused_with_a_reason() {
        assert!(named("127.0.0.1", FI_SOURCE, "^lo").unwrap_err().contains("UCT_NET_DEVICES"));
        assert!(named("240.0.0.1", FI_SOURCE, "all").unwrap_err().contains("not an address of this machine"));
        assert!(named("localhost", FI_NUMERICHOST, "all").unwrap_err().contains("FI_NUMERICHOST"));
        assert!(addresses(None, None, 0, None, &"no-such-device".parse().unwrap()).is_err());
    }

    #[test]
    fn without_words_the_permitted_device_has_the_address() {
        let found = addresses(None, None, 0, None, &"lo".parse().unwrap()).unwrap();
        assert_eq!(found.source, Some("127.0.0.1:0".parse().unwrap()));
        assert_eq!(found.destination, None);
    }
    #[test]
    fn loopback_has_the_address_only_where_there_is_no_other() {
        let found = net::devices().unwrap().into_iter().find(net::Device::is_loopback).unwrap();
        let own = |text: &str, scope_id| net::Address {
            address: text.parse().unwrap(),
            prefix_length: 64,
            scope_id,
        };
        let local = net::Device { addresses: vec![own("127.0.0.1", 0), own("::1", 0)], ..found.clone() };
        let reached = |addresses| net::Device { kind: net::Kind::Virtual, addresses, ..found.clone() };
        let choose = |family, addresses: &[net::Address]| {
            first(vec![local.clone(), reached(addresses.to_vec())], family).unwrap().to_string()
        };
        let [v4, v6, link] = [own("192.0.2.1", 0), own("2001:db8::1", 0), own("fe80::1", 3)];
        assert_eq!(choose(Family::Any, &[link, v6, v4]), "192.0.2.1");
        assert_eq!(choose(Family::Any, &[link, v6]), "2001:db8::1");
        assert_eq!(choose(Family::V6, &[link, v4, v6]), "2001:db8::1");
        assert_eq!(choose(Family::V4, &[v6]), "127.0.0.1");
        assert_eq!(choose(Family::Any, &[link]), "127.0.0.1");
    }
}
