//! Atomics of the device: add and compare-and-swap on 8 bytes.
//!
//! Software RoCE loses results: where packets are lost, a message or write that is sent again is answered by a plain
//! acknowledgement of the latest operation, and if that was an atomic, it ends without its old value. So there an atomic
//! waits until nothing but atomics is in flight, and its result buffer contains a mark that a response would have overwritten:
//! a late duplicate of a packet might still do it, and is an error then rather than a wrong value.

use uct_ib::verbs::{SendFlags, SendWr, Sge};
use uct_plugin::{Completion, Error, MemoryAccess, OldValue, OldWord, Outcome, Result};

use super::Conn;
use crate::io::buffer::SmallBuffer;
use crate::link::op::TxOp;
use crate::link::rkey::Rkey;
use crate::proto::send_queue::Unsignaled;

/// Makes the work request of a fetching atomic.
trait Request: for<'a> FnOnce(u64, &'a [Sge; 1], SendFlags) -> SendWr<'a> {}
impl<F: for<'a> FnOnce(u64, &'a [Sge; 1], SendFlags) -> SendWr<'a>> Request for F {}

/// Makes the work request of an atomic on eight bytes: adds the operand, or puts it in the place of what it is compared with.
#[inline]
fn request(operand: u64, compare: Option<u64>, address: u64, key: u32) -> impl Request {
    move |id, piece: &[Sge; 1], flags| match compare {
        None => SendWr::fetch_add(id, piece, address, key, operand, flags),
        Some(compare) => SendWr::compare_swap(id, piece, address, key, (compare, operand), flags),
    }
}

impl Conn {
    /// Adds without a result: the device's own, into a buffer that is never read.
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

    /// Whether nothing is in flight that can make an atomic lose its result.
    #[inline]
    pub(crate) fn is_clear_for_atomic(&self) -> bool {
        !self.shared.limits.has_stray_acks || self.queue.has_only_atomics()
    }

    /// Refuses an atomic until what is in its way has ended.
    #[inline(always)]
    fn clear_for_atomic(&self) -> Result {
        if self.is_clear_for_atomic() {
            return Ok(());
        }
        if self.queue.has_unsignaled() {
            self.post_noop();
        }
        Err(self.no_resource())
    }

    /// Accounts for an atomic just posted; returns its number.
    #[inline]
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
            ucs::log::error!(qp = self.qp.number(), "rc_verbs: the device lost the result of an atomic");
        }
        self.shared.limits.has_stray_acks
    }

    /// Posts an atomic of the device, chosen by [`request`], and fetches the old value.
    #[inline(always)]
    pub(crate) fn fetch64(
        &self,
        operand: u64,
        compare: Option<u64>,
        old: OldValue,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let key = self.atomic_key(address, 8, rkey)?;
        let Some(old) = old.word() else { return Err(Error::INVALID_PARAM) };
        let Some(result) = self.cached_result() else {
            return self.fetch64_unready(operand, compare, old, address, key, completion);
        };
        self.fetch(result, old, completion, request(operand, compare, address, key))
    }

    /// As [`Conn::fetch64`], where something is missing, or without a cached buffer: a separate function, so that nothing has to be kept for what comes
    /// after it.
    #[cold]
    #[inline(never)]
    fn fetch64_unready(
        &self,
        operand: u64,
        compare: Option<u64>,
        old: OldWord,
        address: u64,
        key: u32,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let result = self.result_place()?;
        self.fetch(result, old, completion, request(operand, compare, address, key))
    }

    /// A small buffer for the result of an atomic, if one is cached and the atomic may be posted.
    #[inline]
    fn cached_result(&self) -> Option<SmallBuffer> {
        if self.has_room() && self.is_clear_for_atomic() { self.shared.buffers.small_ready() } else { None }
    }

    /// A small buffer for the result of an atomic that may be posted, or why it may not.
    fn result_place(&self) -> Result<SmallBuffer> {
        if !self.has_room() {
            return Err(self.refusal());
        }
        self.clear_for_atomic()?;
        self.shared.buffers.small().ok_or_else(|| self.no_resource())
    }

    /// Posts an atomic whose result goes to this small buffer. There is room.
    #[inline(always)]
    fn fetch(
        &self,
        mut buffer: SmallBuffer,
        old: OldWord,
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
        self.remember(number, TxOp::Fetch(buffer, old, completion));
        Ok(Outcome::InProgress)
    }

    #[inline(always)]
    pub(crate) fn atomic_key(&self, address: u64, size: usize, rkey: &Rkey) -> Result<u32> {
        if !address.is_multiple_of(size as u64) {
            return Err(Error::INVALID_PARAM);
        }
        if !self.shared.limits.has_atomics {
            return Err(Error::UNSUPPORTED);
        }
        rkey.check(address, size, MemoryAccess::REMOTE_ATOMIC)
    }
}
