//! What the endpoints to one peer share: the channel to it, what it carries out for them, and their pending requests.
//!
//! All endpoints from one interface to another have one connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

use uct_plugin::pending::{Blocked, PendingQueue};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{Completion, Error, Outcome, Result};

use crate::link::blocked::BlockedOn;
use crate::link::channel::{Broken, Channel};
use crate::link::emulation::Emulation;
use crate::link::member::{FENCED, Member};
use crate::proto::ring::RingMemory;

/// See the module.
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    /// There is one from the first operation on that one side carries out for the other.
    emulation: OnceCell<Box<Emulation>>,
    /// Endpoints that use it.
    members: RefCell<Vec<Weak<Member>>>,
    /// Requests of all endpoints, which share what they wait for.
    pub(crate) pending: PendingQueue,
    /// Endpoints with pending requests.
    waiting: RefCell<Vec<Weak<Member>>>,
    /// An operation was blocked since pending requests were last tried.
    is_blocked: Cell<bool>,
    /// When something was last received, in turns of the interface.
    pub(crate) epoch: Cell<u32>,
    pub(crate) is_active: Cell<bool>,
}

impl Connection {
    /// Over a channel, without endpoints.
    pub(crate) fn new(channel: Channel) -> Connection {
        Connection {
            channel,
            emulation: OnceCell::new(),
            members: RefCell::default(),
            pending: PendingQueue::default(),
            waiting: RefCell::default(),
            is_blocked: Cell::new(false),
            epoch: Cell::new(0),
            is_active: Cell::new(false),
        }
    }

    /// For an operation that one side carries out for the other.
    pub(crate) fn emulation(&self) -> &Emulation {
        self.emulation.get_or_init(|| {
            Box::new(Emulation::new(self.channel.rings.sender.memory().layout().bulk_capacity()))
        })
    }

    /// Whether the peer is to carry something out.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.emulation.get().is_some_and(|emulation| !emulation.is_idle())
    }

    /// Flushes what an endpoint has started, as [`Emulation::flush`].
    pub(crate) fn flush(&self, member: &Member, completion: Option<Completion>) -> Result<Outcome> {
        match self.emulation.get() {
            Some(emulation) => emulation.flush(member.number, completion),
            None => Ok(Outcome::Done),
        }
    }

    /// Whether the message that was received last has answered a short get, as [`Emulation::has_just_answered`].
    pub(crate) fn has_just_answered(&self) -> bool {
        self.emulation.get().is_some_and(|emulation| emulation.has_just_answered(&self.channel))
    }

    /// An endpoint uses it from now on.
    pub(crate) fn add_member(&self, member: &Rc<Member>) {
        let mut members = self.members.borrow_mut();
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(Rc::downgrade(member));
    }

    /// An endpoint does not use it any more.
    pub(crate) fn remove_member(&self, member: &Rc<Member>) {
        self.members.borrow_mut().retain(|other| other.as_ptr() != Rc::as_ptr(member));
    }

    /// The endpoints that are alive.
    pub(crate) fn members(&self) -> Vec<Rc<Member>> {
        self.members.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps an endpoint's operations back until those ahead are done.
    pub(crate) fn fence(&self, member: &Member) {
        if self.has_outstanding() {
            member.close(FENCED);
        }
    }

    /// Ends what an endpoint has outstanding; from now on its operations return `CANCELED`.
    pub(crate) fn cancel(&self, member: &Member) {
        self.cancel_outstanding(member);
        member.fail(Error::CANCELED);
    }

    /// Ends what an endpoint has outstanding.
    pub(crate) fn cancel_outstanding(&self, member: &Member) {
        if let Some(emulation) = self.emulation.get() {
            emulation.cancel(member.number, Error::CANCELED);
        }
    }

    /// Ends what all endpoints have outstanding.
    pub(crate) fn fail_outstanding(&self, error: Error) {
        if let Some(emulation) = self.emulation.get() {
            emulation.fail(error);
        }
    }

    /// The channel is broken: ends what is outstanding, and reports it for all endpoints.
    pub(crate) fn fail(&self, errors: &ErrorHandler, broken: &Broken) {
        let members = self.members();
        members.iter().for_each(|member| member.fail(broken.error));
        self.fail_outstanding(broken.error);
        members.iter().for_each(|member| member.status.report(errors, &broken.reason));
    }

    /// Whether an operation that was blocked on this can be repeated.
    pub(crate) fn has(&self, on: BlockedOn) -> bool {
        match on {
            BlockedOn::Slot => self.channel.rings.sender.has_room().unwrap_or(true),
            BlockedOn::Block(place) => self.channel.rings.sender.has_block(place),
            BlockedOn::Window => self.emulation().has_room(),
            BlockedOn::Response => self.emulation().has_answer(),
            BlockedOn::Fence => !self.has_outstanding(),
            BlockedOn::Welcome => self.channel.peer().is_some(),
            BlockedOn::Segment(key) => !self.channel.waits_for_segment(key),
            BlockedOn::BrokenChannel => true,
        }
    }

    /// Notes that an operation was blocked.
    pub(crate) fn set_blocked(&self) {
        self.is_blocked.set(true);
    }

    /// Whether requests are pending.
    pub(crate) fn has_pending(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Notes an endpoint that has its first pending request.
    pub(crate) fn add_waiting(&self, member: &Rc<Member>) {
        self.waiting.borrow_mut().push(Rc::downgrade(member));
    }

    /// Runs the pending requests of the endpoints in turn. An endpoint that is blocked on what all endpoints share ends the round, and is
    /// the first one in the next round. An endpoint that waits for something of its own delays no other endpoint.
    pub(crate) fn serve_pending(&self) -> u32 {
        self.waiting.borrow_mut().retain(|member| {
            let member = member.upgrade().filter(|member| !member.group.is_empty());
            member.is_some_and(|member| {
                self.pending.schedule(&member.group);
                true
            })
        });
        self.is_blocked.set(false);
        self.pending
            .dispatch_by(|| if self.is_blocked.take() { Blocked::Interface } else { Blocked::Endpoint })
    }

    /// Goes on with operations of the peer's and of this side that wait for room.
    pub(crate) fn resume(&self) {
        if let Some(emulation) = self.emulation.get().filter(|emulation| emulation.has_work()) {
            emulation.resume(&self.channel);
        }
    }
}
