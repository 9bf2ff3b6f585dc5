//! Which local address and device lead to a peer.
//!
//! For: reachability, decided locally and without traffic. Stands on the kernel's routing table, asked by connecting a UDP
//! socket, which sends nothing. Transports stand on it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::devices;
use crate::sys::SystemError;

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address that packets to the peer carry.
    pub source: SocketAddr,
    /// The device that has this address. A peer on this very machine is reached through loopback all the same; see
    /// `is_local`.
    pub device: Option<String>,
    /// Whether the peer's address is one of this network namespace.
    pub is_local: bool,
}

/// The way the kernel would take to `peer`; the port may be 0. Sends nothing and does not block.
///
/// An answer says that there is a route, not that the peer lives. The usual failures are `ENETUNREACH` (no route) and
/// `EAFNOSUPPORT` (no IPv6).
pub fn route_source(peer: SocketAddr) -> Result<Route, SystemError> {
    route(None, peer)
}

/// The way to `peer` through one device; a failure if that device does not lead there.
///
/// Binding to a device needs `CAP_NET_RAW` before Linux 5.7 (`EPERM`).
pub fn route_source_via(device: &str, peer: SocketAddr) -> Result<Route, SystemError> {
    route(Some(device), peer)
}

fn route(device: Option<&str>, peer: SocketAddr) -> Result<Route, SystemError> {
    let failure = |error: io::Error| {
        let through = device.map(|name| format!(" through {name}")).unwrap_or_default();
        SystemError::new(format!("find a route to {}{through}", peer.ip()), error)
    };
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.cloexec(), Some(Protocol::UDP))
        .map_err(failure)?;
    if let Some(name) = device {
        socket.bind_device(Some(name.as_bytes())).map_err(failure)?;
    }
    // Port 0 is refused by some kernels; the number goes nowhere.
    let target = SocketAddr::new(peer.ip(), if peer.port() == 0 { 9 } else { peer.port() });
    socket.connect(&with_scope(target, peer)).map_err(failure)?;
    let source = socket.local_addr().map_err(failure)?;
    let mut source = source.as_socket().unwrap_or(unspecified(peer));
    source.set_port(0);
    let devices = devices()?;
    let holder = devices.iter().find(|device| device.has_address(source.ip()));
    let is_local = peer.ip().is_loopback() || devices.iter().any(|device| device.has_address(peer.ip()));
    let device = device.map(str::to_owned).or_else(|| holder.map(|device| device.name.clone()));
    Ok(Route { source, device, is_local })
}

/// `target` with the scope of `peer`, without which a link-local address has no route.
fn with_scope(target: SocketAddr, peer: SocketAddr) -> SockAddr {
    match (target, peer) {
        (SocketAddr::V6(mut target), SocketAddr::V6(peer)) => {
            target.set_scope_id(peer.scope_id());
            target.into()
        }
        _ => target.into(),
    }
}

fn unspecified(peer: SocketAddr) -> SocketAddr {
    let address: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_leads_to_loopback() {
        let route = route_source("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(route.source.ip(), Ipv4Addr::LOCALHOST);
        assert_eq!(route.device.as_deref(), Some("lo"));
        assert!(route.is_local);
        assert_eq!(
            route_source_via("lo", "127.0.0.1:1".parse().unwrap()).unwrap().device.as_deref(),
            Some("lo")
        );
    }

    #[test]
    fn an_unknown_device_is_named_in_the_error() {
        let error = route_source_via("no-such-dev", "127.0.0.1:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("no-such-dev"), "{error}");
        assert_eq!(error.errno, libc::ENODEV);
    }

    #[test]
    fn an_address_without_a_route_is_an_error_that_names_it() {
        // 240.0.0.0/4 is reserved, and the kernel refuses 255.255.255.255 without SO_BROADCAST.
        let error = route_source("255.255.255.255:7".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("255.255.255.255"), "{error}");
    }
}
