//! Put, get and atomics as messages: the way of requests and answers through the interface.
//!
//! For: endpoints (initiator) and progress (target). Stands on `uct_plugin::rma`, which numbers, checks and carries out, and on
//! the reliability of messages. A request that is malformed cuts the connection off; one that is refused is answered.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

use uct_plugin::memory::{Accessor, Regions, RemoteKey};
use uct_plugin::rma::{
    Answer, Destination, Initiator, Limits, MAX_REQUEST, Malformed, Notify, Opcode, Operation,
    REQUEST_HEADER, RESPONSE_HEADER, Request, Target, Waiter,
};
use uct_plugin::{Atomic, Completion, Error, Iov, Outcome, Pack, Result, Unpack};

use crate::ep::Conn;
use crate::link::core::Core;
use crate::link::lock::Guard;
use crate::proto::responses::{Answers, Held};
use crate::proto::{ConnectionId, Reason};

/// Message kinds, above the ids of active messages.
pub(crate) const REQUEST: u8 = 32;
/// The kind of an answer.
pub(crate) const ANSWER: u8 = 33;

/// Bytes of a put beyond its data.
pub(crate) const PUT_HEADER: usize = REQUEST_HEADER;
/// Bytes of a get's answer beyond the data.
pub(crate) const GET_HEADER: usize = RESPONSE_HEADER;

/// Most entries of the vector of a put or get.
pub(crate) const MAX_IOV: usize = 16;

/// A connection has one endpoint on this side.
pub(crate) const OWNER: u32 = 0;

/// Answers' worth of gets that may be outstanding.
const GET_SEGMENTS: usize = 16;

/// An initiator for messages of `message` bytes and so many operations.
pub(crate) fn initiator(message: usize, operations: usize) -> Initiator {
    let get_segment = message - GET_HEADER;
    Initiator::new(Limits { operations, get_segment, get_bytes: GET_SEGMENTS * get_segment })
}

/// The target's side of the connections of an interface.
pub(crate) struct Targets {
    /// By the index of the connection; made by the first request.
    served: RefCell<Vec<Option<Rc<Served>>>>,
    /// Connections that are owed answers.
    owing: RefCell<Vec<ConnectionId>>,
    /// Of the answers that wait on all of them.
    held: Held,
    /// Most bytes of these.
    held_max: usize,
    /// Most requests of a connection that are refused.
    refused_max: u32,
    /// Bytes of a message.
    message: usize,
    /// Counts accesses to registered memory.
    pub(crate) accessor: Accessor,
}

struct Served {
    target: Target,
    answers: Answers,
    is_owing: Cell<bool>,
}

