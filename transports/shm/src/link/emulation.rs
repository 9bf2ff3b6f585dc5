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
mod tests {
    use std::os::fd::AsFd;
    use std::ptr;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::io::{Mapping, Origin, Segment, Source};
    use crate::link::pair_layout::PairLayout;
    use crate::link::remote::{Memh, SegmentCache};
    use crate::link::ring_pair::RingPair;
    use crate::link::work::{PendingWork, source};
    use crate::proto::addr::IfaceAddress;
    use crate::proto::ring::{BODY_WORDS, Delivery, Geometry, Pool};
    use uct_plugin::MemoryAccess;
    use uct_plugin::abi::{UCT_ERR_CANCELED, UCT_OK, UctCompletion, UctIov};
    use uct_plugin::memory::{PACKED_KEY, RemoteKey};
    use uct_plugin::rma::{Opcode, Request};
    use zerocopy::IntoBytes;

    /// A peer may request any length; the response must fit into a block of the ring.
    #[test]
    fn a_get_of_more_than_fits_into_a_message_is_refused() {
        let registry = registry().unwrap();
        let mut memory = vec![0u8; 8192];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
        let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
        let mut packed = [0; PACKED_KEY];
        registry.regions().pack(&memh.region, &mut packed).unwrap();
        let key = RemoteKey::unpack(&packed).unwrap();
        let emulation = Emulation::new(4096);
        let serve = |length| {
            let put = emulation.initiator.put(&key, key.base, length).unwrap();
            let request = Request { opcode: Opcode::Get, ..put };
            let mut frame = [0; MAX_REQUEST];
            let bytes = request.write(&mut frame);
            emulation.serve(&frame[..bytes])
        };
        let fits = 4096 - HEAD;
        let (_, length) = serve(fits).unwrap().unwrap().data();
        assert_eq!(length, fits);
        let Err(refused) = serve(fits + 1) else { panic!("one byte more was answered") };
        assert_eq!(refused, format!("a get of {} bytes, where {fits} fit", fits + 1));
        registry.remove(&memh);
    }

    /// The other end of a channel: carries out what it is asked for.
    struct Far {
        rings: RingPair,
        emulation: Emulation,
    }

    impl Far {
        /// The next request that has arrived.
        fn next(&self) -> Option<Vec<u8>> {
            let mut body = [0; BODY_WORDS];
            let message = self.rings.receiver.next(&mut body).unwrap()?;
            assert_eq!(message.tag, tag::REQUEST);
            let Delivery::Block { place, index, length } = message.data else {
                let Delivery::Inline { length } = message.data else { unreachable!() };
                return Some(body.as_bytes()[..length].to_vec());
            };
            let mut request = vec![0; length];
            // SAFETY: the block has so many bytes, and so has the vector.
            let copy =
                |block: *mut u8| unsafe { request.as_mut_ptr().copy_from_nonoverlapping(block, length) };
            self.rings.receiver.block(place, index, copy);
            self.rings.receiver.release(place, index);
            Some(request)
        }

        /// Carries out all requests that have arrived, and hands the answers to `near`.
        fn serve(&self, near: &Emulation, channel: &Channel) {
            while let Some(request) = self.next() {
                if let Some(answer) = self.emulation.serve(&request).unwrap() {
                    near.receive(channel, tag::ANSWER, &answer.to_vec()).unwrap();
                }
            }
            if let Some(header) = self.emulation.target.acknowledge() {
                near.receive(channel, tag::ANSWER, &header).unwrap();
            }
        }
    }

    /// Memory that a peer may use as it likes, and its key.
    struct Registered {
        memory: Vec<u8>,
        memh: Memh,
        key: RemoteKey,
    }

    impl Registered {
        fn new(mut memory: Vec<u8>) -> Registered {
            let registry = registry().unwrap();
            let base = NonNull::new(memory.as_mut_ptr()).unwrap();
            // SAFETY: the vector is kept until the registration ends, and nothing else writes to it meanwhile.
            let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
            let mut packed = [0; PACKED_KEY];
            registry.regions().pack(&memh.region, &mut packed).unwrap();
            let key = RemoteKey::unpack(&packed).unwrap();
            Registered { memory, memh, key }
        }

        /// What it holds in the end.
        fn end(self) -> Vec<u8> {
            registry().unwrap().remove(&self.memh);
            self.memory
        }
    }

