//! Sending: the first message since the last progress is sent immediately, later ones share a system call.

use std::ptr;
use std::rc::Rc;
use std::slice;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use ucs::event_set::Events;
use ucs::{Error, Result};
use uct_plugin::rma::Payload;
use uct_plugin::{Completion, Iov, Outcome, Pack};

use super::{Conn, State};
use crate::io::pieces::{Memory, PIECES, Pieces};
use crate::link::shared::Shared;
use crate::proto::fill;
use crate::proto::wire::{FEATURE_FILL, PADDING, padded};

/// The padding of a frame.
const ZEROS: [u8; PADDING] = [0; PADDING];

/// Frames from this size on are worth a system call of their own that saves a copy.
pub(super) const GATHERED: usize = 16 << 10;

/// A place for a frame: so many initialised bytes of the interface's scratch memory or of the last buffer of a queue. It is
/// unused until something is sent, queued or flushed.
struct Place {
    /// Where the frame goes.
    start: *mut u8,
    /// Whether it goes straight to the socket.
    direct: bool,
}

impl Conn {
    /// Sends or collects a frame, which is no larger than a short or bcopy message with its headers.
    #[inline(always)]
    pub(crate) fn send_frame(&self, shared: &Shared, head: &[u8], data: impl Payload) -> Result {
        let bytes = head.len().saturating_add(data.length());
        let place = self.place(shared, bytes)?;
        let body = place.start.wrapping_add(head.len());
        // SAFETY: the place has room for the frame, and is no part of the head.
        unsafe { place.start.copy_from_nonoverlapping(head.as_ptr(), head.len()) };
        // SAFETY: the place has room for the data behind the head, and nothing else uses it.
        unsafe { data.write(body) };
        // SAFETY: the place has room for the zeros.
        unsafe { body.wrapping_add(data.length()).cast::<[u8; PADDING]>().write(ZEROS) };
        // SAFETY: the frame and its zeros were just written, and nothing was sent since, by the promise of `Payload`.
        unsafe { self.submit(shared, place, padded(bytes)) }
    }

    /// The same with data that the application packs, up to `tx_seg_size` bytes after a head. `head` returns the head for a
    /// length; if it fails, the frame is not sent. Returns the length.
    #[inline(always)]
    pub(crate) fn send_packed<const N: usize>(
        &self,
        shared: &Shared,
        pack: Pack,
        head: impl FnOnce(usize) -> Result<[u8; N]>,
    ) -> Result<usize> {
        if shared.agenda.is_packing() {
            return Err(Error::NO_RESOURCE);
        }
        let place = self.place(shared, N + shared.seg_size())?;
        let body = place.start.wrapping_add(N);
        let packed: Result<_> = self.while_packing(shared, || {
            // SAFETY: the place has room for `seg_size` bytes behind the head, which is the `max_bcopy`, and is used by nothing else while
            // this connection packs.
            let length = unsafe { pack.write(body, shared.seg_size()) }?;
            Ok((length, head(length)?))
        });
        let (length, head) = packed?;
        // SAFETY: the place has room for the head.
        unsafe { place.start.cast::<[u8; N]>().write(head) };
        // SAFETY: the place has room for the zeros.
        unsafe { body.wrapping_add(length).cast::<[u8; PADDING]>().write(ZEROS) };
        // SAFETY: the frame and its zeros were written, and nothing was sent while this connection packed.
        unsafe { self.submit(shared, place, padded(N + length)) }?;
        Ok(length)
    }

