//! Progress: receives messages and does pending work.
//!
//! Used by the host's worker. Built on the interface. An idle call takes a few instructions for any number of peers: it decrements a
//! counter and reads one word of shared memory, the next slot of the ring that had the last message. The doorbell is polled once in
//! [`SLOW_PATH_INTERVAL`] calls, or in each call if no ring is active. Sockets are polled once in `poll_interval` calls, which are an epoch.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::event_set::EventBuffer;
use uct_plugin::{AmRun, Error, guarded};
use zerocopy::IntoBytes;

use crate::iface::{HALF_OPEN, LISTENER, ShmIface, TIMER};
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::schedule::source;
use crate::proto::ring::{BODY_WORDS, Body, Delivery, Message, Place, Short, Watch, settle};

/// Calls from one slow path to the next while a ring is active. The first message on an idle ring waits for half of them on average.
const SLOW_PATH_INTERVAL: u32 = 64;
/// The same while the peer owns the ping-pong line, so that the next message comes in the ring or in the line. One of the two is watched:
/// the one that had the last message, or the line after a message was sent in it. Both are checked at this interval.
const LINE_INTERVAL: u32 = 2;
/// Calls of progress for which a ring is not polled after a burst of messages. Polling takes the cache line that the sender is about to
/// write, and a receiver that is faster than the sender would do so for each message.
const BURST_BACKOFF: u32 = 2;
/// Epochs without a message after which a ring becomes idle.
const IDLE_EPOCHS: u32 = 2;
/// Idle rings that are checked in each epoch, in case another peer has overwritten the doorbell.
const RESCAN_BATCH: usize = 4;
/// How long a sleeping interface waits until it checks whether a peer has made room in a ring.
const ROOM_WAIT: Duration = Duration::from_millis(2);
/// Messages that are received from one socket in one round.
const CONTROLS: usize = 16;
/// Number of message ids of the application. Higher tags belong to the transport.
const AM_IDS: u8 = 32;

impl ShmIface {
    /// One call of progress.
    #[inline(always)]
    pub(crate) fn advance(&self) -> u32 {
        if self.schedule.count_down() { slow_path(self) } else { self.poll_watched() }
    }

    /// Polls the watched word.
    #[inline(always)]
    fn poll_watched(&self) -> u32 {
        // SAFETY: `watch` points to what an active channel receives from, or to the doorbell (`rewatch`).
        if !unsafe { self.watch.get().has_news() } {
            return 0;
        }
        receive(self)
    }

    /// Checks for pending work, the doorbell and the end of the epoch. If there is none of these, polls as every call does.
    fn slow_path(&self) -> u32 {
        let left = self.until_epoch.get().saturating_sub(self.schedule.passed());
        if self.schedule.has(!0) || self.doorbell.has_rung() || left == 0 {
            return self.work();
        }
        self.until_epoch.set(left);
        // The previous call received messages if `received_at` is 1, the count that it left.
        let received_nothing = self.received_at.get() != 1;
        if self.is_backing_off.get()
            && let Some(channel) = self.watched.get()
        {
            // SAFETY: it is active (`watch_channel`).
            self.watch_channel(unsafe { channel.as_ref() });
        }
        let peer_owns_line = self.peer_owns_line.get();
        self.schedule.start(left.min(if peer_owns_line { LINE_INTERVAL } else { SLOW_PATH_INTERVAL }));
        self.received_at.set(if received_nothing { 0 } else { self.schedule.left() + 1 });
        if peer_owns_line && self.has_message_in_either() { receive(self) } else { self.poll_watched() }
    }

    /// Whether a message has arrived in the ring or in the ping-pong line, including the one of the two that is not watched.
    fn has_message_in_either(&self) -> bool {
        // SAFETY: it is active (`watch_channel`).
        self.watched.get().is_some_and(|channel| unsafe { channel.as_ref() }.lane.has_message())
    }

