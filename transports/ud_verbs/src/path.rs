//! Ways to peers: an address handle for each port that datagrams go to, shared by all connections to it.
//!
//! For: `core`. Stands on `uct_ib`. The device may look at a handle until a work request has ended: one that is not needed any
//! more goes when all has ended that was posted before. There are as many as peers' ports, not as connections.

use std::collections::HashMap;
use std::sync::Arc;

use uct_ib::verbs::{Ah, Context, Pd};
use uct_ib::{DEVICE_ADDRESS_LENGTH, DeviceAddress, GidKind, PortAddress, PortPreferences};
use uct_plugin::{Error, Failure};

use crate::addr::{parse_request, port_of_lid};
use crate::pool::Arrival;
use crate::protocol::{Origin, Time};
use crate::queue::Queue;

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
    /// Handles that no new path gets.
    former: Vec<Former>,
    /// Most handles there may be for an unauthenticated peer to get one more.
    most: usize,
    /// Unauthenticated peers get no new handle before.
    paused_until: Time,
}

/// A handle that no new path gets.
struct Former {
    ah: Arc<Ah>,
    /// The last work request posted when no path had it any more.
    posted: Option<u32>,
}

/// When the way to a peer cannot be found, which may have taken long, no other unauthenticated peer's is looked for in so many
/// times that time.
const PAUSE: u64 = 10;

impl Paths {
    /// No handles yet.
    pub(crate) fn new(pd: &Arc<Pd>, port: PortAddress, preferences: PortPreferences, most: u32) -> Paths {
        Paths {
            port,
            pd: Arc::clone(pd),
            preferences,
            handles: HashMap::new(),
            former: Vec::new(),
            most: most as usize,
            paused_until: Time::default(),
        }
    }

    /// Where a datagram comes from, as the device says.
    #[inline(always)]
    pub(crate) fn origin(&self, arrival: &Arrival) -> Origin {
        let source = arrival.source();
        let port = match self.port.gid.entry.kind {
            GidKind::InfiniBand => port_of_lid(source.lid),
            GidKind::RoceV1 | GidKind::RoceV2 => PortAddress::source_gid(arrival.routing_header()).0,
        };
        Origin { port, qp: source.qp }
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
                self.former.extend(self.handles.drain().map(|(_, ah)| Former { ah, posted: None }));
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

    /// The way back to an unauthenticated peer, from the address in its request. A handle may have to be made, for which the
    /// kernel may ask the network: that is what such a peer can cost.
    pub(crate) fn back(&mut self, now: Time, address: &[u8]) -> Option<Path> {
        let (device, qp) = parse_request(address)?;
        let is_known = self.handles.contains_key(&device.pack());
        if !is_known && (self.is_full() || now < self.paused_until) {
            return None;
        }
        let begin = ucs::clock::now();
        match self.find(&device, qp) {
            Ok(path) => Some(path),
            Err(failure) => {
                tracing::debug!(%failure, "a connection request was left unanswered");
                let took = ucs::clock::now().saturating_sub(begin);
                self.paused_until = now.plus(took.saturating_mul(PAUSE));
                None
            }
        }
    }

    /// Whether there are as many handles as unauthenticated peers may cause.
    fn is_full(&self) -> bool {
        self.handles.len() + self.former.len() >= self.most
    }

    /// Lets handles go that nobody needs, if there are many, and those of addresses that the port had before.
    pub(crate) fn tidy(&mut self, queue: &Queue) {
        if self.is_full() {
            let unused = self.handles.extract_if(|_, ah| Arc::strong_count(ah) == 1);
            self.former.extend(unused.map(|(_, ah)| Former { ah, posted: None }));
        }
        self.former.retain_mut(|former| {
            if Arc::strong_count(&former.ah) > 1 {
                former.posted = None;
                return true;
            }
            let posted = *former.posted.get_or_insert(queue.last_posted());
            !queue.has_ended(posted)
        });
    }
}
