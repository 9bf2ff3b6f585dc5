//! `receive`: frames arrive as they were sent, however the bytes come.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use super::super::receive::Rest;
use super::*;
use crate::link::announced::Room;
use crate::proto::wire::control;
use ucs::admission::Source;

#[test]
fn frames_arrive_whole_wherever_the_bytes_are_cut() {
    let frames = [frame(1, b"abc"), frame(31, &[]), frame(2, &pattern(17))].concat();
    let expected = [(1, b"abc".to_vec()), (31, Vec::new()), (2, pattern(17))];
    let bed = Bed::new(&[]);
    for cut in 0..=frames.len() {
        bed.write(&frames[..cut]);
        bed.write(&frames[cut..]);
        assert_eq!(bed.messages(), expected, "cut at {cut}");
    }
}

#[test]
fn frames_larger_than_a_buffer_arrive_whole_with_what_lies_behind_them() {
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    // Around the room of a buffer, whose head and alignment take less than 128 bytes.
    for length in (16_384 - 128..16_384 + 16).chain([40_001, 300_007]) {
        let frames = [frame(1, b"ahead"), frame(2, &pattern(length)), frame(3, b"behind")].concat();
        bed.write(&frames);
        let messages = bed.messages();
        assert_eq!(bed.failure(), None, "{length} bytes");
        assert!(
            messages == [(1, b"ahead".to_vec()), (2, pattern(length)), (3, b"behind".to_vec())],
            "{length}"
        );
    }
}

#[test]
fn a_frame_counts_once_however_long_it_is() {
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    for length in [8, 16_000, 40_001] {
        let bytes = frame(2, &pattern(length));
        let (mut written, mut count) = (0, 0);
        for _ in 0..10_000 {
            written += (&bed.peer).write(&bytes[written..]).unwrap_or(0);
            count += bed.iface.advance();
            if bed.inbox.messages.borrow().len() == 1 {
                break;
            }
        }
        assert_eq!((bed.messages().len(), count), (1, 1), "{length} bytes");
    }
}

#[test]
fn progress_inside_a_handler_goes_on_with_what_has_arrived_and_with_what_comes_later() {
    let bed = Bed::new(&[]);
    let (iface, peer) = (Rc::clone(&bed.iface), bed.peer.try_clone().unwrap());
    let inbox = Rc::clone(&bed.inbox);
    let seen = Rc::new(Cell::new((0, 0)));
    let noted = Rc::clone(&seen);
    bed.on_message(move |id, _| {
        if id == 1 {
            rounds(&iface);
            let arrived = inbox.messages.borrow().len();
            (&peer).write_all(&frame(3, b"later")).unwrap();
            rounds(&iface);
            noted.set((arrived, inbox.messages.borrow().len()));
        }
    });
    bed.write(&[frame(1, b"outer"), frame(2, b"inner")].concat());
    assert_eq!(seen.get(), (2, 3));
    let ids: Vec<_> = bed.messages().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn a_frame_may_be_as_long_as_agreed_and_no_longer() {
    let bed = Bed::new(&[("max_message", "64k")]);
    bed.write(&frame(1, &pattern(65_536)));
    assert!(bed.messages() == [(1, pattern(65_536))]);
    bed.write(&frame_header(1, 65_537).to_ne_bytes());
    assert_eq!(bed.failure(), Some(Error::IO_ERROR));
    // A complete message, in a buffer that is larger than a message may be.
    let bed = Bed::new(&[("max_message", "64k")]);
    bed.write(&frame(1, &pattern(65_537)));
    assert_eq!((bed.failure(), bed.messages().len()), (Some(Error::IO_ERROR), 0));
}

#[test]
fn a_peer_that_takes_no_answers_is_not_read_from_until_it_has_taken_some() {
    let bed = Bed::new(&[]);
    let pings = frame(control::PING, &[]).repeat(8192);
    let mut written = 0;
    'flood: for _ in 0..4096 {
        let mut tries = 0;
        while tries < 8 {
            match (&bed.peer).write(&pings) {
                Ok(count) => {
                    written += count;
                    bed.progress();
                    continue 'flood;
                }
                Err(_) => {
                    tries += 1;
                    bed.progress();
                }
            }
        }
        break;
    }
    assert!(bed.conn.is_held());
    let queued = bed.conn.queued_bytes();
    let limit = bed.iface.shared.answer_limit();
    assert!(
        queued > limit && queued <= limit + bed.iface.shared.scratch_size(),
        "{queued} bytes, {limit} are the limit"
    );
    let answers = bed.read_all();
    assert_eq!(answers.len(), written / 8 * 8);
    assert!(!bed.conn.is_held());
    assert!(answers.chunks(8).all(|answer| answer == frame(control::PONG, &[])));
}

