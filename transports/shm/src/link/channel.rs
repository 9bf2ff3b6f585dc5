//! A channel: two rings and a socket between two interfaces.
//!
//! Used by interfaces and endpoints. All endpoints from one interface to another share the channel. Built on rings, segments and remote
//! memory. The side that connects creates the rings and may send at once; the side that accepts finds those messages in the rings. The socket
//! carries descriptors, wakes a sleeping peer, and closes when the peer's process ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;
use ucs::log::Limited;
use ucs::sys::process::credentials;
use ucs::text::PeerText;
use uct_plugin::Error;

use crate::io::cma::{self, Process};
use crate::io::socket::{self, Credentials, Line, Received};
use crate::io::{Mapping, Source, Trust, accept, attach_sysv};
use crate::link::blocked::BlockedOn;
use crate::link::pair_layout::PairLayout;
use crate::link::peer::Peer;
use crate::link::remote::{Allocated, Announced, Lent, PeerView, Populating, SegmentCache, Words, registry};
use crate::link::ring_pair::RingPair;
use crate::link::work::{PendingWork, source};
use crate::proto::addr::IfaceAddress;
use crate::proto::ring::{
    Block, FIRST_BYTES, INLINE_BYTES, Place, Refused, RingMemory, Sent, Trim, register_heavy_barrier,
};
use crate::proto::wire::{self, Control, Welcome, tag};

/// Why a channel is broken.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) error: Error,
    pub(crate) reason: String,
}

/// State of the request for the segment of a remote key.
enum Asked {
    /// The peer was asked, with a key to as many bytes.
    Waiting(u64),
    /// It has answered with a segment whose pages are being mapped.
    Populating(Populating),
    /// It has answered: nothing to share, or the segment as long as a key or the cache has it.
    Answered(Option<Weak<Lent>>),
}

/// See the module.
pub(crate) struct Channel {
    pub(crate) rings: RingPair,
    /// This side has connected.
    pub(crate) connects: bool,
    /// The peer's request to share a ping-pong line ([`Welcome`]), until it is carried out.
    pub(crate) shares: Cell<u32>,
    /// Number in the interface; what the peer rings the doorbell for.
    pub(crate) number: u32,
    /// The peer's interface.
    pub(crate) peer_iface: u64,
    /// What proves that it is that one.
    pub(crate) peer_key: u64,
    /// The socket and the process at its other end, once it is connected.
    line: OnceCell<Line>,
    peer: OnceCell<Peer>,
    cma: OnceCell<Result<Process, String>>,
    broken: OnceCell<Broken>,
    /// The peer's end of the socket is closed; what is in the ring is still to be received.
    pub(crate) is_closed: Cell<bool>,
    /// What the peer was asked for, and its answers, by key and secret.
    segments: RefCell<HashMap<(u64, u64), Asked>>,
    /// Pages of one of them are being mapped.
    is_populating: Cell<bool>,
    /// The interface's, which holds segments that no key has.
    cache: Rc<SegmentCache>,
    /// The interface's pending work.
    work: PendingWork,
    /// In which we name what we have the kernel copy.
    ours: Words,
    /// In which the peer does.
    theirs: Arc<Words>,
    /// The memory of the rings. Dropped last.
    memory: Arc<Mapping>,
}

impl Channel {
    /// The side that connects, over fresh rings, on which it may send already. It has no socket yet.
    pub(crate) fn connecting(
        number: u32,
        to: &IfaceAddress,
        layout: &PairLayout,
        memory: Mapping,
        (work, cache): (PendingWork, Rc<SegmentCache>),
    ) -> Channel {
        let channel = Channel::new(number, (to.id, to.key), (layout, memory, true), (work, cache));
        channel.rings.sender.prepare();
        // The other ring has its sender at the peer; what it sees until we are ready is ours to write.
        channel.rings.receiver.set_idle();
        channel
    }

    /// The side that accepts. It has no socket yet.
    pub(crate) fn accepted(
        number: u32,
        layout: &PairLayout,
        memory: Mapping,
        peer: Peer,
        (work, cache): (PendingWork, Rc<SegmentCache>),
    ) -> Channel {
        let from = (peer.side.iface, peer.side.key);
        let channel = Channel::new(number, from, (layout, memory, false), (work, cache));
        channel.take_peer(peer);
        channel
    }

