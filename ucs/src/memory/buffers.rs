//! Buffers whose memory is used again.
//!
//! Used for copies of received messages. Built on `Vec`.
//!
//! Whether an allocator gives freed memory back to the system depends on where in its heap that lies, so a burst of messages faults
//! all of its memory in again, or none, by chance; a fault costs more than the copy. What a pool keeps stays in this process.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::TryReserveError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use try_lock::{Locked, TryLock};

use crate::sync::Arc;

/// Powers of two: for less than the first, the allocator's own lists do, and more than the last is no part of a burst.
const FIRST_CLASS: u32 = 10;
const LAST_CLASS: u32 = 20;
const CLASSES: usize = (LAST_CLASS - FIRST_CLASS + 1) as usize;

/// Memory of buffers that were dropped, for those that follow, from any thread. Cheap to clone.
///
/// It never waits for another thread: while one uses it, and so for ever in a child that was forked meanwhile, others allocate and
/// free.
#[derive(Clone, Default)]
pub struct BufferPool(Arc<TryLock<Spare>>);

/// What is not in use.
#[derive(Default)]
struct Spare {
    /// By the logarithm of the capacity, rounded down.
    classes: [Vec<Vec<u8>>; CLASSES],
    /// The sum of the capacities.
    bytes: usize,
}

impl BufferPool {
    /// The largest capacity that is kept.
    pub const LARGEST: usize = 1 << LAST_CLASS;
    /// Most bytes that are kept. A burst of 1 MiB fits, since no buffer of a class is used for half of its capacity.
    pub const MAX_SPARE: usize = 2 << 20;

    /// No bytes, with room for `capacity`. Ends the process if the system has no memory.
    pub fn take(&self, capacity: usize) -> Vec<u8> {
        let Ok(bytes) = self.try_take(capacity) else {
            handle_alloc_error(Layout::array::<u8>(capacity).unwrap_or(Layout::new::<u8>()));
        };
        bytes
    }

    /// As [`BufferPool::take`].
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn try_take(&self, capacity: usize) -> Result<Vec<u8>, TryReserveError> {
        let mut bytes = self.spare_or_new(capacity)?;
        bytes.clear();
        Ok(bytes)
    }

    /// So many bytes of arbitrary contents, for what overwrites all of them.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn try_take_filled(&self, length: usize) -> Result<Vec<u8>, TryReserveError> {
        let mut bytes = self.spare_or_new(length)?;
        // Mostly it has as many from before.
        bytes.resize(length, 0);
        Ok(bytes)
    }

    /// Memory with what was left in it.
    fn spare_or_new(&self, capacity: usize) -> Result<Vec<u8>, TryReserveError> {
        let room = capacity.checked_next_power_of_two().filter(|room| class(*room).is_some());
        if let Some(room) = room
            && let Some(spare) = self.spare().and_then(|mut spare| spare.take(room))
        {
            return Ok(spare);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room.unwrap_or(capacity))?;
        Ok(bytes)
    }

    /// Keeps the memory for those that follow, if there is room for it.
    pub fn give(&self, bytes: Vec<u8>) {
        if class(bytes.capacity()).is_some()
            && let Some(mut spare) = self.spare()
        {
            spare.give(bytes);
        }
    }

    /// Bytes whose memory the pool gets, from wherever it is.
    pub fn adopt(&self, bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, pool: self.clone() }
    }

    /// How many bytes it keeps.
    pub fn spare_bytes(&self) -> usize {
        self.spare().map_or(0, |spare| spare.bytes)
    }

    fn spare(&self) -> Option<Locked<'_, Spare>> {
        self.0.try_lock()
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("spare_bytes", &self.spare_bytes()).finish()
    }
}

/// The class of a capacity, if one of that size is kept.
fn class(capacity: usize) -> Option<usize> {
    let class = capacity.checked_ilog2()?.checked_sub(FIRST_CLASS)? as usize;
    (class < CLASSES && capacity <= BufferPool::LARGEST).then_some(class)
}

impl Spare {
    /// One that holds `room`, a power of two.
    fn take(&mut self, room: usize) -> Option<Vec<u8>> {
        let bytes = self.classes[class(room)?].pop()?;
        self.bytes -= bytes.capacity();
        Some(bytes)
    }

    /// Keeps it if there is room, which those of other sizes make: they are not what is in use now.
    fn give(&mut self, bytes: Vec<u8>) {
        let Some(class) = class(bytes.capacity()) else { return };
        while self.bytes + bytes.capacity() > BufferPool::MAX_SPARE {
            let others = self.classes.iter_mut().enumerate().rev().filter(|(of, _)| *of != class);
            let Some(other) = others.map(|(_, spare)| spare).find_map(Vec::pop) else { return };
            self.bytes -= other.capacity();
        }
        self.bytes += bytes.capacity();
        self.classes[class].push(bytes);
    }
}

/// Bytes in memory that goes back to its pool.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: BufferPool,
}

impl Buffer {
    /// Itself, or a copy of the right size if it takes more than twice as much memory as its bytes need: for what is kept long.
    #[must_use]
    pub fn fitted(self) -> Buffer {
        let least = self.bytes.len().max(1 << FIRST_CLASS);
        if self.bytes.capacity() / 2 <= least {
            return self;
        }
        let mut fitted = self.pool.take(self.bytes.len());
        fitted.extend_from_slice(&self.bytes);
        self.pool.adopt(fitted)
    }

