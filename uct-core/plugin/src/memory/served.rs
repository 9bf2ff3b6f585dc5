//! How much of registered memory peers have read and written by an interface that carries their operations out itself.

use std::cell::Cell;

use uct_abi::{
    UCT_COUNTER_SERVED_ATOMIC_BYTES, UCT_COUNTER_SERVED_ATOMICS, UCT_COUNTER_SERVED_GET_BYTES,
    UCT_COUNTER_SERVED_GETS, UCT_COUNTER_SERVED_PUT_BYTES, UCT_COUNTER_SERVED_PUTS,
};

/// Operations of peers that were carried out. The thread of the interface counts.
#[derive(Debug, Default)]
pub struct Served {
    put: Count,
    get: Count,
    atomic: Count,
}

#[derive(Debug, Default)]
struct Count {
    operations: Cell<u64>,
    bytes: Cell<u64>,
}

impl Count {
    #[inline]
    fn add(&self, bytes: usize) {
        self.operations.set(self.operations.get().wrapping_add(1));
        self.bytes.set(self.bytes.get().wrapping_add(bytes as u64));
    }
}

impl Served {
    /// A put of so many bytes.
    #[inline]
    pub(crate) fn put(&self, bytes: usize) {
        self.put.add(bytes);
    }

    /// A get of so many bytes.
    #[inline]
    pub(crate) fn get(&self, bytes: usize) {
        self.get.add(bytes);
    }

    /// An atomic operation on so many bytes.
    #[inline]
    pub(crate) fn atomic(&self, bytes: usize) {
        self.atomic.add(bytes);
    }

    /// For [`crate::Iface::counters`] of an interface that carries out all operations of other processes itself: these
    /// counters say that it knows.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        [
            (UCT_COUNTER_SERVED_PUTS, self.put.operations.get()),
            (UCT_COUNTER_SERVED_PUT_BYTES, self.put.bytes.get()),
            (UCT_COUNTER_SERVED_GETS, self.get.operations.get()),
            (UCT_COUNTER_SERVED_GET_BYTES, self.get.bytes.get()),
            (UCT_COUNTER_SERVED_ATOMICS, self.atomic.operations.get()),
            (UCT_COUNTER_SERVED_ATOMIC_BYTES, self.atomic.bytes.get()),
        ]
    }
}
