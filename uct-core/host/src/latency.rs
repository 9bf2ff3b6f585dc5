//! Latency histograms: the time from posting an operation to its completion.
//!
//! An interface has them only if the key `latency_histograms` is on. Without them, posting tests one pointer and a completion does nothing more.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use ucs::clock;

/// Significant decimal digits of a recorded time.
const DIGITS: u8 = 2;

/// Operations that may complete after the call that posts them.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    AmZcopy,
    Put,
    Get,
    Atomic,
    Flush,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::AmZcopy, Kind::Put, Kind::Get, Kind::Atomic, Kind::Flush];

    fn name(self) -> &'static str {
        match self {
            Kind::AmZcopy => "am_zcopy",
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Atomic => "atomic",
            Kind::Flush => "flush",
        }
    }
}

/// Times of one kind of operation of an interface, from the return of the call that posted the operation to its completion. Operations that
/// are done when that call returns are not contained, nor those that failed. Operations with the same completion count once,
/// from the first one to the end of the last one, as the kind of the first. Times are exact to two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// As in [`crate::Counters`]: `am_zcopy`, `put`, `get`, `atomic` or `flush`.
    pub kind: &'static str,
    /// Completions.
    pub operations: u64,
    /// Median.
    pub p50: Duration,
    /// 90 % took at most this.
    pub p90: Duration,
    /// 99 % took at most this.
    pub p99: Duration,
    /// 99.9 % took at most this.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
    /// The mean.
    pub mean: Duration,
}

/// The histograms of one interface.
#[derive(Default)]
pub(crate) struct Histograms {
    /// By kind; made with the first completion, and as large as the longest time needs.
    of_kind: [RefCell<Option<Histogram<u64>>>; Kind::ALL.len()],
}

impl Histograms {
    fn record(&self, kind: Kind, nanoseconds: u64) {
        let mut place = self.of_kind[kind as usize].borrow_mut();
        if place.is_none() {
            *place = Histogram::new(DIGITS).ok();
        }
        if let Some(histogram) = &mut *place {
            // Fails only if the histogram cannot grow.
            let _ = histogram.record(nanoseconds);
        }
    }

    /// One entry for each kind that has completions.
    pub(crate) fn latencies(&self) -> Vec<Latency> {
        let of = |kind: Kind| {
            let place = self.of_kind[kind as usize].borrow();
            let histogram = place.as_ref()?;
            let quantile = |q| Duration::from_nanos(histogram.value_at_quantile(q));
            Some(Latency {
                kind: kind.name(),
                operations: histogram.len(),
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: Duration::from_nanos(histogram.max()),
                mean: Duration::from_nanos(histogram.mean() as u64),
            })
        };
        Kind::ALL.into_iter().filter_map(of).collect()
    }
}

/// An operation in flight, whose time is measured.
pub(crate) struct Timer {
    since: u64,
    kind: Kind,
    histograms: Rc<Histograms>,
}

impl Timer {
    pub(crate) fn start(kind: Kind, histograms: &Rc<Histograms>) -> Timer {
        Timer { since: clock::now(), kind, histograms: Rc::clone(histograms) }
    }

    /// The operation has completed without an error.
    pub(crate) fn stop(self) {
        self.histograms.record(self.kind, clock::now().saturating_sub(self.since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_completions_has_no_latency_and_quantiles_are_exact_to_two_digits() {
        let histograms = Histograms::default();
        assert!(histograms.latencies().is_empty());
        (1..=1000).for_each(|microseconds| histograms.record(Kind::Get, microseconds * 1000));
        let [latency] = histograms.latencies()[..] else { panic!("one kind was recorded") };
        assert_eq!((latency.kind, latency.operations), ("get", 1000));
        let expected = [(latency.p50, 500), (latency.p90, 900), (latency.p99, 990), (latency.p999, 999)];
        for (quantile, microseconds) in expected.into_iter().chain([(latency.max, 1000), (latency.mean, 500)])
        {
            let ratio = quantile.as_secs_f64() / (f64::from(microseconds) * 1e-6);
            assert!((0.99..1.01).contains(&ratio), "{quantile:?} is not {microseconds} microseconds");
        }
    }
}
