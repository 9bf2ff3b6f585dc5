//! The cost model: overhead + latency + size / bandwidth.
//!
//! A time that was measured counts in place of the sum. To both comes the cost of the key of remote memory, if it is not kept.
//!
//! The terms are UCX's (`uct_iface_attr`). What an interface emulates costs the round trips that it takes; a get costs the
//! way there and back. Each number has its origin.

use std::fmt;

use serde::Serialize;

use super::request::Request;
use crate::attr::{Capabilities, Figure, IfaceAttr, Origin};

/// One term of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Term {
    /// The figure itself: seconds, or bytes per second.
    pub figure: f64,
    /// Where the figure came from.
    pub origin: &'static str,
    /// What it adds to the total, in seconds.
    pub seconds: f64,
}

/// The time of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds, as selection compares them: measured, or else the model's.
    pub total: f64,
    /// Whether `total` was measured, on this machine or with the peer.
    pub is_measured: bool,
    /// Seconds by the model: the sum of the terms below.
    pub model: f64,
    /// Processor time.
    pub overhead: Term,
    /// From sender to receiver, and back where needed.
    pub latency: Term,
    /// Size by bandwidth.
    pub transfer: Term,
    /// Seconds for the key of remote memory, if it is not kept: in `total` and `model`.
    pub key: f64,
    /// Times that overhead and latency count: more than 1 for what is emulated, or fetched.
    pub trips: u32,
    /// Whether the operation is emulated.
    pub emulated: bool,
}

impl Cost {
    /// Estimates an operation on an interface with so many endpoints. `key` is what its key costs.
    pub(super) fn estimate(
        attr: &IfaceAttr,
        request: &Request,
        endpoints: u32,
        measured: Option<f64>,
        key: f64,
    ) -> Cost {
        let emulated = Capabilities::from_bits_retain(attr.emulated).contains(request.operation.capability());
        let ways = if request.operation.is_get() { 2 } else { 1 };
        let trips = if emulated { ways.max(2 * attr.emulated_round_trips.max(1)) } else { ways };
        let latency = attr.latency.value + attr.latency_growth * f64::from(endpoints);
        let latency = Figure { value: latency, ..attr.latency };
        let bandwidth = attr.bandwidth_dedicated.value + attr.bandwidth_shared.value;
        let source =
            if attr.bandwidth_shared.value > 0.0 { attr.bandwidth_shared } else { attr.bandwidth_dedicated };
        let transfer = if bandwidth > 0.0 { request.size as f64 / bandwidth } else { 0.0 };
        let times = f64::from(trips);
        let term = |figure: Figure, seconds| Term {
            figure: figure.value,
            origin: Origin::of(&figure).name(),
            seconds,
        };
        let overhead = term(attr.overhead, attr.overhead.value * times);
        let latency = term(latency, latency.value * times);
        let transfer = term(Figure { value: bandwidth, ..source }, transfer);
        let model = overhead.seconds + latency.seconds + transfer.seconds + key;
        let (total, is_measured) = (measured.map_or(model, |it| it + key), measured.is_some());
        Cost { total, is_measured, model, overhead, latency, transfer, key, trips, emulated }
    }
}

