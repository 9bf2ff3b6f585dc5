//! Loom models: every interleaving of the worker's thread and the other side, in short runs.
//!
//! Run with `cargo xtask test models`.

use ucs::sync::{Arc, thread};

use super::Lock;

/// The worker's wait is a loop: one that goes on for so many steps has not ended.
const STEPS: usize = 2_000;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = STEPS;
    builder.check(model);
}

/// What the sides have done, by side. Neither half is atomic: loom tells if both are at it at once.
#[derive(Default)]
struct Done {
    by_worker: u32,
    by_other: u32,
}

#[test]
fn one_side_has_the_value_at_a_time_and_sees_what_the_other_has_done() {
    explore(|| {
        let lock = Arc::new(Lock::new(Done::default()));
        let other = Arc::clone(&lock);
        let side = thread::spawn(move || {
            let mut done = 0;
            for _ in 0..2 {
                done += u32::from(other.visit(|value: &mut Done| value.by_other += 1).is_some());
            }
            done
        });
        for turn in 0..2 {
            // SAFETY: only this thread of the model enters.
            let outer = unsafe { lock.enter() };
            // SAFETY: as above.
            let inner = unsafe { lock.enter() };
            inner.with(|value| value.by_worker += 1);
            drop(inner);
            outer.with(|value| assert_eq!(value.by_worker, turn + 1));
        }
        let done = side.join().expect("the other side does not panic");
        let seen = lock.visit(|value| (value.by_worker, value.by_other));
        assert_eq!(seen, Some((2, done)), "nobody holds it any more");
    });
}

#[test]
fn word_that_was_left_is_found_at_the_latest_with_the_next_look() {
    explore(|| {
        let lock = Arc::new(Lock::new(0u32));
        let other = Arc::clone(&lock);
        let side = thread::spawn(move || other.visit(|value: &mut u32| *value += 1).is_some());
        // SAFETY: only this thread of the model enters.
        let guard = unsafe { lock.enter() };
        guard.with(|value| *value += 1);
        drop(guard);
        let was_told = lock.take_due();
        let has_entered = side.join().expect("the other side does not panic");
        let is_told = lock.take_due();
        assert_eq!(u32::from(was_told) + u32::from(is_told), u32::from(!has_entered));
        assert!(!lock.take_due(), "word is left once");
    });
}
