//! Measured times of operations: what `uct_info --calibrate` stores, and what selection finds in it.
//!
//! Built on `file`, which reads and writes the file; used by selection.

mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use super::request::{Operation, RemoteMemory};
use crate::resource::Resource;

pub use file::CalibrationError;

/// Most measurements with peers. They take a third of the longest file that is read.
const MAX_PEERS: usize = 256;

/// Bytes of an operation, and its time in nanoseconds.
pub type Point = (u64, f64);
/// The times of an interface: for each operation by ascending size.
pub type Times = BTreeMap<Operation, Vec<Point>>;

/// Times of operations that were measured on this machine since it was booted: interfaces with themselves, and with peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// By name: `posix/memory`.
    ifaces: BTreeMap<String, Times>,
    /// In the order of their measurements.
    peers: Vec<PeerTimes>,
}

/// A peer that an interface was measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredPeer {
    /// As the user of this side named it: a host.
    pub name: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// The times of an interface with a device of a peer.
#[derive(Clone, Debug, PartialEq)]
struct PeerTimes {
    iface: String,
    /// Its device address. A peer with the same name and another address is another peer.
    device: Vec<u8>,
    peer: MeasuredPeer,
    times: Times,
    /// Of puts and gets to memory that the transport did not allocate, if that is another way.
    registered: Times,
}

impl Calibration {
    /// Sets the times of an interface in place of those that there are. Operations without a point are left out.
    pub fn set(&mut self, resource: &Resource, mut times: Times) {
        times.retain(|_, points| !points.is_empty());
        self.ifaces.insert(resource.to_string(), times);
    }

    /// As [`Calibration::set`], for the times with a device of a peer; `registered` are those of puts and gets to memory that the transport
    /// did not allocate, if they were measured apart. The device address identifies it. The name has 1 to 255 bytes and no control
    /// character; a file with another one is not read. Of more than 256 such measurements the oldest ones are dropped.
    pub fn set_peer(
        &mut self,
        resource: &Resource,
        device: &[u8],
        peer: MeasuredPeer,
        [mut times, mut registered]: [Times; 2],
    ) {
        times.retain(|_, points| !points.is_empty());
        registered.retain(|_, points| !points.is_empty());
        let iface = resource.to_string();
        self.peers.retain(|it| (&it.iface, &*it.device) != (&iface, device));
        self.peers.push(PeerTimes { iface, device: device.to_owned(), peer, times, registered });
        self.peers.drain(..self.peers.len().saturating_sub(MAX_PEERS));
    }

    /// Whether an interface was measured with itself.
    pub fn contains(&self, resource: &Resource) -> bool {
        self.ifaces.contains_key(&resource.to_string())
    }

    /// The seconds that an operation of this size takes on an interface: between two sizes that were measured in proportion, above them as
    /// between the last two. `None` if it was not measured.
    pub fn seconds(&self, resource: &Resource, operation: Operation, size: usize) -> Option<f64> {
        if self.ifaces.is_empty() {
            return None;
        }
        let points = self.ifaces.get(&resource.to_string())?.get(&operation)?;
        nanoseconds(points, size as u64).map(|time| time * 1e-9)
    }

    /// As [`Calibration::seconds`], with a device of a peer, and which measurement that was.
    pub fn seconds_with(
        &self,
        resource: &Resource,
        device: &[u8],
        operation: Operation,
        size: usize,
        memory: RemoteMemory,
    ) -> Option<(f64, &MeasuredPeer)> {
        if self.peers.is_empty() {
            return None;
        }
        let iface = resource.to_string();
        let measured = self.peers.iter().find(|it| it.iface == iface && it.device == device)?;
        let times = match memory {
            RemoteMemory::Allocated => &measured.times,
            RemoteMemory::Registered => &measured.registered,
        };
        let time = nanoseconds(times.get(&operation)?, size as u64)?;
        Some((time * 1e-9, &measured.peer))
    }
}

/// The time at a size, by the points around it. Above a single point it is unknown.
fn nanoseconds(points: &[Point], size: u64) -> Option<f64> {
    let &(least, time) = points.first()?;
    if size <= least {
        return Some(time);
    }
    let above = points.partition_point(|point| point.0 < size).min(points.len() - 1);
    let (low, high) = (points[above.checked_sub(1)?], points[above]);
    let slope = (high.1 - low.1) / (high.0 - low.0) as f64;
    Some(match size.checked_sub(high.0) {
        Some(beyond) => high.1 + beyond as f64 * slope.max(0.0),
        None => low.1 + (size - low.0) as f64 * slope,
    })
}
