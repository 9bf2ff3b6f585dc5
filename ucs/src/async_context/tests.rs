//! The behaviours of the context, in every mode. Each test ends within a watchdog's time.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::*;
use crate::event_set::{EventBuffer, EventFd, EventSet};
use crate::memory::fork::in_child;

const MODES: [Mode; 2] = [Mode::Thread, Mode::Poll];
const LIMIT: Duration = Duration::from_secs(60);
/// Long enough for anything that is about to happen to have happened.
const SETTLE: Duration = Duration::from_millis(30);

#[test]
fn a_child_of_a_fork_drops_a_context_that_another_thread_was_using() {
    let mut context = Some(AsyncContext::new(Mode::Thread));
    let shared = Arc::clone(&context.as_ref().unwrap().shared);
    let (locked, is_locked) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let registry = shared.registry();
        locked.send(()).unwrap();
        let _ = is_done.recv();
        drop(registry);
    });
    is_locked.recv_timeout(LIMIT).unwrap();
    assert!(in_child(|| {
        drop(context.take());
        true
    }));
    drop(done);
    thread.join().unwrap();
    drop(context);
}

/// Runs a test on a thread of its own and fails if it has not ended in time.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if finished.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test has not ended after {LIMIT:?}");
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn in_modes(modes: &'static [Mode], test: impl Fn(Mode) + Send + 'static) {
    watched(move || modes.iter().for_each(|&mode| test(mode)));
}

/// Polls until `condition` holds.
fn until(context: &AsyncHandle, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT / 2, "nothing happened");
        context.poll();
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Gives events that must not happen the time to happen.
fn settle(context: &AsyncHandle) {
    let start = Instant::now();
    while start.elapsed() < SETTLE {
        context.poll();
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until `count` handlers have been missed by the blocked context, or, in poll mode, would have been.
fn until_missed(context: &AsyncHandle, count: usize) {
    settle(context);
    if context.mode() != Mode::Poll {
        until(context, || context.shared.registry().missed_count() == count);
    }
}

#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn value(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn increment(&self) {
        self.count();
    }

    /// Increments; returns the old value.
    fn count(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A handler that counts and lowers the flag.
fn counting(event: &Arc<EventFd>, counter: &Counter) -> impl FnMut(HandlerId, Events) + Send + 'static {
    let (event, counter) = (event.clone(), counter.clone());
    move |_, _| {
        event.drain();
        counter.increment();
    }
}

fn event() -> Arc<EventFd> {
    Arc::new(EventFd::new().unwrap())
}

const SOON: Schedule = Schedule::Once(Duration::from_millis(2));

#[test]
fn an_event_calls_its_handler_each_time_and_no_more_often() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        settle(&context);
        assert_eq!(counter.value(), 0);
        for expected in 1..=5 {
            event.signal();
            until(&context, || counter.value() == expected);
        }
        settle(&context);
        assert_eq!(counter.value(), 5);
    });
}

#[test]
fn a_state_that_lasts_is_reported_again() {
    in_modes(&MODES, |mode| {
        let (context, counter) = (AsyncContext::new(mode), Counter::default());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.write_all(b"abc").unwrap();
        let (count, source) = (counter.clone(), far.try_clone().unwrap());
        context
            .add_fd(&source, Events::READ, move |_, events| {
                assert_eq!(events, Events::READ);
                far.read_exact(&mut [0]).unwrap();
                count.increment();
            })
            .unwrap();
        until(&context, || counter.value() == 3);
    });
}

#[test]
fn a_hang_up_is_reported_unasked() {
    in_modes(&MODES, |mode| {
        let (context, seen) = (AsyncContext::new(mode), Arc::new(Mutex::new(Events::empty())));
        let (near, far) = UnixStream::pair().unwrap();
        let (handle, record) = (AsyncHandle::clone(&context), seen.clone());
        context
            .add_fd(&far, Events::empty(), move |id, events| {
                *record.lock().unwrap() = events;
                handle.remove(id).unwrap();
            })
            .unwrap();
        drop(near);
        until(&context, || context.handler_count() == 0);
        assert_eq!(*seen.lock().unwrap(), Events::ERROR);
    });
}

