//! The figures of an interface's cost model, each with its origin.

use std::fmt;

use serde::Serialize;
use uct_core::{Figure, IfaceAttr, Origin};

/// What an interface costs.
#[derive(Serialize)]
pub(crate) struct Costs {
    /// Seconds of processor time per operation.
    overhead: Term,
    /// Seconds from sender to receiver.
    latency: Term,
    /// Seconds that each further endpoint adds to the latency.
    latency_growth: f64,
    /// Bytes per second that each process has for itself.
    bandwidth_dedicated: Term,
    /// Bytes per second that all processes share.
    bandwidth_shared: Term,
    /// Round trips of an operation that is emulated.
    emulated_round_trips: u32,
}

#[derive(Serialize)]
struct Term {
    value: f64,
    origin: &'static str,
}

impl Term {
    fn of(figure: &Figure) -> Term {
        Term { value: figure.value, origin: Origin::of(figure).name() }
    }
}

impl Costs {
    pub(crate) fn of(attr: &IfaceAttr) -> Costs {
        Costs {
            overhead: Term::of(&attr.overhead),
            latency: Term::of(&attr.latency),
            latency_growth: attr.latency_growth,
            bandwidth_dedicated: Term::of(&attr.bandwidth_dedicated),
            bandwidth_shared: Term::of(&attr.bandwidth_shared),
            emulated_round_trips: attr.emulated_round_trips,
        }
    }

    /// As pairs of a name and a figure with its origin.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let Costs { overhead, latency, bandwidth_dedicated: dedicated, bandwidth_shared: shared, .. } = self;
        let mut bandwidth = Vec::new();
        if shared.value > 0.0 {
            bandwidth.push(format!("{}/ppn ({})", Rate(shared.value), shared.origin));
        }
        if dedicated.value > 0.0 || bandwidth.is_empty() {
            bandwidth.push(format!("{} ({})", Rate(dedicated.value), dedicated.origin));
        }
        let growth = match self.latency_growth {
            0.0 => String::new(),
            growth => format!(" + {} per endpoint", Nanoseconds(growth)),
        };
        vec![
            ("bandwidth", bandwidth.join(" + ")),
            ("latency", format!("{}{growth} ({})", Nanoseconds(latency.value), latency.origin)),
            ("overhead", format!("{} ({})", Nanoseconds(overhead.value), overhead.origin)),
        ]
    }
}

/// Seconds, printed as nanoseconds.
pub(crate) struct Nanoseconds(pub f64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0 * 1e9;
        let places = if nanoseconds == 0.0 || nanoseconds >= 10.0 { 0 } else { 3 };
        write!(f, "{nanoseconds:.places$} nsec")
    }
}

/// Bytes a second, printed in millions.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} MB/sec", self.0 / 1e6)
    }
}
