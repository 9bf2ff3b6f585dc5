//! Many endpoints on one queue pair.

use crate::support::{Side, connect, context, devices, resident, until};

const ENDPOINTS: usize = 256;

#[test]
fn an_endpoint_takes_little_memory_after_a_burst_of_all_at_once() {
    const ROUNDS: usize = 40;
    /// KiB for each of the two ends, idle and afterwards.
    const LIMITS: (u64, u64) = (2, 16);
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    // Pools and tables have their first size.
    let first = connect(&left, &right);
    first.0.send(|| {}).expect("a message");
    until(&[&left, &right], "the first message", || right.received.get() == 1);
    let before = resident();
    let links: Vec<_> = (1..ENDPOINTS).map(|_| connect(&left, &right)).collect();
    let idle = resident().saturating_sub(before);
    // A burst of all at once, to a receiver that looks only when there is no room.
    let mut sent = 1;
    let progress = || {
        left.worker.progress();
        right.worker.progress();
    };
    for round in 0..ROUNDS {
        for (near, _) in &links {
            match round % 2 {
                0 => near.send(progress).expect("a message"),
                _ => near.send_packed(progress).expect("a message"),
            }
            sent += 1;
        }
    }
    until(&[&left, &right], "all messages", || right.received.get() == sent);
    for (near, far) in &links {
        assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
    }
    let used = resident().saturating_sub(before);
    let each = |kib: u64| kib * 1024 / (2 * (ENDPOINTS as u64 - 1));
    println!(
        "{ENDPOINTS} connections on one queue pair a side: {} bytes an endpoint idle, {} after {ROUNDS} messages each",
        each(idle),
        each(used)
    );
    assert!(each(idle) <= LIMITS.0 * 1024, "{} bytes an endpoint, idle", each(idle));
    assert!(each(used) <= LIMITS.1 * 1024, "{} bytes an endpoint, after traffic", each(used));
}
