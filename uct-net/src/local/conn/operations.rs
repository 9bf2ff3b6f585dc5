//! Operations on remote memory that are under way, for reports.
//!
//! An operation is entered when it does not end inside of its call, so one that does costs nothing here.

use std::cell::RefCell;
use std::rc::Rc;

use slab::Slab;
use ucs::clock;

/// Operations of a connection that have begun and not ended.
#[derive(Default)]
pub(crate) struct Operations {
    /// When each has begun, in ticks of the clock.
    begun: RefCell<Slab<u64>>,
}

/// An operation, until this is dropped.
pub(crate) struct Entry {
    operations: Rc<Operations>,
    index: usize,
}

impl Operations {
    /// One more has begun.
    pub(crate) fn begin(self: &Rc<Operations>) -> Entry {
        let index = self.begun.borrow_mut().insert(clock::ticks());
        Entry { operations: Rc::clone(self), index }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.begun.borrow().len()
    }

    /// When the oldest has begun, in ticks.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.begun.borrow().iter().map(|(_, begun)| *begun).min()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.operations.begun.borrow_mut().remove(self.index);
    }
}

/// How long ago that was, in nanoseconds.
pub(super) fn age(begun: u64) -> u64 {
    clock::ticks_to_nanoseconds(clock::ticks().saturating_sub(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_from_its_begin_to_its_end_and_the_oldest_is_known() {
        let operations = Rc::new(Operations::default());
        assert_eq!((operations.len(), operations.oldest()), (0, None));
        let first = operations.begin();
        let begun = operations.oldest();
        let second = operations.begin();
        assert_eq!((operations.len(), operations.oldest()), (2, begun));
        drop(first);
        assert!(operations.oldest() >= begun && operations.len() == 1);
        // Its place is taken again, and it is not the oldest.
        let later = operations.oldest();
        let _third = operations.begin();
        assert_eq!((operations.len(), operations.oldest()), (2, later));
        drop(second);
        assert_eq!(operations.len(), 1);
    }
}
