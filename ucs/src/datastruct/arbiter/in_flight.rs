//! The state of a group whose first element is being dispatched.
//!
//! Used by the arbiter's dispatch. Built on `group`. A placeholder on the stack takes the place of the element, so
//! that the element belongs to its callback alone and keeps its place if it is kept.

use std::ptr::NonNull;

use super::group::{ArbiterElement, ArbiterGroup, Placeholder};

/// An element out of its group, with a placeholder where it was. Dropping this takes the placeholder out.
pub(super) struct InFlight<'a> {
    group: NonNull<ArbiterGroup>,
    placeholder: &'a ArbiterElement,
    /// The element. The arbiter does not access it while its callback runs.
    pub(super) element: NonNull<ArbiterElement>,
}

impl<'a> InFlight<'a> {
    /// Takes the first element out. `None` if there is none, or if it is being dispatched already further up the stack.
    ///
    /// # Safety
    ///
    /// The group is valid and pinned.
    pub(super) unsafe fn begin(
        group: NonNull<ArbiterGroup>,
        placeholder: &'a ArbiterElement,
    ) -> Option<InFlight<'a>> {
        // SAFETY: by this function's contract.
        let this = unsafe { group.as_ref() };
        let tail = this.tail()?;
        let element = NonNull::new(tail.next.get().cast_mut())?;
        // SAFETY: it is in the group, so it is valid (see `ArbiterGroup::tail`).
        let head = unsafe { element.as_ref() };
        if Placeholder::is(head) {
            return None;
        }
        this.replace(tail, element.as_ptr(), head, placeholder, placeholder);
        head.reset();
        Some(InFlight { group, placeholder, element })
    }

    /// Whether the callback freed the group.
    pub(super) fn group_is_gone(&self) -> bool {
        !Placeholder::is(self.placeholder)
    }

    /// Puts the element back where it was. An element that its callback has queued somewhere itself stays there.
    pub(super) fn keep(self) {
        if self.group_is_gone() {
            return;
        }
        // SAFETY: the group is not gone, and it is pinned while it holds the placeholder.
        let group = unsafe { self.group.as_ref() };
        // SAFETY: the callback returned that the element stays, so it is valid still.
        let element = unsafe { self.element.as_ref() };
        if element.is_queued() {
            return;
        }
        let (_, previous) = group.before(self.placeholder);
        group.replace(previous, self.placeholder, self.placeholder, self.element.as_ptr(), element);
        element.group.set(self.group.as_ptr());
        self.placeholder.reset();
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.group_is_gone() {
            return;
        }
        // SAFETY: the group is not gone, and it is pinned while it holds the placeholder.
        let group = unsafe { self.group.as_ref() };
        group.take_after(group.before(self.placeholder), self.placeholder, self.placeholder);
    }
}
