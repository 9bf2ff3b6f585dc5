//! The operations that an endpoint has under way, oldest first: a ring that grows.
//!
//! For: `tx`. Requests end in the order in which they were posted, so what has to be done at the end of each is written into
//! the ring once, and read out of it once. There is always room for one more, so that writing it is straight.

use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, needs_drop};
use std::ptr::NonNull;

use uct_plugin::{Completion, FormerWord, Unpack};

use crate::buffer::{MessageBuffer, ReadBuffer, SmallBuffer};

/// What to do when a work request has ended, and the buffer that it uses until then.
pub(crate) enum TxOp {
    /// Put back a buffer of messages.
    Buffer(MessageBuffer),
    /// Put back a small buffer, if any, and complete.
    Zcopy(Option<SmallBuffer>, Option<Completion>),
    /// A read of this many bytes into the caller's memory.
    Get(usize, Option<Completion>),
    /// A read into a buffer of messages, to be handed over.
    GetBcopy(ReadBuffer, Unpack, Option<Completion>),
    /// An atomic whose result is in a small buffer.
    Fetch(SmallBuffer, FormerWord, Option<Completion>),
    /// One step of an emulated atomic, whose result is in a small buffer.
    Step(SmallBuffer),
    /// Nothing but the end itself is of interest.
    Notify(Completion),
}

/// An operation with the number of its work request.
pub(crate) struct Outstanding {
    pub(crate) number: u32,
    pub(crate) op: TxOp,
}

// The ring never drops what it holds.
const _: () = assert!(!needs_drop::<Outstanding>());

/// The operations under way.
pub(crate) struct UnderWay(UnsafeCell<Ring>);

struct Ring {
    /// As many as a power of two. Those from `first` up to `end`, modulo their number, are initialised; one at least is free.
    places: Box<[MaybeUninit<Outstanding>]>,
    /// Their number less one.
    mask: u32,
    first: u32,
    end: u32,
}

/// Places of the first ring.
const FIRST: usize = 4;

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay(UnsafeCell::new(Ring::new(FIRST, 0)))
    }
}

impl UnderWay {
    #[inline(always)]
    fn with<R>(&self, work: impl FnOnce(&mut Ring) -> R) -> R {
        // SAFETY: the ring belongs to one thread, and no reference to it leaves this type: what the methods below do with it
        // calls nobody who might come here again.
        work(unsafe { &mut *self.0.get() })
    }

    /// Adds one, whose work request was just posted.
    #[inline(always)]
    pub(crate) fn push(&self, number: u32, op: TxOp) {
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
    pub(crate) unsafe fn pop_first(&self) -> Outstanding {
        self.with(|ring| {
            let position = ring.first;
            ring.first = position.wrapping_add(1);
            let first = ring.place(position);
            // SAFETY: the first is initialised, and its place has just been given up.
            unsafe { first.assume_init_read() }
        })
    }

    /// Takes the oldest, if there is one.
    pub(crate) fn pop(&self) -> Option<Outstanding> {
        // SAFETY: there is one.
        if self.is_empty() { None } else { Some(unsafe { self.pop_first() }) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|ring| ring.len() == 0)
    }

    /// Whether a step of an emulated atomic is among them.
    pub(crate) fn has_step(&self) -> bool {
        self.with(|ring| {
            (0..ring.len()).any(|offset| {
                let place = ring.place(ring.first.wrapping_add(offset));
                // SAFETY: as many as there are from the first on are initialised.
                matches!(unsafe { place.assume_init_ref() }.op, TxOp::Step(_))
            })
        })
    }
}

impl Ring {
    /// Without operations, at this position.
    fn new(places: usize, position: u32) -> Ring {
        let mask = places as u32 - 1;
        Ring { places: Box::new_uninit_slice(places), mask, first: position, end: position }
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.first)
    }

    /// The place of a position.
    #[inline(always)]
    fn place(&mut self, position: u32) -> &mut MaybeUninit<Outstanding> {
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
            // SAFETY: as many as there are from the first on are initialised; the old ring goes without a look at them.
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

    fn length(outstanding: Outstanding) -> (u32, usize) {
        let TxOp::Get(length, None) = outstanding.op else { panic!("not what was put in") };
        (outstanding.number, length)
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn what_goes_in_comes_out_in_order_up_to_the_number_asked_for(
            start: u32,
            steps in prop::collection::vec((0u32..3, 0u32..20), 1..200),
        ) {
            let (queue, mut model) = (UnderWay::default(), VecDeque::new());
            queue.with(|ring| (ring.first, ring.end) = (start, start));
            let mut posted = start;
            for (pushes, ended) in steps {
                for _ in 0..pushes {
                    posted = posted.wrapping_add(1);
                    queue.push(posted, TxOp::Get(posted as usize, None));
                    model.push_back((posted, posted as usize));
                }
                let number = posted.wrapping_sub(ended);
                while queue.has_up_to(number) {
                    let outstanding = length(queue.pop().unwrap());
                    prop_assert!(number.wrapping_sub(outstanding.0) < 1 << 31);
                    prop_assert_eq!(Some(outstanding), model.pop_front());
                }
                prop_assert!(model.front().is_none_or(|first| first.0.wrapping_sub(number).cast_signed() > 0));
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
            while let Some(outstanding) = queue.pop() {
                prop_assert_eq!(Some(length(outstanding)), model.pop_front());
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn a_step_is_found_wherever_it_lies() {
        let queue = UnderWay::default();
        assert!(!queue.has_step());
        for number in 0..20 {
            queue.push(
                number,
                if number == 17 { TxOp::Step(SmallBuffer::for_tests()) } else { TxOp::Get(0, None) },
            );
            assert_eq!(queue.has_step(), number >= 17);
        }
        while let Some(first) = queue.pop() {
            assert_eq!(queue.has_step(), first.number < 17);
        }
    }
}
