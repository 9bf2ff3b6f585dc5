//! Which callbacks are idle, and when a dispatch calls them. Time passes only where a test says so.

use std::cell::Cell;
use std::ffi::c_void;

use super::*;

const MICROSECOND: u64 = 1_000;
const SLOWLY: u64 = 2 * SLOW.as_nanos() as u64;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn now() -> u64 {
    NOW.get()
}

fn pass(nanoseconds: u64) {
    NOW.set(NOW.get() + nanoseconds);
}

/// A callback that counts its calls, takes a time, and returns a result.
#[derive(Default)]
struct Scripted {
    calls: Cell<u32>,
    takes: Cell<u64>,
    events: Cell<u32>,
    /// What else it does.
    then: Option<Box<dyn Fn()>>,
}

unsafe extern "C" fn call(argument: *mut c_void) -> u32 {
    // SAFETY: `Scene` keeps the callback until its queue is gone.
    let scripted = unsafe { &*argument.cast::<Scripted>() };
    scripted.calls.set(scripted.calls.get() + 1);
    pass(scripted.takes.get());
    scripted.then.iter().for_each(|then| then());
    scripted.events.get()
}

/// A queue and its callbacks.
struct Scene {
    queue: Rc<CallbackQ>,
    ids: Vec<CallbackId>,
    callbacks: Vec<Rc<Scripted>>,
}

impl Scene {
    /// A queue with so many callbacks, which do nothing.
    fn new(callbacks: usize) -> Scene {
        NOW.set(1_000_000_000);
        let queue = Rc::new(CallbackQ::with_clock(PendingWork::new(), now));
        let mut scene = Scene { queue, ids: Vec::new(), callbacks: Vec::new() };
        (0..callbacks).for_each(|_| scene.add(Scripted::default()));
        scene
    }

    /// As [`Scene::new`]; the first is busy, and the others are idle and take so many nanoseconds. The last dispatch was a check.
    fn idle(others: usize, takes: u64) -> Scene {
        let scene = Scene::new(1 + others);
        scene.callbacks[0].events.set(1);
        scene.dispatch(2 * TERM);
        // The last of these calls is a check, so that their time is known.
        scene.callbacks[1..].iter().for_each(|callback| callback.takes.set(takes));
        scene.dispatch(IDLE_INTERVAL);
        scene.calls();
        scene
    }

    fn add(&mut self, scripted: Scripted) {
        let scripted = Rc::new(scripted);
        let argument = Rc::as_ptr(&scripted).cast_mut().cast();
        // SAFETY: the scene keeps it, and removes it first.
        self.ids.push(unsafe { self.queue.add(call, argument) });
        self.callbacks.push(scripted);
    }

    fn dispatch(&self, times: u32) {
        self.dispatch_each(times, 0);
    }

    /// Dispatches, each so many nanoseconds after the last.
    fn dispatch_each(&self, times: u32, nanoseconds: u64) {
        for _ in 0..times {
            pass(nanoseconds);
            self.queue.dispatch();
        }
    }

    /// Calls of each callback since the last time.
    fn calls(&self) -> Vec<u32> {
        self.callbacks.iter().map(|callback| callback.calls.take()).collect()
    }

    /// The calls of the first one, and of all others, which have as many each.
    fn calls_of_first_and_others(&self) -> (u32, u32) {
        let calls = self.calls();
        assert!(calls[1..].iter().all(|&of| of == calls[1]), "{calls:?}");
        (calls[0], calls[1])
    }

    /// Dispatches until the last callback is called; returns the nanoseconds that takes.
    fn time_until_last(&self, nanoseconds: u64) -> u64 {
        let (begin, last) = (now(), self.callbacks.last().expect("a callback"));
        last.calls.set(0);
        while last.calls.get() == 0 {
            assert!(now() - begin < 1_000_000_000, "it is never called");
            self.dispatch_each(1, nanoseconds);
        }
        now() - begin
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ids.drain(..).for_each(|id| _ = self.queue.remove(id));
    }
}

