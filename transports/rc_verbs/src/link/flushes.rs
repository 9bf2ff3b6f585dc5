//! Flushes of a whole interface: each waits for connections, and for the number of the last work request of each.

use uct_plugin::{Completion, Error, Flush, FlushSet, Outcome, Result};

use crate::link::agenda::Agenda;
use crate::link::table::ConnTable;

/// The flushes that have not ended.
pub(crate) type Flushes = FlushSet<(u32, u32)>;

/// Flushes every connection.
pub(crate) fn start(
    flushes: &Flushes,
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
    let outcome = flushes.begin(waits, completion);
    check_again(flushes, agenda);
    Ok(outcome)
}

/// Completes the flushes that have nothing to wait for any more.
pub(crate) fn end(flushes: &Flushes, conns: &ConnTable, agenda: &Agenda) {
    flushes.end(|&(index, number)| (!is_waited_for(conns, index, number)).then_some(Ok(())));
    check_again(flushes, agenda);
}

/// Every progress checks them, which is where flushes end.
fn check_again(flushes: &Flushes, agenda: &Agenda) {
    if !flushes.is_empty() {
        agenda.add_work();
    }
}

fn is_waited_for(conns: &ConnTable, index: u32, number: u32) -> bool {
    conns.get(index).is_some_and(|ep| !ep.queue.has_ended(number) || !ep.emulated.borrow().is_empty())
}