    /// As [`Conn::send_frame`], of memory that is not used after the call. A long frame goes from there to the socket, as far as that takes it now.
    pub(crate) fn send_gathered(&self, shared: &Shared, head: &[u8], iov: Iov<'_>) -> Result {
        let bytes = head.len().saturating_add(iov.total());
        let is_long = bytes >= GATHERED && iov.entries().len() <= PIECES - 3;
        if is_long && !self.packing.get() && self.error().is_none() {
            self.flush_unless_blocked(shared);
        }
        if !is_long || !self.ready.get() {
            return self.send_frame(shared, head, iov);
        }
        let fill = self.fill(head.len(), iov.blocks());
        // SAFETY: the memory of the vector is readable for this call.
        let blocks = || iov.blocks().map(|(start, length)| unsafe { Memory::new(start, length) });
        let zeros = Memory::from(&ZEROS[..padded(bytes) - bytes]);
        let parts = || [fill.into(), head.into()].into_iter().chain(blocks()).chain([zeros]);
        let mut pieces = Pieces::new();
        for part in parts() {
            pieces.add(part);
        }
        let mut sent = self.count(shared, pieces.send(self.fd()))?;
        if sent == fill.len() + padded(bytes) {
            self.sent_epoch.set(shared.epoch());
            shared.agenda.expect_reply();
            return Ok(());
        }
        for part in parts() {
            let (skipped, rest) = part.split_at(sent);
            sent -= skipped.length();
            self.append(shared, rest);
        }
        self.block(shared);
        Ok(())
    }

    /// A place for a frame of up to `bytes` and the zeros behind it.
    #[inline(always)]
    fn place(&self, shared: &Shared, bytes: usize) -> Result<Place> {
        if bytes > shared.scratch_size() - PADDING {
            return Err(Error::INVALID_PARAM);
        }
        if self.ready.get() && self.sent_epoch.get() != shared.epoch() {
            return Ok(Place { start: shared.scratch(), direct: true });
        }
        if self.tail_left.get() < bytes + PADDING {
            self.make_room(shared, bytes + PADDING)?;
        }
        Ok(Place { start: self.tail.get(), direct: false })
    }

    /// Sends the frame of `bytes`, zeros included, that was written to a place.
    ///
    /// # Safety
    /// The place is of this connection and has room for so many bytes; nothing was sent, queued or flushed since it was taken.
    #[inline(always)]
    unsafe fn submit(&self, shared: &Shared, place: Place, bytes: usize) -> Result {
        if place.direct {
            // SAFETY: so many initialised bytes of the interface's own memory, by the caller's promise.
            return self.send_now(shared, unsafe { slice::from_raw_parts(place.start, bytes) });
        }
        self.tail.set(place.start.wrapping_add(bytes));
        self.tail_left.set(self.tail_left.get() - bytes);
        Ok(())
    }

    /// Keeps sends and flushes away from the place that the application packs into, while it does.
    #[inline(always)]
    pub(super) fn while_packing<T>(&self, shared: &Shared, pack: impl FnOnce() -> T) -> T {
        let (ready, left) = (self.ready.replace(false), self.tail_left.replace(0));
        self.packing.set(true);
        let answer = shared.while_packing(pack);
        self.packing.set(false);
        self.ready.set(ready);
        self.tail_left.set(left);
        answer
    }

    #[inline(always)]
    fn send_now(&self, shared: &Shared, frame: &[u8]) -> Result {
        match send(self.fd(), frame, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == frame.len() => {
                self.sent_epoch.set(shared.epoch());
                shared.agenda.expect_reply();
                Ok(())
            }
            answer => self.send_rest(shared, frame, answer),
        }
    }

    /// Queues what the socket did not take.
    #[cold]
    #[inline(never)]
    fn send_rest(&self, shared: &Shared, frame: &[u8], answer: rustix::io::Result<usize>) -> Result {
        let sent = self.count(shared, answer)?;
        self.append(shared, &frame[sent..]);
        self.block(shared);
        Ok(())
    }

    /// Bytes that the socket took. After an error the connection has no room, until progress fails it.
    fn count(&self, shared: &Shared, answer: rustix::io::Result<usize>) -> Result<usize> {
        match answer {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(0),
            Err(errno) => {
                self.break_off(shared, Error::from_errno(errno.raw_os_error()));
                Err(Error::NO_RESOURCE)
            }
        }
    }