    /// Receives one short message of the watched channel. No other work is pending.
    #[inline(always)]
    fn receive_one(&self) -> u32 {
        self.receive(|channel| {
            let am = self.am;
            // SAFETY: a slice is readable, and nothing writes to a private copy.
            let deliver =
                |short: Short, data: &[u8]| unsafe { am.deliver(short.tag(), data.as_ptr(), data.len()) };
            u32::from(channel.lane.receiver.take_one_short(&self.watch, deliver))
        })
    }

    /// Receives the message in the ping-pong line. Returns whether there was one. The state is up to date before the handler is called.
    #[inline(always)]
    fn receive_from_line(&self, channel: &Channel) -> bool {
        let mut copy = Body::new();
        let Some(short) = channel.lane.take_from_line(&mut copy) else { return false };
        if self.peer_owns_line.get() && self.watched.get() == Some(NonNull::from(channel)) {
            self.watch_channel(channel);
        }
        let data = copy.bytes(short);
        // SAFETY: a slice is readable, and nothing writes to a private copy.
        unsafe { self.am.deliver(short.tag(), data.as_ptr(), data.len()) };
        true
    }

    /// As [`receive_one`](Self::receive_one), for as many as there are.
    #[inline(always)]
    fn receive_many(&self) -> u32 {
        self.receive(|channel| {
            let count = self.take_shorts(channel, self.max_poll, &self.watch);
            if count > 0 {
                self.schedule.skip(count - 1);
            }
            if count > 1 && count < self.max_poll {
                self.is_backing_off.set(true);
                self.watch.set(self.doorbell.watch());
                self.schedule.shorten(BURST_BACKOFF);
            }
            count
        })
    }

    #[inline(always)]
    fn receive(&self, shorts: impl FnOnce(&Channel) -> u32) -> u32 {
        let Some(channel) = self.watched.get() else { return self.work() };
        if self.is_working.replace(true) {
            return self.work();
        }
        // SAFETY: it is active, and stays so while `is_working` is set.
        let channel = unsafe { channel.as_ref() };
        let mut count =
            if self.peer_owns_line.get() && self.receive_from_line(channel) { 1 } else { shorts(channel) };
        if count == 0 {
            count = self.receive_others();
        }
        self.received_at.set(if self.is_backing_off.get() { 1 } else { self.schedule.left() });
        self.is_working.set(false);
        count
    }

    /// Receives from the only active channel when its next message is not a short one.
    #[inline(never)]
    fn receive_others(&self) -> u32 {
        let connection = self.active.borrow().first().cloned();
        let Some(connection) = connection else { return 0 };
        let count = self.drain(&connection, self.max_poll);
        self.watch_channel(&connection.channel);
        self.schedule.skip(count.saturating_sub(1));
        count
    }

    /// The slow path when work may be pending.
    #[inline(never)]
    fn work(&self) -> u32 {
        let passed = self.schedule.passed();
        // A handler may call progress, which decrements the count.
        self.schedule.start(1);
        if self.is_working.replace(true) {
            return 0;
        }
        if self.doorbell.has_rung() {
            self.poll_doorbell();
        }
        let mut events = self.poll_active();
        if self.schedule.has(!source::SEVERAL_ACTIVE) {
            events += self.do_pending_work();
        }
        // Received messages count as calls, as in `Schedule::skip`.
        let left = self.until_epoch.get().saturating_sub(passed).saturating_sub(events);
        self.until_epoch.set(left);
        if left == 0 {
            events += self.begin_epoch();
        }
        self.rewatch();
        self.is_working.set(false);
        events
    }

    /// Polls the active rings.
    #[inline(always)]
    fn poll_active(&self) -> u32 {
        let mut events = 0;
        let mut index = 0;
        loop {
            // No borrow is held, because handlers run in the loop.
            let Some(connection) = self.active.borrow().get(index).cloned() else { return events };
            if connection.channel.lane.has_message() {
                events += self.drain(&connection, self.max_poll);
            }
            index += 1;
        }
    }

