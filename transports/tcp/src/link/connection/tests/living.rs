//! `life`: which sides use a connection, keepalive, and what has to be sent first.

use std::rc::Weak;

use ucs::clock::{Deadline, duration_to_ticks, ticks};
use uct_plugin::PendingGroup;

use super::super::Use;
use super::*;
use crate::proto::wire::control;

/// The side uses the connection, and does not any more.
pub(super) fn come_and_go(bed: &Bed) {
    bed.conn.attach(&bed.iface.shared, Weak::new());
    bed.conn.members.borrow_mut().clear();
    bed.conn.mark_dirty(&bed.iface.shared);
}

#[test]
fn use_is_told_once_and_its_end_behind_everything_else() {
    let bed = Bed::new(&[]);
    bed.conn.attach(&bed.iface.shared, Weak::new());
    bed.conn.attach(&bed.iface.shared, Weak::new());
    assert_eq!(bed.read_all(), frame(control::USE, &[]));
    let sent = bed.fill(b"on its way");
    bed.conn.members.borrow_mut().clear();
    bed.conn.mark_dirty(&bed.iface.shared);
    bed.progress();
    assert_eq!(bed.conn.own_use.get(), Use::Using, "data wait");
    assert!(bed.read_all() == [sent, frame(control::UNUSE, &[])].concat());
    assert_eq!(bed.conn.own_use.get(), Use::Over);
    assert!(!bed.conn.is_open_to_endpoints());
    assert_eq!(bed.failure(), None);
}

#[test]
fn the_side_that_is_done_last_closes() {
    let bed = Bed::new(&[]);
    bed.write(&frame(control::USE, &[]));
    come_and_go(&bed);
    bed.progress();
    assert_eq!((bed.failure(), bed.conn.linger.get()), (None, Deadline::NEVER), "the peer uses it");
    bed.write(&frame(control::UNUSE, &[]));
    assert_eq!(bed.failure(), Some(Error::CANCELED));

    let bed = Bed::new(&[]);
    bed.conn.attach(&bed.iface.shared, Weak::new());
    bed.write(&frame(control::UNUSE, &[]));
    bed.write(&frame(control::USE, &[]));
    assert_eq!(bed.conn.peer_use.get(), Use::Over, "it goes forward only");
    assert_eq!(bed.failure(), None);
    bed.conn.members.borrow_mut().clear();
    bed.conn.mark_dirty(&bed.iface.shared);
    bed.progress();
    assert_eq!(bed.failure(), Some(Error::CANCELED));
}

#[test]
fn a_peer_that_never_used_it_has_some_time_to_begin() {
    let linger = duration_to_ticks(std::time::Duration::from_secs(100));
    let bed = Bed::new(&[("linger_timeout", "100s")]);
    come_and_go(&bed);
    bed.progress();
    let now = ticks();
    assert!(bed.conn.linger.get() <= Deadline::at_ticks(now + linger));
    bed.conn.tick(&bed.iface.shared, now + linger / 2, false);
    assert_eq!(bed.failure(), None);
    bed.conn.tick(&bed.iface.shared, now + linger, false);
    assert_eq!(bed.failure(), Some(Error::CANCELED));

    let bed = Bed::new(&[("linger_timeout", "100s")]);
    come_and_go(&bed);
    bed.progress();
    bed.write(&frame(control::USE, &[]));
    bed.conn.tick(&bed.iface.shared, ticks() + 2 * linger, false);
    assert_eq!(bed.failure(), None);
}

#[test]
fn a_socket_that_was_handed_over_ends_with_its_endpoint_whatever_the_peer_does() {
    let linger = duration_to_ticks(std::time::Duration::from_secs(100));
    for does_read in [true, false] {
        let bed = Bed::new(&[("linger_timeout", "100s")]);
        bed.conn.note_handed_over();
        bed.write(&frame(control::USE, &[]));
        assert_eq!(bed.conn.linger.get(), Deadline::NEVER, "an endpoint uses it");
        bed.conn.attach(&bed.iface.shared, Weak::new());
        if !does_read {
            bed.fill(&pattern(900));
        }
        come_and_go(&bed);
        bed.progress();
        let until = bed.conn.linger.get();
        assert!(until <= Deadline::at_ticks(ticks() + linger));
        assert_eq!((bed.conn.has_queued(), bed.conn.own_use.get() == Use::Over), (!does_read, does_read));
        // It says so again.
        bed.write(&frame(control::USE, &[]));
        bed.conn.mark_dirty(&bed.iface.shared);
        bed.progress();
        assert_eq!((bed.failure(), bed.conn.linger.get()), (None, until), "nothing prolongs it");
        bed.conn.tick(&bed.iface.shared, ticks() + linger, false);
        assert_eq!(bed.failure(), Some(Error::CANCELED));
    }
}