/// Takes room for a message of another connection, or of one that does not exist any more.
pub(super) fn take_room(iface: &TcpIface, source: u8, bytes: usize) -> Option<Room> {
    let conn = iface.table.add(7, 1, None).unwrap();
    iface.shared.ask_for_room(conn.id(), Source::of(IpAddr::from([10, 0, 0, source])), bytes)
}

#[test]
fn a_large_message_waits_for_room_and_begins_as_soon_as_there_is_some() {
    let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "128k")]);
    // Two messages of the largest size and their headers.
    let all = 2 * (65_536 + 32);
    let first = take_room(&bed.iface, 1, all / 2).expect("room");
    let second = take_room(&bed.iface, 2, all / 2 - 20_000).expect("room");
    bed.write(&frame(1, &pattern(20_000)));
    assert_eq!(bed.messages(), [(1, pattern(20_000))]);
    let large = frame(2, &pattern(30_000));
    bed.write(&large[..1008]);
    assert!(bed.conn.is_held());
    bed.iface.shared.give_room(second);
    bed.progress();
    assert!(!bed.conn.is_held());
    bed.write(&large[1008..]);
    assert_eq!(bed.messages(), [(2, pattern(30_000))]);
    bed.iface.shared.give_room(first);
    assert!(take_room(&bed.iface, 1, all / 2).is_some() && take_room(&bed.iface, 2, all / 2).is_some());
}

#[test]
fn a_large_message_that_a_handler_finds_while_it_waits_for_room_arrives_once() {
    let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")]);
    let [one, other] = [1, 2].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
    let iface = Rc::clone(&bed.iface);
    bed.on_message(move |_, _| rounds(&iface));
    let frames = [frame(1, b""), frame(2, b""), frame(3, &pattern(30_000)), frame(4, b"behind")].concat();
    // The handler of the first one finds the large one, and so does the round around it.
    bed.write(&frames[..2000]);
    assert_eq!((bed.conn.is_held(), bed.inbox.messages.borrow().len()), (true, 2));
    bed.iface.shared.give_room(one);
    bed.write(&frames[2000..]);
    bed.iface.shared.give_room(other);
    let ids: Vec<_> = bed.messages().into_iter().map(|(id, message)| (id, message.len())).collect();
    assert_eq!(ids, [(1, 0), (2, 0), (3, 30_000), (4, 6)]);
    assert!(take_room(&bed.iface, 1, 65_568).is_some() && take_room(&bed.iface, 2, 65_568).is_some());
}

#[test]
fn a_connection_that_ends_while_it_waits_for_room_keeps_nobody_waiting() {
    let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")]);
    let [one, other] = [1, 2].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
    bed.write(&frame(2, &pattern(30_000))[..8]);
    assert!(bed.conn.is_held());
    assert!(take_room(&bed.iface, 3, 65_568).is_none(), "it waits behind the message");
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "it has to");
    bed.iface.shared.give_room(one);
    // What waited is of a connection without a socket, which is given room and gives it back.
    bed.progress();
    assert!(take_room(&bed.iface, 3, 65_568).is_some());
    bed.iface.shared.give_room(other);
    assert!(take_room(&bed.iface, 2, 65_568).is_some());
}

#[test]
fn a_large_message_is_stalled_when_it_is_slow_and_nothing_waits_to_be_read() {
    let bed = Bed::new(&[("rx_seg_size", "16k")]);
    let large = frame(2, &pattern(200_000));
    bed.write(&large[..100_008]);
    let Rest::Message { began, have, .. } = *bed.conn.rest.borrow() else { panic!("it has not begun") };
    assert_eq!(have, 100_000);
    let after = |time| began + ucs::clock::duration_to_ticks(time);
    assert!(!bed.conn.is_stalled(after(Duration::from_millis(900))));
    // 64 KiB a second are enough.
    assert!(!bed.conn.is_stalled(after(Duration::from_millis(1500))));
    assert!(bed.conn.is_stalled(after(Duration::from_millis(1550))));
    (&bed.peer).write_all(&large[100_008..]).unwrap();
    assert!(!bed.conn.is_stalled(after(Duration::from_secs(60))));
    bed.progress();
    assert!(bed.messages() == [(2, pattern(200_000))]);
    assert!(!bed.conn.is_stalled(after(Duration::from_secs(60))));
}

