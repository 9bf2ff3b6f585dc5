//! Progress: receives messages and does pending work.
//!
//! Used by the host's worker. Built on the interface. An idle call takes a few instructions for any number of peers: it increments a
//! counter and reads one word of shared memory, the next slot of the ring that had the last message. The doorbell is polled once in
//! [`SLOW_PATH_INTERVAL`] calls, or in each call if no ring is active. Sockets are polled once in `poll_interval` calls, which are an epoch.
//! Where calls are rare, both come after a time instead (`Schedule`).

use std::rc::Rc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::event_set::EventBuffer;
use uct_plugin::Error;

use crate::iface::{HALF_OPEN, LISTENER, ShmIface, TIMER};
use crate::link::connection::Connection;
use crate::link::work::source;
use crate::proto::ring::publish_idle;
use crate::proto::schedule::{LINE_INTERVAL, SLOW_PATH_INTERVAL};

/// Epochs without a message after which a ring becomes idle.
const IDLE_EPOCHS: u32 = 2;
/// Idle rings that are checked in each epoch, in case another peer has overwritten the doorbell. As many connections are checked for memory
/// that they do not need any more.
const RESCAN_BATCH: usize = 4;
/// How long a sleeping interface waits until it checks whether a peer has made room in a ring.
const ROOM_WAIT: Duration = Duration::from_millis(2);
/// Messages that are received from one socket in one round.
const CONTROLS: usize = 16;

impl ShmIface {
    /// One call of progress.
    #[inline]
    pub(crate) fn advance(&self) -> u32 {
        if self.schedule.count_call() {
            return self.slow_path();
        }
        // SAFETY: `watch` points into the memory of the first active channel, or to the doorbell (`watch_first`).
        if !unsafe { self.watch.get().has_news() } {
            return 0;
        }
        self.receive()
    }

    /// Checks for pending work, the doorbell and the end of the epoch. If there is none of these, polls the only active ring and its line.
    #[inline(never)]
    fn slow_path(&self) -> u32 {
        if self.is_working.get() {
            return 0;
        }
        if self.schedule.look() || !self.work.is_empty() || self.doorbell.has_rung() {
            return self.work();
        }
        let active = self.active.borrow();
        self.schedule.set_slow_path(interval(&active));
        let Some(first) = active.first() else {
            self.watch.set(self.doorbell.watch());
            return 0;
        };
        if first.channel.rings.has_message() {
            drop(active);
            return self.receive();
        }
        self.watch.set(first.channel.rings.watch());
        0
    }

    /// Receives from the only active ring, because the watched word has changed. Without an active ring that is the doorbell.
    #[inline(never)]
    fn receive(&self) -> u32 {
        if self.is_working.replace(true) {
            return 0;
        }
        // Borrowed while handlers run: only `work` changes the list, which does not run in a handler, and the interface's end.
        let active = self.active.borrow();
        let Some(connection) = active.first() else {
            drop(active);
            return self.work();
        };
        let limit = self.schedule.limit(self.max_poll);
        let shorts = connection.channel.receive_shorts(&self.handlers, limit);
        let count = if shorts > 0 {
            shorts
        } else {
            self.drained(connection, connection.receive_others(&self.handlers, limit))
        };
        if count > 0 {
            self.schedule.received(count);
        }
        if 1 < shorts && shorts < limit {
            self.watch.set(self.doorbell.watch());
            self.schedule.back_off();
        } else {
            self.watch.set(connection.channel.rings.watch());
        }
        self.is_working.set(false);
        count
    }

    /// The slow path when work may be pending.
    #[inline(never)]
    fn work(&self) -> u32 {
        self.is_working.set(true);
        if self.doorbell.has_rung() {
            self.poll_doorbell();
        }
        let mut events = self.poll_active();
        if self.work.has(!source::SEVERAL_ACTIVE) {
            events += self.do_pending_work();
        }
        if events > 0 {
            self.schedule.received(events);
        }
        if self.schedule.is_epoch_due() {
            events += self.begin_epoch();
        }
        self.rewatch();
        self.is_working.set(false);
        events
    }

    /// Polls the active rings.
    fn poll_active(&self) -> u32 {
        let mut events = 0;
        let mut index = 0;
        loop {
            // No borrow is held, because handlers run in the loop.
            let Some(connection) = self.active.borrow().get(index).cloned() else { return events };
            if connection.channel.rings.has_message() {
                events += self.drained(&connection, connection.receive(&self.handlers, self.max_poll));
            }
            index += 1;
        }
    }

    /// So many messages of one peer were received.
    fn drained(&self, connection: &Connection, count: u32) -> u32 {
        if count > 0 {
            self.received(connection);
        }
        count
    }

