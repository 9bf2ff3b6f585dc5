//! What interfaces are called in the handshake: one that carries messages inside TLS only has another name. So a side that would send in
//! clear does not find it, and one that must not does not take an interface that would. And which ones a peer is told of: addresses hold
//! secrets, so it gets those that it may use.

use ucs::Error as Status;
use uct_host::select::PeerAddresses;
use uct_host::{Iface, IfaceAddress};

use super::net::NetHandle;
use super::standing::Standing;

/// What the name of such a transport ends with.
const INSIDE_TLS: &str = "+tls";

/// The addresses of this side that a peer may use.
pub(crate) fn own(net: &NetHandle, peer: &Standing<'_>) -> PeerAddresses {
    let mut addresses = net.selector.clone().without(|iface| peer.refuses(iface)).addresses();
    for iface in &mut addresses.ifaces {
        if is_wrapped(net, &iface.address.transport) {
            iface.address.transport += INSIDE_TLS;
        }
    }
    addresses
}

/// The address of an interface.
pub(crate) fn address(net: &NetHandle, iface: &Iface) -> Result<IfaceAddress, Status> {
    iface.address().map(|address| named(net, iface, address))
}

/// The address of a peer's interface for this one, as it was announced.
pub(crate) fn named(net: &NetHandle, iface: &Iface, mut address: IfaceAddress) -> IfaceAddress {
    if net.options.wraps(iface) {
        address.transport += INSIDE_TLS;
    }
    address
}

/// A peer's addresses, with the names that transports have here. Those that this side must not use are left out.
pub(crate) fn understood(net: &NetHandle, mut addresses: PeerAddresses) -> PeerAddresses {
    addresses.ifaces.retain_mut(|iface| understand(net, &mut iface.address));
    addresses
}

/// Does so with one address; false if it must not be used.
pub(crate) fn understand(net: &NetHandle, address: &mut IfaceAddress) -> bool {
    if is_wrapped(net, &address.transport) {
        return false;
    }
    let name = address.transport.strip_suffix(INSIDE_TLS).filter(|name| is_wrapped(net, name));
    if let Some(name) = name {
        address.transport = name.to_owned();
    }
    true
}

/// Whether a transport of this side is used inside TLS only.
fn is_wrapped(net: &NetHandle, transport: &str) -> bool {
    net.selector
        .ifaces()
        .iter()
        .any(|iface| net.options.wraps(iface) && iface.resource().transport == transport)
}
