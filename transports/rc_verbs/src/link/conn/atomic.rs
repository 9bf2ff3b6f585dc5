//! Atomics: add and compare-and-swap on 8 bytes are the device's; the rest is made of its compare-and-swap.
//!
//! For: the endpoint. Stands on `tx`. An emulated atomic guesses what is there, swaps in what should be there instead, and
//! guesses better if it was wrong: coherent with the device's own, and no work for the target's processor. Those of one
//! endpoint run one after another, in order.
//!
//! Software RoCE loses results: where packets are lost, a message or write that is sent again is answered by a plain
//! acknowledgement of whatever came last, and if that was an atomic, it ends without its former value. So there an atomic
//! waits until nothing but atomics is under way, and its result buffer bears a mark that an answer would have overwritten:
//! a late duplicate of a packet might still do it, and is an error then rather than a wrong value.

use uct_ib::verbs::{SendFlags, SendWr, Sge};
use uct_plugin::atomic::{Change, Width};
use uct_plugin::{
    Atomic, AtomicOp, Completion, Error, Former, FormerWord, MemoryAccess, Outcome, Result, completion,
};

use super::Conn;
use crate::io::buffer::SmallBuffer;
use crate::link::op::TxOp;
use crate::link::rkey::Rkey;
use crate::proto::send_queue::Unsignaled;

/// Which bits of the eight bytes it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Whole,
    Half { shift: u32 },
}

/// An emulated atomic, or a flush that waits for those ahead of it.
pub(crate) enum Emulated {
    Atomic(Steps),
    Flush(Completion),
}

/// An emulated atomic.
pub(crate) struct Steps {
    change: Change,
    word: Word,
    /// What is thought to be there.
    guess: u64,
    address: u64,
    key: u32,
    former: Option<Former>,
    completion: Option<Completion>,
}

/// Makes the work request of a fetching atomic.
trait Request: for<'a> FnOnce(u64, &'a [Sge; 1], SendFlags) -> SendWr<'a> {}
impl<F: for<'a> FnOnce(u64, &'a [Sge; 1], SendFlags) -> SendWr<'a>> Request for F {}

/// Makes the work request of an atomic on eight bytes: adds the operand, or puts it in the place of what it is compared with.
#[inline(always)]
fn request(operand: u64, compare: Option<u64>, address: u64, key: u32) -> impl Request {
    move |id, piece: &[Sge; 1], flags| match compare {
        None => SendWr::fetch_add(id, piece, address, key, operand, flags),
        Some(compare) => SendWr::compare_swap(id, piece, address, key, (compare, operand), flags),
    }
}

/// What to do after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The value was as guessed and has been changed, or is not to be changed: this was the former value.
    Done(u64),
    /// Try again with this guess.
    Again(u64),
}

impl Word {
    fn of(self, bytes: u64) -> u64 {
        match self {
            Word::Whole => bytes,
            Word::Half { shift } => bytes >> shift & 0xffff_ffff,
        }
    }

    fn with(self, bytes: u64, value: u64) -> u64 {
        match self {
            Word::Whole => value,
            Word::Half { shift } => bytes & !(0xffff_ffff << shift) | (value & 0xffff_ffff) << shift,
        }
    }
}

/// The eight bytes that are to replace `bytes`.
fn changed(change: Change, word: Word, bytes: u64) -> u64 {
    let former = word.of(bytes);
    let value = match change {
        Change::Op(AtomicOp::Add, value) => former.wrapping_add(value),
        Change::Op(AtomicOp::And, value) => former & value,
        Change::Op(AtomicOp::Or, value) => former | value,
        Change::Op(AtomicOp::Xor, value) => former ^ value,
        Change::Op(AtomicOp::Swap, value) => value,
        Change::CompareSwap { compare, swap } if former == compare => swap,
        Change::CompareSwap { .. } => former,
    };
    word.with(bytes, value)
}

/// What a compare-and-swap that expected `guess` and found `found` means.
fn after(change: Change, word: Word, guess: u64, found: u64) -> Next {
    let differs = matches!(change, Change::CompareSwap { compare, .. } if word.of(found) != compare);
    if guess == found || differs { Next::Done(word.of(found)) } else { Next::Again(found) }
}

