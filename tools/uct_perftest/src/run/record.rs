//! Times of iterations: a few instructions while it is measured, percentiles afterwards.
//!
//! Reading the clock takes some 10 ns, more than some operations. So iterations are timed in batches that take a
//! microsecond at least, and a sample is the mean of its batch. Samples are put aside as they are; the histogram is
//! made of them in pauses.

use hdrhistogram::Histogram;
use uct_core::clock;
use uct_tools_common::Failure;

/// Samples between two pauses.
const ROOM: usize = 1 << 16;
/// Shortest batch, in nanoseconds: the clock adds a hundredth to it.
const BATCH_NANOSECONDS: f64 = 1000.0;
/// A case is divided into this many samples at least, so that there is something to make percentiles of.
const LEAST_SAMPLES: u64 = 100;

/// Iterations that are timed together, of those that take so many nanoseconds.
pub(super) fn batch(nanoseconds: f64, iterations: u64) -> u64 {
    let fitting = (BATCH_NANOSECONDS / nanoseconds.max(0.1)).ceil() as u64;
    fitting.min(iterations / LEAST_SAMPLES).max(1)
}

/// Intermediate results.
pub(crate) struct Interim<'a> {
    /// Iterations so far.
    pub iterations: u64,
    /// The times so far.
    pub times: &'a Times,
    /// Nanoseconds of an iteration since the last time that it was told.
    pub recent: f64,
}

/// Takes the times of one case.
pub(crate) struct Recorder<'a> {
    batch: u64,
    left: u64,
    last: u64,
    /// Those of the first places.
    samples: Box<[u64; ROOM]>,
    taken: usize,
    next_report: u64,
    reported: (u64, u64),
    counts_pauses: bool,
    times: Times,
    report: &'a mut dyn FnMut(&Interim<'_>),
}

/// The times of one case.
pub(crate) struct Times {
    /// Iterations that a sample is the mean of.
    pub batch: u64,
    /// Iterations in all samples.
    pub iterations: u64,
    /// Ticks of all samples.
    ticks: u64,
    /// Ticks of a batch.
    histogram: Histogram<u64>,
}

