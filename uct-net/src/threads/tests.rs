//! Engines whose transports are bound to their thread, beside those that are not. No transport in this workspace is bound, so these tests set
//! that attribute themselves. And what a call of `block_on` does to the driver's thread.

use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use uct_host::Context;
use uct_host::configuration::Sources;

use super::core::Core;
use super::driver;
use super::engine::Engine;
use super::{Connection, Net};
use crate::NetOptions;

const LIMIT: Duration = Duration::from_secs(60);

/// How an engine is started.
type Start = fn(&Context, NetOptions) -> crate::Result<std::sync::Arc<Engine>>;

/// Two nets with a bound engine each, and a connection between them.
fn pair() -> (Net, Connection, Net, Connection) {
    pair_by(Engine::start_bound)
}

fn pair_by(start: Start) -> (Net, Connection, Net, Connection) {
    let net = || {
        let context = Context::builder().sources(Sources::default()).build().expect("a context");
        Net::over(start(&context, NetOptions::default()).expect("an engine"))
    };
    let (left, right) = (net(), net());
    let mut listener = left.block_on(left.listen("127.0.0.1:0")).expect("it listens");
    let address = listener.address().to_owned();
    let accepting = thread::spawn({
        let left = left.clone();
        move || left.block_on(async { listener.accept().await?.accept().await }).expect("a connection")
    });
    let there = right.block_on(async { right.connect(address).await }).expect("a connection");
    (left, accepting.join().expect("the server's thread"), right, there)
}

#[test]
fn a_transport_that_is_bound_to_a_thread_is_used_by_all_through_it() {
    let (left, here, right, there) = pair();
    let threads: Vec<_> = (0..3_u8)
        .map(|number| {
            let (net, connection) = (right.clone(), there.clone());
            thread::spawn(move || {
                for length in [1, 100, 5000, 200_000] {
                    let message = vec![number; length];
                    net.block_on(connection.send(&message).within(LIMIT)).expect("sent");
                }
                drop((net, connection));
            })
        })
        .collect();
    let mut bytes = [0; 3];
    left.block_on(async {
        for _ in 0..3 * 4 {
            let message = here.recv().within(LIMIT).await.expect("a message");
            assert!(message.iter().all(|byte| *byte == message[0]));
            bytes[usize::from(message[0])] += message.len();
        }
    });
    assert_eq!(bytes, [205_101; 3]);
    for thread in threads {
        thread.join().expect("a thread");
    }
    // A message that lies in a buffer of the transport's is dropped by a thread that may not touch it.
    right.block_on(there.send(&[7; 4000])).expect("sent");
    let message = left.block_on(here.recv().within(LIMIT)).expect("a message");
    thread::spawn(move || drop(message)).join().expect("a thread");
    drop((right, there));
    let end = left.block_on(here.recv().within(LIMIT)).expect_err("nothing follows");
    assert!(end.is_closed_by_peer(), "{end}");
}

#[test]
fn futures_that_are_dropped_in_other_threads_leave_a_bound_engine_whole() {
    let (left, here, right, there) = pair();
    for round in 0..50_u32 {
        let (net, connection) = (left.clone(), here.clone());
        thread::spawn(move || {
            let limit = Duration::from_micros(u64::from(round) * 5);
            let _ = net.block_on(connection.recv().within(limit));
        })
        .join()
        .expect("a thread");
        right.block_on(there.send(&round.to_le_bytes())).expect("sent");
        let message = left.block_on(here.recv().within(LIMIT)).expect("what no dropped future took");
        assert_eq!(*message, round.to_le_bytes());
    }
}

#[test]
fn remote_memory_is_used_through_a_bound_engine() {
    let (left, here, right, there) = pair();
    let memory = here.allocate(4096).expect("memory");
    left.block_on(here.share(&memory)).expect("shared");
    let remote = right.block_on(there.shared()).expect("what the peer shared");
    let local = there.allocate(4096).expect("memory");
    local.write(0, b"through its thread");
    right.block_on(async {
        there.put(local.slice(..18), &remote, 64).await.expect("put");
        assert_eq!(there.fetch_add(&remote, 8, 5).await.expect("added"), 0);
        there.flush().await.expect("flushed");
    });
    let mut bytes = [0; 18];
    thread::spawn(move || {
        memory.read(64, &mut bytes);
        assert_eq!((&bytes, memory.load_u64(8)), (b"through its thread", 5));
    })
    .join()
    .expect("a thread");
}

#[test]
fn a_panic_under_the_lock_is_the_calling_threads_alone() {
    let starts: [Start; 2] = [Engine::start, Engine::start_bound];
    for start in starts {
        let (left, here, right, there) = pair_by(start);
        let engine = left.engine.clone();
        let panicking = thread::spawn(move || engine.enter(|_entered| panic!("planted")));
        let panic = panicking.join().expect_err("the thread that called panics");
        assert_eq!(panic.downcast_ref(), Some(&"planted"));
        right.block_on(there.send(b"afterwards")).expect("sent");
        let message = left.block_on(here.recv().within(LIMIT)).expect("other threads go on");
        assert_eq!(*message, *b"afterwards");
    }
}

/// Drives a core in this thread until a future is ready that is not so at once. Returns whether the driver's thread was woken at the end.
fn wakes_the_driver(core: &Core) -> bool {
    core.doorbell.drain();
    let mut is_second = false;
    driver::block_on(
        core,
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending }
        }),
    );
    is_rung(core)
}

fn is_rung(core: &Core) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut doorbell = [PollFd::new(&core.doorbell, PollFlags::IN)];
    poll(&mut doorbell, Some(&Timespec::default())).expect("a descriptor") > 0
}

#[test]
fn a_call_wakes_the_drivers_thread_only_if_that_does_not_come_by_itself() {
    let context = Context::builder().sources(Sources::default()).build().expect("a context");
    // This thread is the driver's between two calls.
    let core = Core::open(&context, NetOptions::default(), false).expect("a core");
    core.enter().begin();
    assert!(core.enter().nap());
    for _ in 0..3 {
        assert!(!wakes_the_driver(&core), "it naps");
    }
    assert_eq!(core.calls(), 3);
    core.enter().hand_over();
    assert!(is_rung(&core), "no call follows");
    assert_eq!(core.calls(), 0);
    assert!(!core.enter().nap(), "nobody drives");
    core.enter().end_nap();
    core.enter().end();
    assert!(wakes_the_driver(&core), "it sleeps");
    driver::finish(&core);
}
