//! Emulated atomics: the steps of each, one after another and in order.
//!
//! Built on `link::emulation`, which defines the steps.

use uct_ib::verbs::SendWr;
use uct_plugin::atomic::{Change, Width};
use uct_plugin::{Atomic, AtomicOp, Completion, Error, OldValue, Outcome, Result, completion};

use super::Conn;
use crate::link::emulation::{Emulated, Next, Steps, Word, after, changed};
use crate::link::op::TxOp;
use crate::link::rkey::Rkey;

impl Conn {
    /// As [`Conn::emulate`].
    #[cold]
    #[inline(never)]
    pub(crate) fn emulate_op(
        &self,
        (width, op, value): (Width, AtomicOp, u64),
        old: OldValue,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let atomic = Atomic { width, change: Change::Op(op, value) };
        self.emulate(atomic, Some(old), address, rkey, completion)
    }

    /// An atomic that the device does not have.
    #[inline(never)]
    pub(crate) fn emulate(
        &self,
        atomic: Atomic,
        old: Option<OldValue>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let key = self.atomic_key(address, atomic.width.bytes(), rkey)?;
        let is_upper = (address & 4 != 0) == cfg!(target_endian = "little");
        let word = match atomic.width {
            Width::Bits64 => Word::Whole,
            Width::Bits32 => Word::Half { shift: if is_upper { 32 } else { 0 } },
        };
        if !self.has_room() {
            return Err(self.refusal());
        }
        // A queue without bounds would take what the caller cannot take back.
        if self.emulated.borrow().len() >= self.shared.limits.tx_queue_len as usize {
            return Err(self.refusal());
        }
        let (change, address) = (atomic.change, address & !7);
        let steps = Emulated::Atomic(Steps { change, word, guess: 0, address, key, old, completion });
        let is_first = {
            let mut emulated = self.emulated.borrow_mut();
            emulated.push_back(steps);
            emulated.len() == 1
        };
        if is_first {
            self.step();
        }
        Ok(Outcome::InProgress)
    }

    /// Posts the next step of the first emulated atomic, or has progress try again if there is no room.
    pub(crate) fn step(&self) {
        loop {
            let step = match self.emulated.borrow().front() {
                None => break,
                Some(Emulated::Atomic(atomic)) => {
                    let wanted = changed(atomic.change, atomic.word, atomic.guess);
                    Some((atomic.address, atomic.key, (atomic.guess, wanted)))
                }
                Some(Emulated::Flush(_)) => None,
            };
            match step {
                Some(step) => {
                    if !self.post_step(step) {
                        self.defer();
                    }
                    return;
                }
                None if !self.flush_behind_emulated() => {
                    self.defer();
                    return;
                }
                None => {}
            }
        }
        self.lift_fence();
    }

    /// The flush at the front becomes that of the queue pair; returns whether there was room.
    fn flush_behind_emulated(&self) -> bool {
        if !self.queue.is_quiet() && self.queue.has_unsignaled() && !self.post_noop() {
            return false;
        }
        if let Some(Emulated::Flush(completion)) = self.emulated.borrow_mut().pop_front() {
            if self.queue.is_quiet() {
                // Reported by progress, where every step but the first is made; the first is never a flush.
                completion.complete(Ok(()));
            } else {
                self.remember(self.queue.last(), TxOp::Notify(completion));
            }
        }
        true
    }

    fn post_step(&self, (address, key, operands): (u64, u32, (u64, u64))) -> bool {
        // The emulated atomic was accepted already.
        if !self.has_own_room() {
            return false;
        }
        if !self.is_clear_for_atomic() {
            // Nothing new is sent until the emulated atomics are through, else it might never be clear.
            self.fence_here();
            return false;
        }
        let Some(mut buffer) = self.shared.buffers.small() else { return false };
        buffer.set_word(self.shared.mark);
        let (flags, unsignaled) = self.next_flags(true);
        let piece = [buffer.piece(8)];
        let request = SendWr::compare_swap(self.next_id(), &piece, address, key, operands, flags);
        // SAFETY: the buffer is this step's until the work request has ended.
        if let Err(error) = unsafe { self.qp.post_send(request) } {
            self.shared.buffers.put_small(buffer);
            if !error.is_full() {
                self.fail_later(Error::from_errno(error.0), error.to_string());
            }
            return false;
        }
        let number = self.posted(unsignaled);
        self.queue.note_atomic();
        self.remember(number, TxOp::Step(buffer));
        self.is_stepping.set(true);
        true
    }

    /// A step has ended, and found this value.
    pub(crate) fn step_ended(&self, result: Result<u64>) {
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                // The failure of the endpoint ends all of them. One that lost its result can neither go on nor be undone.
                self.fail_later(error, "the device lost the result of an atomic".to_owned());
                return;
            }
        };
        let ended = {
            let mut emulated = self.emulated.borrow_mut();
            let Some(Emulated::Atomic(atomic)) = emulated.front_mut() else { return };
            match after(atomic.change, atomic.word, atomic.guess, found) {
                Next::Again(guess) => {
                    atomic.guess = guess;
                    None
                }
                Next::Done(old) => match emulated.pop_front() {
                    Some(Emulated::Atomic(atomic)) => Some((atomic, old)),
                    _ => None,
                },
            }
        };
        // The next step goes out ahead of the completion, which may send and use the room up.
        self.step();
        if let Some((atomic, old)) = ended {
            if let Some(place) = atomic.old {
                // SAFETY: the completion comes next.
                unsafe { place.write(old) };
            }
            completion::complete(atomic.completion, Ok(()));
        }
    }

    /// Ends all emulated atomics, since the endpoint has failed.
    pub(crate) fn fail_emulated(&self, error: Error) {
        loop {
            let first = self.emulated.borrow_mut().pop_front();
            match first {
                None => break,
                Some(Emulated::Atomic(atomic)) => completion::complete(atomic.completion, Err(error)),
                Some(Emulated::Flush(completion)) => completion.complete(Err(error)),
            }
        }
    }
}
