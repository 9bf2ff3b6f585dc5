//! The initiator's side: numbers requests, remembers operations, and ends them as responses arrive.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;

use ucs::{Error, Result};

use super::operation::{Destination, Notify, Operation, Waiter};
use super::wire::{Malformed, Opcode, RESPONSE_HEADER, Request, Response, ResponseKind};
use crate::atomic::{Atomic, OldValue};
use crate::attr::AtomicOp;
use crate::completion::{Completion, Outcome};
use crate::memory::RemoteKey;

/// The limits of an initiator, so that the target can queue all responses.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations outstanding at a time, each of which costs some bytes of memory here; at least 1.
    pub operations: usize,
    /// Bytes of one response to a get, at least 1: larger gets become several requests.
    pub get_segment: usize,
    /// Bytes of responses to gets outstanding at a time, at least `get_segment`.
    pub get_bytes: usize,
}

/// Operations of one connection towards its target. Endpoints that share the connection are distinguished by a number of the
/// transport's, their `owner`.
#[derive(Debug)]
pub struct Initiator {
    limits: Limits,
    /// The number that the next request gets.
    next: Cell<u32>,
    /// Bytes of gets that were requested and have not arrived.
    get_bytes: Cell<usize>,
    entries: RefCell<VecDeque<Entry>>,
    /// Errors of operations that notify nothing, until a flush of the owner returns them.
    deferred: RefCell<Vec<(u32, Error)>>,
    /// The last get is not wholly requested.
    getting: Cell<bool>,
    /// As many bytes were requested as may be, and a part of them has to arrive before more are.
    is_full: Cell<bool>,
    /// The peer has refused a request.
    has_refusals: Cell<bool>,
}

/// One operation, or several that only need to be acknowledged.
#[derive(Debug)]
struct Entry {
    owner: u32,
    /// Numbers of its first and its last request so far.
    first: u32,
    last: u32,
    error: Option<Error>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Puts and posted atomics without a notification.
    Quiet,
    /// An operation with further pieces, which have not been posted.
    Pieces,
    Acknowledged(Notify),
    Fetch(Option<OldValue>, Notify),
    Get(Box<Get>),
    /// Ends as soon as it is the first.
    Flush(Notify),
    /// Cancelled: responses are dropped when they arrive.
    Cancelled,
}

#[derive(Debug)]
struct Get {
    destination: Destination,
    notify: Notify,
    slot: u32,
    secret: u64,
    address: u64,
    length: usize,
    requested: usize,
    received: usize,
}

/// The response to a get, whose data a transport receives straight to where they belong.
#[derive(Clone, Copy, Debug)]
pub struct Arriving(Response);

impl Arriving {
    /// Bytes of its data.
    pub fn length(&self) -> usize {
        self.0.length as usize
    }
}

/// An operation that has ended and is to be notified, with no borrow held.
struct Ended(Notify, Result, Option<Destination>);

impl Initiator {
    /// An initiator with nothing outstanding.
    pub fn new(limits: Limits) -> Initiator {
        Initiator {
            limits,
            next: Cell::new(1),
            get_bytes: Cell::new(0),
            entries: RefCell::default(),
            deferred: RefCell::default(),
            getting: Cell::new(false),
            is_full: Cell::new(false),
            has_refusals: Cell::new(false),
        }
    }

    /// Whether the peer has refused a request. Beyond a number of them it may end the connection.
    pub fn has_refusals(&self) -> bool {
        self.has_refusals.get()
    }

    /// Whether nothing is outstanding: every operation has been carried out.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// Whether another operation may be posted; [`Error::NO_RESOURCE`] until responses have arrived.
    #[inline]
    pub fn admit(&self) -> Result {
        if self.getting.get() || self.entries.borrow().len() >= self.limits.operations {
            return Err(Error::NO_RESOURCE);
        }
        Ok(())
    }

