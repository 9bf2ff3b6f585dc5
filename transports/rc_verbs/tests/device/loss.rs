//! A cable that loses packets: atomics behind messages bring the right value all the same.
//!
//! Changes how `eth0` and `eth1` of the test VM send.

use std::process::Command;

use uct_core::{Access, AtomicOp, Completion, Error};

use crate::support::{ID, Side, connect, context, pair, until};

/// What both network devices do to packets, until this is dropped.
struct Netem;

impl Netem {
    fn new(words: &str) -> Netem {
        tc("replace", &format!("netem {words}"));
        Netem
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        tc("replace", "pfifo");
    }
}

fn tc(verb: &str, discipline: &str) {
    for device in ["eth0", "eth1"] {
        let mut command = Command::new("tc");
        command.args(["qdisc", verb, "dev", device, "root"]).args(discipline.split(' '));
        let done = command.status().is_ok_and(|status| status.success());
        assert!(done || std::thread::panicking(), "{command:?}");
    }
}

#[test]
fn atomics_among_messages_return_the_old_value_although_packets_are_lost() {
    const ROUNDS: u64 = 400;
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[("timeout", "4ms"), ("peer_timeout", "20s")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    let (near, far) = connect(&left, &right);
    let memory = right.iface.memory_domain().register(vec![0; 16], Access::all()).expect("memory");
    let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("a key");
    let _netem = Netem::new("loss 10%");
    for round in 0..ROUNDS {
        for _ in 0..4 {
            near.send_with(|| {
                left.worker.progress();
                right.worker.progress();
            })
            .expect("a send");
        }
        // The device's own and an emulated one, each on a word of its own.
        for (word, op) in [(0, AtomicOp::Add), (1, AtomicOp::Xor)] {
            let completion = Completion::new(&left.worker);
            let at = memory.address() + word * 8;
            let mut fetched = Err(Error::NO_RESOURCE);
            until(&left, &right, "room for an atomic", || {
                fetched = near.ep.atomic64_fetch(op, round + 1, at, &key, &completion);
                fetched != Err(Error::NO_RESOURCE)
            });
            let fetched = fetched.expect("an atomic");
            // More behind it, which are sent again with it.
            let _ = near.ep.am_short(ID, 0, b"behind");
            until(&left, &right, "the atomic", || completion.is_done());
            completion.result().expect("an atomic");
            let expected = match op {
                AtomicOp::Add => round * (round + 1) / 2,
                _ => (0..=round).fold(0, |all, value| all ^ value),
            };
            assert_eq!(fetched.old_value(&completion), expected, "round {round}, {op:?}");
        }
    }
    assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
}
