//! The pending queue of an interface: requests that wait for resources, served fairly over the endpoints.
//!
//! For every transport that can run out of something. Built on `ucs::datastruct::arbiter`, whose element lies in the
//! private bytes of the boundary's `UctPendingReq`, so that queueing allocates nothing.

use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::{self, NonNull};

use ucs::datastruct::arbiter::{Arbiter, ArbiterElement, ArbiterGroup, ArbiterResult};
use uct_abi::{UCT_INPROGRESS, UCT_OK, UCT_PENDING_PRIVATE, UctPendingReq};

const _: () = assert!(size_of::<ArbiterElement>() <= UCT_PENDING_PRIVATE);
const _: () = assert!(align_of::<ArbiterElement>() <= align_of::<u64>());

/// One per interface.
#[derive(Default)]
pub struct PendingQueue {
    arbiter: Arbiter,
    /// The group whose request is being served; its own sends do not wait behind it.
    serving: Cell<*const ArbiterGroup>,
}

/// One per endpoint. It stays where it is while requests are queued, as a part of an endpoint in its `Rc` does.
#[derive(Default)]
pub struct PendingGroup(ArbiterGroup);

/// Where an endpoint goes whose request returns that resources are still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The endpoint lacks something of its own: leave it out until [`PendingQueue::schedule`] names it again.
    Endpoint,
    /// The interface lacks something that all share: serve no group until the next [`PendingQueue::dispatch`].
    Interface,
}

impl PendingQueue {
    /// Whether no endpoint waits to be served.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.arbiter.is_empty()
    }

    /// Whether a send on the endpoint has to wait, since it would overtake a queued request. Two loads.
    #[inline(always)]
    pub fn must_wait(&self, group: &PendingGroup) -> bool {
        !group.0.is_empty() && !ptr::eq(self.serving.get(), &raw const group.0)
    }

    /// Queues a request at the end of its endpoint, and has the endpoint served by the next dispatch.
    ///
    /// # Safety
    /// As [`crate::Endpoint::pending_add`]; the group outlives the request's stay.
    pub unsafe fn add(&self, group: &PendingGroup, request: NonNull<UctPendingReq>) {
        let element = element(request);
        // SAFETY: the private bytes are the transport's while the request is queued, aligned and large enough (asserted
        // above).
        unsafe { element.write(ArbiterElement::default()) };
        // SAFETY: the request stays where it is while queued, and so does the group, by the caller's promise.
        unsafe { ArbiterGroup::push(NonNull::from(&group.0), element) };
        self.schedule(group);
    }

    /// Has the endpoint served by the next dispatch, if it has requests.
    pub fn schedule(&self, group: &PendingGroup) {
        if !group.0.is_empty() {
            // SAFETY: a group with requests stays where it is (`PendingGroup`).
            unsafe { self.arbiter.schedule(NonNull::from(&group.0)) };
        }
    }

    /// Serves the scheduled endpoints in turn until each is out of requests or of resources. From progress only.
    #[inline(always)]
    pub fn dispatch(&self, blocked: Blocked) -> u32 {
        self.dispatch_by(move || blocked)
    }

    /// As [`PendingQueue::dispatch`]; `blocked` is called after each request that has to wait.
    #[inline(always)]
    pub fn dispatch_by(&self, blocked: impl FnMut() -> Blocked) -> u32 {
        if self.is_idle() { 0 } else { self.serve(blocked) }
    }

    #[inline(never)]
    fn serve(&self, mut blocked: impl FnMut() -> Blocked) -> u32 {
        let mut served = 0;
        self.arbiter.dispatch(1, |_, group, element| {
            let request = request(element);
            // SAFETY: the request is queued, so it is valid until its function reports that it is done.
            let function = unsafe { (*request.as_ptr()).func };
            let outer = self.serving.replace(group.as_ptr());
            // SAFETY: the function takes the request it is part of.
            let status = unsafe { function(request.as_ptr()) };
            self.serving.set(outer);
            match status {
                UCT_OK => {
                    served += 1;
                    ArbiterResult::Remove
                }
                UCT_INPROGRESS => ArbiterResult::Reschedule,
                _ if blocked() == Blocked::Interface => ArbiterResult::Stop,
                _ => ArbiterResult::Deschedule,
            }
        });
        served
    }

    /// Takes all requests of an endpoint out and hands each to `purge`.
    pub fn purge(&self, group: &PendingGroup, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        // SAFETY: the group is borrowed, so it is not freed meanwhile.
        unsafe { ArbiterGroup::purge(NonNull::from(&group.0), |element| purge(request(element))) };
    }
}

impl PendingGroup {
    /// Whether no request waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Requests that wait. Walks them.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn element(request: NonNull<UctPendingReq>) -> NonNull<ArbiterElement> {
    let offset = offset_of!(UctPendingReq, reserved);
    // SAFETY: the offset is that of a field of the request.
    unsafe { request.cast::<u8>().add(offset) }.cast()
}

fn request(element: NonNull<ArbiterElement>) -> NonNull<UctPendingReq> {
    let offset = offset_of!(UctPendingReq, reserved);
    // SAFETY: every element of these groups lies in a request (`add`).
    unsafe { element.cast::<u8>().sub(offset) }.cast()
}
