//! Time: a monotonic clock that costs one `rdtsc`, and deadlines.
//!
//! For timers, time-outs and measurements on the data path. Built on the CPU's time stamp counter, or on
//! `CLOCK_MONOTONIC` where that counter cannot be trusted. Used by the async context, transports and tools, which are built on
//! it.
//!
//! # Why the calibration is here
//!
//! The counter's frequency is found by comparing it with `CLOCK_MONOTONIC` over [`CALIBRATION_NANOSECONDS`],
//! once per process, with each end taken from the tightest of several readings: 0.25 ms, exact to about 10 in
//! a million. `quanta` was measured first: 0.6 ms on an idle machine, and its loop may run for 200 ms on a
//! noisy one, which a program that starts in a few milliseconds cannot pay, and a plugin, which has its own
//! copy of every static, would pay again. A plugin therefore takes the host's [`Calibration`] through
//! [`install`].

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long the first use of the clock measures the counter's frequency.
pub const CALIBRATION_NANOSECONDS: u64 = 250_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
const SCALE_SHIFT: u32 = 32;
/// Readings at each end of the calibration, of which the tightest counts.
const READINGS: usize = 16;

/// How ticks and nanoseconds relate. A plain record, so that a host can hand it to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Calibration {
    /// 1 if ticks are the time stamp counter, 0 if they are nanoseconds of `CLOCK_MONOTONIC`.
    pub uses_counter: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Ticks at `base_nanoseconds`.
    pub base_ticks: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` at `base_ticks`.
    pub base_nanoseconds: u64,
    /// Nanoseconds per tick, times 2³².
    pub nanoseconds_per_tick: u64,
    /// Ticks per nanosecond, times 2³².
    pub ticks_per_nanosecond: u64,
}

static CALIBRATION: OnceLock<Calibration> = OnceLock::new();

/// The process's calibration; measures it on the first call, which takes [`CALIBRATION_NANOSECONDS`].
#[inline]
pub fn calibration() -> &'static Calibration {
    CALIBRATION.get_or_init(Calibration::measure)
}

/// Takes over the host's calibration instead of measuring. Returns `false`, and changes nothing, if this
/// image has used its clock already, if the record makes no sense, or if it names a counter that this machine
/// does not have.
pub fn install(calibration: Calibration) -> bool {
    let plausible = calibration.nanoseconds_per_tick != 0 && calibration.ticks_per_nanosecond != 0;
    let readable = calibration.uses_counter == 0 || counter::is_present();
    plausible && readable && CALIBRATION.set(calibration).is_ok()
}

/// Raw ticks: the cost of one `rdtsc`. Only differences mean anything; convert them with
/// [`ticks_to_nanoseconds`].
///
/// Not ordered against the instructions around it, so a reading may move by some nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    calibration().ticks()
}

/// Nanoseconds since an arbitrary moment of the past; never goes back by more than the counter does between
/// cores.
///
/// Starts level with `CLOCK_MONOTONIC` and drifts from it by some 10 µs a second: compare it only with
/// itself.
#[inline]
pub fn now() -> u64 {
    let calibration = calibration();
    let elapsed = calibration.ticks().saturating_sub(calibration.base_ticks);
    calibration.base_nanoseconds.saturating_add(calibration.ticks_to_nanoseconds(elapsed))
}

/// A number of ticks in nanoseconds.
#[inline]
pub fn ticks_to_nanoseconds(ticks: u64) -> u64 {
    calibration().ticks_to_nanoseconds(ticks)
}

/// A number of ticks as a [`Duration`].
#[inline]
pub fn ticks_to_duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks_to_nanoseconds(ticks))
}

/// A duration in ticks, rounded up; `u64::MAX` if it does not fit.
#[inline]
pub fn duration_to_ticks(duration: Duration) -> u64 {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    calibration().nanoseconds_to_ticks(nanoseconds)
}

/// Whether ticks are the time stamp counter; `false` means that every reading is a `clock_gettime`.
pub fn uses_counter() -> bool {
    calibration().uses_counter != 0
}

/// A moment after which something is late. Comparing it costs one [`ticks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// The deadline that never expires.
    pub const NEVER: Deadline = Deadline(u64::MAX);

    /// The moment `duration` from now. A duration of centuries is the same as [`Deadline::NEVER`].
    pub fn after(duration: Duration) -> Deadline {
        Deadline(ticks().saturating_add(duration_to_ticks(duration)))
    }

    /// The moment when [`ticks`] reads `ticks`.
    pub const fn at_ticks(ticks: u64) -> Deadline {
        Deadline(ticks)
    }

    /// The reading of [`ticks`] at which this deadline expires.
    pub const fn ticks(self) -> u64 {
        self.0
    }

    /// Whether the moment has come.
    #[inline]
    pub fn expired(self) -> bool {
        self.expired_at(ticks())
    }

    /// Whether the moment had come when [`ticks`] read `now`.
    #[inline]
    pub const fn expired_at(self, now: u64) -> bool {
        self.0 != u64::MAX && now >= self.0
    }

    /// Time left; zero once expired, `Duration::MAX` for [`Deadline::NEVER`].
    pub fn remaining(self) -> Duration {
        match self {
            Deadline::NEVER => Duration::MAX,
            Deadline(at) => ticks_to_duration(at.saturating_sub(ticks())),
        }
    }
}

