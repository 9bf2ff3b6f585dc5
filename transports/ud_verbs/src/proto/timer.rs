//! Deadlines: retransmission, delayed acknowledgement, giving up, keepalive, the end of closing.
//!
//! Built on `table` and `connection`; the interface calls it from its timer and when it has nothing else to do.

use super::connection::{ConnectionId, Failure, Handles, Phase};
use super::table::{Event, Table};
use super::time::Time;

/// A process that handles a deadline so late, in nanoseconds, was suspended, and has not received what peers sent meanwhile.
const ASLEEP: u64 = 1_000_000_000;

/// Connections that one call examines at most; the next one goes on with the others. It takes less than a tick of the interface's timer.
const EXAMINED: usize = 4096;

/// Connections that are examined for an exact deadline; of more, the time of the first is known to a slot of the wheel.
const EXACT: usize = 64;

/// Timeouts in a row after which the window is made small.
const SILENT: u8 = 3;

impl<T: Handles> Table<T> {
    /// When [`Table::handle_timeout`] is to be called; [`Time::NEVER`] if nothing is awaited. Calls to the table may
    /// bring it forward. Being late harms only speed.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.wheel.earliest().min(self.keepalive.at())
    }

    /// As [`Table::next_timeout`], but what has been acknowledged since does not count any more. Examines the connections that would be
    /// examined next, until it finds one for which something is due then.
    pub fn refresh_timeout(&mut self) -> Time {
        while let Some((start, are_all)) = self.wheel.take_first(EXACT) {
            let earliest = self.examine_taken(usize::MAX, |_, _| ());
            if !are_all {
                break;
            }
            if self.wheel.refresh() == start {
                return earliest.min(self.keepalive.at());
            }
        }
        self.wheel.refresh().min(self.keepalive.at())
    }

    /// Sends delayed acknowledgements at once, because no packet that could carry them is to be expected: the
    /// caller goes to sleep.
    pub fn acknowledge_now(&mut self, now: Time) {
        // None waits longer.
        self.wheel.take_until(now.plus(self.timing.ack_delay));
        self.examine_taken(usize::MAX, |table, id| {
            let connection = &mut table.connections[id.index()];
            if connection.deadlines.ack != Time::NEVER {
                connection.deadlines.ack = Time::NEVER;
                connection.due.ack = true;
                table.schedule_output(id);
            }
        });
        self.wheel.refresh();
    }

    /// The interface has taken so many datagrams from the device at a time, and more may wait there.
    #[inline]
    pub fn note_backlog(&mut self, datagrams: u32, is_more: bool) {
        self.backlog.note(datagrams, is_more);
    }

    /// Handles all deadlines that have passed, unless datagrams wait that have to be received first. What is to be sent then comes from
    /// [`Table::poll_transmit`].
    pub fn handle_timeout(&mut self, now: Time) {
        let due = self.next_timeout();
        if now < due {
            return;
        }
        let checked_at = std::mem::replace(&mut self.checked_at, now);
        if now.since(due.max(checked_at)) > ASLEEP {
            self.awake_since = now;
        }
        if self.backlog.puts_off(self.settings.receives) {
            return;
        }
        self.keep_alive(now);
        self.wheel.advance(now);
        self.examine_taken(EXAMINED, |table, id| table.expire(now, id));
        self.wheel.refresh();
    }

    /// Examines up to `most` of the connections that were taken out of the wheel, and puts them where their deadlines are; returns the
    /// earliest of these.
    fn examine_taken(&mut self, most: usize, mut examine: impl FnMut(&mut Table<T>, ConnectionId)) -> Time {
        let mut earliest = Time::NEVER;
        for _ in 0..most {
            let Some(index) = self.wheel.pop() else { break };
            let id = ConnectionId(index);
            self.counters.examined += 1;
            examine(self, id);
            let connection = &mut self.connections[id.index()];
            let deadline = connection.deadlines.earliest();
            connection.examine_at(&mut self.wheel, id, deadline);
            earliest = earliest.min(deadline);
        }
        earliest
    }

    /// Handles one connection's deadlines.
    fn expire(&mut self, now: Time, id: ConnectionId) {
        let deadlines = self.connections[id.index()].deadlines;
        if deadlines.earliest() > now {
            return;
        }
        if deadlines.end <= now {
            self.finish_closing(now, id);
            return;
        }
        if deadlines.ack <= now {
            let connection = &mut self.connections[id.index()];
            connection.deadlines.ack = Time::NEVER;
            connection.due.ack = true;
            self.schedule_output(id);
        }
        if deadlines.loss <= now {
            self.detect_losses(now, id);
        }
        if deadlines.retransmit <= now {
            self.overdue(now, id);
        }
    }

    /// The time to close, or to linger, has passed.
    fn finish_closing(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        connection.deadlines.end = Time::NEVER;
        match connection.phase {
            Phase::Unconnected | Phase::Connecting | Phase::Connected => self.abort(now, id),
            Phase::Finished | Phase::Failed(_) | Phase::Aborted => self.events.push_back(Event::Over(id)),
        }
    }

    /// A response has not arrived in time.
    fn overdue(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if connection.sender.resume() {
            self.events.push_back(Event::Ready(id));
        }
        if std::mem::take(&mut connection.is_expected) {
            connection.is_probing |= connection.last_received <= connection.waiting_since;
        }
        if !connection.is_waiting() {
            connection.deadlines.retransmit = Time::NEVER;
            return;
        }
        let silent_since = connection.last_received.max(connection.waiting_since).max(self.awake_since);
        if now.since(silent_since) >= self.timing.give_up {
            self.fail(now, id, Failure::Silent);
            return;
        }
        self.counters.timeouts += 1;
        connection.attempts = connection.attempts.saturating_add(1);
        // Many peers may wait for one that can receive few requests at a time, so the wait is not doubled.
        let part = if connection.phase == Phase::Connecting { 4 } else { 2 };
        let grow = |wait: u64, _| (wait + wait / part).min(self.timing.maximum);
        let wait = connection.spread((0..connection.attempts).fold(connection.first_wait(), grow));
        connection.due.connect = connection.phase == Phase::Connecting;
        let is_resent = connection.sender.presume_lost() && !connection.is_probing;
        connection.due.ping = connection.is_connected() && !is_resent;
        if connection.attempts == SILENT {
            connection.sender.on_silence();
        }
        // Giving up is not put off by the back-off.
        let end = silent_since.plus(self.timing.give_up);
        connection.deadlines.retransmit = now.plus(wait).min(end).max(now.plus(1));
        self.schedule_output(id);
    }

    /// Probes the peers of idle connections, those whose turn it is.
    fn keep_alive(&mut self, now: Time) {
        let places = if self.is_empty() { 0 } else { self.connections.len() };
        for index in self.keepalive.advance(now, places).into_iter().flatten() {
            self.counters.examined += 1;
            let connection = &self.connections[index];
            let is_idle = connection.is_connected() && !connection.is_waiting() && !connection.is_expected;
            if is_idle && now.since(connection.last_received) >= self.keepalive.idle_limit() {
                self.probe(now, ConnectionId(index as u32));
            }
        }
    }
}