    /// A channel that has a peer in this process, and both ends' operations.
    fn ends() -> (Channel, Emulation, Far) {
        ends_with(&PendingWork::default())
    }

    /// The same, which leaves work to progress.
    fn ends_with(work: &PendingWork) -> (Channel, Emulation, Far) {
        let pool = |stride| Pool { count: 2, stride };
        let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
        let layout = PairLayout::new(shape, shape).unwrap();
        let Segment { mapping, source } = Segment::new(&Origin::Memfd, layout.size(), false).unwrap();
        let Source::File(fd) = source else { panic!("a memfd is a file") };
        let same = Arc::new(Mapping::file(fd.as_fd(), layout.size(), true).unwrap());
        let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
        let shared = (work.clone(), Rc::new(SegmentCache::new(0, 0)));
        let channel = Channel::connecting(0, &to, &layout, mapping, shared);
        let far = Far { rings: RingPair::new(&layout, &same, false), emulation: Emulation::new(4096) };
        (channel, Emulation::new(4096), far)
    }

    /// The answer to a short get has arrived when this side changes the memory: it is older than the change, and no flush has moved the
    /// position of the ring.
    #[test]
    fn a_short_get_does_not_return_what_was_there_before_a_change_of_this_side() {
        let registry = registry().unwrap();
        let mut memory = vec![0u8; 8];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
        let memh = unsafe { registry.insert(base, 8, MemoryAccess::all(), None) }.unwrap();
        let mut packed = [0; PACKED_KEY];
        registry.regions().pack(&memh.region, &mut packed).unwrap();
        let key = RemoteKey::unpack(&packed).unwrap();
        let (channel, near, far) = ends();
        let get = || {
            let mut buffer = [0; 8];
            let result = near.get_ahead(&channel, 0, (&key, key.base), &mut buffer, true);
            result.map(|result| result.map(|()| u64::from_ne_bytes(buffer)).unwrap())
        };
        // Served until it is there, since an answer is too old after some time.
        let value = || {
            (0..100).find_map(|_| {
                let got = get();
                far.serve(&near, &channel);
                got.ok()
            })
        };
        for (round, number) in (1..=30u64).enumerate() {
            assert_eq!(get(), Err(BlockedOn::Response), "nothing was asked for in round {round}");
            far.serve(&near, &channel);
            assert!(near.has_answer(), "no answer in round {round}");
            let data = number.to_ne_bytes();
            match round % 3 {
                0 => {
                    let request = near.initiator.put(&key, key.base, 8).unwrap();
                    // SAFETY: `post` gives room for the data.
                    let fill = |target: *mut u8| unsafe { target.copy_from_nonoverlapping(data.as_ptr(), 8) };
                    let done = Operation::Acknowledged(Notify::Nobody);
                    near.post(&channel, 0, &request, done, 8, fill).unwrap();
                }
                1 => near.put_copied(&channel, 0, &data, (&key, key.base)),
                _ => {
                    let entry = UctIov {
                        buffer: data.as_ptr().cast_mut().cast(),
                        length: 8,
                        memh: ptr::null_mut(),
                        stride: 0,
                        count: 1,
                    };
                    // SAFETY: one entry, which lives until the put is sent, below.
                    let iov = unsafe { Iov::new(&raw const entry, 1) };
                    // SAFETY: as above.
                    unsafe { near.put_large(&channel, 0, iov, (&key, key.base), Notify::Nobody) };
                }
            }
            assert_eq!(get(), Err(BlockedOn::Response), "round {round}: what was there before the put");
            far.serve(&near, &channel);
            assert_eq!(value(), Some(number), "round {round}");
        }
        registry.remove(&memh);
    }