#[test]
fn silence_is_asked_about_and_lasts_as_long_as_configured() {
    let bed = Bed::new(&[("keepalive_interval", "100s"), ("keepalive_timeout", "250s")]);
    let look = || bed.conn.tick(&bed.iface.shared, ticks(), true);
    bed.conn.heard.set(false);
    look();
    assert_eq!(bed.read_all(), [], "nobody uses it");
    bed.conn.attach(&bed.iface.shared, Weak::new());
    bed.read_all();
    for round in 1..=3 {
        look();
        let expected = if round == 1 { frame(control::PING, &[]) } else { Vec::new() };
        assert_eq!((bed.read_all(), bed.failure()), (expected, None), "look {round}");
    }
    bed.write(&frame(control::PONG, &[]));
    look();
    assert_eq!((bed.conn.silent.get(), bed.read_all()), (0, Vec::new()));
    for _ in 0..3 {
        look();
    }
    assert_eq!(bed.failure(), None);
    bed.conn.tick(&bed.iface.shared, ticks(), false);
    assert_eq!(bed.failure(), None, "not every tick is a look");
    look();
    assert_eq!(bed.failure(), Some(Error::ENDPOINT_TIMEOUT));
}

#[test]
fn a_flush_ends_when_what_was_ahead_of_it_has_left() {
    let bed = Bed::new(&[]);
    let mut endings = [Ending::new(), Ending::new(), Ending::new()];
    let [first, second, third] = &mut endings;
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 1, first.completion()), Ok(Outcome::Done));
    bed.fill(&pattern(900));
    assert!(bed.conn.has_unfinished());
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 1, second.completion()), Ok(Outcome::InProgress));
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 2, third.completion()), Ok(Outcome::InProgress));
    bed.progress();
    assert_eq!(endings[1].status(), None);
    bed.conn.cancel(&bed.iface.shared, 2);
    assert_eq!((endings[1].status(), endings[2].status()), (None, Some(Error::CANCELED.status().raw())));
    bed.read_all();
    assert_eq!((endings[0].status(), endings[1].status()), (None, Some(UCT_OK)));
    assert!(!bed.conn.has_unfinished());
}

#[test]
fn a_flush_that_sends_what_was_collected_ends_no_earlier_than_that() {
    let bed = Bed::new(&[]);
    let mut endings = [Ending::new(), Ending::new()];
    let [sent, flushed] = &mut endings;
    let data = pattern(9000);
    let (entries, head) = (entries(&[&data]), frame_header(9, data.len()).to_ne_bytes());
    bed.iface.shared.next_epoch();
    bed.send(3, b"the first").unwrap();
    let outcome = bed.conn.send_vector(&bed.iface.shared, &head, vector(&entries), 1, sent.completion());
    assert_eq!(outcome, Ok(Outcome::InProgress));
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 1, flushed.completion()), Ok(Outcome::InProgress));
    assert!(!bed.conn.has_queued());
    assert_eq!(bed.iface.advance(), 1, "a completion is an event");
    assert_eq!(endings.each_ref().map(Ending::status), [Some(UCT_OK); 2]);
}

#[test]
fn the_end_of_a_connection_ends_what_is_outstanding() {
    let bed = Bed::new(&[]);
    let mut endings = [Ending::new(), Ending::new()];
    let [flushed, sent] = &mut endings;
    bed.fill(&pattern(900));
    let data = pattern(9000);
    let entries = entries(&[&data]);
    while bed.conn.has_room(&bed.iface.shared) {
        bed.send(1, b"more").unwrap();
    }
    bed.conn.queue.borrow_mut().push_vector(vector(&entries), 0, 1, sent.completion());
    bed.conn.flush_for(&bed.iface.shared, 1, flushed.completion()).unwrap();
    assert!(bed.iface.shared.is_blocked() && !bed.iface.table.is_empty());
    bed.conn.fail(&bed.iface.shared, Error::IO_ERROR, "a test");
    let status = Some(Error::IO_ERROR.status().raw());
    assert_eq!((endings[0].status(), endings[1].status()), (status, status));
    assert!(!bed.iface.shared.is_blocked() && bed.iface.table.is_empty() && !bed.conn.has_unfinished());
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "again");
    assert_eq!(bed.failure(), Some(Error::IO_ERROR));
    assert_eq!(bed.conn.flush_for(&bed.iface.shared, 1, None), Err(Error::IO_ERROR));
}

