//! When progress does more than poll one word, and how many messages a call receives.
//!
//! Used by progress. Built on the clock. Deadlines are counted in calls of progress: there is one counter, and all deadlines are values of
//! it, so an idle call increments one number and makes one comparison. A program may call rarely, so each deadline also has a limit in time.
//! For that the clock is read in one of at most [`SLOW_PATH_INTERVAL`] calls, a *look*.

use std::cell::Cell;
use std::time::Duration;

use ucs::clock;
use ucs::stride::Stride;

/// Calls from one slow path to the next while a ring is active. The first message on an idle ring waits for half of them on average.
pub(crate) const SLOW_PATH_INTERVAL: u32 = 64;
/// The same while the peer owns the ping-pong line, so that the next message comes in the ring or in the line. One of the two is watched, and
/// both are checked at this interval.
pub(crate) const LINE_INTERVAL: u32 = 2;
/// Calls for which a ring is not polled after a burst. Polling takes the cache line that the sender is about to write, and a receiver that is
/// faster than the sender would do so for each message.
const BURST_BACKOFF: u64 = 2;
/// Time from one look to the next at most, or a call if that is longer. Each look is in a slow path, which polls the doorbell.
const LOOK_INTERVAL: Duration = Duration::from_micros(250);
/// Time after which an epoch ends, at the next look, if it has not had its calls yet.
const EPOCH_INTERVAL: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Calls so far. Each received message after the first one of a call counts as a call too: handlers take time, and events of sockets,
    /// such as the death of a peer, must not wait for a thousand bursts.
    calls: Cell<u64>,
    /// The call that takes the slow path.
    slow_path_at: Cell<u64>,
    /// The call that looks; never later than `epoch_at`.
    look_at: Cell<u64>,
    stride: Stride,
    /// Ticks from one look to the next at most, where calls are fast.
    fast_look: u64,
    /// The call that begins the next epoch.
    epoch_at: Cell<u64>,
    /// The tick from which on a look does.
    epoch_tick: Cell<u64>,
    /// The last call that receives as many messages as there are.
    burst_until: Cell<u64>,
}

impl Schedule {
    /// The first call takes the slow path, and looks. An epoch begins after `epoch` calls.
    pub(crate) fn new(epoch: u32) -> Schedule {
        Schedule {
            calls: Cell::new(0),
            slow_path_at: Cell::new(0),
            look_at: Cell::new(0),
            stride: Stride::default(),
            fast_look: clock::duration_to_ticks(LOOK_INTERVAL) / 4,
            epoch_at: Cell::new(epoch.into()),
            epoch_tick: Cell::new(clock::ticks().saturating_add(clock::duration_to_ticks(EPOCH_INTERVAL))),
            burst_until: Cell::new(0),
        }
    }

    /// Counts a call. Returns whether it takes the slow path.
    #[inline]
    pub(crate) fn count_call(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.calls.get() >= self.slow_path_at.get()
    }

    /// The slow path is taken after so many calls, or earlier for a look.
    pub(crate) fn set_slow_path(&self, calls: u32) {
        self.slow_path_at.set((self.calls.get() + u64::from(calls)).min(self.look_at.get()));
    }

    /// The slow path is taken after at most so many calls.
    pub(crate) fn slow_path_within(&self, calls: u32) {
        self.slow_path_at.set(self.slow_path_at.get().min(self.calls.get() + u64::from(calls)));
    }

