//! A completion queue.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::waiter::Waiter;
use super::{Errno, NOT_AVAILABLE};

/// What an operation's end tells the program. The first six fields are laid out as `struct fi_cq_tagged_entry`, whose beginnings are the other
/// formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The operation's context.
    pub context: usize,
    /// Bits of [`super::flags`].
    pub flags: u64,
    /// Bytes of a received message.
    pub length: usize,
    /// Where a message in a multi-receive begins.
    pub buffer: usize,
    /// The peer's data.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
    /// Who has sent a received message: an index in the endpoint's address vector, or [`NOT_AVAILABLE`].
    pub source: u64,
}

impl Entry {
    /// An entry with nothing but these.
    pub fn new(context: usize, flags: u64) -> Entry {
        Entry { context, flags, length: 0, buffer: 0, data: 0, tag: 0, source: NOT_AVAILABLE }
    }
}

/// The failure of an operation.
#[derive(Clone, Debug)]
pub struct ErrorEntry {
    /// As that of a success.
    pub entry: Entry,
    /// Bytes of a received message that had no room.
    pub excess: usize,
    /// Why.
    pub errno: Errno,
    /// The reason as text.
    pub reason: Option<Arc<str>>,
}

/// Why [`Queue::read`] has read nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// There is no entry.
    Empty,
    /// The next entry is an error, for [`Queue::read_error`].
    Error,
}

/// A completion queue, for any thread. Entries come out in the order in which operations have ended. It grows as it has to: none is lost.
pub struct Queue {
    items: Mutex<VecDeque<Item>>,
    /// How many there are. Written under the lock.
    length: AtomicUsize,
    waiter: Option<Waiter>,
}

/// What an operation has ended with.
enum Item {
    Entry(Entry),
    Error(Box<ErrorEntry>),
}

impl Queue {
    /// An empty queue. One that can be waited for takes a descriptor.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(capacity: usize, can_wait: bool) -> Result<Queue, Errno> {
        let items = Mutex::new(VecDeque::with_capacity(capacity.min(1 << 16)));
        let waiter = if can_wait { Some(Waiter::new()?) } else { None };
        Ok(Queue { items, length: AtomicUsize::new(0), waiter })
    }

    /// Whether there is neither an entry nor an error.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // SYNC: pairs with `set_length`; the lock orders what is read then.
        self.length.load(Ordering::Acquire) == 0
    }

    /// Passes up to `most` entries on, and returns how many: at least one. Makes no progress ([`super::Domain::progress`]).
    ///
    /// # Errors
    /// There is none, or an error comes first.
    #[inline]
    pub fn read(&self, most: usize, mut take: impl FnMut(&Entry)) -> Result<usize, NotRead> {
        if self.is_empty() {
            return Err(NotRead::Empty);
        }
        let mut items = self.lock();
        let mut count = 0;
        while count < most {
            match items.pop_front() {
                Some(Item::Entry(entry)) => take(&entry),
                Some(error) => {
                    items.push_front(error);
                    break;
                }
                None => break,
            }
            count += 1;
        }
        if count == 0 && most > 0 {
            return Err(if items.is_empty() { NotRead::Empty } else { NotRead::Error });
        }
        self.set_length(&items);
        Ok(count)
    }

    /// The next entry if it is an error.
    pub fn read_error(&self) -> Option<ErrorEntry> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.lock();
        match items.pop_front()? {
            Item::Error(error) => {
                self.set_length(&items);
                Some(*error)
            }
            entry => {
                items.push_front(entry);
                None
            }
        }
    }

    /// The descriptor, readable when there is an entry after [`Queue::prepare_to_wait`] has returned true.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.waiter.as_ref().map(Waiter::descriptor)
    }

    /// Ends a wait for this queue though there is no entry.
    pub fn signal(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.signal();
        }
    }

    /// Whether the program may sleep on the descriptor; false if there is something to read. Makes no progress
    /// ([`super::Domain::prepare_to_wait`]).
    pub fn prepare_to_wait(&self) -> bool {
        if let Some(waiter) = &self.waiter {
            waiter.arm();
        }
        self.is_empty()
    }

    pub(super) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    /// An operation has succeeded.
    #[inline(never)]
    pub(super) fn push(&self, entry: Entry) {
        self.add(Item::Entry(entry));
    }

    /// An operation has failed.
    pub(super) fn push_error(&self, error: ErrorEntry) {
        self.add(Item::Error(Box::new(error)));
    }

    #[inline(always)]
    fn add(&self, item: Item) {
        let mut items = self.lock();
        items.push_back(item);
        self.set_length(&items);
        drop(items);
        if let Some(waiter) = &self.waiter {
            waiter.notify();
        }
    }

    fn set_length(&self, items: &VecDeque<Item>) {
        // SYNC: pairs with `is_empty`. Between this and a look at whether a sleeper is there lies the fence of `Waiter::notify`.
        self.length.store(items.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(queue: &Queue, most: usize) -> Result<Vec<usize>, NotRead> {
        let mut all = Vec::new();
        queue.read(most, |entry| all.push(entry.context)).map(|_| all)
    }

    fn failed(context: usize) -> ErrorEntry {
        ErrorEntry { entry: Entry::new(context, 0), excess: 0, errno: Errno::IO, reason: None }
    }

    #[test]
    fn entries_and_errors_come_out_in_order() {
        let queue = Queue::new(1, false).unwrap();
        assert_eq!(contexts(&queue, 4), Err(NotRead::Empty));
        queue.push(Entry::new(1, 0));
        queue.push(Entry::new(2, 0));
        queue.push_error(failed(3));
        queue.push_error(failed(4));
        queue.push(Entry::new(5, 0));
        assert!(queue.read_error().is_none());
        assert_eq!(contexts(&queue, 1), Ok(vec![1]));
        assert_eq!(contexts(&queue, 4), Ok(vec![2]));
        assert_eq!(contexts(&queue, 4), Err(NotRead::Error));
        assert_eq!(queue.read_error().unwrap().entry.context, 3);
        assert_eq!(contexts(&queue, 4), Err(NotRead::Error));
        assert_eq!(queue.read_error().unwrap().entry.context, 4);
        assert_eq!(contexts(&queue, 4), Ok(vec![5]));
        assert!(queue.is_empty());
    }

    fn is_raised(queue: &Queue) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut watched = [PollFd::from_borrowed_fd(queue.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn an_entry_raises_the_descriptor_of_a_sleeper() {
        let queue = Queue::new(1, true).unwrap();
        assert!(queue.prepare_to_wait());
        queue.push(Entry::new(1, 0));
        assert!(is_raised(&queue));
        assert!(!queue.prepare_to_wait());
        contexts(&queue, 1).unwrap();
        assert!(queue.prepare_to_wait());
        queue.signal();
        assert!(is_raised(&queue));
        assert!(queue.waiter().unwrap().take_signal());
    }
}
