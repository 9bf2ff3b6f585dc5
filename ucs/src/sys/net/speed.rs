//! The speed of a network device, and where the figure comes from.
//!
//! For the cost model, which must be able to show the origin of each number. No dependencies.
//! `net::device`, transports and `uct_info` use it.

use std::fmt;

/// What a device is, as far as it bears on its speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The loopback device.
    Loopback,
    /// A device made of software: bridge, veth, tun, dummy, vlan, bond.
    Virtual,
    /// A device on a bus, real or paravirtual.
    Physical,
    /// A radio.
    Wireless,
}

/// Loopback, which reports no speed: 64 Gb/s. One stream of 64 KiB writes between two cores moved 4.6 to 12
/// GB/s on the machines that were measured; 8 GB/s is between these and far from every real wire below it.
/// Taking 100 Mb/s for "unknown", as is done elsewhere, prices the fastest path of all at a thousandth of
/// what it does.
pub const LOOPBACK_MEGABITS: u32 = 64_000;

/// A virtual device that reports no speed: 10 Gb/s, which is what Linux's own veth and tun state for
/// themselves.
pub const VIRTUAL_MEGABITS: u32 = 10_000;

/// A real or paravirtual device that reports none (virtio without the speed feature, a link that is down): 10
/// Gb/s, the usual wire of a server and of a small cloud instance.
pub const PHYSICAL_MEGABITS: u32 = 10_000;

/// A wireless device, of which the kernel reports no speed: 300 Mb/s, a common 802.11n rate.
pub const WIRELESS_MEGABITS: u32 = 300;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The system reports it.
    Reported,
    /// The system reports none; this is the named constant for the kind of device.
    NamedDefault(&'static str),
}

/// A speed and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// In Mb/s (10⁶ bits a second), at least 1.
    pub megabits: u32,
    /// Where `megabits` comes from.
    pub origin: Origin,
}

impl Speed {
    /// Bytes a second.
    pub fn bytes_per_second(self) -> f64 {
        f64::from(self.megabits) * 1e6 / 8.0
    }

    /// What the system reported, if it makes sense; the default of the device's kind otherwise. The kernel
    /// says −1 for unknown, and the RDMA and virtual drivers also 0 and 2³² − 1.
    pub(super) fn from_report(report: Option<i64>, kind: Kind) -> Speed {
        let reported = report
            .and_then(|speed| u32::try_from(speed).ok())
            .filter(|&speed| speed != 0 && speed != u32::MAX);
        match reported {
            Some(megabits) => Speed { megabits, origin: Origin::Reported },
            None => Speed::default_of(kind),
        }
    }

    fn default_of(kind: Kind) -> Speed {
        let (megabits, name) = match kind {
            Kind::Loopback => (LOOPBACK_MEGABITS, "loopback"),
            Kind::Virtual => (VIRTUAL_MEGABITS, "virtual device"),
            Kind::Physical => (PHYSICAL_MEGABITS, "device without a reported speed"),
            Kind::Wireless => (WIRELESS_MEGABITS, "wireless"),
        };
        Speed { megabits, origin: Origin::NamedDefault(name) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Reported => f.write_str("reported"),
            Origin::NamedDefault(name) => write!(f, "default for {name}"),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mb/s ({})", self.megabits, self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_speed_is_taken_and_a_missing_one_has_a_named_default() {
        let reported = Speed::from_report(Some(25_000), Kind::Physical);
        assert_eq!(reported, Speed { megabits: 25_000, origin: Origin::Reported });
        assert_eq!(reported.bytes_per_second(), 3.125e9);
        for nonsense in [None, Some(-1), Some(0), Some(4_294_967_295)] {
            let speed = Speed::from_report(nonsense, Kind::Loopback);
            assert_eq!(speed.megabits, LOOPBACK_MEGABITS);
            assert_eq!(speed.to_string(), "64000 Mb/s (default for loopback)");
        }
        assert!(Speed::from_report(None, Kind::Virtual).origin != Origin::Reported);
    }
}
