//! The ends of work requests. They end in the order in which they were posted, so one completion ends all ahead of it.

use uct_plugin::{Completion, Error, OldWord, Result, completion};

use super::{Conn, HAS_PENDING};
use crate::io::buffer::SmallBuffer;
use crate::link::op::TxOp;
use crate::link::shared::Shared;

impl Conn {
    /// Whether all operations of the user have ended. If the peer has closed, a credit update in flight never ends.
    pub(crate) fn may_close(&self) -> bool {
        let has_ended =
            self.queue.is_quiet() || (self.queue.rest_is_unawaited() && self.outstanding.is_empty());
        has_ended && self.emulated.borrow().is_empty()
    }

    /// Work requests up to this number have ended well. `shared` is what the endpoint shares.
    ///
    /// # Safety
    /// They have: the device uses none of their buffers any more.
    #[inline(always)]
    pub(crate) unsafe fn end_up_to(&self, number: u32, shared: &Shared) {
        if !self.account_for_end(number, shared) {
            return;
        }
        if self.outstanding.has_up_to(number) {
            // SAFETY: there is one.
            let first = unsafe { self.outstanding.pop_first() };
            // SAFETY: its work request is one of those that have ended.
            unsafe { self.end(first.op, shared) };
            if self.outstanding.has_up_to(number) {
                // SAFETY: the caller's promise.
                unsafe { self.end_further(number) };
            }
        }
        if self.flags.get() != 0 || self.queue.is_fenced() {
            self.after_end();
        }
    }

    /// Mostly it is one operation that ends: in a function of their own the others take no registers from that.
    ///
    /// # Safety
    /// As [`Conn::end_up_to`].
    #[inline(never)]
    unsafe fn end_further(&self, number: u32) {
        while self.outstanding.has_up_to(number) {
            // SAFETY: there is one.
            let first = unsafe { self.outstanding.pop_first() };
            // SAFETY: its work request is one of those that have ended.
            unsafe { self.end(first.op, &self.shared) };
        }
    }

    /// Rare work after a completion.
    #[cold]
    #[inline(never)]
    fn after_end(&self) {
        self.lift_fence();
        if self.group.is_empty() {
            self.clear_flag(HAS_PENDING);
        } else {
            self.shared.pending.schedule(&self.group);
        }
        if self.is_destroyed() {
            // Progress releases it when nothing is in flight any more.
            self.defer();
        }
    }

    /// The work request of this number has failed, those ahead of it have ended well.
    ///
    /// # Safety
    /// As [`Conn::end_up_to`].
    #[cold]
    pub(crate) unsafe fn end_badly(&self, number: u32, error: Error) {
        if !self.account_for_end(number, &self.shared) {
            return;
        }
        while self.outstanding.has_up_to(number) {
            // SAFETY: there is one.
            let first = unsafe { self.outstanding.pop_first() };
            if first.number == number {
                self.give_up(first.op, error);
            } else {
                // SAFETY: its work request is ahead of the one that has failed.
                unsafe { self.end(first.op, &self.shared) };
            }
        }
        self.after_end();
    }

    /// No work request will end by itself any more.
    ///
    /// # Safety
    /// The device uses no buffer of a work request of this queue pair any more.
    #[cold]
    pub(crate) unsafe fn end_all_badly(&self, error: Error) {
        self.account_for_end(self.queue.last(), &self.shared);
        // SAFETY: the caller's promise.
        unsafe { self.abandon(error) };
        self.after_end();
    }

    /// Counts work requests up to this number as ended; returns whether there are any.
    #[inline(always)]
    fn account_for_end(&self, number: u32, shared: &Shared) -> bool {
        let count = self.queue.end_up_to(number);
        shared.cq_available.set(shared.cq_available.get() + count);
        count > 0
    }

    /// An operation has ended well.
    ///
    /// # Safety
    /// It has.
    #[inline(always)]
    unsafe fn end(&self, op: TxOp, shared: &Shared) {
        match op {
            TxOp::Buffer(buffer) => shared.buffers.put_message(buffer),
            TxOp::Zcopy(header, done) => {
                if let Some(header) = header {
                    shared.buffers.put_small(header);
                }
                completion::complete(done, Ok(()));
            }
            TxOp::Get(length, done) => {
                shared.reads_end(length);
                completion::complete(done, Ok(()));
            }
            // SAFETY: the operation has ended.
            TxOp::GetBcopy(buffer, unpack, done) => unsafe { shared.hand_over(buffer, unpack, done) },
            TxOp::Fetch(buffer, old, done) => {
                let value = buffer.word();
                shared.buffers.put_small(buffer);
                if value == shared.mark {
                    return self.end_with_mark(old, done);
                }
                // SAFETY: the completion comes next.
                unsafe { old.write(value) };
                completion::complete(done, Ok(()));
            }
            TxOp::Step(buffer) => self.end_step(buffer, Ok(())),
            TxOp::Notify(done) => done.complete(Ok(())),
        }
    }

    /// An operation has ended with an error.
    #[cold]
    #[inline(never)]
    fn give_up(&self, op: TxOp, error: Error) {
        let shared = &*self.shared;
        let done = match op {
            TxOp::Buffer(buffer) => return shared.buffers.put_message(buffer),
            TxOp::Step(buffer) => return self.end_step(buffer, Err(error)),
            TxOp::Notify(done) => Some(done),
            TxOp::Zcopy(header, done) => {
                if let Some(header) = header {
                    shared.buffers.put_small(header);
                }
                done
            }
            TxOp::Get(length, done) => {
                shared.reads_end(length);
                done
            }
            TxOp::GetBcopy(buffer, _, done) => {
                shared.reads_end(buffer.length());
                shared.buffers.put_message(buffer.into_buffer());
                done
            }
            TxOp::Fetch(buffer, _, done) => {
                shared.buffers.put_small(buffer);
                done
            }
        };
        completion::complete(done, Err(error));
    }

    /// An atomic has ended, and its result is the mark.
    #[cold]
    #[inline(never)]
    fn end_with_mark(&self, old: OldWord, done: Option<Completion>) {
        if self.is_lost() {
            return completion::complete(done, Err(Error::IO_ERROR));
        }
        // SAFETY: the completion comes next.
        unsafe { old.write(self.shared.mark) };
        completion::complete(done, Ok(()));
    }

    /// The step of an emulated atomic has ended whose result this buffer was for.
    #[cold]
    #[inline(never)]
    fn end_step(&self, buffer: SmallBuffer, result: Result) {
        self.is_stepping.set(false);
        let value = buffer.word();
        self.shared.buffers.put_small(buffer);
        let is_lost = value == self.shared.mark && self.is_lost();
        self.step_ended(result.and(if is_lost { Err(Error::IO_ERROR) } else { Ok(value) }));
    }

    /// Gives up on what has not ended well, since the queue pair is about to go.
    ///
    /// # Safety
    /// The device uses no buffer of a work request of this queue pair any more.
    pub(crate) unsafe fn abandon(&self, error: Error) {
        loop {
            let first = self.outstanding.pop();
            let Some(first) = first else { break };
            self.give_up(first.op, error);
        }
        self.fail_emulated(error);
    }
}
