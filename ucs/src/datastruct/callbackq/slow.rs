//! Everything about a queue that is not calling the fast slots.
//!
//! For registration, removal, and dispatches with pending work. Built on `remote` and `oneshot`.
//! No borrow of [`Slow`] is held while foreign code runs, so callbacks may change the queue.

use std::collections::VecDeque;
use std::ffi::c_void;

use super::remote::Change;
use super::{CallbackId, CallbackQ, FAST_SLOTS, Oneshot, OneshotKey, RawCallback};
use crate::pending_work::WorkSource;

/// The private state of the dispatching thread.
pub(super) struct Slow {
    /// The callbacks in the fast slots, in their order; `None` where a removal left a slot that does nothing.
    fast: Vec<Option<CallbackId>>,
    /// The callbacks beyond the fast slots; `None` where one was removed.
    spill: Vec<Option<(CallbackId, RawCallback)>>,
    oneshots: VecDeque<(OneshotKey, Oneshot)>,
}

impl Slow {
    pub(super) fn new() -> Slow {
        Slow { fast: Vec::with_capacity(FAST_SLOTS), spill: Vec::new(), oneshots: VecDeque::new() }
    }

    /// How many callbacks are registered.
    pub(super) fn len(&self) -> usize {
        self.fast.iter().flatten().count() + self.spill.iter().flatten().count()
    }

    /// Whether a dispatch has more to do than to call the fast slots.
    fn has_more_work(&self) -> bool {
        !self.spill.is_empty() || !self.oneshots.is_empty() || self.fast.contains(&None)
    }
}

impl CallbackQ {
    /// What a dispatch does before it calls the fast slots, if the flag is up.
    pub(super) fn attend(&self) -> u32 {
        self.apply_changes();
        self.tidy();
        let count = self.run_oneshots().wrapping_add(self.run_spill());
        if !self.slow.borrow().has_more_work() {
            self.shared.clear_work();
        }
        count
    }

    /// Puts a callback where there is room.
    pub(super) fn insert(&self, id: CallbackId, raw: RawCallback) {
        let mut slow = self.slow.borrow_mut();
        let hole = slow.fast.iter().position(Option::is_none);
        let index = hole.or_else(|| (slow.fast.len() < FAST_SLOTS).then_some(slow.fast.len()));
        match index {
            None => {
                slow.spill.push(Some((id, raw)));
                self.note_work();
            }
            Some(index) => {
                match slow.fast.get_mut(index) {
                    Some(owner) => *owner = Some(id),
                    None => slow.fast.push(Some(id)),
                }
                self.fast.slots[index].fill(raw);
                self.choose_entry();
            }
        }
    }

    /// The fast slot of a callback.
    pub(super) fn slot_of(&self, id: CallbackId) -> Option<usize> {
        self.slow.borrow().fast.iter().position(|owner| *owner == Some(id))
    }

    /// Takes a callback out, so that it is not called again; returns its argument.
    pub(super) fn take(&self, id: CallbackId) -> Option<*mut c_void> {
        let index = self.slot_of(id);
        let mut slow = self.slow.borrow_mut();
        if let Some(index) = index {
            let argument = self.fast.slots[index].get().map(|raw| raw.argument);
            slow.fast[index] = None;
            // A dispatch may be walking over the slots, so they stay where they are until the next one.
            self.fast.slots[index].fill_with_nothing();
            self.choose_entry();
            self.note_work();
            return argument;
        }
        let index = slow.spill.iter().position(|entry| entry.is_some_and(|(owner, _)| owner == id))?;
        slow.spill[index].take().map(|(_, raw)| raw.argument)
    }

    /// Applies what other threads posted.
    pub(super) fn apply_changes(&self) {
        for change in self.shared.take() {
            self.apply(change);
        }
    }

    /// Ends the queue: runs what waits for removals, drops what has not run.
    pub(super) fn close(&self) {
        for change in self.shared.close() {
            self.apply(change);
        }
        let oneshots = std::mem::take(&mut self.slow.borrow_mut().oneshots);
        drop(oneshots);
    }

    fn apply(&self, change: Change) {
        match change {
            Change::Add(id, raw) => self.insert(id, raw),
            Change::Remove(id, then) => {
                self.take(id);
                if let Some(then) = then {
                    then();
                }
            }
            Change::AddOneshot(key, run) => self.push_oneshot(key, Oneshot::Boxed(run)),
            Change::AddRawOneshot(key, raw) => self.push_oneshot(key, Oneshot::Raw(raw)),
            Change::RemoveOneshots(key) => {
                self.take_oneshots(key, |_| true);
            }
        }
    }

