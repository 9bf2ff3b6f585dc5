//! What the engine does when no transport is on the stack: connections that have something to send, and tasks to wake, whose wakers are code
//! of the application.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use smallvec::SmallVec;

use super::reactor::Reactor;
use crate::proto::envelope::Token;

/// What connections note, and the engine works off.
pub(crate) struct Agenda {
    /// Each pass looks at this alone.
    is_empty: Cell<bool>,
    due: RefCell<Vec<Token>>,
    woken: RefCell<SmallVec<[Waker; 1]>>,
    reactor: Rc<Reactor>,
}

impl Agenda {
    pub(crate) fn new(reactor: Rc<Reactor>) -> Agenda {
        Agenda { is_empty: Cell::new(true), due: RefCell::default(), woken: RefCell::default(), reactor }
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

    /// Wakes them. Not to be called inside a transport.
    pub(crate) fn wake(&self) {
        let woken = std::mem::take(&mut *self.woken.borrow_mut());
        for waker in woken {
            waker.wake();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.get()
    }

    /// The engine has worked it off; what has come meanwhile is for the next pass.
    pub(crate) fn settle(&self) {
        self.is_empty.set(self.due.borrow().is_empty() && self.woken.borrow().is_empty());
    }

    pub(crate) fn take(&self) -> Vec<Token> {
        std::mem::take(&mut *self.due.borrow_mut())
    }
}
