//! The receive side: buffers for all endpoints in one queue, and who may send how many messages into them.
//!
//! For: progress. A peer sends only what it was granted, and no more is granted than there are buffers posted, so nobody
//! finds the queue empty. Once half of what was promised is used up, a grant travels with the next message of the other
//! direction, or by itself if there is none until three quarters are. An endpoint starts with a small window, which
//! doubles when the peer says that it was held up and there is room, and shrinks when many endpoints share the queue. So
//! memory goes where messages come faster than grants, and an endpoint of little traffic keeps the little it began with.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

use ucs::datastruct::mpool::{ElementHooks, Mpool};
use uct_ib::verbs::{InlineWr, RecvSlot, Sge, Srq, Wc, lkey};
use uct_plugin::{Disposition, Error};

use crate::ep::RcEp;
use crate::iface::RcIface;
use crate::proto::wire::{Immediate, MAX_GRANT, Message};

/// Messages that a new peer may send.
const FIRST_WINDOW: u16 = 8;
/// Buffers beyond what the windows need: grants that come by themselves use one each, at most two an endpoint.
const SPARE: u32 = 16;
const SPARE_PER_EP: u32 = 2;
/// Receive buffers that may be missing before progress posts them again.
pub(crate) const REFILL: u32 = 8;
/// Buffers posted in one call.
const BATCH: usize = 16;

/// The receive queue.
pub(crate) struct RxQueue {
    pub(crate) srq: Arc<Srq>,
    buffers: Mpool,
    elements: RxElements,
    /// Bytes of a buffer ahead of the data.
    pub(crate) headroom: usize,
    pub(crate) seg_size: usize,
    /// Buffers posted now, and as many as should be.
    pub(crate) posted: Cell<u32>,
    wanted: Cell<u32>,
    capacity: u32,
    /// Sum of what peers may send and have not sent.
    promised: Cell<u32>,
    /// Sum of the windows.
    windows: Cell<u32>,
    eps: Cell<u32>,
    max_window: u16,
}

impl RxQueue {
    /// Bytes of an element ahead of the data: the user's, and the mark ahead of those.
    pub(crate) fn headroom(of_user: usize) -> usize {
        (of_user + size_of::<u64>()).next_multiple_of(64)
    }

    pub(crate) fn new(
        srq: Arc<Srq>,
        buffers: Mpool,
        elements: RxElements,
        headroom: usize,
        seg_size: usize,
        max_window: u16,
    ) -> RxQueue {
        RxQueue {
            elements,
            capacity: srq.capacity(),
            srq,
            buffers,
            headroom,
            seg_size,
            posted: Cell::new(0),
            wanted: Cell::new(0),
            promised: Cell::new(0),
            windows: Cell::new(0),
            eps: Cell::new(0),
            max_window,
        }
    }

    /// Room for further windows; negative if there are too many endpoints for what they have.
    fn room(&self) -> i64 {
        let taken = SPARE + self.eps.get() * SPARE_PER_EP + self.windows.get();
        i64::from(self.capacity) - i64::from(taken)
    }

    fn set_wanted(&self) {
        let wanted = SPARE + self.eps.get() * SPARE_PER_EP + self.windows.get();
        self.wanted.set(wanted.min(self.capacity));
    }

    /// The window of a new endpoint, which is promised to its peer.
    pub(crate) fn join(&self) -> u16 {
        self.eps.set(self.eps.get() + 1);
        let room = u16::try_from(self.room().max(1)).unwrap_or(u16::MAX);
        let window = FIRST_WINDOW.min(self.max_window).min(room);
        self.windows.set(self.windows.get() + u32::from(window));
        self.promised.set(self.promised.get() + u32::from(window));
        self.set_wanted();
        self.fill(1);
        window
    }

    /// An endpoint ends.
    pub(crate) fn leave(&self, ep: &RcEp) {
        self.forget(ep);
        self.eps.set(self.eps.get() - 1);
        self.set_wanted();
    }

    /// The peer of this endpoint sends nothing any more.
    pub(crate) fn forget(&self, ep: &RcEp) {
        self.promised.set(self.promised.get() - ep.promised.replace(0));
        self.windows.set(self.windows.get() - u32::from(ep.window.replace(0)));
        ep.grant.set(0);
        self.set_wanted();
    }

    /// A message of the endpoint has taken a buffer; answers how many the peer knows that it may still send, or `None` if it
    /// could not know that it may send this one.
    #[inline(always)]
    fn taken(&self, ep: &RcEp) -> Option<u32> {
        let left = ep.promised.get().checked_sub(u32::from(ep.untold()) + 1)?;
        ep.promised.set(ep.promised.get() - 1);
        self.promised.set(self.promised.get() - 1);
        Some(left)
    }