impl<'a> Recorder<'a> {
    /// Starts the clock. `report` is called about once a second, in a pause. A pause counts where the other side
    /// goes on meanwhile.
    ///
    /// # Errors
    /// There is no memory for the samples.
    pub(super) fn start(
        batch: u64,
        counts_pauses: bool,
        report: &'a mut dyn FnMut(&Interim<'_>),
    ) -> Result<Recorder<'a>, Failure> {
        let mut samples = Vec::new();
        samples.try_reserve_exact(ROOM).map_err(|_| "there is no memory for the samples")?;
        // Pages that are touched for the first time are not part of what is measured.
        samples.resize(ROOM, 1);
        let times = Times {
            batch,
            iterations: 0,
            ticks: 0,
            histogram: Histogram::new(3).expect("3 digits are permitted"),
        };
        let mut recorder = Recorder {
            batch,
            left: batch,
            last: 0,
            samples: samples.try_into().expect("as many as there is room for"),
            taken: 0,
            next_report: 0,
            reported: (0, 0),
            counts_pauses,
            times,
            report,
        };
        let now = clock::ticks();
        recorder.next_report = now.saturating_add(second());
        recorder.last = now;
        Ok(recorder)
    }

    /// An iteration is over.
    #[inline(always)]
    pub(super) fn tick(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.end_batch();
        }
    }

    #[inline(always)]
    fn end_batch(&mut self) {
        self.left = self.batch;
        let now = clock::ticks();
        // A full room was emptied, so this is the index itself; the compiler need not be told.
        self.samples[self.taken % ROOM] = now.wrapping_sub(self.last);
        self.taken += 1;
        self.last = now;
        if self.taken == ROOM || now >= self.next_report {
            self.pause(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn pause(&mut self, now: u64) {
        self.put_away();
        if now >= self.next_report {
            let (iterations, ticks) = (self.times.iterations, self.times.ticks);
            let recent = clock::ticks_to_nanoseconds(ticks - self.reported.1) as f64
                / (iterations - self.reported.0).max(1) as f64;
            self.reported = (iterations, ticks);
            (self.report)(&Interim { iterations, times: &self.times, recent });
            self.next_report = clock::ticks().saturating_add(second());
        }
        self.last = clock::ticks();
        if self.counts_pauses {
            self.times.ticks += self.last.wrapping_sub(now);
        }
    }

    fn put_away(&mut self) {
        for &ticks in &self.samples[..self.taken] {
            // Where the clocks of two processors differ, a sample may end ahead of its begin.
            let ticks = ticks.cast_signed().max(0).cast_unsigned();
            self.times.ticks += ticks;
            self.times.iterations += self.batch;
            self.times.histogram.record(ticks).expect("the histogram grows with its values");
        }
        self.taken = 0;
    }

    /// Stops the clock. What the last, incomplete batch took counts for the mean only.
    pub(super) fn finish(mut self) -> Times {
        let now = clock::ticks();
        self.put_away();
        self.times.ticks += now.wrapping_sub(self.last);
        self.times.iterations += self.batch - self.left;
        self.times
    }
}

fn second() -> u64 {
    clock::duration_to_ticks(std::time::Duration::from_secs(1))
}

impl Times {
    /// Nanoseconds of an iteration below which this part of the samples is.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        self.per_iteration(self.histogram.value_at_quantile(quantile))
    }

    /// Nanoseconds of an iteration in the slowest sample.
    pub(crate) fn max(&self) -> f64 {
        self.per_iteration(self.histogram.max())
    }

    /// Nanoseconds of an iteration on average.
    pub(crate) fn mean(&self) -> f64 {
        clock::ticks_to_nanoseconds(self.ticks) as f64 / self.iterations.max(1) as f64
    }

    /// Seconds in all.
    pub(crate) fn seconds(&self) -> f64 {
        clock::ticks_to_nanoseconds(self.ticks) as f64 / 1e9
    }

    fn per_iteration(&self, ticks: u64) -> f64 {
        // A batch of an hour does not lose its nanoseconds this way, and one of a tick keeps its fraction.
        clock::ticks_to_nanoseconds(ticks.saturating_mul(1024)) as f64 / 1024.0 / self.batch as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_is_counted_once_whatever_the_batch() {
        for (batch, iterations) in [(1, 10), (7, 1000), (100, 99), (1, 3 * ROOM as u64 + 1)] {
            let mut ignore = |_: &Interim<'_>| {};
            let mut recorder = Recorder::start(batch, false, &mut ignore).unwrap();
            (0..iterations).for_each(|_| recorder.tick());
            let times = recorder.finish();
            assert_eq!(times.iterations, iterations);
            assert!(times.mean() > 0.0 && times.seconds() > 0.0);
            assert!(times.quantile(0.5) <= times.max());
            assert_eq!(times.histogram.len(), iterations / batch);
        }
    }

    #[test]
    fn percentiles_are_those_of_what_was_slept() {
        let mut ignore = |_: &Interim<'_>| {};
        let mut recorder = Recorder::start(1, false, &mut ignore).unwrap();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            recorder.tick();
        }
        let times = recorder.finish();
        assert!(times.quantile(0.5) >= 5e6 && times.max() >= times.mean() && times.mean() >= 5e6);
        assert!(times.seconds() >= 0.025);
    }

    #[test]
    fn a_batch_takes_a_microsecond_and_leaves_samples() {
        assert_eq!(batch(5.0, 1_000_000), 200);
        assert_eq!(batch(5.0, 1000), 10);
        assert_eq!(batch(5.0, 3), 1);
        assert_eq!(batch(50_000.0, 1_000_000), 1);
        assert_eq!(batch(0.0, 1_000_000), 10_000);
    }

    #[test]
    fn a_long_case_tells_how_it_goes() {
        let mut told = 0;
        let mut tell = |interim: &Interim<'_>| {
            assert!(interim.iterations > 0 && interim.recent > 0.0);
            told += 1;
        };
        let mut recorder = Recorder::start(1, true, &mut tell).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(1200) {
            std::thread::sleep(std::time::Duration::from_millis(10));
            recorder.tick();
        }
        let most = (start.elapsed() + std::time::Duration::from_millis(100)).as_secs();
        recorder.finish();
        assert!((1..=most).contains(&told), "told {told} times in {most} s");
    }
}