    /// Notes that sending has failed. Progress delivers received messages and then fails the endpoints.
    fn break_off(&self, shared: &Shared, error: Error) {
        if self.broken.get().is_none() {
            self.broken.set(Some(error));
            self.ready.set(false);
            self.tail_left.set(0);
            shared.agenda.note_broken(self.id);
        }
    }

    /// Makes room for `bytes` at the tail.
    #[cold]
    #[inline(never)]
    fn make_room(&self, shared: &Shared, bytes: usize) -> Result {
        if let Some(error) = self.error() {
            return Err(error);
        }
        if self.packing.get() {
            return Err(Error::NO_RESOURCE);
        }
        if self.state.get() == State::Established && !self.blocked.get() && self.has_queued() {
            self.flush(shared);
            if let Some(error) = self.error() {
                return Err(error);
            }
        }
        if self.queued_bytes() + bytes > shared.queue_limit() {
            return Err(Error::NO_RESOURCE);
        }
        self.new_tail(shared)
    }

    /// Whether the largest short or bcopy message would be taken.
    pub(crate) fn has_room(&self, shared: &Shared) -> bool {
        let drains = self.state.get() == State::Established && !self.blocked.get();
        self.error().is_none()
            && (drains || self.queued_bytes() + shared.scratch_size() <= shared.queue_limit())
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.sync_tail();
        self.queue.borrow().bytes()
    }

    /// The same without zero-copy memory, which belongs to the application and is no response to the peer. What the
    /// application has copied is limited by itself (`tx_queue_size`).
    pub(super) fn copied_bytes(&self) -> usize {
        self.sync_tail();
        self.queue.borrow().copied()
    }

    fn new_tail(&self, shared: &Shared) -> Result {
        self.note_collected(shared);
        self.sync_tail();
        let (start, size) = self.queue.borrow_mut().push_buffer(shared.tx_buffer()?);
        self.tail.set(start);
        self.tail_left.set(size);
        self.ready.set(false);
        self.mark_dirty(shared);
        Ok(())
    }

    fn sync_tail(&self) {
        if !self.tail.get().is_null() {
            self.queue.borrow_mut().set_tail(self.tail_left.get());
        }
    }

    fn drop_tail(&self) {
        self.tail.set(ptr::null_mut());
        self.tail_left.set(0);
    }

    /// Has progress flush the connection.
    pub(super) fn mark_dirty(&self, shared: &Shared) {
        if !self.dirty.replace(true) {
            shared.agenda.note_dirty(self.id);
        }
    }

    /// Forgets that progress was asked to flush it.
    pub(crate) fn take_dirty(&self) {
        self.dirty.set(false);
    }

