//! Receiving datagrams: from the device to the protocol.
//!
//! Built on the queue pair, the receive buffers and the protocol's table.

use std::collections::HashSet;

use uct_ib::verbs::WcBuffer;

use super::{BATCH, Core};
use crate::io::packet::Packet;
use crate::io::receives::{Arrival, Source};
use crate::proto::{ConnectionId, Header, Received};

/// The acknowledgement that came with a message, which was delivered ahead of it.
pub(super) struct DeferredAck {
    id: ConnectionId,
    /// Until the protocol has processed it; the packets that it frees are fetched later still.
    header: Option<Header>,
}

/// An in-order message that only has to be delivered.
pub(crate) struct InOrder {
    pub(crate) id: ConnectionId,
    pub(crate) kind: u8,
}

impl Core {
    /// Polls the device for datagrams, and keeps them; returns whether there is anything to do.
    #[inline]
    pub(crate) fn poll(&mut self) -> bool {
        self.idle_ticks = 0;
        self.clock.expire();
        self.poll_device();
        !self.arrivals.is_empty() || !self.pending_work.is_none()
    }

    /// Polls the device for datagrams, and keeps them for the next progress; returns whether more may have arrived.
    #[inline]
    pub(crate) fn poll_device(&mut self) -> bool {
        let mut buffer = WcBuffer::<{ BATCH as usize }>::new();
        let completions = self.queue.poll(&mut buffer);
        let count = completions.len() as u32;
        let is_more = count == BATCH;
        self.table.note_backlog(count, is_more);
        self.posted -= count;
        for completion in completions {
            let length = if completion.is_ok() { completion.byte_length() } else { 0 };
            let source = Source::of(completion);
            // SAFETY: the queue pair has only slots of this pool, and the completion ends this one, once.
            let Some(arrival) = (unsafe { self.receives.arrived(completion.wr_id(), length, source) }) else {
                continue;
            };
            if completion.is_ok() {
                self.arrivals.push_back(arrival);
            } else {
                self.pending_work.add();
                let status = completion.status();
                self.queue.broken.get_or_insert_with(|| format!("receiving failed: {status}"));
                self.receives.put(arrival);
            }
        }
        is_more
    }

    /// The next datagram that has arrived. An in-order message is taken in, and only has to be delivered: if it acknowledges something
    /// new, that is deferred, so that the application's reply is sent first. Any other datagram is still to be received; so is a message
    /// behind one whose acknowledgement is deferred, and one that acknowledges memory that the application waits for.
    #[inline]
    pub(crate) fn next_arrival(&mut self) -> Option<(Arrival, Option<InOrder>)> {
        let arrival = self.arrivals.pop_front()?;
        let in_order = if self.has_deferred() { None } else { self.receive_in_order(&arrival) };
        Some((arrival, in_order))
    }

    #[inline]
    fn receive_in_order(&mut self, arrival: &Arrival) -> Option<InOrder> {
        let header = Header::read(arrival.datagram())?;
        let origin = self.paths.origin(arrival);
        let (id, has_news) =
            self.table.receive_plain(&origin, header, |packet: &Packet| packet.has_pieces())?;
        if has_news {
            self.deferred = Some(DeferredAck { id, header: Some(header) });
        } else {
            self.table.complete_plain(self.clock.refresh(), header);
        }
        Some(InOrder { id, kind: header.kind() })
    }

    /// Whether an acknowledgement is deferred.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    /// Has the protocol process what was deferred. The message then counts as received now: the peer takes the time of a long handler for
    /// one of the network, if no reply was sent; this side's own estimate is not affected, because an acknowledgement in a
    /// message only ever lowers it.
    pub(crate) fn process_deferred(&mut self) {
        if let Some(deferred) = &mut self.deferred
            && let Some(header) = deferred.header.take()
        {
            self.table.complete_plain(self.clock.refresh(), header);
        }
    }

    /// As [`Core::process_deferred`]; returns the connection whose acknowledged packets are to be fetched.
    pub(crate) fn take_deferred(&mut self) -> Option<ConnectionId> {
        self.process_deferred();
        self.deferred.take().map(|deferred| deferred.id)
    }

    /// Handles any other sequenced packet.
    #[inline]
    pub(crate) fn receive(&mut self, header: Header, arrival: Arrival) -> Received<Arrival> {
        let origin = self.paths.origin(&arrival);
        self.table.receive(self.clock.refresh(), &origin, header, arrival)
    }

    /// Handles a control packet; returns the connection that may have news.
    pub(crate) fn take_control(&mut self, arrival: &Arrival) -> Option<ConnectionId> {
        let now = self.clock.refresh();
        let Core { table, paths, .. } = self;
        let origin = paths.origin(arrival);
        table.receive_control(now, &origin, arrival.datagram(), |address| paths.back(now, arrival, address))
    }

    /// Receives while the application makes no progress: acknowledgements count, and peers learn that this side is alive.
    /// Messages are kept for progress, and so is which connections may have news.
    pub(crate) fn listen(&mut self) {
        let polls = self.queue.receive_depth().div_ceil(BATCH);
        for _ in 0..polls {
            if !self.listen_once() {
                return;
            }
        }
    }

    /// As [`Core::listen`], for the next few datagrams; returns whether more may have arrived.
    fn listen_once(&mut self) -> bool {
        let before = self.arrivals.len();
        let is_more = self.poll_device();
        // A datagram without room is dropped as if it were lost: the peer retransmits it.
        let room = self.queue.receive_depth() as usize / 2;
        for arrival in self.arrivals.split_off(before) {
            match Header::read(arrival.datagram()) {
                Some(header) if header.is_sequenced() => {
                    let origin = self.paths.origin(&arrival);
                    let heard_of = self.table.receive_later(self.clock.now(), &origin, header);
                    self.heard_of.extend(heard_of);
                    if self.arrivals.len() < room {
                        self.arrivals.push_back(arrival);
                    } else {
                        self.receives.put(arrival);
                    }
                }
                Some(_) => {
                    let heard_of = self.take_control(&arrival);
                    self.heard_of.extend(heard_of);
                    self.receives.put(arrival);
                }
                None => {
                    self.malformed += 1;
                    self.receives.put(arrival);
                }
            }
        }
        self.fill(BATCH);
        is_more
    }

    /// Whether a message to be delivered, or news, waits for the application's progress.
    pub(crate) fn has_news(&self) -> bool {
        !self.arrivals.is_empty() || self.has_deferred() || self.has_reports()
    }

    /// Whether timers have left work for progress that no datagram leads to.
    pub(crate) fn has_reports(&self) -> bool {
        self.table.has_events() || !self.heard_of.is_empty()
    }

    /// The connections for which timers have received datagrams.
    pub(crate) fn take_heard_of(&mut self) -> HashSet<ConnectionId> {
        std::mem::take(&mut self.heard_of)
    }
}
