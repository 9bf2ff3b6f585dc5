//! Models of what crosses threads in the callback queue: every interleaving, within loom's memory model.
//! Built on the queue's public face.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::{CallbackId, CallbackQ, CallbackQHandle};

/// Counts its calls in the `Cell` that its argument points to; only the dispatching thread calls it.
unsafe extern "C" fn tally(argument: *mut c_void) -> u32 {
    // SAFETY: the models keep the cell until the queue is gone.
    let calls = unsafe { &*argument.cast::<Cell<u32>>() };
    calls.set(calls.get() + 1);
    1
}

/// An argument for a thread that only passes it back.
struct Argument(*mut c_void);

// SAFETY: the dispatching thread alone follows the pointer.
unsafe impl Send for Argument {}

fn argument(calls: &Cell<u32>) -> Argument {
    Argument(ptr::from_ref(calls).cast_mut().cast())
}

fn add(handle: &CallbackQHandle, argument: Argument) -> CallbackId {
    // SAFETY: the cell outlives the queue.
    unsafe { handle.add(tally, argument.0) }.expect("the queue lives")
}

/// Explores all interleavings with up to three preemptions, which bounds a model to seconds.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

#[test]
fn an_addition_is_never_missed() {
    model(|| {
        let calls = Cell::new(0);
        let queue = CallbackQ::new();
        let (handle, argument) = (queue.handle(), argument(&calls));
        let other = thread::spawn(move || {
            let argument = argument;
            add(&handle, argument)
        });
        let early = queue.dispatch();
        let id = other.join().expect("the thread does not panic");
        assert_eq!(queue.dispatch(), 1);
        assert_eq!(calls.get(), early + 1);
        assert!(queue.remove(id).is_some());
    });
}

#[test]
fn a_removal_is_never_missed_and_then_means_never_again() {
    model(|| {
        let calls = Cell::new(0);
        let queue = CallbackQ::new();
        let id = add(&queue.handle(), argument(&calls));
        let handle = queue.handle();
        let told = Arc::new(AtomicUsize::new(0));
        let tell = told.clone();
        let other = thread::spawn(move || {
            let then = move || _ = tell.fetch_add(1, Ordering::Relaxed);
            handle.remove_then(id, then).expect("the queue lives");
        });
        queue.dispatch();
        if told.load(Ordering::Relaxed) == 1 {
            assert_eq!(calls.get(), 0);
        }
        other.join().expect("the thread does not panic");
        let before = calls.get();
        assert_eq!(queue.dispatch(), 0);
        assert_eq!((calls.get(), told.load(Ordering::Relaxed)), (before, 1));
        assert!(queue.is_empty());
    });
}

#[test]
fn two_threads_and_two_dispatches_lose_nothing() {
    model(|| {
        let queue = CallbackQ::new();
        let threads = [1, 10].map(|amount| {
            let handle = queue.handle();
            thread::spawn(move || handle.add_oneshot(0, move || amount).expect("the queue lives"))
        });
        let mut count = queue.dispatch();
        count += queue.dispatch();
        for thread in threads {
            thread.join().expect("the thread does not panic");
        }
        count += queue.dispatch();
        assert_eq!(count, 11);
        assert_eq!(queue.dispatch(), 0);
    });
}

#[test]
fn clearing_the_work_does_not_swallow_a_change() {
    model(|| {
        let queue = CallbackQ::new();
        // Work for something local, so that the dispatch below clears it while the other thread posts.
        queue.add_oneshot(0, || 1);
        let handle = queue.handle();
        let other = thread::spawn(move || handle.add_oneshot(0, || 10).expect("the queue lives"));
        let mut count = queue.dispatch();
        other.join().expect("the thread does not panic");
        count += queue.dispatch();
        assert_eq!(count, 11);
    });
}

#[test]
fn a_change_to_a_queue_that_is_dropped_is_applied_or_refused() {
    model(|| {
        let calls = Cell::new(0);
        let queue = CallbackQ::new();
        let id = add(&queue.handle(), argument(&calls));
        let handle = queue.handle();
        let told = Arc::new(AtomicUsize::new(0));
        let tell = told.clone();
        let other = thread::spawn(move || {
            let then = move || _ = tell.fetch_add(1, Ordering::Relaxed);
            handle.remove_then(id, then).is_ok()
        });
        drop(queue);
        let accepted = other.join().expect("the thread does not panic");
        assert_eq!(told.load(Ordering::Relaxed), usize::from(accepted));
        assert_eq!(calls.get(), 0);
    });
}
