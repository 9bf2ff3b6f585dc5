//! Progress: completions in, deferred work out.
//!
//! An empty progress polls one queue; two flags guard all other work.

use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_ib::verbs::{Wc, WcBuffer};
use uct_plugin::{Blocked, Disposition, Error};

use crate::iface::{FAREWELL, RcIface};
use crate::io::completions::BATCH;
use crate::link::conn::Conn;
use crate::link::flushes;
use crate::proto::window::REFILL;
use crate::proto::wire::{Immediate, Message};

/// Consecutive polls that may skip the receive queue, because sends completed.
const MOST_PASSED: u8 = 3;
/// One in so many empty receive polls also polls the send queue, if no send completion is awaited.
const SENT_EVERY: u8 = 8;

impl RcIface {
    #[inline(always)]
    pub(crate) fn make_progress(&self) -> u32 {
        if !self.shared.agenda.is_empty() || self.watches.mailbox.is_full() {
            return self.progress_with_work();
        }
        self.shared.agenda.run();
        self.go_round()
    }

    /// As [`RcIface::make_progress`], where there is something to do ahead of the queues: apart, so that nothing has to be kept
    /// for it.
    #[cold]
    #[inline(never)]
    fn progress_with_work(&self) -> u32 {
        if self.shared.agenda.is_running() {
            // Progress from a handler would deliver later messages ahead of earlier ones of the same batch.
            return 0;
        }
        self.shared.agenda.run();
        self.do_work() + self.go_round()
    }

    /// The queues, and what follows them.
    #[inline(always)]
    fn go_round(&self) -> u32 {
        let count = self.poll();
        if self.shared.agenda.has_work() {
            self.do_deferred();
        }
        let served = self.shared.pending.dispatch(Blocked::Endpoint);
        self.shared.agenda.leave();
        count + served
    }

    /// Polls the queues. If a send completion is awaited, the send queue comes first, and received messages wait for the next
    /// poll; usually there are none. If completions keep coming, they wait for a limited number of polls.
    #[inline(always)]
    fn poll(&self) -> u32 {
        if self.shared.tx_wanted.get() {
            let sent = self.poll_sent();
            if sent > 0 {
                let passes = self.rx_passes.get();
                if passes > 0 {
                    self.rx_passes.set(passes - 1);
                    return sent;
                }
            }
            self.rx_passes.set(MOST_PASSED);
            return sent + self.poll_rx();
        }
        let received = self.poll_rx();
        let is_turn = || {
            let looks = self.empty_polls.get().wrapping_add(1);
            self.empty_polls.set(looks);
            looks.is_multiple_of(SENT_EVERY)
        };
        let is_busy = || self.shared.cq_available.get() < self.shared.limits.tx_cq_len;
        if received == 0 && is_busy() && is_turn() { self.poll_tx() } else { received }
    }

    #[inline(always)]
    fn poll_rx(&self) -> u32 {
        let mut buffer = WcBuffer::<BATCH>::new();
        let completions = match self.shared.completions.rx_cq.poll(&mut buffer) {
            Ok([]) => return 0,
            // Mostly it is one.
            Ok([wc]) => {
                // SAFETY: the receive queue has just given it.
                unsafe { self.receive_one(wc) };
                return 1;
            }
            Ok(completions) => completions,
            Err(errno) => return self.broken("receive", errno),
        };
        // SAFETY: as above.
        unsafe { self.receive_all(completions) }
    }

    /// Out of the way of a progress that finds nothing, which is most of them.
    ///
    /// # Safety
    /// As [`RcIface::receive`].
    #[inline(never)]
    unsafe fn receive_one(&self, wc: &Wc) {
        // SAFETY: the caller's promise.
        unsafe { self.receive(wc) };
        self.refill();
    }

    /// As [`RcIface::receive_one`].
    ///
    /// # Safety
    /// As [`RcIface::receive`], for each.
    #[inline(never)]
    unsafe fn receive_all(&self, completions: &[Wc]) -> u32 {
        for wc in completions {
            // SAFETY: the caller's promise.
            unsafe { self.receive(wc) };
        }
        self.refill();
        completions.len() as u32
    }

    #[inline(always)]
    fn refill(&self) {
        if !self.shared.rx.ring.fill(REFILL) {
            self.shared.agenda.add_work();
        }
    }