    /// Looks, if this call does that. Returns whether it did, and an epoch begins.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        self.calls.get() >= self.look_at.get() && self.look_at_tick(clock::ticks())
    }

    /// Fast calls, up to 1 µs apart, have an epoch of as many calls: 1024 of them take 1 ms at most. That of slower ones ends at a look.
    #[inline(never)]
    fn look_at_tick(&self, now: u64) -> bool {
        let stride = match self.stride.look_again(now, self.fast_look, SLOW_PATH_INTERVAL) {
            Some(stride) => stride,
            None => self.look_slowly(now),
        };
        self.look_at.set((self.calls.get() + u64::from(stride)).min(self.epoch_at.get()));
        self.is_epoch_due()
    }

    #[cold]
    #[inline(never)]
    fn look_slowly(&self, now: u64) -> u32 {
        if now >= self.epoch_tick.get() {
            self.epoch_at.set(self.calls.get());
        }
        self.stride.look_at(now, 4 * self.fast_look, SLOW_PATH_INTERVAL)
    }

    /// Whether an epoch begins.
    pub(crate) fn is_epoch_due(&self) -> bool {
        self.calls.get() >= self.epoch_at.get()
    }

    /// The next epoch begins after so many calls, or after [`EPOCH_INTERVAL`].
    pub(crate) fn set_epoch(&self, calls: u32) {
        self.set_epoch_at_tick(calls, clock::ticks());
    }

    fn set_epoch_at_tick(&self, calls: u32, now: u64) {
        self.epoch_at.set(self.calls.get() + u64::from(calls));
        self.epoch_tick.set(now.saturating_add(clock::duration_to_ticks(EPOCH_INTERVAL)));
        let stride = self.stride.calls().min(calls);
        self.look_at.set(self.calls.get() + u64::from(stride));
    }

    /// The next call begins an epoch.
    pub(crate) fn begin_epoch_now(&self) {
        self.epoch_at.set(0);
        self.look_at.set(0);
        self.slow_path_at.set(0);
    }

    /// How many messages this call receives, of at most `most`.
    ///
    /// The first message after an empty poll is received alone. Polling for a second one would wait for a cache line that the sender may be
    /// about to write, and would delay what the handler sends. In a burst, each call receives as many as there are.
    #[inline]
    pub(crate) fn limit(&self, most: u32) -> u32 {
        if self.calls.get() <= self.burst_until.get() { most } else { 1 }
    }

    /// Notes received messages, at least one. The next call receives as many as there are.
    #[inline]
    pub(crate) fn received(&self, messages: u32) {
        self.calls.set(self.calls.get() + u64::from(messages) - 1);
        self.burst_until.set(self.calls.get() + 1);
    }

    /// A burst has ended. The caller stops to poll its ring. The slow path, which polls it again, is taken after [`BURST_BACKOFF`] calls and
    /// receives as many messages as there are.
    pub(crate) fn back_off(&self) {
        let until = self.calls.get() + BURST_BACKOFF;
        self.burst_until.set(until);
        self.slow_path_at.set(self.slow_path_at.get().min(until));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of a program whose calls have been fast: no look is due for a slow path's interval.
    fn fast(epoch: u32) -> Schedule {
        let schedule = Schedule::new(epoch);
        for _ in 0..=SLOW_PATH_INTERVAL.ilog2() {
            schedule.look_at_tick(0);
        }
        schedule
    }

    /// Calls until one takes the slow path.
    fn until_slow_path(schedule: &Schedule) -> u32 {
        (1..).find(|_| schedule.count_call()).unwrap()
    }

    #[test]
    fn an_epoch_begins_after_as_many_calls_whatever_brings_the_slow_path_forward() {
        for (epoch, interval, within) in [(1, 64, 9), (5, 2, 1), (100, 64, 7), (1024, 64, 900)] {
            let schedule = Schedule::new(epoch);
            let mut calls = 0;
            loop {
                calls += until_slow_path(&schedule);
                // Without a clock that moves.
                if schedule.calls.get() >= schedule.look_at.get() && schedule.look_at_tick(0) {
                    break;
                }
                schedule.set_slow_path(interval);
                schedule.slow_path_within(within);
            }
            assert_eq!(calls, epoch, "a slow path each {interval} calls");
        }
    }

    /// The pauses between epochs of a program whose calls are `pause` nanoseconds apart, in calls. The ticks pass in the test only.
    fn epochs(schedule: &Schedule, now: &mut u64, pause: u64, count: usize) -> Vec<u32> {
        let (pause, mut calls, mut epochs) =
            (clock::duration_to_ticks(Duration::from_nanos(pause)), 0, Vec::new());
        while epochs.len() < count {
            *now += pause;
            calls += 1;
            if !schedule.count_call() {
                continue;
            }
            if schedule.calls.get() >= schedule.look_at.get() && schedule.look_at_tick(*now) {
                epochs.push(calls);
                calls = 0;
                schedule.set_epoch_at_tick(1024, *now);
            }
            schedule.set_slow_path(SLOW_PATH_INTERVAL);
        }
        epochs
    }

    #[test]
    fn an_epoch_ends_after_its_time_where_calls_are_rare() {
        let mut now = clock::ticks();
        // Pauses in microseconds, and the calls in which an epoch ends at the latest.
        for (pause, most) in [(1, 1280), (10, 128), (200, 7), (1000, 2), (50_000, 1)] {
            let schedule = Schedule::new(1024);
            let epochs = epochs(&schedule, &mut now, pause * 1000, 20);
            assert!(epochs[2..].iter().all(|&calls| calls <= most), "each {pause} µs: {epochs:?}");
        }
    }

    #[test]
    fn an_epoch_has_all_its_calls_where_they_are_fast() {
        let (schedule, mut now) = (Schedule::new(1024), clock::ticks());
        assert_eq!(epochs(&schedule, &mut now, 50, 3)[1..], [1024; 2]);
    }

    #[test]
    fn a_program_that_begins_to_call_slowly_waits_for_no_more_than_one_interval_of_calls() {
        let (schedule, mut now) = (Schedule::new(1024), clock::ticks());
        epochs(&schedule, &mut now, 50, 3);
        let first = epochs(&schedule, &mut now, 200_000, 3);
        assert!(first[0] <= SLOW_PATH_INTERVAL && first[1..].iter().all(|&calls| calls <= 7), "{first:?}");
    }

    #[test]
    fn the_slow_path_comes_in_time_too_where_calls_are_rare() {
        let (schedule, mut now) = (Schedule::new(1024), clock::ticks());
        epochs(&schedule, &mut now, 200_000, 5);
        schedule.set_slow_path(SLOW_PATH_INTERVAL);
        assert!(until_slow_path(&schedule) <= 2, "250 µs are over");
    }

    #[test]
    fn messages_count_as_calls_and_the_next_call_is_not_skipped() {
        for (messages, left) in [(1, 9), (4, 6), (9, 1), (10, 1), (500, 1)] {
            let schedule = fast(1024);
            assert_eq!(until_slow_path(&schedule), 1);
            schedule.set_slow_path(10);
            assert!(!schedule.count_call());
            schedule.received(messages);
            assert_eq!(until_slow_path(&schedule), left, "after {messages} messages");
        }
    }

    #[test]
    fn what_brings_the_slow_path_or_the_epoch_forward_does_so_and_puts_neither_off() {
        let schedule = fast(1024);
        schedule.set_slow_path(10);
        schedule.slow_path_within(50);
        schedule.slow_path_within(3);
        schedule.slow_path_within(7);
        assert_eq!(until_slow_path(&schedule), 3);
        schedule.set_slow_path(10);
        assert!(!schedule.is_epoch_due());
        schedule.begin_epoch_now();
        assert!(
            schedule.count_call() && schedule.look() && schedule.is_epoch_due(),
            "the next call begins one"
        );
        schedule.set_epoch(3);
        let are_due = [(); 3].map(|()| {
            schedule.count_call();
            schedule.is_epoch_due()
        });
        assert_eq!(are_due, [false, false, true], "after three calls");
    }

    #[test]
    fn the_first_message_is_received_alone_and_those_of_a_burst_together() {
        let schedule = fast(1024);
        schedule.set_slow_path(64);
        schedule.count_call();
        assert_eq!(schedule.limit(16), 1);
        schedule.received(1);
        schedule.count_call();
        assert_eq!(schedule.limit(16), 16, "the call before has received one");
        schedule.received(16);
        // A call that has received nothing.
        schedule.count_call();
        schedule.count_call();
        assert_eq!(schedule.limit(16), 1);
    }

    #[test]
    fn after_a_burst_the_slow_path_comes_soon_and_receives_all() {
        let schedule = fast(1024);
        schedule.set_slow_path(64);
        schedule.count_call();
        schedule.received(5);
        schedule.back_off();
        assert_eq!(until_slow_path(&schedule), BURST_BACKOFF as u32);
        assert_eq!(schedule.limit(16), 16);
        schedule.count_call();
        assert_eq!(schedule.limit(16), 1);
    }
}
