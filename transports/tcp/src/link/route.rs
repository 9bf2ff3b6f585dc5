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