    /// Queues bytes at the end, regardless of the limit: responses, and rests of frames. Without memory for them the connection breaks.
    pub(crate) fn append<'a>(&self, shared: &Shared, bytes: impl Into<Memory<'a>>) {
        let mut bytes = bytes.into();
        while !bytes.is_empty() {
            if self.tail_left.get() == 0
                && let Err(error) = self.new_tail(shared)
            {
                return self.break_off(shared, error);
            }
            let (part, behind) = bytes.split_at(self.tail_left.get());
            let length = part.length();
            // SAFETY: the tail has `tail_left` bytes of a buffer that nothing else writes.
            unsafe { part.write(self.tail.get()) };
            self.tail.set(self.tail.get().wrapping_add(length));
            self.tail_left.set(self.tail_left.get() - length);
            bytes = behind;
        }
    }

    /// Sends a response, made of a head and data, which may be registered memory; queues it if the socket is full.
    pub(super) fn queue_response(&self, shared: &Shared, head: &[u8], data: Memory<'_>) {
        if self.error().is_some() {
            return;
        }
        let bytes = head.len() + data.length();
        let zeros = Memory::from(&ZEROS[..padded(bytes) - bytes]);
        if self.packing.get() {
            let mut frame = Vec::with_capacity(padded(bytes));
            [head.into(), data, zeros].into_iter().for_each(|part: Memory<'_>| part.copy_to(&mut frame));
            return shared.agenda.queue_response_later(self.id, frame);
        }
        let is_small = bytes < GATHERED && bytes + PADDING <= shared.scratch_size();
        // Progress fails a connection that breaks; one without room queues the response all the same.
        if is_small && (self.send_frame(shared, head, data).is_ok() || self.error().is_some()) {
            return;
        }
        let fill = self.fill(head.len(), [(data.start().cast_mut(), data.length())]);
        let parts = [fill.into(), head.into(), data, zeros];
        let mut sent = 0;
        if !self.has_queued() && self.state.get() == State::Established {
            let mut pieces = Pieces::new();
            for part in parts {
                pieces.add(part);
            }
            match self.count(shared, pieces.send(self.fd())) {
                Ok(count) if count == parts.iter().map(|part| part.length()).sum() => return,
                Ok(count) => sent = count,
                Err(_) => return,
            }
            self.block(shared);
        }
        for part in parts {
            let (skipped, rest) = part.split_at(sent);
            sent -= skipped.length();
            self.append(shared, rest);
        }
    }

    /// Whether the peer made this side queue more than it may, and takes none of it now.
    #[inline(always)]
    pub(super) fn is_flooded(&self, shared: &Shared) -> bool {
        !self.ready.get() && self.is_flooded_now(shared)
    }

    #[inline(never)]
    fn is_flooded_now(&self, shared: &Shared) -> bool {
        if self.copied_bytes() <= shared.answer_limit() {
            return false;
        }
        self.flush_unless_blocked(shared);
        self.blocked.get() && self.copied_bytes() > shared.answer_limit()
    }

    /// The socket is known to have no room.
    #[inline(always)]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    /// Sends `head`, copied, and the memory of the vector, in place. As with frames, the first message since the last progress leaves at
    /// once, and later ones share a system call; one that is large enough for a system call of its own does not wait for others.
    pub(crate) fn send_vector(
        &self,
        shared: &Shared,
        head: &[u8],
        iov: Iov<'_>,
        owner: u32,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        if self.packing.get() {
            return Err(Error::NO_RESOURCE);
        }
        let total = head.len() + iov.total();
        let is_collected = total < shared.collected_bytes();
        if !is_collected {
            self.flush_unless_blocked(shared);
            if let Some(error) = self.error() {
                return Err(error);
            }
        }
        if self.has_queued() && !self.has_room(shared) {
            return Err(Error::NO_RESOURCE);
        }
        let zeros = &ZEROS[..padded(total) - total];
        let mut fill = [].as_slice();
        let mut sent = 0;
        if self.ready.get() && (self.sent_epoch.get() != shared.epoch() || !is_collected) {
            fill = self.fill(head.len(), iov.blocks());
            let mut pieces = Pieces::new();
            pieces.add(fill);
            pieces.add(head);
            let mut blocks = iov.blocks();
            for (block, length) in blocks.by_ref().take(PIECES - 3) {
                // SAFETY: the host keeps the memory of an operation readable until it has ended.
                pieces.add(unsafe { Memory::new(block, length) });
            }
            if blocks.next().is_none() {
                pieces.add(zeros);
            }
            sent = self.count(shared, pieces.send(self.fd()))?;
            if sent >= fill.len() + total {
                self.sent_epoch.set(shared.epoch());
                self.append(shared, &zeros[sent - fill.len() - total..]);
                return Ok(Outcome::Done);
            }
        }
        for part in [fill, head] {
            let skipped = sent.min(part.len());
            sent -= skipped;
            self.append(shared, &part[skipped..]);
        }
        self.sync_tail();
        self.queue.borrow_mut().push_vector(iov, sent, owner, completion);
        self.append(shared, zeros);
        self.ready.set(false);
        self.mark_dirty(shared);
        if is_collected && self.queued_bytes() >= shared.collected_bytes() {
            self.flush_unless_blocked(shared);
        }
        Ok(Outcome::InProgress)
    }

    /// What is sent ahead of a head, so that the system is fast to copy the longest of the blocks that follow it.
    fn fill(&self, head: usize, blocks: impl IntoIterator<Item = (*mut u8, usize)>) -> &'static [u8] {
        if !self.has_feature(FEATURE_FILL) {
            return &[];
        }
        let (mut end, mut longest) = (head, (head, 0, 0));
        // Further ones do not go with this call.
        for (start, length) in blocks.into_iter().take(PIECES - 3) {
            if length > longest.2 {
                longest = (end, start.addr(), length);
            }
            end += length;
        }
        fill::ahead_of(longest.0, longest.1)
    }

    /// Sends queued data until the socket is full. Progress runs the completions.
    pub(crate) fn flush(&self, shared: &Shared) {
        if self.packing.get() || self.broken.get().is_some() || self.state.get() != State::Established {
            return;
        }
        self.sync_tail();
        loop {
            let answer = {
                let queue = self.queue.borrow();
                let pieces = queue.pieces();
                if pieces.len() == 0 {
                    break;
                }
                pieces.send(self.fd())
            };
            let Ok(sent) = self.count(shared, answer) else { return };
            if sent == 0 {
                self.block(shared);
                return;
            }
            shared.sent(|pool, ended| self.queue.borrow_mut().advance(sent, pool, ended));
            if self.queue.borrow().is_empty() {
                break;
            }
        }
        shared.sent(|pool, ended| self.queue.borrow_mut().advance(0, pool, ended));
        self.drop_tail();
        self.sent_epoch.set(shared.epoch());
        self.unblock(shared);
        self.ready.set(true);
    }

    /// The same, unless the socket is known to have no room.
    pub(crate) fn flush_unless_blocked(&self, shared: &Shared) {
        if !self.blocked.get() && self.has_queued() {
            self.flush(shared);
        }
    }

    /// Marks the socket as full, and watches for room.
    fn block(&self, shared: &Shared) {
        if !self.blocked.replace(true) {
            shared.count_blocked(1);
            self.watch_again(shared);
        }
    }

    pub(super) fn unblock(&self, shared: &Shared) {
        if self.blocked.replace(false) {
            shared.count_blocked(-1);
            self.watch_again(shared);
        }
    }

    /// Watches the events that matter in the current state.
    pub(super) fn watch_again(&self, shared: &Shared) {
        let mut events = Events::empty();
        events.set(Events::READ, !self.is_held());
        events.set(Events::WRITE, self.blocked.get());
        self.watch(shared, events);
    }

    /// The socket has room again.
    pub(crate) fn on_writable(self: &Rc<Self>, shared: &Shared) {
        if self.blocked.get() {
            self.flush(shared);
            self.mark_dirty(shared);
        }
    }

    /// Ends the zero-copy operations of an owner without waiting for the socket.
    pub(super) fn detach_vectors(&self, shared: &Shared, owner: u32, ended: &mut Vec<Completion>) {
        let copied = self.queue.borrow_mut().detach(owner, ended);
        if let Err(error) = copied {
            self.break_off(shared, error);
        }
    }

    /// Takes what another connection has queued ahead of everything else.
    pub(super) fn take_queue(&self, other: &Conn) {
        other.sync_tail();
        other.drop_tail();
        other.ready.set(false);
        self.queue.borrow_mut().put_ahead(other.queue.take());
    }

    /// Drops what is queued; hands over the completions.
    pub(super) fn drop_queue(&self, ended: &mut Vec<Completion>) {
        self.ready.set(false);
        self.drop_tail();
        self.queue.borrow_mut().clear(ended);
    }
}
