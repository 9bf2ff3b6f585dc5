//! Put, get and atomics that the peer carries out, through the ring.
//!
//! Used when remote memory can neither be mapped nor copied by the kernel. Built on the SDK's engine, which implements the protocol. This
//! file sends and receives the engine's frames. They are copied out of the ring before they are read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use uct_plugin::memory::Accessor;
use uct_plugin::rma::{
    Answer, Destination, Initiator, Limits, MAX_REQUEST, Notify, Operation, RESPONSE_HEADER, Request, Target,
    Waiter,
};
use uct_plugin::{Completion, Error, Iov, Outcome, Result};

use crate::link::blocked::BlockedOn;
use crate::link::channel::Channel;
use crate::link::remote::registry;
use crate::proto::wire::tag;

/// How long the bytes of a short get wait until the caller repeats the call. The caller polls, so this is long.
const AHEAD_LIFE: Duration = Duration::from_millis(20);
/// Largest header of a put or a response.
const HEAD: usize = if MAX_REQUEST > RESPONSE_HEADER { MAX_REQUEST } else { RESPONSE_HEADER };
/// Operations outstanding at a time.
const OPERATIONS: usize = 64;

/// Largest put or get in one message of `capacity` bytes.
pub(crate) fn largest_piece(capacity: usize) -> usize {
    capacity - HEAD
}

/// Both sides of the operations over one channel.
pub(crate) struct Emulation {
    pub(crate) initiator: Initiator,
    target: Target,
    /// Counts what the target does to registered memory.
    accessor: Accessor,
    /// Most bytes behind a header.
    segment: usize,
    /// Responses for which there was no room. Their number is bounded by the operations that the peer may have outstanding.
    answers: RefCell<VecDeque<Vec<u8>>>,
    /// A put that is sent in pieces. There is at most one.
    put: RefCell<Option<LargePut>>,
    ahead: RefCell<Option<Ahead>>,
    /// Counts sent requests that may change memory of the peer.
    changes: Cell<u64>,
    /// Position of the ring after the response to `ahead`.
    answered_at: Cell<u64>,
    has_work: Cell<bool>,
}

/// A put that is sent in pieces.
struct LargePut {
    owner: u32,
    key: uct_plugin::memory::RemoteKey,
    remote_address: u64,
    blocks: VecDeque<(*mut u8, usize)>,
    left: usize,
    notify: Notify,
    /// The memory of the blocks, if it belongs to this put.
    _copy: Vec<u8>,
}

/// A short get that has been requested.
struct Ahead {
    key: u64,
    address: u64,
    buffer: Vec<u8>,
    waiter: Waiter,
    since: Instant,
    /// `changes` at the time of the request.
    changes: u64,
}

