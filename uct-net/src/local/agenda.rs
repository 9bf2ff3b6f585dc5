//! What the engine does when no transport is on the stack: connections that have something to send, tasks to wake, whose wakers are code
//! of the application, and ends of connections that wait for the messages that arrived before.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use smallvec::SmallVec;
use ucs::memory::fork::Forked;

use super::reactor::Reactor;
use crate::proto::envelope::Token;
use crate::wake::wake;

/// Most passes that an end waits, while the transports go on delivering: enough for the longest receive queue of `rc_verbs`.
const MOST_PASSES: u32 = 4096;

/// An end of a connection.
struct End {
    passes: u32,
    report: Box<dyn FnOnce()>,
}

/// What connections note, and the engine works off.
pub(crate) struct Agenda {
    /// Each pass looks at this alone.
    is_empty: Cell<bool>,
    due: RefCell<Vec<Token>>,
    /// Memory for the next list of them.
    spare: Cell<Vec<Token>>,
    ends: RefCell<Vec<End>>,
    woken: RefCell<SmallVec<[Waker; 1]>>,
    reactor: Rc<Reactor>,
}

impl Agenda {
    pub(crate) fn new(reactor: Rc<Reactor>) -> Agenda {
        let (due, ends, woken) = (RefCell::default(), RefCell::default(), RefCell::default());
        Agenda { is_empty: Cell::new(true), due, spare: Cell::default(), ends, woken, reactor }
    }

    /// Whether this is the process that has the connections, and not a child of a fork.
    pub(crate) fn check_fork(&self) -> Result<(), Forked> {
        self.reactor.check_fork()
    }

    /// The connection has something to send. It is listed once until it was served.
    pub(crate) fn add(&self, token: Token) {
        self.due.borrow_mut().push(token);
        self.is_empty.set(false);
        self.reactor.rouse();
    }

    /// Something was sent: the transport may have to make progress for it.
    pub(crate) fn rouse(&self) {
        self.reactor.rouse();
    }

    /// Has the engine wake these tasks. May be called inside a transport.
    pub(crate) fn wake_later(&self, wakers: impl IntoIterator<Item = Waker>) {
        let mut woken = self.woken.borrow_mut();
        woken.extend(wakers);
        if !woken.is_empty() {
            drop(woken);
            self.is_empty.set(false);
            self.reactor.rouse();
        }
    }

    /// As [`Agenda::wake_later`], of a list that is not empty.
    pub(crate) fn wake_all_later(&self, mut wakers: SmallVec<[Waker; 1]>) {
        let mut woken = self.woken.borrow_mut();
        if woken.is_empty() {
            *woken = wakers;
        } else {
            woken.append(&mut wakers);
        }
        drop(woken);
        self.is_empty.set(false);
        self.reactor.rouse();
    }

    /// Wakes them. Not to be called inside a transport.
    pub(crate) fn wake(&self) {
        let woken = std::mem::take(&mut *self.woken.borrow_mut());
        for waker in woken {
            wake(waker);
        }
    }

    /// Has the engine call `report` when the transports have delivered what has arrived. May be called inside a transport.
    pub(crate) fn end_later(&self, report: impl FnOnce() + 'static) {
        self.ends.borrow_mut().push(End { passes: 0, report: Box::new(report) });
        self.is_empty.set(false);
        self.reactor.rouse();
    }

    pub(crate) fn has_ends(&self) -> bool {
        !self.ends.borrow().is_empty()
    }

    /// Reports the ends, or if the transports may have something left (`is_drained` is false) those that have waited long enough.
    /// Not to be called inside a transport.
    pub(crate) fn report_ends(&self, is_drained: bool) {
        let due: Vec<End> = self
            .ends
            .borrow_mut()
            .extract_if(.., |end| {
                end.passes += 1;
                is_drained || end.passes > MOST_PASSES
            })
            .collect();
        for end in due {
            (end.report)();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.get()
    }

    /// The engine has worked it off; what has come meanwhile is for the next pass.
    pub(crate) fn settle(&self) {
        let is_empty = self.due.borrow().is_empty() && self.woken.borrow().is_empty() && !self.has_ends();
        self.is_empty.set(is_empty);
    }

    /// The connections that are due, for one pass: those that become due meanwhile are for the next one.
    pub(crate) fn take(&self) -> Vec<Token> {
        self.due.replace(self.spare.take())
    }

    /// Takes the list back, for its memory.
    pub(crate) fn give_back(&self, mut list: Vec<Token>) {
        list.clear();
        self.spare.set(list);
    }
}
