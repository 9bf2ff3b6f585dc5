//! Counters: a fixed set of numbers with names, for one endpoint or one interface.
//!
//! Used by transports, which count messages, bytes and events, and `uct_info`, which prints them. Built on
//! nothing. Counting is one addition to a cell; the counters belong to one thread, as a worker does.

use std::cell::Cell;
use std::fmt;

/// `N` counters that start at zero and wrap around after 2⁶⁴.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    names: &'static [&'static str; N],
    values: [Cell<u64>; N],
}

/// What counters read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<const N: usize> {
    names: &'static [&'static str; N],
    values: [u64; N],
}

impl<const N: usize> Counters<N> {
    /// Counters with these names; the index in `names` is that of the counter.
    pub const fn new(names: &'static [&'static str; N]) -> Counters<N> {
        Counters { names, values: [const { Cell::new(0) }; N] }
    }

    /// Adds to one counter. An index past the end is a mistake in the program and panics; with a constant
    /// index the check vanishes.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        let value = &self.values[index];
        value.set(value.get().wrapping_add(amount));
    }

    /// What one counter reads.
    pub fn read(&self, index: usize) -> u64 {
        self.values[index].get()
    }

    /// What all of them read.
    pub fn snapshot(&self) -> Snapshot<N> {
        Snapshot { names: self.names, values: self.values.each_ref().map(Cell::get) }
    }
}

impl<const N: usize> Snapshot<N> {
    /// Names and numbers, in the counters' order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, u64)> {
        self.names.iter().copied().zip(self.values)
    }

    /// The number of that name.
    pub fn read(&self, name: &str) -> Option<u64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// What has been counted from `earlier` to now.
    pub fn since(&self, earlier: &Snapshot<N>) -> Snapshot<N> {
        let mut difference = *self;
        for (value, before) in difference.values.iter_mut().zip(earlier.values) {
            *value = value.wrapping_sub(before);
        }
        difference
    }
}

/// `name=value`, separated by blanks, without those that are zero.
impl<const N: usize> fmt::Display for Snapshot<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, value) in self.iter().filter(|&(_, value)| value != 0) {
            write!(f, "{separator}{name}={value}")?;
            separator = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: usize = 0;
    const BYTES: usize = 1;
    const NAMES: [&str; 3] = ["messages", "bytes", "no_resource"];

    #[test]
    fn a_counter_moves_by_exactly_what_is_added_and_the_others_stand() {
        let counters = Counters::new(&NAMES);
        for size in [10, 20] {
            counters.add(MESSAGES, 1);
            counters.add(BYTES, size);
        }
        assert_eq!(counters.read(BYTES), 30);
        let snapshot = counters.snapshot();
        assert!(snapshot.iter().eq([("messages", 2), ("bytes", 30), ("no_resource", 0)]));
        assert_eq!(snapshot.read("messages"), Some(2));
        assert_eq!(snapshot.read("message"), None);
        assert_eq!(snapshot.to_string(), "messages=2 bytes=30");
    }

    #[test]
    fn the_difference_of_two_moments_is_what_happened_between_them() {
        let counters = Counters::new(&NAMES);
        counters.add(BYTES, u64::MAX);
        let before = counters.snapshot();
        counters.add(BYTES, 5);
        let difference = counters.snapshot().since(&before);
        assert_eq!(difference.read("bytes"), Some(5), "a counter that wrapped around counts on");
        assert_eq!(difference.read("messages"), Some(0));
        assert_eq!(before.since(&before).to_string(), "");
    }
}
