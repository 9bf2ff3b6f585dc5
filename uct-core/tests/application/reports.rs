//! What a program is told of its own workers, by `Context::report`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread::{self, Builder};
use std::time::Duration;

use uct_core::configuration::Sources;
use uct_core::{AmId, Context, Worker};

const ID: AmId = AmId::new(3).expect("an id");
const LIMIT: Duration = Duration::from_secs(60);
/// Threads that ask at once.
const ASKING: usize = 8;

fn sources() -> Sources {
    Sources::default().set("modules", "self")
}

#[test]
fn a_program_sees_what_its_workers_and_interfaces_have_done_from_several_threads_at_once() {
    let context = Context::builder().sources(sources()).reports().build().expect("a context");
    let (stop, stopped) = channel::<()>();
    let (ready, is_ready) = channel();
    let of_thread = context.clone();
    let run = move || {
        let worker = Worker::new(&of_thread).expect("a worker");
        let gone = worker.open("self", "memory").expect("an interface");
        let iface = worker.open("self", "memory").expect("an interface");
        drop(gone);
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let address = iface.address().expect("an address");
        let connect = || iface.connect(&address).expect("an endpoint");
        let (ep, closed) = (connect(), connect());
        (0..5).for_each(|_| ep.am_short(ID, 0, b"12345678").expect("it is sent"));
        (0..2).for_each(|_| closed.am_short(ID, 0, b"").expect("it is sent"));
        drop(closed);
        assert_eq!(received.get(), 7);
        ready.send(()).expect("the test waits");
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            worker.wait(Duration::from_millis(50)).expect("it sleeps");
            worker.progress();
        }
    };
    let thread = Builder::new().name("driver".to_owned()).spawn(run).expect("a thread");
    is_ready.recv_timeout(LIMIT).expect("it gets ready");

    // A worker that the machine gives no processor to for a second has no report.
    let complete = || {
        let mut reports = (0..60).map(|_| context.report().expect("it was asked for"));
        reports.find(|it| it.workers[0].report.is_some()).expect("a minute is enough")
    };
    let reports = thread::scope(|scope| {
        let asking: Vec<_> = (0..ASKING).map(|_| scope.spawn(complete)).collect();
        asking.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    for report in reports {
        assert_eq!(report.pid, std::process::id());
        let [worker] = &report.workers[..] else { panic!("{report:?}") };
        assert_eq!((worker.number, worker.thread_name.as_str()), (1, "driver"));
        let Some([iface]) = worker.report.as_ref().map(|it| &it.interfaces[..]) else { panic!("{report:?}") };
        assert_eq!((iface.number, iface.transport.as_str(), iface.device.as_str()), (2, "self", "memory"));
        assert_eq!((iface.endpoints, iface.closed, iface.failed), (1, 1, 0));
        assert_eq!((iface.received, iface.received_bytes), (7, 5 * 16 + 2 * 8));
        let short = iface.sent.iter().find(|sent| sent.kind == "am_short").expect("its kind");
        assert_eq!((short.operations, short.bytes), (7, 5 * 16 + 2 * 8));
    }
    drop(stop);
    thread.join().expect("no panic");
    assert_eq!(context.report().expect("it was asked for").workers, [], "the worker is gone");
}

#[test]
fn a_worker_without_progress_has_no_report() {
    let context = Context::builder().sources(sources()).reports().build().expect("a context");
    let _worker = Worker::new(&context).expect("a worker");
    let report = context.report().expect("it was asked for");
    assert!(matches!(&report.workers[..], [worker] if worker.report.is_none()), "{report:?}");
}

#[test]
fn a_program_that_has_not_asked_for_reports_has_none() {
    let context = Context::builder().sources(sources()).build().expect("a context");
    let _worker = Worker::new(&context).expect("a worker");
    assert_eq!(context.report(), None);
}
