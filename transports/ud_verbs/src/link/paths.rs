//! Ways to peers: an address handle for each port that datagrams go to, shared by all connections to it.
//!
//! Built on `uct_ib`. The device may read a handle until a work request has ended: one that is not needed any
//! more goes when all has ended that was posted before. There are as many as peers' ports, not as connections.

use std::collections::HashMap;
use std::sync::Arc;

use ucs::log::Limited;
use uct_ib::verbs::{AddressVector, Ah, Context, Pd};
use uct_ib::{DeviceAddress, Gid, GidKind, PortAddress, PortPreferences};
use uct_plugin::{Error, Failure};

use crate::io::path::Path;
use crate::io::queue::Queue;
use crate::io::receives::Arrival;
use crate::proto::addr::{parse_request, port_of_lid};
use crate::proto::{Origin, Time};

/// All paths of an interface.
pub(crate) struct Paths {
    pub(crate) port: PortAddress,
    pd: Arc<Pd>,
    preferences: PortPreferences,
    handles: AddressHandles<Ah>,
}

/// Address handles, by what each was made of: so a port has one, whatever else is in its address.
struct AddressHandles<H> {
    of: HashMap<AddressVector, Arc<H>>,
    /// Handles that no new path gets.
    retired: Vec<Retired<H>>,
    /// Most handles there may be for an unauthenticated peer to get one more.
    most: usize,
    /// Unauthenticated peers get no new handle before.
    paused_until: Time,
    /// Lines about connection requests.
    ignored: Limited,
}

/// A handle that no new path gets.
struct Retired<H> {
    handle: Arc<H>,
    /// The last work request posted when no path had it any more.
    posted: Option<u32>,
}

/// When a handle cannot be made, which may have taken long, none is made for another unauthenticated peer in so many times that
/// time.
const PAUSE: u64 = 10;

impl Paths {
    /// No handles yet.
    pub(crate) fn new(pd: &Arc<Pd>, port: PortAddress, preferences: PortPreferences, most: u32) -> Paths {
        Paths { port, pd: Arc::clone(pd), preferences, handles: AddressHandles::new(most) }
    }

    /// The origin of a datagram, as reported by the device.
    #[inline]
    pub(crate) fn origin(&self, arrival: &Arrival) -> Origin {
        let source = arrival.source;
        let port = match self.port.gid.entry.kind {
            GidKind::InfiniBand => port_of_lid(source.lid),
            GidKind::RoceV1 | GidKind::RoceV2 => PortAddress::source_gid(arrival.routing_header()).0,
        };
        Origin { port, qp: source.qp }
    }

    /// Reads the port's tables again: its addresses may have moved. What cannot be read stays as it was. Answers whether its
    /// address is another one now.
    pub(crate) fn refresh(&mut self, context: &Context, number: u8) -> bool {
        if number != self.port.port.number {
            return false;
        }
        match PortAddress::new(context, number, self.preferences) {
            Ok(port) if port.device_address() != self.port.device_address() => {
                ucs::log::info!(
                    device = %port.port.device, port = number, gid = %port.gid.entry, reason = %port.gid.reason,
                    "the address of the port changed"
                );
                self.port = port;
                self.handles.retire_all();
                true
            }
            Ok(_) => false,
            Err(error) => {
                ucs::log::debug!(%error, "the port's address could not be read");
                false
            }
        }
    }

    /// Whether a peer's port can be reached, and takes datagrams as large as this side's; a local decision.
    pub(crate) fn check(&self, peer: &DeviceAddress) -> Result<(), String> {
        check(&self.port, peer)
    }

    /// The way to a queue pair behind a peer's port.
    pub(crate) fn find(&mut self, peer: &DeviceAddress, qp: u32) -> Result<Path, Failure> {
        let unreachable = |reason: String| Failure::new(Error::UNREACHABLE, reason);
        check(&self.port, peer).map_err(unreachable)?;
        let vector = self.port.vector_to(peer).map_err(|reason| unreachable(reason.to_string()))?;
        let ah = self.handles.find(vector, |vector| Ah::new(&self.pd, vector))?;
        Ok(Path { ah, qp })
    }