    fn new(
        number: u32,
        (peer_iface, peer_key): (u64, u64),
        (layout, memory, connects): (&PairLayout, Mapping, bool),
        (work, cache): (PendingWork, Rc<SegmentCache>),
    ) -> Channel {
        let memory = Arc::new(memory);
        let [ours, theirs] = layout.words(&memory, connects);
        let theirs = Arc::new(theirs);
        if let Ok(registry) = registry() {
            registry.announcements().add(&theirs);
        }
        Channel {
            rings: RingPair::new(layout, &memory, connects),
            connects,
            shares: Cell::new(0),
            number,
            peer_iface,
            peer_key,
            line: OnceCell::new(),
            peer: OnceCell::new(),
            cma: OnceCell::new(),
            broken: OnceCell::new(),
            is_closed: Cell::new(false),
            segments: RefCell::default(),
            is_populating: Cell::new(false),
            cache,
            work,
            ours,
            theirs,
            memory,
        }
    }

    /// Sets the connected socket and the process at its other end.
    pub(crate) fn take_line(&self, line: Line) {
        let _ = self.line.set(line);
    }

    /// Takes the welcome of the peer. The error describes what is wrong with it.
    pub(crate) fn take_welcome(&self, body: &[u8], fds: &[OwnedFd]) -> Result<(), String> {
        let welcome: Welcome = wire::body(body)?;
        if self.peer().is_some() || (welcome.from.iface, welcome.from.key) != (self.peer_iface, self.peer_key)
        {
            return Err("an unexpected welcome".to_owned());
        }
        self.take_peer(Peer::new(welcome.from, fds)?);
        if welcome.shares != 0 {
            self.shares.set(welcome.shares);
            self.raise();
        }
        // Messages that were sent meanwhile may have found the ring idle.
        self.attend();
        Ok(())
    }

    fn take_peer(&self, peer: Peer) {
        self.rings.receiver.set_fence(!(register_heavy_barrier() && peer.side.heavy_barrier == 1));
        let _ = self.peer.set(peer);
    }

