//! Emptying a group.
//!
//! Used by endpoints that fail, are flushed with cancel, or are destroyed. Built on `group`. Transports call it.

use std::ptr::{self, NonNull};

use super::group::{ArbiterElement, ArbiterGroup, Placeholder};

impl ArbiterGroup {
    /// Takes every element out and calls `callback` once with each, in order. The element is not queued any more then
    /// and may be freed or pushed again. Takes the group off its arbiter if nothing is left.
    ///
    /// The element that is being dispatched is not in the group and is left to its callback. What the callback pushes
    /// to the end is not purged.
    ///
    /// # Safety
    ///
    /// `group` points to a valid group, which `callback` does not free.
    pub unsafe fn purge(group: NonNull<ArbiterGroup>, mut callback: impl FnMut(NonNull<ArbiterElement>)) {
        let everything = |element| {
            callback(element);
            true
        };
        // SAFETY: the contract is the same.
        unsafe { ArbiterGroup::purge_if(group, everything) };
    }

    /// As [`ArbiterGroup::purge`], but `callback` decides which elements are removed (`true`) and which stay (`false`, in
    /// their order and before what was pushed meanwhile).
    ///
    /// # Safety
    ///
    /// As for [`ArbiterGroup::purge`]; and the callback does not free or push what stays.
    pub unsafe fn purge_if(
        group: NonNull<ArbiterGroup>,
        mut callback: impl FnMut(NonNull<ArbiterElement>) -> bool,
    ) {
        // SAFETY: by this function's contract.
        let this = unsafe { group.as_ref() };
        let mut kept = Kept { newest: ptr::null(), group };
        for _ in 0..this.len() {
            let Some(element) = this.take_first() else { break };
            if !callback(element) {
                kept.push(element);
            }
        }
        drop(kept);
        if this.is_empty() {
            this.deschedule();
        }
    }

    /// Takes the first element out that is not a placeholder.
    fn take_first(&self) -> Option<NonNull<ArbiterElement>> {
        let mut previous = (self.tail.get(), self.tail()?);
        for _ in 0..2 {
            let pointer = NonNull::new(previous.1.next.get().cast_mut())?;
            // SAFETY: what a group holds is valid (see `ArbiterGroup::tail`).
            let element = unsafe { pointer.as_ref() };
            if !Placeholder::is(element) {
                self.take_after(previous, pointer.as_ptr(), element);
                return Some(pointer);
            }
            previous = (pointer.as_ptr(), element);
        }
        None
    }

    /// Puts an element first, or behind the placeholder if that is first.
    fn put_first(
        &self,
        group: NonNull<ArbiterGroup>,
        pointer: NonNull<ArbiterElement>,
        element: &ArbiterElement,
    ) {
        let first = self.elements().next().filter(|first| Placeholder::is(first));
        match first {
            None => self.link_first(group, pointer, element),
            Some(placeholder) => {
                element.group.set(group.as_ptr());
                element.next.set(placeholder.next.get());
                placeholder.next.set(pointer.as_ptr());
                if ptr::eq(self.tail.get(), placeholder) {
                    self.tail.set(pointer.as_ptr());
                }
            }
        }
    }
}

/// The elements that stay, newest first, until the callback has seen all; dropping it puts them back, also if a callback
/// panics.
struct Kept {
    newest: *const ArbiterElement,
    group: NonNull<ArbiterGroup>,
}

impl Kept {
    fn push(&mut self, pointer: NonNull<ArbiterElement>) {
        // SAFETY: the callback said that the element stays, so it is valid still.
        let element = unsafe { pointer.as_ref() };
        element.next.set(self.newest);
        element.group.set(self.group.as_ptr());
        self.newest = pointer.as_ptr();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: `purge_if` demands that the group outlives it.
        let group = unsafe { self.group.as_ref() };
        while let Some(pointer) = NonNull::new(self.newest.cast_mut()) {
            // SAFETY: to its owner it is still queued, so it is valid and pinned.
            let element = unsafe { pointer.as_ref() };
            self.newest = element.next.get();
            group.put_first(self.group, pointer, element);
        }
    }
}
