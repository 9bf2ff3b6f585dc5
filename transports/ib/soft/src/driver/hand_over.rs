//! What an application and the device's thread tell one another: when the one last drove the device, and when the other one looks next.
//!
//! For the driver. Both times may be old when they are read, so what depends on them is compared under the port's lock, or costs one look
//! within [`LONGEST_INTERVAL`].

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::stand_back::{LONGEST_INTERVAL, StandBack};
use crate::engine::Nanos;

/// Both times.
pub struct HandOver {
    /// When an application last drove the device; 0 once it has handed over.
    driven: AtomicU64,
    /// When the thread looks by itself; 0 if there is none.
    looks: AtomicU64,
}

impl HandOver {
    pub fn new(has_thread: bool) -> HandOver {
        HandOver { driven: AtomicU64::new(0), looks: AtomicU64::new(if has_thread { Nanos::MAX } else { 0 }) }
    }

    /// An application drives the device.
    pub fn is_driven(&self, now: Nanos) {
        // SYNC: a hint for `stands_back`; nothing is read by it.
        self.driven.store(now, Ordering::Relaxed);
    }

    /// The application has driven the device, and something is due at `next`. Returns whether the thread has to be woken to see that in time: it finds
    /// out by itself when it looks whether the application is idle. The caller has the port's lock.
    pub fn must_wake(&self, now: Nanos, next: Nanos) -> bool {
        // SYNC: pairs with `looks_at`, which is under the port's lock as well, and with `stands_back`, which stores an early time.
        let is_late = next + LONGEST_INTERVAL < self.looks.load(Ordering::Relaxed);
        if is_late {
            self.looks.store(now, Ordering::Relaxed);
        }
        is_late
    }

    /// The application will not drive the device for a while. Returns whether there is a thread to be woken.
    pub fn hand_over(&self) -> bool {
        // SYNC: the write that wakes the thread comes behind it, and `stands_back` behind the read of that.
        self.driven.store(0, Ordering::Relaxed);
        self.looks.load(Ordering::Relaxed) != 0
    }

    /// The thread leaves the device to an application that drives it, until the returned interval is over; `None` if it takes over.
    pub fn stands_back(&self, stand_back: &mut StandBack, now: Nanos) -> Option<Nanos> {
        // SYNC: pairs with `is_driven` and `hand_over`.
        let interval = stand_back.look(now, self.driven.load(Ordering::Relaxed))?;
        // SYNC: pairs with `must_wake`.
        self.looks.store(now + interval, Ordering::Relaxed);
        Some(interval)
    }

    /// The thread has worked, and looks at this time. The caller has the port's lock, so that no application compares a deadline with an older time.
    pub fn looks_at(&self, time: Nanos) {
        // SYNC: pairs with `must_wake`.
        self.looks.store(time, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_for_what_it_would_see_too_late_and_for_nothing_else() {
        const NOW: Nanos = 50 * LONGEST_INTERVAL;
        const DUE: Nanos = NOW + 7;
        let hand_over = HandOver::new(true);
        assert!(hand_over.must_wake(NOW, DUE), "it sleeps for ever");
        assert!(!hand_over.must_wake(NOW, DUE), "it is about to look");
        hand_over.looks_at(DUE + LONGEST_INTERVAL);
        assert!(!hand_over.must_wake(NOW, DUE), "that is soon enough");
        hand_over.looks_at(DUE + LONGEST_INTERVAL + 1);
        assert!(hand_over.must_wake(NOW, DUE));
        // It stands back from an application that has just driven the device, and looks soon.
        let mut stand_back = StandBack::default();
        hand_over.looks_at(Nanos::MAX);
        hand_over.is_driven(NOW);
        assert!(hand_over.stands_back(&mut stand_back, NOW).is_some_and(|interval| interval > 0));
        assert!(!hand_over.must_wake(NOW, DUE));
        assert!(hand_over.hand_over());
        assert_eq!(hand_over.stands_back(&mut stand_back, NOW), None, "nobody else drives it");
    }

    #[test]
    fn without_a_thread_nobody_is_woken() {
        let hand_over = HandOver::new(false);
        assert!(!hand_over.must_wake(LONGEST_INTERVAL, LONGEST_INTERVAL + 1) && !hand_over.hand_over());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Mutex};

    const NOW: Nanos = 10 * LONGEST_INTERVAL;
    const DUE: Nanos = NOW + 5;

    /// A device with at most one deadline, and whether the thread is to be woken.
    struct Device {
        hand_over: HandOver,
        due: Mutex<Option<Nanos>>,
        wake: AtomicBool,
    }

    impl Device {
        /// A pass of the thread. Returns whether it has taken over.
        fn look(&self, stand_back: &mut StandBack) -> bool {
            if self.hand_over.stands_back(stand_back, NOW).is_some() {
                return false;
            }
            let due = self.due.lock().unwrap();
            self.hand_over.looks_at(due.unwrap_or(Nanos::MAX));
            true
        }
    }

    /// An application makes a deadline and drives the device, while the thread looks: at first, and again if it is woken.
    fn run(hands_over: bool) {
        loom::model(move || {
            let hand_over = HandOver::new(true);
            let device = Arc::new(Device { hand_over, due: Mutex::new(None), wake: AtomicBool::new(false) });
            let application = Arc::clone(&device);
            let application = loom::thread::spawn(move || {
                let mut due = application.due.lock().unwrap();
                application.hand_over.is_driven(NOW);
                *due = Some(DUE);
                if application.hand_over.must_wake(NOW, DUE) {
                    application.wake.store(true, Ordering::Release);
                }
                drop(due);
                if hands_over && application.hand_over.hand_over() {
                    application.wake.store(true, Ordering::Release);
                }
            });
            let mut stand_back = StandBack::default();
            let mut has_device = device.look(&mut stand_back);
            if device.wake.swap(false, Ordering::Acquire) {
                has_device = device.look(&mut stand_back);
            }
            application.join().unwrap();
            if device.wake.load(Ordering::Acquire) {
                return;
            }
            // It sleeps until then.
            let looks = device.hand_over.looks.load(Ordering::Relaxed);
            assert!(looks <= DUE + LONGEST_INTERVAL, "the deadline is seen at {looks}");
            assert!(!hands_over || has_device || looks <= NOW + LONGEST_INTERVAL, "nobody drives the device");
        });
    }

    #[test]
    fn a_deadline_that_an_application_makes_is_seen_in_time() {
        run(false);
    }

    #[test]
    fn a_device_that_is_handed_over_is_driven() {
        run(true);
    }
}
