//! How many receive buffers a connection takes: few, until its sender is held up.

use crate::support::{PATIENCE, Side, connect, context, counter, devices, until};

#[test]
fn a_window_grows_only_when_the_sender_is_held_up_and_goes_with_its_endpoint() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("fc_window", "128")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    let first = counter(&right, "rx_windows");
    let send = |count: u64| {
        for _ in 0..count {
            near.send_with(|| {
                left.worker.progress();
                right.worker.progress();
            })
            .expect("a send");
        }
    };
    for message in 1..=500 {
        send(1);
        until(&left, &right, "a message", || right.received.get() == message);
        // A credit update may be in flight.
        left.worker.progress();
    }
    assert_eq!(counter(&right, "rx_windows"), first, "nobody was held up");

    send(2000);
    until(&left, &right, "the messages", || right.received.get() == 2500);
    assert_eq!(counter(&right, "rx_windows"), 128, "held up again and again");
    assert!(counter(&right, "rx_posted") >= 128);

    drop((near, far));
    until(&left, &right, "the end of the endpoints", || {
        counter(&left, "endpoints") + counter(&right, "endpoints") == 0
    });
    assert_eq!(counter(&right, "rx_windows"), 0);
}

#[test]
fn endpoints_that_have_ended_leave_their_buffers_to_new_ones() {
    let Some((_turn, names)) = devices() else { return };
    // Enough for three first windows.
    let context = context(&[("rx_queue_len", "64")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    for round in 0..12 {
        let links = connect(&left, &right);
        assert_eq!(counter(&left, "tx_credits"), 8, "round {round}");
        drop(links);
        until(&left, &right, "the end of the endpoints", || {
            counter(&left, "endpoints") + counter(&right, "endpoints") == 0
        });
    }
}

#[test]
fn no_more_receive_buffers_are_made_than_permitted() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("fc_window", "128"), ("rx_max_bufs", "40")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let links = connect(&left, &right);
    for _ in 0..1000 {
        links
            .0
            .send_with(|| {
                left.worker.progress();
                right.worker.progress();
            })
            .expect("a send");
        let posted = counter(&right, "rx_posted");
        assert!((1..=40).contains(&posted), "{posted}");
    }
    until(&left, &right, "the messages", || right.received.get() == 1000);
}

#[test]
fn messages_that_take_turns_carry_all_grants() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    for turn in 1..=200 {
        near.send(&left.worker).expect("a send");
        until(&left, &right, "a message", || right.received.get() == turn);
        far.send(&right.worker).expect("a send");
        until(&left, &right, "the answer", || left.received.get() == turn);
    }
    assert_eq!((counter(&left, "credit_updates"), counter(&right, "credit_updates")), (0, 0));
    // One that only receives has nothing to send them with.
    for _ in 0..200 {
        near.send_with(|| {
            left.worker.progress();
            right.worker.progress();
        })
        .expect("a send");
    }
    until(&left, &right, "the messages", || right.received.get() == 400);
    assert!(counter(&right, "credit_updates") > 0);
}

#[test]
fn each_received_message_counts_as_progress() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    // The receiver also looks for completions of its own sends, now and then instead of messages.
    for message in 1..=64 {
        near.send(&left.worker).expect("a send");
        let mut counted = 0;
        let has_come = left.worker.progress_until(PATIENCE, || {
            counted = right.worker.progress();
            right.received.get() == message
        });
        assert!(has_come && counted > 0, "message {message}: {has_come}, counted {counted}");
    }
    drop((near, far));
}
