//! Work that other threads have the engine's own thread do, where transports are bound to it.

#![expect(unsafe_code, reason = "work that borrows of a thread that waits for it")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};

use super::doorbell::Doorbell;
use super::lock::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Work that waits for the engine's thread.
#[derive(Default)]
pub(super) struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
}

/// Whether a job is over: done, or dropped in a panic.
#[derive(Default)]
struct Over {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// Ends the wait of the thread that has a job done, however the job ends.
struct End(Arc<Over>);

impl Drop for End {
    fn drop(&mut self) {
        *lock(&self.0.is_over) = true;
        self.0.changed.notify_one();
    }
}

impl Jobs {
    /// Has the engine's thread do it, and waits for that. A panic becomes one of the calling thread. Not to be called in that thread.
    pub(super) fn run<R: Send>(&self, doorbell: &Doorbell, work: impl FnOnce() -> R + Send) -> R {
        let mut outcome = None;
        let over = Arc::new(Over::default());
        let end = End(Arc::clone(&over));
        let place = &mut outcome;
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            // What it used is as a thread leaves it that panics under the engine's lock, which other threads go on with.
            *place = Some(catch_unwind(AssertUnwindSafe(work)));
            drop(end);
        });
        // SAFETY: the job is run or dropped before `End` ends the wait below, so what it borrows lives as long as it does. `end` is
        // dropped last: explicitly when it is run, and as the last of what the closure holds when it is dropped.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        lock(&self.waiting).push_back(job);
        doorbell.ring();
        let is_over = over.changed.wait_while(lock(&over.is_over), |is_over| !*is_over);
        drop(is_over);
        match outcome.expect("the engine's thread does what it is given") {
            Ok(output) => output,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Does what waits. Only the engine's thread calls it. Returns whether there was anything.
    pub(super) fn work(&self) -> bool {
        let mut has_worked = false;
        loop {
            let Some(job) = lock(&self.waiting).pop_front() else { return has_worked };
            job();
            has_worked = true;
        }
    }
}
