//! The order of attempts, by hand and with threads, without a device.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// What a queue pair does: the test says how it ends.
struct Fake {
    peer: u8,
    begins: Sender<u8>,
    ends: Mutex<Receiver<Result<(), IbError>>>,
    discarded: Sender<u8>,
}

impl Attempt for Fake {
    fn peer(&self) -> Gid {
        Gid([self.peer; 16])
    }

    fn run(&self) -> Result<(), IbError> {
        let _ = self.begins.send(self.peer);
        self.ends.lock().unwrap().recv_timeout(LIMIT).expect("the test ends it")
    }

    fn discard(&self) {
        let _ = self.discarded.send(self.peer);
    }
}

struct Test {
    begins: (Sender<u8>, Receiver<u8>),
    discarded: (Sender<u8>, Receiver<u8>),
    notified: Receiver<()>,
    connector: Connector<Fake>,
}

impl Test {
    fn new(patience: Duration) -> Test {
        let (notifies, notified) = channel();
        let notifies = Mutex::new(notifies);
        let connector = Connector::new(patience, move || {
            let _ = notifies.lock().unwrap().send(());
        });
        Test { begins: channel(), discarded: channel(), notified, connector }
    }

    /// An attempt, and what ends it.
    fn fake(&self, peer: u8) -> (Fake, Sender<Result<(), IbError>>) {
        let (ends, end) = channel();
        let (begins, discarded) = (self.begins.0.clone(), self.discarded.0.clone());
        (Fake { peer, begins, ends: Mutex::new(end), discarded }, ends)
    }

    fn begun(&self) -> u8 {
        self.begins.1.recv_timeout(LIMIT).expect("an attempt begins")
    }

    /// The outcomes, once there is one.
    fn outcomes(&self) -> Vec<(u32, bool, u32)> {
        self.notified.recv_timeout(LIMIT).expect("an outcome");
        let outcomes = self.connector.take().into_iter();
        outcomes.map(|outcome| (outcome.key, outcome.result.is_ok(), outcome.attempts)).collect()
    }
}

fn late() -> Result<(), IbError> {
    let (device, detail) = ("mlx5_0".to_owned(), String::new());
    Err(IbError::Verb { verb: "ibv_modify_qp", device, errno: libc::ETIMEDOUT, detail })
}

#[test]
fn a_peer_that_is_known_is_connected_when_the_call_returns() {
    let test = Test::new(LIMIT);
    assert!(test.connector.threads.borrow().is_empty(), "no thread before the first attempt");
    for key in 0..3 {
        let (fake, ends) = test.fake(1);
        ends.send(if key == 1 { Err(IbError::NoDevices) } else { Ok(()) }).unwrap();
        let outcome = test.connector.start(key, fake).expect("at once");
        assert_eq!((outcome.key, outcome.result.is_ok(), outcome.attempts), (key, key != 1, 1));
    }
    assert!(test.notified.try_recv().is_err() && test.connector.take().is_empty(), "told once");
}

#[test]
fn a_peer_that_does_not_reply_holds_up_neither_the_caller_nor_another_peer() {
    let test = Test::new(Duration::ZERO);
    let (dead, ends) = test.fake(1);
    assert!(test.connector.start(7, dead).is_none());
    assert_eq!(test.begun(), 1);
    // It runs; others of the same peer wait for it, and those of another one do not.
    let (second, second_ends) = test.fake(1);
    let (other, other_ends) = test.fake(2);
    assert!(test.connector.start(8, second).is_none() && test.connector.start(9, other).is_none());
    assert_eq!(test.begun(), 2);
    other_ends.send(Ok(())).unwrap();
    assert_eq!(test.outcomes(), [(9, true, 1)]);
    assert!(test.begins.1.try_recv().is_err(), "two attempts for one peer");
    // An attempt that is late counts for all of the peer: three of the first, or one after the other.
    for _ in 0..2 {
        ends.send(late()).unwrap();
        second_ends.send(late()).unwrap();
    }
    let mut outcomes = test.outcomes();
    if outcomes.len() < 2 {
        outcomes.extend(test.outcomes());
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(7, false, 3), (8, false, 3)]);
}

#[test]
fn first_attempts_go_ahead_of_repeats_and_those_of_a_peer_that_runs_wait() {
    let test = Test::new(Duration::ZERO);
    let mut state = State {
        waiting: VecDeque::new(),
        running: Vec::new(),
        outcomes: VecDeque::new(),
        awaited: None,
        threads: 0,
    };
    for (key, peer, attempts) in [(1, 1, 1), (2, 1, 0), (3, 2, 2), (4, 3, 0), (5, 3, 0)] {
        state.waiting.push_back(Job { key, attempts, attempt: test.fake(peer).0 });
    }
    let mut order = Vec::new();
    while let Some(job) = state.next() {
        order.push(job.key);
        state.running.push(Running { key: job.key, peer: job.attempt.peer(), is_wanted: true });
    }
    assert_eq!(order, [2, 4, 3]);
    assert_eq!(state.waiting.len(), 2);
}

#[test]
fn what_is_canceled_has_no_outcome_whatever_becomes_of_it() {
    let test = Test::new(Duration::ZERO);
    let (running, ends) = test.fake(1);
    assert!(test.connector.start(7, running).is_none());
    assert_eq!(test.begun(), 1);
    let (waiting, _) = test.fake(1);
    assert!(test.connector.start(8, waiting).is_none());
    test.connector.cancel(7);
    test.connector.cancel(8);
    // The number is used again, for another peer.
    let (next, next_ends) = test.fake(2);
    assert!(test.connector.start(7, next).is_none());
    ends.send(Ok(())).unwrap();
    assert_eq!(test.discarded.1.recv_timeout(LIMIT), Ok(1));
    next_ends.send(Ok(())).unwrap();
    assert_eq!(test.outcomes(), [(7, true, 1)]);
    // One that has come is forgotten as well.
    let (third, third_ends) = test.fake(3);
    third_ends.send(Ok(())).unwrap();
    if test.connector.start(9, third).is_none() {
        test.notified.recv_timeout(LIMIT).expect("an outcome");
    }
    test.connector.cancel(9);
    assert!(test.connector.take().is_empty());
}

#[test]
fn a_connector_that_closes_ends_its_threads() {
    let test = Test::new(Duration::ZERO);
    let mut ends = Vec::new();
    for peer in 0..20 {
        let (fake, end) = test.fake(peer);
        assert!(test.connector.start(peer.into(), fake).is_none());
        ends.push(end);
    }
    for _ in 0..20 {
        test.begun();
    }
    let weak = Arc::downgrade(&test.connector.shared);
    for end in &ends {
        (0..ATTEMPTS).for_each(|_| end.send(late()).unwrap());
    }
    drop(test.connector);
    assert_eq!(weak.strong_count(), 0, "a thread holds it");
    assert!(test.notified.try_iter().count() <= 20);
}