    /// The next request. Checks the access as far as the key permits. The request counts once [`Initiator::posted`] was
    /// called; until then another one gets the same number.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`] as [`Initiator::admit`]; [`Error::OUT_OF_RANGE`] and [`Error::INVALID_PARAM`] for an access that
    /// the key does not permit or that is not aligned.
    #[inline]
    fn request(
        &self,
        opcode: Opcode,
        atomic: AtomicOp,
        key: &RemoteKey,
        address: u64,
        length: usize,
        operands: [u64; 2],
    ) -> Result<Request> {
        use crate::memory::MemoryAccess as Access;
        self.admit()?;
        let access = match opcode {
            Opcode::Put => Access::REMOTE_PUT,
            Opcode::Get => Access::REMOTE_GET,
            _ => Access::REMOTE_ATOMIC,
        };
        key.check(address, length, access)?;
        let length = u32::try_from(length).map_err(|_| Error::INVALID_PARAM)?;
        let (slot, secret) = key.place();
        let sequence = self.next.get();
        Ok(Request { opcode, atomic, sequence, slot, secret, address, length, operands })
    }

    /// A put of `length` bytes.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`] as [`Initiator::admit`]; [`Error::OUT_OF_RANGE`] and [`Error::INVALID_PARAM`] for an access that
    /// the key does not permit.
    #[inline]
    pub fn put(&self, key: &RemoteKey, address: u64, length: usize) -> Result<Request> {
        self.request(Opcode::Put, AtomicOp::Add, key, address, length, [0; 2])
    }

    /// An atomic, for an [`Operation`] that determines whether there is a result.
    ///
    /// # Errors
    /// As [`Initiator::put`]; [`Error::INVALID_PARAM`] where the address is not aligned.
    #[inline]
    pub fn atomic(
        &self,
        atomic: Atomic,
        key: &RemoteKey,
        address: u64,
        operation: &Operation,
    ) -> Result<Request> {
        atomic.check_alignment(address)?;
        let has_result = matches!(operation, Operation::Fetch(..));
        let (opcode, op, operands) = Opcode::of_atomic(atomic, has_result);
        self.request(opcode, op, key, address, atomic.width.bytes(), operands)
    }

    /// Notes that a request was sent, or queued where nothing overtakes it.
    pub fn posted(&self, owner: u32, request: &Request, operation: Operation) {
        let sequence = request.sequence;
        debug_assert_eq!(sequence, self.next.get(), "requests are posted in order");
        self.next.set(sequence.wrapping_add(1));
        let mut entries = self.entries.borrow_mut();
        if let Some(back) = entries.back_mut().filter(|back| back.owner == owner) {
            match (&back.kind, &operation) {
                (Kind::Quiet, Operation::Acknowledged(Notify::Nobody)) | (Kind::Pieces, Operation::Piece) => {
                    back.last = sequence;
                    return;
                }
                (Kind::Pieces, Operation::Acknowledged(_)) => {
                    let Operation::Acknowledged(notify) = operation else { return };
                    back.last = sequence;
                    back.kind = Kind::Acknowledged(notify);
                    return;
                }
                _ => {}
            }
        }
        let kind = match operation {
            Operation::Acknowledged(Notify::Nobody) => Kind::Quiet,
            Operation::Acknowledged(notify) => Kind::Acknowledged(notify),
            Operation::Piece => Kind::Pieces,
            Operation::Fetch(old, notify) => Kind::Fetch(Some(old), notify),
        };
        entries.push_back(Entry { owner, first: sequence, last: sequence, error: None, kind });
    }

    /// Starts a get; [`Initiator::pump`] requests the data.
    ///
    /// # Errors
    /// As [`Initiator::put`].
    pub fn get(
        &self,
        owner: u32,
        destination: Destination,
        length: usize,
        key: &RemoteKey,
        address: u64,
        notify: Notify,
    ) -> Result {
        let request = self.request(Opcode::Get, AtomicOp::Add, key, address, length, [0; 2])?;
        let get = Get {
            destination,
            notify,
            slot: request.slot,
            secret: request.secret,
            address,
            length,
            requested: 0,
            received: 0,
        };
        let first = request.sequence;
        let kind = Kind::Get(Box::new(get));
        let last = first.wrapping_sub(1);
        self.entries.borrow_mut().push_back(Entry { owner, first, last, error: None, kind });
        self.getting.set(true);
        Ok(())
    }

    /// Whether [`Initiator::pump`] would send something.
    #[inline]
    pub fn wants_pump(&self) -> bool {
        self.getting.get() && self.get_bytes.get() < self.get_limit()
    }

    /// How many bytes may be outstanding for a request. Where there was no room, a quarter of all has to be free, so that the requests for it leave
    /// together and not one by one with each response.
    #[inline]
    fn get_limit(&self) -> usize {
        let most = self.limits.get_bytes;
        if self.is_full.get() { most - most / 4 + 1 } else { most }
    }