    /// The caller repeats the call until the bytes are there. They are requested once, and those of another call anew.
    #[test]
    fn a_short_get_that_is_repeated_is_requested_once_and_its_answer_counts_for_no_other() {
        let target = Registered::new((1..=16).collect());
        let (channel, near, far) = ends();
        let base = target.key.base;
        let get = |address, length: usize, is_outside_handlers| {
            let mut buffer = vec![0; length];
            let got = near.get_ahead(&channel, 0, (&target.key, address), &mut buffer, is_outside_handlers);
            got.map(|result| result.map(|()| buffer).unwrap())
        };
        let requested = || channel.rings.sender.position();
        // Served until it is there, since an answer is too old after some time.
        let value = |address, length| {
            (0..100).find_map(|_| {
                let got = get(address, length, true);
                far.serve(&near, &channel);
                got.ok()
            })
        };
        assert!(near.has_answer() && !near.has_just_answered(&channel), "nothing is requested");
        let mut last = requested();
        for (address, length) in [(base, 8), (base + 8, 8), (base + 8, 4)] {
            assert_eq!(get(address, length, true), Err(BlockedOn::Response));
            assert_ne!(requested(), last, "{length} bytes at {address:#x} are not those of the call ahead");
            last = requested();
            for _ in 0..2 * OPERATIONS {
                assert_eq!(get(address, length, true), Err(BlockedOn::Response));
            }
            assert_eq!(requested(), last, "requested again");
            assert!(!near.has_answer() && !near.has_just_answered(&channel));
        }
        far.serve(&near, &channel);
        assert!(near.has_answer() && near.has_just_answered(&channel));
        assert_eq!(value(base + 8, 4), Some(vec![9, 10, 11, 12]));
        assert_eq!(value(base, 8), Some((1..=8).collect()));
        // A handler's message can be of another peer, and be younger.
        for _ in 0..3 {
            assert_eq!(get(base, 8, false), Err(BlockedOn::Response));
            far.serve(&near, &channel);
        }
        // A message that came behind the answer is younger.
        assert_eq!(get(base, 2, true), Err(BlockedOn::Response));
        far.serve(&near, &channel);
        assert!(near.has_just_answered(&channel));
        assert!(far.rings.sender.send_inline(3, 8, |_| ()).is_ok());
        assert!(channel.rings.receiver.next(&mut [0; BODY_WORDS]).unwrap().is_some());
        assert!(near.has_answer() && !near.has_just_answered(&channel));
        assert_eq!(get(base, 2, true), Err(BlockedOn::Response));
        far.serve(&near, &channel);
        // Without a call for some time they are too old.
        assert_eq!(get(base, 4, true), Err(BlockedOn::Response));
        far.serve(&near, &channel);
        std::thread::sleep(AHEAD_LIFE);
        assert_eq!(get(base, 4, true), Err(BlockedOn::Response));
        target.end();
    }

    /// A put goes on where the ring had no more room: at once as long as there is some, and otherwise when the peer has made some.
    #[test]
    fn a_put_that_is_longer_than_the_ring_is_resumed_until_all_of_it_is_there() {
        let target = Registered::new(vec![0; 65_536]);
        let work = PendingWork::default();
        let (channel, near, far) = ends_with(&work);
        let data: Vec<u8> = (0..65_536).map(|at| (at * 7 + at / 256) as u8).collect();
        assert!(!near.has_work() && near.is_idle() && near.has_room());
        near.put_copied(&channel, 5, &data, (&target.key, target.key.base));
        assert!(near.has_work() && !near.is_idle() && !near.has_room());
        assert!(work.has(source::CHANNEL) && !work.has(source::ROOM), "some of it was sent");
        assert_eq!(near.flush(5, None).err(), Some(Error::NO_RESOURCE), "it is not wholly sent");
        work.lower(source::CHANNEL);
        near.resume(&channel);
        assert!(work.has(source::ROOM) && !work.has(source::CHANNEL), "there is no room");
        let mut turns = 0;
        while near.has_work() {
            work.lower(source::CHANNEL | source::ROOM);
            far.serve(&near, &channel);
            near.resume(&channel);
            turns += 1;
            assert!(turns < 1000, "it does not end");
        }
        assert!(turns > 2, "all of it had room");
        assert!(
            near.has_room() && !near.is_idle(),
            "another one could begin, and the last piece is not there"
        );
        far.serve(&near, &channel);
        assert!(near.is_idle() && near.flush(5, None) == Ok(Outcome::Done));
        assert!(target.end() == data, "other bytes arrived");
    }

