//! A network within one thread: devices, packets under way, a virtual clock, faults from a seed.
//!
//! For tests, and for whoever wants every run to be the same. Packets carry their CRC, so that damage is found as on a wire.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use super::faults::{Faults, Rates, damage};
use super::icrc::{Route, append, check};
use crate::engine::wire::PORT;
use crate::engine::{Device, Incoming, Nanos};

/// How long a packet takes.
const DELAY: Nanos = 1_000;
/// How much longer one takes that is late, at most.
const LATE: Nanos = 20_000;
/// Packets of a device before others have their turn.
const BUDGET: usize = 64;

/// A packet under way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Nanos,
    /// Those that arrive at the same time arrive in the order in which they left.
    order: u64,
    source: IpAddr,
    destination: IpAddr,
    bytes: Vec<u8>,
}

/// Devices on one network.
pub struct Network {
    devices: Vec<Device>,
    flights: BinaryHeap<Reverse<Flight>>,
    faults: Faults,
    now: Nanos,
    order: u64,
    late: fastrand::Rng,
    /// Packets that left.
    pub sent: u64,
    /// Whether packets that leave are lost, all of them.
    pub is_cut: bool,
}

impl Network {
    /// A network of these devices.
    pub fn new(devices: Vec<Device>, rates: Rates, seed: u64) -> Network {
        Network {
            devices,
            flights: BinaryHeap::new(),
            faults: Faults::new(rates, seed),
            now: 0,
            order: 0,
            late: fastrand::Rng::with_seed(!seed),
            sent: 0,
            is_cut: false,
        }
    }

    /// One of the devices.
    pub fn device(&mut self, index: usize) -> &mut Device {
        &mut self.devices[index]
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Goes on to what happens next, until `until` at most. Whether something happened.
    pub fn step(&mut self, until: Nanos) -> bool {
        self.send();
        let arrival = self.flights.peek().map(|flight| flight.0.arrival);
        let deadline = self.devices.iter().filter_map(Device::next_deadline).min();
        let Some(next) = arrival.into_iter().chain(deadline).min().filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse(flight)) = self.flights.pop() {
            if flight.arrival > self.now {
                self.flights.push(Reverse(flight));
                break;
            }
            self.deliver(&flight);
        }
        self.send();
        true
    }

    /// Goes on until `done`, for so long at most. Whether it is done.
    pub fn run_until(&mut self, limit: Nanos, mut done: impl FnMut(&mut Network) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }

    fn send(&mut self) {
        for index in 0..self.devices.len() {
            loop {
                let has_more = self.devices[index].run(self.now, BUDGET);
                while let Some(packet) = self.devices[index].next_outgoing() {
                    self.sent += 1;
                    let mut bytes = packet.bytes;
                    append(&route(packet.source, packet.destination), &mut bytes);
                    self.launch(packet.source, packet.destination, bytes);
                }
                if !has_more {
                    break;
                }
            }
        }
    }

    fn launch(&mut self, source: IpAddr, destination: IpAddr, bytes: Vec<u8>) {
        if self.is_cut {
            return;
        }
        for copy in self.faults.fate().copies {
            let mut bytes = bytes.clone();
            if let Some(bit) = copy.damage {
                damage(&mut bytes, bit);
            }
            let delay = DELAY + copy.delay + if copy.is_late { self.late.u64(1..LATE) } else { 0 };
            self.order += 1;
            let flight = Flight { arrival: self.now + delay, order: self.order, source, destination, bytes };
            self.flights.push(Reverse(flight));
        }
    }

    fn deliver(&mut self, flight: &Flight) {
        let Some(bytes) = check(&route(flight.source, flight.destination), &flight.bytes) else { return };
        let is_there = |device: &&mut Device| device.config().addresses.contains(&flight.destination);
        if let Some(device) = self.devices.iter_mut().find(is_there) {
            let (source, destination) = (flight.source, flight.destination);
            device.receive(Incoming { source, destination, bytes }, self.now);
        }
    }
}

fn route(source: IpAddr, destination: IpAddr) -> Route {
    let port = |address| SocketAddr::new(address, PORT);
    Route { source: port(source), destination: port(destination), identification: 0 }
}
