//! Queues between threads: any number of producers, any number of consumers.
//!
//! For: work handed to another thread, with or without a bound. Stands on crossbeam-queue, which does the work; lock-free.
//! The asynchronous context and workers stand on it. For heap memory of one process only.
//!
//! Each producer's values come out in the order in which it pushed them.

use std::fmt;

use crossbeam_queue::{ArrayQueue, SegQueue};

/// A queue with room for a fixed number of values. All of its memory is allocated when it is made.
pub struct BoundedQueue<T>(ArrayQueue<T>);

impl<T> BoundedQueue<T> {
    /// A queue for `capacity` values, or for one if that is 0.
    pub fn new(capacity: usize) -> BoundedQueue<T> {
        BoundedQueue(ArrayQueue::new(capacity.max(1)))
    }

    /// Appends a value; gives it back if the queue is full. Never blocks, never allocates.
    pub fn push(&self, value: T) -> Result<(), T> {
        self.0.push(value)
    }

    /// Takes the oldest value. Never blocks.
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    /// How many values it has room for.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// How many values are in it; true only if no other thread uses it meanwhile.
    pub fn len_hint(&self) -> usize {
        self.0.len()
    }

    /// Whether it was empty when asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what is in it, one value at a time, at most as many as are in it now: it ends also while others push.
    pub fn drain(&self) -> impl Iterator<Item = T> + '_ {
        let due = self.len_hint();
        std::iter::from_fn(|| self.pop()).take(due)
    }
}

impl<T> fmt::Debug for BoundedQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BoundedQueue");
        debug.field("len_hint", &self.len_hint()).field("capacity", &self.capacity()).finish()
    }
}

/// A queue that grows as it is filled, by blocks of some 30 values.
pub struct UnboundedQueue<T>(SegQueue<T>);

impl<T> UnboundedQueue<T> {
    /// An empty queue. Allocates nothing yet.
    pub const fn new() -> UnboundedQueue<T> {
        UnboundedQueue(SegQueue::new())
    }

    /// Appends a value. Never blocks; allocates once in a while.
    pub fn push(&self, value: T) {
        self.0.push(value);
    }

    /// Takes the oldest value. Never blocks.
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    /// How many values are in it; true only if no other thread uses it meanwhile.
    pub fn len_hint(&self) -> usize {
        self.0.len()
    }

    /// Whether it was empty when asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what is in it, one value at a time, at most as many as are in it now: it ends also while others push.
    pub fn drain(&self) -> impl Iterator<Item = T> + '_ {
        let due = self.len_hint();
        std::iter::from_fn(|| self.pop()).take(due)
    }
}

impl<T> Default for UnboundedQueue<T> {
    fn default() -> UnboundedQueue<T> {
        UnboundedQueue::new()
    }
}

impl<T> fmt::Debug for UnboundedQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnboundedQueue").field("len_hint", &self.len_hint()).finish()
    }
}
