//! Bounds for unexpected messages: a peer that sends too many gets a pause frame.
//!
//! Messages alone pause. What was announced is still asked for and sent, so a receive that takes an unexpected message never waits for one behind it.

use super::Shared;
use super::endpoint::Endpoint;
use super::peer::Job;
use crate::wire::Head;

/// Bytes of unexpected messages that an endpoint keeps before it sends pause frames.
const MOST: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Bytes that a peer may send after the pause frame: what was in flight. Of a peer that sends more the credit is held back.
const IN_FLIGHT: usize = 16 << 20;
/// What an unexpected message, or an announced one with its offer, costs beside its bytes.
const COST: usize = 256;

impl Endpoint {
    /// An unexpected message is kept. Returns whether its credit is to be held back.
    pub(super) fn retain(&mut self, shared: &mut Shared, peer: u32, length: usize) -> bool {
        self.unexpected += length + COST;
        let is_over = self.unexpected > MOST;
        let state = self.peer(peer);
        state.unexpected += length + COST;
        if !is_over {
            return false;
        }
        let is_first = !std::mem::replace(&mut state.has_paused, true);
        let has_gone_on = state.unexpected > MOST + IN_FLIGHT;
        if is_first {
            self.has_paused_some = true;
            self.queue(shared, peer, Job::Head(Head::pause()));
        }
        has_gone_on
    }

    /// An unexpected message is no longer kept.
    pub(super) fn release(&mut self, shared: &mut Shared, peer: u32, length: usize) {
        self.unexpected -= length + COST;
        self.peer(peer).unexpected -= length + COST;
        if !self.has_paused_some || self.unexpected > MOST / 2 {
            return;
        }
        self.has_paused_some = false;
        for peer in 0..self.peers.len() as u32 {
            if std::mem::take(&mut self.peer(peer).has_paused) {
                self.queue(shared, peer, Job::Head(Head::resume()));
            }
        }
    }

    /// The peer takes no messages, or takes them again.
    pub(super) fn pause(&mut self, shared: &mut Shared, peer: u32, is_paused: bool) {
        let state = self.peer(peer);
        state.is_paused = is_paused;
        if !is_paused {
            while let Some(job) = state.parked.pop_back() {
                state.jobs.push_front(job);
            }
            if !state.is_blocked {
                self.is_due(shared, peer);
            }
        }
    }
}
