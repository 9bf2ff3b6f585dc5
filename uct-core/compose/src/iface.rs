//! The interface: the plugin's, with what its endpoints and its peers have in common.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ucs::sys::random;
use uct_plugin::abi::*;
use uct_plugin::memory::{Accessor, RegionDomain};
use uct_plugin::rma::{Initiator, Limits, MAX_REQUEST, REQUEST_HEADER, RESPONSE_HEADER};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{
    AmHandlers, Blocked, EpStatus, Error, Failure, FlushSet, Outcome, PeerAddress, PendingQueue, Result,
};

use crate::md::{ComposedMd, OWN};
use crate::peers::{Peers, Served};
use crate::plugin::{PluginEp, PluginIface};
use crate::relay::{Channel, Receiver, Relay};
use crate::sender::Sender;
use crate::wire::{HEAD, Head, Kind};

/// Operations of an endpoint that may be outstanding; consecutive ones without a completion count once.
const OPERATIONS: usize = 64;
/// Number of responses to gets that may be outstanding.
const GET_SEGMENTS: usize = 8;
/// Most entries of a vector, unless the plugin's interface takes fewer.
const MAX_IOV: usize = 16;
/// Smallest limit of put and get for which they are composed.
const LEAST_DATA: usize = 64;

/// An interface.
pub(crate) struct ComposedIface {
    pub(crate) plugin: Rc<PluginIface>,
    pub(crate) md: Arc<ComposedMd>,
    pub(crate) accessor: Accessor,
    pub(crate) errors: ErrorHandler,
    pub(crate) pending: PendingQueue,
    pub(crate) flushes: FlushSet<Wait>,
    /// The limits of put and get, where the plugin's messages are large enough for them.
    pub(crate) sizes: Option<Sizes>,
    /// Its device and interface address, as requests carry them.
    pub(crate) address: Vec<u8>,
    pub(crate) peers: Peers,
    /// Responses that have arrived; completions are called by progress.
    answers: RefCell<VecDeque<Vec<u8>>>,
    senders: RefCell<HashMap<u64, Rc<Sender>>>,
    /// Endpoints with pending requests, and those that have something to send.
    waiting: RefCell<Vec<Weak<Sender>>>,
    busy: RefCell<Vec<Rc<Sender>>>,
    /// A peer may be gone.
    must_tidy: Cell<bool>,
    /// Calls of progress, one inside the other.
    depth: Cell<u32>,
}

/// How much a message holds.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Bytes of a message with a head of its own.
    pub(crate) message: usize,
    /// Bytes of a put.
    pub(crate) put: usize,
    /// Bytes of a response to a get.
    pub(crate) get: usize,
}

/// What a flush waits for.
pub(crate) enum Wait {
    /// Operations of an endpoint up to a mark. With `true` it is a flush of this endpoint's.
    Operations(Weak<Sender>, u32, bool),
    /// The plugin's flush of an endpoint, with these flags.
    Messages(Weak<Sender>, u32),
    /// The plugin's flush of the interface.
    Plugin(u32),
}

impl Sizes {
    /// `None` if the plugin's interface cannot do it.
    fn of(attr: &UctIfaceAttr) -> Option<Sizes> {
        let needed = UCT_CAP_AM_BCOPY | UCT_CAP_CONNECT_TO_IFACE;
        let has_own =
            attr.capabilities & (uct_plugin::attr::PUT_GET | UCT_CAP_ATOMIC_CPU | UCT_CAP_ATOMIC_DEVICE);
        if attr.capabilities & needed != needed || has_own != 0 {
            return None;
        }
        let ahead = HEAD + attr.device_addr_len + attr.iface_addr_len + REQUEST_HEADER;
        let put = attr.am.max_bcopy.checked_sub(ahead)?;
        let get = attr.am.max_bcopy.checked_sub(HEAD + RESPONSE_HEADER)?;
        let is_enough = put >= LEAST_DATA.max(MAX_REQUEST - REQUEST_HEADER);
        is_enough.then_some(Sizes { message: attr.am.max_bcopy - HEAD, put, get })
    }
}