#[test]
fn what_waits_to_be_read_is_dropped_when_the_interface_closes() {
    let bed = Bed::new(&[]);
    (&bed.peer).write_all(&frame(1, &pattern(50_000))).unwrap();
    bed.conn.discard_received(&bed.iface.shared);
    bed.progress();
    assert_eq!((bed.messages(), bed.failure()), (Vec::new(), None));
}

#[test]
fn a_peer_that_said_in_its_hello_that_it_uses_the_connection_need_not_say_it_again() {
    for in_use in [false, true] {
        let bed = Bed::unconnected(&[]);
        assert!(bed.conn.is_connecting());
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let hello = Hello { in_use, ..bed.hello(HelloKind::Hello) };
        bed.conn.establish(&bed.iface.shared, &hello, Some(Socket::from(ours)));
        assert!(!bed.conn.is_connecting());
        come_and_go(&bed);
        bed.progress();
        assert_eq!(bed.conn.linger.get() == Deadline::NEVER, in_use);
        bed.conn.fail(&bed.iface.shared, Error::CANCELED, "the test is over");
        assert!(!bed.conn.is_connecting());
    }
}

#[test]
fn what_the_answer_to_a_hello_says_is_not_told_again() {
    for (is_welcomed, told) in [(true, Vec::new()), (false, frame(control::USE, &[]))] {
        let bed = Bed::unconnected(&[]);
        bed.conn.attach(&bed.iface.shared, Weak::new());
        assert!(bed.conn.hello(&bed.iface.shared, HelloKind::Accept).in_use);
        if is_welcomed {
            bed.conn.note_welcomed();
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        bed.conn.establish(&bed.iface.shared, &bed.hello(HelloKind::Hello), Some(Socket::from(ours)));
        let bed = Bed { peer: theirs, ..bed };
        assert_eq!(bed.read_all(), told, "welcomed: {is_welcomed}");
    }
}

/// A request that counts how often it was served.
#[repr(C)]
pub(super) struct Waiting {
    request: UctPendingReq,
    served: u32,
}

impl Waiting {
    pub(super) fn new() -> Box<Waiting> {
        Box::new(Waiting { request: UctPendingReq { func: serve, reserved: [0; 5] }, served: 0 })
    }

    /// Has it wait for the bed's connection; the group and it outlive that.
    pub(super) fn wait(&mut self, bed: &Bed, group: &PendingGroup) {
        // SAFETY: as said, and the request is used by nothing else.
        unsafe { bed.conn.pending.add(group, ptr::NonNull::from(&mut self.request)) };
    }

    /// How often it was served.
    pub(super) fn served(&self) -> u32 {
        // SAFETY: the place is its own; progress wrote through a pointer.
        unsafe { ptr::read_volatile(&raw const self.served) }
    }
}

unsafe extern "C" fn serve(request: *mut UctPendingReq) -> UctStatus {
    // SAFETY: every request of these tests is the beginning of a `Waiting`.
    let waiting = unsafe { &mut *request.cast::<Waiting>() };
    waiting.served += 1;
    UCT_OK
}

#[test]
fn a_request_that_waits_for_room_is_served_once_when_there_is_some() {
    let bed = Bed::new(&[]);
    let (group, mut waiting) = (PendingGroup::default(), Waiting::new());
    bed.fill(&pattern(900));
    waiting.wait(&bed, &group);
    bed.conn.note_pending(&bed.iface.shared);
    bed.progress();
    assert_eq!((waiting.served(), group.len()), (0, 1), "there is no room");
    bed.read_all();
    assert_eq!((waiting.served(), group.len()), (1, 0));
    assert_eq!(bed.conn.serve(&bed.iface.shared), 0);
    waiting.wait(&bed, &group);
    assert_eq!((bed.conn.serve(&bed.iface.shared), waiting.served()), (1, 2));
}

#[test]
fn the_end_of_a_connection_closes_its_socket() {
    let bed = Bed::new(&[]);
    assert!(Rc::ptr_eq(&bed.iface.table.conn(bed.conn.id()).unwrap(), &bed.conn));
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "a test");
    assert!(bed.conn.fd.get() < 0);
    assert_eq!((&bed.peer).read(&mut [0]).unwrap(), 0);
    assert!(!bed.conn.receive(&bed.iface.shared).any);
    assert!(!Bed::unconnected(&[]).conn.receive(&bed.iface.shared).any);
}

