//! What an interface that closes waits for.

use std::time::{Duration, Instant};

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

#[test]
fn a_peer_learns_that_an_endpoint_has_ended_though_its_interface_sleeps() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("keepalive_interval", "200ms"), ("peer_timeout", "1s")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    near.send(&left.worker).expect("a send");
    until(&left, &right, "the message", || right.received.get() == 1);
    drop(far);
    let learns = left.worker.progress_until(PATIENCE / 2, || {
        // Progress of the other side only where its worker wakes for it.
        if right.worker.wait(Duration::ZERO).expect("it sleeps") {
            right.worker.progress();
        }
        !near.failures.borrow().is_empty()
    });
    assert!(learns, "the queue pair of the endpoint that ended still answers");
    until(&left, &right, "the end of the queue pair", || {
        right.iface.transport_counters().iter().all(|it| it.0 != "endpoints" || it.1 == 0)
    });
}

fn close(link: Link, side: Side) {
    drop(link);
    drop(side);
}