#[test]
fn nothing_is_idle_before_the_first_event() {
    for callbacks in [2, 5, FAST_SLOTS] {
        let scene = Scene::new(callbacks);
        scene.dispatch_each(3 * TERM, 20);
        assert!(scene.calls().iter().all(|&calls| calls == 3 * TERM));
    }
}

#[test]
fn what_does_nothing_for_a_term_while_another_does_something_is_idle() {
    for others in [1, 3, FAST_SLOTS - 1] {
        let scene = Scene::new(1 + others);
        // An event now and then is enough.
        for _ in 0..6 {
            scene.callbacks[0].events.set(1);
            scene.dispatch(1);
            scene.callbacks[0].events.set(0);
            scene.dispatch(TERM / 2 - 1);
        }
        scene.calls();
        scene.dispatch(TERM);
        // Time does not pass, so each check calls them.
        assert_eq!(scene.calls_of_first_and_others(), (TERM, TERM / IDLE_INTERVAL));
    }
}

#[test]
fn what_does_something_is_called_each_time_until_it_has_done_nothing_for_a_term() {
    let scene = Scene::idle(3, 0);
    scene.callbacks[2].events.set(1);
    scene.dispatch(IDLE_INTERVAL);
    assert_eq!(scene.calls(), [IDLE_INTERVAL, 1, 1, 1], "found by a check");
    scene.callbacks[2].events.set(0);
    scene.dispatch(TERM / 2);
    let in_checks = TERM / 2 / IDLE_INTERVAL;
    assert_eq!(scene.calls(), [TERM / 2, in_checks, TERM / 2, in_checks]);
    scene.dispatch(2 * TERM);
    scene.calls();
    scene.dispatch(IDLE_INTERVAL);
    assert_eq!(scene.calls(), [IDLE_INTERVAL, 1, 1, 1], "it is idle again");
}

#[test]
fn what_was_active_alone_stays_active_when_another_becomes_active() {
    // Its last event is one that no check sees. The other one becomes active in the last check of a term.
    for dispatches in 1..2 * TERM / IDLE_INTERVAL {
        let scene = Scene::idle(2, 0);
        scene.callbacks[0].events.set(0);
        scene.dispatch((dispatches - 1) * IDLE_INTERVAL);
        scene.callbacks[1].events.set(1);
        scene.dispatch(IDLE_INTERVAL);
        scene.callbacks[1].events.set(0);
        scene.calls();
        scene.dispatch(IDLE_INTERVAL);
        assert_eq!(scene.calls(), [IDLE_INTERVAL, IDLE_INTERVAL, 1]);
    }
}

#[test]
fn silence_activates_nothing() {
    let scene = Scene::idle(4, 0);
    scene.callbacks[0].events.set(0);
    scene.dispatch(3 * TERM);
    scene.calls();
    scene.dispatch(TERM);
    assert_eq!(scene.calls_of_first_and_others(), (TERM, TERM / IDLE_INTERVAL));
}

#[test]
fn what_is_idle_gets_its_share_of_the_time_and_a_pace() {
    // Microseconds for each idle callback from one call to the next.
    for (takes, pace) in [(10, 0.32), (50, 1.6), (200, 4.0), (10_000, 4.0)] {
        for others in [1, 5, 15] {
            let scene = Scene::idle(others, takes);
            let each = 20;
            scene.dispatch_each(4 * TERM, each);
            let begin = now();
            scene.calls();
            scene.dispatch_each(16 * TERM, each);
            let rounds = f64::from(scene.calls()[1]);
            let period = (now() - begin) as f64 / 1000.0 / rounds;
            // A check comes once in 64 dispatches, and one of them is late by the calls of the others.
            let least = pace * others as f64;
            let most = least + (each * 64 + takes * others as u64) as f64 / 1000.0;
            assert!((least * 0.99..most * 1.01).contains(&period), "{takes} ns, {others}: {period} µs");
        }
    }
}

