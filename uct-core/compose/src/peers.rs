//! Who asks for memory of this side, and what each is to be answered.
//!
//! Built on `uct_plugin::rma`, which checks and carries out, and on the plugin's endpoints. A plugin does not say who has sent a message, so
//! a request names the interface that it comes from, and the answer goes there, with the token of the request. Only the
//! side that created the token knows it. A request that names another interface causes an answer that this interface drops.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use uct_plugin::memory::{Accessor, Regions};
use uct_plugin::rma::{Malformed, Opcode, Request, Target};
use uct_plugin::{Error, PeerAddress, Result};

use crate::plugin::{PluginEp, PluginIface};
use crate::wire::{CHANNEL, HEAD, Head, Kind};

/// Peers that are remembered. One more takes the place of the one that was silent longest.
const MOST_PEERS: usize = 256;
/// Answers that wait for room on the way to one peer.
const MOST_ANSWERS: usize = 512;
/// Bytes of answers that wait, on the way to all peers.
const MOST_BYTES: usize = 16 << 20;
/// Requests of one peer that are refused before it is cut off.
const MOST_REFUSED: u32 = 4096;

/// The peers that have asked.
#[derive(Default)]
pub(crate) struct Peers {
    known: RefCell<HashMap<u64, Rc<Peer>>>,
    /// Those that are to be answered.
    owed: RefCell<Vec<Rc<Peer>>>,
    /// Bytes of answers that wait.
    bytes: Cell<usize>,
    /// Requests so far.
    requests: Cell<u64>,
}

struct Peer {
    token: u64,
    ep: PluginEp,
    target: Target,
    answers: RefCell<VecDeque<Vec<u8>>>,
    refused: Cell<u32>,
    is_cut_off: Cell<bool>,
    is_owed: Cell<bool>,
    /// The number of its last request.
    last: Cell<u64>,
}

/// The memory that peers ask for.
#[derive(Clone, Copy)]
pub(crate) struct Served<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) accessor: &'a Accessor,
    /// Bytes of the longest answer to a get.
    pub(crate) get_segment: usize,
}

impl Peers {
    /// Carries out a request; it is answered by [`Peers::answer`].
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
            tracing::debug!("a peer is cut off: {malformed}");
            self.cut_off(&peer);
        }
        if !peer.is_owed.replace(true) {
            self.owed.borrow_mut().push(peer);
        }
    }

    fn carry_out(&self, peer: &Peer, frame: &[u8], served: Served<'_>) -> Result<(), Malformed> {
        let (request, _) = Request::read(frame)?;
        if request.opcode == Opcode::Get && request.length as usize > served.get_segment {
            return Err(Malformed("a get asks for more than a message holds"));
        }
        let Some(answer) = peer.target.serve(served.regions, served.accessor, frame)? else { return Ok(()) };
        if answer.is_refusal() {
            peer.refused.set(peer.refused.get() + 1);
        }
        self.push(peer, answer.to_vec());
        drop(answer);
        if peer.refused.get() > MOST_REFUSED {
            return Err(Malformed("too many of its requests for remote memory were refused"));
        }
        if peer.answers.borrow().len() > MOST_ANSWERS || self.bytes.get() > MOST_BYTES {
            return Err(Malformed("it asks for more than it takes"));
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

    /// Of this peer nothing is carried out any more; it is told.
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
                tracing::debug!("a peer that asks for memory cannot be answered: {failure}");
                return None;
            }
        };
        let peer = Rc::new(Peer {
            token,
            ep,
            target: Target::default(),
            answers: RefCell::default(),
            refused: Cell::new(0),
            is_cut_off: Cell::new(false),
            is_owed: Cell::new(false),
            last: Cell::new(number),
        });
        self.known.borrow_mut().insert(token, Rc::clone(&peer));
        Some(peer)
    }

    /// Whether any peer is to be answered.
    pub(crate) fn is_owing(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// Sends the answers that there are, as far as there is room.
    pub(crate) fn answer(&self) {
        let owed = self.owed.take();
        for peer in owed {
            if self.answer_one(&peer) {
                peer.is_owed.set(false);
            } else {
                self.owed.borrow_mut().push(peer);
            }
        }
    }

    /// Sends what one peer is to be told; answers whether that was all, or in vain.
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

    /// Forgets those whose interface is gone, and those that were silent longest of too many. No call of the plugin's is on the stack.
    pub(crate) fn tidy(&self) {
        let mut known = self.known.borrow_mut();
        let is_gone = |peer: &Peer| peer.ep.failure().is_some();
        let mut forgotten: Vec<u64> =
            known.values().filter(|peer| is_gone(peer)).map(|peer| peer.token).collect();
        let excess = (known.len() - forgotten.len()).saturating_sub(MOST_PEERS);
        if excess > 0 {
            let rest = known.values().filter(|peer| !is_gone(peer));
            let mut rest: Vec<_> =
                rest.map(|peer| (peer.is_owed.get(), peer.last.get(), peer.token)).collect();
            rest.sort_unstable();
            forgotten.extend(rest.iter().take(excess).map(|(.., token)| token));
        }
        let gone: Vec<_> = forgotten.iter().filter_map(|token| known.remove(token)).collect();
        drop(known);
        for peer in &gone {
            self.forget_answers(peer);
        }
        self.owed.borrow_mut().retain(|peer| !gone.iter().any(|other| Rc::ptr_eq(peer, other)));
    }

    /// Whether more are known than are remembered.
    pub(crate) fn has_excess(&self) -> bool {
        self.known.borrow().len() > MOST_PEERS
    }

    /// Forgets all: the interface closes.
    pub(crate) fn clear(&self) {
        self.owed.take();
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
            // SAFETY: an answer fits into a message of the plugin's, as its limits were chosen, and the buffer is no part of it.
            unsafe { buffer.copy_from_nonoverlapping(head.as_ptr(), HEAD) };
            // SAFETY: as above.
            unsafe { buffer.wrapping_add(HEAD).copy_from_nonoverlapping(body.as_ptr(), body.len()) };
            HEAD + body.len()
        });
        sent.map(drop)
    }
}