#[test]
fn a_connection_that_is_over_is_forgotten_by_the_next_progress() {
    let bed = Bed::new(&[]);
    bed.write(&frame(1, b"it is the active one"));
    assert!(bed.iface.table.active().is_some() && bed.iface.table.has_one());
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "a test");
    bed.iface.advance();
    assert!(bed.iface.table.active().is_none() && !bed.iface.table.has_one());
    assert_eq!(Rc::strong_count(&bed.conn), 1, "nothing but the test has it");
}

#[test]
fn a_socket_that_takes_nothing_any_more_ends_the_connection_with_the_error_of_the_send() {
    let bed = Bed::new(&[]);
    bed.peer.shutdown(std::net::Shutdown::Read).unwrap();
    bed.iface.shared.next_epoch();
    assert_eq!(bed.send(1, b"into the void"), Err(Error::NO_RESOURCE));
    bed.progress();
    assert_eq!(bed.failure(), Some(Error::from_errno(libc::EPIPE)));
    assert!(bed.iface.shared.last_failure().contains("while sending"));
}

#[test]
fn remote_memory_is_served_by_peers_that_say_so() {
    for features in [0, FEATURE_RMA] {
        let bed = Bed::new(&[]);
        let hello = Hello { features, ..bed.hello(HelloKind::Hello) };
        bed.conn.establish(&bed.iface.shared, &hello, None);
        assert_eq!(bed.conn.serves_rma(), features != 0);
    }
}

#[test]
fn connections_count_for_their_source_until_they_end_and_under_the_number_that_they_have() {
    let bed = Bed::new(&[("max_connections", "8"), ("max_connections_per_source", "2")]);
    let shared = &bed.iface.shared;
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    let source = ucs::admission::Source::of(address);
    let is_free = || {
        let vacancy = shared.vacancy(address, false, std::time::Duration::ZERO, |_| false);
        matches!(vacancy, ucs::admission::Vacancy::Free)
    };
    let [first, second, third] = [1, 2, 3].map(|peer| bed.iface.table.add(peer, 1, None).unwrap().id());
    shared.note_accepted(first, address);
    assert!(is_free());
    assert!(shared.leave_to_peer(second, source) && shared.leave_to_peer(second, source));
    assert!(!is_free(), "a connection that is left to its peer counts, and once");
    assert!(!shared.leave_to_peer(third, source));
    shared.note_taken_over(first, third);
    shared.stop_counting(first);
    assert!(!is_free(), "it has another number now");
    shared.stop_counting(third);
    assert!(is_free());
    shared.note_accepted(first, address);
    assert!(!is_free());
}

#[test]
fn what_a_peer_sent_before_it_takes_nothing_any_more_is_delivered_ahead_of_the_failure() {
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    let sent = (0..10).flat_map(|number| frame(number, &pattern(5000))).collect::<Vec<_>>();
    (&bed.peer).write_all(&sent).unwrap();
    bed.peer.shutdown(std::net::Shutdown::Read).unwrap();
    bed.iface.shared.next_epoch();
    assert_eq!(bed.send(1, b"into the void"), Err(Error::NO_RESOURCE));
    bed.iface.advance();
    let came: Vec<_> = bed.messages().into_iter().map(|(id, message)| (id, message.len())).collect();
    assert_eq!(came, (0..10).map(|number| (number, 5000)).collect::<Vec<_>>());
    assert_eq!(bed.failure(), Some(Error::from_errno(libc::EPIPE)));
}

#[test]
fn what_a_handler_sends_leaves_in_the_same_progress() {
    let bed = Bed::new(&[]);
    let (iface, conn) = (Rc::clone(&bed.iface), Rc::clone(&bed.conn));
    bed.on_message(move |_, _| {
        for answer in [b"first", b"other"] {
            let header = frame_header(4, answer.len()).to_ne_bytes();
            conn.send_frame(&iface.shared, &header, &answer[..]).unwrap();
        }
    });
    (&bed.peer).write_all(&frame(1, b"")).unwrap();
    let round = (0..64).find(|_| {
        bed.iface.advance();
        !bed.inbox.messages.borrow().is_empty()
    });
    assert!(round.is_some());
    assert_eq!(bed.read(), [frame(4, b"first"), frame(4, b"other")].concat());
    *bed.inbox.handler.borrow_mut() = None;
}

#[test]
fn each_endpoint_has_a_number_of_its_own() {
    let bed = Bed::new(&[]);
    let numbers = [(); 3].map(|()| bed.iface.shared.next_owner());
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
}