impl Emulation {
    /// For a channel whose largest message holds `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Emulation {
        let segment = capacity - HEAD;
        let limits = Limits { operations: OPERATIONS, get_segment: segment, get_bytes: 4 * segment };
        Emulation {
            initiator: Initiator::new(limits),
            target: Target::default(),
            accessor: Accessor::default(),
            segment,
            answers: RefCell::default(),
            put: RefCell::default(),
            ahead: RefCell::default(),
            changes: Cell::new(0),
            answered_at: Cell::new(0),
            has_work: Cell::new(false),
        }
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.initiator.is_idle() && self.put.borrow().is_none()
    }

    /// Whether another operation may be started.
    pub(crate) fn has_room(&self) -> bool {
        self.initiator.admit().is_ok() && self.put.borrow().is_none()
    }

    /// Whether [`resume`](Emulation::resume) may have something to do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.get()
    }

    /// Sends a request with `length` bytes that `fill` writes behind it.
    pub(crate) fn post(
        &self,
        channel: &Channel,
        owner: u32,
        request: &Request,
        operation: Operation,
        length: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<(), BlockedOn> {
        debug_assert!(length <= self.segment, "{length} bytes are more than a piece of {}", self.segment);
        send_request(channel, request, length, fill)?;
        self.changes.set(self.changes.get() + 1);
        self.initiator.posted(owner, request, operation);
        Ok(())
    }

    /// Starts a get into `destination`.
    pub(crate) fn get(
        &self,
        channel: &Channel,
        owner: u32,
        destination: Destination,
        length: usize,
        (key, address): (&uct_plugin::memory::RemoteKey, u64),
        notify: Notify,
    ) -> Result {
        self.initiator.get(owner, destination, length, key, address, notify)?;
        self.resume(channel);
        Ok(())
    }

    /// Starts a put of any length.
    ///
    /// # Safety
    /// The vector's memory stays valid for reads until `notify` has been notified, or until the operations of `owner` were cancelled.
    pub(crate) unsafe fn put_large(
        &self,
        channel: &Channel,
        owner: u32,
        iov: Iov<'_>,
        (key, remote_address): (&uct_plugin::memory::RemoteKey, u64),
        notify: Notify,
    ) {
        let (blocks, left) = (iov.blocks().collect(), iov.total());
        let put = LargePut { owner, key: *key, remote_address, blocks, left, notify, _copy: Vec::new() };
        *self.put.borrow_mut() = Some(put);
        self.changes.set(self.changes.get() + 1);
        self.resume(channel);
    }

    /// Starts a put of any length from a copy of the data.
    pub(crate) fn put_copied(
        &self,
        channel: &Channel,
        owner: u32,
        data: &[u8],
        (key, remote_address): (&uct_plugin::memory::RemoteKey, u64),
    ) {
        let mut copy = data.to_vec();
        let blocks = VecDeque::from([(copy.as_mut_ptr(), copy.len())]);
        let (left, notify) = (copy.len(), Notify::Nobody);
        let put = LargePut { owner, key: *key, remote_address, blocks, left, notify, _copy: copy };
        *self.put.borrow_mut() = Some(put);
        self.changes.set(self.changes.get() + 1);
        self.resume(channel);
    }

    /// Reads `buffer.len()` bytes: requests them at the first call, and returns them when the caller repeats the call. The response counts only
    /// if this side has changed nothing at the peer since the request, and has received no message of the peer since the response.
    /// Otherwise the bytes may be older than a message that the caller has received. Inside a handler, whose message can be of another peer,
    /// the response never counts.
    pub(crate) fn get_ahead(
        &self,
        channel: &Channel,
        owner: u32,
        (key, address): (&uct_plugin::memory::RemoteKey, u64),
        buffer: &mut [u8],
        is_outside_handlers: bool,
    ) -> Result<Result<()>, BlockedOn> {
        let asked = self.ahead.borrow_mut().take();
        if let Some(asked) = asked {
            let same = (asked.key, asked.address, asked.buffer.len()) == (key.key, address, buffer.len())
                && asked.changes == self.changes.get();
            let is_last = is_outside_handlers && self.answered_at.get() == channel.rings.receiver.position();
            match asked.waiter.result() {
                None if same => {
                    *self.ahead.borrow_mut() = Some(asked);
                    return Err(BlockedOn::Response);
                }
                // The caller has not repeated the call.
                None => self.initiator.abandon(&asked.waiter),
                Some(result) if same && is_last && asked.since.elapsed() < AHEAD_LIFE => {
                    return Ok(result.map(|()| buffer.copy_from_slice(&asked.buffer)));
                }
                Some(_) => (),
            }
        }
        if !self.has_room() {
            return Err(BlockedOn::Window);
        }
        let mut own = vec![0; buffer.len()];
        let place = NonNull::new(own.as_mut_ptr()).expect("a vector is not null");
        let waiter = Waiter::default();
        // SAFETY: the vector is kept until the get has ended, or was abandoned.
        let destination = unsafe { Destination::block(place, own.len()) };
        let notify = Notify::Waiter(waiter.clone());
        if let Err(error) = self.get(channel, owner, destination, buffer.len(), (key, address), notify) {
            return Ok(Err(error));
        }
        let (since, changes) = (Instant::now(), self.changes.get());
        let asked = Ahead { key: key.key, address, buffer: own, waiter, since, changes };
        *self.ahead.borrow_mut() = Some(asked);
        Err(BlockedOn::Response)
    }

    /// Whether the message that was received last has answered a short get: its caller takes it before others are received.
    pub(crate) fn has_just_answered(&self, channel: &Channel) -> bool {
        self.answered_at.get() == channel.rings.receiver.position()
            && self.ahead.borrow().as_ref().is_some_and(|ahead| ahead.waiter.result().is_some())
    }

    /// Whether a short get that was asked for has been answered.
    pub(crate) fn has_answer(&self) -> bool {
        self.ahead.borrow().as_ref().is_none_or(|ahead| ahead.waiter.result().is_some())
    }

    /// Receives a frame of the engine, in a private copy. An error means that the peer violates the protocol.
    pub(crate) fn receive(&self, channel: &Channel, kind: u8, frame: &[u8]) -> Result<(), String> {
        if kind == tag::ANSWER {
            let had_answer = self.has_answer();
            self.initiator.answer(frame).map_err(|malformed| malformed.to_string())?;
            if !had_answer && self.has_answer() {
                self.answered_at.set(channel.rings.receiver.position());
            }
            self.resume(channel);
            return Ok(());
        }
        let Some(answer) = self.serve(frame)? else {
            // Acknowledged together with others, after the burst.
            self.has_work.set(true);
            channel.raise();
            return Ok(());
        };
        let (data, length) = answer.data();
        let fill = |target: *mut u8| {
            // SAFETY: there is room for header and data.
            unsafe { target.copy_from_nonoverlapping(answer.header().as_ptr(), RESPONSE_HEADER) };
            // SAFETY: as above.
            let target = unsafe { target.add(RESPONSE_HEADER) };
            // SAFETY: the data are in the response, or in registered memory that it holds; not in the ring.
            unsafe { target.copy_from_nonoverlapping(data, length) };
        };
        let mut queue = self.answers.borrow_mut();
        if queue.is_empty() && channel.send(tag::ANSWER, answer.frame_bytes(), fill).is_ok() {
            return Ok(());
        }
        if queue.len() >= 2 * OPERATIONS {
            return Err(format!("more than {} operations at a time", 2 * OPERATIONS));
        }
        queue.push_back(answer.to_vec());
        self.has_work.set(true);
        channel.raise();
        Ok(())
    }

    /// Carries a request out. Returns the response to send, which fits into a message.
    fn serve(&self, frame: &[u8]) -> Result<Option<Answer<'_>>, String> {
        let registry = registry().map_err(|failure| failure.reason)?;
        let answer = self
            .target
            .serve(registry.regions(), &self.accessor, frame)
            .map_err(|malformed| malformed.to_string())?;
        match &answer {
            Some(answer) if answer.data().1 > self.segment => {
                Err(format!("a get of {} bytes, where {} fit", answer.data().1, self.segment))
            }
            _ => Ok(answer),
        }
    }

    /// Resumes everything that waits for room in the ring.
    pub(crate) fn resume(&self, channel: &Channel) {
        let before = channel.rings.sender.position();
        self.resume_answers(channel);
        self.resume_put(channel);
        if self.initiator.wants_pump() {
            self.initiator
                .pump(|request| send_request(channel, request, 0, |_| ()).map_err(|_| Error::NO_RESOURCE));
        }
        let work = !self.answers.borrow().is_empty()
            || self.target.has_unacknowledged()
            || self.put.borrow().is_some()
            || self.initiator.wants_pump();
        self.has_work.set(work);
        if work && channel.rings.sender.position() != before {
            channel.raise();
        } else if work {
            channel.wait_for_room();
        }
    }

    fn resume_answers(&self, channel: &Channel) {
        let mut queue = self.answers.borrow_mut();
        while let Some(bytes) = queue.front() {
            let fill = |target: *mut u8| {
                // SAFETY: there is room for all bytes.
                unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            };
            if channel.send(tag::ANSWER, bytes.len(), fill).is_err() {
                return;
            }
            queue.pop_front();
        }
        if self.target.has_unacknowledged()
            && channel.rings.sender.has_room() == Ok(true)
            && let Some(header) = self.target.acknowledge()
        {
            // SAFETY: there is room for the header.
            let fill =
                |target: *mut u8| unsafe { target.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
            if channel.send(tag::ANSWER, header.len(), fill).is_err() {
                queue.push_back(header.to_vec());
            }
        }
    }

    fn resume_put(&self, channel: &Channel) {
        let mut slot = self.put.borrow_mut();
        while let Some(put) = &mut *slot {
            let length = put.left.min(self.segment);
            let Ok(request) = self.initiator.put(&put.key, put.remote_address, length) else { return };
            let sent = send_request(channel, &request, length, |target| {
                // SAFETY: there is room for `length` bytes, and the blocks hold as many: they are valid until the
                // completion.
                unsafe { take(&mut put.blocks, target, length) };
            });
            if sent.is_err() {
                return;
            }
            put.left -= length;
            put.remote_address += length as u64;
            if put.left > 0 {
                self.initiator.posted(put.owner, &request, Operation::Piece);
                continue;
            }
            let owner = put.owner;
            if let Some(put) = slot.take() {
                self.initiator.posted(owner, &request, Operation::Acknowledged(put.notify));
            }
        }
    }

    /// Flushes what an endpoint has started.
    ///
    /// # Errors
    /// As the engine's flush. [`Error::NO_RESOURCE`] while a put is not wholly sent.
    pub(crate) fn flush(&self, owner: u32, completion: Option<Completion>) -> Result<Outcome> {
        if self.put.borrow().is_some() {
            // The engine does not know of it yet, and would flush ahead of it.
            return Err(Error::NO_RESOURCE);
        }
        self.initiator.flush(owner, completion)
    }

    /// Ends what an endpoint has outstanding.
    pub(crate) fn cancel(&self, owner: u32, error: Error) {
        self.initiator.cancel(owner, error);
        let mut slot = self.put.borrow_mut();
        if slot.as_ref().is_some_and(|put| put.owner == owner) {
            let put = slot.take();
            drop(slot);
            put.into_iter().for_each(|put| fail_put(put.notify, error));
        }
    }

    /// The channel is broken: ends everything.
    pub(crate) fn fail(&self, error: Error) {
        self.initiator.fail(error);
        let put = self.put.borrow_mut().take();
        put.into_iter().for_each(|put| fail_put(put.notify, error));
        *self.ahead.borrow_mut() = None;
        self.answers.borrow_mut().clear();
        self.has_work.set(false);
    }
}