/// A time as people read it.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds < 1e-6 => write!(f, "{:.0} ns", seconds * 1e9),
            seconds if seconds < 1e-3 => write!(f, "{:.2} us", seconds * 1e6),
            seconds => write!(f, "{:.2} ms", seconds * 1e3),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { overhead, latency, transfer, .. } = self;
        if self.is_measured {
            write!(f, "{} measured; the model has ", Seconds(self.total))?;
        }
        write!(
            f,
            "{} = overhead {} ({}) + latency {} ({}) + transfer {} ({:.0} MB/s, {})",
            Seconds(self.model),
            Seconds(overhead.seconds),
            overhead.origin,
            Seconds(latency.seconds),
            latency.origin,
            Seconds(transfer.seconds),
            transfer.figure / 1e6,
            transfer.origin,
        )?;
        if self.key > 0.0 {
            write!(f, " + key {}", Seconds(self.key))?;
        }
        if self.emulated {
            write!(f, ", emulated in {} trips", self.trips)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Operation;

    fn attr() -> IfaceAttr {
        let mut attr = crate::attr::blank_iface();
        let figure = |value, origin| Figure { value, origin };
        attr.overhead = figure(50e-9, uct_abi::UCT_ORIGIN_MODEL);
        attr.latency = figure(600e-9, uct_abi::UCT_ORIGIN_DEVICE);
        attr.latency_growth = 1e-9;
        attr.bandwidth_shared = figure(1e9, uct_abi::UCT_ORIGIN_MEASURED);
        attr
    }

    #[test]
    fn the_terms_add_up_and_keep_their_origins() {
        let cost = Cost::estimate(&attr(), &Request::new(Operation::AmBcopy, 1000), 1, None, 0.0);
        assert!((cost.total - (50e-9 + 601e-9 + 1e-6)).abs() < 1e-15);
        assert_eq!(
            (cost.overhead.origin, cost.latency.origin, cost.transfer.origin),
            ("model", "device", "measured")
        );
        let crowded = Cost::estimate(&attr(), &Request::new(Operation::AmBcopy, 1000), 1000, None, 0.0);
        assert!((crowded.total - (50e-9 + 1600e-9 + 1e-6)).abs() < 1e-15, "each endpoint adds a nanosecond");
    }

    #[test]
    fn what_comes_back_and_what_is_emulated_costs_the_trips() {
        let get = Request::new(Operation::GetBcopy, 0);
        assert_eq!(Cost::estimate(&attr(), &get, 1, None, 0.0).trips, 2);
        let mut emulating = attr();
        emulating.emulated = Capabilities::GET_BCOPY.bits() | Capabilities::PUT_SHORT.bits();
        emulating.emulated_round_trips = 2;
        assert_eq!(Cost::estimate(&emulating, &get, 1, None, 0.0).trips, 4);
        assert_eq!(Cost::estimate(&emulating, &Request::new(Operation::PutShort, 0), 1, None, 0.0).trips, 4);
        assert_eq!(Cost::estimate(&emulating, &Request::new(Operation::AmShort, 0), 1, None, 0.0).trips, 1);
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told = |seconds| Seconds(seconds).to_string();
        assert_eq!([0.0, 1e-9, 999e-9].map(told), ["0 ns", "1 ns", "999 ns"]);
        assert_eq!([1e-6, 1.5e-6, 999.99e-6].map(told), ["1.00 us", "1.50 us", "999.99 us"]);
        assert_eq!([1e-3, 2.0].map(told), ["1.00 ms", "2000.00 ms"]);
    }

    #[test]
    fn a_cost_is_told_with_its_terms_and_their_origins() {
        let request = Request::new(Operation::GetBcopy, 1000);
        let mut attr = attr();
        let terms = "2.30 us = overhead 100 ns (model) + latency 1.20 us (device) + transfer 1.00 us (1000 MB/s, measured)";
        assert_eq!(Cost::estimate(&attr, &request, 1, None, 0.0).to_string(), terms);
        attr.emulated = Capabilities::GET_BCOPY.bits();
        attr.emulated_round_trips = 1;
        assert_eq!(
            Cost::estimate(&attr, &request, 1, None, 0.0).to_string(),
            format!("{terms}, emulated in 2 trips")
        );
    }

    #[test]
    fn a_measured_time_counts_in_place_of_the_sum_and_is_named_beside_it() {
        let request = Request::new(Operation::AmBcopy, 1000);
        let model = Cost::estimate(&attr(), &request, 1, None, 0.0);
        let measured = Cost::estimate(&attr(), &request, 1, Some(2e-6), 0.0);
        assert_eq!((model.total, model.is_measured), (model.model, false));
        assert_eq!((measured.total, measured.is_measured, measured.model), (2e-6, true, model.model));
        assert_eq!(measured.to_string(), format!("2.00 us measured; the model has {model}"));
    }

    #[test]
    fn a_key_that_is_not_kept_is_a_term_of_the_model_and_of_a_measured_time() {
        let request = Request::new(Operation::GetBcopy, 1000);
        let [model, measured] =
            [None, Some(2e-6)].map(|time| Cost::estimate(&attr(), &request, 1, time, 3e-6));
        let kept = Cost::estimate(&attr(), &request, 1, None, 0.0);
        assert!((model.total - kept.total - 3e-6).abs() < 1e-15 && (measured.total - 5e-6).abs() < 1e-15);
        assert!(model.to_string().ends_with(" + key 3.00 us"), "{model}");
    }

    #[test]
    fn the_bandwidth_is_the_sum_of_both_parts_and_has_the_origin_of_the_one_that_is_there() {
        let told = |shared: f64, dedicated: f64| {
            let mut attr = attr();
            attr.bandwidth_shared.value = shared;
            attr.bandwidth_dedicated = Figure { value: dedicated, origin: uct_abi::UCT_ORIGIN_MODEL };
            let Term { figure, origin, .. } =
                Cost::estimate(&attr, &Request::new(Operation::AmBcopy, 1000), 1, None, 0.0).transfer;
            (figure, origin)
        };
        assert_eq!(told(1e9, 0.0), (1e9, "measured"));
        assert_eq!(told(0.0, 3e9), (3e9, "model"));
        assert_eq!(told(1e9, 3e9), (4e9, "measured"));
    }

    #[test]
    fn an_interface_that_names_no_bandwidth_costs_no_transfer() {
        let mut attr = attr();
        attr.bandwidth_shared.value = 0.0;
        assert_eq!(
            Cost::estimate(&attr, &Request::new(Operation::AmBcopy, 1 << 20), 1, None, 0.0).transfer.seconds,
            0.0
        );
    }
}
