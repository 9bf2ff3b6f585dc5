//! A worker over the loopback transport: sleeping, closing from inside, panics, and what comes from other threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Instant;

use ucs::async_context::Schedule;

use super::*;
use crate::am::AmId;
use crate::configuration::Sources;
use crate::ep::Ep;
use crate::iface::Iface;

const ID: AmId = AmId::new(3).expect("an id");
/// What is not about time ends far ahead of this.
const LONG: Duration = Duration::from_secs(20);

fn worker() -> Worker {
    let context = Context::builder().sources(Sources::default().set("modules", "self")).build();
    Worker::new(&context.expect("a context")).expect("a worker")
}

fn open(worker: &Worker) -> (Iface, Ep) {
    let iface = worker.open("self", "memory").expect("an interface");
    let ep = iface.connect(&iface.address().expect("an address")).expect("an endpoint");
    (iface, ep)
}

#[test]
fn the_thread_of_the_asynchronous_context_has_its_names_in_ucx_as_well() {
    let mode = |name: &str| {
        let sources = Sources::default().set("modules", "self").set("async_mode", name);
        let context = Context::builder().sources(sources).build().expect("a context");
        Worker::new(&context).expect("a worker").inner.engine.async_context.mode()
    };
    let modes = ["poll", "thread", "thread_spinlock", "thread_mutex"].map(mode);
    assert_eq!(modes, [Mode::Poll, Mode::Thread, Mode::Thread, Mode::Thread]);
}

#[test]
fn a_timer_of_a_transport_wakes_a_sleeping_worker() {
    let worker = worker();
    let runs = Arc::new(Mutex::new(0));
    let count = Arc::clone(&runs);
    let soon = Schedule::Once(Duration::from_millis(50));
    let run = move |_, _| *count.lock().expect("no panic") += 1;
    worker.inner.engine.async_context.add_timer(soon, run).expect("a timer");
    let start = Instant::now();
    while *runs.lock().expect("no panic") == 0 {
        worker.wait(LONG).expect("it sleeps");
        worker.progress();
        assert!(start.elapsed() < LONG / 2, "nothing but the limit wakes the worker");
    }
}

#[test]
fn a_worker_without_handlers_of_the_asynchronous_context_does_not_watch_its_descriptor() {
    let worker = worker();
    worker.arm().expect("nothing has come");
    assert!(!worker.inner.async_watched.get());
    let later = Schedule::Once(LONG);
    worker.inner.engine.async_context.add_timer(later, |_, _| ()).expect("a timer");
    while worker.arm().is_err() {
        worker.progress();
    }
    assert!(worker.inner.async_watched.get());
}

#[test]
fn what_threads_submit_runs_in_order_in_the_workers_thread_and_wakes_it() {
    let worker = worker();
    let _other = super::tests::worker();
    let (own, at, ran) =
        (std::thread::current().id(), Rc::as_ptr(&worker.inner).addr(), Arc::new(Mutex::new(Vec::new())));
    let (handle, list) = (worker.handle(), Arc::clone(&ran));
    let other = std::thread::spawn(move || {
        for number in 0..100 {
            let list = Arc::clone(&list);
            let work = move |worker: &Worker| {
                let at = std::ptr::from_ref(&*worker.inner).addr();
                list.lock().expect("no panic").push((number, std::thread::current().id(), at));
            };
            handle.submit(work).expect("the worker is there");
        }
        handle
    });
    let start = Instant::now();
    while ran.lock().expect("no panic").len() < 100 {
        assert!(start.elapsed() < LONG / 2, "work was lost, or nothing woke the worker");
        worker.wait(LONG).expect("it sleeps");
        worker.progress();
    }
    assert_eq!(*ran.lock().expect("no panic"), (0..100).map(|number| (number, own, at)).collect::<Vec<_>>());
    let handle = other.join().expect("no panic");
    drop(worker);
    assert_eq!(handle.submit(|_| panic!("nobody runs it")), Err(Error::CANCELED));
    handle.wake();
}

