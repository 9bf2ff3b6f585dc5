//! The state of an endpoint: its peers by address and index, and how operations complete.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use slab::Slab;

use super::super::{Bindings, Entry, Errno, ErrorEntry, NOT_AVAILABLE, flags};
use super::link::Link;
use super::message::{Arrived, Posted, Reading};
use super::peer::{Job, Peer, Ticket};
use super::{Shared, Stop};
use crate::matching::Matching;
use crate::wire::Head;

/// Places that are looked at for a new caller.
const MOST_GONE: usize = 16;

/// What keeps the place of a peer whose connection has ended.
enum Use {
    None,
    /// Unexpected messages.
    Messages,
    /// The program knows its address, or there is a connection again.
    Peer,
}

/// An endpoint, under the lock.
pub(super) struct Endpoint {
    pub(super) number: usize,
    pub(super) address: SocketAddr,
    pub(super) bindings: Bindings,
    pub(super) tagged: Matching<Posted, Arrived>,
    pub(super) untagged: Matching<Posted, Arrived>,
    pub(super) peers: Vec<Peer>,
    by_address: HashMap<SocketAddr, u32>,
    /// Peers whose connections have ended. Those that the program does not know give their places to new callers.
    gone: VecDeque<u32>,
    /// Peers by index in the address vector, as far as they were looked up since its `version`.
    by_index: Vec<Option<u32>>,
    version: u64,
    /// Bytes of unexpected messages.
    pub(super) unexpected: usize,
    /// A pause frame was sent to some peers.
    pub(super) has_paused_some: bool,
    /// Messages that are being read in the memory of peers.
    pub(super) readings: Slab<Reading>,
    /// Ends the accepting of calls.
    pub(super) stop: Rc<Stop>,
    /// While it is closed: connections whose ends the peers do not have yet.
    pub(super) closing: Option<usize>,
}

impl Endpoint {
    pub(super) fn new(number: usize, address: SocketAddr, bindings: Bindings, stop: Rc<Stop>) -> Endpoint {
        let version = bindings.addresses.version();
        Endpoint {
            number,
            address,
            bindings,
            tagged: Matching::new(),
            untagged: Matching::new(),
            peers: Vec::new(),
            by_address: HashMap::new(),
            gone: VecDeque::new(),
            by_index: Vec::new(),
            version,
            unexpected: 0,
            has_paused_some: false,
            readings: Slab::new(),
            stop,
            closing: None,
        }
    }

    /// The number of the peer with this index in the address vector.
    #[inline]
    pub(super) fn peer_at(&mut self, index: u64) -> Result<u32, Errno> {
        if self.version == self.bindings.addresses.version()
            && let Some(Some(peer)) = self.by_index.get(index as usize)
        {
            return Ok(*peer);
        }
        self.look_up(index)
    }

    #[cold]
    fn look_up(&mut self, index: u64) -> Result<u32, Errno> {
        let version = self.bindings.addresses.version();
        if self.version != version {
            self.by_index.clear();
            self.version = version;
        }
        let address = self.bindings.addresses.address(index).ok_or(Errno::INVALID)?;
        let peer = self.peer_with(address);
        let index = index as usize;
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        self.by_index[index] = Some(peer);
        Ok(peer)
    }

    /// The number of the peer with this address.
    pub(super) fn peer_with(&mut self, address: SocketAddr) -> u32 {
        let peers = &mut self.peers;
        *self.by_address.entry(address).or_insert_with(|| {
            peers.push(Peer::new(address));
            (peers.len() - 1) as u32
        })
    }

    /// The number of a caller with this address. One that is new has the place of a peer that is gone, if there is one, so callers with
    /// ever new addresses take no more places than connections were open at once.
    pub(super) fn caller_with(&mut self, shared: &mut Shared, address: SocketAddr) -> u32 {
        if !self.by_address.contains_key(&address) {
            for _ in 0..self.gone.len().min(MOST_GONE) {
                let Some(gone) = self.gone.pop_front() else { break };
                match self.use_of(gone) {
                    Use::None => return self.replace(shared, gone, address),
                    // Its messages are still to be received.
                    Use::Messages => self.gone.push_back(gone),
                    Use::Peer => {}
                }
            }
        }
        self.peer_with(address)
    }

    /// A peer's connection has ended.
    pub(super) fn is_gone(&mut self, peer: u32) {
        self.gone.push_back(peer);
    }

    fn use_of(&mut self, peer: u32) -> Use {
        let is_known = self.index_of(peer) != NOT_AVAILABLE;
        let state = self.peer(peer);
        match state {
            _ if is_known || !matches!(state.link, Link::Closed) || !state.is_empty() => Use::Peer,
            Peer { unexpected: 1.., .. } => Use::Messages,
            _ => Use::None,
        }
    }

