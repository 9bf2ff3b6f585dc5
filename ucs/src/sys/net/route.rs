//! Which local address and device lead to a peer.
//!
//! For reachability, decided locally and without traffic. Built on `net::snapshot`, which has the kernel's routing table. Transports use it.

use std::net::{IpAddr, SocketAddr};

use super::snapshot::{self, Snapshot};
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
    route(&*snapshot::current()?, peer)
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
    let snapshot = &*snapshot::current()?;
    let link = snapshot.links.get(device).ok_or_else(|| failure(libc::ENODEV))?;
    let own = link.addresses.iter().find(|own| own.address.is_ipv4() == peer.is_ipv4());
    let Some(own) = own else {
        return Err(failure(libc::EADDRNOTAVAIL).advise("the device has no address of this family"));
    };
    let chosen = route(snapshot, peer);
    if let Ok(route) = &chosen
        && route.device.as_deref() == Some(device)
    {
        return chosen;
    }
    let is_local = peer.ip().is_loopback() || is_own(snapshot, peer.ip());
    let is_up = link.flags & libc::IFF_UP.cast_unsigned() != 0;
    let is_on_the_way = is_up && snapshot.leads_to(device, peer.ip()) == Some(true);
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

fn route(snapshot: &Snapshot, peer: SocketAddr) -> Result<Route, SystemError> {
    let source = snapshot.source_to(peer)?;
    let device = snapshot.holder(source.ip()).map(str::to_owned);
    Ok(Route { source, device, is_local: peer.ip().is_loopback() || is_own(snapshot, peer.ip()) })
}

fn is_own(snapshot: &Snapshot, address: IpAddr) -> bool {
    snapshot.holder(address).is_some()
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
        let snapshot = snapshot::current().unwrap();
        for (name, link) in
            snapshot.links.iter().filter(|(_, link)| link.flags & libc::IFF_UP.cast_unsigned() != 0)
        {
            for own in link.addresses.iter().filter(|own| own.scope_id == 0) {
                let route = route_source_via(name, SocketAddr::new(own.address, 1)).unwrap();
                assert!(route.is_local && route.device.as_deref() == Some(name), "{route:?}");
                assert!(link.addresses.iter().any(|own| own.address == route.source.ip()));
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