    /// Receives up to `limit` messages of one peer.
    #[inline(never)]
    fn drain(&self, connection: &Connection, limit: u32) -> u32 {
        let channel = &connection.channel;
        let mut count = 0;
        // Not the interface's cell, which may watch another ring.
        let watch = Cell::new(channel.lane.receiver.watch());
        while count < limit {
            if self.receive_from_line(channel) {
                count += 1;
                continue;
            }
            count += self.take_shorts(channel, limit - count, &watch);
            // The next message is of another kind, or there is none.
            if count == limit || !self.receive_other(connection) {
                break;
            }
            count += 1;
            if connection.emulation.has_just_answered(channel) {
                break;
            }
        }
        if count > 0 {
            self.received(connection);
        }
        count
    }

    /// Receives up to `limit` short messages of one peer, up to the first of another kind.
    #[inline(always)]
    fn take_shorts(&self, channel: &Channel, limit: u32, watch: &Cell<Watch>) -> u32 {
        let mut run = AmRun::new(self.am, self.last_id.get());
        // SAFETY: a slice is readable, and nothing writes to a private copy.
        let deliver =
            |short: Short, data: &[u8]| unsafe { run.deliver(short.tag(), data.as_ptr(), data.len()) };
        let count = channel.lane.receiver.take_shorts(limit, watch, deliver);
        self.last_id.set(run.id());
        count
    }

    /// Notes that a peer has sent messages.
    #[inline(always)]
    fn received(&self, connection: &Connection) {
        connection.epoch.set(self.epoch.get());
        if connection.channel.lane.receiver.is_idle() {
            connection.channel.lane.receiver.set_active();
        }
    }

    /// Receives one message that is in a block or belongs to the transport. Returns whether there was one.
    #[inline(never)]
    fn receive_other(&self, connection: &Connection) -> bool {
        let channel = &connection.channel;
        let mut body = [0; BODY_WORDS];
        match channel.lane.receiver.next(&mut body) {
            Ok(None) => false,
            Ok(Some(Message { tag, data: Delivery::Inline { length } })) => {
                let data = &body.as_bytes()[..length];
                if tag < AM_IDS {
                    // A short message that arrived after the last poll.
                    // SAFETY: a slice is readable, and nothing writes to a private copy.
                    unsafe { self.am.deliver(tag, data.as_ptr(), length) };
                } else {
                    self.receive_frame(connection, tag, data);
                }
                true
            }
            Ok(Some(Message { tag, data: Delivery::Block { place, index, length } })) => {
                if tag < AM_IDS {
                    self.deliver_block(channel, tag, place, index, length);
                } else {
                    let frame = private_copy(channel, place, index, length);
                    self.receive_frame(connection, tag, &frame);
                }
                true
            }
            Err(corrupt) => {
                channel.corrupt(&corrupt);
                false
            }
        }
    }

    fn receive_frame(&self, connection: &Connection, tag: u8, frame: &[u8]) {
        let known = matches!(tag, crate::proto::wire::tag::REQUEST | crate::proto::wire::tag::ANSWER);
        let result = if known {
            connection.emulation.receive(&connection.channel, tag, frame)
        } else {
            Err(format!("tag {tag}"))
        };
        if let Err(reason) = result {
            connection.channel.corrupt(&reason);
        }
    }