#[test]
fn a_peer_that_closes_ends_the_connection_behind_what_it_sent() {
    for length in [3, 100_000] {
        let bed = Bed::new(&[("rx_seg_size", "16k")]);
        bed.write(&frame(1, b"whole"));
        bed.write(&frame(2, &pattern(length))[..10]);
        bed.peer.shutdown(std::net::Shutdown::Both).unwrap();
        bed.progress();
        assert_eq!(bed.messages(), [(1, b"whole".to_vec())]);
        assert_eq!(bed.failure(), Some(Error::CONNECTION_RESET));
        let all = bed.iface.config.max_announced.to_usize();
        let _one = take_room(&bed.iface, 1, all / 2).expect("room");
        assert!(take_room(&bed.iface, 2, all / 2).is_some(), "room was given back");
    }
}

#[test]
fn requests_wait_above_the_limit_of_answers_and_go_on_at_half_of_it() {
    let bed = Bed::new(&[]);
    bed.fill(&pattern(997));
    let limit = bed.iface.shared.answer_limit();
    let look = || {
        bed.conn.mark_dirty(&bed.iface.shared);
        bed.progress();
        bed.conn.is_held()
    };
    for (queued, is_held) in [(limit - 1, false), (limit, false), (limit + 1, true)] {
        bed.queue_exactly(queued);
        bed.write(&frame(control::PING, &[]));
        let expected = if is_held { queued } else { queued + 8 };
        assert_eq!((bed.conn.is_held(), bed.conn.queued_bytes()), (is_held, expected), "{queued} bytes");
    }
    for (queued, is_held) in [(limit, true), (limit / 2 + 1, true), (limit / 2, false)] {
        bed.queue_exactly(queued);
        let expected = if is_held { queued } else { queued + 8 };
        assert_eq!((look(), bed.conn.queued_bytes()), (is_held, expected), "{queued} bytes");
    }
}

#[test]
fn a_request_that_a_handler_finds_while_answers_wait_is_handled_once_there_is_room() {
    let bed = Bed::new(&[]);
    bed.fill(&pattern(997));
    bed.queue_exactly(bed.iface.shared.answer_limit() + 1);
    let iface = Rc::clone(&bed.iface);
    bed.on_message(move |_, _| rounds(&iface));
    // The handler finds the ping, and so does the round around it.
    bed.write(&[frame(1, b""), frame(control::PING, &[]), frame(2, b"behind")].concat());
    assert_eq!((bed.conn.is_held(), bed.messages().len()), (true, 1));
    bed.queue_exactly(8);
    bed.conn.mark_dirty(&bed.iface.shared);
    bed.progress();
    assert_eq!((bed.conn.is_held(), bed.messages()), (false, vec![(2, b"behind".to_vec())]));
    assert_eq!(bed.conn.queued_bytes(), 16);
}

#[test]
fn a_frame_that_ends_the_connection_inside_a_handler_ends_it_for_the_round_around_it() {
    for length in [65_537, 100] {
        let bed = Bed::new(&[("max_message", "64k")]);
        let iface = Rc::clone(&bed.iface);
        bed.on_message(move |_, _| rounds(&iface));
        // Too long for a message, or of an unknown kind.
        let kind = if length == 100 { 39 } else { 1 };
        bed.write(&[frame(1, b"whole"), frame_header(kind, length).to_ne_bytes().to_vec()].concat());
        assert_eq!(bed.messages(), [(1, b"whole".to_vec())]);
        assert_eq!(bed.failure(), Some(Error::IO_ERROR), "{length} bytes");
    }
}

#[test]
fn a_message_that_fits_into_a_buffer_needs_no_room() {
    for (more, is_held) in [(-8, false), (-1, false), (0, false), (1, true), (8, true)] {
        let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")]);
        let rooms = [1, 2].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
        let most = bed.iface.shared.rx_pool().capacity() - 8;
        let data = pattern(most.checked_add_signed(more).unwrap());
        let large = frame(2, &data);
        bed.write(&large[..1000]);
        assert_eq!(bed.conn.is_held(), is_held, "{} bytes", data.len());
        for room in rooms {
            bed.iface.shared.give_room(room);
        }
        bed.progress();
        bed.write(&large[1000..]);
        assert!(bed.messages() == [(2, data)]);
    }
}

