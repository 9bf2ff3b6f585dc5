//! Loom models: every interleaving, and every reordering the memory model permits, of short runs of the protocol.
//!
//! Run with `cargo xtask test models`.

use ucs::sync::atomic::{AtomicBool, Ordering};
use ucs::sync::{Arc, thread};

use super::receiver::publish_idle;
use super::sender::Refused;
use super::testing::Talker;
use super::watched::{WatchedDoorbell, WatchedRing, WatchedTurnLine};
use super::{BODY_WORDS, Delivery, Doorbell, Place, Receiver, Sender, Sent, Short};

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Sends `value`; false if there was no room.
fn send(sender: &Sender<WatchedRing>, value: u64) -> bool {
    // SAFETY: a body has room for a u64 and is aligned to it.
    match sender.send_inline(7, 8, |body| unsafe { body.cast::<u64>().write(value) }) {
        Ok(Sent::Attend) => {
            sender.attend().expect("the receiver is honest");
            true
        }
        Ok(Sent::Quiet) => true,
        Err(Refused::Full) => false,
        Err(refused) => panic!("{refused}"),
    }
}

fn receive(receiver: &Receiver<WatchedRing>) -> Option<u64> {
    let mut body = [0; BODY_WORDS];
    let message = receiver.next(&mut body).expect("the sender is honest")?;
    assert_eq!(message.tag, 7);
    match message.data {
        Delivery::Inline { length } => {
            assert_eq!(length, 8);
            Some(body[0])
        }
        Delivery::Block { place, index, length } => {
            assert_eq!(length, 8);
            // SAFETY: a block is larger than a u64 and aligned to it.
            let value = receiver.block(place, index, |block| unsafe { block.cast::<u64>().read() });
            receiver.release(place, index);
            Some(value)
        }
    }
}

#[test]
fn messages_arrive_in_order_and_slots_are_not_reused_early() {
    explore(|| {
        let memory = WatchedRing::new(4, 1);
        let sender = Sender::new(memory.clone(), || 0);
        sender.prepare();
        let receiver = Receiver::new(memory);
        let producer = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..7 {
                if sent < 6 && send(&sender, sent) {
                    sent += 1;
                }
            }
            (sent, sender)
        });
        let mut got = 0;
        for _ in 0..3 {
            if let Some(value) = receive(&receiver) {
                assert_eq!(value, got);
                got += 1;
            }
        }
        let (sent, _sender) = producer.join().expect("the sender has not failed");
        while let Some(value) = receive(&receiver) {
            assert_eq!(value, got);
            got += 1;
        }
        assert!(sent >= 4, "there is room for four");
        assert_eq!(got, sent);
    });
}

#[test]
fn messages_arrive_in_order_while_a_ring_grows() {
    explore(|| {
        let memory = WatchedRing::with_first(4, 2, 1);
        let sender = Sender::new(memory.clone(), || 0);
        sender.prepare();
        let receiver = Receiver::new(memory);
        // Up to the last slot of the fourth busy round. The message in it is followed by one in the rest of the slots.
        let mut got = 0;
        while got < 7 {
            assert!(send(&sender, got));
            assert_eq!(receive(&receiver), Some(got));
            got += 1;
        }
        let producer = thread::spawn(move || {
            let mut sent = 7;
            for _ in 0..6 {
                if send(&sender, sent) {
                    sent += 1;
                }
            }
            assert!(sender.can_trim(), "the ring has grown");
            (sent, sender)
        });
        for _ in 0..3 {
            if let Some(value) = receive(&receiver) {
                assert_eq!(value, got);
                got += 1;
            }
        }
        let (sent, _sender) = producer.join().expect("the sender has not failed");
        while let Some(value) = receive(&receiver) {
            assert_eq!(value, got);
            got += 1;
        }
        assert_eq!(got, sent);
    });
}

#[test]
fn short_messages_taken_one_by_one_or_many_at_a_time_are_those_that_were_sent() {
    explore(|| {
        let memory = WatchedRing::new(4, 1);
        let sender = Sender::new(memory.clone(), || 0);
        sender.prepare();
        let receiver = Receiver::new(memory);
        let producer = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..6 {
                // SAFETY: a body has room for a u64 and is aligned to it.
                let fill = |body: *mut u8| unsafe { body.cast::<u64>().write(sent) };
                match sender.try_short(7, 8, fill).map_or_else(|| sender.send_inline(7, 8, fill), Ok) {
                    Ok(Sent::Quiet) => sent += 1,
                    Ok(Sent::Attend) => {
                        sender.attend().expect("the receiver is honest");
                        sent += 1;
                    }
                    Err(Refused::Full) => (),
                    Err(refused) => panic!("{refused}"),
                }
            }
            (sent, sender)
        });
        let mut got = 0;
        let mut take = |limit| {
            let before = got;
            let each = |short: Short, data: &[u8]| {
                assert_eq!((short.tag(), data), (7, &u64::to_ne_bytes(got)[..]));
                got += 1;
            };
            let taken = receiver.take_shorts(limit, each);
            assert_eq!(u64::from(taken), got - before);
            taken
        };
        take(1);
        take(2);
        let (sent, _sender) = producer.join().expect("the sender has not failed");
        while take(3) > 0 {}
        assert!(sent >= 4, "there is room for four");
        assert_eq!(got, sent);
    });
}

