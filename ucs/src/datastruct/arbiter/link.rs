//! A circular doubly linked list of scheduled groups.
//!
//! Used by the arbiter. No dependencies. A link leaves its list without knowing which list that is, so a group can be
//! descheduled, moved between arbiters and dropped without a pointer back.

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr::{self, NonNull};

/// A place in a list, or the sentinel that a list begins and ends at. In a list it must not move.
#[repr(C)]
pub(super) struct Link {
    next: Cell<*const Link>,
    previous: Cell<*const Link>,
    pinned: PhantomPinned,
}

impl Link {
    /// A link in no list.
    pub(super) const fn new() -> Link {
        Link { next: Cell::new(ptr::null()), previous: Cell::new(ptr::null()), pinned: PhantomPinned }
    }

    /// Whether it is in a list.
    #[inline]
    pub(super) fn is_linked(&self) -> bool {
        !self.next.get().is_null()
    }

    /// Leaves the list that it is in; does nothing if it is in none.
    pub(super) fn unlink(&self) {
        if !self.is_linked() {
            return;
        }
        // SAFETY: both neighbours of a link in a list are in that list, and what is in a list is valid (`List`).
        let next = unsafe { &*self.next.get() };
        // SAFETY: as above.
        let previous = unsafe { &*self.previous.get() };
        next.previous.set(self.previous.get());
        previous.next.set(self.next.get());
        self.next.set(ptr::null());
        self.previous.set(ptr::null());
    }
}

/// A list by its sentinel. Its creator keeps the sentinel valid and in place, and each of its elements is
/// valid and in place until it is removed.
#[derive(Clone, Copy)]
pub(super) struct List {
    sentinel: NonNull<Link>,
}

impl List {
    /// An empty list at `sentinel`.
    ///
    /// # Safety
    ///
    /// The sentinel is valid, in no list, and stays valid and in place as long as this list or a copy is used or
    /// anything is in it.
    pub(super) unsafe fn new(sentinel: NonNull<Link>) -> List {
        let list = List { sentinel };
        list.ends().next.set(sentinel.as_ptr());
        list.ends().previous.set(sentinel.as_ptr());
        list
    }

    /// What it begins and ends at.
    pub(super) fn sentinel(&self) -> NonNull<Link> {
        self.sentinel
    }

    #[inline]
    fn ends(&self) -> &Link {
        // SAFETY: valid by the contract of `new`.
        unsafe { self.sentinel.as_ref() }
    }

    /// Whether nothing is in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        ptr::eq(self.ends().next.get(), self.sentinel.as_ptr())
    }

    /// Puts `link` at the end.
    ///
    /// # Safety
    ///
    /// `link` is valid, in no list, and stays valid and in place until it leaves this one.
    pub(super) unsafe fn push_back(&self, link: NonNull<Link>) {
        // SAFETY: the sentinel is in its own list; `link` by this function's contract.
        unsafe { insert_before(self.sentinel.as_ptr(), link) };
    }

    /// Puts `link` at the front.
    ///
    /// # Safety
    ///
    /// As for `push_back`.
    pub(super) unsafe fn push_front(&self, link: NonNull<Link>) {
        let first = self.ends().next.get();
        // SAFETY: `first` is in the list; `link` by this function's contract.
        unsafe { insert_before(first, link) };
    }

    /// Takes the first out.
    pub(super) fn pop_front(&self) -> Option<NonNull<Link>> {
        if self.is_empty() {
            return None;
        }
        let first = NonNull::new(self.ends().next.get().cast_mut())?;
        // SAFETY: what is in the list is valid.
        unsafe { first.as_ref() }.unlink();
        Some(first)
    }

    /// Moves everything to the end of `other`, in order.
    pub(super) fn append_to(&self, other: List) {
        while let Some(link) = self.pop_front() {
            // SAFETY: it was in this list, so it is valid and pinned while in a list, and it has just left.
            unsafe { other.push_back(link) };
        }
    }
}

/// # Safety
///
/// `position` is in a list; `link` is valid, in none, and pinned while in one.
unsafe fn insert_before(position: *const Link, link: NonNull<Link>) {
    // SAFETY: what is in a list is valid.
    let after = unsafe { &*position };
    // SAFETY: as above.
    let before = unsafe { &*after.previous.get() };
    // SAFETY: by this function's contract.
    let new = unsafe { link.as_ref() };
    new.next.set(position);
    new.previous.set(after.previous.get());
    before.next.set(link.as_ptr());
    after.previous.set(link.as_ptr());
}