/// Why a connection is cut off: what its peer is told, and what the log says.
pub(crate) struct Offence(Reason, &'static str);

impl From<Malformed> for Offence {
    fn from(malformed: Malformed) -> Offence {
        Offence(Reason::MALFORMED, malformed.0)
    }
}

impl Conn {
    /// Sends a request with `data` behind, and notes how to take the answer.
    fn request(&self, request: &Request, data: &[u8], operation: Operation) -> Result {
        self.send(REQUEST, MAX_REQUEST + data.len(), |packet| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            // SAFETY: the buffer holds the longest head and the data, or an MTU, and is no part of them.
            unsafe { packet.message().copy_from_nonoverlapping(head.as_ptr(), length) };
            // SAFETY: head and data fit into a message, as the caller has checked, and the buffer is no part of them.
            unsafe {
                packet.message().wrapping_add(length).copy_from_nonoverlapping(data.as_ptr(), data.len())
            };
            packet.begin(length + data.len(), false);
            Ok(())
        })?;
        self.initiator.posted(OWNER, request, operation);
        Ok(())
    }

    pub(crate) fn put_copied(&self, data: &[u8], address: u64, rkey: &RemoteKey) -> Result {
        if data.len() > self.shared.limits.message - PUT_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        let request = self.initiator.put(rkey, address, data.len())?;
        self.request(&request, data, Operation::Acknowledged(Notify::Nobody))
    }

    pub(crate) fn put_packed(&self, pack: Pack, address: u64, rkey: &RemoteKey) -> Result<usize> {
        self.initiator.admit()?;
        let mut made = None;
        let length = self.send_packed(REQUEST, PUT_HEADER, pack, false, |head, length| {
            let request = self.initiator.put(rkey, address, length)?;
            request.write(head);
            made = Some(request);
            Ok(())
        })?;
        if let Some(request) = made {
            self.initiator.posted(OWNER, &request, Operation::Acknowledged(Notify::Nobody));
        }
        Ok(length)
    }

    pub(crate) fn put_gathered(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let total = iov.total();
        if total > self.shared.limits.message - PUT_HEADER || iov.entries().len() > MAX_IOV {
            return Err(Error::INVALID_PARAM);
        }
        let request = self.initiator.put(rkey, address, total)?;
        // The target answers when the device may still be reading for a second copy: a copy of ours is simpler than to
        // wait for both, and at most an MTU.
        self.send(REQUEST, MAX_REQUEST + total, |packet| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            // SAFETY: head and vector fit into a message, as was just checked, and the buffer is no part of either.
            unsafe { packet.message().copy_from_nonoverlapping(head.as_ptr(), length) };
            // SAFETY: as above.
            unsafe { iov.gather(packet.message().wrapping_add(length)) };
            packet.begin(length + total, false);
            Ok(())
        })?;
        self.initiator.posted(OWNER, &request, Operation::Acknowledged(completion.into()));
        Ok(Outcome::InProgress)
    }

    /// Whether a get of so many bytes may begin now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_get(&self, length: usize) -> Result {
        if length > self.shared.limits.message - GET_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        self.may_send()
    }

    /// Reads, and has `wait` make progress until that is done or has taken too long.
    pub(crate) fn get_blocking(
        &self,
        buffer: &mut [u8],
        address: u64,
        rkey: &RemoteKey,
        wait: impl FnOnce(&dyn Fn() -> bool) -> Result,
    ) -> Result {
        let length = buffer.len();
        let waiter = Waiter::default();
        // SAFETY: the get has ended, or is abandoned, when this returns.
        let destination = unsafe { Destination::block(NonNull::from(&mut *buffer).cast(), length) };
        let notify = Notify::Waiter(waiter.clone());
        self.initiator.get(OWNER, destination, length, rkey, address, notify)?;
        self.pump();
        let in_time = wait(&|| waiter.result().is_some());
        waiter.result().unwrap_or_else(|| {
            self.initiator.abandon(&waiter);
            in_time
        })
    }

    pub(crate) fn get_unpacked(
        &self,
        unpack: Unpack,
        length: usize,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.get(Destination::unpack(unpack), length, address, rkey, completion)
    }

    pub(crate) fn get_scattered(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if iov.entries().len() > MAX_IOV {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: the host keeps the memory of a get valid until it has ended, and it ends when the endpoint does.
        let destination = unsafe { Destination::of_iov(iov) };
        self.get(destination, iov.total(), address, rkey, completion)
    }

    fn get(
        &self,
        destination: Destination,
        length: usize,
        address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.may_get(length)?;
        self.initiator.get(OWNER, destination, length, rkey, address, completion.into())?;
        self.pump();
        Ok(Outcome::InProgress)
    }

    /// Asks for what is still to be got, as far as there is room.
    pub(crate) fn pump(&self) {
        if !self.initiator.wants_pump() {
            return;
        }
        let guard = self.shared.enter();
        self.initiator.pump(|request| {
            let mut head = [0; MAX_REQUEST];
            let length = request.write(&mut head);
            guard.with(|core| core.send_bytes(self.connection, REQUEST, &head[..length]))
        });
        self.shared.sent(&guard);
    }

    /// Takes the answer to a request. The bytes are untrusted.
    pub(crate) fn take_answer(&self, body: &[u8]) -> Result<(), Malformed> {
        self.initiator.answer(body)?;
        self.on_news();
        Ok(())
    }

    pub(crate) fn atomic(
        &self,
        atomic: Atomic,
        address: u64,
        rkey: &RemoteKey,
        operation: Operation,
    ) -> Result<Outcome> {
        let request = self.initiator.atomic(atomic, rkey, address, &operation)?;
        self.request(&request, &[], operation)?;
        Ok(Outcome::InProgress)
    }
}

/// Sends what waits on a connection; answers whether that was all, or in vain.
fn answer_waiting(guard: &Guard<'_, Core>, id: ConnectionId, served: &Served) -> bool {
    let must_wait = |error: Error| error == Error::NO_RESOURCE || error == Error::NOT_CONNECTED;
    let sent = served
        .answers
        .send_all(|bytes| !guard.with(|core| core.send_bytes(id, ANSWER, bytes)).is_err_and(must_wait));
    if !sent {
        return false;
    }
    if !served.target.has_unacknowledged() {
        return true;
    }
    // An acknowledgement is taken from the target when it is sure to be sent.
    match guard.with(|core| core.packet(id, 0).map(|packet| core.unsend(packet))) {
        Err(error) if must_wait(error) => return false,
        Err(_) => return true,
        Ok(()) => {}
    }
    if let Some(frame) = served.target.acknowledge()
        && guard.with(|core| core.send_bytes(id, ANSWER, &frame)).is_err()
    {
        // It is the only one.
        served.answers.push(frame.to_vec());
        return false;
    }
    true
}