fn fail_put(notify: Notify, error: Error) {
    if let Notify::Completion(completion) = notify {
        completion.complete(Err(error));
    }
}

/// Sends a request and `length` bytes behind it.
fn send_request(
    channel: &Channel,
    request: &Request,
    length: usize,
    fill: impl FnOnce(*mut u8),
) -> Result<(), BlockedOn> {
    let mut head = [0; MAX_REQUEST];
    let head_length = request.write(&mut head);
    channel.send(tag::REQUEST, head_length + length, |target| {
        // SAFETY: `send` gives room for head and data.
        unsafe { target.copy_from_nonoverlapping(head.as_ptr(), head_length) };
        // SAFETY: as above.
        fill(unsafe { target.add(head_length) });
    })
}

/// Copies the first `length` bytes of the blocks out, and drops them.
///
/// # Safety
///
/// The blocks hold `length` readable bytes, `target` as many writable ones elsewhere.
unsafe fn take(blocks: &mut VecDeque<(*mut u8, usize)>, mut target: *mut u8, mut length: usize) {
    while length > 0 {
        let Some((block, room)) = blocks.front_mut() else { return };
        let part = length.min(*room);
        // SAFETY: both hold `part` bytes by the caller's promise.
        unsafe { target.copy_from_nonoverlapping(*block, part) };
        // SAFETY: at most one past the block's end.
        *block = unsafe { block.add(part) };
        // SAFETY: as above.
        target = unsafe { target.add(part) };
        *room -= part;
        length -= part;
        if *room == 0 {
            blocks.pop_front();
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
