//! Many endpoints on one receive queue, or one completion queue.

use std::cell::Cell;
use std::rc::Rc;

use uct_core::{Ep, Error, Flush, Pending};

use crate::support::{ID, Side, connect, context, devices, resident, until};

/// How often a receiver had no buffer, by the devices' own counters.
fn not_ready(names: &[String]) -> u64 {
    names
        .iter()
        .map(|name| {
            let device = name.split(':').next().expect("a device");
            let counters = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
            ["rcvd_rnr_err", "send_rnr_err"]
                .iter()
                .filter_map(|counter| std::fs::read_to_string(format!("{counters}/{counter}")).ok())
                .filter_map(|text| text.trim().parse::<u64>().ok())
                .sum::<u64>()
        })
        .sum()
}

#[test]
fn two_hundred_and_fifty_six_endpoints_share_one_queue_and_never_overrun_it() {
    const ENDPOINTS: usize = 256;
    const ROUNDS: usize = 40;
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (before, not_ready_before) = (resident(), not_ready(&names));
    let links: Vec<_> = (0..ENDPOINTS).map(|_| connect(&left, &right)).collect();
    let idle = resident();
    // A burst of all at once, to a receiver that looks only now and then.
    let mut sent = 0;
    for _ in 0..ROUNDS {
        for (near, _) in &links {
            let progress = || {
                left.worker.progress();
                right.worker.progress();
            };
            near.send_with(progress).expect("a send");
            sent += 1;
        }
    }
    until(&left, &right, "all messages", || right.received.get() == sent);
    for (near, far) in &links {
        assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
    }
    assert_eq!(not_ready(&names), not_ready_before, "a receiver had no buffer");
    let each = |now: u64| (now - before) / (2 * ENDPOINTS as u64);
    let (idle, used) = (each(idle), each(resident()));
    println!(
        "{ENDPOINTS} connections, both ends in this process: {idle} KiB an endpoint idle, {used} KiB after traffic"
    );
    // The first window and its spare are ten buffers of 8 KiB; the send queue of software RoCE takes 64 KiB.
    assert!(idle <= 176 && used <= 224, "{idle} KiB an endpoint idle, {used} KiB after traffic");
}

#[test]
fn interfaces_that_come_and_go_leave_no_memory_behind() {
    const ROUNDS: u64 = 12;
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let once = || {
        let (left, right) =
            (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
        let (near, far) = connect(&left, &right);
        near.send(&left.worker).expect("a send");
        until(&left, &right, "a message", || right.received.get() == 1);
        far.send(&right.worker).expect("a send");
        until(&left, &right, "the answer", || left.received.get() == 1);
    };
    (0..3).for_each(|_| once());
    let before = resident();
    (0..ROUNDS).for_each(|_| once());
    let grown = resident().saturating_sub(before);
    println!("{grown} KiB more after {ROUNDS} pairs of interfaces");
    // One pool of each of them is 512 KiB.
    assert!(grown < 256, "{grown} KiB after {ROUNDS} rounds");
}

/// Each endpoint has few messages outstanding, so that the completion queue, which all share, is full first. More wait for it than can be
/// served at once: those that are left are served when operations of others have ended.
#[test]
fn endpoints_that_wait_for_the_shared_completion_queue_are_all_served() {
    const SENDERS: usize = 40;
    const WAITING: usize = 100;
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("tx_cq_len", "64")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let links: Vec<_> = (0..SENDERS + WAITING).map(|_| connect(&left, &right)).collect();
    let (senders, waiting) = links.split_at(SENDERS);
    let mut sent = 0;
    for (near, _) in senders {
        while near.ep.am_short(ID, 0, b"message").is_ok() {
            sent += 1;
        }
    }
    let served = Rc::new(Cell::new(0));
    // A flush needs a request of its own.
    assert_eq!(
        senders[0].0.ep.flush(Flush::REMOTE, None),
        Err(Error::NO_RESOURCE),
        "the queue of all is full"
    );
    for (near, _) in waiting {
        assert_eq!(near.ep.am_short(ID, 0, b"message"), Err(Error::NO_RESOURCE), "the queue of all is full");
        let count = Rc::clone(&served);
        let request = move |ep: &Ep| {
            if ep.am_short(ID, 0, b"message").is_err() {
                return Pending::Wait;
            }
            count.set(count.get() + 1);
            Pending::Done
        };
        assert!(near.ep.pending_add(request).is_ok());
    }
    until(&left, &right, "those that wait", || served.get() == WAITING);
    until(&left, &right, "all messages", || right.received.get() == sent + WAITING as u64);
}