    /// Notes that a peer has sent messages.
    fn received(&self, connection: &Connection) {
        connection.epoch.set(self.epoch.get());
        if connection.channel.rings.receiver.is_idle() {
            connection.channel.rings.receiver.set_active();
        }
    }

    /// Starts to poll the rings whose bit in the doorbell is set.
    fn poll_doorbell(&self) {
        let mut rung = Vec::new();
        self.doorbell.take(|number| rung.push(number));
        for number in rung {
            // Channels with higher numbers share a bit.
            let mut index = number as usize;
            while index < self.table.numbers() {
                if let Some(connection) = self.table.get(index) {
                    self.start_polling(&connection);
                }
                index += crate::iface::DOORBELL_BITS;
            }
        }
    }

    /// Makes a ring active.
    pub(crate) fn start_polling(&self, connection: &Rc<Connection>) {
        // A ring that is active alone does not note its epoch for each message.
        for other in &*self.active.borrow() {
            other.epoch.set(self.epoch.get());
        }
        self.received(connection);
        if !connection.is_active.replace(true) {
            self.active.borrow_mut().push(Rc::clone(connection));
        }
    }

    /// Chooses the word to watch, and the next slow path.
    fn rewatch(&self) {
        if self.active.borrow().len() > 1 {
            self.work.raise(source::SEVERAL_ACTIVE);
        } else {
            self.work.lower(source::SEVERAL_ACTIVE);
        }
        let interval = if self.work.is_empty() { interval(&self.active.borrow()) } else { 1 };
        self.schedule.set_slow_path(interval);
        self.watch_first();
    }

    /// Does the pending work, except polling several rings.
    #[inline(never)]
    fn do_pending_work(&self) -> u32 {
        let mut events = 0;
        if self.work.has(source::CHANNEL | source::ROOM) {
            self.work.lower(source::CHANNEL | source::ROOM);
            events += self.serve_channels();
        }
        if self.work.has(source::PENDING) {
            events += self.serve_pending();
            if self.waiting.borrow().is_empty() {
                self.work.lower(source::PENDING);
            }
        }
        if self.work.has(source::FLUSH) && self.is_flushed() {
            self.work.lower(source::FLUSH);
            self.flushes.end(|()| Some(Ok(())));
        }
        events
    }

    /// Runs pending requests.
    fn serve_pending(&self) -> u32 {
        let connections = self.waiting.take();
        self.is_serving.set(true);
        let served = connections.iter().map(|connection| connection.serve_pending()).sum();
        self.is_serving.set(false);
        // Connections that got new requests in the meantime are in the list already.
        let mut waiting = self.waiting.borrow_mut();
        for connection in connections {
            if connection.has_pending() && !waiting.iter().any(|other| Rc::ptr_eq(other, &connection)) {
                waiting.push(connection);
            }
        }
        served
    }

    /// Resumes operations that wait for room, and reaps broken channels.
    fn serve_channels(&self) -> u32 {
        let mut events = 0;
        for connection in self.table.all() {
            let channel = &connection.channel;
            if channel.shares.get() != 0 {
                self.share_line(channel);
            }
            channel.populate();
            connection.resume();
            if channel.is_closed.get() && channel.broken().is_none() {
                events += self.drain_closed(&connection);
            }
            if channel.broken().is_some() {
                self.reap(&connection);
                events += 1;
            }
        }
        events
    }

    /// Receives the messages that a peer sent before it closed or died.
    fn drain_closed(&self, connection: &Connection) -> u32 {
        let channel = &connection.channel;
        let events = self.drained(connection, connection.receive(&self.handlers, self.max_poll));
        if events == 0 {
            let who = channel.describe();
            channel.set_broken(Error::CONNECTION_RESET, format!("{who} has closed its interface or died"));
        } else {
            channel.raise();
        }
        events
    }

    /// Begins an epoch: stops polling idle rings, rescans some idle rings, polls sockets.
    fn begin_epoch(&self) -> u32 {
        self.schedule.set_epoch(self.poll_interval);
        self.epoch.set(self.epoch.get().wrapping_add(1));
        self.stop_polling_idle();
        self.rescan();
        self.trim_some();
        self.poll_sockets()
    }

