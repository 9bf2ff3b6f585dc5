//! The target's side of puts, gets and atomics: carries requests out, and sends the responses.
//!
//! Built on `uct_plugin::rma`, and on the core, which sends. A request that is malformed cuts the connection off; one that is refused is
//! answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use uct_plugin::memory::{self, Accessor, Regions};
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

    /// What peers have had it do.
    pub(crate) fn served(&self) -> &memory::Served {
        self.accessor.served()
    }

    /// Cuts a connection off because of what its peer has sent.
    pub(crate) fn cut_off(
        &self,
        guard: &Guard<'_, Core>,
        id: ConnectionId,
        &Offence(reason, text): &Offence,
    ) {
        ucs::log::debug!(
            connection = id.index(),
            reason = text,
            "a connection is closed because of its peer"
        );
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
        let answer = self.carry_out(&served, body, regions)?;
        if !served.is_queued.replace(true) {
            self.waiting.borrow_mut().push(id);
        }
        let Some(answer) = answer else { return Ok(()) };
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

    /// The response to a request, if it has one of its own. Counts those that are refused.
    fn carry_out<'a>(
        &'a self,
        served: &Served,
        body: &[u8],
        regions: &Regions,
    ) -> Result<Option<Answer<'a>>, Offence> {
        let (request, _) = Request::read(body)?;
        if request.opcode == Opcode::Get && request.length as usize > self.message - GET_HEADER {
            return Err(Malformed("a get requests more than a message may contain").into());
        }
        let answer = served.target.serve(regions, &self.accessor, body)?;
        let is_refusal = answer.as_ref().is_some_and(Answer::is_refusal);
        if is_refusal && !served.responses.may_refuse(self.refused_max) {
            let text = "too many of the peer's requests for remote memory were refused (max_refused)";
            return Err(Offence(Reason::ACCESS, text));
        }
        Ok(answer)
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
        Rc::clone(served[id.index()].get_or_insert_with(|| Rc::new(self.begin())))
    }

    /// A connection that has not requested anything.
    fn begin(&self) -> Served {
        Served {
            target: Target::default(),
            responses: Responses::new(&self.queued),
            is_queued: Cell::new(false),
        }
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

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use uct_plugin::AtomicOp;
    use uct_plugin::memory::MemoryAccess;
    use uct_plugin::rma::MAX_REQUEST;

    use super::*;

    const MOST: u32 = 20;

    #[test]
    fn a_peer_that_is_refused_too_often_is_cut_off_and_the_others_are_not() {
        let targets = Targets::new(4096, 1 << 20, MOST);
        let regions = Regions::default();
        let mut memory = [7_u64; 8];
        let base = NonNull::from(&mut memory).cast::<u8>();
        // SAFETY: the memory outlives the regions' last request.
        let region = unsafe { regions.insert(base, 64, MemoryAccess::all()) }.unwrap();
        let request = |secret, address| {
            let (slot, operands) = (region.key() as u32, [0; 2]);
            let (opcode, atomic) = (Opcode::Get, AtomicOp::Add);
            let request = Request { opcode, atomic, sequence: 1, slot, secret, address, length: 8, operands };
            let mut bytes = [0; MAX_REQUEST];
            let length = request.write(&mut bytes);
            bytes[..length].to_vec()
        };
        let (secret, address) = (region.secret(), base.as_ptr() as u64);
        let good = request(secret, address);
        // Outside of the region counts as well: it is no way to ask on.
        let wrong = [request(secret ^ 1, address), request(secret, address + 64)];
        let (peer, other) = (targets.begin(), targets.begin());
        let is_refused = |served: &Served, body: &[u8]| {
            targets.carry_out(served, body, &regions).map(|answer| answer.expect("a get").is_refusal())
        };
        for turn in 0..MOST {
            assert!(is_refused(&peer, &wrong[turn as usize % 2]).is_ok_and(|refused| refused), "{turn}");
            assert!(is_refused(&peer, &good).is_ok_and(|refused| !refused), "{turn}");
        }
        let Err(Offence(reason, text)) = is_refused(&peer, &wrong[0]) else { panic!("one too many") };
        assert_eq!(reason, Reason::ACCESS);
        assert!(text.contains("max_refused"), "{text}");
        assert!(is_refused(&other, &wrong[0]).is_ok_and(|refused| refused));
    }
}
