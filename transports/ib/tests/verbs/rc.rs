//! Reliable connections.

use rustix::event::{PollFd, PollFlags, poll};
use uct_ib::WcStatus;
use uct_ib::verbs::{InlineData, InlineWr, QpKind, QpState, SendFlags, SendWr};

use crate::support::{End, connected, devices};

#[test]
fn messages_cross_inline_and_from_memory() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    b.post_receive(1, 0);
    b.post_receive(2, 2048);
    let parts = [InlineData::new(b"hello, "), InlineData::new(b"world")];
    a.qp.post_inline(InlineWr::send(10, &parts, SendFlags::SIGNALED)).expect("posted");
    let received = b.wait_ok(1);
    assert!(received.is_receive());
    assert_eq!(received.qp_number(), b.qp.number());
    assert_eq!(b.read(0, received.byte_length()), b"hello, world");
    a.wait_ok(10);

    a.write(8192, &[7; 1500]);
    let pieces = [a.piece(8192, 500), a.piece(8692, 1000)];
    // SAFETY: the buffer outlives the queue pair.
    unsafe { a.qp.post_send(SendWr::send_immediate(11, &pieces, 0xdead_beef, SendFlags::SIGNALED)) }
        .expect("posted");
    let received = b.wait_ok(2);
    assert_eq!(received.immediate(), Some(0xdead_beef));
    assert_eq!(b.read(2048, received.byte_length()), [7; 1500]);
    a.wait_ok(11);
}

#[test]
fn writes_reads_and_atomics_reach_the_peers_memory() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    let rkey = b.buffer.mr().rkey();

    a.qp.post_inline(InlineWr::rdma_write(
        1,
        &[InlineData::new(b"short")],
        b.address(100),
        rkey,
        SendFlags::SIGNALED,
    ))
    .expect("posted");
    a.wait_ok(1);
    assert_eq!(b.read(100, 5), b"short");

    a.write(0, &[9; 4000]);
    // SAFETY: the buffer outlives the queue pair.
    unsafe {
        a.qp.post_send(SendWr::rdma_write(2, &[a.piece(0, 4000)], b.address(4096), rkey, SendFlags::SIGNALED))
    }
    .expect("posted");
    a.wait_ok(2);
    assert_eq!(b.read(4096, 4000), [9; 4000]);

    b.write(0, b"from afar");
    // SAFETY: as above.
    unsafe {
        a.qp.post_send(SendWr::rdma_read(3, &[a.piece(8192, 9)], b.address(0), rkey, SendFlags::SIGNALED))
    }
    .expect("posted");
    a.wait_ok(3);
    assert_eq!(a.read(8192, 9), b"from afar");

    assert!(a.device.has_atomics());
    b.write(512, &40u64.to_ne_bytes());
    let result = [a.piece(1024, 8)];
    // SAFETY: as above.
    unsafe { a.qp.post_send(SendWr::fetch_add(4, &result, b.address(512), rkey, 2, SendFlags::SIGNALED)) }
        .expect("posted");
    a.wait_ok(4);
    assert_eq!(a.read(1024, 8), 40u64.to_ne_bytes());
    // SAFETY: as above.
    unsafe {
        a.qp.post_send(SendWr::compare_swap(5, &result, b.address(512), rkey, (42, 7), SendFlags::SIGNALED))
    }
    .expect("posted");
    a.wait_ok(5);
    assert_eq!(a.read(1024, 8), 42u64.to_ne_bytes());
    assert_eq!(b.read(512, 8), 7u64.to_ne_bytes());
}

#[test]
fn a_wrong_remote_key_fails_with_words_and_leaves_memory_alone() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    let rkey = b.buffer.mr().rkey() ^ 0x5555;
    a.qp.post_inline(InlineWr::rdma_write(1, &[InlineData::new(b"xx")], b.address(0), rkey, SendFlags::NONE))
        .expect("posted");
    let wc = a.wait();
    assert_eq!((wc.wr_id(), wc.status().name()), (1, "REM_ACCESS_ERR"));
    assert!(wc.status().to_string().contains("the peer forbids the access"));
    assert_eq!(b.read(0, 2), [0, 0]);
    assert_eq!(a.qp.state().expect("a state"), QpState::Error);
}

#[test]
fn a_dead_peer_is_reported_after_the_retries() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = (End::new(&names[0], QpKind::Rc), End::new(&names[0], QpKind::Rc));
    // The other queue pair was never connected, so it answers nothing.
    a.connect(&b.port.device_address(), b.qp.number(), 10);
    a.qp.post_inline(InlineWr::send(1, &[InlineData::new(b"?")], SendFlags::NONE)).expect("posted");
    let wc = a.wait();
    assert_eq!(wc.status(), WcStatus::RETRY_EXCEEDED);
    assert_eq!(wc.status().status(), ucs::Status::ENDPOINT_TIMEOUT);
}

#[test]
fn what_was_posted_is_flushed_when_a_queue_pair_fails() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    b.qp.fail().expect("to ERROR");
    assert_eq!(b.qp.state().expect("a state"), QpState::Error);
    b.qp.post_inline(InlineWr::send(5, &[InlineData::new(b"late")], SendFlags::NONE)).expect("posted");
    let wc = b.wait();
    assert_eq!((wc.wr_id(), wc.status()), (5, WcStatus::FLUSHED));
    drop(a);
}

#[test]
fn a_channel_wakes_a_sleeper_once_armed() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    b.post_receive(1, 0);
    b.post_receive(2, 2048);
    b.cq.request_notify(true).expect("armed");
    let ready = |timeout: i64| {
        let fd = b.channel.fd();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let timeout = rustix::time::Timespec { tv_sec: timeout, tv_nsec: 50_000_000 };
        poll(&mut fds, Some(&timeout)).expect("poll works") > 0
    };
    a.qp.post_inline(InlineWr::send(1, &[InlineData::new(b"quiet")], SendFlags::SIGNALED)).expect("posted");
    a.wait_ok(1);
    b.wait_ok(1);
    assert!(!ready(0), "an unsolicited message does not wake");
    a.qp.post_inline(InlineWr::send(
        2,
        &[InlineData::new(b"!")],
        SendFlags::SIGNALED.and(SendFlags::SOLICITED),
    ))
    .expect("posted");
    assert!(ready(10), "a solicited message wakes");
    assert_eq!(b.channel.drain(), 1);
    assert!(!ready(0));
    b.wait_ok(2);
}

#[test]
fn more_than_fits_is_refused_and_not_lost() {
    let Some((_turn, names)) = devices() else { return };
    let a = End::new(&names[0], QpKind::Rc);
    let b = End::new(&names[0], QpKind::Rc);
    a.connect(&b.port.device_address(), b.qp.number(), 18);
    let mut posted = 0u64;
    let refused = loop {
        match a.qp.post_inline(InlineWr::send(posted, &[InlineData::new(b"x")], SendFlags::NONE)) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
        assert!(posted < 10_000, "the send queue has no end");
    };
    assert!(refused.is_full(), "{refused}");
    assert!(posted >= 32);
    a.qp.fail().expect("to ERROR");
    for expected in 0..posted {
        let wc = a.wait();
        assert_eq!((wc.wr_id(), wc.is_ok()), (expected, false));
    }
}