    /// Promises the endpoint what its window allows and buffers are there for; answers whether there is anything to tell.
    fn promise(&self, ep: &RcEp) -> bool {
        if ep.window.get() == 0 {
            return false;
        }
        if self.room() < 0 {
            self.resize(ep, (ep.window.get() / 2).max(1));
        }
        let missing = u32::from(ep.window.get()).saturating_sub(ep.promised.get());
        let mut free = self.free();
        if missing > free {
            self.fill(1);
            free = self.free();
        }
        let mut more = missing.min(free).min(u32::from(MAX_GRANT - ep.untold()));
        if more == 0 && ep.promised.get() == 0 && self.posted.get() > self.promised.get() {
            // Nobody is left without anything as long as there is a buffer; the spare ones are for this.
            more = 1;
        }
        ep.promised.set(ep.promised.get() + more);
        self.promised.set(self.promised.get() + more);
        ep.grant.set(ep.grant.get() + more as u16);
        ep.untold() > 0
    }

    /// Buffers posted that nobody was promised, without the spare ones. As many of those are not there as progress lets
    /// come together before it posts them: what is promised against them is posted before it can be used up.
    fn free(&self) -> u32 {
        let (posted, promised) = (self.posted.get(), self.promised.get());
        let spare = SPARE + self.eps.get() * SPARE_PER_EP - (REFILL - 1);
        posted.saturating_sub(promised + spare.min(posted / 2))
    }

    /// The peer was held up: it may have twice as much under way, if there is room for that.
    #[cold]
    fn widen(&self, ep: &RcEp) {
        let window = ep.window.get();
        if window > 0 && self.room() >= i64::from(window) {
            self.resize(ep, window.saturating_mul(2).min(self.max_window));
        }
    }

    fn resize(&self, ep: &RcEp, window: u16) {
        self.windows.set(self.windows.get() - u32::from(ep.window.replace(window)) + u32::from(window));
        self.set_wanted();
    }

    /// Posts buffers if at least `batch` are missing; answers whether all that should be are.
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
            // SAFETY: the buffers are of the pool, and nobody else's until their completion; the pool outlives the queue
            // (`RcIface`'s order of fields).
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
    /// The id is that of a request that `RxQueue::slot` made, and that has ended or was not posted; it is taken back once.
    #[inline(always)]
    pub(crate) unsafe fn taken_back(wr_id: u64) -> RxElement {
        let pointer = ptr::with_exposed_provenance_mut(wr_id as usize);
        // SAFETY: such an id is the address of an element, which is not null.
        let element = RxElement(unsafe { NonNull::new_unchecked(pointer) });
        element.mark(false);
        element
    }

    /// The element that a handler kept, by the data that it was given.
    ///
    /// # Safety
    /// The data are those of an element that was delivered with so much headroom and kept; it is released once.
    pub(crate) unsafe fn released(data: NonNull<u8>, headroom: usize) -> RxElement {
        // SAFETY: the data lie behind the headroom of an element.
        RxElement(unsafe { data.sub(headroom) })
    }

    /// Where the data are.
    #[inline(always)]
    fn data(&self, headroom: usize) -> *mut u8 {
        self.0.as_ptr().wrapping_add(headroom)
    }