#[test]
fn messages_in_the_line_and_in_the_rings_arrive_in_the_order_of_both() {
    explore(|| {
        let (there, back) = (WatchedRing::new(4, 1), WatchedRing::new(4, 1));
        let [first, second] = WatchedTurnLine::ends();
        let mut left = Talker::new(there.clone(), back.clone(), first, true);
        let mut right = Talker::new(back, there, second, false);
        let other = thread::spawn(move || {
            right.receive();
            right.send();
            right.send();
            right.receive();
            right
        });
        left.send();
        left.send();
        left.receive();
        left.send();
        let mut right = other.join().expect("the other has not failed");
        while left.receive() {}
        while right.receive() {}
        assert_eq!((left.received, right.received), (right.sent, left.sent));
        assert_eq!((left.sent, right.sent), (3, 2), "there is room for all");
    });
}

#[test]
fn a_block_is_written_again_only_after_its_release() {
    explore(|| {
        let memory = WatchedRing::new(4, 1);
        let sender = Sender::new(memory.clone(), || 0);
        sender.prepare();
        let receiver = Receiver::new(memory);
        let producer = thread::spawn(move || {
            let mut sent = 0u64;
            for _ in 0..3 {
                let Some(block) = sender.reserve(Place::Bulk) else { continue };
                // SAFETY: a block is larger than a u64 and aligned to it.
                sender.fill_block(&block, |bytes| unsafe { bytes.cast::<u64>().write(sent) });
                let _ = sender.send_block(7, block, 8).expect("there are more slots than blocks");
                sent += 1;
            }
            sent
        });
        let mut got = 0;
        for _ in 0..2 {
            if let Some(value) = receive(&receiver) {
                assert_eq!(value, got);
                got += 1;
            }
        }
        let sent = producer.join().expect("the sender has not failed");
        while let Some(value) = receive(&receiver) {
            assert_eq!(value, got);
            got += 1;
        }
        assert!(sent >= 1);
        assert_eq!(got, sent);
    });
}

/// The receiver goes to sleep while a message is in flight: it sees the message, or it is woken.
fn sleeping_receiver(fenced: bool) {
    explore(move || {
        let memory = WatchedRing::new(4, 1);
        let doorbell = WatchedDoorbell::new();
        let woken = Arc::new(AtomicBool::new(false));
        let sender = Sender::new(memory.clone(), || 0);
        sender.prepare();
        let receiver = Receiver::new(memory);
        receiver.set_fence(fenced);
        receiver.set_active();
        // One message ahead, so that the sender knows that it is being polled.
        assert!(send(&sender, 0));
        assert_eq!(receive(&receiver), Some(0));
        let producer = {
            let doorbell = Doorbell::new(doorbell.clone());
            let woken = woken.clone();
            thread::spawn(move || {
                // SAFETY: a body has room for a u64 and is aligned to it.
                let sent = sender.send_inline(7, 8, |body| unsafe { body.cast::<u64>().write(1) });
                if sent == Ok(Sent::Attend) && matches!(sender.attend(), Ok(Some(_))) && doorbell.ring(0) {
                    // SYNC: models the wake-up through the kernel.
                    woken.store(true, Ordering::SeqCst);
                }
            })
        };
        let doorbell = Doorbell::new(doorbell);
        receiver.set_idle();
        doorbell.arm();
        publish_idle();
        let asleep = !receiver.has_message() && !doorbell.has_rung();
        if !asleep {
            doorbell.disarm();
        }
        producer.join().expect("the sender has not failed");
        if asleep {
            assert!(woken.load(Ordering::SeqCst), "a message was sent and nobody woke the receiver");
        }
        let mut rung = false;
        doorbell.take(|ring| {
            assert_eq!(ring, 0);
            rung = true;
        });
        assert!(rung || !asleep, "woken without a bit in the doorbell");
        assert_eq!(receive(&receiver), Some(1));
    });
}

#[test]
fn a_wake_up_is_not_lost_with_a_heavy_barrier() {
    sleeping_receiver(false);
}

#[test]
fn a_wake_up_is_not_lost_with_full_barriers() {
    sleeping_receiver(true);
}

#[test]
fn a_bit_in_the_doorbell_is_not_lost_between_two_ringers() {
    explore(|| {
        let memory = WatchedDoorbell::new();
        let ringers: Vec<_> = [3u32, 70]
            .into_iter()
            .map(|ring| {
                let doorbell = Doorbell::new(memory.clone());
                thread::spawn(move || {
                    let _ = doorbell.ring(ring);
                })
            })
            .collect();
        let doorbell = Doorbell::new(memory);
        let mut heard = Vec::new();
        doorbell.take(|ring| heard.push(ring));
        for ringer in ringers {
            ringer.join().expect("a ringer does not fail");
        }
        doorbell.take(|ring| heard.push(ring));
        heard.sort_unstable();
        heard.dedup();
        assert_eq!(heard, [3, 70]);
    });
}
