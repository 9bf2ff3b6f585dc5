//! Connections that have something to send, for the engine to see to when no transport is on the stack.

use std::cell::RefCell;
use std::rc::Rc;

use super::reactor::Reactor;
use crate::proto::envelope::Token;

/// What connections note, and the engine works off.
pub(crate) struct Agenda {
    due: RefCell<Vec<Token>>,
    reactor: Rc<Reactor>,
}

impl Agenda {
    pub(crate) fn new(reactor: Rc<Reactor>) -> Agenda {
        Agenda { due: RefCell::default(), reactor }
    }

    /// The connection has something to send. It is listed once until it was served.
    pub(crate) fn add(&self, token: Token) {
        self.due.borrow_mut().push(token);
        self.reactor.rouse();
    }

    /// Something was sent: the transport may have to make progress for it.
    pub(crate) fn rouse(&self) {
        self.reactor.rouse();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.borrow().is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Token> {
        std::mem::take(&mut *self.due.borrow_mut())
    }
}
