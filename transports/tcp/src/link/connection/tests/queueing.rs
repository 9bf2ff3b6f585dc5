//! `queue`: buffers and vectors in order.

use super::super::queue::Queue;
use super::*;
use crate::io::buffer::{TxBuffer, TxPool};
use crate::io::pieces::PIECES;

fn copied(queue: &mut Queue, bytes: &[u8], free: usize) {
    let (start, _) = queue.push_buffer(TxBuffer::new(bytes.len() + free).unwrap());
    // SAFETY: the buffer has room for the bytes.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    queue.set_tail(free);
}

/// What the queue has one system call send, at most `most` bytes of it; takes them off.
fn take(queue: &mut Queue, most: usize, ended: &mut Vec<Completion>) -> Vec<u8> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let sent = queue.pieces().send(std::os::fd::AsFd::as_fd(&ours)).unwrap();
    drop(ours);
    let mut bytes = Vec::new();
    (&theirs).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), sent);
    bytes.truncate(most);
    queue.advance(bytes.len(), &TxPool::new(64), ended);
    bytes
}

#[test]
fn whatever_a_call_takes_the_rest_follows_and_each_operation_ends_with_its_last_byte() {
    let data = pattern(100);
    for step in 1..=101 {
        let (mut queue, mut ending) = (Queue::default(), Ending::new());
        copied(&mut queue, &data[..20], 12);
        let vector_of = entries(&[&data[15..30], &[], &data[30..60], &data[60..61]]);
        queue.push_vector(vector(&vector_of), 5, 1, ending.completion());
        copied(&mut queue, &data[61..], 0);
        assert_eq!(queue.bytes(), 100);
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        while taken.len() < 100 {
            taken.extend(take(&mut queue, step, &mut ended));
            assert_eq!(queue.bytes(), 100 - taken.len());
            assert_eq!(ended.len(), usize::from(taken.len() >= 61), "{} bytes have left", taken.len());
        }
        assert_eq!(taken, data, "steps of {step}");
        assert!(queue.is_empty());
    }
}

#[test]
fn a_detached_vector_is_copied_from_where_it_was() {
    let data = pattern(60);
    for left in 0..59 {
        let mut endings = [Ending::new(), Ending::new()];
        let (mut queue, mut ended, mut copy) = (Queue::default(), Vec::new(), data.clone());
        let entries_of = [entries(&[&copy[..10], &copy[10..30]]), entries(&[&copy[30..]])];
        for (owner, (entries, ending)) in (1..).zip(entries_of.iter().zip(&mut endings)) {
            queue.push_vector(vector(entries), 0, owner, ending.completion());
        }
        let mut taken = if left == 0 { Vec::new() } else { take(&mut queue, left, &mut ended) };
        let already = ended.len();
        assert_eq!(already, usize::from(left >= 30));
        queue.detach(1, &mut ended).unwrap();
        assert_eq!(ended.len(), 1, "the other owner's is left alone");
        assert_eq!(queue.bytes(), 60 - left);
        if already == 0 {
            // SAFETY: the operation has ended: its memory is this test's again.
            unsafe { copy.as_mut_ptr().write_bytes(0, 30) };
        }
        taken.extend(take(&mut queue, 60, &mut ended));
        assert_eq!(taken, data, "{left} bytes had left");
        assert_eq!((ended.len(), queue.bytes()), (2, 0));
    }
}

#[test]
fn a_vector_that_no_memory_is_left_for_is_dropped_and_ends() {
    let data = pattern(30);
    let mut endings = [Ending::new(), Ending::new()];
    // More than all memory: nothing reads it, since there is no room for the copy.
    let mut large = entries(&[&data[..10]]);
    large[0].length = 1 << 48;
    let small = entries(&[&data[10..]]);
    let (mut queue, mut ended) = (Queue::default(), Vec::new());
    for (entries, ending) in [&large, &small].into_iter().zip(&mut endings) {
        queue.push_vector(vector(entries), 0, 1, ending.completion());
    }
    assert_eq!(queue.detach(1, &mut ended), Err(Error::NO_MEMORY));
    assert_eq!((ended.len(), queue.bytes()), (2, 20), "both have ended, and one was copied");
    assert_eq!(take(&mut queue, 30, &mut ended), data[10..]);
}

#[test]
fn another_queue_goes_ahead_and_what_is_cleared_hands_its_completions_over() {
    let data = pattern(40);
    let mut endings = [Ending::new(), Ending::new()];
    let entries_of = [entries(&[&data[..10]]), entries(&[&data[30..]])];
    let (mut first, mut second, mut ended) = (Queue::default(), Queue::default(), Vec::new());
    let [one, two] = &mut endings;
    first.push_vector(vector(&entries_of[0]), 0, 1, one.completion());
    copied(&mut first, &data[10..20], 3);
    copied(&mut second, &data[20..30], 0);
    second.push_vector(vector(&entries_of[1]), 0, 1, two.completion());
    second.put_ahead(first);
    assert_eq!(second.bytes(), 40);
    assert_eq!(take(&mut second, 10, &mut ended), data[..10]);
    assert_eq!(second.bytes(), 30);
    assert_eq!(take(&mut second, 15, &mut ended), data[10..25]);
    second.clear(&mut ended);
    assert_eq!((ended.len(), second.bytes(), second.is_empty()), (2, 0, true));
}

#[test]
fn a_call_takes_as_many_pieces_as_fit_and_no_empty_ones() {
    let data = pattern(3 * (PIECES + 6));
    let blocks: Vec<&[u8]> = data.chunks(3).flat_map(|block| [&block[..0], block]).collect();
    let (entries, mut queue, mut ended) = (entries(&blocks), Queue::default(), Vec::new());
    queue.push_buffer(TxBuffer::new(8).unwrap());
    queue.push_vector(vector(&entries), 0, 1, None);
    assert_eq!(queue.pieces().len(), PIECES);
    assert_eq!(take(&mut queue, 1000, &mut ended), data[..3 * PIECES]);
    assert_eq!(queue.pieces().len(), 6);
    assert_eq!(take(&mut queue, 1000, &mut ended), data[3 * PIECES..]);
    assert!(queue.is_empty());
}
