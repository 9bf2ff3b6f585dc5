//! What is not `Send`, for threads that take turns.

#![expect(unsafe_code, reason = "what is not Send moves between threads under a lock")]

/// A value that may be used by any thread, by one at a time.
pub(crate) struct Held<T>(T);

// SAFETY: `Held::new` was promised that all that the value shares with others is used under one lock, and that nothing of it is
// bound to a thread.
unsafe impl<T> Send for Held<T> {}

impl<T> Held<T> {
    /// # Safety
    /// Whatever the value shares (counts of an `Rc`, cells, objects of a transport) is used by those alone that hold one and the
    /// same lock, and no object of a transport is bound to a thread.
    pub(crate) unsafe fn new(value: T) -> Held<T> {
        Held(value)
    }

    /// The value. The caller holds the lock: nothing but a `Mutex` makes a shared reference to this for several threads.
    pub(crate) fn get(&self) -> &T {
        &self.0
    }

    /// As [`Held::get`].
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