    /// Gives the place of a peer that is gone to another one.
    fn replace(&mut self, shared: &mut Shared, gone: u32, address: SocketAddr) -> u32 {
        // A receive from it alone was posted while the program knew it.
        drop(self.fail(shared, gone, Errno::RESET, &"its address was removed".into()));
        let former = &mut self.peers[gone as usize];
        self.by_address.remove(&former.address);
        *former = Peer { attempt: former.attempt, is_due: former.is_due, ..Peer::new(address) };
        self.by_address.insert(address, gone);
        gone
    }

    pub(super) fn peer(&mut self, peer: u32) -> &mut Peer {
        &mut self.peers[peer as usize]
    }

    /// Its index in the address vector, for entries.
    #[inline]
    pub(super) fn index_of(&mut self, peer: u32) -> u64 {
        let version = self.bindings.addresses.version();
        match self.peers[peer as usize].index {
            Some((at, index)) if at == version => index,
            _ => self.look_up_index(peer, version),
        }
    }

    #[cold]
    fn look_up_index(&mut self, peer: u32, version: u64) -> u64 {
        let peer = &mut self.peers[peer as usize];
        let index = self.bindings.addresses.index(&peer.address);
        peer.index = Some((version, index));
        index
    }

    /// The peer has to be served in the next turn.
    pub(super) fn is_due(&mut self, shared: &mut Shared, peer: u32) {
        let number = self.number;
        let peer_state = self.peer(peer);
        if !std::mem::replace(&mut peer_state.is_due, true) {
            shared.due.push((number, peer));
        }
    }

    /// Something is to be sent behind what waits.
    pub(super) fn queue(&mut self, shared: &mut Shared, peer: u32, job: Job) {
        self.peer(peer).jobs.push_back(job);
        if !self.peer(peer).is_blocked {
            self.is_due(shared, peer);
        }
    }

    /// Reports the end of an operation of the peer's to the peer.
    pub(super) fn reply(&mut self, shared: &mut Shared, peer: u32, id: u32, status: Result<(), Errno>) {
        let status = status.err().map_or(0, |errno| errno.0 as u32);
        self.queue(shared, peer, Job::Head(Head::done(id, status)));
    }

    /// Whether frames can be sent to the peer, or an attempt to connect is made from now on.
    #[inline]
    pub(super) fn open(&mut self, shared: &mut Shared, peer: u32) {
        if matches!(self.peers[peer as usize].link, Link::Closed) {
            shared.to_open.push((self.number, peer));
        }
    }

    /// An operation of this side has ended.
    pub(super) fn has_ended(&self, ticket: &Ticket, outcome: Result<(), Errno>) {
        match outcome {
            Ok(()) => self.succeeded(ticket),
            Err(errno) => self.failed(ticket, errno, None),
        }
    }

    /// An operation of this side has succeeded.
    #[inline]
    pub(super) fn succeeded(&self, ticket: &Ticket) {
        if ticket.is_reported
            && let Some(queue) = &self.bindings.transmit
        {
            queue.push(Entry::new(ticket.context, ticket.flags));
        }
        if let Some(counter) = self.bindings.counter(ticket.flags) {
            counter.add(1);
        }
    }

    /// An operation of this side has failed.
    pub(super) fn failed(&self, ticket: &Ticket, errno: Errno, reason: Option<&Arc<str>>) {
        if let Some(queue) = &self.bindings.transmit {
            let entry = Entry::new(ticket.context, ticket.flags);
            queue.push_error(ErrorEntry { entry, excess: 0, errno, reason: reason.cloned() });
        }
        if let Some(counter) = self.bindings.counter(ticket.flags) {
            counter.add_errors(1);
        }
    }

    /// A receive has failed.
    pub(super) fn receive_failed(
        &self,
        posted: &Posted,
        flags: u64,
        errno: Errno,
        reason: Option<&Arc<str>>,
    ) {
        self.receive_failed_with(ErrorEntry {
            entry: Entry::new(posted.context, flags),
            excess: 0,
            errno,
            reason: reason.cloned(),
        });
    }

    pub(super) fn receive_failed_with(&self, error: ErrorEntry) {
        if let Some(queue) = &self.bindings.receive {
            queue.push_error(error);
        }
        if let Some(counter) = self.bindings.counter(flags::RECV) {
            counter.add_errors(1);
        }
    }

    /// A peer has written to, or read from, a region of this side.
    pub(super) fn accessed(&self, flags: u64, data: Option<u64>, length: usize, source: u64) {
        if let Some(data) = data
            && let Some(queue) = &self.bindings.receive
        {
            let flags = flags | flags::REMOTE_CQ_DATA;
            queue.push(Entry { length, data, source, ..Entry::new(0, flags) });
        }
        if let Some(counter) = self.bindings.counter(flags) {
            counter.add(1);
        }
    }
}

/// Where messages of a space complete.
pub(super) fn receive_flags(is_tagged: bool) -> u64 {
    flags::RECV | if is_tagged { flags::TAGGED } else { flags::MSG }
}

/// The index for a filter of any source.
pub(super) fn is_any(index: Option<u64>) -> bool {
    index.is_none_or(|index| index == NOT_AVAILABLE)
}