#[test]
fn an_idle_callback_is_called_within_the_check_delay() {
    for others in [1, 7, FAST_SLOTS - 1] {
        let scene = Scene::idle(others, 200);
        for each in [5, 30, 100, 1_000, 10_000, 50_000, 3_000_000] {
            scene.dispatch_each(1000, each);
            let checks = u64::from(IDLE_INTERVAL) * each;
            let delay = 4 * MICROSECOND * others as u64 + checks.min(SLOWLY).max(each);
            for _ in 0..100 {
                let time = scene.time_until_last(each);
                let calls_of_others = 200 * 2 * others as u64;
                assert!(time <= delay + calls_of_others, "{others}, {each} ns: {time} of {delay} ns");
            }
        }
    }
}

#[test]
fn a_program_that_dispatches_between_pauses_finds_an_event_in_the_pause_or_the_next() {
    for burst in [1, 2, 3, 10, 50] {
        let scene = Scene::idle(15, 200);
        let pause = || {
            pass(16_000 * MICROSECOND);
            scene.dispatch(burst);
        };
        (0..2 * IDLE_INTERVAL).for_each(|_| pause());
        scene.calls();
        for _ in 0..50 {
            pause();
            pause();
            assert!(scene.calls().iter().all(|&calls| calls > 0), "{burst} dispatches in a row");
        }
    }
}

#[test]
fn one_interruption_activates_nothing() {
    let scene = Scene::idle(15, 200);
    scene.dispatch_each(1000, 30);
    scene.calls();
    pass(1000 * SLOWLY);
    scene.dispatch(2 * IDLE_INTERVAL);
    assert_eq!(scene.calls_of_first_and_others(), (2 * IDLE_INTERVAL, 1), "one check calls all");
}

#[test]
fn after_check_all_the_next_dispatch_calls_all_and_the_others_call_as_before() {
    let scene = Scene::idle(4, 200);
    for between in [0, 1, 62, 63, 64, 65] {
        scene.dispatch_each(between, 10);
        scene.calls();
        scene.queue.check_all();
        scene.queue.check_all();
        scene.dispatch(1);
        assert_eq!(scene.calls_of_first_and_others(), (1, 1), "{between}");
        scene.dispatch_each(IDLE_INTERVAL, 10);
        assert_eq!(scene.calls_of_first_and_others(), (IDLE_INTERVAL, 0), "{between}");
    }
    scene.callbacks[3].events.set(1);
    scene.queue.check_all();
    scene.dispatch(1);
    scene.callbacks[3].events.set(0);
    scene.calls();
    scene.dispatch(100);
    assert_eq!(scene.calls(), [100, 0, 0, 100, 0], "it had an event");
}

#[test]
fn what_is_activated_is_called_each_time_until_it_has_done_nothing_for_a_term() {
    let scene = Scene::idle(3, 200);
    scene.dispatch_each(10, 10);
    scene.calls();
    (0..2).for_each(|_| scene.queue.activate(scene.ids[2]));
    scene.dispatch(IDLE_INTERVAL - 1);
    assert_eq!(scene.calls(), [IDLE_INTERVAL - 1, 0, IDLE_INTERVAL - 1, 0]);
    scene.dispatch(2 * TERM);
    scene.calls();
    scene.dispatch_each(IDLE_INTERVAL, MICROSECOND);
    assert_eq!(
        scene.calls_of_first_and_others(),
        (IDLE_INTERVAL, 1),
        "it is idle again, and the first one is not"
    );

    // One of an unknown id, and one that is active.
    scene.queue.activate(CallbackId::new(u64::MAX).expect("a number"));
    scene.queue.activate(scene.ids[0]);
    scene.dispatch_each(IDLE_INTERVAL, MICROSECOND);
    assert_eq!(scene.calls_of_first_and_others(), (IDLE_INTERVAL, 1));
}

