//! The target's side of puts, gets and atomics: carries requests out, and sends the responses.
//!
//! Built on `uct_plugin::rma`, and on the core, which sends. A request that is malformed cuts the connection off; one that is refused is
//! answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use uct_plugin::memory::{Accessor, Regions};
use uct_plugin::rma::{Answer, Malformed, Opcode, RESPONSE_HEADER, Request, Target};
use uct_plugin::{Error, Result};

use super::core::Core;
use super::emulation::{GET_HEADER, RESPONSE};
use super::lock::Guard;
use crate::proto::responses::{QueuedBytes, Responses};
use crate::proto::{ConnectionId, Reason};

/// The target's side of the connections of an interface.
pub(crate) struct Targets {
    /// By the index of the connection; made by the first request.
    served: RefCell<Vec<Option<Rc<Served>>>>,
    /// Connections with responses or acknowledgements to be sent.
    waiting: RefCell<Vec<ConnectionId>>,
    /// Of the responses that wait on all of them.
    queued: QueuedBytes,
    /// Most bytes of these.
    queued_max: usize,
    /// Most requests of a connection that are refused.
    refused_max: u32,
    /// Bytes of a message.
    message: usize,
    /// Counts accesses to registered memory.
    pub(crate) accessor: Accessor,
}

struct Served {
    target: Target,
    responses: Responses,
    is_queued: Cell<bool>,
}

/// Why a connection is cut off: for its peer, and for the log.
pub(crate) struct Offence(Reason, &'static str);

impl From<Malformed> for Offence {
    fn from(malformed: Malformed) -> Offence {
        Offence(Reason::MALFORMED, malformed.0)
    }
}

/// Sends what waits on a connection; returns whether that was all, or in vain.
fn send_queued(guard: &Guard<'_, Core>, id: ConnectionId, served: &Served) -> bool {
    let must_wait = |error: Error| error == Error::NO_RESOURCE || error == Error::NOT_CONNECTED;
    let sent = served
        .responses
        .send_all(|bytes| !guard.with(|core| core.send_bytes(id, RESPONSE, bytes)).is_err_and(must_wait));
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
        && guard.with(|core| core.send_bytes(id, RESPONSE, &frame)).is_err()
    {
        // It is the only one.
        served.responses.push(frame.to_vec());
        return false;
    }
    true
}

impl Targets {
    /// Without connections. Messages have up to `message` bytes; up to `queued_max` bytes of responses wait, and a connection ends when more
    /// than `refused_max` of its requests were refused.
    pub(crate) fn new(message: usize, queued_max: usize, refused_max: u32) -> Targets {
        Targets {
            served: RefCell::default(),
            waiting: RefCell::default(),
            queued: QueuedBytes::default(),
            queued_max,
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
        self.of(id).responses.clear();
        guard.with(|core| {
            let now = core.clock.refresh();
            core.table.refuse(now, id, reason);
        });
    }

    /// Carries out a peer's request. The bytes are untrusted.
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
            return Err(Malformed("a get requests more than a message may contain").into());
        }
        let answer = served.target.serve(regions, &self.accessor, body)?;
        if !served.is_queued.replace(true) {
            self.waiting.borrow_mut().push(id);
        }
        let Some(answer) = answer else { return Ok(()) };
        if answer.is_refusal() && !served.responses.may_refuse(self.refused_max) {
            let text = "too many of the peer's requests for remote memory were refused (max_refused)";
            return Err(Offence(Reason::ACCESS, text));
        }
        if served.responses.is_empty() && send_response(guard, id, &answer).is_ok() {
            return Ok(());
        }
        if !served.responses.push(answer.to_vec()) {
            return Err(Malformed("more requests than responses that can be queued").into());
        }
        drop(answer);
        while let Some(id) = self.excess() {
            let text = "the queued responses of all connections exceed max_answer_bytes, and this connection has most of them";
            self.cut_off(guard, id, &Offence(Reason::GONE, text));
        }
        Ok(())
    }

    /// Sends what is queued for peers: responses that found no room, and acknowledgements of what was carried out.
    pub(crate) fn send_responses(&self, guard: &Guard<'_, Core>) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for id in waiting {
            let served = self.of(id);
            if send_queued(guard, id, &served) {
                served.is_queued.set(false);
            } else {
                self.waiting.borrow_mut().push(id);
            }
        }
    }

    /// While more bytes wait than may: the connection on which most of them do.
    fn excess(&self) -> Option<ConnectionId> {
        if self.queued.bytes() <= self.queued_max {
            return None;
        }
        let waiting = self.waiting.borrow();
        let most = waiting.iter().map(|&id| (self.of(id).responses.bytes(), id));
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
                responses: Responses::new(&self.queued),
                is_queued: Cell::new(false),
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

    /// Whether anything is queued for peers.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }
}

fn send_response(guard: &Guard<'_, Core>, id: ConnectionId, answer: &Answer<'_>) -> Result {
    guard.with(|core| {
        let (data, length) = answer.data();
        let mut packet = core.packet(id, RESPONSE_HEADER + length)?;
        let message = packet.message();
        // SAFETY: the buffer holds header and data.
        unsafe { message.copy_from_nonoverlapping(answer.header().as_ptr(), RESPONSE_HEADER) };
        // SAFETY: the data fit behind the header (`serve_request`) and are readable as long as the response exists.
        unsafe { message.wrapping_add(RESPONSE_HEADER).copy_from_nonoverlapping(data, length) };
        packet.begin(RESPONSE_HEADER + length, false);
        core.send(id, RESPONSE, packet)
    })
}