    /// Handles the completion of a receive.
    ///
    /// # Safety
    /// It is one of the interface's receive queue, and has not been handled.
    #[inline(always)]
    unsafe fn receive(&self, wc: &Wc) {
        // SAFETY: the caller's promise.
        let element = unsafe { self.shared.rx.ring.take(wc.wr_id()) };
        let message = match wc.immediate() {
            Some(word) if wc.is_ok() => self.account(wc.qp_number(), Immediate(word)),
            _ => {
                self.bad_receive(wc);
                Message::Grant
            }
        };
        let Message::Active(id) = message else {
            self.shared.rx.ring.put(element);
            return;
        };
        let data = self.shared.rx.ring.data(&element);
        // SAFETY: the device has written `byte_length` bytes at `data`; the headroom ahead of them is part of the element,
        // which nothing else uses until it is put back, here or by `release`.
        let disposition = unsafe { self.am.deliver_desc(id, data, wc.byte_length()) };
        if disposition == Disposition::Consumed {
            self.shared.rx.ring.put(element);
        }
    }

    /// What a message means for its endpoint.
    #[inline(always)]
    fn account(&self, qp: u32, immediate: Immediate) -> Message {
        // Without an endpoint it came before the endpoint was destroyed, and is delivered all the same.
        let Some(conn) = self.conns.find(qp) else { return immediate.message() };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let conn = unsafe { self.during_progress(conn) };
        conn.account(immediate)
    }

    #[cold]
    fn bad_receive(&self, wc: &Wc) {
        let Some(conn) = self.conns.find(wc.qp_number()) else { return };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let conn = unsafe { self.during_progress(conn) };
        if wc.is_ok() {
            conn.fail_later(Error::IO_ERROR, "the peer sent a message that is not of rc_verbs".to_owned());
        } else if wc.status() != uct_ib::WcStatus::FLUSHED {
            let error = Error::from_status(wc.status().status());
            conn.fail_later(error, format!("a receive failed: {}", wc.status()));
        }
    }

    /// Polls the send queue.
    #[inline(never)]
    pub(crate) fn poll_tx(&self) -> u32 {
        self.poll_sent()
    }

    #[inline(always)]
    fn poll_sent(&self) -> u32 {
        let mut buffer = WcBuffer::<BATCH>::new();
        let completions = match self.shared.completions.tx_cq.poll(&mut buffer) {
            Ok([]) => {
                self.shared.tx_wanted.set(false);
                return 0;
            }
            // Mostly it is one.
            Ok([wc]) => {
                self.ended(wc);
                return 1;
            }
            Ok(completions) => completions,
            Err(errno) => return self.broken("send", errno),
        };
        self.end_all(completions)
    }

    /// As [`RcIface::receive_one`].
    #[inline(never)]
    fn end_all(&self, completions: &[Wc]) -> u32 {
        for wc in completions {
            self.ended(wc);
        }
        completions.len() as u32
    }

    /// What a completion of a send ends.
    #[inline(always)]
    fn ended(&self, wc: &Wc) {
        let Some(conn) = self.conns.at((wc.wr_id() >> 32) as u32) else { return };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let conn = unsafe { self.during_progress(conn) };
        if !wc.is_ok() {
            conn.failed_send(wc);
            return self.wake_blocked();
        }
        // SAFETY: a work request of a reliable connection ends behind those ahead of it, and the completion reports that it has.
        unsafe { conn.end_up_to(wc.wr_id() as u32, &self.shared) };
        if self.shared.agenda.has_blocked() {
            self.wake_blocked();
        }
    }

    /// A completion queue that does not work any more: nothing on it will ever end.
    #[cold]
    fn broken(&self, which: &str, errno: i32) -> u32 {
        for conn in self.conns.all() {
            let reason = format!("the {which} completion queue of {} returned {errno}", self.name);
            conn.lose(Error::IO_ERROR, &reason);
        }
        0
    }

    /// Schedules the pending requests of connections that were blocked on shared resources.
    #[cold]
    fn wake_blocked(&self) {
        for index in self.shared.agenda.take_blocked() {
            if let Some(conn) = self.conns.get(index) {
                conn.is_blocked.set(false);
                self.shared.pending.schedule(&conn.group);
            }
        }
    }