    /// Marks it as posted or not, in its first word, which neither the device nor a handler touches.
    #[inline(always)]
    fn mark(&self, is_posted: bool) {
        // SAFETY: an element begins with an aligned word of its own (`RxQueue::headroom`), and is the holder's.
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

impl RcIface {
    /// Handles the completion of a receive.
    ///
    /// # Safety
    /// It is one of the interface's receive queue, and has not been handled.
    #[inline(always)]
    pub(crate) unsafe fn receive(&self, wc: &Wc) {
        // SAFETY: all requests of that queue are made by `RxQueue::slot`, and each ends with one completion.
        let element = unsafe { RxElement::taken_back(wc.wr_id()) };
        self.rx.posted.set(self.rx.posted.get().saturating_sub(1));
        let message = match wc.immediate() {
            Some(word) if wc.is_ok() => self.account(wc.qp_number(), Immediate(word)),
            _ => {
                self.bad_receive(wc);
                Message::Grant
            }
        };
        let Message::Active(id) = message else {
            self.rx.put(element);
            return;
        };
        let data = element.data(self.rx.headroom);
        // SAFETY: the device has written `byte_length` bytes at `data`; the headroom ahead of them is part of the element,
        // which is nobody else's until it is put back, here or by `release`.
        let disposition = unsafe { self.am.deliver_desc(id, data, wc.byte_length()) };
        if disposition == Disposition::Consumed {
            self.rx.put(element);
        }
    }

    /// What a message means for the windows of both sides.
    #[inline(always)]
    fn account(&self, qp: u32, immediate: Immediate) -> Message {
        // Without an endpoint it came before the endpoint was destroyed, and is delivered all the same.
        let Some(ep) = self.eps.find(qp) else { return immediate.message() };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let ep = unsafe { self.during_progress(ep) };
        if immediate.has_grant() {
            if immediate.was_held_up() {
                self.rx.widen(ep);
            }
            let Some(credits) = immediate.credits(ep.credits.get()) else {
                return self.misbehaves(ep, "the peer grants more messages than any window has");
            };
            ep.credits.set(credits);
            if !ep.group.is_empty() {
                self.pending.schedule(&ep.group);
            }
        }
        let message = immediate.message();
        match message {
            Message::Active(_) => match self.rx.taken(ep) {
                Some(left) if left > u32::from(ep.window.get()) / 2 => message,
                Some(left) => {
                    self.grant_more(ep, left);
                    message
                }
                None => self.beyond_its_grant(ep, message),
            },
            Message::Grant => message,
            Message::Unknown => {
                self.misbehaves(ep, "the peer sent a message of a kind that this version does not know")
            }
        }
    }

    /// The peer sent a message that it was not granted: the buffers that it takes so are those of others. What was on its way
    /// when the endpoint's window went is delivered.
    #[cold]
    #[inline(never)]
    fn beyond_its_grant(&self, ep: &RcEp, message: Message) -> Message {
        if ep.window.get() == 0 {
            return message;
        }
        self.misbehaves(ep, "the peer sent more messages than it was granted")
    }

    /// Has progress end the endpoint of a peer that breaks the rules; its message is dropped.
    #[cold]
    #[inline(never)]
    fn misbehaves(&self, ep: &RcEp, reason: &str) -> Message {
        self.fail_later(ep, Error::IO_ERROR, reason.to_owned());
        Message::Unknown
    }

    /// The peer may send no more than `left`, half of its window at most. What it is granted goes with the next message;
    /// if none has gone when a quarter is left, it goes by itself.
    #[inline(never)]
    fn grant_more(&self, ep: &RcEp, left: u32) {
        if ep.untold() == 0 {
            self.rx.promise(ep);
        }
        if left <= u32::from(ep.window.get()) / 4 {
            self.defer(ep);
        }
    }

    #[cold]
    fn bad_receive(&self, wc: &Wc) {
        let Some(ep) = self.eps.find(wc.qp_number()) else { return };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let ep = unsafe { self.during_progress(ep) };
        if wc.is_ok() {
            self.fail_later(
                ep,
                Error::IO_ERROR,
                "the peer sent a message that is not of rc_verbs".to_owned(),
            );
        } else if wc.status() != uct_ib::WcStatus::FLUSHED {
            let error = Error::from_status(wc.status().status());
            self.fail_later(ep, error, format!("a receive failed: {}", wc.status()));
        }
    }

    /// Tells the peer of what it was promised, if no message has yet; answers false if there is no room to.
    pub(crate) fn send_grant(&self, ep: &RcEp) -> bool {
        // What a destroyed endpoint grants is of no use to anyone.
        if ep.failure().is_some() || !ep.is_connected() || ep.is_destroyed() {
            return true;
        }
        let left = ep.promised.get().saturating_sub(u32::from(ep.untold()));
        let due = left <= u32::from(ep.window.get()) / 4;
        if !due {
            return true;
        }
        if ep.untold() == 0 {
            self.rx.promise(ep);
        }
        if ep.untold() == 0 {
            // No buffers until handlers release some; or no window any more, and nothing to come.
            return ep.window.get() == 0;
        }
        if !ep.has_own_room() {
            return false;
        }
        let (flags, unsignaled) = ep.next_flags(false);
        // Wakes a peer that sleeps until it may send.
        let flags = flags.and(uct_ib::verbs::SendFlags::SOLICITED);
        let immediate = Immediate::grant(ep.grant.get());
        let request = InlineWr::send_immediate(ep.next_id(), &[], immediate.0, flags);
        if ep.qp.post_inline(request).is_err() {
            return false;
        }
        ep.grant.set(0);
        ep.closing_waits_not_for(ep.posted(unsignaled));
        self.lone_grants.set(self.lone_grants.get() + 1);
        true
    }
}
