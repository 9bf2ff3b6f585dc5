//! A first-in first-out queue of elements that takes its turn as one, and its elements, which name their group.
//!
//! Used by endpoints, and for work that waits in a group: pending requests above all. Built on `link`. The arbiter serves it; purging it is in `purge`.

use std::cell::Cell;
use std::fmt;
use std::ptr::{self, NonNull};

use super::link::Link;

/// The part of a piece of work by which a group holds it: two words, to be embedded.
///
/// All bytes zero is a valid element that is not queued. The pointer given to a push comes back in the callback as it
/// was, so a pointer that may be used for the whole piece of work stays one.
#[repr(C)]
pub struct ArbiterElement {
    /// The element behind it; the last one points to the first. Null if not queued.
    pub(super) next: Cell<*const ArbiterElement>,
    /// The group that holds it; null if not queued.
    pub(super) group: Cell<*const ArbiterGroup>,
}

// It must fit the bytes that a pending request leaves to its transport, with room for the transport's own.
const _: () = assert!(size_of::<ArbiterElement>() <= 24 && align_of::<ArbiterElement>() <= 8);

impl ArbiterElement {
    /// An element that is not queued.
    pub const fn new() -> ArbiterElement {
        ArbiterElement { next: Cell::new(ptr::null()), group: Cell::new(ptr::null()) }
    }

    /// Whether a group holds it. Not while it is being dispatched or purged.
    #[inline]
    pub fn is_queued(&self) -> bool {
        !self.group.get().is_null()
    }

    /// The group that holds it.
    #[inline]
    pub fn group(&self) -> Option<NonNull<ArbiterGroup>> {
        NonNull::new(self.group.get().cast_mut())
    }

    /// Forgets that it was queued.
    #[inline]
    pub(super) fn reset(&self) {
        self.next.set(ptr::null());
        self.group.set(ptr::null());
    }
}

impl Default for ArbiterElement {
    fn default() -> ArbiterElement {
        ArbiterElement::new()
    }
}

/// Makes and recognizes the stand-in for an element that is being dispatched.
pub(super) struct Placeholder;

impl Placeholder {
    /// What the group of a placeholder reads: no address that a group can have.
    const MARK: *const ArbiterGroup = ptr::without_provenance(1);

    pub(super) fn element() -> ArbiterElement {
        let element = ArbiterElement::new();
        element.group.set(Placeholder::MARK);
        element
    }

    pub(super) fn is(element: &ArbiterElement) -> bool {
        ptr::eq(element.group.get(), Placeholder::MARK)
    }
}

/// A queue of elements, served in order when the group has its turn on an arbiter. Three words, to be embedded.
///
/// Dropping it takes it off its arbiter and releases the elements still in it, without calling anything.
#[repr(C)]
pub struct ArbiterGroup {
    /// Its place on an arbiter. First, so that a pointer to one is a pointer to the other.
    pub(super) link: Link,
    /// The last element, whose `next` is the first; null if there is none.
    pub(super) tail: Cell<*const ArbiterElement>,
}

impl ArbiterGroup {
    /// An empty group on no arbiter.
    pub const fn new() -> ArbiterGroup {
        ArbiterGroup { link: Link::new(), tail: Cell::new(ptr::null()) }
    }

