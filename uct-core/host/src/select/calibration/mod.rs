//! Measured times of operations: what `uct_info --calibrate` stores, and what selection finds in it.
//!
//! Built on `file`, which reads and writes the file; used by selection.

mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::request::Operation;
use crate::resource::Resource;

pub use file::CalibrationError;

/// Bytes of an operation, and its time in nanoseconds.
pub type Point = (u64, f64);
/// The times of an interface: for each operation by ascending size.
pub type Times = BTreeMap<Operation, Vec<Point>>;

/// Times of operations that were measured on this machine since it was booted, each interface with itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// By name: `posix/memory`.
    ifaces: BTreeMap<String, Times>,
}

impl Calibration {
    /// Sets the times of an interface in place of those that there are. Operations without a point are left out.
    pub fn set(&mut self, resource: &Resource, mut times: Times) {
        times.retain(|_, points| !points.is_empty());
        self.ifaces.insert(resource.to_string(), times);
    }

    /// Whether an interface was measured.
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
