//! Order, bounds, draining, and many threads at once.

use std::sync::Arc;
use std::thread;

use ucs::datastruct::mpmc::{BoundedQueue, UnboundedQueue};

use crate::watched;

#[test]
fn a_bounded_queue_gives_back_what_it_has_no_room_for() {
    let queue = BoundedQueue::new(2);
    assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(3)));
    assert_eq!((queue.len_hint(), queue.capacity()), (2, 2));
    assert_eq!(queue.pop(), Some(1));
    assert_eq!(queue.push(4), Ok(()));
    assert_eq!(queue.drain().collect::<Vec<_>>(), [2, 4]);
    assert!(queue.is_empty() && queue.pop().is_none());
    assert_eq!(BoundedQueue::<u8>::new(0).capacity(), 1);
}

#[test]
fn draining_ends_although_the_consumer_pushes() {
    watched(|| {
        let bounded = BoundedQueue::new(8);
        let unbounded = UnboundedQueue::new();
        for number in 0..4 {
            bounded.push(number).unwrap();
            unbounded.push(number);
        }
        let drained: Vec<_> = bounded.drain().inspect(|number| bounded.push(number + 10).unwrap()).collect();
        assert_eq!(drained, [0, 1, 2, 3]);
        assert_eq!(bounded.drain().collect::<Vec<_>>(), [10, 11, 12, 13]);
        let drained: Vec<_> = unbounded.drain().inspect(|number| unbounded.push(number + 10)).collect();
        assert_eq!(drained, [0, 1, 2, 3]);
        assert_eq!(unbounded.drain().collect::<Vec<_>>(), [10, 11, 12, 13]);
    });
}

#[test]
fn what_is_left_is_dropped_with_the_queue() {
    let alive = Arc::new(());
    let bounded = BoundedQueue::new(4);
    let unbounded = UnboundedQueue::new();
    bounded.push(alive.clone()).unwrap();
    unbounded.push(alive.clone());
    drop(bounded);
    drop(unbounded);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Lets two threads push numbered values and two threads take them; each value must come once.
fn every_value_comes_once(
    push: impl Fn((usize, usize)) + Clone + Send + 'static,
    pop: impl Fn() -> Option<(usize, usize)> + Clone + Send + 'static,
) {
    const EACH: usize = if cfg!(miri) { 50 } else { 5000 };
    let producers = [0, 1].map(|producer| {
        let push = push.clone();
        thread::spawn(move || (0..EACH).for_each(|number| push((producer, number))))
    });
    let consumers = [0, 1].map(|_| {
        let pop = pop.clone();
        thread::spawn(move || {
            let mut taken = Vec::new();
            while taken.last() != Some(&(2, 0)) {
                match pop() {
                    Some(value) => taken.push(value),
                    None => thread::yield_now(),
                }
            }
            taken.pop();
            taken
        })
    });
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    // One end mark for each consumer.
    push((2, 0));
    push((2, 0));
    let mut all = Vec::new();
    for consumer in consumers {
        let taken = consumer.join().unwrap();
        for producer in 0..2 {
            assert!(taken.iter().filter(|(from, _)| *from == producer).is_sorted());
        }
        all.extend(taken);
    }
    all.sort_unstable();
    let expected: Vec<_> =
        (0..2).flat_map(|producer| (0..EACH).map(move |number| (producer, number))).collect();
    assert!(all == expected);
}

#[test]
fn every_value_of_a_bounded_queue_comes_once_and_in_order() {
    watched(|| {
        let queue = Arc::new(BoundedQueue::new(16));
        let other_end = queue.clone();
        let push = move |value| {
            let mut value = value;
            while let Err(back) = queue.push(value) {
                value = back;
                thread::yield_now();
            }
        };
        every_value_comes_once(push, move || other_end.pop());
    });
}

#[test]
fn every_value_of_an_unbounded_queue_comes_once_and_in_order() {
    watched(|| {
        let queue = Arc::new(UnboundedQueue::new());
        let other_end = queue.clone();
        every_value_comes_once(move |value| queue.push(value), move || other_end.pop());
    });
}