    /// A peer that takes no responses makes this side keep as many as two initiators may have outstanding, and no more.
    #[test]
    fn responses_wait_for_room_in_order_and_in_limited_number() {
        let target = Registered::new(vec![7; 8]);
        let work = PendingWork::default();
        let (channel, near, far) = ends_with(&work);
        // A put is acknowledged when the requests that came with it are carried out.
        let put = far.emulation.initiator.put(&target.key, target.key.base, 8).unwrap();
        let mut frame = [0; MAX_REQUEST];
        let length = put.write(&mut frame);
        near.receive(&channel, tag::REQUEST, &[&frame[..length], &[9; 8]].concat()).unwrap();
        assert!(near.has_work() && work.has(source::CHANNEL) && !far.rings.has_message());
        near.resume(&channel);
        assert!(!near.has_work() && far.rings.has_message(), "it is not acknowledged");
        assert!(
            far.rings.receiver.next(&mut [0; BODY_WORDS]).unwrap().is_some_and(|it| it.tag == tag::ANSWER)
        );
        work.lower(source::CHANNEL);
        let put = far.emulation.initiator.put(&target.key, target.key.base, 8).unwrap();
        let get = Request { opcode: Opcode::Get, ..put };
        let mut frame = [0; MAX_REQUEST];
        let length = get.write(&mut frame);
        let ask = || near.receive(&channel, tag::REQUEST, &frame[..length]);
        let mut sent = 0;
        while !near.has_work() {
            assert!(!work.has(source::CHANNEL), "a response that was sent at once");
            ask().unwrap();
            sent += 1;
        }
        assert!(sent > 1 && work.has(source::CHANNEL));
        for _ in 1..2 * OPERATIONS {
            ask().unwrap();
        }
        assert_eq!(ask().unwrap_err(), "more than 128 operations at a time");
        // As they are received, all come, and one that is asked for now does not overtake.
        let mut body = [0; BODY_WORDS];
        let mut received = 0;
        loop {
            while let Some(message) = far.rings.receiver.next(&mut body).unwrap() {
                assert_eq!(message.tag, tag::ANSWER);
                received += 1;
            }
            if !near.has_work() {
                break;
            }
            near.resume(&channel);
        }
        assert_eq!(received, sent - 1 + 2 * OPERATIONS);
        near.fail(Error::CANCELED);
        target.end();
    }

    #[test]
    fn the_end_of_a_channel_ends_all_that_is_outstanding_and_all_that_waits() {
        let target = Registered::new(vec![0; 65_536]);
        let work = PendingWork::default();
        let (channel, near, _far) = ends_with(&work);
        let get = || {
            let mut buffer = [0; 8];
            near.get_ahead(&channel, 0, (&target.key, target.key.base), &mut buffer, true).map(drop)
        };
        assert_eq!(get(), Err(BlockedOn::Response));
        near.put_copied(&channel, 5, &[1; 65_536], (&target.key, target.key.base));
        assert!(near.has_work() && !near.has_room() && !near.has_answer());
        near.fail(Error::CONNECTION_RESET);
        assert!(!near.has_work() && near.has_room() && near.is_idle() && near.has_answer());
        target.end();
    }

    /// The memory of a put is its endpoint's: another endpoint of the channel that ends leaves it alone, and its own takes the memory back.
    #[test]
    fn a_put_that_waits_for_room_ends_with_its_endpoint_and_with_no_other() {
        unsafe extern "C" fn finished(_completion: *mut UctCompletion) {}
        let registry = registry().unwrap();
        let mut memory = vec![0u8; 65_536];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
        let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
        let mut packed = [0; PACKED_KEY];
        registry.regions().pack(&memh.region, &mut packed).unwrap();
        let key = RemoteKey::unpack(&packed).unwrap();
        let (channel, near, _far) = ends();
        let mut data = vec![1u8; memory.len()];
        let entry = UctIov {
            buffer: data.as_mut_ptr().cast(),
            length: data.len(),
            memh: ptr::null_mut(),
            stride: 0,
            count: 1,
        };
        let mut host = UctCompletion { func: finished, count: 1, status: UCT_OK };
        let host = &raw mut host;
        // SAFETY: it lives until the end of this test.
        let completion = unsafe { Completion::new(host) };
        // SAFETY: one entry, whose data outlive the put.
        let iov = unsafe { Iov::new(&raw const entry, 1) };
        // SAFETY: as above.
        unsafe { near.put_large(&channel, 7, iov, (&key, key.base), completion.into()) };
        // SAFETY: only this thread uses it, and nothing borrows it.
        let state = || unsafe { (*host).count };
        assert!(!near.has_room(), "the whole put had room in the ring");
        near.cancel(8, Error::CANCELED);
        assert_eq!((near.has_room(), state()), (false, 1), "the end of another endpoint");
        near.cancel(7, Error::CANCELED);
        assert_eq!((near.has_room(), state()), (true, 0), "the end of its own");
        // SAFETY: as above.
        assert_eq!(unsafe { (*host).status }, UCT_ERR_CANCELED);
        registry.remove(&memh);
    }
}