#[test]
fn a_wake_is_an_event_once() {
    let worker = worker();
    assert_eq!(worker.arm(), Ok(()));
    worker.handle().wake();
    assert_eq!(worker.arm(), Err(Error::BUSY));
    assert_eq!(worker.arm(), Ok(()), "it was noticed");
    assert_eq!(worker.wait(Duration::ZERO), Ok(false));
    worker.handle().wake();
    assert_eq!(worker.wait(LONG), Ok(true));
    assert_eq!(worker.wait(Duration::from_millis(1)), Ok(false));
    assert_eq!(worker.arm(), Ok(()));
    worker.handle().wake();
    assert_eq!(worker.sleep(LONG), Ok(true));
    assert_eq!(worker.wait(Duration::from_millis(1)), Ok(false), "it has ended the sleep");
}

#[test]
fn progress_until_ends_with_its_condition_or_its_limit() {
    let worker = worker();
    let calls = Cell::new(0);
    let done = || {
        calls.set(calls.get() + 1);
        calls.get() == 1000
    };
    assert!(worker.progress_until(LONG, done));
    assert_eq!(calls.get(), 1000);
    let start = Instant::now();
    assert!(!worker.progress_until(Duration::from_millis(20), || false));
    assert!(start.elapsed() >= Duration::from_millis(20));
    // The limit is looked at now and then; the condition has the last word.
    for last in [true, false] {
        calls.set(0);
        let done = || {
            calls.set(calls.get() + 1);
            calls.get() == 65 && last
        };
        assert_eq!((worker.progress_until(Duration::ZERO, done), calls.get()), (last, 65));
    }
}

#[test]
fn wait_until_polls_while_there_are_events_and_sleeps_afterwards() {
    let worker = worker();
    let calls = Cell::new(0u32);
    let count = || {
        calls.set(calls.get() + 1);
        false
    };
    let limit = Duration::from_millis(50);
    assert_eq!(worker.wait_until(limit, Duration::ZERO, count), Ok(false));
    assert!(calls.take() <= 4 * IDLE_CALLS, "it polled");
    let is_enough = || {
        calls.set(calls.get() + 1);
        calls.get() > 8 * IDLE_CALLS
    };
    assert_eq!(worker.wait_until(LONG, LONG, is_enough), Ok(true), "it slept after {} calls", calls.get());

    // Another thread ends the sleep.
    let (handle, flag) = (worker.handle(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let raise = Arc::clone(&flag);
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        raise.store(true, std::sync::atomic::Ordering::Relaxed);
        handle.wake();
    });
    let start = Instant::now();
    let done = || flag.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(worker.wait_until(LONG, Duration::ZERO, done), Ok(true));
    assert!(start.elapsed() < LONG / 2, "nothing but the limit ended the sleep");
    other.join().expect("no panic");

    // So does a message.
    let (iface, ep) = open(&worker);
    let seen = Rc::new(Cell::new(0));
    let place = Rc::clone(&seen);
    iface.set_am_handler(ID, move |_| place.set(place.get() + 1));
    ep.am_short(ID, 0, &[]).expect("a message");
    assert_eq!(worker.wait_until(LONG, Duration::ZERO, || seen.get() == 1), Ok(true));
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn what_waits_for_long_takes_little_of_the_processor() {
    let worker = worker();
    let (_iface, _ep) = open(&worker);
    let limit = Duration::from_millis(400);
    let taken = |wait: &dyn Fn()| {
        let (start, before) = (Instant::now(), processor_time());
        wait();
        assert!(start.elapsed() >= limit, "it gave up after {:?}", start.elapsed());
        processor_time() - before
    };
    let waited = taken(&|| assert!(!worker.wait_or_poll(limit, || false)));
    assert!(waited < limit / 10, "waiting took {waited:?}");
    let retried = taken(&|| {
        let refused: crate::Result<()> = worker.retry(limit, || Err(Error::NO_RESOURCE));
        assert_eq!(refused, Err(Error::TIMED_OUT));
    });
    assert!(retried < limit / 2, "trying again took {retried:?}");
}

/// A handler may wait. The transport on the stack cannot be armed, and the worker polls.
#[test]
fn a_handler_that_waits_ends_with_its_limit() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let (inside, ended) = (worker.clone(), Rc::new(Cell::new(None)));
    let place = Rc::clone(&ended);
    iface.set_am_handler(ID, move |_| {
        place.set(Some(inside.wait_or_poll(Duration::from_millis(20), || false)));
    });
    ep.am_short(ID, 0, &[]).expect("a message");
    assert!(worker.progress_until(LONG, || ended.get().is_some()));
    assert_eq!(ended.get(), Some(false));
}