#[test]
fn progress_counts_the_messages_that_it_handled_also_inside_a_handler() {
    let bed = Bed::new(&[]);
    (&bed.peer).write_all(&[frame(1, b""), frame(2, b""), frame(3, b"")].concat()).unwrap();
    assert_eq!((0..64).map(|_| bed.iface.advance()).sum::<u32>(), 3);
    let (iface, inside) = (Rc::clone(&bed.iface), Rc::new(Cell::new(0)));
    let noted = Rc::clone(&inside);
    bed.on_message(move |_, _| noted.set(iface.advance()));
    bed.write(&[frame(1, b""), frame(2, b"")].concat());
    assert_eq!((inside.get(), bed.messages().len()), (1, 5));
}

#[test]
fn a_connection_that_waits_for_room_leaves_what_comes_in_the_socket() {
    let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")]);
    let rooms = [1, 2].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
    bed.write(&frame(2, &pattern(30_000))[..1008]);
    (&bed.peer).write_all(&frame(2, &pattern(30_000))[1008..2008]).unwrap();
    bed.progress();
    let waiting = rustix::io::ioctl_fionread(bed.conn.socket.borrow().as_ref().unwrap());
    assert_eq!((bed.conn.is_held(), waiting), (true, Ok(1000)));
    for room in rooms {
        bed.iface.shared.give_room(room);
    }
}

#[test]
fn only_what_is_answered_waits_above_the_limit_of_answers() {
    let get = frame(control::REQUEST, &[&[2][..], &[0; 31]].concat());
    let mine = frame(1, b"mine");
    for (bytes, is_held) in [(get, true), (frame(control::PING, &[]), true), (mine, false)] {
        let bed = Bed::new(&[]);
        bed.fill(&pattern(997));
        bed.queue_exactly(bed.iface.shared.answer_limit() + 1);
        bed.write(&bytes);
        assert_eq!(bed.conn.is_held(), is_held, "kind {}", bytes[0]);
    }
    let bed = Bed::new(&[]);
    bed.fill(&pattern(997));
    bed.queue_exactly(bed.iface.shared.answer_limit() + 1);
    bed.write(&frame(control::PONG, &[]));
    assert!(!bed.conn.is_held());
}

#[test]
fn those_behind_a_connection_that_ends_while_it_waits_for_room_are_served_at_once() {
    let bed = Bed::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "128k")]);
    let [one, other] =
        [(1, 65_568), (2, 50_000)].map(|(source, bytes)| take_room(&bed.iface, source, bytes).expect("room"));
    bed.write(&frame(2, &pattern(30_000))[..1008]);
    assert!(bed.conn.is_held() && take_room(&bed.iface, 3, 10_000).is_none(), "it is behind the message");
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "it has to");
    bed.progress();
    let last = take_room(&bed.iface, 3, 15_000).expect("nobody waits, and there is room");
    [one, other, last].into_iter().for_each(|room| bed.iface.shared.give_room(room));
}

#[test]
fn a_stalled_message_ends_its_connection_if_others_can_have_its_room_and_only_then() {
    let bed = Bed::new(&[
        ("rx_seg_size", "16k"),
        ("max_message", "64k"),
        ("max_announced", "256k"),
        ("max_announced_per_source", "64k"),
    ]);
    let (table, shared) = (&bed.iface.table, &bed.iface.shared);
    let later = |seconds| ucs::clock::ticks() + ucs::clock::duration_to_ticks(Duration::from_secs(seconds));
    let rooms = [1, 2, 3].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
    bed.write(&frame(2, &pattern(30_000))[..1008]);
    assert!(bed.conn.is_stalled(later(60)));
    let look = |seconds| {
        let again = table.tick_announced(shared, later(seconds));
        bed.progress();
        (again != ucs::clock::Deadline::NEVER, bed.failure())
    };
    assert_eq!(look(60), (false, None), "nobody waits");
    assert!(take_room(&bed.iface, 1, 65_568).is_none());
    assert_eq!(look(120), (true, None), "who waits has too much itself");
    assert!(take_room(&bed.iface, 4, 65_568).is_none());
    assert_eq!(look(0), (true, None), "it is not stalled yet");
    assert_eq!(look(180), (true, Some(Error::ENDPOINT_TIMEOUT)));
    rooms.into_iter().for_each(|room| shared.give_room(room));
}
