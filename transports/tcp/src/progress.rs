//! Progress: sends collected frames, delivers received ones, runs what is due.
//!
//! The most recently active connection is polled directly, because a peer that replies immediately is worth a system call. The event set
//! is polled at intervals, and more often when several connections are active. So a round trip costs one send and
//! one receive, and a thousand idle connections cost nothing.

use std::rc::Rc;
use std::time::Duration;

use ucs::Error;
use ucs::clock::{self, Deadline};
use ucs::event_set::{Event, EventBuffer, Events};

use crate::iface::TcpIface;
use crate::link::conn_id::{ConnId, FIRST_TOKEN};
use crate::link::connection::{Conn, State};
use crate::link::half_open::HALF_OPEN;
use crate::link::shared::{LISTENERS, TIMER};

/// Consecutive empty receives after which only the event set watches a connection.
const IDLE_RECEIVES: u32 = 4096;
/// Most receives on the only connection from one poll of the event set to the next.
const SPIN_ALONE: u32 = 16;
/// The same, if there are others.
const SPIN_AMONG: u32 = 4;
/// Events of one system call.
const EVENTS: usize = 16;

impl TcpIface {
    /// One round; returns the number of events that were handled.
    #[inline]
    pub(crate) fn advance(&self) -> u32 {
        self.shared.next_epoch();
        let mut count = 0;
        if self.shared.agenda.is_busy() {
            if self.shared.agenda.is_packing() {
                return 0;
            }
            if self.shared.agenda.is_deepest() {
                self.send_only();
                return 0;
            }
            count += self.housekeep();
        }
        count += self.poll();
        if self.shared.agenda.is_busy_now() {
            count += self.housekeep();
        }
        count
    }

    /// Sends, and runs no handler: handlers that call progress are nested as deep as permitted. Connections that wait for room are served.
    #[cold]
    fn send_only(&self) {
        for conn in self.table.all() {
            if conn.state() == State::Connecting {
                self.go_on_connecting(&conn);
            } else if conn.is_blocked() {
                // One that was without room and has it now is looked after by the next round.
                conn.on_writable(&self.shared);
            } else {
                conn.flush(&self.shared);
            }
        }
    }

    /// Connects, without polling the event set: a handler may wait for the room that an established connection has.
    fn go_on_connecting(&self, conn: &Rc<Conn>) {
        let events = conn.poll_socket();
        if !events.is_empty() {
            self.table.on_connecting(&self.shared, conn, events);
        }
        // Its timer is still set, and due again for the next round.
        conn.tick(&self.shared, clock::ticks(), false);
    }

    #[inline]
    fn poll(&self) -> u32 {
        let Some(conn) = self.table.active() else { return self.poll_events() };
        let received = conn.receive(&self.shared);
        if received.any {
            self.table.set_misses(0);
        } else {
            let misses = self.table.misses() + 1;
            self.table.set_misses(misses);
            if misses >= IDLE_RECEIVES {
                self.table.set_active(None);
            }
        }
        let is_turn = self.spins.is_over(if self.table.has_one() { SPIN_ALONE } else { SPIN_AMONG });
        if is_turn || self.shared.is_blocked() { received.count + self.poll_events() } else { received.count }
    }

    /// Polls the event set and serves ready sockets.
    #[inline(never)]
    fn poll_events(&self) -> u32 {
        let mut left = self.config.max_poll as usize;
        let mut count = 0;
        loop {
            let mut buffer = EventBuffer::<EVENTS>::new();
            let Ok(events) = self.shared.events().wait(&mut buffer, Some(Duration::ZERO)) else {
                return count;
            };
            let ready = events.len();
            for event in events {
                count += self.on_event(event);
            }
            left = left.saturating_sub(ready);
            if ready < EVENTS || left == 0 {
                return count;
            }
        }
    }

    fn on_event(&self, event: Event) -> u32 {
        match event.data {
            TIMER => {
                self.tick();
                0
            }
            listener if listener < TIMER => self.accept((listener - LISTENERS) as usize),
            HALF_OPEN..FIRST_TOKEN => {
                self.on_half_open(event.data);
                1
            }
            token => match self.table.conn(ConnId::of_token(token)) {
                Some(conn) => self.on_conn(&conn, event.events),
                None => 0,
            },
        }
    }

