//! What an interface that closes waits for.

use std::time::Instant;

use crate::support::{Link, PATIENCE, Side, connect, context, devices, until};

#[test]
fn a_receiver_closes_at_once_though_its_peer_closed_before_it_and_gets_no_credits() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("linger", "90s")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    // More than the first window: the receiver has granted, in requests of which no completion was asked for.
    for _ in 0..100 {
        near.send_with(|| {
            left.worker.progress();
            right.worker.progress();
        })
        .expect("a send");
    }
    until(&left, &right, "the messages", || right.received.get() == 100);

    close(near, left);
    let start = Instant::now();
    close(far, right);
    let took = start.elapsed();
    assert!(took < PATIENCE, "closing took {took:?}");
}

fn close(link: Link, side: Side) {
    drop(link);
    drop(side);
}
