//! Progress of an interface: arrivals, acknowledgements, failures, pending requests.
//!
//! Built on `link`. The application is called from here only, with the core's state whole and not
//! borrowed, so that it may call anything.

use uct_plugin::rma::Malformed;
use uct_plugin::{Blocked, Disposition, Error};

use crate::iface::UdIface;
use crate::io::receives::Arrival;
use crate::link::core::{Collected, Core, InOrder};
use crate::link::emulation::{REQUEST, RESPONSE};
use crate::link::failure::status;
use crate::link::flushes;
use crate::link::lock::Guard;
use crate::link::targets::Offence;
use crate::proto::{ConnectionId, Discard, Event, Failure, Header, Ready, Received};

/// Active message ids end here.
const AM_IDS: u8 = 32;

/// How deep handlers and completions may be nested that call progress. One with the progress around it takes a few kilobytes of stack, and as
/// many may be nested as messages have arrived.
const NESTING: u32 = 16;

impl UdIface {
    /// Makes progress; returns how many events it handled.
    #[inline]
    pub(crate) fn make_progress(&self) -> u32 {
        let guard = self.shared.enter();
        let has_work = guard.with(Core::poll);
        if !has_work && !self.shared.lock.is_due() && self.shared.pending.is_idle() {
            return 0;
        }
        self.handle(&guard)
    }

    /// Handles arrivals and pending work. Work that messages cause is left to the next progress, once, so that the application's reply is
    /// sent first.
    #[inline(never)]
    fn handle(&self, guard: &Guard<'_, Core>) -> u32 {
        if is_deepest(guard) {
            return self.keep_alive(guard);
        }
        let (was_left, deferred) = guard.with(|core| (!core.pending_work.is_none(), core.take_deferred()));
        let mut count = 0;
        if let Some(id) = deferred {
            count += u32::from(self.collect(guard, id));
        }
        count += self.receive_all(guard);
        if count > 0 && !was_left && self.may_leave(guard) {
            return count;
        }
        count + self.do_pending_work(guard)
    }

    /// Does what the timers do for an application that makes no progress: the calls further up deliver what has arrived.
    #[cold]
    fn keep_alive(&self, guard: &Guard<'_, Core>) -> u32 {
        if self.shared.lock.take_due() {
            guard.with(Core::tick);
        }
        0
    }

    /// Leaves pending work to the next progress, if nothing waits for it; returns whether it did.
    #[inline]
    fn may_leave(&self, guard: &Guard<'_, Core>) -> bool {
        let is_waited_for = self.shared.lock.is_due()
            || !self.shared.pending.is_idle()
            || self.targets.has_queued()
            || self.shared.is_blocked.get();
        let may_leave = !is_waited_for && guard.with(Core::leave_work);
        if may_leave {
            self.shared.arm_retransmit_timer(guard);
        }
        may_leave
    }

    /// Handles all arrivals.
    #[inline]
    fn receive_all(&self, guard: &Guard<'_, Core>) -> u32 {
        let mut count = 0;
        while let Some((arrival, in_order)) = guard.with(Core::next_arrival) {
            count += match in_order {
                Some(InOrder { id, kind }) => {
                    self.deliver(guard, id, kind, arrival);
                    1
                }
                None => self.receive_other(guard, arrival),
            };
        }
        count
    }

    /// Does pending work, and what the datagrams that arrived have left to do.
    #[inline(never)]
    fn do_pending_work(&self, guard: &Guard<'_, Core>) -> u32 {
        let mut count = 0;
        if self.shared.lock.take_due() {
            guard.with(Core::tick_in_progress);
        }
        if guard.with(Core::has_pending_work) || self.shared.is_blocked.get() {
            count += self.slow_path(guard);
        }
        if !self.flushes.is_empty() {
            flushes::end(&self.flushes, &self.conns);
        }
        if self.targets.has_queued() {
            self.targets.send_responses(guard);
        }
        count += self.shared.pending.dispatch(Blocked::Endpoint);
        let is_left = self.targets.has_queued() || self.shared.is_blocked.get();
        guard.with(|core| {
            core.fill(16);
            core.transmit();
            if is_left || core.table.has_output() || core.has_deferred() {
                core.pending_work.add();
            }
            core.clock.expire();
        });
        self.shared.arm_retransmit_timer(guard);
        count
    }