#[test]
fn a_timer_runs_once_or_again_and_again() {
    in_modes(&MODES, |mode| {
        let context = AsyncContext::new(mode);
        let (once, often) = (Counter::default(), Counter::default());
        let (count_once, count_often) = (once.clone(), often.clone());
        let start = Instant::now();
        context
            .add_timer(SOON, move |_, events| {
                assert_eq!(events, Events::TIMER);
                count_once.increment();
            })
            .unwrap();
        let every = Schedule::Every(Duration::from_millis(3));
        context.add_timer(every, move |_, _| count_often.increment()).unwrap();
        until(&context, || often.value() >= 5);
        // The clock's calibration may differ from the system's by some millionths.
        assert!(start.elapsed() >= Duration::from_micros(14_900), "{:?}", start.elapsed());
        assert_eq!(once.value(), 1);
    });
}

#[test]
fn timers_run_in_the_order_of_their_times() {
    in_modes(&MODES, |mode| {
        let (context, order) = (AsyncContext::new(mode), Arc::new(Mutex::new(Vec::new())));
        let guard = context.block();
        // Far enough from each other for a machine that stops the thread in between.
        for delay in [450, 150, 300] {
            let order = order.clone();
            let schedule = Schedule::Once(Duration::from_millis(delay));
            context.add_timer(schedule, move |_, _| order.lock().unwrap().push(delay)).unwrap();
        }
        drop(guard);
        until(&context, || order.lock().unwrap().len() == 3);
        assert_eq!(*order.lock().unwrap(), [150, 300, 450]);
    });
}

#[test]
fn what_happens_while_blocked_runs_at_the_last_unblock_and_once() {
    in_modes(&MODES, |mode| {
        let (context, event) = (AsyncContext::new(mode), event());
        let (events, timers) = (Counter::default(), Counter::default());
        context.add_fd(&*event, Events::READ, counting(&event, &events)).unwrap();
        let count = timers.clone();
        let outer = context.block();
        context.add_timer(SOON, move |_, _| count.increment()).unwrap();
        let inner = context.block();
        event.signal();
        until_missed(&context, 2);
        assert_eq!((events.value(), timers.value()), (0, 0), "ran while blocked in {mode:?}");
        drop(inner);
        assert_eq!((events.value(), timers.value()), (0, 0), "ran while still blocked in {mode:?}");
        drop(outer);
        assert_eq!((events.value(), timers.value()), (1, 1), "not replayed by the unblock in {mode:?}");
        settle(&context);
        assert_eq!((events.value(), timers.value()), (1, 1));
        event.signal();
        until(&context, || events.value() == 2);
    });
}

#[test]
fn what_was_missed_and_then_removed_or_set_anew_does_not_run() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let fd = context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        let guard = context.block();
        let (removed, delayed) = (counter.clone(), counter.clone());
        let removed = context.add_timer(SOON, move |_, _| removed.increment()).unwrap();
        let delayed = context.add_timer(SOON, move |_, _| delayed.increment()).unwrap();
        event.signal();
        until_missed(&context, 3);
        context.remove(fd).unwrap();
        context.remove(removed).unwrap();
        context.modify_timer(delayed, Schedule::Once(Duration::from_millis(400))).unwrap();
        drop(guard);
        assert_eq!(counter.value(), 0);
        until(&context, || counter.value() == 1);
    });
}

#[test]
fn a_descriptor_that_stays_ready_does_not_delay_the_unblocking_thread() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let count = counter.clone();
        let here = std::thread::current().id();
        context
            .add_fd(&*event, Events::READ, move |_, _| {
                // The context's own thread goes on afterwards, as it should.
                if std::thread::current().id() == here {
                    count.increment();
                }
            })
            .unwrap();
        let guard = context.block();
        event.signal();
        until_missed(&context, 1);
        drop(guard);
        assert_eq!(counter.value(), 1, "{mode:?}");
    });
}

#[test]
fn a_handler_removes_itself_and_its_closure_is_dropped() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let (handle, count) = (AsyncHandle::clone(&context), counter.clone());
        let held = Arc::new(());
        let witness = Arc::downgrade(&held);
        let id = context
            .add_fd(&*event, Events::READ, move |id, _| {
                let _held = &held;
                handle.remove(id).unwrap();
                assert_eq!(handle.remove(id), Err(AsyncError::NoSuchHandler { id }));
                count.increment();
            })
            .unwrap();
        event.signal();
        until(&context, || counter.value() == 1 && witness.upgrade().is_none());
        settle(&context);
        assert_eq!(counter.value(), 1);
        assert_eq!(context.remove(id), Err(AsyncError::NoSuchHandler { id }));
        assert_eq!(context.handler_count(), 0);
    });
}