    /// Whether it holds no element. The element being dispatched counts, so a send may not overtake what is pending
    /// from inside its callback either, unless the sender knows that it is that callback.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tail.get().is_null()
    }

    /// Whether it is on an arbiter. Not while it has its turn, unless the callback schedules it.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.link.is_linked()
    }

    /// How many elements wait in it, without the one being dispatched. Walks them.
    pub fn len(&self) -> usize {
        self.elements().filter(|element| !Placeholder::is(element)).count()
    }

    /// Takes it off its arbiter, whichever that is. Does nothing if it is on none. Its elements stay.
    #[inline]
    pub fn deschedule(&self) {
        self.link.unlink();
    }

    /// Puts an element behind all others. Does nothing if the element is queued already. Does not schedule the group.
    ///
    /// # Safety
    ///
    /// `group` and `element` are valid and stay where they are for as long as the module says; `element` is the
    /// pointer that callbacks get.
    #[inline]
    pub unsafe fn push(group: NonNull<ArbiterGroup>, element: NonNull<ArbiterElement>) {
        // SAFETY: the caller vouches for the group.
        let this = unsafe { group.as_ref() };
        // SAFETY: the caller vouches for the element.
        let new = unsafe { element.as_ref() };
        if !new.is_queued() {
            this.link_first(group, element, new);
            this.tail.set(element.as_ptr());
        }
    }

    /// Puts an element before all others. Does nothing if the element is queued already. Does not schedule the group.
    ///
    /// Pushed from inside the group's own dispatch callback, it is put before the element being dispatched if that is
    /// kept.
    ///
    /// # Safety
    ///
    /// As for [`ArbiterGroup::push`].
    #[inline]
    pub unsafe fn push_head(group: NonNull<ArbiterGroup>, element: NonNull<ArbiterElement>) {
        // SAFETY: the caller vouches for the group.
        let this = unsafe { group.as_ref() };
        // SAFETY: the caller vouches for the element.
        let new = unsafe { element.as_ref() };
        if !new.is_queued() {
            this.link_first(group, element, new);
        }
    }

    /// Whether there is something to schedule that is not scheduled.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.is_empty() && !self.is_scheduled()
    }

    /// Puts `element` between the last and the first; it is the first then, unless the caller makes it the last.
    #[inline]
    pub(super) fn link_first(
        &self,
        group: NonNull<ArbiterGroup>,
        element: NonNull<ArbiterElement>,
        new: &ArbiterElement,
    ) {
        new.group.set(group.as_ptr());
        match self.tail() {
            None => {
                new.next.set(element.as_ptr());
                self.tail.set(element.as_ptr());
            }
            Some(tail) => {
                new.next.set(tail.next.get());
                tail.next.set(element.as_ptr());
            }
        }
    }

    /// Puts `new` where `old` is; `previous` is the element in front of `old`.
    pub(super) fn replace(
        &self,
        previous: &ArbiterElement,
        old_pointer: *const ArbiterElement,
        old: &ArbiterElement,
        new_pointer: *const ArbiterElement,
        new: &ArbiterElement,
    ) {
        let is_alone = ptr::eq(previous, old);
        new.next.set(if is_alone { new_pointer } else { old.next.get() });
        if !is_alone {
            previous.next.set(new_pointer);
        }
        if ptr::eq(self.tail.get(), old_pointer) {
            self.tail.set(new_pointer);
        }
    }

    /// Takes `element` out, `previous` being the one in front of it.
    pub(super) fn take_after(
        &self,
        previous: (*const ArbiterElement, &ArbiterElement),
        element_pointer: *const ArbiterElement,
        element: &ArbiterElement,
    ) {
        if ptr::eq(previous.0, element_pointer) {
            self.tail.set(ptr::null());
        } else {
            previous.1.next.set(element.next.get());
            if ptr::eq(self.tail.get(), element_pointer) {
                self.tail.set(previous.0);
            }
        }
        element.reset();
    }

    /// The element in front of `element`, which is in this group; itself if it is alone. Two steps at most, unless
    /// something was pushed to the head meanwhile.
    pub(super) fn before(&self, element: &ArbiterElement) -> (*const ArbiterElement, &ArbiterElement) {
        let mut previous = self.tail.get();
        loop {
            // SAFETY: the group holds `element`, so it is not empty, and what it holds is valid (see `tail`).
            let candidate = unsafe { &*previous };
            if ptr::eq(candidate.next.get(), element) {
                return (previous, candidate);
            }
            previous = candidate.next.get();
        }
    }

    /// The last element.
    #[inline]
    pub(super) fn tail(&self) -> Option<&ArbiterElement> {
        // SAFETY: what a group holds is valid by the contract of the pushes; a placeholder is valid as long as it is
        // in the group, for it takes itself out.
        unsafe { self.tail.get().as_ref() }
    }

    /// The elements from first to last, a placeholder included.
    pub(super) fn elements(&self) -> Elements<'_> {
        Elements { group: self, next: self.tail().map_or(ptr::null(), |tail| tail.next.get()) }
    }
}

impl Default for ArbiterGroup {
    fn default() -> ArbiterGroup {
        ArbiterGroup::new()
    }
}

impl Drop for ArbiterGroup {
    fn drop(&mut self) {
        self.link.unlink();
        let waiting = self.len();
        if waiting > 0 {
            crate::log::warn!(
                elements = waiting,
                "an arbiter group was dropped with elements in it; they are released"
            );
        }
        for element in self.elements() {
            // This shows a placeholder that its group is gone.
            element.reset();
        }
    }
}

impl fmt::Debug for ArbiterGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArbiterGroup")
            .field("len", &self.len())
            .field("scheduled", &self.is_scheduled())
            .finish()
    }
}

/// The elements of a group in order. Each is read before it is handed out, so the caller may reset it.
pub(super) struct Elements<'a> {
    group: &'a ArbiterGroup,
    next: *const ArbiterElement,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a ArbiterElement;

    fn next(&mut self) -> Option<&'a ArbiterElement> {
        // SAFETY: null, or an element of the group, which is valid (see `tail`).
        let element = unsafe { self.next.as_ref() }?;
        let is_last = ptr::eq(element, self.group.tail.get());
        self.next = if is_last { ptr::null() } else { element.next.get() };
        Some(element)
    }
}
