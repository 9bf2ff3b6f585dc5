//! The peers that access memory of this side, and the responses to each.
//!
//! Built on `uct_plugin::rma`, which checks and carries out, and on the plugin's endpoints. A plugin does not report the sender of a message, so
//! a request names the interface that it comes from, and the response goes there, with the token of the request. Only the
//! side that created the token knows it. A request that names another interface causes a response that that interface drops.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use ucs::log::Limited;
use uct_plugin::memory::{Accessor, Regions};
use uct_plugin::rma::{Answer, Malformed, Opcode, Request, Target};
use uct_plugin::{Error, PeerAddress, Result};

use crate::plugin::{PluginEp, PluginIface};
use crate::wire::{CHANNEL, HEAD, Head, Kind};

/// Largest number of peers in the table. A further one replaces another one ([`Peers::tidy`]).
const MOST_PEERS: usize = 256;
/// Largest number of queued responses to one peer.
const MOST_ANSWERS: usize = 512;
/// Largest number of bytes of queued responses to all peers.
const MOST_BYTES: usize = 16 << 20;
/// Number of refused requests after which a peer is cut off.
const MOST_REFUSED: u32 = 4096;

/// The peers that have sent requests.
#[derive(Default)]
pub(crate) struct Peers {
    known: RefCell<HashMap<u64, Rc<Peer>>>,
    /// Those with queued responses.
    responding: RefCell<Vec<Rc<Peer>>>,
    /// Bytes of queued responses.
    bytes: Cell<usize>,
    /// Requests so far.
    requests: Cell<u64>,
    /// Lines about peers.
    lines: Limited,
}

struct Peer {
    token: u64,
    /// The addresses of its device and interface.
    sender: Box<[u8]>,
    ep: PluginEp,
    target: Target,
    answers: RefCell<VecDeque<Vec<u8>>>,
    refused: Cell<u32>,
    /// One of its requests had a right key.
    has_key: Cell<bool>,
    is_cut_off: Cell<bool>,
    has_responses: Cell<bool>,
    /// The number of its last request.
    last: Cell<u64>,
}

/// The memory that peers access.
#[derive(Clone, Copy)]
pub(crate) struct Served<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) accessor: &'a Accessor,
    /// Bytes of the longest response to a get.
    pub(crate) get_segment: usize,
}

impl Peers {
    /// Carries out a request; [`Peers::answer`] sends the response.
    pub(crate) fn serve(
        &self,
        plugin: &Rc<PluginIface>,
        token: u64,
        sender: PeerAddress<'_>,
        request: &[u8],
        served: Served<'_>,
    ) {
        let Some(peer) = self.peer(plugin, token, sender) else { return };
        if peer.is_cut_off.get() {
            return;
        }
        if let Err(malformed) = self.carry_out(&peer, request, served) {
            if let Some(left_out) = self.lines.admit() {
                ucs::log::debug!("a peer is cut off: {malformed}{left_out}");
            }
            self.cut_off(&peer);
        }
        if !peer.has_responses.replace(true) {
            self.responding.borrow_mut().push(peer);
        }
    }

    fn carry_out(&self, peer: &Peer, frame: &[u8], served: Served<'_>) -> Result<(), Malformed> {
        let (request, _) = Request::read(frame)?;
        if request.opcode == Opcode::Get && request.length as usize > served.get_segment {
            return Err(Malformed("a get requests more than a message may contain"));
        }
        let answer = peer.target.serve(served.regions, served.accessor, frame)?;
        if answer.as_ref().is_some_and(Answer::is_refusal) {
            peer.refused.set(peer.refused.get() + 1);
        } else {
            peer.has_key.set(true);
        }
        let Some(answer) = answer else { return Ok(()) };
        self.push(peer, answer.to_vec());
        drop(answer);
        if peer.refused.get() > MOST_REFUSED {
            return Err(Malformed("too many of its requests for remote memory were refused"));
        }
        if peer.answers.borrow().len() > MOST_ANSWERS || self.bytes.get() > MOST_BYTES {
            return Err(Malformed("too many responses to the peer are queued"));
        }
        Ok(())
    }

    fn push(&self, peer: &Peer, answer: Vec<u8>) {
        self.bytes.set(self.bytes.get() + answer.len());
        peer.answers.borrow_mut().push_back(answer);
    }

    fn forget_answers(&self, peer: &Peer) {
        let bytes: usize = peer.answers.take().iter().map(Vec::len).sum();
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }

    /// Cuts a peer off: carries out nothing more for it, and notifies it.
    fn cut_off(&self, peer: &Peer) {
        self.forget_answers(peer);
        peer.is_cut_off.set(true);
    }