#[test]
fn a_handler_changes_what_it_waits_for() {
    in_modes(&MODES, |mode| {
        let (context, seen) = (AsyncContext::new(mode), Arc::new(Mutex::new(Vec::new())));
        let (mut near, far) = UnixStream::pair().unwrap();
        let (handle, record) = (AsyncHandle::clone(&context), seen.clone());
        context
            .add_fd(&far, Events::WRITE, move |id, events| {
                record.lock().unwrap().push(events);
                let next = if events == Events::WRITE { Events::READ } else { Events::empty() };
                handle.modify_fd(id, next).unwrap();
            })
            .unwrap();
        until(&context, || seen.lock().unwrap().len() == 1);
        settle(&context);
        near.write_all(b"x").unwrap();
        until(&context, || seen.lock().unwrap().len() == 2);
        settle(&context);
        assert_eq!(*seen.lock().unwrap(), [Events::WRITE, Events::READ]);
    });
}

#[test]
fn a_handler_adds_another_and_sets_its_own_timer_anew() {
    in_modes(&MODES, |mode| {
        let (context, counter, added) = (AsyncContext::new(mode), Counter::default(), Counter::default());
        let (handle, count, count_added) = (AsyncHandle::clone(&context), counter.clone(), added.clone());
        context
            .add_timer(SOON, move |id, _| {
                if count.count() < 2 {
                    handle.modify_timer(id, SOON).unwrap();
                } else {
                    let count_added = count_added.clone();
                    handle.add_timer(SOON, move |_, _| count_added.increment()).unwrap();
                }
            })
            .unwrap();
        until(&context, || added.value() == 1);
        settle(&context);
        assert_eq!((counter.value(), added.value()), (3, 1));
    });
}

#[test]
fn handlers_may_block_and_poll() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let (handle, count, flag) = (AsyncHandle::clone(&context), counter.clone(), event.clone());
        context
            .add_fd(&*event, Events::READ, move |_, _| {
                flag.drain();
                let _guard = handle.block();
                assert_eq!(handle.shared.poll_now(), 0);
                assert!(handle.is_blocked_here());
                count.increment();
            })
            .unwrap();
        event.signal();
        until(&context, || counter.value() == 1);
        assert!(!context.is_blocked_here());
    });
}

#[test]
fn remove_waits_for_a_handler_that_another_thread_runs() {
    in_modes(&MODES, |mode| {
        let (context, event) = (AsyncContext::new(mode), event());
        let (entered, returned) = (Counter::default(), Counter::default());
        let (count_entered, count_returned) = (entered.clone(), returned.clone());
        let signal = Arc::clone(&event);
        let id = context
            .add_fd(&*event, Events::READ, move |_, _| {
                signal.drain();
                count_entered.increment();
                std::thread::sleep(SETTLE);
                count_returned.increment();
            })
            .unwrap();
        event.signal();
        std::thread::scope(|scope| {
            let (polled, done) = (AsyncHandle::clone(&context), returned.clone());
            scope.spawn(move || until(&polled, || done.value() == 1));
            let start = Instant::now();
            while entered.value() == 0 {
                assert!(start.elapsed() < LIMIT / 2, "the handler was not called");
                std::thread::yield_now();
            }
            context.remove(id).unwrap();
            assert_eq!((entered.value(), returned.value()), (1, 1));
        });
    });
}

#[test]
fn a_handler_that_panics_is_removed_and_the_others_go_on() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let called = counter.clone();
        let bad = context
            .add_timer(Schedule::Every(Duration::from_millis(1)), move |_, _| {
                called.increment();
                panic!("planted");
            })
            .unwrap();
        until(&context, || context.handler_count() == 0);
        settle(&context);
        assert_eq!(counter.value(), 1);
        assert_eq!(context.remove(bad), Err(AsyncError::NoSuchHandler { id: bad }));
        context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        event.signal();
        until(&context, || counter.value() == 2);
    });
}

