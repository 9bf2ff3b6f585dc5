//! Flushes of an interface: each waits for what every connection had sent when it began.

use std::cell::RefCell;
use std::rc::Rc;

use uct_plugin::{Completion, Flush, Outcome, Result};

use super::conn::{Conn, Mark};
use super::table::ConnTable;

/// The flushes that go on.
#[derive(Default)]
pub(crate) struct Flushes(RefCell<Vec<Pending>>);

/// A flush: where each connection was when it began.
struct Pending {
    open: Vec<(Rc<Conn>, Mark)>,
    completion: Completion,
}

impl Flushes {
    /// Flushes every connection.
    pub(crate) fn start(
        &self,
        conns: &ConnTable,
        flags: Flush,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let mut open = Vec::new();
        for conn in conns.all() {
            if conn.flush(flags, None)? == Outcome::InProgress {
                let mark = conn.mark();
                open.push((conn, mark));
            }
        }
        if open.is_empty() {
            return Ok(Outcome::Done);
        }
        if let Some(completion) = completion {
            self.0.borrow_mut().push(Pending { open, completion });
        }
        Ok(Outcome::InProgress)
    }

    /// Whether none goes on.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Completes those whose messages have all arrived.
    #[cold]
    pub(crate) fn serve(&self, conns: &ConnTable) {
        let mut flushes = std::mem::take(&mut *self.0.borrow_mut());
        let mut done = Vec::new();
        let mut index = 0;
        while index < flushes.len() {
            flushes[index].open.retain(|(conn, mark)| {
                let is_gone = conns.get(conn.connection).is_none_or(|now| !Rc::ptr_eq(&now, conn));
                !is_gone && !conn.is_over() && conn.reached(*mark).is_none()
            });
            if flushes[index].open.is_empty() {
                done.push(flushes.swap_remove(index));
            } else {
                index += 1;
            }
        }
        self.0.borrow_mut().append(&mut flushes);
        done.into_iter().for_each(|flush| flush.completion.complete(Ok(())));
    }
}