impl Targets {
    /// Without connections. Messages have up to `message` bytes; up to `held_max` bytes of answers wait, and a connection ends when more
    /// than `refused_max` of its requests were refused.
    pub(crate) fn new(message: usize, held_max: usize, refused_max: u32) -> Targets {
        Targets {
            served: RefCell::default(),
            owing: RefCell::default(),
            held: Held::default(),
            held_max,
            refused_max,
            message,
            accessor: Accessor::default(),
        }
    }

    /// Cuts a connection off because of what its peer has sent.
    pub(crate) fn cut_off(
        &self,
        guard: &Guard<'_, Core>,
        id: ConnectionId,
        &Offence(reason, text): &Offence,
    ) {
        tracing::debug!(connection = id.index(), reason = text, "a peer is cut off");
        self.of(id).answers.clear();
        guard.with(|core| {
            core.refresh_clock();
            core.table.refuse(core.now, id, reason);
        });
    }

    /// Carries out what a peer asks for. The bytes are untrusted.
    pub(crate) fn serve(
        &self,
        guard: &Guard<'_, Core>,
        id: ConnectionId,
        body: &[u8],
        regions: &Regions,
    ) -> Result<(), Offence> {
        let served = self.of(id);
        let (request, _) = Request::read(body)?;
        if request.opcode == Opcode::Get && request.length as usize > self.message - GET_HEADER {
            return Err(Malformed("a get asks for more than a message holds").into());
        }
        let answer = served.target.serve(regions, &self.accessor, body)?;
        if !served.is_owing.replace(true) {
            self.owing.borrow_mut().push(id);
        }
        let Some(answer) = answer else { return Ok(()) };
        if answer.is_refusal() && !served.answers.may_refuse(self.refused_max) {
            let text = "too many of the peer's requests for remote memory were refused (max_refused)";
            return Err(Offence(Reason::ACCESS, text));
        }
        if served.answers.is_empty() && send_answer(guard, id, &answer).is_ok() {
            return Ok(());
        }
        if !served.answers.push(answer.to_vec()) {
            return Err(Malformed("more requests than answers can be sent").into());
        }
        drop(answer);
        while let Some(id) = self.excess() {
            let text = "the answers that wait need more memory than they may take (max_answer_bytes), most of them here";
            self.cut_off(guard, id, &Offence(Reason::GONE, text));
        }
        Ok(())
    }

    /// Sends what peers are owed: answers that found no room, and acknowledgements of what was carried out.
    pub(crate) fn answer(&self, guard: &Guard<'_, Core>) {
        let owing = std::mem::take(&mut *self.owing.borrow_mut());
        for id in owing {
            let served = self.of(id);
            if answer_waiting(guard, id, &served) {
                served.is_owing.set(false);
            } else {
                self.owing.borrow_mut().push(id);
            }
        }
    }

    /// While more bytes wait than may: the connection on which most of them do.
    fn excess(&self) -> Option<ConnectionId> {
        if self.held.bytes() <= self.held_max {
            return None;
        }
        let owing = self.owing.borrow();
        let most = owing.iter().map(|&id| (self.of(id).answers.bytes(), id));
        most.max_by_key(|&(bytes, _)| bytes).filter(|&(bytes, _)| bytes > 0).map(|(_, id)| id)
    }

    fn of(&self, id: ConnectionId) -> Rc<Served> {
        let mut served = self.served.borrow_mut();
        if served.len() <= id.index() {
            served.resize(id.index() + 1, None);
        }
        let made = || {
            Rc::new(Served {
                target: Target::default(),
                answers: Answers::new(&self.held),
                is_owing: Cell::new(false),
            })
        };
        Rc::clone(served[id.index()].get_or_insert_with(made))
    }

    /// Forgets a connection that is over.
    pub(crate) fn forget(&self, id: ConnectionId) {
        if let Some(served) = self.served.borrow_mut().get_mut(id.index()) {
            *served = None;
        }
    }

    /// Whether anything is owed.
    #[inline(always)]
    pub(crate) fn is_owing(&self) -> bool {
        !self.owing.borrow().is_empty()
    }
}

fn send_answer(guard: &Guard<'_, Core>, id: ConnectionId, answer: &Answer<'_>) -> Result {
    guard.with(|core| {
        let (data, length) = answer.data();
        let mut packet = core.packet(id, RESPONSE_HEADER + length)?;
        let message = packet.message();
        // SAFETY: the buffer holds header and data.
        unsafe { message.copy_from_nonoverlapping(answer.header().as_ptr(), RESPONSE_HEADER) };
        // SAFETY: the data fit behind the header (`serve_request`) and are readable as long as the answer is there.
        unsafe { message.wrapping_add(RESPONSE_HEADER).copy_from_nonoverlapping(data, length) };
        packet.begin(RESPONSE_HEADER + length, false);
        core.send(id, ANSWER, packet)
    })
}
