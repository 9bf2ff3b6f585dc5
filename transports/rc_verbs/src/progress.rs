//! Progress: completions in, deferred work out.
//!
//! For: the interface. A quiet progress polls one queue; what is rare hangs on two flags.

use uct_ib::verbs::{Wc, WcBuffer};
use uct_plugin::{Blocked, Error, Result};

use crate::iface::RcIface;
use crate::io::completions::BATCH;
use crate::link::conn::Conn;
use crate::proto::window::REFILL;

/// Looks at the queues in a row that may pass by what was received, because something sent has ended.
const MOST_PASSED: u8 = 3;
/// One in so many looks that find nothing received asks what was sent, if nobody waits for the end of a send.
const SENT_EVERY: u8 = 8;

impl RcIface {
    #[inline(always)]
    pub(crate) fn make_progress(&self) -> u32 {
        if !self.shared.agenda.is_calm() || self.watches.mailbox.is_full() {
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
            // A handler that asks for progress would get later messages ahead of earlier ones of the same batch.
            return 0;
        }
        self.shared.agenda.run();
        self.do_work() + self.go_round()
    }

    /// The queues, and what follows them.
    #[inline(always)]
    fn go_round(&self) -> u32 {
        let count = self.poll();
        if self.shared.agenda.is_asked() {
            self.do_deferred();
        }
        let served = self.shared.pending.dispatch(Blocked::Endpoint);
        self.shared.agenda.leave();
        count + served
    }

    /// Looks at the queues. If somebody waits for the end of a send, that comes first, and what has come waits for the next
    /// look: mostly nothing has. If ends keep coming, it does not wait for long.
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
            let looks = self.quiet_looks.get().wrapping_add(1);
            self.quiet_looks.set(looks);
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
            self.shared.agenda.ask();
        }
    }

    /// Looks for ends of sends.
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
        let Some(ep) = self.eps.at((wc.wr_id() >> 32) as u32) else { return };
        // SAFETY: completions and events are handled by progress, and the table has just given it.
        let ep = unsafe { self.during_progress(ep) };
        if !wc.is_ok() {
            ep.failed_send(wc);
            return self.feed();
        }
        // SAFETY: a work request of a reliable connection ends behind those ahead of it, and the completion says that it has.
        unsafe { ep.end_up_to(wc.wr_id() as u32, &self.shared) };
        if self.shared.agenda.has_starved() {
            self.feed();
        }
    }

    /// A completion queue that does not work any more: nothing on it will ever end.
    #[cold]
    fn broken(&self, which: &str, errno: i32) -> u32 {
        for ep in self.eps.all() {
            let reason = format!("the {which} completion queue of {} answers {errno}", self.name);
            ep.fail(Error::IO_ERROR, &reason);
        }
        0
    }

    /// Has the endpoints served again that lacked what all share.
    #[cold]
    pub(crate) fn feed(&self) {
        for index in self.shared.agenda.take_starved() {
            if let Some(ep) = self.eps.get(index) {
                ep.is_starved.set(false);
                self.shared.pending.schedule(&ep.group);
            }
        }
    }

    /// What is to be done ahead of the queues.
    #[cold]
    fn do_work(&self) -> u32 {
        let mut count = 0;
        count += self.work_off();
        if self.watches.mailbox.is_full() {
            self.open_mail();
        }
        if let Some(wc) = self.shared.completions.take_received() {
            // SAFETY: `stash` took it out of the receive queue, and it is taken out of there.
            unsafe { self.receive(&wc) };
            count += 1;
        }
        if !self.shared.rx.ring.fill(1) {
            // Handlers keep buffers; more is granted when they release some.
            tracing::trace!("rc_verbs: fewer receive buffers than wanted");
        }
        count
    }

    /// What is to be done behind the queues.
    #[cold]
    pub(crate) fn do_deferred(&self) {
        self.shared.agenda.answer();
        for (index, error, reason) in self.shared.agenda.take_failing() {
            if let Some(ep) = self.eps.get(index) {
                ep.fail(error, &reason);
            }
        }
        for index in self.shared.agenda.take_deferred() {
            let Some(ep) = self.eps.get(index) else { continue };
            ep.is_deferred.set(false);
            self.do_for(&ep);
        }
        self.end_flushes();
        self.buried.take();
    }

    fn do_for(&self, ep: &Conn) {
        if let Some(error) = ep.failure() {
            if ep.queue.is_quiet() {
                ep.fail_emulated(error);
            }
        } else {
            if !ep.emulated.borrow().is_empty() && !ep.is_stepping.get() {
                ep.step();
            }
            if ep.queue.is_fenced() {
                ep.announce_reads();
            }
            if !ep.send_grant() {
                ep.defer();
            }
        }
        if ep.is_destroyed() {
            self.bury(ep);
        }
    }

    /// Handles the completions of sends that were taken out of the queue earlier.
    pub(crate) fn work_off(&self) -> u32 {
        let mut count = 0;
        loop {
            let Some(wc) = self.shared.completions.take_sent() else { break };
            self.ended(&wc);
            count += 1;
        }
        count
    }
}

impl Conn {
    /// Waits until a work request has ended, and leaves all completions to progress.
    pub(crate) fn wait_for(&self, number: u32) -> Result {
        self.shared.agenda.ask();
        self.shared.completions.wait_for(self.shared.limits.longest_wait, |wc| {
            let is_own = (wc.wr_id() >> 32) as u32 == self.index;
            let is_it = is_own && (wc.wr_id() as u32).wrapping_sub(number) < 1 << 31;
            is_it || (!wc.is_ok() && wc.qp_number() == self.qp.number())
        })
    }
}
