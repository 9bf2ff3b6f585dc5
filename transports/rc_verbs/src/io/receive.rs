//! The ring of receive buffers that all connections share.
//!
//! Built on the device's shared receive queue and a pool of registered memory.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

use ucs::datastruct::mpool::{ElementHooks, Mpool};
use uct_ib::verbs::{RecvSlot, Sge, Srq, lkey};

/// Buffers posted in one call.
const BATCH: usize = 16;

/// The receive queue and its buffers.
pub(crate) struct ReceiveRing {
    pub(crate) srq: Arc<Srq>,
    buffers: Mpool,
    elements: RxElements,
    /// Bytes of a buffer ahead of the data.
    headroom: usize,
    seg_size: usize,
    /// Buffers posted now, and as many as should be.
    posted: Cell<u32>,
    wanted: Cell<u32>,
}

impl ReceiveRing {
    /// Bytes of an element ahead of the data: the user's, and the mark ahead of those.
    pub(crate) fn headroom_for(of_user: usize) -> usize {
        (of_user + size_of::<u64>()).next_multiple_of(64)
    }

    pub(crate) fn new(
        srq: Arc<Srq>,
        buffers: Mpool,
        elements: RxElements,
        headroom: usize,
        seg_size: usize,
    ) -> ReceiveRing {
        ReceiveRing { elements, srq, buffers, headroom, seg_size, posted: Cell::new(0), wanted: Cell::new(0) }
    }

    /// Buffers posted now.
    pub(crate) fn posted(&self) -> u32 {
        self.posted.get()
    }

    /// Sets how many buffers should be posted; [`ReceiveRing::fill`] posts them.
    pub(crate) fn want(&self, wanted: u32) {
        self.wanted.set(wanted);
    }

    /// The element of a receive request that has ended.
    ///
    /// # Safety
    /// The id is that of a completion of this queue, and it is taken once.
    #[inline]
    pub(crate) unsafe fn take(&self, wr_id: u64) -> RxElement {
        self.posted.set(self.posted.get().saturating_sub(1));
        // SAFETY: all requests of this queue are made by `slot`, and each ends with one completion.
        unsafe { RxElement::taken_back(wr_id) }
    }

    /// Where the data of an element are.
    #[inline]
    pub(crate) fn data(&self, element: &RxElement) -> *mut u8 {
        element.0.as_ptr().wrapping_add(self.headroom)
    }

    /// The element that a handler kept, by the data that it was given.
    ///
    /// # Safety
    /// The data are those of an element of this ring, which was delivered and kept; it is released once.
    pub(crate) unsafe fn released(&self, data: NonNull<u8>) -> RxElement {
        // SAFETY: the data lie behind the headroom of an element.
        RxElement(unsafe { data.sub(self.headroom) })
    }

    /// Posts buffers if at least `batch` are missing; returns whether all that should be are.
    #[inline]
    pub(crate) fn fill(&self, batch: u32) -> bool {
        let missing = self.wanted.get().saturating_sub(self.posted.get());
        if missing < batch || missing == 0 { true } else { self.fill_up(missing) }
    }

    fn fill_up(&self, mut missing: u32) -> bool {
        while missing > 0 {
            let mut slots = [const { MaybeUninit::uninit() }; BATCH];
            let mut count = 0;
            while count < BATCH.min(missing as usize) {
                let Some(element) = self.buffers.get() else { break };
                slots[count].write(self.slot(RxElement(element)));
                count += 1;
            }
            // SAFETY: so many places were just written.
            let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<RecvSlot>(), count) };
            // SAFETY: the buffers are of the pool, and used by nothing else until their completion; the pool outlives the queue
            // (the order of fields).
            let posted = unsafe { self.srq.post(slots) }.unwrap_or(0);
            for slot in &slots[posted..] {
                // SAFETY: `slot` made it of an element just now, and the device has not taken it.
                self.put(unsafe { RxElement::taken_back(slot.wr_id) });
            }
            self.posted.set(self.posted.get() + posted as u32);
            missing -= posted as u32;
            if posted < BATCH && missing > 0 {
                return false;
            }
        }
        true
    }

    /// Makes a receive request of an element, which is the device's until [`RxElement::taken_back`].
    fn slot(&self, element: RxElement) -> RecvSlot {
        // SAFETY: the element is of a pool of registered memory.
        let key = unsafe { lkey(element.0) };
        element.mark(true);
        let address = element.0.as_ptr().expose_provenance();
        let sge = Sge::new((address + self.headroom) as u64, self.seg_size as u32, key);
        RecvSlot { wr_id: address as u64, sge }
    }

    /// Collects what is posted.
    ///
    /// # Safety
    /// No queue pair is left that could receive.
    pub(crate) unsafe fn collect(&self) {
        for &element in &*self.elements.0.borrow() {
            // SAFETY: the pool's elements live as long as the pool, and their first word is only written by `mark`.
            let is_posted = unsafe { element.cast::<u64>().read() } != 0;
            if is_posted {
                let element = RxElement(element);
                element.mark(false);
                self.put(element);
            }
        }
        self.posted.set(0);
    }

    /// Takes an element back.
    #[inline]
    pub(crate) fn put(&self, element: RxElement) {
        // SAFETY: an interface has one pool of receive buffers, and an element is put back by value.
        unsafe { self.buffers.put(element.0) };
    }
}

/// A receive buffer that belongs to its holder: neither the device nor the application has it, and it is not in the pool. One
/// that is dropped is lost to its pool.
#[must_use = "a buffer that is not put back is lost to its pool"]
pub(crate) struct RxElement(NonNull<u8>);

impl RxElement {
    /// The element of a receive request that the device has given back.
    ///
    /// # Safety
    /// The id is that of a request that `ReceiveRing::slot` made, and that has ended or was not posted; it is taken back once.
    #[inline]
    unsafe fn taken_back(wr_id: u64) -> RxElement {
        let pointer = ptr::with_exposed_provenance_mut(wr_id as usize);
        // SAFETY: such an id is the address of an element, which is not null.
        let element = RxElement(unsafe { NonNull::new_unchecked(pointer) });
        element.mark(false);
        element
    }

    /// Marks it as posted or not, in its first word, which neither the device nor a handler touches.
    #[inline]
    fn mark(&self, is_posted: bool) {
        // SAFETY: an element begins with an aligned word of its own (`ReceiveRing::headroom_for`), and is the holder's.
        unsafe { self.0.cast::<u64>().write(u64::from(is_posted)) }
    }
}

/// Every element of the pool, so that those that are still posted can be collected at the end.
#[derive(Default)]
pub(crate) struct RxElements(Rc<RefCell<Vec<NonNull<u8>>>>);

impl RxElements {
    /// What the pool calls for each new element.
    pub(crate) fn hooks(&self) -> impl ElementHooks + 'static {
        RxElements(Rc::clone(&self.0))
    }
}

impl ElementHooks for RxElements {
    unsafe fn init(&self, element: NonNull<u8>, _cookie: *mut c_void) {
        RxElement(element).mark(false);
        self.0.borrow_mut().push(element);
    }
}