    /// Sends requests for what is still to be got, as far as the limits allow. `send` sends a request, or queues it where
    /// nothing overtakes it, or returns an error, which ends the pump for now. `send` must not use the initiator.
    pub fn pump(&self, mut send: impl FnMut(&Request) -> Result) {
        if !self.wants_pump() {
            return;
        }
        self.is_full.set(false);
        while self.getting.get() {
            let mut entries = self.entries.borrow_mut();
            let Some(entry) = entries.back_mut() else { return };
            let Kind::Get(get) = &mut entry.kind else { return };
            let length = (get.length - get.requested).min(self.limits.get_segment);
            let outstanding = self.get_bytes.get();
            if outstanding + length > self.limits.get_bytes {
                self.is_full.set(true);
                return;
            }
            let sequence = self.next.get();
            let request = Request {
                opcode: Opcode::Get,
                atomic: AtomicOp::Add,
                sequence,
                slot: get.slot,
                secret: get.secret,
                address: get.address.wrapping_add(get.requested as u64),
                length: length as u32,
                operands: [0; 2],
            };
            if send(&request).is_err() {
                return;
            }
            get.requested += length;
            entry.last = sequence;
            self.next.set(sequence.wrapping_add(1));
            self.get_bytes.set(outstanding + length);
            self.getting.set(get.requested < get.length);
        }
    }

    /// Handles a response, and notifies the operations that it ends. Code of the host runs inside and may post again.
    /// Returns how many ended.
    ///
    /// # Errors
    /// No request was made for such a response: the connection is to be closed.
    pub fn answer(&self, frame: &[u8]) -> Result<u32, Malformed> {
        let (response, data) = Response::read(frame)?;
        self.answered(response, Some(data))
    }