    /// The way back to an unauthenticated peer, from the address in its request, which arrived so. A handle may have to be made,
    /// for which the kernel may ask the network: that is what such a peer can cost.
    pub(crate) fn back(&mut self, now: Time, arrival: &Arrival, address: &[u8]) -> Option<Path> {
        let (device, qp) = parse_request(address)?;
        let header = arrival.source.is_routed.then(|| arrival.routing_header());
        let route = header.map(PortAddress::source_gid);
        let ah = self.handles.back(now, &self.port, (&device, route), |vector| Ah::new(&self.pd, vector))?;
        Some(Path { ah, qp })
    }

    /// Drops unused handles, if there are many, and those of addresses that the port had before.
    pub(crate) fn drop_unused(&mut self, queue: &Queue) {
        if self.handles.is_full() {
            self.handles.retire_unused();
        }
        self.handles.retired.retain_mut(|retired| {
            if Arc::strong_count(&retired.handle) > 1 {
                retired.posted = None;
                return true;
            }
            let posted = *retired.posted.get_or_insert(queue.last_posted());
            !queue.has_ended(posted)
        });
    }
}

/// Whether a peer's port can be reached from `port`, and takes datagrams as large.
fn check(port: &PortAddress, peer: &DeviceAddress) -> Result<(), String> {
    port.vector_to(peer).map_err(|reason| reason.to_string())?;
    if port.mtu != peer.mtu {
        return Err(format!(
            "the MTUs differ: {} bytes here, {} there; give both network devices the same MTU, or set path_mtu of \
             ud_verbs to the smaller",
            port.mtu.bytes(),
            peer.mtu.bytes()
        ));
    }
    Ok(())
}

impl<H> AddressHandles<H> {
    fn new(most: u32) -> AddressHandles<H> {
        AddressHandles {
            of: HashMap::new(),
            retired: Vec::new(),
            most: most as usize,
            paused_until: Time::default(),
            ignored: Limited::default(),
        }
    }

    /// The handle for a path.
    fn find<E>(
        &mut self,
        vector: AddressVector,
        make: impl FnOnce(&AddressVector) -> Result<Arc<H>, E>,
    ) -> Result<Arc<H>, E> {
        if let Some(handle) = self.of.get(&vector) {
            return Ok(Arc::clone(handle));
        }
        let handle = make(&vector)?;
        self.of.insert(vector, Arc::clone(&handle));
        Ok(handle)
    }

    /// The handle for the path from `port` back to an unauthenticated peer, which claims that its port is this one, and whose
    /// datagram came by this route.
    fn back<E: std::fmt::Display>(
        &mut self,
        now: Time,
        port: &PortAddress,
        (peer, route): (&DeviceAddress, Option<Gid>),
        make: impl FnOnce(&AddressVector) -> Result<Arc<H>, E>,
    ) -> Option<Arc<H>> {
        let checked = check(port, peer)
            .and_then(|()| port.vector_back(peer, route).map_err(|reason| reason.to_string()));
        let vector = match checked {
            Ok(vector) => vector,
            Err(reason) => {
                if let Some(left_out) = self.ignored.admit() {
                    ucs::log::debug!(reason, "a connection request was ignored{left_out}");
                }
                return None;
            }
        };
        if !self.of.contains_key(&vector) && (self.is_full() || now < self.paused_until) {
            return None;
        }
        let begin = ucs::clock::now();
        match self.find(vector, make) {
            Ok(handle) => Some(handle),
            Err(failure) => {
                if let Some(left_out) = self.ignored.admit() {
                    ucs::log::debug!(%failure, "a connection request was ignored{left_out}");
                }
                let took = ucs::clock::now().saturating_sub(begin);
                self.paused_until = now.plus(took.saturating_mul(PAUSE));
                None
            }
        }
    }

    /// Whether there are as many handles as unauthenticated peers may cause.
    fn is_full(&self) -> bool {
        self.of.len() + self.retired.len() >= self.most
    }

    /// Has no new path get any of the handles.
    fn retire_all(&mut self) {
        self.retired.extend(self.of.drain().map(|(_, handle)| Retired { handle, posted: None }));
    }

    /// Has no new path get a handle that no path has.
    fn retire_unused(&mut self) {
        let unused = self.of.extract_if(|_, handle| Arc::strong_count(handle) == 1);
        self.retired.extend(unused.map(|(_, handle)| Retired { handle, posted: None }));
    }
}

