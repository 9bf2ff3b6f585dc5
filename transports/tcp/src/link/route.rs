//! Routes: whether and how a device leads to a peer, found without traffic.

use std::net::{IpAddr, SocketAddr};

use ucs::sys::net::{self, route_source_via};
use ucs::sys::{host::host_id, namespace::Namespace};
use uct_plugin::Scope;

use crate::io::device::{Family, addresses, socket_address, with_scope};
use crate::proto::addr::{DeviceAddress, IfaceAddress};

/// Where a device is.
pub(crate) fn address(device: &net::Device) -> DeviceAddress {
    DeviceAddress { is_loopback: device.is_loopback(), host: host_id().0, namespace: Namespace::Net.own() }
}

/// How a peer is reached.
pub(crate) struct Path {
    /// The socket to connect to.
    pub(crate) peer: SocketAddr,
    /// The address to connect from, where that matters.
    pub(crate) source: Option<SocketAddr>,
}

/// The route to a peer, chosen without traffic; the error is a human-readable reason.
pub(crate) fn path(
    (device, here): (&net::Device, &DeviceAddress),
    families: &[Family],
    there: &DeviceAddress,
    peer: &IfaceAddress,
    scope: Scope,
) -> Result<Path, String> {
    let is_same_machine = here.host == there.host;
    let is_local = is_same_machine && here.namespace == there.namespace;
    if there.is_loopback && !is_local {
        return Err(if is_same_machine {
            "the peer listens on the loopback device of another network namespace".to_owned()
        } else {
            "the peer listens on the loopback device of another machine".to_owned()
        });
    }
    if here.is_loopback && !is_local {
        return Err(format!(
            "{} reaches this machine and network namespace only, and the peer is on another",
            device.name
        ));
    }
    let mut refusal = format!(
        "the peer listens on {}, and af_prio or the addresses of {} permit another family only",
        peer.sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        device.name
    );
    let own = addresses(device, families);
    for family in families {
        let is_v4 = *family == Family::V4;
        let Some(own) = own.iter().find(|own| own.address.is_ipv4() == is_v4) else { continue };
        let Some(&socket) = peer.sockets.iter().find(|socket| socket.is_ipv4() == is_v4) else { continue };
        let socket = if is_link_local(socket.ip()) { with_scope(socket, device.index) } else { socket };
        match leads_to(device, own, socket, is_local, scope) {
            Ok(()) => {
                let source = (!is_local).then(|| socket_address(own, 0));
                return Ok(Path { peer: socket, source });
            }
            Err(reason) => refusal = reason,
        }
    }
    Err(refusal)
}

fn leads_to(
    device: &net::Device,
    own: &net::Address,
    peer: SocketAddr,
    is_local: bool,
    scope: Scope,
) -> Result<(), String> {
    if scope == Scope::Device && !own.network_contains(peer.ip()) {
        return Err(format!("{} is not in the network of {}", peer.ip(), device.name));
    }
    if is_local {
        return Ok(());
    }
    route_source_via(&device.name, peer).map(drop).map_err(|error| error.to_string())
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_family_that_both_sides_have_is_used() {
        let devices = net::devices().unwrap();
        let device = devices.iter().find(|device| device.is_loopback()).expect("the loopback device");
        let here = address(device);
        let sockets: Vec<SocketAddr> = vec!["[::1]:7".parse().unwrap(), "127.0.0.1:7".parse().unwrap()];
        let peer = |sockets: &[SocketAddr]| IfaceAddress { id: 1, key: 2, sockets: sockets.to_vec() };
        let chosen = |families: &[Family], sockets: &[SocketAddr]| {
            path((device, &here), families, &here, &peer(sockets), Scope::Network).map(|path| path.peer)
        };
        // Not every machine has IPv6 on loopback.
        for family in [Family::V4, Family::V6] {
            if addresses(device, &[family]).is_empty() {
                continue;
            }
            let of_family = |socket: &&SocketAddr| socket.is_ipv4() == (family == Family::V4);
            let (own, other): (Vec<_>, Vec<_>) = sockets.iter().partition(of_family);
            let other_family = if family == Family::V4 { Family::V6 } else { Family::V4 };
            assert_eq!(chosen(&[family], &sockets), Ok(own[0]));
            assert_eq!(chosen(&[family, other_family], &sockets), Ok(own[0]));
            let refusal = chosen(&[family], &other).unwrap_err();
            assert!(refusal.contains(&other[0].to_string()) && refusal.contains("af_prio"), "{refusal}");
        }
    }

    #[test]
    fn loopback_leads_to_its_own_machine_and_network_namespace_only() {
        let devices = net::devices().unwrap();
        let device = devices.iter().find(|device| device.is_loopback()).expect("the loopback device");
        let families = [Family::V4];
        let here = address(device);
        let peer = IfaceAddress { id: 1, key: 2, sockets: vec!["127.0.0.1:7".parse().unwrap()] };
        let found = |there: DeviceAddress, scope| path((device, &here), &families, &there, &peer, scope);
        let local = found(here, Scope::Device).expect("a way");
        assert_eq!((local.peer, local.source), (peer.sockets[0], None));

        let elsewhere = DeviceAddress { namespace: here.namespace ^ 1, ..here };
        let far = DeviceAddress { host: here.host.map(|byte| byte ^ 1), ..here };
        for (there, words) in [
            (elsewhere, "loopback device of another network namespace"),
            (far, "loopback device of another machine"),
            (
                DeviceAddress { is_loopback: false, ..elsewhere },
                "reaches this machine and network namespace only",
            ),
            (DeviceAddress { is_loopback: false, ..far }, "reaches this machine and network namespace only"),
        ] {
            let refusal = found(there, Scope::Network).err().expect("no way");
            assert!(refusal.contains(words), "{refusal}");
        }

        let peer = IfaceAddress { sockets: vec!["10.9.8.7:7".parse().unwrap()], ..peer };
        let found = |scope| path((device, &here), &families, &here, &peer, scope);
        assert_eq!(
            found(Scope::Device).err(),
            Some(format!("10.9.8.7 is not in the network of {}", device.name))
        );
        assert!(found(Scope::Network).is_ok(), "all that this machine listens on");
    }
}
