//! Flushes of a whole interface.

use std::cell::RefCell;

use uct_plugin::{Completion, Error, Flush, Outcome, Result};

use crate::link::agenda::Agenda;
use crate::link::table::ConnTable;

/// The flushes that have not ended.
#[derive(Default)]
pub(crate) struct Flushes(RefCell<Vec<IfaceFlush>>);

/// One flush: connections, each with the number of the work request that it waits for.
struct IfaceFlush {
    waits: Vec<(u32, u32)>,
    completion: Completion,
}

impl Flushes {
    /// Flushes every connection.
    pub(crate) fn start(
        &self,
        conns: &ConnTable,
        agenda: &Agenda,
        flags: Flush,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let mut waits = Vec::new();
        for ep in conns.all() {
            match ep.flush_with(flags, None) {
                Ok(Outcome::Done) => {}
                Ok(Outcome::InProgress) => waits.push((ep.index, ep.queue.last())),
                Err(Error::NO_RESOURCE) => return Err(Error::NO_RESOURCE),
                // A failed connection has nothing in flight.
                Err(_) => {}
            }
        }
        if waits.is_empty() {
            return Ok(Outcome::Done);
        }
        if let Some(completion) = completion {
            // Looked at by every progress from now on, which is where flushes end.
            self.0.borrow_mut().push(IfaceFlush { waits, completion });
            agenda.ask();
        }
        Ok(Outcome::InProgress)
    }

    /// Completes the flushes that have nothing to wait for any more.
    pub(crate) fn end(&self, conns: &ConnTable, agenda: &Agenda) {
        if self.0.borrow().is_empty() {
            return;
        }
        let mut ended = Vec::new();
        let mut flushes = self.0.take();
        for mut flush in flushes.drain(..) {
            flush.waits.retain(|&(index, number)| is_waited_for(conns, index, number));
            if flush.waits.is_empty() {
                ended.push(flush.completion);
            } else {
                self.0.borrow_mut().push(flush);
                agenda.ask();
            }
        }
        for completion in ended {
            completion.complete(Ok(()));
        }
    }

    /// Ends all, since the interface closes.
    pub(crate) fn cancel(&self) {
        for flush in self.0.take() {
            flush.completion.complete(Err(Error::CANCELED));
        }
    }
}

fn is_waited_for(conns: &ConnTable, index: u32, number: u32) -> bool {
    conns.get(index).is_some_and(|ep| !ep.queue.has_ended(number) || !ep.emulated.borrow().is_empty())
}
