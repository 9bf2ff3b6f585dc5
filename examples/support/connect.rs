//! From a peer to a connected endpoint: exchange addresses, choose, connect.
//!
//! For the programs that talk to another process. Built on `peer` and on the selection of `uct-core`.

use uct_core::select::{PeerAddresses, Request, Selector};
use uct_core::{Capabilities, Ep, Iface, IfaceAddress, IfaceOptions, Worker};

use crate::peer::{Failure, LIMIT, Peer};

/// An interface, and an endpoint to the other process.
pub struct Connection {
    /// The interface.
    pub iface: Iface,
    /// The endpoint.
    pub ep: Ep,
}

/// Connects to the other process over the transport that is best for `request` and that both have. The process that
/// started the other one chooses.
///
/// # Errors
/// No transport will do, or the transport refuses.
pub fn connect(worker: &Worker, peer: &mut Peer, request: &Request) -> Result<Connection, Failure> {
    let selector = Selector::open(worker, &IfaceOptions::default());
    peer.send(&selector.addresses().pack()?)?;
    let theirs = PeerAddresses::unpack(&peer.receive(worker)?)?;

    // Both sides have to mean the same pair of interfaces.
    let (iface, address) = if peer.is_started_here() {
        let choice = selector.choose(request, Some(&theirs))?;
        let address = choice.peer.ok_or("the choice names no address of the peer")?;
        println!("using {}", choice.iface.resource());
        peer.send(&[choice.iface.address()?.pack()?, address.pack()?].concat())?;
        (choice.iface, address)
    } else {
        let message = peer.receive(worker)?;
        let (address, rest) = IfaceAddress::unpack(&message)?;
        let (own, _) = IfaceAddress::unpack(rest)?;
        let is_meant = |iface: &&Iface| iface.address().as_ref() == Ok(&own);
        let iface = selector.ifaces().iter().find(is_meant).ok_or("the peer chose an unknown interface")?;
        (iface.clone(), address)
    };

    // No failure handler is needed: `wait` checks the endpoint.
    let ep = if iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        iface.connect_with(&address, |_failure| ())?
    } else {
        let ep = iface.create_ep(|_failure| ())?;
        peer.send(&ep.address()?)?;
        ep.connect_to_ep(&address, &peer.receive(worker)?)?;
        ep
    };
    Ok(Connection { iface, ep })
}

impl Connection {
    /// Drives the worker until `done`.
    ///
    /// # Errors
    /// The endpoint failed, or `done` stayed false for [`LIMIT`].
    pub fn wait(&self, what: &str, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let worker = self.iface.worker();
        worker.progress_until(LIMIT, || done() || self.ep.failure().is_some());
        match self.ep.failure() {
            _ if done() => Ok(()),
            Some(failure) => Err(format!("{what}: the connection failed: {failure}").into()),
            None => Err(format!("{what}: not within {} s", LIMIT.as_secs()).into()),
        }
    }
}