    /// Delivers a message in a block, and then returns the block to the sender.
    fn deliver_block(&self, channel: &Channel, id: u8, place: Place, index: u32, length: usize) {
        // SAFETY: the block is held and has `length` bytes (`Receiver::next`).
        channel.lane.receiver.block(place, index, |data| unsafe { self.am.deliver_shared(id, data, length) });
        channel.lane.receiver.release(place, index);
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

    /// Chooses the word to watch, and starts the count to the next slow path.
    fn rewatch(&self) {
        let active = self.active.borrow();
        if active.len() > 1 {
            self.schedule.raise(source::SEVERAL_ACTIVE);
        } else {
            self.schedule.lower(source::SEVERAL_ACTIVE);
        }
        let has_no_work = !self.schedule.has(!0);
        self.schedule.start(if has_no_work { self.until_epoch.get().min(SLOW_PATH_INTERVAL) } else { 1 });
        match active.first() {
            Some(connection) => self.watch_channel(&connection.channel),
            None => self.watch_doorbell(),
        }
    }

    /// Does the pending work, except polling several rings.
    #[inline(never)]
    fn do_pending_work(&self) -> u32 {
        let mut events = 0;
        if self.schedule.has(source::CHANNEL | source::ROOM) {
            self.schedule.lower(source::CHANNEL | source::ROOM);
            events += self.serve_channels();
        }
        if self.schedule.has(source::PENDING) {
            events += self.serve_pending();
            if self.waiting.borrow().is_empty() {
                self.schedule.lower(source::PENDING);
            }
        }
        if self.schedule.has(source::FLUSH) && self.is_flushed() {
            self.schedule.lower(source::FLUSH);
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
        let events = self.drain(connection, self.max_poll);
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
        self.until_epoch.set(self.poll_interval);
        self.epoch.set(self.epoch.get().wrapping_add(1));
        self.stop_polling_idle();
        self.rescan();
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
            if Rc::ptr_eq(connection, &latest) || age < IDLE_EPOCHS || connection.channel.lane.has_message() {
                return true;
            }
            if !connection.channel.lane.receiver.is_idle() {
                connection.channel.lane.receiver.set_idle();
                return true;
            }
            if age < IDLE_EPOCHS + 1 {
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
                && connection.channel.lane.has_message()
            {
                self.start_polling(&connection);
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
        if !connection.is_active.get() && channel.lane.has_message() {
            self.start_polling(&connection);
            self.schedule.raise(source::SEVERAL_ACTIVE);
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
            connection.channel.lane.receiver.set_idle();
        }
        self.doorbell.arm();
        settle();
        // A sender from now on finds the rings idle and rings the doorbell, which the next call therefore polls.
        self.schedule.schedule_slow_path();
        let news = self.active.borrow().iter().any(|connection| connection.channel.lane.has_message());
        if news || self.doorbell.has_rung() || self.schedule.has(source::CHANNEL) {
            self.doorbell.disarm();
            return false;
        }
        if self.schedule.has(source::ROOM) {
            self.door.want_tick(Deadline::after(ROOM_WAIT));
        }
        true
    }
}

/// Copies `length` bytes of a received block, and releases the block. No reference to it exists, because the peer may write to it at any
/// time.
fn private_copy(channel: &Channel, place: Place, index: u32, length: usize) -> Vec<u8> {
    let mut copy = Vec::with_capacity(length);
    let target: *mut u8 = copy.as_mut_ptr();
    // SAFETY: the block is held and has `length` bytes (`Receiver::next`), the vector has room for them.
    channel
        .lane
        .receiver
        .block(place, index, |data| unsafe { target.copy_from_nonoverlapping(data, length) });
    channel.lane.receiver.release(place, index);
    // SAFETY: they were just written.
    unsafe { copy.set_len(length) };
    copy
}

/// [`ShmIface::slow_path`] with its own guard, so that an idle call needs no stack frame.
#[inline(never)]
extern "C" fn slow_path(iface: &ShmIface) -> u32 {
    guarded("progress", 0, || iface.slow_path())
}

/// Receives after the watched word has changed. Not inlined, so that an idle call does not compute how many messages to receive.
///
/// The first message after an empty poll is received alone. Polling for a second one would wait for a cache line that the sender may be
/// about to write, and would delay what the handler sends.
#[inline(never)]
extern "C" fn receive(iface: &ShmIface) -> u32 {
    let has_just_received = iface.received_at.get().wrapping_sub(1) == iface.schedule.left();
    if has_just_received { receive_many(iface) } else { receive_one(iface) }
}

/// [`ShmIface::receive_one`], as [`slow_path`].
#[inline(never)]
extern "C" fn receive_one(iface: &ShmIface) -> u32 {
    guarded("progress", 0, || iface.receive_one())
}

/// [`ShmIface::receive_many`], as [`slow_path`].
#[inline(never)]
extern "C" fn receive_many(iface: &ShmIface) -> u32 {
    guarded("progress", 0, || iface.receive_many())
}
