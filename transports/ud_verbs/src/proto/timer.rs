//! Deadlines: retransmission, delayed acknowledgement, giving up, keepalive, the end of closing.
//!
//! Built on `table` and `connection`; the interface calls it from its timer and when it has nothing else to do.

use super::connection::{ConnectionId, Failure, Handles, Phase};
use super::table::{Event, Table};
use super::time::Time;

/// A process that handles a deadline so late, in nanoseconds, was suspended, and has not received what peers sent meanwhile.
const ASLEEP: u64 = 1_000_000_000;

/// Timeouts in a row after which the window is made small.
const SILENT: u32 = 3;

impl<T: Handles> Table<T> {
    /// When [`Table::handle_timeout`] wants to be called; [`Time::NEVER`] if nothing is awaited. Calls to the table may
    /// bring it forward. Being late harms only speed.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.earliest
    }

    /// As [`Table::next_timeout`], computed anew: what has been acknowledged since does not count any more. Reads every
    /// connection that had a deadline.
    pub fn refresh_timeout(&mut self) -> Time {
        let next = |&id: &ConnectionId| self.connections[id.index()].deadlines.earliest();
        let earliest = self.timed.iter().map(next).min().unwrap_or(Time::NEVER);
        self.earliest = earliest.min(self.keepalive_at);
        self.earliest
    }

    /// Has acknowledgements that wait for a packet to ride on sent at once, because no packet is to be expected: the
    /// caller goes to sleep.
    pub fn acknowledge_now(&mut self) {
        for index in 0..self.timed.len() {
            let id = self.timed[index];
            let connection = &mut self.connections[id.index()];
            if connection.deadlines.ack != Time::NEVER {
                connection.deadlines.ack = Time::NEVER;
                connection.due.ack = true;
                self.schedule_output(id);
            }
        }
    }

    /// Handles all deadlines that have passed. What is to be sent then comes from [`Table::poll_transmit`].
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.earliest {
            return;
        }
        if now.since(self.earliest) > ASLEEP {
            self.awake_since = now;
        }
        self.earliest = Time::NEVER;
        self.keep_alive(now);
        let mut index = 0;
        while let Some(&id) = self.timed.get(index) {
            let next = self.expire(now, id);
            self.earliest = self.earliest.min(next);
            if next == Time::NEVER {
                self.connections[id.index()].is_timed = false;
                self.timed.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Handles one connection's deadlines; returns its next one.
    fn expire(&mut self, now: Time, id: ConnectionId) -> Time {
        let deadlines = self.connections[id.index()].deadlines;
        if deadlines.earliest() > now {
            return deadlines.earliest();
        }
        if deadlines.end <= now {
            self.finish_closing(now, id);
            return self.connections[id.index()].deadlines.earliest();
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
        self.connections[id.index()].deadlines.earliest()
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
        if !connection.is_waiting() {
            connection.deadlines.retransmit = Time::NEVER;
            return;
        }
        let silent_since = connection.last_heard.max(connection.waiting_since).max(self.awake_since);
        if now.since(silent_since) >= self.timing.give_up {
            self.fail(now, id, Failure::Silent);
            return;
        }
        self.counters.timeouts += 1;
        let backed_off = connection.timeout.checked_shl(connection.attempts.min(32)).unwrap_or(u64::MAX);
        let wait = backed_off.saturating_mul(2).min(self.timing.maximum);
        connection.attempts += 1;
        connection.due.connect = connection.phase == Phase::Connecting;
        connection.due.ping = connection.is_connected();
        if connection.attempts == SILENT {
            connection.sender.on_silence();
        }
        // Giving up is not put off by the back-off.
        let end = silent_since.plus(self.timing.give_up);
        connection.deadlines.retransmit = now.plus(wait).min(end).max(now.plus(1));
        self.schedule_output(id);
    }

    /// Asks the peers of idle connections whether they live.
    fn keep_alive(&mut self, now: Time) {
        let Some(interval) = self.timing.keepalive else { return };
        if now >= self.keepalive_at {
            for id in self.ids().collect::<Vec<_>>() {
                let connection = &self.connections[id.index()];
                let is_idle = connection.is_connected() && !connection.is_waiting();
                if is_idle && now.since(connection.last_heard) >= interval {
                    self.probe(now, id);
                }
            }
            self.keepalive_at = if self.is_empty() { Time::NEVER } else { now.plus(interval / 4) };
        }
        self.earliest = self.earliest.min(self.keepalive_at);
    }
}
