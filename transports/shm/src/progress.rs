//! Progress: looks where something may have come, and does what is to be done.
//!
//! For: the host's worker. Stands on the interface. A look at nothing costs a handful of instructions, whatever the number
//! of peers: a count, and one word of shared memory, which is the slot of the ring from which something came last. The doorbell
//! is looked at once in [`SLOW_PATH_INTERVAL`] calls, or at each if no ring is polled; sockets once in `poll_interval` calls.

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

/// Calls from one look at the doorbell to the next, while a ring is polled. Who sends the first message after a long silence waits
/// for half of them in the mean, and everybody else saves the look.
const SLOW_PATH_INTERVAL: u32 = 64;
/// The same while the peer owns the ping-pong line, so that the next message comes in the ring or in the line. One of the two is watched:
/// the one that had the last message, or the line after a message was sent in it. Both are checked at this interval.
const LINE_INTERVAL: u32 = 2;
/// Calls of progress until a ring is looked at again when a burst of messages has ended. To look for the next message is to take the
/// line that its sender is about to write: a receiver that is the faster one would do so for each of them.
const BURST_BACKOFF: u32 = 2;
/// Turns without a message after which a ring is not polled any more.
const IDLE_EPOCHS: u32 = 2;
/// Quiet rings that are looked into at each turn, in case that a doorbell was not heard.
const RESCAN_BATCH: usize = 4;
/// How long a sleeping interface waits until it checks whether a peer has made room in a ring.
const ROOM_WAIT: Duration = Duration::from_millis(2);
/// Messages that are taken from one socket at a look.
const CONTROLS: usize = 16;
/// Message ids of the application; higher tags are the transport's.
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
        // The last call has received something if this one would have been told so by the count.
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

    /// Something has come from the one peer that is polled, and nothing else is to be done. Takes one message if it is short.
    #[inline(always)]
    fn receive_one(&self) -> u32 {
        self.receive(|channel| {
            let am = self.am;
            // SAFETY: a slice is readable, and a private copy is written by nobody.
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
        // SAFETY: a slice is readable, and a private copy is written by nobody.
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
        // SAFETY: it is active, and what ends that waits until `is_working` is over.
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

    /// What has come from the one peer that is polled is no short message.
    #[inline(never)]
    fn receive_others(&self) -> u32 {
        let connection = self.active.borrow().first().cloned();
        let Some(connection) = connection else { return 0 };
        let count = self.drain(&connection, self.max_poll);
        self.watch_channel(&connection.channel);
        self.schedule.skip(count.saturating_sub(1));
        count
    }

    /// There is, or may be, something to do.
    #[inline(never)]
    fn work(&self) -> u32 {
        let passed = self.schedule.passed();
        // A handler may call progress, which counts down.
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
        // As in `Schedule::skip`.
        let left = self.until_epoch.get().saturating_sub(passed).saturating_sub(events);
        self.until_epoch.set(left);
        if left == 0 {
            events += self.begin_epoch();
        }
        self.rewatch();
        self.is_working.set(false);
        events
    }

    /// Polls the rings that have had messages lately.
    #[inline(always)]
    fn poll_active(&self) -> u32 {
        let mut events = 0;
        let mut index = 0;
        loop {
            // Handlers run in between, so no borrow is held.
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
        // The interface may watch another ring.
        let watch = Cell::new(channel.lane.receiver.watch());
        while count < limit {
            if self.receive_from_line(channel) {
                count += 1;
                continue;
            }
            count += self.take_shorts(channel, limit - count, &watch);
            // What is left is of another kind, or nothing.
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
        // SAFETY: a slice is readable, and a private copy is written by nobody.
        let deliver =
            |short: Short, data: &[u8]| unsafe { run.deliver(short.tag(), data.as_ptr(), data.len()) };
        let count = channel.lane.receiver.take_shorts(limit, watch, deliver);
        self.last_id.set(run.id());
        count
    }

    /// Notes that something has come from a peer.
    #[inline(always)]
    fn received(&self, connection: &Connection) {
        connection.epoch.set(self.epoch.get());
        if connection.channel.lane.receiver.is_idle() {
            connection.channel.lane.receiver.set_active();
        }
    }

    /// Receives one message in a block, or one of the transport's own; answers whether there was one.
    #[inline(never)]
    fn receive_other(&self, connection: &Connection) -> bool {
        let channel = &connection.channel;
        let mut body = [0; BODY_WORDS];
        match channel.lane.receiver.next(&mut body) {
            Ok(None) => false,
            Ok(Some(Message { tag, data: Delivery::Inline { length } })) => {
                let data = &body.as_bytes()[..length];
                if tag < AM_IDS {
                    // A short message that came after the last look.
                    // SAFETY: a slice is readable, and a private copy is written by nobody.
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

    /// Hands a block to the handler, and gives it back to the sender behind it.
    fn deliver_block(&self, channel: &Channel, id: u8, place: Place, index: u32, length: usize) {
        // SAFETY: the block is held and has `length` bytes (`Receiver::next`).
        channel.lane.receiver.block(place, index, |data| unsafe { self.am.deliver_shared(id, data, length) });
        channel.lane.receiver.release(place, index);
    }

    /// Polls the rings whose doorbell was rung.
    fn poll_doorbell(&self) {
        let mut rung = Vec::new();
        self.doorbell.take(|number| rung.push(number));
        for number in rung {
            // Beyond the doorbell's bits, several channels share one.
            let mut index = number as usize;
            while index < self.table.numbers() {
                if let Some(connection) = self.table.get(index) {
                    self.start_polling(&connection);
                }
                index += crate::iface::DOORBELL_BITS;
            }
        }
    }

    /// Polls a ring from now on.
    pub(crate) fn start_polling(&self, connection: &Rc<Connection>) {
        // The only active one is not noted for each message.
        for other in &*self.active.borrow() {
            other.epoch.set(self.epoch.get());
        }
        self.received(connection);
        if !connection.is_active.replace(true) {
            self.active.borrow_mut().push(Rc::clone(connection));
        }
    }

    /// Points the quick look at the ring from which something came last.
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

    /// Lets endpoints with pending requests try.
    fn serve_pending(&self) -> u32 {
        let connections = self.waiting.take();
        self.is_serving.set(true);
        let served = connections.iter().map(|connection| connection.serve_pending()).sum();
        self.is_serving.set(false);
        // Those to which requests were added meanwhile are in the list again.
        let mut waiting = self.waiting.borrow_mut();
        for connection in connections {
            if connection.has_pending() && !waiting.iter().any(|other| Rc::ptr_eq(other, &connection)) {
                waiting.push(connection);
            }
        }
        served
    }

    /// Goes on with operations that wait for room, and reaps channels that are broken.
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

    /// Receives what a peer has sent before it closed or died.
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

    /// Once in a while: sockets, rings that have gone quiet, rings that are thought to be quiet.
    fn begin_epoch(&self) -> u32 {
        self.until_epoch.set(self.poll_interval);
        self.epoch.set(self.epoch.get().wrapping_add(1));
        self.stop_polling_idle();
        self.rescan();
        self.poll_sockets()
    }

    /// Stops polling rings that have been quiet, except the one that was active last.
    ///
    /// In two steps: a ring is marked idle at one turn and left alone at a later one, so that a message that was being sent
    /// meanwhile is seen, without a barrier on either side.
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

    /// Looks into a few rings that are not polled: another peer may have wiped out a bit in the doorbell.
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

    /// Accepts connections and takes messages from sockets; answers how many mattered.
    pub(crate) fn poll_sockets(&self) -> u32 {
        let mut buffer = EventBuffer::<16>::new();
        let Ok(events) = self.events.wait(&mut buffer, Some(Duration::ZERO)) else { return 0 };
        let mut count = 0;
        // Of two sockets, which the same look serves.
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
            // What is left is readable at the next look as well, and keeps the interface from sleeping.
            if channel.broken().is_some() || !channel.receive_control(self.identity.trust) {
                break;
            }
        }
        // What a wake-up was about is in this ring, whatever others have written to the doorbell.
        if !connection.is_active.get() && channel.lane.has_message() {
            self.start_polling(&connection);
            self.schedule.raise(source::SEVERAL_ACTIVE);
        }
        if channel.is_closed.get()
            && let Some(socket) = channel.socket()
        {
            // Not to be told again and again until the channel is reaped.
            let _ = self.events.remove(socket);
        }
        // A wake-up alone is no event: what it was about is in a ring.
        u32::from(channel.is_closed.get() || channel.broken().is_some() || knew != channel.peer().is_some())
    }

    /// Marks all rings idle, arms the doorbell and looks once more; answers whether it is safe to sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        for connection in self.active.borrow().iter() {
            connection.channel.lane.receiver.set_idle();
        }
        self.doorbell.arm();
        settle();
        // Whoever rings finds the rings idle, or has woken us: the doorbell is what to look at next.
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

/// Copies `length` bytes of a block that was received, and releases it. No reference leads to the block, to which the peer may write at
/// any time.
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

/// [`ShmIface::slow_path`], guarded by itself: a look at nothing is then left without a frame of its own.
#[inline(never)]
extern "C" fn slow_path(iface: &ShmIface) -> u32 {
    guarded("progress", 0, || iface.slow_path())
}

/// Something has come: a function of its own, so that a look at nothing does not even ask how many to take.
///
/// The first message after a look at nothing is taken alone. To look for a second one means to wait for a cache line
/// that the sender may be about to write; what the handler sends would leave only behind that.
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
