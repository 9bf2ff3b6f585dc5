//! A queue pair that fails: every endpoint on it reports one failure, in bounded time, and everything else continues.

use std::process::Command;
use std::time::{Duration, Instant};

use uct_core::{Completion, Error, Flush, SendFlags};

use crate::library::is_skipped_in_software;
use crate::queue_pair::break_oldest;
use crate::support::{ID, Side, connect, context, devices, resident, until};

const ENDPOINTS: usize = 16;

/// Breaks the queue pair under busy endpoints, and checks all that must follow.
fn break_one(device: &str) {
    let context = context(&[("keepalive_timeout", "1500ms")]);
    // The oldest queue pair is the victim's.
    let victim = Side::new(&context, device);
    let (peer, witness) = (Side::new(&context, device), Side::new(&context, device));
    let links: Vec<_> = (0..ENDPOINTS).map(|_| connect(&victim, &peer)).collect();
    let (other, _other_far) = connect(&witness, &peer);
    let progress = || {
        victim.worker.progress();
        peer.worker.progress();
    };
    for (near, far) in &links {
        near.send(progress).expect("a message");
        far.send(progress).expect("a message");
    }
    // So much that it is not copied.
    let memory =
        victim.iface.memory_domain().register(vec![7; 2048], uct_core::Access::all()).expect("memory");
    let slices = [memory.slice(..)];
    let completions: Vec<_> = links
        .iter()
        .map(|(near, _)| {
            let completion = Completion::new(&victim.worker);
            match near.ep.am_zcopy(ID, &[], &slices, SendFlags::empty(), &completion) {
                Ok(_) | Err(Error::NO_RESOURCE) => {}
                Err(error) => panic!("{error}"),
            }
            completion
        })
        .collect();

    break_oldest();
    let start = Instant::now();
    until(&[&victim, &peer, &witness], "the failures", || {
        let all_failed = links.iter().all(|(near, _)| !near.failures.borrow().is_empty());
        all_failed && completions.iter().all(Completion::is_done)
    });
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    for (near, _) in &links {
        let words = near.failures.borrow()[0].clone();
        assert!(words.contains("the queue pair or the device of this interface has failed"), "{words}");
        assert_eq!(near.ep.am_short(ID, 0, b""), Err(Error::IO_ERROR));
        assert_eq!(near.ep.flush(Flush::REMOTE, None).err(), Some(Error::IO_ERROR));
    }
    // No new endpoint pretends to work, and nobody who sleeps is kept awake.
    let refusal = victim.iface.create_ep(|_| {}).expect_err("the interface is broken").to_string();
    assert!(refusal.contains("open another"), "{refusal}");
    until(&[&victim], "rest", || victim.iface.arm(uct_core::Events::RECV).is_ok());

    // Others go on, and the peers find out by themselves.
    let received = peer.received.get();
    other.send(|| {}).expect("another interface goes on");
    until(&[&witness, &peer], "a message of another interface", || peer.received.get() == received + 1);
    for (_, far) in &links {
        let _ = far.ep.am_short(ID, 0, b"to nobody");
    }
    until(&[&victim, &peer, &witness], "the peers' failures", || {
        links.iter().all(|(_, far)| !far.failures.borrow().is_empty())
    });
    assert!(other.failures.borrow().is_empty());
    for (near, far) in &links {
        assert_eq!((near.failures.borrow().len(), far.failures.borrow().len()), (1, 1), "reported once");
    }
}

#[test]
fn a_queue_pair_in_error_fails_its_endpoints_once_and_no_others() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("queue pairs are broken by its file") {
        return;
    }
    break_one(&names[0]);
}

#[test]
fn interfaces_that_failed_leave_no_memory_and_no_descriptors_behind() {
    const CHILD: &str = "UCT_UD_TEST_CHILD";
    const ROUNDS: u64 = 6;
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("queue pairs are broken by its file") {
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        let own = "failure::interfaces_that_failed_leave_no_memory_and_no_descriptors_behind";
        let mut child = Command::new(std::env::current_exe().expect("a program"));
        child.args(["--exact", own, "--nocapture"]).env(CHILD, "1");
        assert!(child.status().expect("a child").success());
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    (0..2).for_each(|_| break_one(&names[0]));
    let (memory, open) = (resident(), descriptors());
    (0..ROUNDS).for_each(|_| break_one(&names[0]));
    let grown = resident().saturating_sub(memory);
    println!("{grown} KiB more after {ROUNDS} broken interfaces");
    // A buffer left in a pool keeps a chunk of them.
    assert!(grown < 256, "{grown} KiB after {ROUNDS} rounds");
    assert_eq!(descriptors(), open);
}