    /// Makes progress until `done`, for an operation on a connection that is done at its return.
    ///
    /// # Errors
    /// [`Error::TIMED_OUT`] if that takes longer than `get_timeout`; [`Error::NO_RESOURCE`] where handlers are nested as deep as they may be.
    pub(crate) fn wait_for(&self, id: ConnectionId, done: &dyn Fn() -> bool) -> Result<(), Error> {
        if is_deepest(&self.shared.enter()) && !done() {
            // Nothing is received as deep as this.
            return Err(Error::NO_RESOURCE);
        }
        let guard = self.shared.enter();
        let limit = u64::try_from(self.get_timeout.as_nanos()).unwrap_or(u64::MAX);
        let end = guard.with(|core| {
            core.clock.read();
            core.clock.now().plus(limit)
        });
        let (mut rounds, mut idle) = (0u32, 0u32);
        while !done() {
            // Called by a handler, it may have to get past what was held back behind that handler's message.
            idle = if self.make_progress() + self.deliver_ready(&guard, id) > 0 { 0 } else { idle + 1 };
            rounds = rounds.wrapping_add(1);
            // However much happens meanwhile.
            if !rounds.is_multiple_of(64) {
                continue;
            }
            let is_late = guard.with(|core| {
                core.clock.read();
                if core.table.next_timeout() <= core.clock.now() {
                    core.tick_in_progress();
                }
                core.clock.now() >= end
            });
            if is_late {
                return Err(Error::TIMED_OUT);
            }
            if idle >= 64 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Handles any datagram but an in-order message.
    #[inline(never)]
    fn receive_other(&self, guard: &Guard<'_, Core>, arrival: Arrival) -> u32 {
        let Some(header) = Header::read(arrival.datagram()) else {
            guard.with(|core| {
                core.malformed += 1;
                core.recycle(arrival);
            });
            return 0;
        };
        if !header.is_sequenced() {
            return self.take_control(guard, arrival);
        }
        match guard.with(|core| core.receive(header, arrival)) {
            Received::Deliver(id, arrival) => {
                // First, since a completion may call progress, which must not deliver a later message ahead of this one.
                self.deliver(guard, id, header.kind(), arrival);
                let count = 1 + self.deliver_ready(guard, id);
                self.collect(guard, id);
                count
            }
            Received::Held(id) => {
                self.collect(guard, id);
                0
            }
            Received::Discard(id, arrival, reason) => {
                guard.with(|core| core.recycle(arrival));
                let Some(id) = id else { return 0 };
                self.collect(guard, id);
                if reason == Discard::Consumed { self.deliver_ready(guard, id) } else { 0 }
            }
        }
    }

    #[cold]
    fn take_control(&self, guard: &Guard<'_, Core>, arrival: Arrival) -> u32 {
        let heard_of = guard.with(|core| {
            let heard_of = core.take_control(&arrival);
            core.recycle(arrival);
            heard_of
        });
        heard_of.map_or(0, |id| self.on_heard_of(guard, id))
    }

    /// A control packet of the peer has been taken in: whatever waits for one is served.
    fn on_heard_of(&self, guard: &Guard<'_, Core>, id: ConnectionId) -> u32 {
        if !self.collect(guard, id)
            && let Some(conn) = self.conns.get(id)
        {
            conn.on_news();
        }
        1
    }

    /// Completes what the peer has acknowledged; returns whether there was anything.
    #[inline]
    fn collect(&self, guard: &Guard<'_, Core>, id: ConnectionId) -> bool {
        let mut is_news = false;
        loop {
            match guard.with(|core| core.collect(id)) {
                Collected::Completion(completion, result) => completion.complete(result),
                Collected::News => {}
                Collected::Nothing => break,
            }
            is_news = true;
        }
        if is_news && let Some(conn) = self.conns.get(id) {
            conn.on_news();
        }
        is_news
    }

    /// Delivers a message: to the application, or to the transport itself.
    #[inline]
    fn deliver(&self, guard: &Guard<'_, Core>, id: ConnectionId, kind: u8, arrival: Arrival) {
        if kind < AM_IDS {
            let (message, length) = (arrival.message(), arrival.message_length());
            // SAFETY: the message lies in a buffer that nothing else uses, behind the headroom that the pool provides for; it
            // is not touched before it comes back, here or by `release`.
            if unsafe { self.am.deliver_desc(kind, message, length) } != Disposition::Consumed {
                return;
            }
        } else {
            self.serve(guard, id, kind, arrival.body());
        }
        guard.with(|core| core.recycle(arrival));
    }

    /// Handles a message for the transport itself: a request or a response. The bytes are untrusted.
    fn serve(&self, guard: &Guard<'_, Core>, id: ConnectionId, kind: u8, body: &[u8]) {
        let served = match kind {
            REQUEST => self.targets.serve(guard, id, body, &self.md.regions),
            // Without an endpoint nothing waits for it any more.
            RESPONSE => {
                self.conns.get(id).map_or(Ok(()), |conn| conn.take_response(body)).map_err(Offence::from)
            }
            _ => Err(Malformed("a message of an unknown kind").into()),
        };
        if let Err(offence) = served {
            self.targets.cut_off(guard, id, &offence);
        }
    }

    /// Delivers what waited for a message just delivered.
    #[inline]
    fn deliver_ready(&self, guard: &Guard<'_, Core>, id: ConnectionId) -> u32 {
        let mut count = 0;
        while let Some(ready) = guard.with(|core| core.table.pop_ready(id)) {
            match ready {
                Ready::Deliver(arrival) => {
                    let kind = Header::read(arrival.datagram()).map_or(u8::MAX, Header::kind);
                    self.deliver(guard, id, kind, arrival);
                    count += 1;
                }
                Ready::Free(arrival) => guard.with(|core| core.recycle(arrival)),
            }
        }
        count
    }

    /// The slow path: packets that the device is done with, events of the protocol and of the device, a broken queue.
    #[cold]
    fn slow_path(&self, guard: &Guard<'_, Core>) -> u32 {
        let mut count = 0;
        guard.with(|core| core.queue.reap());
        if guard.with(Core::take_device_check) {
            self.check_device(guard);
        }
        while let Some((completion, result)) = guard.with(Core::reap_zombie) {
            completion.complete(result);
            count += 1;
        }
        if let Some(reason) = guard.with(Core::give_up) {
            ucs::log::error!("ud_verbs: the interface has failed and can neither send nor receive: {reason}");
        }
        // Ahead of the events, by which connections may end.
        for id in guard.with(Core::take_heard_of) {
            count += self.on_heard_of(guard, id);
        }
        while let Some(event) = guard.with(|core| core.table.poll_event()) {
            match event {
                Event::Connected(id) | Event::Ready(id) => {
                    if let Some(conn) = self.conns.get(id) {
                        conn.on_news();
                    }
                    count += 1;
                }
                Event::Failed(id, failure) => {
                    self.fail(guard, id, failure);
                    count += 1;
                }
                // No endpoint holds it any more, so its removal is not reported to the application.
                Event::Over(id) => self.end(guard, id),
            }
        }
        if self.shared.is_blocked.get() && guard.with(|core| core.queue.has_room()) {
            self.wake_blocked();
        }
        count
    }

    /// Has the pending requests of all connections served again: what all share has room.
    fn wake_blocked(&self) {
        self.shared.is_blocked.set(false);
        for conn in self.conns.all() {
            self.shared.pending.schedule(&conn.pending);
        }
    }

    /// An endpoint has failed: everything on it ends with the error, and the application is notified.
    fn fail(&self, guard: &Guard<'_, Core>, id: ConnectionId, failure: Failure) {
        let error = status(failure);
        self.shared.drain(guard, id);
        let Some(conn) = self.conns.get(id) else { return };
        conn.cancel(error);
        // Requests that wait are served once more, and meet the error.
        self.shared.pending.schedule(&conn.pending);
        let cause = guard.with(|core| core.queue.broken.clone()).filter(|_| failure == Failure::Broken);
        let reason = cause.map_or_else(|| failure.to_string(), |cause| format!("{failure}: {cause}"));
        self.errors.report(conn.user, error, &reason);
    }

    /// A connection without an endpoint is over.
    fn end(&self, guard: &Guard<'_, Core>, id: ConnectionId) {
        self.shared.drain(guard, id);
        // The way to the peer stays with the others (`Paths`).
        let _ = guard.with(|core| core.table.remove(id));
        self.targets.forget(id);
    }
}

/// Whether a handler runs inside as many others as it may.
#[inline]
fn is_deepest(guard: &Guard<'_, Core>) -> bool {
    guard.depth() > NESTING
}
