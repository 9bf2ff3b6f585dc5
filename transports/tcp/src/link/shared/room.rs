//! Room for connections that peers open, and for large messages that arrive.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ucs::admission::{Limits, Source, Vacancy};
use ucs::clock::Deadline;
use ucs::sys::descriptors;

use super::Shared;
use crate::link::announced::{Room, SEARCH_AGAIN};
use crate::link::conn_id::ConnId;

/// For large messages.
impl Shared {
    /// Takes room for a large message of which the rest is to come. Where there is none the connection waits: progress goes on with it
    /// (`Conn::on_room`).
    pub(crate) fn ask_for_room(&self, conn: ConnId, source: Source, bytes: usize) -> Option<Room> {
        let room = self.announced.borrow_mut().ask(conn, source, bytes);
        if room.is_none() {
            // It may be its turn already, ahead of those whose source has too much.
            self.agenda.note_busy();
            self.timers.want_tick(Deadline::after(SEARCH_AGAIN));
        }
        room
    }

    /// A large message is complete, or has failed.
    pub(crate) fn give_room(&self, room: Room) {
        let mut announced = self.announced.borrow_mut();
        announced.give(room);
        if announced.has_waiting() {
            self.agenda.note_busy();
        }
    }

    /// A connection that waits for room has ended.
    pub(crate) fn stop_waiting(&self, conn: ConnId, source: Source) {
        let mut announced = self.announced.borrow_mut();
        announced.stop_waiting(conn, source);
        if announced.has_waiting() {
            self.agenda.note_busy();
        }
    }

    /// Another connection waits for what this one waited for, with its socket.
    pub(crate) fn wait_instead(&self, conn: ConnId, source: Source, instead: ConnId) {
        self.announced.borrow_mut().wait_instead(conn, source, instead);
    }

    /// The next connection whose message begins now, with its room.
    pub(crate) fn next_room(&self) -> Option<(ConnId, Room)> {
        self.announced.borrow_mut().serve()
    }

    /// Begins a search for connections that hold room which others need, and send nothing. Otherwise: when to search again.
    pub(crate) fn begin_search_for_room(&self, now: u64) -> Result<(), Deadline> {
        self.announced.borrow_mut().begin_search(now)
    }

    /// When to look again, behind a search.
    pub(crate) fn next_search_for_room(&self) -> Deadline {
        self.announced.borrow().next_search()
    }

    /// Whether others wait for room that a source has.
    pub(crate) fn is_room_needed(&self, source: Source) -> bool {
        self.announced.borrow().is_needed(source)
    }
}

/// The limits of `max_connections` and `max_connections_per_source`.
pub(super) fn limits(most: u32, most_of_source: u32) -> Limits {
    let most = if most == 0 { descriptors::limit() / 8 * 7 } else { most as usize };
    Limits::new(most, most_of_source as usize)
}

/// For connections. A connection that carried something is never ended for another one: a peer that is idle keeps its own. One that carried
/// nothing behind its handshake, for long enough, is.
impl Shared {
    /// Whether there is room for one more connection of a source, and which of those older than `age` has to go for it.
    pub(crate) fn vacancy(
        &self,
        address: IpAddr,
        lacks_descriptors: bool,
        age: Duration,
        is_unused: impl FnMut(ConnId) -> bool,
    ) -> Vacancy<ConnId> {
        let at = (Instant::now(), age);
        self.accepted.borrow_mut().ask(Source::of(address), lacks_descriptors, at, is_unused)
    }

    /// Counts a connection of this side that no endpoint uses any more. False: its peer has as many as it may.
    pub(crate) fn leave_to_peer(&self, conn: ConnId, source: Source) -> bool {
        let mut accepted = self.accepted.borrow_mut();
        if accepted.contains(conn) {
            return true;
        }
        let has_room = !accepted.is_at_limit(source);
        if has_room {
            accepted.add(conn, source, Instant::now());
        }
        has_room
    }

    /// An endpoint uses a connection of this side again, or a connection has ended: it is not counted any more.
    pub(crate) fn stop_counting(&self, conn: ConnId) {
        self.accepted.borrow_mut().remove(conn);
    }

    /// A connection that a peer opened goes on as another one, and counts as before.
    pub(crate) fn note_taken_over(&self, conn: ConnId, instead: ConnId) {
        self.accepted.borrow_mut().rename(conn, instead);
    }

    pub(crate) fn note_accepted(&self, conn: ConnId, address: IpAddr) {
        self.accepted.borrow_mut().add(conn, Source::of(address), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_one_source_cannot_take_all() {
        let limits = limits(0, 0);
        assert!(limits.most < descriptors::limit() && limits.most_of_source < limits.most);
        assert!(limits.most > descriptors::limit() / 4 * 3, "most of the descriptors are for connections");
    }
}