#[test]
fn retry_ends_with_any_other_answer_or_its_limit() {
    let worker = worker();
    let calls = Cell::new(0);
    let answers = |at: u32, answer| {
        calls.set(calls.get() + 1);
        if calls.get() < at { Err(Error::NO_RESOURCE) } else { answer }
    };
    assert_eq!(worker.retry(LONG, || answers(1, Ok(7))), Ok(7));
    assert_eq!(calls.take(), 1, "done at once");
    assert_eq!(worker.retry(LONG, || answers(50, Ok(7))), Ok(7));
    assert_eq!(calls.take(), 50);
    assert_eq!(worker.retry(LONG, || answers(2, Err::<u32, _>(Error::CANCELED))), Err(Error::CANCELED));
    let never = || Err::<u32, _>(Error::NO_RESOURCE);
    assert_eq!(worker.retry(Duration::from_millis(5), never), Err(Error::TIMED_OUT));
}

/// Counts how often it is dropped.
struct Mark(Rc<Cell<u32>>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_handler_that_is_replaced_while_it_runs_is_dropped_afterwards() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let dropped = Rc::new(Cell::new(0));
    let (mark, seen) = (Mark(Rc::clone(&dropped)), Rc::new(Cell::new(0)));
    let (own, place) = (iface.clone(), Rc::clone(&seen));
    iface.set_am_handler(ID, move |_| {
        let count = Rc::clone(&mark.0);
        let place = Rc::clone(&place);
        own.set_am_handler(ID, move |_| place.set(place.get() + 1));
        assert_eq!(count.get(), 0, "the handler that runs was dropped");
    });
    ep.am_short(ID, 0, &[]).expect("a message");
    worker.progress();
    ep.am_short(ID, 0, &[]).expect("a message");
    worker.progress();
    assert_eq!((dropped.get(), seen.get()), (1, 1));
    iface.clear_am_handlers();
}

#[test]
fn an_interface_that_a_handler_drops_is_closed_behind_it() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let dropped = Rc::new(Cell::new(0));
    let mark = Mark(Rc::clone(&dropped));
    let held = Rc::new(RefCell::new(Some(iface.clone())));
    let place = Rc::clone(&held);
    iface.set_am_handler(ID, move |_| {
        // The endpoint that the message came by still holds the interface.
        drop(place.borrow_mut().take());
        assert_eq!(mark.0.get(), 0);
    });
    drop(iface);
    ep.am_short(ID, 0, &[]).expect("a message");
    drop(ep);
    worker.progress();
    assert_eq!(dropped.get(), 1, "the last handle is gone, and the interface is not");
    assert!(held.borrow().is_none());
}

#[test]
fn progress_inside_of_a_handler_closes_nothing() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let dropped = Rc::new(Cell::new(0));
    let mark = Mark(Rc::clone(&dropped));
    let other = worker.open("self", "memory").expect("another interface");
    other.set_am_handler(ID, move |_| _ = &mark);
    let (held, inner, seen) = (Cell::new(Some(other)), worker.clone(), Rc::clone(&dropped));
    iface.set_am_handler(ID, move |_| {
        drop(held.take());
        inner.progress();
        assert_eq!(seen.get(), 0, "it was closed while a transport was on the stack");
    });
    ep.am_short(ID, 0, &[]).expect("a message");
    worker.progress();
    assert_eq!(dropped.get(), 1);
    iface.clear_am_handlers();
}