#[cfg(test)]
mod tests {
    use uct_ib::{GidChoice, GidEntry, LinkLayer, Mtu, Port};

    use super::*;

    fn gid(interface: u8) -> Gid {
        Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, interface])
    }

    fn infiniband(is_global: bool) -> PortAddress {
        let port = Port {
            device: "mlx5_0".to_owned(),
            is_software: false,
            is_software_roce: false,
            number: 1,
            is_active: true,
            state: "active",
            link_layer: LinkLayer::InfiniBand,
            active_mtu: Mtu::LARGEST,
            lid: 7,
            lid_mask_bits: 0,
            gid_table_length: 1,
            pkey_table_length: 1,
            max_message: 4096,
            width_code: 2,
            speed_code: 32,
        };
        let entry =
            GidEntry { index: 0, gid: gid(1), kind: GidKind::InfiniBand, netdev: None, is_assigned: true };
        let choice = GidChoice { entry, reason: "the first".to_owned(), rejected: Vec::new() };
        let preferences = PortPreferences { is_global, ..PortPreferences::default() };
        PortAddress::of(port, choice, 0xffff, preferences).expect("an MTU in range")
    }

    /// A port of these LID and GID, as one that `port` reaches.
    fn peer(port: &PortAddress, lid: u16, interface: u8) -> DeviceAddress {
        DeviceAddress { lid, gid: gid(interface), ..port.device_address() }
    }

    fn make(_vector: &AddressVector) -> Result<Arc<()>, &'static str> {
        Ok(Arc::new(()))
    }

    #[test]
    fn what_is_refused_without_a_look_at_the_network_delays_nobody() {
        let port = infiniband(false);
        let mut handles = AddressHandles::new(16);
        let now = Time::from_nanos(1000);
        for turn in 0..1000 {
            let small = DeviceAddress { mtu: Mtu::SMALLEST, ..peer(&port, 9, 9) };
            assert!(handles.back(now, &port, (&small, None), make).is_none());
            let elsewhere = DeviceAddress { pkey: 0x1234, ..peer(&port, 9, 9) };
            assert!(handles.back(now, &port, (&elsewhere, None), make).is_none());
            if turn < 16 {
                let honest = peer(&port, 100 + turn, 3);
                assert!(handles.back(now, &port, (&honest, None), make).is_some(), "port {turn}");
            }
        }
    }

    #[test]
    fn a_handle_that_cannot_be_made_delays_others_for_a_while() {
        let port = infiniband(false);
        let mut handles = AddressHandles::new(16);
        let now = Time::from_nanos(1000);
        let slow = |_: &AddressVector| -> Result<Arc<()>, &str> {
            std::thread::sleep(std::time::Duration::from_millis(2));
            Err("no answer")
        };
        let known = peer(&port, 8, 8);
        assert!(handles.back(now, &port, (&known, None), make).is_some());
        assert!(handles.back(now, &port, (&peer(&port, 9, 9), None), slow).is_none());
        let other = peer(&port, 10, 10);
        assert!(handles.back(now, &port, (&known, None), make).is_some(), "its handle is there");
        assert!(handles.back(now.plus(19_000_000), &port, (&other, None), make).is_none());
        assert!(handles.back(Time::NEVER, &port, (&other, None), make).is_some());
    }

    #[test]
    fn a_port_on_infiniband_takes_the_room_of_one() {
        for is_global in [false, true] {
            let port = infiniband(is_global);
            let mut handles = AddressHandles::new(1000);
            let now = Time::default();
            for interface in 2..200 {
                for pkey in [0xffff, 0x7fff] {
                    let hostile = DeviceAddress { pkey, ..peer(&port, 9, interface) };
                    // As it is without a global route, and with one that names the port's own GID.
                    for route in [None, Some(gid(9))] {
                        let _ = handles.back(now, &port, (&hostile, route), make);
                    }
                }
            }
            // With a global route and without one.
            assert_eq!(handles.of.len(), if is_global { 2 } else { 1 });
            handles.most = handles.of.len() + 1;
            assert!(handles.back(now, &port, (&peer(&port, 10, 10), None), make).is_some());
        }
    }
}