    /// Closes the gaps that removals left, and moves callbacks from the spill to fast slots that are free.
    fn tidy(&self) {
        let slow = &mut *self.slow.borrow_mut();
        let mut kept = 0;
        for index in 0..slow.fast.len() {
            if slow.fast[index].is_some() {
                slow.fast.swap(kept, index);
                if let Some(raw) = self.fast.slots[index].get() {
                    self.fast.slots[kept].fill(raw);
                }
                kept += 1;
            }
        }
        slow.spill.retain(Option::is_some);
        // Callbacks are spilled only while each fast slot has one, so there is room for them only where there was a gap.
        if kept == slow.fast.len() {
            return;
        }
        let moving = slow.spill.len().min(FAST_SLOTS - kept);
        slow.fast.truncate(kept);
        for (id, raw) in slow.spill.drain(..moving).flatten() {
            self.fast.slots[slow.fast.len()].fill(raw);
            slow.fast.push(Some(id));
        }
        for slot in &self.fast.slots[slow.fast.len()..] {
            slot.clear();
        }
        self.choose_entry();
    }

    fn run_oneshots(&self) -> u32 {
        let mut count = 0u32;
        let due = self.slow.borrow().oneshots.len();
        for _ in 0..due {
            // One at a time: each may remove those behind it.
            let next = self.slow.borrow_mut().oneshots.pop_front();
            let Some((_, oneshot)) = next else { break };
            count = count.wrapping_add(oneshot.run());
        }
        count
    }

    fn run_spill(&self) -> u32 {
        let mut count = 0u32;
        let due = self.slow.borrow().spill.len();
        for index in 0..due {
            let entry = self.slow.borrow().spill.get(index).copied();
            if let Some(Some((_, raw))) = entry {
                // SAFETY: the caller of `add` vouched for the callback until it is removed, and it has not been.
                count = count.wrapping_add(unsafe { (raw.callback)(raw.argument) });
            }
        }
        count
    }

    pub(super) fn push_oneshot(&self, key: OneshotKey, oneshot: Oneshot) {
        self.slow.borrow_mut().oneshots.push_back((key, oneshot));
        self.note_work();
    }

    pub(super) fn take_oneshots(
        &self,
        key: OneshotKey,
        mut is_removed: impl FnMut(&Oneshot) -> bool,
    ) -> usize {
        // Foreign code decides, and foreign code runs as a closure is dropped; both may come back to the queue.
        let all = std::mem::take(&mut self.slow.borrow_mut().oneshots);
        let before = all.len();
        let mut kept = VecDeque::with_capacity(before);
        for (owner, oneshot) in all {
            if owner != key || !is_removed(&oneshot) {
                kept.push_back((owner, oneshot));
            }
        }
        let removed = before - kept.len();
        let mut slow = self.slow.borrow_mut();
        kept.append(&mut slow.oneshots);
        slow.oneshots = kept;
        removed
    }

    fn note_work(&self) {
        self.shared.pending_work.add(WorkSource::Queue);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::ptr;

    unsafe extern "C" fn one(_: *mut c_void) -> u32 {
        1
    }

    #[test]
    fn a_queue_has_work_no_longer_than_it_must() {
        let queue = CallbackQ::new();
        let asks = || queue.shared.pending_work.has(WorkSource::Queue);
        // SAFETY: the callback does not read its argument.
        let add = || unsafe { queue.add(one, ptr::null_mut()) };
        let mut ids: Vec<_> = (0..FAST_SLOTS).map(|_| add()).collect();
        assert!(!asks());
        ids.push(add());
        assert!(asks());
        queue.dispatch();
        assert!(asks(), "something is in the spill");
        for id in ids {
            assert!(queue.remove(id).is_some());
            assert!(asks());
            queue.dispatch();
        }
        assert!(!asks());
        queue.add_oneshot(0, || 1);
        assert!(asks());
        queue.dispatch();
        assert!(!asks());
        assert!(queue.handle().add_oneshot(0, || 1).is_ok() && asks());
        queue.dispatch();
        assert!(!asks());
    }
}
