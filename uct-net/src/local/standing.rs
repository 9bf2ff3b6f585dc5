//! What this side opens at a peer's word. Before the peer has proved who it is: nothing on a network, and nothing within the machine for a
//! peer that may be on another one. The socket of the handshake may become a lane in any case.

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

use ucs::sys::net::route_source;
use ucs::sys::process::credentials;
use uct_host::select::{PeerAddresses, Selector};
use uct_host::{DeviceKind, Iface, IfaceAddress};

use super::conn::Conn;
use super::handshake_link::Origin;
use super::net::NetHandle;
use super::socket::FrameSocket;
use crate::error::Result;

/// The remedy for both.
const PROOFS: &str =
    "set shared_key on both sides, or TLS with certificates of both, or connect by a Unix path of one user";

/// What is known of a peer.
pub(crate) struct Standing<'a> {
    net: &'a NetHandle,
    socket: &'a FrameSocket,
    /// By a shared key, by TLS, or by the system: a process of this user or of root.
    is_proved: bool,
    /// It is a process of this machine.
    is_here: bool,
}

impl<'a> Standing<'a> {
    /// Of the peer of a handshake, in which both sides have proved that they know the shared key, if there is one.
    pub(crate) fn of(net: &'a NetHandle, socket: &'a FrameSocket) -> Standing<'a> {
        let (is_here, is_known) = match socket.origin() {
            Origin::Address(address) => (is_of_this_machine(address), false),
            Origin::Process(peer) => {
                let own = credentials().effective_uid;
                (true, peer.is_some_and(|peer| peer.is_of_user(own) || peer.is_of_user(0)))
            }
        };
        let is_proved = is_known || net.options.shared_key.is_some() || socket.is_certified();
        Standing { net, socket, is_proved, is_here }
    }

    /// Why an interface is not used for a lane to the peer.
    pub(crate) fn refuses(&self, iface: &Iface) -> Option<String> {
        if is_for_socket(self.net, self.socket, iface) { None } else { self.refuses_beside(iface) }
    }

    /// Why an interface opens no lane beside the socket of the handshake.
    pub(crate) fn refuses_beside(&self, iface: &Iface) -> Option<String> {
        let reason = match iface.resource().kind {
            _ if self.is_proved => return None,
            // One that takes over sockets also makes them.
            DeviceKind::Accelerator | DeviceKind::Network if iface.adopts() => {
                "the peer has not proved who it is, and this side makes no network connection at its word"
            }
            DeviceKind::Myself | DeviceKind::SharedMemory if !self.is_here => {
                "the peer's address is not of this machine, and it has not proved who it is; at its word this side uses no memory of this \
                 machine, even if both share it"
            }
            _ => return None,
        };
        Some(format!("{reason}: {PROOFS}"))
    }

    /// The interfaces of this side that may be used, with the reason for each other one that could be. Of memory that is not known: neither
    /// side names its own to the other one.
    pub(crate) fn permitted(&self, peer: &PeerAddresses) -> Selector {
        let leads = |iface: &Iface, theirs: &IfaceAddress| {
            theirs.transport == iface.resource().transport && iface.is_reachable(theirs).is_ok()
        };
        self.net.selector.clone().without(|iface| {
            let reason = self.refuses(iface)?;
            let may_lead = iface.resource().kind == DeviceKind::SharedMemory
                || peer.ifaces.iter().any(|theirs| leads(iface, &theirs.address));
            may_lead.then_some(reason)
        })
    }
}

/// Adds a connection of a caller, if there may be one more of its source.
pub(crate) fn add_accepted(net: &NetHandle, socket: &FrameSocket) -> Result<Rc<Conn>> {
    let is_short = socket.is_among_last(net.options.reserved_descriptors);
    net.add_accepted(socket.peer(), socket.origin().source(), is_short)
}

/// Whether lanes of an interface use the socket of the handshake, or the endpoint in its place.
pub(crate) fn is_for_socket(net: &NetHandle, socket: &FrameSocket, iface: &Iface) -> bool {
    // What must be inside TLS is never opened in another way, even if it then cannot be opened at all.
    net.options.wraps(iface) || socket.suits(iface)
}

/// Whether an address is one of this network namespace.
fn is_of_this_machine(mut address: SocketAddr) -> bool {
    address.set_port(0);
    address.set_ip(address.ip().to_canonical());
    // The list of addresses costs more, and is needed only where the system binds foreign ones (ip_nonlocal_bind).
    address.ip().is_loopback()
        || UdpSocket::bind(address).is_ok() && route_source(address).is_ok_and(|route| route.is_local)
}

#[cfg(test)]
mod tests {
    use super::is_of_this_machine;

    #[test]
    fn loopback_is_of_this_machine_and_an_address_that_no_machine_has_is_not() {
        for here in ["127.0.0.1:7000", "127.1.2.3:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000"] {
            assert!(is_of_this_machine(here.parse().unwrap()), "{here}");
        }
        for elsewhere in ["198.51.100.1:7000", "[2001:db8::1]:7000", "[::ffff:198.51.100.1]:7000"] {
            assert!(!is_of_this_machine(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }
}
