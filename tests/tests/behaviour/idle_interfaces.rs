//! An interface without traffic on a worker where another one has some: progress calls it only now and then, but what is sent on it
//! leaves with the next call.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::configuration::{FileSource, Sources};
use uct_core::{AmId, Context, Iface, Worker};

const ID: AmId = AmId::new(1).unwrap();
/// What has to come comes within this.
const LIMIT: Duration = Duration::from_secs(60);

fn open(worker: &Worker, transport: &str, device: &str) -> (Iface, Rc<Cell<u32>>) {
    let iface = worker.open(transport, device).expect("an interface");
    let received = Rc::<Cell<u32>>::default();
    let counter = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| counter.set(counter.get() + 1));
    (iface, received)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}");
    }
}

#[test]
fn what_is_sent_on_an_idle_interface_leaves_with_the_next_progress() {
    let env = std::env::vars_os().filter(|(name, _)| name == "UCT_MODULE_DIR").collect();
    let sources = Sources { file: FileSource::None, env, ..Sources::default() };
    let context = Context::builder().sources(sources).build().expect("a context");
    let workers = [(); 2].map(|()| Worker::new(&context).expect("a worker"));
    let (busy, busy_received) = open(&workers[0], "posix", "memory");
    let (idle, _) = open(&workers[0], "tcp", "lo");
    let (peer, received) = open(&workers[1], "tcp", "lo");
    let to_itself = busy.connect(&busy.address().expect("an address")).expect("an endpoint");
    let to_peer = idle.connect(&peer.address().expect("an address")).expect("an endpoint");
    let both = || workers.iter().for_each(|worker| _ = worker.progress());

    to_peer.am_short(ID, 0, &[]).expect("the first message");
    until("the first message", || {
        both();
        received.get() == 1
    });
    for round in 0..20 {
        for number in 0..10_000 {
            if number % 1000 == 0 {
                to_itself.am_short(ID, 0, &[]).expect("a message");
            }
            workers[0].progress();
        }
        assert_eq!(busy_received.replace(0), 10, "the other interface is not busy");
        received.set(0);
        (0..3).for_each(|_| to_peer.am_short(ID, 0, &[]).expect("a message"));
        workers[0].progress();
        until(&format!("the messages of round {round}"), || {
            workers[1].progress();
            received.get() == 3
        });
    }
}
