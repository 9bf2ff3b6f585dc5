//! Packets that the protocol is done with: back to their pool, and their completions reported, once the device does not
//! read them any more.

use uct_plugin::{Completion, Error, Result};

use super::Core;
use crate::io::packet::Packet;
use crate::link::failure::status;
use crate::proto::{ConnectionId, Phase};

/// What [`Core::collect`] found.
pub(crate) enum Collected {
    /// A completion to be called.
    Completion(Completion, Result),
    /// The peer has acknowledged messages, whose completions are handled.
    News,
    /// Nothing.
    Nothing,
}

impl Core {
    /// Fetches what the peer has acknowledged, up to the first packet with a completion.
    #[inline]
    pub(crate) fn collect(&mut self, id: ConnectionId) -> Collected {
        let mut collected = Collected::Nothing;
        while let Some(packet) = self.table.pop_acknowledged(id) {
            collected = Collected::News;
            if let Some(completion) = self.retire(packet, Ok(())) {
                return Collected::Completion(completion, Ok(()));
            }
        }
        collected
    }

    /// Takes back a packet that the protocol no longer needs, now or when the device no longer reads it; returns the completion to notify
    /// now.
    #[inline]
    pub(crate) fn retire(&mut self, mut packet: Packet, outcome: Result) -> Option<Completion> {
        if packet.may_be_read() || outcome.is_err() {
            if !self.queue.has_ended(packet.last_post) {
                self.queue.reap();
            }
            if !self.queue.has_ended(packet.last_post) {
                packet.outcome = outcome;
                self.pending_work.add();
                self.zombies.push_back(packet);
                return None;
            }
        }
        let completion = packet.completion.take();
        self.packets.put(packet);
        completion
    }

    /// Whether packets wait for the device.
    pub(crate) fn has_zombies(&self) -> bool {
        !self.zombies.is_empty()
    }

    /// A packet's completion, of those that waited for the device; `None` if there is none now.
    pub(crate) fn reap_zombie(&mut self) -> Option<(Completion, Result)> {
        for _ in 0..self.zombies.len() {
            let mut packet = self.zombies.pop_front()?;
            if !self.queue.has_ended(packet.last_post) {
                self.zombies.push_back(packet);
                continue;
            }
            let completion = packet.completion.take();
            let outcome = packet.outcome;
            self.packets.put(packet);
            if let Some(completion) = completion {
                return Some((completion, outcome));
            }
        }
        None
    }

    /// Notifies peers and takes the last buffers back when the interface closes; returns completions still to be called.
    pub(crate) fn abandon(&mut self, id: ConnectionId) -> Option<(Completion, Result)> {
        self.process_deferred();
        while let Some(packet) = self.table.pop_acknowledged(id) {
            if let Some(completion) = self.retire(packet, Ok(())) {
                return Some((completion, Ok(())));
            }
        }
        while let Some(arrival) = self.table.pop_undelivered(id) {
            self.receives.put(arrival);
        }
        let error = match self.table.phase(id) {
            Phase::Failed(failure) => status(failure),
            _ => Error::CANCELED,
        };
        while let Some(packet) = self.table.pop_abandoned(id) {
            if let Some(completion) = self.retire(packet, Err(error)) {
                return Some((completion, Err(error)));
            }
        }
        None
    }

    /// Whether nothing that was accepted for sending on connections without an endpoint is unacknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.table.ids().all(|id| self.table.outstanding(id) == 0)
    }
}
