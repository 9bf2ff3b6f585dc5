//! Flushes of an interface: each waits for what every connection had sent when it began.

use std::rc::Rc;

use uct_plugin::{Completion, Flush, FlushSet, Outcome, Result};

use super::conn::{Conn, Mark};
use super::table::ConnTable;

/// The flushes that have not ended. Each waits for connections, up to the mark of each.
pub(crate) type Flushes = FlushSet<(Rc<Conn>, Mark)>;

/// Flushes every connection.
pub(crate) fn start(
    flushes: &Flushes,
    conns: &ConnTable,
    flags: Flush,
    completion: Option<Completion>,
) -> Result<Outcome> {
    let mut waits = Vec::new();
    for conn in conns.all() {
        if conn.flush(flags, None)? == Outcome::InProgress {
            let mark = conn.mark();
            waits.push((conn, mark));
        }
    }
    Ok(flushes.begin(waits, completion))
}

/// Completes those whose messages have all arrived.
#[cold]
pub(crate) fn end(flushes: &Flushes, conns: &ConnTable) {
    flushes.end(|(conn, mark)| {
        let is_gone = conns.get(conn.connection).is_none_or(|now| !Rc::ptr_eq(&now, conn));
        let has_ended = is_gone || conn.is_over() || conn.reached(*mark).is_some();
        has_ended.then_some(Ok(()))
    });
}
