//! Many threads with the same handles.

use std::sync::atomic::{AtomicUsize, Ordering};

use uct_net_c::abi::*;
use uct_net_c::exports::*;

use crate::program::*;

const THREADS: usize = 4;
const MESSAGES: usize = 500;

/// Handles are numbers, which any thread may use.
#[derive(Clone, Copy)]
struct Shared(Raw);

// SAFETY: nothing is behind the number.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

#[test]
fn several_threads_send_receive_and_wait_at_once() {
    let pair = Pair::new();
    let (nets, conns) = (pair.nets.map(Shared), pair.conns.map(Shared));
    let (sent, received, sum) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let (nets, conns) = (&nets, &conns);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sent, received, sum) = (&sent, &received, &sum);
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    assert_ne!(send(conns[0].0, &(thread * MESSAGES + number).to_ne_bytes(), 0), 0);
                    if number % 2 == 0 {
                        let mut event = [uct_event::default(); 4];
                        // SAFETY: room for four events.
                        let taken = unsafe { uct_net_wait(nets[0].0, event.as_mut_ptr(), 4, 0) };
                        sent.fetch_add(taken as usize, Ordering::Relaxed);
                    }
                }
            });
            scope.spawn(move || {
                for _ in 0..MESSAGES {
                    assert_ne!(uct_recv(conns[1].0, 1), 0);
                    let mut event = uct_event::default();
                    // SAFETY: room for one event.
                    let count = unsafe { uct_net_wait(nets[1].0, &raw mut event, 1, LIMIT) };
                    assert_eq!((count, event.status), (1, OK), "{}", reason(nets[1].0, event.op));
                    let message = bytes(&event);
                    sum.fetch_add(usize::from_ne_bytes(message.try_into().unwrap()), Ordering::Relaxed);
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let all = THREADS * MESSAGES;
    assert_eq!(received.into_inner(), all);
    assert_eq!(sum.into_inner(), all * (all - 1) / 2);
    let mut sent = sent.into_inner();
    while sent < all {
        let mut event = uct_event::default();
        // SAFETY: room for one event.
        assert_eq!(unsafe { uct_net_wait(pair.nets[0], &raw mut event, 1, LIMIT) }, 1);
        sent += 1;
    }
}

#[test]
fn closing_a_net_ends_the_waits_of_other_threads() {
    let net = open(&[]);
    let shared = &Shared(net);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut event = uct_event::default();
            // SAFETY: room for one event.
            let status = unsafe { uct_net_wait(shared.0, &raw mut event, 1, -1) };
            (status, reason(std::ptr::null_mut(), 0))
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(uct_net_close(net), OK);
        let (status, text) = waits.join().unwrap();
        // It may have come too late.
        let is_late = status == INVALID_PARAM && text.contains("closed already");
        assert!(is_late || status == CANCELED && text.contains("closed the net"), "{status}: {text}");
    });
}