#[test]
fn what_a_callback_activates_is_called_by_the_next_dispatch() {
    let mut scene = Scene::new(0);
    let (queue, activated) = (Rc::downgrade(&scene.queue), Rc::new(Cell::new(None::<CallbackId>)));
    let id = Rc::clone(&activated);
    let activates = move || {
        if let Some(id) = id.take() {
            queue.upgrade().expect("it dispatches").activate(id);
        }
    };
    scene.add(Scripted { events: Cell::new(1), then: Some(Box::new(activates)), ..Scripted::default() });
    scene.add(Scripted::default());
    scene.dispatch(2 * TERM);
    scene.calls();
    activated.set(Some(scene.ids[1]));
    scene.dispatch(2);
    assert_eq!(scene.calls(), [2, 1]);
}

#[test]
fn terms_end_in_a_program_that_has_all_checked_all_the_time() {
    for between in [1, 2, 10, 63, 64, 65] {
        let scene = Scene::new(4);
        scene.callbacks[1..].iter().for_each(|callback| callback.takes.set(200));
        scene.callbacks[0].events.set(1);
        for _ in 0..2 * TERM / between {
            // Asleep.
            pass(SLOWLY);
            scene.queue.check_all();
            scene.dispatch_each(between, 10);
        }
        scene.calls();
        scene.queue.check_all();
        scene.dispatch_each(IDLE_INTERVAL - 1, 10);
        assert_eq!(scene.calls_of_first_and_others(), (IDLE_INTERVAL - 1, 1), "{between}");
    }
}

#[test]
fn having_all_checked_does_not_shorten_a_term() {
    let scene = Scene::new(2);
    scene.callbacks[0].events.set(1);
    for _ in 0..TERM - 1 {
        scene.queue.check_all();
        scene.dispatch(1);
    }
    scene.calls();
    scene.dispatch(1);
    assert_eq!(scene.calls(), [1, 1]);
    scene.dispatch(IDLE_INTERVAL);
    scene.calls();
    scene.dispatch(IDLE_INTERVAL);
    assert_eq!(scene.calls(), [IDLE_INTERVAL, 1]);
}

#[test]
fn what_is_added_or_moved_is_active() {
    let mut scene = Scene::idle(3, 200);
    scene.add(Scripted::default());
    scene.dispatch(TERM / 2);
    assert!(scene.calls().iter().all(|&calls| calls == TERM / 2));
    scene.dispatch(2 * TERM);
    // The others move up by one slot.
    scene.queue.remove(scene.ids.remove(1));
    scene.callbacks.remove(1);
    scene.calls();
    scene.dispatch(TERM / 2);
    assert!(scene.calls().iter().all(|&calls| calls == TERM / 2));
}

#[test]
fn the_only_active_one_is_not_called_after_its_removal() {
    let mut scene = Scene::idle(2, 200);
    scene.queue.remove(scene.ids.remove(0));
    scene.dispatch(3 * TERM);
    assert_eq!(scene.calls(), [0, 3 * TERM, 3 * TERM]);
}

#[test]
fn what_is_dispatched_inside_a_callback_counts_as_any_other_dispatch() {
    let mut scene = Scene::new(0);
    let (queue, depth) = (Rc::downgrade(&scene.queue), Cell::new(0));
    let again = move || {
        if depth.get() < 2 {
            depth.set(depth.get() + 1);
            queue.upgrade().expect("it dispatches").dispatch();
            depth.set(depth.get() - 1);
        }
    };
    scene.add(Scripted { events: Cell::new(1), then: Some(Box::new(again)), ..Scripted::default() });
    (0..3).for_each(|_| scene.add(Scripted::default()));
    scene.dispatch(2 * TERM);
    scene.calls();
    let dispatches = 3 * 8 * IDLE_INTERVAL;
    scene.dispatch(dispatches / 3);
    assert_eq!(scene.calls_of_first_and_others(), (dispatches, dispatches / IDLE_INTERVAL));
    // An idle one is found, whichever dispatch finds it.
    scene.callbacks[3].events.set(1);
    scene.dispatch(IDLE_INTERVAL);
    scene.calls();
    scene.dispatch(IDLE_INTERVAL);
    let calls = scene.calls();
    assert_eq!(calls[3], calls[0]);
}