    /// The peer of a token; `None` if there is no way to its interface.
    fn peer(&self, plugin: &Rc<PluginIface>, token: u64, sender: PeerAddress<'_>) -> Option<Rc<Peer>> {
        let number = self.requests.get() + 1;
        self.requests.set(number);
        if let Some(known) = self.known.borrow().get(&token) {
            known.last.set(number);
            return Some(Rc::clone(known));
        }
        let ep = match PluginEp::create(plugin, Some(sender)) {
            Ok(ep) => ep,
            Err(failure) => {
                if let Some(left_out) = self.lines.admit() {
                    ucs::log::debug!("a response to a peer cannot be sent: {failure}{left_out}");
                }
                return None;
            }
        };
        let peer = Rc::new(Peer {
            token,
            sender: [sender.device, sender.iface].concat().into(),
            ep,
            target: Target::default(),
            answers: RefCell::default(),
            refused: Cell::new(0),
            has_key: Cell::new(false),
            is_cut_off: Cell::new(false),
            has_responses: Cell::new(false),
            last: Cell::new(number),
        });
        self.known.borrow_mut().insert(token, Rc::clone(&peer));
        Some(peer)
    }

    /// Whether there are queued responses.
    pub(crate) fn has_unsent_responses(&self) -> bool {
        !self.responding.borrow().is_empty()
    }

    /// Sends queued responses as far as there is room.
    pub(crate) fn answer(&self) {
        let responding = self.responding.take();
        for peer in responding {
            if self.answer_one(&peer) {
                peer.has_responses.set(false);
            } else {
                self.responding.borrow_mut().push(peer);
            }
        }
    }

    /// Sends the queued responses of one peer; returns whether none is left, or the peer cannot be reached.
    fn answer_one(&self, peer: &Peer) -> bool {
        let must_wait = |sent: Result| matches!(sent, Err(Error::NO_RESOURCE | Error::NOT_CONNECTED));
        if peer.is_cut_off.get() {
            return !must_wait(peer.send(Kind::CutOff, &[]));
        }
        loop {
            // Nothing is borrowed while the plugin sends: it may deliver, and the next request come.
            let next = peer.answers.borrow_mut().pop_front();
            let Some(answer) = next else {
                match peer.target.acknowledge() {
                    Some(acknowledgement) => self.push(peer, acknowledgement.to_vec()),
                    None => return true,
                }
                continue;
            };
            if must_wait(peer.send(Kind::Answer, &answer)) {
                peer.answers.borrow_mut().push_front(answer);
                return false;
            }
            self.bytes.set(self.bytes.get().saturating_sub(answer.len()));
        }
    }

    /// Removes peers whose interface is gone, and of too many peers those without a right key first, and those that have been idle longest of the
    /// interface with the most of them: tokens that one interface makes up push out no response to another, and interfaces that are made up none to
    /// a peer that was given a key. No call of the plugin's is on the stack.
    pub(crate) fn tidy(&self) {
        let mut known = self.known.borrow_mut();
        let is_gone = |peer: &Peer| peer.ep.failure().is_some();
        let mut forgotten: Vec<u64> =
            known.values().filter(|peer| is_gone(peer)).map(|peer| peer.token).collect();
        let excess = (known.len() - forgotten.len()).saturating_sub(MOST_PEERS);
        if excess > 0 {
            let mut tokens = HashMap::<(bool, &[u8]), Vec<(bool, u64, u64)>>::new();
            for peer in known.values().filter(|peer| !is_gone(peer)) {
                let token = (peer.has_responses.get(), peer.last.get(), peer.token);
                tokens.entry((peer.has_key.get(), &peer.sender)).or_default().push(token);
            }
            // The last of each is the first to go.
            tokens.values_mut().for_each(|own| own.sort_unstable_by(|one, other| other.cmp(one)));
            for _ in 0..excess {
                let most = tokens.iter_mut().max_by_key(|((has_key, _), own)| {
                    (!has_key && !own.is_empty(), own.len(), Reverse(own.last().copied()))
                });
                forgotten.extend(most.and_then(|(_, own)| own.pop()).map(|(.., token)| token));
            }
        }
        let gone: Vec<_> = forgotten.iter().filter_map(|token| known.remove(token)).collect();
        drop(known);
        for peer in &gone {
            self.forget_answers(peer);
        }
        self.responding.borrow_mut().retain(|peer| !gone.iter().any(|other| Rc::ptr_eq(peer, other)));
    }

    /// Whether there are more peers than the table may have.
    pub(crate) fn has_excess(&self) -> bool {
        self.known.borrow().len() > MOST_PEERS
    }

    /// Forgets all: the interface closes.
    pub(crate) fn clear(&self) {
        self.responding.take();
        self.known.take();
    }

    pub(crate) fn len(&self) -> usize {
        self.known.borrow().len()
    }
}

impl Peer {
    fn send(&self, kind: Kind, body: &[u8]) -> Result {
        let head = Head { kind, token: self.token }.write();
        let sent = self.ep.am_bcopy(CHANNEL, false, |buffer| {
            // SAFETY: a response fits into a message of the plugin's, as its limits were chosen, and the buffer is no part of it.
            unsafe { buffer.copy_from_nonoverlapping(head.as_ptr(), HEAD) };
            // SAFETY: as above.
            unsafe { buffer.wrapping_add(HEAD).copy_from_nonoverlapping(body.as_ptr(), body.len()) };
            HEAD + body.len()
        });
        sent.map(drop)
    }
}