    /// Stops polling rings without recent messages, except the one with the latest message.
    ///
    /// In two steps: a ring is marked idle in one epoch, and is polled until a later one. A message that was being sent meanwhile is
    /// therefore received, without a barrier on either side.
    fn stop_polling_idle(&self) {
        let epoch = self.epoch.get();
        let mut active = self.active.borrow_mut();
        if active.len() < 2 {
            return;
        }
        let age = |connection: &Rc<Connection>| epoch.wrapping_sub(connection.epoch.get());
        let Some(latest) = active.iter().min_by_key(|connection| age(connection)).map(Rc::clone) else {
            return;
        };
        active.retain(|connection| {
            let age = age(connection);
            if Rc::ptr_eq(connection, &latest) || age < IDLE_EPOCHS || connection.channel.rings.has_message()
            {
                return true;
            }
            if !connection.channel.rings.receiver.is_idle() {
                connection.channel.rings.receiver.set_idle();
                return true;
            }
            connection.is_active.set(false);
            false
        });
    }

    /// Checks a few idle rings, because another peer may have cleared a bit in the doorbell.
    fn rescan(&self) {
        if self.table.len() == self.active.borrow().len() {
            return;
        }
        for _ in 0..RESCAN_BATCH {
            let next = self.rescanned.get() + 1;
            self.rescanned.set(if next >= self.table.numbers() { 0 } else { next });
            if let Some(connection) = self.table.get(self.rescanned.get())
                && !connection.is_active.get()
                && connection.channel.rings.has_message()
            {
                self.start_polling(&connection);
            }
        }
    }

    /// Gives back what a few connections do not need any more, and segments of peers.
    fn trim_some(&self) {
        self.cache.trim(self.trim_timeout);
        for _ in 0..RESCAN_BATCH.min(self.table.len()) {
            let next = self.trimmed.get() + 1;
            self.trimmed.set(if next >= self.table.numbers() { 0 } else { next });
            if let Some(connection) = self.table.get(self.trimmed.get()) {
                connection.channel.trim(self.trim_timeout);
            }
        }
    }

    /// Accepts connections and receives messages from sockets. Returns the number of events.
    pub(crate) fn poll_sockets(&self) -> u32 {
        let mut buffer = EventBuffer::<16>::new();
        let Ok(events) = self.events.wait(&mut buffer, Some(Duration::ZERO)) else { return 0 };
        let mut count = 0;
        // Both listening sockets are served at once.
        let mut is_knocked = false;
        let tokens: Vec<u64> = events.map(|event| event.data).collect();
        for token in tokens {
            count += match token {
                LISTENER => {
                    is_knocked = true;
                    0
                }
                TIMER => {
                    self.tick();
                    0
                }
                token if token & HALF_OPEN != 0 => self.take_hello((token & !HALF_OPEN) as usize),
                token => self.read_socket(token as usize),
            };
        }
        if is_knocked {
            count += self.accept_peers();
        }
        count
    }

    fn read_socket(&self, number: usize) -> u32 {
        let Some(connection) = self.table.get(number) else { return 0 };
        let channel = &connection.channel;
        let knew = channel.peer().is_some();
        for _ in 0..CONTROLS {
            // Messages that are left stay readable, and keep the interface from sleeping.
            if channel.broken().is_some() || !channel.receive_control(self.identity.trust) {
                break;
            }
        }
        // The message of a wake-up is in this ring, even if another peer has overwritten the doorbell.
        if !connection.is_active.get() && channel.rings.has_message() {
            self.start_polling(&connection);
            self.raise(source::SEVERAL_ACTIVE);
        }
        if channel.is_closed.get()
            && let Some(socket) = channel.socket()
        {
            // Otherwise it would be reported until the channel is reaped.
            let _ = self.events.remove(socket);
        }
        // A wake-up alone is not an event: its message is in a ring.
        u32::from(channel.is_closed.get() || channel.broken().is_some() || knew != channel.peer().is_some())
    }

    /// Marks all rings idle, arms the doorbell and polls once more. Returns whether the interface may sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        for connection in self.active.borrow().iter() {
            connection.channel.rings.receiver.set_idle();
        }
        self.doorbell.arm();
        // Without connections no other process has the doorbell.
        if self.table.len() > 0 {
            publish_idle();
        }
        // A sender from now on finds the rings idle and rings the doorbell, which the next call therefore polls.
        self.schedule.slow_path_within(1);
        let news = self.active.borrow().iter().any(|connection| connection.channel.rings.has_message());
        if news || self.doorbell.has_rung() || self.work.has(source::CHANNEL) {
            self.doorbell.disarm();
            return false;
        }
        if self.work.has(source::ROOM) {
            self.door.want_tick(Deadline::after(ROOM_WAIT));
        }
        if self.table.can_trim() || !self.cache.is_empty() {
            self.door.want_tick(Deadline::after(self.trim_timeout));
        }
        true
    }
}

/// Calls until the next slow path, without pending work.
fn interval(active: &[Rc<Connection>]) -> u32 {
    match active.first() {
        Some(first) if !first.channel.rings.owns_line() => LINE_INTERVAL,
        _ => SLOW_PATH_INTERVAL,
    }
}
