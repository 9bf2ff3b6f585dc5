//! A worker that is armed makes an edge: a descriptor set that reports changes only, around the worker's descriptor, wakes for
//! every event that comes after `Worker::arm` has succeeded. Runtimes register descriptors that way.
//!
//! `UCT_TEST_ARMS` says how often it is armed, for each transport.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::seed;
use rustix::event::epoll;
use uct_core::configuration::{FileSource, Sources};
use uct_core::{AmId, Context, Ep, Error, Iface, IfaceAddress, Worker};

const MESSAGE: AmId = AmId::new(1).unwrap();
/// What has to come comes within this.
const LIMIT: Duration = Duration::from_secs(60);

fn context() -> Context {
    let env = std::env::vars_os().filter(|(name, _)| name == "UCT_MODULE_DIR").collect();
    let sources = Sources { file: FileSource::None, env, ..Sources::default() };
    Context::builder().sources(sources).build().expect("a context")
}

/// A set that reports changes only, around the worker's descriptor.
struct Edges(std::os::fd::OwnedFd);

impl Edges {
    fn around(worker: &Worker) -> Edges {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, worker.event_fd(), epoll::EventData::new_u64(0), flags).expect("added");
        Edges(set)
    }

    /// Whether there was an edge within the limit.
    fn wait(&self, limit: Duration) -> bool {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let limit = rustix::time::Timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        epoll::wait(&self.0, &mut events[..], Some(&limit)).expect("waited") > 0
    }
}

/// One side: an interface, and an endpoint to the other side once its address has come.
struct Side {
    worker: Worker,
    iface: Iface,
}

impl Side {
    fn new(transport: &str, device: &str, count: &Arc<AtomicU32>) -> Side {
        let worker = Worker::new(&context()).expect("a worker");
        let iface = worker.open(transport, device).expect("an interface");
        let count = Arc::clone(count);
        iface.set_am_handler(MESSAGE, move |_message| {
            // SYNC: the other thread waits for the number.
            count.fetch_add(1, Ordering::Release);
        });
        Side { worker, iface }
    }

    fn connect(&self, peer: &IfaceAddress) -> Ep {
        self.iface.connect(peer).expect("an endpoint")
    }

    fn send(&self, ep: &Ep) {
        self.worker.retry(LIMIT, || ep.am_short(MESSAGE, 0, &[])).expect("sent");
    }
}

/// One side sends at random moments; the other one sleeps on edges, and nothing else, until each message is there.
fn no_wake_up_is_lost(transport: &str, device: &str) {
    let arms: u32 = std::env::var("UCT_TEST_ARMS").ok().and_then(|arms| arms.parse().ok()).unwrap_or(3000);
    let mut random = seed::printed() | 1;
    let count = Arc::new(AtomicU32::new(0));
    let (here, there) = (mpsc::channel::<IfaceAddress>(), mpsc::channel::<IfaceAddress>());
    let (transport_of_sender, device_of_sender) = (transport.to_owned(), device.to_owned());
    let received = Arc::clone(&count);
    let sender = std::thread::spawn(move || {
        let side = Side::new(&transport_of_sender, &device_of_sender, &Arc::new(AtomicU32::new(0)));
        here.0.send(side.iface.address().expect("an address")).expect("the receiver waits");
        let ep = side.connect(&there.1.recv_timeout(LIMIT).expect("the receiver's address"));
        for number in 0..arms {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // From at once to past the moment where the receiver sleeps.
            for _ in 0..random % 2000 {
                std::hint::spin_loop();
            }
            side.send(&ep);
            let begun = Instant::now();
            while received.load(Ordering::Acquire) <= number {
                side.worker.progress();
                if begun.elapsed() > LIMIT {
                    return Err(number);
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    });

    let side = Side::new(transport, device, &count);
    there.0.send(side.iface.address().expect("an address")).expect("the sender waits");
    let _ep = side.connect(&here.1.recv_timeout(LIMIT).expect("the sender's address"));
    let edges = Edges::around(&side.worker);
    let mut slept = 0;
    while count.load(Ordering::Acquire) < arms {
        if side.worker.progress() > 0 {
            continue;
        }
        match side.worker.arm() {
            Ok(()) if count.load(Ordering::Acquire) == arms => break,
            Ok(()) => {
                slept += 1;
                let had = count.load(Ordering::Acquire);
                assert!(edges.wait(LIMIT / 2), "{transport}: no edge after message {had} of {arms}");
            }
            Err(Error::BUSY) => {}
            Err(error) => panic!("{transport}: cannot arm: {error}"),
        }
    }
    assert_eq!(sender.join().expect("the sender"), Ok(()), "{transport}: a message was not received");
    println!("{transport}: slept {slept} times for {arms} messages");
    assert!(slept > arms / 20, "{transport}: slept {slept} times, so that nothing was tried");
}

#[test]
fn an_armed_worker_makes_an_edge_for_each_message_over_tcp() {
    no_wake_up_is_lost("tcp", "lo");
}

#[test]
fn an_armed_worker_makes_an_edge_for_each_message_over_posix() {
    no_wake_up_is_lost("posix", "memory");
}

#[test]
fn an_armed_worker_makes_an_edge_for_each_message_over_sysv() {
    no_wake_up_is_lost("sysv", "memory");
}

#[test]
fn a_wake_from_another_thread_makes_an_edge_each_time() {
    let worker = Worker::new(&context()).expect("a worker");
    let edges = Edges::around(&worker);
    let handle = worker.handle();
    let (asks, asked) = mpsc::channel::<()>();
    let waker = std::thread::spawn(move || {
        while asked.recv().is_ok() {
            handle.wake();
        }
    });
    for number in 0..10_000 {
        while worker.arm() == Err(Error::BUSY) {
            worker.progress();
        }
        asks.send(()).expect("the thread lives");
        assert!(edges.wait(LIMIT / 2), "no edge for wake {number}");
    }
    drop(asks);
    waker.join().expect("the thread");
}
