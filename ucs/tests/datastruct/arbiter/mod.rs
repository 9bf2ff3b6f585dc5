//! Fairness, order, every result, purging, and what callbacks may do from inside.

mod from_inside;
mod model;
mod order;
mod purge;

use std::cell::RefCell;
use std::ptr::NonNull;

use ucs::datastruct::arbiter::{Arbiter, ArbiterElement, ArbiterGroup, ArbiterResult};

/// A piece of work: the element first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Work {
    pub(crate) element: ArbiterElement,
    pub(crate) number: u32,
}

/// An endpoint, likewise.
#[repr(C)]
pub(crate) struct Endpoint {
    pub(crate) group: ArbiterGroup,
    pub(crate) number: usize,
}

/// Owns endpoints and work, at fixed addresses.
pub(crate) struct World {
    pub(crate) arbiter: Arbiter,
    pub(crate) endpoints: Vec<NonNull<Endpoint>>,
    pub(crate) work: RefCell<Vec<NonNull<Work>>>,
}

impl World {
    pub(crate) fn new(endpoints: usize) -> World {
        let endpoint =
            |number| NonNull::from(Box::leak(Box::new(Endpoint { group: ArbiterGroup::new(), number })));
        let endpoints = (0..endpoints).map(endpoint).collect();
        World { arbiter: Arbiter::new(), endpoints, work: RefCell::default() }
    }

    pub(crate) fn work(&self, number: u32) -> NonNull<ArbiterElement> {
        let work = NonNull::from(Box::leak(Box::new(Work { element: ArbiterElement::new(), number })));
        self.work.borrow_mut().push(work);
        work.cast()
    }

    pub(crate) fn group(&self, endpoint: usize) -> NonNull<ArbiterGroup> {
        self.endpoints[endpoint].cast()
    }

    pub(crate) fn group_ref(&self, endpoint: usize) -> &ArbiterGroup {
        // SAFETY: endpoints live as long as the world.
        unsafe { self.group(endpoint).as_ref() }
    }

    pub(crate) fn push(&self, endpoint: usize, number: u32) -> NonNull<ArbiterElement> {
        let element = self.work(number);
        push(self.group(endpoint), element);
        element
    }

    pub(crate) fn push_head(&self, endpoint: usize, number: u32) -> NonNull<ArbiterElement> {
        let element = self.work(number);
        // SAFETY: both live as long as the world.
        unsafe { ArbiterGroup::push_head(self.group(endpoint), element) };
        element
    }

    pub(crate) fn schedule(&self, endpoint: usize) {
        schedule(&self.arbiter, self.group(endpoint));
    }

    /// Dispatches, and answers the endpoints and numbers that the callback saw.
    pub(crate) fn dispatch(
        &self,
        per_group: u32,
        mut decide: impl FnMut(usize, u32) -> ArbiterResult,
    ) -> Vec<(usize, u32)> {
        let mut seen = Vec::new();
        self.arbiter.dispatch(per_group, |_, group, element| {
            let at = (endpoint_number(group), number(element));
            seen.push(at);
            decide(at.0, at.1)
        });
        seen
    }

    pub(crate) fn drain(&self) -> Vec<(usize, u32)> {
        self.dispatch(1, |_, _| ArbiterResult::Remove)
    }

    /// The numbers in a group, which is emptied.
    pub(crate) fn contents(&self, endpoint: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        purge(self.group(endpoint), |element| seen.push(number(element)));
        seen
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for endpoint in &self.endpoints {
            purge(endpoint.cast(), |_| {});
            // SAFETY: `new` leaked the box, and nothing uses the endpoint any more.
            drop(unsafe { Box::from_raw(endpoint.as_ptr()) });
        }
        for work in self.work.get_mut() {
            // SAFETY: `work` leaked the box, and no group holds it any more.
            drop(unsafe { Box::from_raw(work.as_ptr()) });
        }
    }
}

pub(crate) fn push(group: NonNull<ArbiterGroup>, element: NonNull<ArbiterElement>) {
    // SAFETY: the tests keep groups and elements in place.
    unsafe { ArbiterGroup::push(group, element) };
}

pub(crate) fn schedule(arbiter: &Arbiter, group: NonNull<ArbiterGroup>) {
    // SAFETY: the tests keep groups in place.
    unsafe { arbiter.schedule(group) };
}

pub(crate) fn purge(group: NonNull<ArbiterGroup>, callback: impl FnMut(NonNull<ArbiterElement>)) {
    // SAFETY: the tests' callbacks do not free the group.
    unsafe { ArbiterGroup::purge(group, callback) };
}

pub(crate) fn number(element: NonNull<ArbiterElement>) -> u32 {
    // SAFETY: every element of these tests is the first field of a `Work`, and was pushed by a pointer to all of it.
    unsafe { element.cast::<Work>().as_ref() }.number
}

pub(crate) fn endpoint_number(group: NonNull<ArbiterGroup>) -> usize {
    // SAFETY: every group of these tests is the first field of an `Endpoint`, likewise.
    unsafe { group.cast::<Endpoint>().as_ref() }.number
}

pub(crate) fn is_queued(element: NonNull<ArbiterElement>) -> bool {
    // SAFETY: elements live as long as their world.
    unsafe { element.as_ref() }.is_queued()
}