    /// Its bytes, which the pool does not get back.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn buffer(pool: &BufferPool, capacity: usize) -> Buffer {
        pool.adopt(pool.take(capacity))
    }

    fn address(bytes: &[u8]) -> usize {
        bytes.as_ptr().addr()
    }

    #[test]
    fn bytes_of_arbitrary_contents_are_as_many_as_asked_for() {
        let pool = BufferPool::default();
        let mut first = pool.try_take_filled(3000).unwrap();
        assert_eq!((first.len(), first.capacity()), (3000, 4096));
        first.fill(7);
        pool.give(first);
        let second = pool.try_take_filled(4000).unwrap();
        assert_eq!((&second[..3000], &second[3000..]), (&[7; 3000][..], &[0; 1000][..]));
        pool.give(second);
        assert_eq!(pool.try_take_filled(2500).unwrap().len(), 2500);
    }

    #[test]
    fn memory_is_used_again_and_nothing_of_what_was_in_it_is_seen() {
        let pool = BufferPool::default();
        let mut first = buffer(&pool, 60_000);
        first.resize(60_000, 7);
        let place = address(&first);
        drop(first);
        assert_eq!(pool.spare_bytes(), 65_536);
        let mut second = buffer(&pool, 40_000);
        assert_eq!((address(&second), second.len(), pool.spare_bytes()), (place, 0, 0));
        second.resize(60_000, 0);
        assert!(second.iter().all(|byte| *byte == 0));
        drop(second);
        let other = pool.take(32_768);
        assert_ne!(address(&other), place, "one that is twice as large as needed");
        assert_eq!(pool.spare_bytes(), 65_536);
    }

    #[test]
    fn what_a_buffer_has_grown_to_is_kept_where_it_suffices() {
        let pool = BufferPool::default();
        let mut grown = buffer(&pool, 1024);
        grown.reserve_exact(3000);
        let (place, capacity) = (address(&grown), grown.capacity());
        drop(grown);
        assert_eq!(pool.spare_bytes(), capacity);
        assert_ne!(address(&pool.take(capacity)), place, "it has no room for the next power of two");
        let again = pool.take(2000);
        assert!(address(&again) == place && again.capacity() == capacity);
    }

    #[test]
    fn what_is_kept_is_bounded_and_is_what_was_used_last() {
        let pool = BufferPool::default();
        let burst = |length, count| (0..count).map(|_| buffer(&pool, length)).collect::<Vec<_>>();
        drop(burst(2048, 2000));
        assert_eq!(pool.spare_bytes(), BufferPool::MAX_SPARE);
        drop(burst(65_536, 40));
        assert_eq!(pool.spare_bytes(), BufferPool::MAX_SPARE);
        let places: Vec<usize> = burst(65_536, 32).iter().map(|buffer| address(buffer)).collect();
        let again = burst(65_536, 32);
        assert!(again.iter().all(|buffer| places.contains(&address(buffer))), "all of the size in use");
        assert_eq!(pool.spare_bytes(), 0);
    }

    #[test]
    fn small_and_very_large_ones_are_the_allocators() {
        let pool = BufferPool::default();
        for length in [0, 1, 500, BufferPool::LARGEST + 1] {
            let buffer = buffer(&pool, length);
            assert_eq!(buffer.capacity(), length);
            drop(buffer);
            assert_eq!(pool.spare_bytes(), 0, "{length}");
        }
        assert!(pool.try_take(usize::MAX).is_err());
    }

    #[test]
    fn bytes_that_are_taken_out_are_the_callers() {
        let pool = BufferPool::default();
        let mut buffer = buffer(&pool, 5000);
        buffer.extend_from_slice(b"mine");
        let place = address(&buffer);
        let bytes = buffer.into_vec();
        assert_eq!((&bytes[..], address(&bytes), pool.spare_bytes()), (&b"mine"[..], place, 0));
    }

    #[test]
    fn a_few_bytes_do_not_keep_a_large_buffer() {
        let pool = BufferPool::default();
        let filled = |capacity, length| {
            let mut buffer = buffer(&pool, capacity);
            buffer.resize(length, 9);
            buffer
        };
        let fits = filled(65_536, 32_768);
        let place = address(&fits);
        assert_eq!(address(&fits.fitted()), place);
        pool.take(65_536);
        let short = filled(65_536, 2000).fitted();
        assert_eq!((short.capacity(), &short[..]), (2048, &[9; 2000][..]));
        assert_eq!(pool.spare_bytes(), 65_536, "the large one");
        assert_eq!(filled(2048, 5).fitted().capacity(), 2048, "too little to save");
    }

    #[test]
    fn a_pool_that_another_thread_has_is_not_waited_for() {
        let pool = BufferPool::default();
        let before = buffer(&pool, 4096);
        let lock = pool.spare();
        drop((before, buffer(&pool, 4096)));
        drop(lock);
        assert_eq!(pool.spare_bytes(), 0);
    }

    #[test]
    fn any_thread_gives_back() {
        let pool = BufferPool::default();
        let buffer = buffer(&pool, 4096);
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        assert_eq!(pool.spare_bytes(), 4096);
    }
}
