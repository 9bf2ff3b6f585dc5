//! Which local address and device lead to a peer.
//!
//! For reachability, decided locally and without traffic. Built on the kernel's routing table, asked by
//! connecting a UDP socket, which sends nothing, and read from /proc for one device. Transports use it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::interfaces::{Link, links};
use super::table;
use crate::sys::SystemError;

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address of packets to the peer; port 0.
    pub source: SocketAddr,
    /// The device that has this address. A peer on this very machine is reached through loopback all the
    /// same; see `is_local`.
    pub device: Option<String>,
    /// Whether the peer's address is one of this network namespace.
    pub is_local: bool,
}

/// The way the kernel would take to `peer`; the port may be 0. Sends nothing and does not block.
///
/// A result means that there is a route, not that the peer is alive. The usual failures are `ENETUNREACH` (no
/// route) and `EAFNOSUPPORT` (no IPv6).
pub fn route_source(peer: SocketAddr) -> Result<Route, SystemError> {
    route(&links()?, peer)
}

/// The way to `peer` through one device, with that device's address as source; `ENETUNREACH` if the device
/// does not lead there, `ENODEV` if there is no such device, `EADDRNOTAVAIL` if it has no address of the
/// peer's family.
///
/// A device leads to a peer if the peer's address is one of this network namespace, if the kernel's own
/// choice falls on the device, or if the main routing table has an entry for it.
pub fn route_source_via(device: &str, peer: SocketAddr) -> Result<Route, SystemError> {
    let failure =
        |errno: i32| SystemError::new(format!("find a route to {} through {device}", peer.ip()), errno);
    let links = links()?;
    let link = links.get(device).ok_or_else(|| failure(libc::ENODEV))?;
    let own = link.addresses.iter().find(|own| own.address.is_ipv4() == peer.is_ipv4());
    let Some(own) = own else {
        return Err(failure(libc::EADDRNOTAVAIL).advise("the device has no address of this family"));
    };
    let chosen = route(&links, peer);
    if let Ok(route) = &chosen
        && route.device.as_deref() == Some(device)
    {
        return chosen;
    }
    let is_local = peer.ip().is_loopback() || is_own(&links, peer.ip());
    let is_up = link.flags & libc::IFF_UP.cast_unsigned() != 0;
    let is_on_the_way = is_up && table::leads_to(device, peer.ip()) == Some(true);
    if !is_local && !is_on_the_way {
        return Err(failure(libc::ENETUNREACH).advise("the routing table has no entry for it on this device"));
    }
    // Loopback's own addresses are good for this machine only, and the other way round.
    if peer.ip().is_loopback() != own.address.is_loopback() {
        return Err(
            failure(libc::ENETUNREACH).advise("loopback addresses reach nothing but loopback addresses")
        );
    }
    let mut source = SocketAddr::new(own.address, 0);
    if let SocketAddr::V6(source) = &mut source {
        source.set_scope_id(own.scope_id);
    }
    Ok(Route { source, device: Some(device.to_owned()), is_local })
}

fn route(links: &BTreeMap<String, Link>, peer: SocketAddr) -> Result<Route, SystemError> {
    let failure = |error: io::Error| SystemError::new(format!("find a route to {}", peer.ip()), error);
    let mut target = peer;
    if peer.port() == 0 {
        // Some kernels refuse port 0; the number goes nowhere.
        const DISCARD: u16 = 9;
        target.set_port(DISCARD);
    }
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.cloexec(), Some(Protocol::UDP))
        .map_err(failure)?;
    socket.connect(&target.into()).map_err(failure)?;
    let source = socket.local_addr().map_err(failure)?.as_socket();
    let mut source = source.ok_or_else(|| failure(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)))?;
    source.set_port(0);
    let holder = links.iter().find(|(_, link)| has(link, source.ip()));
    let device = holder.map(|(name, _)| name.clone());
    Ok(Route { source, device, is_local: peer.ip().is_loopback() || is_own(links, peer.ip()) })
}

fn is_own(links: &BTreeMap<String, Link>, address: IpAddr) -> bool {
    links.values().any(|link| has(link, address))
}

fn has(link: &Link, address: IpAddr) -> bool {
    link.addresses.iter().any(|own| own.address == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_leads_to_loopback() {
        let route = route_source(address("127.0.0.1:0")).unwrap();
        assert_eq!(route.source, address("127.0.0.1:0"));
        assert_eq!(route.device.as_deref(), Some("lo"));
        assert!(route.is_local);
        assert_eq!(route_source_via("lo", address("127.0.0.1:1")).unwrap(), route);
    }

    #[test]
    fn loopback_leads_nowhere_else() {
        // A documentation address, which no machine has.
        let error = route_source_via("lo", address("198.51.100.1:1")).unwrap_err();
        assert_eq!(error.errno, libc::ENETUNREACH);
        assert!(error.to_string().contains("through lo"), "{error}");
    }

    #[test]
    fn every_device_that_is_up_leads_to_its_own_addresses() {
        let links = links().unwrap();
        for (name, link) in links.iter().filter(|(_, link)| link.flags & libc::IFF_UP.cast_unsigned() != 0) {
            for own in link.addresses.iter().filter(|own| own.scope_id == 0) {
                let route = route_source_via(name, SocketAddr::new(own.address, 1)).unwrap();
                assert!(route.is_local && route.device.as_deref() == Some(name), "{route:?}");
                assert!(has(link, route.source.ip()));
            }
        }
    }

    #[test]
    fn an_unknown_device_is_named_in_the_error() {
        let error =
            route_source_via("no-such-dev", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1)).unwrap_err();
        assert!(error.to_string().contains("no-such-dev"), "{error}");
        assert_eq!(error.errno, libc::ENODEV);
    }

    #[test]
    fn an_address_without_a_route_is_an_error_that_names_it() {
        // The kernel refuses it without SO_BROADCAST.
        let error = route_source(address("255.255.255.255:7")).unwrap_err();
        assert!(error.to_string().contains("255.255.255.255"), "{error}");
    }
}