unsafe extern "C" fn count_in_c(argument: *mut c_void, id: u64, events: u32) {
    // SAFETY: the test passes a counter that outlives the registration.
    let counter = unsafe { &*argument.cast::<AtomicUsize>() };
    assert!(id >= 16 && events == 0);
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_function_in_c_is_called_with_its_argument() {
    in_modes(&MODES, |mode| {
        let counter = Counter::default();
        let context = AsyncContext::new(mode);
        let argument = Arc::as_ptr(&counter.0).cast_mut().cast::<c_void>();
        let handler = RawHandler { handler: count_in_c, argument };
        // SAFETY: the counter outlives the context, and is atomic.
        unsafe { context.add_timer_raw(SOON, handler) }.unwrap();
        until(&context, || counter.value() == 1);
        drop(context);
    });
}

#[test]
fn dropping_the_context_drops_closures_ends_the_thread_and_closes_handles() {
    in_modes(&MODES, |mode| {
        let (context, event) = (AsyncContext::new(mode), event());
        let handle = AsyncHandle::clone(&context);
        let (own, counter) = (handle.clone(), Counter::default());
        let (count, drained) = (counter.clone(), event.clone());
        let closure = move |_: HandlerId, _: Events| {
            drained.drain();
            assert!(own.handler_count() > 0);
            count.increment();
        };
        context.add_fd(&*event, Events::READ, closure).unwrap();
        event.signal();
        until(&context, || counter.value() == 1);
        assert_eq!(Arc::strong_count(&counter.0), 2, "the closure has the other one");
        let witness = Arc::downgrade(&context.handle.shared);
        drop(context);
        assert_eq!(Arc::strong_count(&counter.0), 1, "the closure is gone");
        assert_eq!(handle.handler_count(), 0);
        assert_eq!(handle.add_timer(SOON, |_, _| {}), Err(AsyncError::Closed));
        drop(handle);
        // Nothing but the thread could hold it now, and that one has at most to let go.
        let start = Instant::now();
        while witness.upgrade().is_some() {
            assert!(start.elapsed() < LIMIT / 2, "the thread has not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_handler_may_own_its_context() {
    watched(|| {
        let context = Arc::new(Mutex::new(Some(AsyncContext::new(Mode::Thread))));
        let (own, counter) = (context.clone(), Counter::default());
        let count = counter.clone();
        let held = context.lock().unwrap();
        let add = |context: &AsyncContext| {
            context.add_timer(SOON, move |_, _| {
                drop(own.lock().unwrap().take());
                count.increment();
            })
        };
        add(held.as_ref().unwrap()).unwrap();
        drop(held);
        let start = Instant::now();
        while counter.value() == 0 {
            assert!(start.elapsed() < LIMIT / 2, "the context waits for itself");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn no_thread_and_no_descriptor_exist_until_something_is_registered() {
    watched(|| {
        let context = AsyncContext::new(Mode::Thread);
        drop(context.block());
        assert!(context.handle.shared.io().is_none());
        assert_eq!(context.poll(), 0);
    });
}

#[test]
fn blocked_sections_of_several_threads_exclude_each_other_and_handlers() {
    in_modes(&MODES, |mode| {
        const THREADS: usize = 3;
        const ROUNDS: usize = 300;
        let context = AsyncContext::new(mode);
        let (inside, handled) = (Counter::default(), Counter::default());
        let (seen, count) = (inside.clone(), handled.clone());
        let exclusively = move |inside: &Counter| {
            assert_eq!(inside.count(), 0, "two at a time");
            std::hint::spin_loop();
            inside.0.fetch_sub(1, Ordering::SeqCst);
        };
        context
            .add_timer(Schedule::Every(Duration::from_micros(200)), move |_, _| {
                exclusively(&seen);
                count.increment();
            })
            .unwrap();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..ROUNDS {
                        let _guard = context.block();
                        exclusively(&inside);
                    }
                });
            }
        });
        until(&context, || handled.value() > 2);
    });
}

#[test]
fn unblocking_without_having_blocked_changes_nothing() {
    in_modes(&MODES, |mode| {
        let context = AsyncContext::new(mode);
        context.unblock_raw();
        let guard = context.block();
        std::thread::scope(|scope| drop(scope.spawn(|| context.unblock_raw())));
        assert!(context.is_blocked_here());
        drop(guard);
    });
}

#[test]
fn a_poller_can_sleep_and_is_woken_by_timers_and_descriptors() {
    watched(|| {
        let (context, event, counter) = (AsyncContext::new(Mode::Poll), event(), Counter::default());
        let set = EventSet::new().unwrap();
        let sleep = |limit| set.wait(&mut EventBuffer::<1>::new(), Some(limit)).unwrap().len();
        set.add(context.event_fd().unwrap(), Events::READ, 0).unwrap();
        let count = counter.clone();
        let timer = context.add_timer(Schedule::Once(SETTLE), move |_, _| count.increment()).unwrap();
        assert!(context.next_deadline().remaining() <= SETTLE);
        let mut wakes = 0;
        while counter.value() == 0 {
            context.arm().unwrap();
            wakes += sleep(LIMIT / 2);
            context.poll();
            assert!(wakes < 10, "woken without a reason");
        }
        context.modify_timer(timer, Schedule::Once(Duration::ZERO)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(context.arm(), Err(crate::Error::BUSY));
        assert_eq!(context.poll(), 1);
        context.remove(timer).unwrap();
        context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        // Not even one that has just looked misses what wakes it.
        context.poll();
        context.arm().unwrap();
        assert_eq!(sleep(Duration::ZERO), 0);
        event.signal();
        assert_eq!(sleep(LIMIT / 2), 1);
        assert_eq!(context.poll(), 1);
    });
}

#[test]
fn polling_with_a_distant_timer_rarely_reads_the_clock() {
    watched(|| {
        let context = AsyncContext::new(Mode::Poll);
        context.add_timer(Schedule::Once(Duration::from_secs(3600)), |_, _| {}).unwrap();
        const CALLS: usize = 10_000;
        let looks = || {
            let mut last = 0;
            let mut looks = 0;
            for _ in 0..CALLS {
                assert_eq!(context.poll(), 0);
                let look = context.handle.shared.pace.last_check();
                looks += usize::from(look != last);
                last = look;
            }
            looks
        };
        // The stride grows first, and is halved whenever the machine stops this thread for a while.
        let first = looks();
        assert!(first > CALLS / 1000, "the clock was read {first} times: a timer would come late");
        let looks = looks();
        assert!(looks < CALLS / 8, "the clock was read {looks} times in {CALLS} calls");
        assert_eq!(context.next_deadline().remaining().as_secs() / 3600, 0);
    });
}

#[test]
fn a_caller_that_counts_its_calls_looks_as_soon_as_one_that_polls() {
    watched(|| {
        let (context, event, counter) = (AsyncContext::new(Mode::Poll), event(), Counter::default());
        assert!(!context.passes(), "nothing has been looked at");
        context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        event.signal();
        // Polls only where `passes` tells it to.
        let start = Instant::now();
        let mut passed = 0;
        while counter.value() < 3 {
            assert!(start.elapsed() < LIMIT / 2, "nothing happened");
            if context.passes() {
                passed += 1;
            } else if context.poll() > 0 {
                event.signal();
            }
        }
        assert!(passed > 0);
    });
}

#[test]
fn mistakes_are_named() {
    in_modes(&MODES, |mode| {
        let (context, event) = (AsyncContext::new(mode), event());
        let fd = context.add_fd(&*event, Events::READ, |_, _| {}).unwrap();
        let timer = context.add_timer(Schedule::Once(LIMIT), |_, _| {}).unwrap();
        let twice = context.add_fd(&*event, Events::READ, |_, _| {}).unwrap_err();
        assert_eq!(crate::Error::from(twice), crate::Error::ALREADY_EXISTS);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(
            context.add_fd(&file, Events::READ, |_, _| {}).unwrap_err().to_string().contains("regular files")
        );
        assert_eq!(context.modify_timer(fd, SOON), Err(AsyncError::WrongKind { id: fd, expected: "timer" }));
        let wrong = context.modify_fd(timer, Events::READ).unwrap_err();
        assert_eq!(wrong, AsyncError::WrongKind { id: timer, expected: "file descriptor" });
        assert_eq!(
            context.modify_timer(timer, Schedule::Every(Duration::ZERO)),
            Err(AsyncError::ZeroInterval)
        );
        let id = HandlerId::from_raw(1 << 40);
        assert_eq!(context.remove(id), Err(AsyncError::NoSuchHandler { id }));
        assert_eq!(context.modify_fd(id, Events::READ), Err(AsyncError::NoSuchHandler { id }));
        assert_eq!(context.handler_count(), 2);
    });
}

#[test]
fn a_descriptor_closed_before_its_handler_is_removed_harms_nothing() {
    in_modes(&MODES, |mode| {
        let (context, event, counter) = (AsyncContext::new(mode), event(), Counter::default());
        let (near, far) = UnixStream::pair().unwrap();
        let id = context.add_fd(&far, Events::READ, |_, _| {}).unwrap();
        drop((near, far));
        context.remove(id).unwrap();
        context.add_fd(&*event, Events::READ, counting(&event, &counter)).unwrap();
        event.signal();
        until(&context, || counter.value() == 1);
    });
}