    /// The peer, once known.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.get()
    }

    /// The peer's table, once known.
    pub(crate) fn view(&self) -> Option<PeerView<'_>> {
        self.peer().map(|peer| PeerView { identity: peer.side.table, table: &peer.table })
    }

    /// The socket, once it is connected.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.line.get().map(|(socket, _)| socket.as_fd())
    }

    /// The socket, and the process at its other end.
    pub(crate) fn line(&self) -> Option<&Line> {
        self.line.get()
    }

    /// Whether new endpoints can use it.
    pub(crate) fn is_sound(&self) -> bool {
        self.broken().is_none() && !self.is_closed.get()
    }

    /// The id of the process at the other end, as the kernel reports it. `None`: not connected, or the process has no id in this namespace.
    pub(crate) fn process(&self) -> Option<u32> {
        self.line.get().map(|(_, credentials)| credentials.pid).filter(|pid| *pid != 0)
    }

    /// The user of the process at the other end, as the kernel reports it. `None`: not connected.
    pub(crate) fn user(&self) -> Option<u32> {
        self.line.get().map(|(_, credentials)| credentials.uid)
    }

    /// Sends a message over the socket. `EAGAIN` while there is none, or if the peer does not read.
    fn send_control(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        socket::send(self.socket().ok_or(Errno::AGAIN)?, message, fds)
    }

    /// Why the channel is broken, if it is.
    pub(crate) fn broken(&self) -> Option<&Broken> {
        self.broken.get()
    }

    /// Breaks the channel. The first reason is kept.
    pub(crate) fn set_broken(&self, error: Error, reason: String) {
        if self.broken.set(Broken { error, reason }).is_ok() {
            self.raise();
        }
    }

    /// Sends `length` bytes that `fill` writes, wherever they fit.
    pub(crate) fn send(&self, tag: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Result<(), BlockedOn> {
        if length <= INLINE_BYTES {
            return self.complete_send(self.rings.sender.send_inline(tag, length, fill));
        }
        let block = self.reserve(length)?;
        self.rings.sender.fill_block(&block, fill);
        let is_message = tag < tag::AM_IDS;
        self.complete_send(if is_message {
            self.rings.send_block(tag, block, length)
        } else {
            self.rings.sender.send_block(tag, block, length)
        })
    }

    /// Reserves a block for `length` bytes. A message that fits no block ends the channel: the handshake has checked the sizes.
    pub(crate) fn reserve(&self, length: usize) -> Result<Block, BlockedOn> {
        if !self.rings.sender.has_room().map_err(|corrupt| self.corrupt(&corrupt))? {
            return Err(BlockedOn::Slot);
        }
        let layout = self.rings.sender.memory().layout();
        let place = if length <= layout.small_capacity() {
            Place::Small
        } else if length <= layout.bulk_capacity() {
            Place::Bulk
        } else {
            return Err(self.too_long(length));
        };
        self.rings.sender.reserve(place).ok_or(BlockedOn::Block(place))
    }

    #[cold]
    fn too_long(&self, length: usize) -> BlockedOn {
        let most = self.rings.sender.memory().layout().bulk_capacity();
        self.set_broken(
            Error::IO_ERROR,
            format!("a message of {length} bytes is to be sent over a ring for up to {most}"),
        );
        BlockedOn::BrokenChannel
    }

    /// Completes a send: rings the doorbell if the receiver is idle.
    #[inline(always)]
    pub(crate) fn complete_send(&self, sent: Result<Sent, Refused>) -> Result<(), BlockedOn> {
        match sent {
            Ok(Sent::Quiet) => Ok(()),
            Ok(Sent::Attend) => {
                self.attend();
                Ok(())
            }
            Err(refused) => Err(self.refused(refused)),
        }
    }

    #[cold]
    fn refused(&self, refused: Refused) -> BlockedOn {
        match refused {
            Refused::Full => BlockedOn::Slot,
            Refused::Corrupt(corrupt) => self.corrupt(&corrupt),
        }
    }

    /// The peer has written invalid values: breaks the channel. Progress reports the failure to its endpoints.
    pub(crate) fn corrupt(&self, corrupt: &dyn std::fmt::Display) -> BlockedOn {
        self.set_broken(Error::IO_ERROR, format!("the peer has corrupted the ring: {corrupt}"));
        BlockedOn::BrokenChannel
    }

    /// The receiver's word has changed: rings the doorbell if the ring is idle.
    #[cold]
    #[inline(never)]
    pub(crate) fn attend(&self) {
        // Progress reports a broken ring.
        let _ = self.attended();
    }

    /// As [`attend`](Channel::attend), but returns an error if the ring is broken.
    #[cold]
    #[inline(never)]
    pub(crate) fn attended(&self) -> Result<(), Error> {
        match self.rings.sender.attend() {
            Ok(None) => (),
            Ok(Some(is_first)) => self.ring(is_first),
            Err(corrupt) => {
                self.corrupt(&corrupt);
                return Err(Error::IO_ERROR);
            }
        }
        Ok(())
    }

    /// Rings the peer's doorbell. The first message since the ring became idle wakes the peer whatever the doorbell contains, because another
    /// peer may have overwritten it.
    fn ring(&self, is_first: bool) {
        self.poll_welcome();
        // The peer has not accepted yet. It polls the ring when it does.
        let Some(peer) = self.peer() else { return };
        if peer.doorbell.ring(peer.side.doorbell_number) || is_first {
            // If the socket is full, the peer has been woken already.
            let _ = self.send_control(&wire::control(Control::Wake, &[]), &[]);
        }
    }

    /// Takes the peer's first message if it is there.
    pub(crate) fn poll_welcome(&self) {
        if self.peer().is_none() && self.broken().is_none() {
            self.receive_control(Trust::SEALED);
        }
    }

    /// Receives one message from the socket. Returns whether there was one. `trust`: which segments are accepted.
    pub(crate) fn receive_control(&self, trust: Trust) -> bool {
        let Some(socket) = self.socket() else { return false };
        let mut buffer = [0; wire::MAX_CONTROL];
        let (length, fds) = match socket::receive(socket, &mut buffer) {
            Received::Nothing => return false,
            Received::Closed => {
                self.is_closed.set(true);
                self.raise();
                return false;
            }
            Received::Message(length, fds) => (length, fds),
        };
        let taken = wire::parse_control(&buffer[..length]).and_then(|(kind, body)| match kind {
            Control::Welcome => self.take_welcome(body, &fds),
            Control::Refusal => {
                let words = PeerText::new(body);
                self.set_broken(Error::REJECTED, format!("the peer refuses the connection: {words}"));
                Ok(())
            }
            Control::Wake => Ok(()),
            Control::SegmentRequest => {
                wire::body::<wire::SegmentRequest>(body).map(|request| self.send_segment(&request))
            }
            Control::SegmentReply => {
                wire::body(body).and_then(|reply| self.take_segment(&reply, &fds, trust))
            }
            Control::Hello => Err("a second hello".to_owned()),
        });
        if let Err(reason) = taken {
            self.set_broken(Error::IO_ERROR, format!("the peer breaks the protocol: {reason}"));
        }
        true
    }

    /// Gives back what only much traffic needs if nothing was sent for some time.
    pub(crate) fn trim(&self, idle: Duration) {
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        match self.rings.sender.trim(idle) {
            Ok(Trim::Nothing) => (),
            Ok(Trim::Return) => {
                // There is room, because everything is received.
                let _ = self.send(tag::NOTHING, 0, |_| ());
            }
            Ok(Trim::Free(rest)) => {
                let start = if self.connects { 0 } else { FIRST_BYTES };
                self.memory.give_back(start + rest.start..start + rest.end);
            }
            Err(corrupt) => drop(self.corrupt(&corrupt)),
        }
    }

    /// Has progress serve the channel on its slow path.
    pub(crate) fn raise(&self) {
        self.work.raise(source::CHANNEL);
    }

    /// Has progress check for room in the ring. A sleeping interface wakes up for it periodically.
    pub(crate) fn wait_for_room(&self) {
        self.work.raise(source::ROOM);
    }

    /// Announces a copy by the kernel, to or from memory of the peer; `None` if the peer has closed the channel.
    #[inline(always)]
    pub(crate) fn announce(&self, secret: u64) -> Option<Announced<'_>> {
        self.ours.announce(secret)
    }

    /// The peer's process, if the kernel copies from and to its memory and the peer has the same user. Probed once.
    pub(crate) fn cma(&self) -> Option<Process> {
        let peer = self.peer()?;
        let (_, Credentials { pid, uid: peer_uid }) = *self.line()?;
        let probe = || {
            let own = credentials().effective_uid;
            let result = if peer_uid == own {
                cma::probe(pid, peer.side.beacon, peer.side.table)
            } else {
                // The peer could execute a program to which it has no right to write; a privileged process would write there for it.
                Err(format!("it runs as user {peer_uid}, this process as user {own}"))
            };
            if let Err(reason) = &result {
                ucs::log::debug!(
                    pid,
                    "zero copy to the peer is not possible, copying through the ring: {reason}"
                );
            }
            result
        };
        self.cma.get_or_init(probe).as_ref().ok().copied()
    }

    /// The kernel makes no copies for this channel.
    pub(crate) fn forbid_cma(&self) {
        let _ = self.cma.set(Err("it is switched off (UCT_SHM_CMA)".to_owned()));
    }

    /// The segment of a remote key to `length` bytes, asking the peer for it if need be; `proof` is key and secret. `Ok(None)`: there
    /// is none to be had.
    pub(crate) fn segment(&self, proof: (u64, u64), length: u64) -> Result<Option<Arc<Lent>>, BlockedOn> {
        let mut segments = self.segments.borrow_mut();
        match segments.get_mut(&proof) {
            Some(Asked::Waiting(_) | Asked::Populating(_)) => return Err(BlockedOn::Segment(proof.0)),
            Some(Asked::Answered(None)) => return Ok(None),
            Some(Asked::Answered(Some(known))) => {
                if let Some(segment) = known.upgrade() {
                    if let Some(peer) = self.peer() {
                        self.cache.used(&segment, &peer.table, proof.0);
                    }
                    return Ok(Some(segment));
                }
            }
            None => (),
        }
        let request = wire::SegmentRequest { key: proof.0, secret: proof.1 };
        let message = wire::control(Control::SegmentRequest, zerocopy::IntoBytes::as_bytes(&request));
        match self.send_control(&message, &[]) {
            Ok(()) => {
                if segments.len() == segments.capacity() {
                    // Those that are gone have neither a key nor a place in the cache.
                    segments.retain(|_, asked| match asked {
                        Asked::Waiting(_) | Asked::Populating(_) => true,
                        Asked::Answered(known) => {
                            known.as_ref().is_some_and(|known| known.strong_count() > 0)
                        }
                    });
                }
                segments.insert(proof, Asked::Waiting(length));
                Err(BlockedOn::Segment(proof.0))
            }
            Err(Errno::AGAIN) => Err(BlockedOn::Segment(proof.0)),
            Err(_) => Ok(None),
        }
    }

    /// No key is bound over this channel any more: the cache drops what came over it.
    pub(crate) fn forget_segments(&self) {
        if let Some(peer) = self.peer() {
            self.cache.forget(&peer.table);
        }
    }

    /// Whether the peer was asked for the segment of a key and has not answered, or the segment is being mapped.
    pub(crate) fn waits_for_segment(&self, key: u64) -> bool {
        let segments = self.segments.borrow();
        segments.iter().any(|(proof, asked)| proof.0 == key && !matches!(asked, Asked::Answered(_)))
    }

    /// Takes the reply to a request for a segment. An error means that the peer violates the protocol.
    pub(crate) fn take_segment(
        &self,
        reply: &wire::SegmentReply,
        fds: &[OwnedFd],
        trust: Trust,
    ) -> Result<(), String> {
        let mut segments = self.segments.borrow_mut();
        let proof = (reply.key, reply.secret);
        let (Some(&Asked::Waiting(most)), Some(peer)) = (segments.get(&proof), self.peer()) else {
            return Err("a segment that was not requested".to_owned());
        };
        if reply.length > most {
            return Err(format!("a segment of {} bytes, where the key is to {most}", reply.length));
        }
        let length = usize::try_from(reply.length).unwrap_or(0);
        let is_writable = reply.is_writable == 1;
        let mapping = match (fds, reply.sysv_segment, self.line()) {
            _ if length == 0 => None,
            ([fd, ..], ..) => Some(accept(fd.as_fd(), length, is_writable, trust)),
            ([], id @ 0.., Some((_, peer))) => Some(attach_sysv(id, length, *peer, trust)),
            _ => None,
        };
        // Good memory that is configured otherwise here is reached as memory that cannot be shared.
        let mapping = mapping.filter(|mapping| !mapping.as_ref().is_err_and(|e| e.errno == libc::ENOTSUP));
        let mapping = mapping.transpose().map_err(|error| error.to_string())?;
        let segment = mapping.map(|mapping| Arc::new(Lent::new(mapping, is_writable)));
        let asked = match segment {
            Some(segment) if self.cache.populates => {
                self.is_populating.set(true);
                self.raise();
                Asked::Populating(Populating::new(segment))
            }
            segment => Asked::Answered(segment.map(|segment| self.arrived(segment, peer, reply.key))),
        };
        segments.insert(proof, asked);
        Ok(())
    }

    /// The segment for a key is mapped.
    fn arrived(&self, segment: Arc<Lent>, peer: &Peer, key: u64) -> Weak<Lent> {
        let known = Arc::downgrade(&segment);
        self.cache.arrived(segment, &peer.table, key);
        known
    }

    /// Maps further pages of segments that have arrived.
    pub(crate) fn populate(&self) {
        let Some(peer) = self.peer() else { return };
        if !self.is_populating.replace(false) {
            return;
        }
        for (proof, asked) in self.segments.borrow_mut().iter_mut() {
            let Asked::Populating(populating) = asked else { continue };
            match populating.advance() {
                Some(segment) => *asked = Asked::Answered(Some(self.arrived(segment, peer, proof.0))),
                None => {
                    self.is_populating.set(true);
                    self.raise();
                }
            }
        }
    }

    /// Hands the segment of a registration to the peer, if it shows the key and the memory is lent.
    pub(crate) fn send_segment(&self, request: &wire::SegmentRequest) {
        let (key, secret) = (request.key, request.secret);
        let allocated = registry().ok().and_then(|registry| registry.allocated(key, secret));
        let segment = allocated.filter(|allocated| allocated.is_lent);
        let nothing = wire::SegmentReply { key, secret, length: 0, sysv_segment: -1, is_writable: 0 };
        let (reply, fd) = match &segment {
            None => (nothing, None),
            Some(Allocated { segment, is_written, .. }) => {
                let length = segment.mapping.length() as u64;
                let lent = wire::SegmentReply { length, is_writable: (*is_written).into(), ..nothing };
                match &segment.source {
                    Source::File(fd) => (lent, Some(fd.as_fd())),
                    Source::Sysv(id) => (wire::SegmentReply { sysv_segment: *id, ..lent }, None),
                }
            }
        };
        let message = wire::control(Control::SegmentReply, zerocopy::IntoBytes::as_bytes(&reply));
        if let Err(errno) = self.send_control(&message, fd.as_slice()) {
            // A peer may ask all the time.
            static LINES: Limited = Limited::new(Limited::LINES_A_SECOND);
            if let Some(left_out) = LINES.admit() {
                ucs::log::debug!("a segment could not be sent to the peer: {errno}{left_out}");
            }
        }
    }

    /// Whether the peer's end of the socket is closed, without taking anything from it.
    pub(crate) fn is_socket_closed(&self) -> bool {
        self.is_closed.get() || self.socket().is_some_and(socket::is_closed)
    }

    /// The peer, for messages.
    pub(crate) fn describe(&self) -> String {
        match self.line.get() {
            None => "the peer".to_owned(),
            Some((_, peer)) => format!("the peer ({peer})"),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.forget_segments();
        if let Ok(registry) = registry() {
            registry.announcements().close(&self.theirs, self.is_socket_closed());
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