impl ComposedIface {
    /// # Safety
    /// As [`crate::open`].
    pub(crate) unsafe fn open(
        md: Arc<ComposedMd>,
        transport: &UctTlOps,
        params: &UctIfaceParams,
        reason: *mut UctText,
    ) -> Result<Rc<ComposedIface>, UctStatus> {
        let invalid = Error::INVALID_PARAM.status().raw();
        // SAFETY: the host's table is valid until the interface is closed (`UctIfaceParams`).
        let handlers = unsafe { AmHandlers::new(params.am_handlers) }.ok_or(invalid)?;
        // SAFETY: so are handler and argument.
        let errors = unsafe { ErrorHandler::new(params.error_handler, params.error_argument) };
        let channel = Channel::default();
        let relay = Relay::new(handlers, &channel);
        // SAFETY: the caller's promise, and the domain is the plugin's.
        let plugin = unsafe { PluginIface::open(md.plugin(), transport, params, relay, reason) }?;
        let attr = plugin.attributes();
        let sizes = Sizes::of(&attr);
        let mut address = vec![0; attr.device_addr_len + attr.iface_addr_len];
        if sizes.is_some() {
            let (device, iface) = address.split_at_mut(attr.device_addr_len);
            let read = plugin.device_address(device).and_then(|()| plugin.address(iface));
            read.map_err(|error| error.status().raw())?;
        }
        let iface = Rc::new(ComposedIface {
            plugin,
            accessor: Accessor::default(),
            errors,
            pending: PendingQueue::default(),
            flushes: FlushSet::default(),
            sizes,
            address,
            peers: Peers::default(),
            answers: RefCell::default(),
            senders: RefCell::default(),
            waiting: RefCell::default(),
            busy: RefCell::default(),
            must_tidy: Cell::new(false),
            depth: Cell::new(0),
            md,
        });
        if iface.sizes.is_some() {
            let receiver: Rc<dyn Receiver> = Rc::clone(&iface) as _;
            // It is new.
            let _ = channel.set(Rc::downgrade(&receiver));
        }
        OWN.add(iface.md.regions().identity(), &iface.md);
        Ok(iface)
    }

    /// What a new endpoint sends through.
    pub(crate) fn new_sender(
        &self,
        peer: Option<PeerAddress<'_>>,
        status: EpStatus,
    ) -> Result<Rc<Sender>, Failure> {
        let system = |error: ucs::sys::SystemError| Failure::new(Error::from(&error), error.to_string());
        let token = random::secret().map_err(system)?;
        let get_segment = self.sizes.map_or(1, |sizes| sizes.get);
        let get_bytes = GET_SEGMENTS * get_segment;
        let initiator = Initiator::new(Limits { operations: OPERATIONS, get_segment, get_bytes });
        let sender = Rc::new(Sender::new(PluginEp::create(&self.plugin, peer)?, status, initiator, token));
        self.senders.borrow_mut().insert(token, Rc::clone(&sender));
        Ok(sender)
    }

    /// An endpoint is destroyed. What it has accepted is still sent.
    pub(crate) fn forget(&self, sender: &Rc<Sender>) {
        self.senders.borrow_mut().remove(&sender.token);
        if !sender.send_unsent() {
            self.busy.borrow_mut().push(Rc::clone(sender));
        }
    }

    /// Gives up on what an endpoint has outstanding.
    pub(crate) fn cancel(&self, sender: &Rc<Sender>) {
        sender.give_up();
        let is_its = |wait: &Wait| match wait {
            Wait::Operations(of, _, is_own) => *is_own && of.ptr_eq(&Rc::downgrade(sender)),
            Wait::Messages(of, _) => of.ptr_eq(&Rc::downgrade(sender)),
            Wait::Plugin(_) => false,
        };
        self.flushes.fail_where(is_its, Error::CANCELED);
    }

    /// Whether accepted frames of endpoints, or responses to peers, are queued.
    pub(crate) fn has_unsent(&self) -> bool {
        self.peers.has_unsent_responses() || self.busy.borrow().iter().any(|sender| sender.has_unsent())
    }

    /// Most entries of a vector.
    pub(crate) fn max_iov(&self) -> usize {
        MAX_IOV.min(self.plugin.attributes().am.max_iov.max(1))
    }

    /// Whether requests of the application's are queued.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// The interface closes: nothing of the plugin's is left but its interface.
    pub(crate) fn forget_all(&self) {
        self.peers.clear();
        self.busy.take();
        self.senders.take();
    }

    /// Memory that is registered.
    pub(crate) fn registrations(&self) -> usize {
        self.md.regions().len()
    }

    /// Longest payload of a short message, of any id.
    pub(crate) fn max_short(&self) -> usize {
        let own = self.plugin.attributes().am.max_short;
        self.sizes.map_or(own, |sizes| own.min(sizes.message - size_of::<u64>()))
    }

    /// All endpoints.
    pub(crate) fn senders(&self) -> Vec<Rc<Sender>> {
        self.senders.borrow().values().cloned().collect()
    }

    /// Has progress send what an endpoint could not.
    pub(crate) fn note_busy(&self, sender: &Rc<Sender>) {
        let mut busy = self.busy.borrow_mut();
        if !busy.iter().any(|other| Rc::ptr_eq(other, sender)) {
            busy.push(Rc::clone(sender));
        }
    }

    /// Has progress serve the requests of an endpoint, the first of which is about to be queued.
    pub(crate) fn note_waiting(&self, sender: &Rc<Sender>) {
        let (mut waiting, sender) = (self.waiting.borrow_mut(), Rc::downgrade(sender));
        if !waiting.iter().any(|other| other.ptr_eq(&sender)) {
            waiting.push(sender);
        }
    }

    /// Whether there is work that no event reports.
    pub(crate) fn has_work(&self) -> bool {
        !self.answers.borrow().is_empty()
            || self.peers.has_unsent_responses()
            || !self.busy.borrow().is_empty()
            || !self.waiting.borrow().is_empty()
            || !self.flushes.is_empty()
    }

