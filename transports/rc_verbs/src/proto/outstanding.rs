//! The operations of a connection that have not ended, oldest first: a ring that grows.
//!
//! Work requests end in the order in which they were posted, so what has to be done at the end of each is written into the ring once,
//! and read out of it once. One place is always free, so that a push needs no check ahead of it.

use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, needs_drop};
use std::ptr::NonNull;

/// An operation with the number of its work request.
pub(crate) struct Outstanding<T> {
    pub(crate) number: u32,
    pub(crate) op: T,
}

/// The operations that have not ended.
pub(crate) struct OutstandingQueue<T>(UnsafeCell<Ring<T>>);

struct Ring<T> {
    /// As many as a power of two. Those from `first` up to `end`, modulo their number, are initialised; one at least is free.
    places: Box<[MaybeUninit<Outstanding<T>>]>,
    /// Their number less one.
    mask: u32,
    first: u32,
    end: u32,
}

/// Places of the first ring.
const FIRST: usize = 4;

impl<T> Default for OutstandingQueue<T> {
    fn default() -> OutstandingQueue<T> {
        const { assert!(!needs_drop::<T>(), "the ring never drops what it holds") };
        OutstandingQueue(UnsafeCell::new(Ring::new(FIRST, 0)))
    }
}

impl<T> OutstandingQueue<T> {
    #[inline(always)]
    fn with<R>(&self, work: impl FnOnce(&mut Ring<T>) -> R) -> R {
        // SAFETY: the ring belongs to one thread, and no reference to it leaves this type: what the methods below do with it
        // runs no code that could call this again.
        work(unsafe { &mut *self.0.get() })
    }

    /// Adds one, whose work request was just posted.
    #[inline(always)]
    pub(crate) fn push(&self, number: u32, op: T) {
        let place = self.with(|ring| NonNull::from(ring.place(ring.end)));
        // SAFETY: the place is the ring's, and free. It is written here, not in the closure, which the operation would be copied
        // into.
        unsafe { place.write(MaybeUninit::new(Outstanding { number, op })) };
        self.with(|ring| {
            ring.end = ring.end.wrapping_add(1);
            if ring.len() > ring.mask {
                ring.grow();
            }
        });
    }

    /// Whether there is one whose work request is the one of this number or ahead of it.
    #[inline(always)]
    pub(crate) fn has_up_to(&self, number: u32) -> bool {
        self.with(|ring| {
            if ring.first == ring.end {
                return false;
            }
            let first = ring.place(ring.first);
            // SAFETY: the first is initialised.
            let first = unsafe { first.assume_init_ref() };
            number.wrapping_sub(first.number).cast_signed() >= 0
        })
    }

    /// Takes the oldest.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    pub(crate) unsafe fn pop_first(&self) -> Outstanding<T> {
        self.with(|ring| {
            let position = ring.first;
            ring.first = position.wrapping_add(1);
            let first = ring.place(position);
            // SAFETY: the first is initialised, and its place has just been given up.
            unsafe { first.assume_init_read() }
        })
    }

    /// Takes the oldest, if there is one.
    pub(crate) fn pop(&self) -> Option<Outstanding<T>> {
        // SAFETY: there is one.
        if self.is_empty() { None } else { Some(unsafe { self.pop_first() }) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|ring| ring.len() == 0)
    }
}

impl<T> Ring<T> {
    /// Without operations, at this position.
    fn new(places: usize, position: u32) -> Ring<T> {
        let mask = places as u32 - 1;
        Ring { places: Box::new_uninit_slice(places), mask, first: position, end: position }
    }

    #[inline]
    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.first)
    }

    /// The place of a position.
    #[inline]
    fn place(&mut self, position: u32) -> &mut MaybeUninit<Outstanding<T>> {
        // SAFETY: the mask is the number of places less one (`new`), so the index is below that.
        unsafe { self.places.get_unchecked_mut((position & self.mask) as usize) }
    }

    /// Twice as many places.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut grown = Ring::new(2 * self.places.len(), self.first);
        grown.end = self.end;
        for offset in 0..self.len() {
            let position = self.first.wrapping_add(offset);
            // SAFETY: as many as there are from the first on are initialised; the old ring is dropped without reading them.
            let outstanding = unsafe { self.place(position).assume_init_read() };
            grown.place(position).write(outstanding);
        }
        *self = grown;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn what_goes_in_comes_out_in_order_up_to_the_number_asked_for(
            start: u32,
            steps in prop::collection::vec((0u32..3, 0u32..20), 1..200),
        ) {
            let (queue, mut model) = (OutstandingQueue::default(), VecDeque::new());
            queue.with(|ring| (ring.first, ring.end) = (start, start));
            let mut posted = start;
            for (pushes, ended) in steps {
                for _ in 0..pushes {
                    posted = posted.wrapping_add(1);
                    queue.push(posted, u64::from(posted));
                    model.push_back((posted, u64::from(posted)));
                }
                let number = posted.wrapping_sub(ended);
                while queue.has_up_to(number) {
                    let first = queue.pop().unwrap();
                    let outstanding = (first.number, first.op);
                    prop_assert!(number.wrapping_sub(outstanding.0) < 1 << 31);
                    prop_assert_eq!(Some(outstanding), model.pop_front());
                }
                prop_assert!(model.front().is_none_or(|first| first.0.wrapping_sub(number).cast_signed() > 0));
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
            while let Some(first) = queue.pop() {
                prop_assert_eq!(Some((first.number, first.op)), model.pop_front());
            }
            prop_assert!(model.is_empty());
        }
    }
}