#[test]
fn a_panic_of_a_handler_comes_out_of_the_next_progress_and_the_worker_goes_on() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let seen = Rc::new(Cell::new(0));
    let place = Rc::clone(&seen);
    iface.set_am_handler(ID, move |message| {
        assert!(message.header() != Some(13), "unlucky");
        place.set(place.get() + 1);
    });
    let panic = catch_unwind(AssertUnwindSafe(|| {
        ep.am_short(ID, 13, &[]).expect("a message");
        worker.progress();
        worker.progress();
    }));
    assert_eq!(panic.expect_err("it is resumed").downcast_ref::<&str>(), Some(&"unlucky"));
    ep.am_short(ID, 12, &[]).expect("a message");
    worker.progress();
    assert_eq!(seen.get(), 1);
    assert!(!worker.inner.is_on_stack());
}

/// A transport whose handler panics in each of its progress calls, which answer `events`.
struct Unlucky {
    worker: Rc<WorkerInner>,
    events: u32,
}

unsafe extern "C" fn progress_of_unlucky(argument: *mut std::ffi::c_void) -> u32 {
    // SAFETY: the test keeps it until its callback is removed.
    let unlucky = unsafe { &*argument.cast::<Unlucky>() };
    unlucky.worker.call_application(|| std::panic::panic_any("unlucky"));
    unlucky.events
}

#[test]
fn a_panic_comes_out_of_the_progress_that_had_an_event_and_else_of_the_next() {
    for (events, calls) in [(1, 1), (0, 2)] {
        let worker = worker();
        let unlucky = Unlucky { worker: Rc::clone(&worker.inner), events };
        let argument = std::ptr::from_ref(&unlucky).cast_mut().cast();
        // SAFETY: the callback is removed below, ahead of its argument.
        let id = unsafe { worker.inner.add_progress(progress_of_unlucky, argument) };
        let returned = (1..=calls)
            .take_while(|_| {
                catch_unwind(AssertUnwindSafe(|| worker.progress())).is_ok_and(|count| count == events)
            })
            .count();
        worker.inner.remove_own_progress(id);
        assert_eq!(returned, calls - 1, "{events} events");
        assert_eq!(worker.progress(), 0, "the callback is gone, and its panic has come out");
    }
}

#[test]
fn what_waits_to_be_closed_is_closed_with_the_worker() {
    let worker = worker();
    let inner = Rc::clone(&worker.inner);
    let closed = Rc::new(Cell::new(0));
    let count = Rc::clone(&closed);
    inner.call_application(|| inner.close(Box::new(move || count.set(count.get() + 1))));
    assert_eq!(closed.get(), 0, "a transport is on the stack");
    drop(worker);
    assert_eq!(closed.get(), 1);
}

#[test]
fn messages_are_counted_whoever_handled_them() {
    let worker = worker();
    let (iface, ep) = open(&worker);
    let send = || {
        ep.am_short(ID, 7, b"four").expect("a message");
        worker.progress();
    };
    let kept = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&kept);
    iface.set_am_handler(ID, move |message| {
        assert_eq!((message.header(), message.payload()), (Some(7), &b"four"[..]));
        list.borrow_mut().push(message.keep());
    });
    send();
    iface.set_am_handler(ID, |_| {});
    send();
    iface.clear_am_handler(ID);
    let received = iface.received();
    assert_eq!((received.operations, received.bytes), (2, 24));
    let mut kept = kept.borrow_mut();
    let (headroom, data) = kept[0].with_headroom();
    assert!(headroom.is_empty());
    assert_eq!(&data[8..], b"four");
}