    /// One round.
    pub(crate) fn advance(&self) -> u32 {
        self.depth.set(self.depth.get() + 1);
        let mut count = self.plugin.progress();
        loop {
            let Some(frame) = self.answers.borrow_mut().pop_front() else { break };
            count += 1;
            self.take_answer(&frame);
        }
        if self.plugin.take_failed() {
            self.check_failures();
            self.must_tidy.set(true);
        }
        // Deeper inside a call of the plugin's is on the stack, which nothing is destroyed under.
        let is_outermost = self.depth.get() == 1;
        if is_outermost && (self.must_tidy.take() || self.peers.has_excess()) {
            self.peers.tidy();
        }
        if self.has_work() {
            count += self.work(is_outermost);
        }
        self.depth.set(self.depth.get() - 1);
        count
    }

    /// Handles a response. Its bytes are untrusted.
    fn take_answer(&self, frame: &[u8]) {
        let Some((head, body)) = Head::read(frame) else { return };
        // Its endpoint was destroyed.
        let sender = self.senders.borrow().get(&head.token).cloned();
        let Some(sender) = sender else { return };
        if head.kind == Kind::CutOff {
            let reason = "the peer has cut this endpoint off";
            sender.fail(&self.errors, &self.pending, Error::REJECTED, reason);
        } else if let Err(malformed) = sender.answer(&self.address, body) {
            sender.fail(&self.errors, &self.pending, Error::IO_ERROR, malformed.0);
        } else if sender.initiator.wants_pump() {
            self.note_busy(&sender);
        }
    }

    fn serve(&self, token: u64, body: &[u8]) {
        let (Some(sizes), attr) = (self.sizes, self.plugin.attributes()) else { return };
        let Some((device, rest)) = body.split_at_checked(attr.device_addr_len) else { return };
        let Some((iface, request)) = rest.split_at_checked(attr.iface_addr_len) else { return };
        let served = Served { regions: self.md.regions(), accessor: &self.accessor, get_segment: sizes.get };
        self.peers.serve(&self.plugin, token, PeerAddress { device, iface }, request, served);
    }

    /// Fails the endpoints whose plugin's endpoint has failed.
    fn check_failures(&self) {
        for sender in self.senders() {
            if let Some((error, reason)) = sender.plugin.failure() {
                sender.fail(&self.errors, &self.pending, error, &reason);
            }
        }
    }

    /// All work but receiving.
    fn work(&self, is_outermost: bool) -> u32 {
        self.peers.answer();
        for sender in self.busy.take() {
            if sender.send_unsent() {
                sender.pump(&self.address);
            }
            if sender.has_unsent() || sender.initiator.wants_pump() || !is_outermost {
                self.note_busy(&sender);
            }
        }
        self.flushes.end(|wait| self.ended(wait));
        let waiting: Vec<_> = self.waiting.borrow().iter().filter_map(Weak::upgrade).collect();
        for sender in &waiting {
            sender.clear_blocked();
            self.pending.schedule(&sender.waiting);
        }
        let served = self.pending.dispatch(Blocked::Endpoint);
        self.waiting
            .borrow_mut()
            .retain(|sender| sender.upgrade().is_some_and(|sender| !sender.waiting.is_empty()));
        served
    }

    /// How an item that a flush waits for has ended; `None` while it has not.
    fn ended(&self, wait: &Wait) -> Option<Result> {
        let is_over = |error: Error, is_own: bool| Some(if is_own { Err(error) } else { Ok(()) });
        match wait {
            Wait::Operations(sender, mark, is_own) => {
                let Some(sender) = sender.upgrade() else { return is_over(Error::CANCELED, *is_own) };
                match sender.status.failure() {
                    Some(error) => is_over(error, *is_own),
                    None if sender.has_unsent() => None,
                    None if *is_own => sender.initiator.flushed(0, *mark),
                    None => sender.initiator.has_reached(*mark).then_some(Ok(())),
                }
            }
            Wait::Messages(sender, flags) => {
                let Some(sender) = sender.upgrade() else { return is_over(Error::CANCELED, true) };
                still_open(sender.status.check().and_then(|()| sender.plugin.flush(*flags)))
            }
            Wait::Plugin(flags) => still_open(self.plugin.flush(*flags)),
        }
    }
}

impl Receiver for ComposedIface {
    fn take(&self, frame: Vec<u8>) {
        match Head::read(&frame) {
            Some((Head { kind: Kind::Request, token }, body)) => self.serve(token, body),
            _ => self.answers.borrow_mut().push_back(frame),
        }
    }
}

/// The result of repeating a plugin's flush.
fn still_open(flushed: Result<Outcome>) -> Option<Result> {
    match flushed {
        Ok(Outcome::Done) => Some(Ok(())),
        Ok(Outcome::InProgress) | Err(Error::NO_RESOURCE) => None,
        Err(error) => Some(Err(error)),
    }
}