    fn on_conn(&self, conn: &Rc<Conn>, events: Events) -> u32 {
        if conn.state() == State::Connecting {
            self.table.on_connecting(&self.shared, conn, events);
            return 1;
        }
        if events.contains(Events::WRITE) {
            conn.on_writable(&self.shared);
        }
        if events.contains(Events::ERROR) && conn.is_held() {
            conn.fail(&self.shared, Error::CONNECTION_RESET, "the connection was lost");
        }
        if conn.state() == State::Established && events.intersects(Events::READ | Events::ERROR) {
            // Ahead of its handlers: one that calls progress and waits is to get what lies behind its message.
            self.table.set_active(Some(conn));
            self.table.set_misses(0);
        }
        conn.receive(&self.shared).count
    }

    /// Everything but receiving: sends collected frames, runs completions, serves pending requests.
    #[inline(never)]
    pub(crate) fn housekeep(&self) -> u32 {
        self.shared.agenda.inside(|| self.housekeep_inside())
    }

    fn housekeep_inside(&self) -> u32 {
        let (shared, agenda, table) = (&self.shared, &self.shared.agenda, &self.table);
        agenda.clear_busy();
        let mut count = 0;
        while let Some((id, frame)) = agenda.next_response() {
            if let Some(conn) = table.conn(id) {
                conn.append(shared, frame.as_slice());
            }
        }
        while let Some(id) = agenda.next_dirty() {
            if let Some(conn) = table.conn(id) {
                table.look_after(shared, &conn);
            }
        }
        table.serve_announced(shared);
        while let Some(completion) = agenda.next_ended() {
            count += 1;
            completion.complete(Ok(()));
        }
        while let Some(id) = agenda.next_broken() {
            if let Some(conn) = table.conn(id) {
                table.set_active(Some(&conn));
                conn.on_broken(shared);
            }
        }
        while let Some((id, error, reason)) = agenda.next_failing() {
            if let Some(conn) = table.conn(id) {
                conn.fail(shared, error, &reason);
            }
        }
        count += self.serve_pending();
        if !agenda.flushes.is_empty() && !table.has_unfinished() {
            agenda.flushes.end(|()| Some(Ok(())));
        }
        table.forget_over(shared);
        count
    }

    fn serve_pending(&self) -> u32 {
        // Inside a handler: the outer call already serves the queue.
        if self.shared.agenda.is_serving() {
            return 0;
        }
        self.shared.agenda.set_serving(true);
        let mut served = 0;
        // Connections that are still blocked are served in the next round.
        for _ in 0..self.shared.agenda.pending_count() {
            if let Some(conn) = self.shared.agenda.next_pending().and_then(|id| self.table.conn(id)) {
                served += conn.serve(&self.shared);
            }
        }
        self.shared.agenda.set_serving(false);
        served
    }

    /// A deadline has passed.
    fn tick(&self) {
        let timers = &self.shared.timers;
        timers.drain();
        let now = clock::ticks();
        let is_keepalive = timers.next_check().expired_at(now);
        let mut next = self.tick_half_open(now).min(self.table.tick_announced(&self.shared, now));
        for conn in self.table.all() {
            next = next.min(conn.tick(&self.shared, now, is_keepalive));
        }
        if is_keepalive {
            timers.schedule_check();
        }
        if !self.table.is_empty() {
            next = next.min(timers.next_check());
        }
        timers.want_tick(next);
    }

    /// Sends everything that was accepted, until the deadline.
    pub(crate) fn drain(&self) {
        let deadline = Deadline::after(self.config.linger_timeout.to_duration());
        loop {
            self.shared.next_epoch();
            self.housekeep();
            let unfinished = self.table.has_unfinished();
            if !unfinished || deadline.expired() {
                return;
            }
            if self.poll_events() == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Runs progress from inside an operation that blocks, until it has ended.
    pub(crate) fn wait_for(&self, limit: Duration, done: impl Fn() -> bool) -> Result<(), Error> {
        let deadline = Deadline::after(limit);
        let (mut rounds, mut idle) = (0_u32, 0_u32);
        if self.shared.agenda.is_deepest() && !done() {
            // Nothing is received as deep as this.
            return Err(Error::NO_RESOURCE);
        }
        while !done() {
            idle = if self.advance() > 0 { 0 } else { idle + 1 };
            rounds = rounds.wrapping_add(1);
            // However much happens meanwhile.
            if rounds.is_multiple_of(64) && deadline.expired() {
                return Err(Error::TIMED_OUT);
            }
            if idle > 0 && idle.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