impl Conn {
    /// Adds without a result: the device's own, into a place that nobody reads.
    #[inline(always)]
    pub(crate) fn add64(&self, value: u64, address: u64, rkey: &Rkey) -> Result {
        let key = self.atomic_key(address, 8, rkey)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        self.clear_for_atomic()?;
        let (flags, unsignaled) = self.next_flags(false);
        let piece = [self.shared.sink];
        let request = SendWr::fetch_add(self.next_id(), &piece, address, key, value, flags);
        // SAFETY: the sink lives as long as the interface, and is only ever written by the device.
        unsafe { self.qp.post_send(request) }.map_err(|error| self.refused(error))?;
        self.posted_atomic(unsignaled);
        Ok(())
    }

    /// Whether nothing is under way that can rob an atomic of its result.
    #[inline(always)]
    fn is_clear_for_atomic(&self) -> bool {
        !self.shared.limits.has_stray_acks || self.queue.has_only_atomics()
    }

    /// Refuses an atomic until what is in its way has ended.
    #[inline(always)]
    fn clear_for_atomic(&self) -> Result {
        if self.is_clear_for_atomic() {
            return Ok(());
        }
        if self.queue.has_unsignaled() && !self.post_nothing() {
            return Err(self.refusal());
        }
        Err(self.starved())
    }

    /// Accounts for an atomic just posted; answers its number.
    #[inline(always)]
    fn posted_atomic(&self, unsignaled: Unsignaled) -> u32 {
        let number = self.posted(unsignaled);
        self.queue.note_read();
        self.queue.note_atomic();
        number
    }