#[test]
fn a_copy_of_a_message_is_in_memory_that_is_used_again() {
    let worker = worker();
    let options = crate::iface::IfaceOptions { rx_headroom: 16, ..Default::default() };
    let resource = worker.inner.context.find("self", "memory").expect("loopback");
    let iface = worker.open_resource(&resource, options).expect("an interface");
    let ep = iface.connect(&iface.address().expect("an address")).expect("an endpoint");
    let send = |byte: u8, length: usize| {
        let pack = |place: &mut [u8]| {
            place[..length].fill(byte);
            length
        };
        ep.am_bcopy(ID, crate::ep::SendFlags::empty(), pack).expect("a message");
        worker.progress();
    };
    let copies = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&copies);
    iface.set_am_handler(ID, move |message| list.borrow_mut().push(message.into_copy()));
    send(1, 5000);
    let first = copies.take().pop().expect("a copy");
    assert_eq!(first[..], [1; 5000]);
    let place = first.as_ptr().addr();
    // Any thread may have it.
    std::thread::spawn(move || drop(first)).join().expect("no panic");
    let spare = worker.buffers().spare_bytes();
    assert_eq!(spare, 8192);
    send(2, 6000);
    let second = copies.take().pop().expect("a copy");
    assert_eq!((second.as_ptr().addr(), &second[..]), (place, &[2; 6000][..]));
    assert_eq!(worker.buffers().spare_bytes(), 0);
    drop(second);

    // One that stays in the transport's buffer is no copy.
    let kept = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&kept);
    iface.set_am_handler(ID, move |message| list.borrow_mut().push(message.keep()));
    send(3, 5000);
    let message = kept.take().pop().expect("a message");
    let message = message.into_copy().expect_err("it is where it was received");
    assert!(message.is_zero_copy() && message[..] == [3; 5000]);
    assert_eq!(worker.buffers().spare_bytes(), spare);
}

#[test]
fn handlers_of_the_worker_replace_those_of_their_id_and_no_other() {
    let other = AmId::new(4).expect("an id");
    let worker = worker();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = |name: &'static str| {
        let seen = Rc::clone(&seen);
        move |_: crate::am::AmMessage<'_>| seen.borrow_mut().push(name)
    };
    worker.set_am_handler(ID, note("first"));
    worker.set_am_handler(other, note("other"));
    worker.set_am_handler(ID, note("second"));
    let send = || {
        // Opened afterwards: what it has is what the worker keeps.
        let (_iface, ep) = open(&worker);
        for id in [ID, other] {
            ep.am_short(id, 0, &[]).expect("a message");
            worker.progress();
        }
        std::mem::take(&mut *seen.borrow_mut())
    };
    assert_eq!(send(), ["second", "other"]);
    worker.clear_am_handler(ID);
    assert_eq!(send(), ["other"]);
    worker.clear_am_handlers();
    assert_eq!(send(), [""; 0]);
}

#[test]
fn submitted_work_finds_its_worker_in_whatever_thread_drives_it() {
    /// Moved to the thread, which alone uses it then.
    struct Moved(Worker);
    // SAFETY: nothing else refers to a part of the worker, which has no interface.
    unsafe impl Send for Moved {}
    impl Moved {
        fn progress(&self) -> u32 {
            self.0.progress()
        }
    }
    let moved = Moved(worker());
    let handle = moved.0.handle();
    let (sender, receiver) = std::sync::mpsc::channel();
    // Progress inside of progress, which ends first.
    let again = handle.clone();
    let inner = sender.clone();
    let work = move |worker: &Worker| {
        again.submit(move |_| inner.send("inner").expect("it is awaited")).expect("it is queued");
        worker.progress();
        sender.send("outer").expect("it is awaited");
    };
    handle.submit(work).expect("it is queued");
    let left = std::thread::spawn(move || {
        moved.progress();
        drop(moved);
        IN_PROGRESS.with_borrow(Vec::len)
    });
    assert_eq!(left.join().expect("no panic"), 0);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["inner", "outer"]);
}