impl Calibration {
    /// Ticks are nanoseconds of the system's clock.
    const SYSTEM_CLOCK: Calibration = Calibration {
        uses_counter: 0,
        reserved: 0,
        base_ticks: 0,
        base_nanoseconds: 0,
        nanoseconds_per_tick: 1 << SCALE_SHIFT,
        ticks_per_nanosecond: 1 << SCALE_SHIFT,
    };

    fn measure() -> Calibration {
        if counter::is_trustworthy() { Calibration::of_counter() } else { Calibration::SYSTEM_CLOCK }
    }

    fn of_counter() -> Calibration {
        let start = Reading::tightest();
        while system_nanoseconds() < start.nanoseconds + CALIBRATION_NANOSECONDS {
            std::hint::spin_loop();
        }
        let end = Reading::tightest();
        let ticks = end.ticks.saturating_sub(start.ticks);
        let nanoseconds = end.nanoseconds.saturating_sub(start.nanoseconds);
        let ratios = (scaled_ratio(nanoseconds, ticks), scaled_ratio(ticks, nanoseconds));
        let (Some(nanoseconds_per_tick), Some(ticks_per_nanosecond)) = ratios else {
            // A counter that stops or runs away is no clock.
            return Calibration::SYSTEM_CLOCK;
        };
        Calibration {
            uses_counter: 1,
            reserved: 0,
            base_ticks: end.ticks,
            base_nanoseconds: end.nanoseconds,
            nanoseconds_per_tick,
            ticks_per_nanosecond,
        }
    }

    #[inline]
    fn ticks(&self) -> u64 {
        if self.uses_counter != 0 { counter::read() } else { system_nanoseconds() }
    }

    #[inline]
    fn ticks_to_nanoseconds(&self, ticks: u64) -> u64 {
        scale(ticks, self.nanoseconds_per_tick)
    }

    #[inline]
    fn nanoseconds_to_ticks(&self, nanoseconds: u64) -> u64 {
        scale(nanoseconds, self.ticks_per_nanosecond).saturating_add(1)
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy)]
struct Reading {
    ticks: u64,
    nanoseconds: u64,
}

impl Reading {
    /// Of several readings the one with the least distance between its two counter values, so that an interrupt in one does no
    /// harm.
    fn tightest() -> Reading {
        let mut best = Reading { ticks: 0, nanoseconds: 0 };
        let mut best_width = u64::MAX;
        for _ in 0..READINGS {
            let before = counter::read();
            let nanoseconds = system_nanoseconds();
            let width = counter::read().saturating_sub(before);
            if width < best_width {
                best_width = width;
                best = Reading { ticks: before + width / 2, nanoseconds };
            }
        }
        best
    }
}

/// `numerator / denominator` times 2³², if that is a number a 64-bit scale can hold and not zero.
fn scaled_ratio(numerator: u64, denominator: u64) -> Option<u64> {
    let ratio = (u128::from(numerator) << SCALE_SHIFT).checked_div(u128::from(denominator))?;
    u64::try_from(ratio).ok().filter(|&ratio| ratio != 0)
}