    /// Whether a result that is the mark was never written. The mark may as well be the value where no result gets lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_lost(&self) -> bool {
        if self.shared.limits.has_stray_acks {
            tracing::error!(qp = self.qp.number(), "rc_verbs: the device lost the result of an atomic");
        }
        self.shared.limits.has_stray_acks
    }

    /// Carries out an atomic of the device's, which [`request`] says, and fetches the former value.
    #[inline(always)]
    pub(crate) fn fetch64(
        &self,
        operand: u64,
        compare: Option<u64>,
        former: Former,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let key = self.atomic_key(address, 8, rkey)?;
        let Some(former) = former.word() else { return Err(Error::INVALID_PARAM) };
        let Some(result) = self.result_at_hand() else {
            return self.fetch64_unready(operand, compare, former, address, key, completion);
        };
        self.fetch(result, former, completion, request(operand, compare, address, key))
    }

    /// As [`Conn::fetch64`], where something is missing, or a buffer at hand: apart, so that nothing has to be kept for what comes
    /// after it.
    #[cold]
    #[inline(never)]
    fn fetch64_unready(
        &self,
        operand: u64,
        compare: Option<u64>,
        former: FormerWord,
        address: u64,
        key: u32,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let result = self.result_place()?;
        self.fetch(result, former, completion, request(operand, compare, address, key))
    }

    /// A small buffer for the result of an atomic, if one is at hand and the atomic may be posted.
    #[inline(always)]
    fn result_at_hand(&self) -> Option<SmallBuffer> {
        if self.has_room() && self.is_clear_for_atomic() { self.shared.buffers.small_ready() } else { None }
    }

    /// A small buffer for the result of an atomic that may be posted, or why it may not.
    fn result_place(&self) -> Result<SmallBuffer> {
        if !self.has_room() {
            return Err(self.refusal());
        }
        self.clear_for_atomic()?;
        self.shared.buffers.small().ok_or_else(|| self.starved())
    }

    /// Posts an atomic whose result goes to this small buffer. There is room.
    #[inline(always)]
    fn fetch(
        &self,
        mut buffer: SmallBuffer,
        former: FormerWord,
        completion: Option<Completion>,
        request: impl Request,
    ) -> Result<Outcome> {
        buffer.set_word(self.shared.mark);
        let (flags, unsignaled) = self.next_flags(true);
        let piece = [buffer.piece(8)];
        // SAFETY: the buffer is this operation's until the work request has ended.
        if let Err(error) = unsafe { self.qp.post_send(request(self.next_id(), &piece, flags)) } {
            self.shared.buffers.put_small(buffer);
            return Err(self.refused(error));
        }
        let number = self.posted_atomic(unsignaled);
        self.remember(number, TxOp::Fetch(buffer, former, completion));
        Ok(Outcome::InProgress)
    }

    #[inline(always)]
    fn atomic_key(&self, address: u64, size: usize, rkey: &Rkey) -> Result<u32> {
        if !address.is_multiple_of(size as u64) {
            return Err(Error::INVALID_PARAM);
        }
        if !self.shared.limits.has_atomics {
            return Err(Error::UNSUPPORTED);
        }
        rkey.check(address, size, MemoryAccess::REMOTE_ATOMIC)
    }

    /// As [`Conn::emulate`].
    #[cold]
    #[inline(never)]
    pub(crate) fn emulate_op(
        &self,
        (width, op, value): (Width, AtomicOp, u64),
        former: Former,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let atomic = Atomic { width, change: Change::Op(op, value) };
        self.emulate(atomic, Some(former), address, rkey, completion)
    }

    /// An atomic that the device does not have.
    #[inline(never)]
    pub(crate) fn emulate(
        &self,
        atomic: Atomic,
        former: Option<Former>,
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
        let steps = Emulated::Atomic(Steps { change, word, guess: 0, address, key, former, completion });
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

    /// The flush at the front becomes that of the queue pair; answers whether there was room.
    fn flush_behind_emulated(&self) -> bool {
        if !self.queue.is_quiet() && self.queue.has_unsignaled() && !self.post_nothing() {
            return false;
        }
        if let Some(Emulated::Flush(completion)) = self.emulated.borrow_mut().pop_front() {
            if self.queue.is_quiet() {
                // Told from progress, where every step but the first is made; the first is never a flush.
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
                Next::Done(former) => match emulated.pop_front() {
                    Some(Emulated::Atomic(atomic)) => Some((atomic, former)),
                    _ => None,
                },
            }
        };
        // The next step goes out ahead of the completion, which may send and use the room up.
        self.step();
        if let Some((atomic, former)) = ended {
            if let Some(place) = atomic.former {
                // SAFETY: the completion comes next.
                unsafe { place.write(former) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs an emulated atomic on a memory word, where another changes the word before each of the first steps.
    fn run(change: Change, word: Word, memory: &mut u64, others: &[u64]) -> u64 {
        let mut guess = 0;
        for step in 0..=others.len() + 1 {
            let found = *memory;
            if found == guess {
                *memory = changed(change, word, guess);
            }
            match after(change, word, guess, found) {
                Next::Done(former) => return former,
                Next::Again(next) => guess = next,
            }
            if let Some(other) = others.get(step) {
                *memory = *other;
            }
        }
        panic!("it did not end one step after the last change");
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn half_a_word_changes_and_the_other_half_stays(memory: u64, value: u32, upper: bool, op in 0u32..5) {
            let op = AtomicOp::from_abi(op).unwrap();
            let shift = if upper { 32 } else { 0 };
            let mut after = memory;
            let former = run(Change::Op(op, u64::from(value)), Word::Half { shift }, &mut after, &[]) as u32;
            prop_assert_eq!(former, (memory >> shift) as u32);
            let expected = match op {
                AtomicOp::Add => former.wrapping_add(value),
                AtomicOp::And => former & value,
                AtomicOp::Or => former | value,
                AtomicOp::Xor => former ^ value,
                AtomicOp::Swap => value,
            };
            prop_assert_eq!((after >> shift) as u32, expected);
            prop_assert_eq!((after >> (32 - shift)) as u32, (memory >> (32 - shift)) as u32);
        }

        #[test]
        fn changes_by_others_in_between_are_not_lost(memory: u64, value: u64, others: Vec<u64>) {
            let mut after = memory;
            let former = run(Change::Op(AtomicOp::Add, value), Word::Whole, &mut after, &others);
            prop_assert_eq!(after, former.wrapping_add(value));
        }

        #[test]
        fn a_comparison_that_fails_changes_nothing(memory: u64, compare: u32, swap: u32) {
            let mut after = memory;
            let change = Change::CompareSwap { compare: u64::from(compare), swap: u64::from(swap) };
            let former = run(change, Word::Half { shift: 0 }, &mut after, &[]);
            prop_assert_eq!(former, memory & 0xffff_ffff);
            let expected = if former == u64::from(compare) { memory & !0xffff_ffff | u64::from(swap) } else { memory };
            prop_assert_eq!(after, expected);
        }
    }
}
