//! Ways to peers: an address handle for each port that datagrams go to, shared by all connections to it.
//!
//! For: `core`. Stands on `uct_ib`. Handles are kept as long as the queue pair: the device may look at one until a work
//! request has ended, and there are as many as peers' ports, not as connections.

use std::collections::HashMap;
use std::sync::Arc;

use uct_ib::verbs::{Ah, Context, Pd};
use uct_ib::{DEVICE_ADDRESS_LENGTH, DeviceAddress, PortAddress, PortPreferences};
use uct_plugin::{Error, Failure};

use crate::addr::parse_request;

/// The way to a peer's queue pair.
pub(crate) struct Path {
    pub(crate) ah: Arc<Ah>,
    pub(crate) qp: u32,
}

/// All address handles of an interface.
pub(crate) struct Paths {
    pub(crate) port: PortAddress,
    pd: Arc<Pd>,
    preferences: PortPreferences,
    handles: HashMap<[u8; DEVICE_ADDRESS_LENGTH], Arc<Ah>>,
    /// Handles of addresses that the port had before.
    former: Vec<Arc<Ah>>,
}

impl Paths {
    /// No handles yet.
    pub(crate) fn new(pd: &Arc<Pd>, port: PortAddress, preferences: PortPreferences) -> Paths {
        Paths { port, pd: Arc::clone(pd), preferences, handles: HashMap::new(), former: Vec::new() }
    }

    /// Reads the port's tables again: its addresses may have moved. What cannot be read stays as it was.
    pub(crate) fn refresh(&mut self, context: &Context, number: u8) {
        if number != self.port.port.number {
            return;
        }
        match PortAddress::new(context, number, self.preferences) {
            Ok(port) if port.device_address() != self.port.device_address() => {
                tracing::info!(
                    device = %port.port.device, port = number, gid = %port.gid.entry, reason = %port.gid.reason,
                    "the address of the port changed"
                );
                self.port = port;
                self.former.extend(self.handles.drain().map(|(_, ah)| ah));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the port's address could not be read"),
        }
    }

    /// Whether a peer's port can be reached, and takes datagrams as large as this side's; a local decision.
    pub(crate) fn check(&self, peer: &DeviceAddress) -> Result<(), String> {
        self.port.vector_to(peer).map_err(|reason| reason.to_string())?;
        if self.port.mtu != peer.mtu {
            return Err(format!(
                "the MTUs differ: {} bytes here, {} there; give both network devices the same MTU, or set path_mtu of \
                 ud_verbs to the smaller",
                self.port.mtu.bytes(),
                peer.mtu.bytes()
            ));
        }
        Ok(())
    }

    /// The way to a queue pair behind a peer's port.
    pub(crate) fn find(&mut self, peer: &DeviceAddress, qp: u32) -> Result<Path, Failure> {
        self.check(peer).map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let name = peer.pack();
        if let Some(ah) = self.handles.get(&name) {
            return Ok(Path { ah: Arc::clone(ah), qp });
        }
        let vector = self.port.vector_to(peer);
        let vector = vector.map_err(|reason| Failure::new(Error::UNREACHABLE, reason.to_string()))?;
        let ah = Ah::new(&self.pd, &vector)?;
        self.handles.insert(name, Arc::clone(&ah));
        Ok(Path { ah, qp })
    }

    /// The way back to whoever asks for a connection, from the address in the request, which is untrusted.
    pub(crate) fn back(&mut self, address: &[u8]) -> Option<Path> {
        let (device, qp) = parse_request(address)?;
        self.find(&device, qp)
            .inspect_err(|failure| tracing::debug!(%failure, "a connection request was left unanswered"))
            .ok()
    }
}
