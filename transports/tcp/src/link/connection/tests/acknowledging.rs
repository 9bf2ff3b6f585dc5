//! `acknowledge`: at once, or with what the application replies.

use uct_plugin::Iface;
use uct_plugin::Status;
use uct_plugin::rma::{Opcode, Request, Response, ResponseKind};

use super::framing::{asked, request};
use super::*;
use crate::proto::wire::control;

/// A peer that puts.
struct Putter {
    bed: Bed,
    put: Request,
    _memory: Vec<u8>,
}

impl Putter {
    fn new() -> Putter {
        let (bed, mut memory) = (Bed::new(&[]), vec![0; 8]);
        let put = Request { sequence: 0, ..request(&bed, &mut memory, Opcode::Put, 8) };
        Putter { bed, put, _memory: memory }
    }

    /// One progress in which the next put arrives.
    fn put(&mut self) {
        self.put.sequence += 1;
        (&self.bed.peer).write_all(&asked(&self.put, &[1; 8])).unwrap();
        assert_eq!(self.bed.iface.advance(), 1);
    }

    /// The acknowledgement of the last put.
    fn acknowledgement(&self) -> Vec<u8> {
        let (kind, sequence) = (ResponseKind::Acknowledgement, self.put.sequence);
        frame(control::RESPONSE, &Response { kind, sequence, status: Status::OK, length: 0 }.header())
    }

    /// One put, to which the application replies; what the peer receives of that before the next progress and by it.
    fn put_and_reply(&mut self) -> [Vec<u8>; 2] {
        self.put();
        self.bed.send(3, b"reply").unwrap();
        let before = self.bed.read();
        self.bed.iface.advance();
        [before, self.bed.read()]
    }
}

#[test]
fn the_progress_that_carries_out_a_put_acknowledges_it() {
    let mut peer = Putter::new();
    for _ in 0..3 {
        peer.put();
        assert_eq!(peer.bed.read(), peer.acknowledgement());
        // Later than the next progress, so it is no reply.
        peer.bed.iface.advance();
        peer.bed.send(3, b"news").unwrap();
        assert_eq!(peer.bed.read(), frame(3, b"news"));
    }
}

#[test]
fn where_the_application_replies_to_puts_the_next_progress_sends_acknowledgement_and_reply() {
    let mut peer = Putter::new();
    let reply = frame(3, b"reply");
    assert_eq!(peer.put_and_reply(), [peer.acknowledgement(), reply.clone()], "nothing is known yet");
    for _ in 0..3 {
        let [before, by_progress] = peer.put_and_reply();
        assert_eq!(before, []);
        assert_eq!(by_progress, [peer.acknowledgement(), reply.clone()].concat());
    }
}

#[test]
fn an_acknowledgement_that_waits_in_vain_leaves_with_the_next_progress_and_is_the_last_to_wait() {
    let mut peer = Putter::new();
    peer.put_and_reply();
    peer.put();
    assert_eq!(peer.bed.read(), []);
    assert_eq!(peer.bed.iface.arm(UCT_EVENT_RECV), Err(Error::BUSY), "no program sleeps on it");
    assert_eq!(peer.bed.iface.advance(), 0);
    assert_eq!(peer.bed.read(), peer.acknowledgement());
    assert_eq!(peer.bed.iface.arm(UCT_EVENT_RECV), Ok(()));
    peer.put();
    assert_eq!(peer.bed.read(), peer.acknowledgement());
}

#[test]
fn an_acknowledgement_that_waits_is_sent_once_by_a_flush() {
    let mut peer = Putter::new();
    peer.put_and_reply();
    peer.put();
    peer.bed.conn.flush(&peer.bed.iface.shared);
    assert_eq!(peer.bed.read(), peer.acknowledgement());
    peer.bed.progress();
    assert_eq!(peer.bed.read(), []);
}
