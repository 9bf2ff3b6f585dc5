//! What an endpoint has under way: work requests in order, and what happens when each ends.
//!
//! For: all operations of an endpoint, and progress. Stands on the order of a reliable connection: requests end in the
//! order in which they were posted, so one completion ends all ahead of it; `queue` keeps what is to be done then.

use uct_ib::verbs::{PostError, SendFlags};
use uct_plugin::{Completion, Error, FormerWord, Result, completion};

use super::{Conn, WAITED_FOR};
use crate::io::buffer::{MessageBuffer, SmallBuffer};
use crate::link::op::TxOp;
use crate::link::shared::Shared;
use crate::proto::send_queue::Unsignaled;

impl Conn {
    /// Whether a work request may be posted now.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.has_room()
            && self.shared.cq_available.get() > 0
            && !self.shared.pending.must_wait(&self.group)
    }

    /// Whether a message may be sent now.
    #[inline(always)]
    pub(crate) fn has_room_for_message(&self) -> bool {
        self.queue.credits() > 0 && self.has_room()
    }

    /// Whether a work request of the endpoint's own may be posted, which neither pending requests nor a fence hold up.
    pub(crate) fn has_own_room(&self) -> bool {
        self.queue.has_own_room() && self.shared.cq_available.get() > 0
    }

    /// Why nothing can be posted now.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        if let Some(error) = self.failure() {
            return error;
        }
        if !self.queue.is_connected() {
            return Error::NOT_CONNECTED;
        }
        self.shared.tx_wanted.set(true);
        if self.shared.cq_available.get() == 0 {
            self.starve();
        }
        Error::NO_RESOURCE
    }

    /// Why no message can be sent now. What the peer has granted is used up: its window is too small, and it is told.
    #[cold]
    pub(crate) fn message_refusal(&self) -> Error {
        if self.queue.credits() == 0 && self.queue.is_connected() {
            self.window.note_held_up();
        }
        self.refusal()
    }

    /// A refusal for want of a buffer.
    #[cold]
    pub(crate) fn starved(&self) -> Error {
        self.shared.tx_wanted.set(true);
        self.starve();
        Error::NO_RESOURCE
    }

    /// The flags of the next work request. A completion is asked for where `signaled` wants one, once in so many requests,
    /// and where room gets scarce, so that there is always one to come when an endpoint waits for room. Also answers
    /// what [`Conn::posted`] is to be told.
    #[inline(always)]
    pub(crate) fn next_flags(&self, signaled: bool) -> (SendFlags, Unsignaled) {
        match self.unsignaled() {
            Some(unsignaled) if !signaled => (SendFlags::NONE, unsignaled),
            _ => (SendFlags::SIGNALED, Unsignaled::NONE),
        }
    }

    /// Set if the next work request needs no completion, as far as the others of the interface go, too.
    #[inline(always)]
    fn unsignaled(&self) -> Option<Unsignaled> {
        if self.shared.cq_available.get() <= self.shared.limits.cq_low {
            return None;
        }
        self.queue.unsignaled(self.shared.limits.moderation)
    }

    /// As [`Conn::next_flags`] for a message that asks for no completion, if one may be sent: [`Conn::has_room_for_message`]
    /// in one go with it.
    #[inline(always)]
    pub(crate) fn message_flags(&self) -> Result<(SendFlags, Unsignaled)> {
        if self.queue.credits() == 0 || self.shared.pending.must_wait(&self.group) {
            return Err(self.message_refusal());
        }
        match self.unsignaled() {
            Some(unsignaled) if self.queue.is_open() => Ok((SendFlags::NONE, unsignaled)),
            _ => self.signaled_flags(),
        }
    }

    #[cold]
    #[inline(never)]
    fn signaled_flags(&self) -> Result<(SendFlags, Unsignaled)> {
        if self.has_room_for_message() { Ok(self.next_flags(true)) } else { Err(self.message_refusal()) }
    }

    /// Accounts for a work request just posted; answers its number.
    #[inline(always)]
    pub(crate) fn posted(&self, unsignaled: Unsignaled) -> u32 {
        self.shared.cq_available.set(self.shared.cq_available.get() - 1);
        self.queue.post(unsignaled)
    }

    /// The id of the next work request: which endpoint, and which request.
    #[inline(always)]
    pub(crate) fn next_id(&self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.queue.next())
    }

    /// Remembers what is to happen when the work request of this number ends.
    #[inline(always)]
    pub(crate) fn remember(&self, number: u32, op: TxOp) {
        self.shared.tx_wanted.set(true);
        self.outstanding.push(number, op);
    }

    /// Has a buffer of messages put back when the work request of this number ends. Nobody waits for that.
    #[inline(always)]
    pub(crate) fn lend(&self, number: u32, buffer: MessageBuffer) {
        self.outstanding.push(number, TxOp::Buffer(buffer));
    }

    /// Has it served again when any work request of the interface has ended.
    fn starve(&self) {
        if !self.is_starved.replace(true) {
            self.shared.agenda.starve(self.index);
        }
    }

    /// Has progress look at it: a grant to tell, a step to make, a burial to finish.
    #[cold]
    pub(crate) fn defer(&self) {
        if !self.is_deferred.replace(true) {
            self.shared.agenda.defer(self.index);
        }
        self.shared.agenda.ask();
    }

    /// Has progress fail it.
    #[cold]
    pub(crate) fn fail_later(&self, error: Error, reason: String) {
        self.shared.agenda.fail_later(self.index, error, reason);
    }

    /// What a refused post means for the caller.
    #[cold]
    pub(crate) fn refused(&self, error: PostError) -> Error {
        if error.is_full() {
            self.shared.tx_wanted.set(true);
            self.starve();
            return Error::NO_RESOURCE;
        }
        tracing::error!(qp = self.qp.number(), %error, "rc_verbs: a work request was refused");
        Error::from_errno(error.0)
    }

    /// Whether all that the user sent has ended. If the peer has closed, a grant under way never does.
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
        if self.marks.get() != 0 || self.queue.is_fenced() {
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

    /// What seldom comes after an end.
    #[cold]
    #[inline(never)]
    fn after_end(&self) {
        self.lift_fence();
        if self.group.is_empty() {
            self.unmark(WAITED_FOR);
        } else {
            self.shared.pending.schedule(&self.group);
        }
        if self.is_destroyed() {
            // Progress lets go of it when nothing is under way any more.
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

    /// Counts work requests up to this number as ended; answers whether there are any.
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
            TxOp::Fetch(buffer, former, done) => {
                let value = buffer.word();
                shared.buffers.put_small(buffer);
                if value == shared.mark {
                    return self.end_with_mark(former, done);
                }
                // SAFETY: the completion comes next.
                unsafe { former.write(value) };
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
    fn end_with_mark(&self, former: FormerWord, done: Option<Completion>) {
        if self.is_lost() {
            return completion::complete(done, Err(Error::IO_ERROR));
        }
        // SAFETY: the completion comes next.
        unsafe { former.write(self.shared.mark) };
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