    /// What is to be done ahead of the queues.
    #[cold]
    fn do_work(&self) -> u32 {
        let mut count = 0;
        count += self.end_stashed();
        if self.watches.mailbox.is_full() {
            let (events, is_tick) = self.watches.mailbox.take();
            for event in events {
                self.handle_event(event);
            }
            if is_tick {
                self.watch_peers();
            }
        }
        if let Some(wc) = self.shared.completions.take_received() {
            // SAFETY: `stash` took it out of the receive queue, and it is taken out of there.
            unsafe { self.receive(&wc) };
            count += 1;
        }
        if !self.shared.rx.ring.fill(1) {
            // Handlers keep buffers; more is granted when they release some.
            ucs::log::debug!("rc_verbs: fewer receive buffers than wanted");
        }
        count
    }

    /// What is to be done behind the queues.
    #[cold]
    pub(crate) fn do_deferred(&self) {
        self.shared.agenda.begin_work();
        for (index, error, reason) in self.shared.agenda.take_failing() {
            if let Some(conn) = self.conns.get(index) {
                conn.fail(error, &reason);
            }
        }
        for index in self.shared.agenda.take_deferred() {
            let Some(conn) = self.conns.get(index) else { continue };
            conn.is_deferred.set(false);
            self.do_for(&conn);
        }
        flushes::end(&self.flushes, &self.conns, &self.shared.agenda);
        self.release_reaped(Instant::now());
    }

    /// Releases queue pairs whose endpoints ended long enough ago; where no tick would come back to them, at once.
    pub(crate) fn release_reaped(&self, now: Instant) {
        let farewell = if self.schedule.tick.is_some() { FAREWELL } else { Duration::ZERO };
        loop {
            let mut reaped = self.reaped.borrow_mut();
            let is_over =
                |(since, conn): &(Instant, Rc<Conn>)| conn.failure().is_some() || now >= *since + farewell;
            if !reaped.front().is_some_and(is_over) {
                return;
            }
            let first = reaped.pop_front();
            // Its end may call the provider for a while.
            drop(reaped);
            drop(first);
        }
    }

    fn do_for(&self, conn: &Conn) {
        if let Some(error) = conn.failure() {
            if conn.queue.is_quiet() {
                conn.fail_emulated(error);
            }
        } else {
            if !conn.emulated.borrow().is_empty() && !conn.is_stepping.get() {
                conn.step();
            }
            if conn.queue.is_fenced() {
                conn.announce_reads();
            }
            if !conn.send_grant() {
                conn.defer();
            }
        }
        if conn.is_destroyed() {
            self.reap(conn);
        }
    }

    /// Handles the completions of sends that were taken out of the queue earlier.
    pub(crate) fn end_stashed(&self) -> u32 {
        let mut count = 0;
        while let Some(wc) = self.shared.completions.take_sent() {
            self.ended(&wc);
            count += 1;
        }
        count
    }

    /// Reaps an endpoint that the host has destroyed, as soon as nothing is in flight. Its queue pair lives for a moment longer,
    /// and at least until the progress that uses it returns: the peer waits for the answer to the last that it sent, which may be
    /// a request behind the message that said that all is over.
    #[cold]
    pub(crate) fn reap(&self, conn: &Conn) {
        if conn.failure().is_some() && conn.queue.is_quiet() {
            conn.fail_emulated(Error::CANCELED);
        }
        if !conn.emulated.borrow().is_empty() || !conn.queue.is_quiet() {
            // The last request must announce its end.
            if conn.failure().is_none() && conn.queue.has_unsignaled() && !conn.post_noop() {
                conn.defer();
            }
            self.shared.tx_wanted.set(true);
            return;
        }
        let Some(conn) = self.conns.remove(conn) else { return };
        self.shared.rx.leave(&conn.window);
        let now = Instant::now();
        self.reaped.borrow_mut().push_back((now, conn));
        if self.shared.agenda.is_running() {
            self.shared.agenda.add_work();
        } else {
            self.release_reaped(now);
        }
    }

    /// Checks every peer, once a tick.
    #[cold]
    fn watch_peers(&self) {
        // Completions that were not polled, because the program made no progress, must not count as a stall.
        self.end_stashed();
        while self.poll_tx() > 0 {}
        let schedule = self.schedule;
        let tick = self.ticks.get().wrapping_add(1);
        self.ticks.set(tick);
        let is_probe_due = schedule.probes_at(tick);
        for conn in self.conns.all() {
            conn.watch(&schedule, is_probe_due);
        }
        // Nothing else may happen here for long, and a peer takes a queue pair that answers for one that lives.
        self.release_reaped(Instant::now());
    }
}
