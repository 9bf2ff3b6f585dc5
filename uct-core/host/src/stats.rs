//! Counters: what an endpoint sent and what an interface received.
//!
//! The host counts, so that the numbers mean the same for every transport: an operation counts when it was accepted.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ops::Add;

use crate::latency::Kind;

/// Operations and bytes of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that were accepted.
    pub operations: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

impl Add for Count {
    type Output = Count;

    fn add(self, other: Count) -> Count {
        let (operations, bytes) =
            (self.operations.wrapping_add(other.operations), self.bytes.wrapping_add(other.bytes));
        Count { operations, bytes }
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counts of an endpoint's operations.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: Count,)*
            /// Operations that returned `NO_RESOURCE`.
            pub no_resource: u64,
        }

        #[derive(Default)]
        pub(crate) struct EpCounters {
            $(pub(crate) $name: Counter,)*
            pub(crate) no_resource: Cell<u64>,
        }

        impl EpCounters {
            pub(crate) fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.get(),)* no_resource: self.no_resource.get() }
            }
        }

        impl Add for Counters {
            type Output = Counters;

            fn add(self, other: Counters) -> Counters {
                Counters {
                    $($name: self.$name + other.$name,)*
                    no_resource: self.no_resource.wrapping_add(other.no_resource),
                }
            }
        }

        impl Counters {
            /// Name and value of each class.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, Count)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Active messages, short.
    am_short,
    /// Active messages, buffered copy.
    am_bcopy,
    /// Active messages, zero copy.
    am_zcopy,
    /// Puts of all kinds.
    put,
    /// Gets of all kinds.
    get,
    /// Atomics of all kinds.
    atomic,
    /// Flushes and fences.
    flush,
}

impl EpCounters {
    /// The count of operations of a kind that may stay in flight.
    #[inline]
    pub(crate) fn of(&self, kind: Kind) -> &Counter {
        match kind {
            Kind::AmZcopy => &self.am_zcopy,
            Kind::Put => &self.put,
            Kind::Get => &self.get,
            Kind::Atomic => &self.atomic,
            Kind::Flush => &self.flush,
        }
    }
}

/// One running count.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Counter {
    operations: Cell<u64>,
    /// Operations of 8 bytes that are counted here alone. It also keeps the compiler from adding to the other two at once in a
    /// vector register, which takes six instructions for two.
    words: Cell<u64>,
    bytes: Cell<u64>,
}

impl Counter {
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.operations.set(self.operations.get().wrapping_add(1));
        self.bytes.set(self.bytes.get().wrapping_add(bytes as u64));
    }

    /// Counts several operations, of so many bytes together.
    pub(crate) fn add_many(&self, operations: usize, bytes: usize) {
        self.operations.set(self.operations.get().wrapping_add(operations as u64));
        self.bytes.set(self.bytes.get().wrapping_add(bytes as u64));
    }

    /// Counts an operation of 8 bytes, in one instruction.
    #[inline]
    pub(crate) fn add_word(&self) {
        self.words.set(self.words.get().wrapping_add(1));
    }

    /// Counts an operation on a value of 4 or 8 bytes.
    #[inline]
    pub(crate) fn add_value<T>(&self) {
        if size_of::<T>() == size_of::<u64>() { self.add_word() } else { self.add(size_of::<T>()) }
    }

    pub(crate) fn get(&self) -> Count {
        let words = self.words.get();
        Count {
            operations: self.operations.get().wrapping_add(words),
            bytes: self.bytes.get().wrapping_add(words.wrapping_mul(8)),
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.iter().filter(|(_, count)| count.operations > 0) {
            write!(f, "{name} {} ({} bytes), ", count.operations, count.bytes)?;
        }
        write!(f, "no_resource {}", self.no_resource)
    }
}