    /// The response that has begun to arrive, if it has data that belong to one place in memory, with those of them that are in `frame`: header
    /// and data as far as they have come. `length` is that of the whole frame. Everything else is for [`Initiator::answer`] once it is whole.
    pub fn arriving<'a>(&self, frame: &'a [u8], length: usize) -> Option<(Arriving, &'a [u8])> {
        let (response, data) = Response::read_header(frame).ok()?;
        let arriving = Arriving(response);
        let is_whole = response.kind == ResponseKind::Data
            && RESPONSE_HEADER + arriving.length() == length
            && data.len() <= arriving.length();
        (is_whole && self.place(&arriving).is_some()).then_some((arriving, data))
    }

    /// Where the data of a response go. The place is valid and writable for all of them until code of the host runs, which may end the get: then
    /// they go nowhere, and this is `None`.
    pub fn place(&self, arriving: &Arriving) -> Option<NonNull<u8>> {
        let Arriving(Response { sequence, .. }) = arriving;
        let is_behind = |other: u32| sequence.wrapping_sub(other).cast_signed() >= 0;
        self.entries.borrow().iter().find_map(|entry| match &entry.kind {
            Kind::Get(get) if entry.error.is_none() && is_behind(entry.first) => {
                let expected = (get.requested - get.received).min(self.limits.get_segment);
                let is_expected = !is_behind(entry.last.wrapping_add(1)) && arriving.length() == expected;
                is_expected.then(|| get.destination.place(get.received, expected)).flatten()
            }
            _ => None,
        })
    }

    /// As [`Initiator::answer`], when all data of the response are where they belong.
    ///
    /// # Errors
    /// As [`Initiator::answer`].
    pub fn arrived(&self, arriving: &Arriving) -> Result<u32, Malformed> {
        self.answered(arriving.0, None)
    }

    /// Handles a response; without data if these are where they belong.
    fn answered(&self, response: Response, data: Option<&[u8]>) -> Result<u32, Malformed> {
        if (response.sequence.wrapping_sub(self.next.get()).cast_signed()) >= 0 {
            return Err(Malformed("a response to a request that was not made"));
        }
        let mut count = 0;
        let mut taken = false;
        while let Some(Ended(notify, result, destination)) = self.step(&response, data, &mut taken)? {
            count += 1;
            if let (Some(destination), Ok(())) = (destination, result) {
                destination.finish();
            }
            notify.tell(result);
        }
        Ok(count)
    }

    /// The next operation that the response ends.
    fn step(
        &self,
        response: &Response,
        data: Option<&[u8]>,
        taken: &mut bool,
    ) -> Result<Option<Ended>, Malformed> {
        let mut entries = self.entries.borrow_mut();
        loop {
            let Some(front) = entries.front_mut() else { return self.left(response, *taken) };
            if matches!(front.kind, Kind::Flush(_)) {
                return Ok(entries.pop_front().and_then(|entry| self.end(entry)));
            }
            if *taken && !is_over(front, response.sequence) {
                return Ok(None);
            }
            if (response.sequence.wrapping_sub(front.first).cast_signed()) < 0 {
                // A late response: its operation has ended.
                return self.left(response, *taken);
            }
            let is_past = (response.sequence.wrapping_sub(front.last).cast_signed()) > 0;
            if !is_past && !*taken {
                self.take(front, response, data)?;
                *taken = true;
            }
            if !is_over(front, response.sequence) {
                if is_past {
                    return Err(Malformed("a response is missing"));
                }
                return Ok(None);
            }
            if let Some(ended) = entries.pop_front().and_then(|entry| self.end(entry)) {
                return Ok(Some(ended));
            }
        }
    }

    fn left(&self, response: &Response, taken: bool) -> Result<Option<Ended>, Malformed> {
        if taken || response.kind == ResponseKind::Acknowledgement {
            Ok(None)
        } else {
            Err(Malformed("a second response to a request"))
        }
    }

    /// Handles the contents of a response to one of the entry's requests.
    fn take(&self, entry: &mut Entry, response: &Response, data: Option<&[u8]>) -> Result<(), Malformed> {
        let length = response.length as usize;
        if response.kind == ResponseKind::Error {
            let error = response.error();
            self.has_refusals.set(true);
            entry.error.get_or_insert(error);
            if let Kind::Get(get) = &mut entry.kind {
                let length = (get.length - get.received).min(self.limits.get_segment);
                get.received += length;
                self.returned(length);
            }
            if matches!(entry.kind, Kind::Quiet) {
                self.defer(entry.owner, error);
            }
            return Ok(());
        }
        match (&mut entry.kind, response.kind) {
            (Kind::Get(get), ResponseKind::Data) => {
                let expected = (get.requested - get.received).min(self.limits.get_segment);
                if length != expected {
                    return Err(Malformed("the response to a get has another length than was requested"));
                }
                if let Some(data) = data.filter(|_| entry.error.is_none()) {
                    get.destination.write(get.received, data, get.length);
                }
                get.received += expected;
                self.returned(expected);
            }
            (Kind::Fetch(old, _), ResponseKind::Value)
                if old.as_ref().is_some_and(|old| old.bytes() == length) =>
            {
                let mut value = [0; 8];
                value[..length].copy_from_slice(data.unwrap_or_default());
                if let Some(old) = old.take() {
                    // SAFETY: the operation ends after this.
                    unsafe { old.write(u64::from_le_bytes(value)) };
                }
            }
            (Kind::Cancelled, ResponseKind::Data) => self.returned(length),
            (Kind::Cancelled, _)
            | (Kind::Quiet | Kind::Pieces | Kind::Acknowledged(_), ResponseKind::Acknowledgement) => {}
            _ => return Err(Malformed("a response of another kind than the request")),
        }
        Ok(())
    }

    fn returned(&self, bytes: usize) {
        self.get_bytes.set(self.get_bytes.get().saturating_sub(bytes));
    }

    fn defer(&self, owner: u32, error: Error) {
        let mut deferred = self.deferred.borrow_mut();
        if !deferred.iter().any(|(other, _)| *other == owner) {
            deferred.push((owner, error));
        }
    }

    fn take_deferred(&self, owner: u32) -> Result {
        let mut deferred = self.deferred.borrow_mut();
        match deferred.iter().position(|(other, _)| *other == owner) {
            Some(index) => Err(deferred.swap_remove(index).1),
            None => Ok(()),
        }
    }

    fn end(&self, entry: Entry) -> Option<Ended> {
        let result = entry.error.map_or(Ok(()), Err);
        let ended = match entry.kind {
            Kind::Quiet | Kind::Pieces | Kind::Cancelled => return None,
            Kind::Acknowledged(notify) | Kind::Fetch(_, notify) => Ended(notify, result, None),
            Kind::Get(get) => Ended(get.notify, result, Some(get.destination)),
            Kind::Flush(notify) => Ended(notify, self.take_deferred(entry.owner), None),
        };
        if let Ended(Notify::Nobody, Err(error), _) = &ended {
            self.defer(entry.owner, *error);
        }
        Some(ended)
    }

    /// Flushes: done when all that was posted ahead of it has been carried out. Without a completion,
    /// [`Outcome::InProgress`] means "call again".
    ///
    /// # Errors
    /// The error of an operation of this owner that notifies nothing.
    pub fn flush(&self, owner: u32, completion: Option<Completion>) -> Result<Outcome> {
        if self.is_idle() {
            return self.take_deferred(owner).map(|()| Outcome::Done);
        }
        if let Some(completion) = completion {
            let last = self.next.get().wrapping_sub(1);
            let kind = Kind::Flush(Notify::Completion(completion));
            self.entries.borrow_mut().push_back(Entry { owner, first: last, last, error: None, kind });
        }
        Ok(Outcome::InProgress)
    }

    /// Where a flush that begins now ends, for a transport that has more to wait for: see [`Initiator::flushed`].
    pub fn mark(&self) -> u32 {
        self.next.get().wrapping_sub(1)
    }

    /// Whether all that was posted up to a mark has been carried out, and how it went for this owner.
    pub fn flushed(&self, owner: u32, mark: u32) -> Option<Result> {
        self.has_reached(mark).then(|| self.take_deferred(owner))
    }

    /// Whether all that was posted up to a mark has been carried out.
    pub fn has_reached(&self, mark: u32) -> bool {
        let entries = self.entries.borrow();
        entries.front().is_none_or(|entry| (mark.wrapping_sub(entry.first).cast_signed()) < 0)
    }

    /// Ends what is outstanding for an owner with `error`, and writes to none of its memory afterwards. Late
    /// responses are dropped.
    pub fn cancel(&self, owner: u32, error: Error) {
        self.cancel_where(|entry| entry.owner == owner, error);
        // What it did not want to know at the time it does not want to know now.
        let _ = self.take_deferred(owner);
    }

    /// Gives up on the get that `waiter` waits for.
    pub fn abandon(&self, waiter: &Waiter) {
        let is_waited_for = |entry: &Entry| match &entry.kind {
            Kind::Get(get) => matches!(&get.notify, Notify::Waiter(other) if other == waiter),
            _ => false,
        };
        self.cancel_where(is_waited_for, Error::CANCELED);
    }

    fn cancel_where(&self, chosen: impl Fn(&Entry) -> bool, error: Error) {
        let mut notified = Vec::new();
        for entry in self.entries.borrow_mut().iter_mut().filter(|entry| chosen(entry)) {
            match std::mem::replace(&mut entry.kind, Kind::Cancelled) {
                Kind::Quiet | Kind::Pieces | Kind::Cancelled => {}
                Kind::Acknowledged(notify) | Kind::Fetch(_, notify) | Kind::Flush(notify) => {
                    notified.push(notify)
                }
                Kind::Get(get) => {
                    if get.requested < get.length {
                        self.getting.set(false);
                    }
                    notified.push(get.notify);
                }
            }
        }
        // An entry without outstanding requests ends here.
        self.entries.borrow_mut().retain(|entry| {
            !matches!(entry.kind, Kind::Cancelled) || entry.first != entry.last.wrapping_add(1)
        });
        for notify in notified {
            notify.tell(Err(error));
        }
    }

    /// The connection has failed: ends everything with `error`.
    pub fn fail(&self, error: Error) {
        self.getting.set(false);
        self.is_full.set(false);
        self.get_bytes.set(0);
        loop {
            let Some(entry) = self.entries.borrow_mut().pop_front() else { break };
            if let Some(Ended(notify, ..)) = self.end(entry) {
                notify.tell(Err(error));
            }
        }
        self.deferred.borrow_mut().clear();
    }
}

/// Whether all responses of an entry have arrived, with the one to `sequence`.
fn is_over(entry: &Entry, sequence: u32) -> bool {
    let reached = (sequence.wrapping_sub(entry.last).cast_signed()) >= 0;
    match &entry.kind {
        Kind::Get(get) => {
            let is_requested = entry.last != entry.first.wrapping_sub(1) && get.requested == get.length;
            reached && is_requested && get.received == get.length
        }
        Kind::Pieces => false,
        _ => reached,
    }
}