#[inline]
fn scale(value: u64, factor: u64) -> u64 {
    let scaled = (u128::from(value) * u128::from(factor)) >> SCALE_SHIFT;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn system_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * NANOSECONDS_PER_SECOND + time.tv_nsec.cast_unsigned()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use core::arch::x86_64::{__cpuid, _rdtsc};

    const ADVANCED_POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT_BIT: u32 = 1 << 8;

    /// Every x86-64 CPU has one.
    pub(super) fn is_present() -> bool {
        true
    }

    /// Whether it runs at one rate in every power state, and on all cores. The kernel finds out: what it takes for its own
    /// clock does, also where a virtual CPU does not say so; and what it has found to differ leaves its list.
    pub(super) fn is_trustworthy() -> bool {
        const DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";
        let read = |name| std::fs::read_to_string(format!("{DIRECTORY}/{name}"));
        if is_invariant() {
            // Unreadable in some containers; then the CPU's word has to do.
            read("available_clocksource").map_or(true, |list| list.contains("tsc"))
        } else {
            read("current_clocksource").is_ok_and(|clock| clock.trim() == "tsc")
        }
    }

    fn is_invariant() -> bool {
        __cpuid(0x8000_0000).eax >= ADVANCED_POWER_LEAF
            && __cpuid(ADVANCED_POWER_LEAF).edx & INVARIANT_BIT != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space execute it.
        unsafe { _rdtsc() }
    }
}

// Miri has no counter.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod counter {
    pub(super) fn is_present() -> bool {
        false
    }

    pub(super) fn is_trustworthy() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_clock_agrees_with_the_system_within_one_in_a_thousand() {
        // A reading is between two of the system, however long the thread was interrupted there. So the time from one
        // reading to the other is between the shortest and the longest that the system knows.
        let read = || {
            let before = Instant::now();
            let readings = [ticks(), now()];
            (readings, before, Instant::now())
        };
        let ([ticks_first, now_first], first_before, first_after) = read();
        std::thread::sleep(Duration::from_millis(20));
        let ([ticks_last, now_last], last_before, last_after) = read();
        let least = (last_before - first_after).as_nanos() as f64;
        let most = (last_after - first_before).as_nanos() as f64;
        for measured in [ticks_to_nanoseconds(ticks_last - ticks_first), now_last - now_first] {
            let measured = measured as f64;
            assert!(measured > least * 0.999 && measured < most * 1.001, "{measured}, not {least} to {most}");
        }
    }

    #[test]
    fn time_does_not_go_back() {
        let mut last = now();
        for _ in 0..100_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn a_duration_survives_the_way_to_ticks_and_back() {
        for nanoseconds in [1, 1_000, 10_000_000, 3_600 * NANOSECONDS_PER_SECOND] {
            let back = ticks_to_nanoseconds(duration_to_ticks(Duration::from_nanos(nanoseconds)));
            assert!(
                back.abs_diff(nanoseconds) <= 1 + nanoseconds / 1_000_000,
                "{nanoseconds} came back as {back}"
            );
        }
    }

    #[test]
    fn a_deadline_expires_when_it_is_due_and_not_before() {
        let distant = Deadline::after(Duration::from_secs(3600));
        assert!(!distant.expired());
        assert!(distant.remaining() <= Duration::from_secs(3601));
        let deadline = Deadline::after(Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(25));
        assert!(deadline.expired());
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }

    #[test]
    fn a_deadline_that_never_comes_does_not_overflow() {
        assert!(!Deadline::after(Duration::MAX).expired());
        assert!(!Deadline::NEVER.expired());
        assert_eq!(Deadline::NEVER.remaining(), Duration::MAX);
        assert!(!Deadline::NEVER.expired_at(u64::MAX));
    }

    #[test]
    fn a_calibration_without_sense_is_refused() {
        assert!(!install(Calibration { nanoseconds_per_tick: 0, ..Calibration::SYSTEM_CLOCK }));
    }

    #[test]
    fn the_fallback_clock_counts_nanoseconds() {
        let clock = Calibration::SYSTEM_CLOCK;
        assert_eq!(clock.ticks_to_nanoseconds(12_345), 12_345);
        let before = clock.ticks();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.ticks() - before >= 2_000_000);
    }
}
