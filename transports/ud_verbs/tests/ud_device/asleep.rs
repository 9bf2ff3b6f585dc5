//! Workers that sleep until something comes.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use uct_core::{IfaceAddress, Worker};

use crate::support::{Link, PATIENCE, Side, context, devices};

/// Ticks a second of the timer that always runs; each wakes a sleeper in poll mode.
const SLOW_TICKS: f64 = 2.0;

/// Part of the wake-ups that may be for nothing: a peer that the machine holds up for longer than this side waits for an
/// acknowledgement lets the timer wake it. One that ticked, or woke with each message, would be far beyond it.
const PATIENCE_LOST: f64 = 0.05;

/// Sleeps until so many messages are there; answers how often it was woken, and how often for nothing.
fn sleep_until(side: &Side, messages: u64) -> (u64, u64) {
    let deadline = Instant::now() + PATIENCE;
    let (mut woken, mut spurious) = (0, 0);
    while side.received.get() < messages {
        let before = side.received.get();
        let is_woken = side.worker.wait(Duration::from_millis(100)).expect("a sleep");
        drain(&side.worker);
        woken += u64::from(is_woken);
        spurious += u64::from(is_woken && side.received.get() == before);
        assert!(Instant::now() < deadline, "message {messages} woke nobody within {PATIENCE:?}");
    }
    (woken, spurious)
}

fn drain(worker: &Worker) {
    while worker.progress() > 0 {}
}

/// Who a side and its endpoint are.
type Address = (IfaceAddress, Vec<u8>);

/// Connects to the endpoint of another thread.
fn meet(side: &Side, to: &mpsc::Sender<Address>, from: &mpsc::Receiver<Address>) -> Link {
    let link = Link::new(side);
    let own = (side.iface.address().expect("an address"), link.ep.address().expect("an address"));
    to.send(own).expect("the other thread lives");
    let (iface, ep) = from.recv_timeout(PATIENCE).expect("the other thread's address");
    link.ep.connect_to_ep(&iface, &ep).unwrap_or_else(|error| panic!("{error}"));
    link
}

/// A thread that receives `count` messages asleep, and answers each if asked to, while `send` sends them.
fn receive_asleep(count: u64, answers: bool, send: impl Fn(&Side, &Link)) {
    let Some((_turn, names)) = devices() else { return };
    let name = names[0].clone();
    let (to_receiver, from_sender) = mpsc::channel();
    let (to_sender, from_receiver) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        let side = Side::new(&context(&[]), &name);
        let link = meet(&side, &to_sender, &from_sender);
        let (mut woken, mut spurious) = (0, 0);
        let start = Instant::now();
        for number in 1..=count {
            let slept = sleep_until(&side, number);
            (woken, spurious) = (woken + slept.0, spurious + slept.1);
            if answers {
                link.send(|| drain(&side.worker)).expect("an answer");
            }
        }
        let took = start.elapsed();
        // The sender gets its last acknowledgement.
        side.worker.progress_until(Duration::from_millis(100), || false);
        (woken, spurious, took)
    });
    let side = Side::new(&context(&[]), &names[0]);
    let link = meet(&side, &to_receiver, &from_receiver);
    for number in 1..=count {
        send(&side, &link);
        let answered = if answers { number } else { 0 };
        assert!(side.worker.progress_until(PATIENCE, || side.received.get() == answered), "no answer");
    }
    side.worker.progress_until(Duration::from_millis(50), || receiver.is_finished());
    let (woken, spurious, took) = receiver.join().expect("the receiver does not panic");
    println!("{count} messages in {took:.1?}: woken {woken} times, {spurious} of them for nothing");
    let unasked = (took.as_secs_f64() * SLOW_TICKS).ceil();
    assert!(spurious as f64 <= PATIENCE_LOST * woken as f64 + unasked, "{spurious} of {woken}");
}

#[test]
fn a_sleeper_that_answers_is_woken_by_messages_alone() {
    receive_asleep(500, true, |side, link| link.send(|| drain(&side.worker)).expect("a message"));
}

#[test]
fn a_sleeper_that_only_listens_is_woken_by_messages_alone() {
    receive_asleep(300, false, |side, link| {
        link.send(|| drain(&side.worker)).expect("a message");
        // Longer than an acknowledgement waits, and than the first retransmission.
        side.worker.progress_until(Duration::from_millis(6), || false);
    });
}
