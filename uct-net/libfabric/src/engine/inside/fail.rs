//! The end of a peer's connection.

use std::sync::Arc;

use uct_net::protocol::Engine;

use super::super::Errno;
use super::endpoint::{Endpoint, receive_flags};
use super::link::Link;
use super::message::{Arrived, Begun, Place, Placed};
use super::peer::{Job, Pending};
use super::{Event, Inner, Shared, State};

impl State {
    /// Something that a connection has reported, or that was found wrong with it.
    pub(super) fn happened(&self, engine: &Engine, event: Event) {
        match event {
            Event::Writable { endpoint, peer, attempt } => {
                let mut inner = self.0.inner.borrow_mut();
                let Inner { endpoints, shared, .. } = &mut *inner;
                if let Some(endpoint) = endpoints.get_mut(endpoint)
                    && endpoint.peer(peer).attempt == attempt
                {
                    endpoint.unblock(shared, peer);
                }
            }
            Event::Read { endpoint, reading, is_read } => {
                let mut inner = self.0.inner.borrow_mut();
                let Inner { endpoints, shared, .. } = &mut *inner;
                if let Some(endpoint) = endpoints.get_mut(endpoint) {
                    endpoint.was_reading(shared, reading, is_read);
                }
            }
            Event::Ended { endpoint, peer, attempt, reason } => {
                if self.is_current(endpoint, peer, attempt) {
                    self.failed_by(engine, endpoint, peer, &reason);
                }
            }
            Event::Broken { endpoint, peer, attempt, reason } => {
                if self.is_current(endpoint, peer, attempt) {
                    self.abort(endpoint, peer, &reason);
                    let reason = format!("the peer broke the protocol: {reason}");
                    self.failed(engine, endpoint, peer, Errno::IO, &reason);
                }
            }
        }
    }

    fn is_current(&self, endpoint: usize, peer: u32, attempt: u32) -> bool {
        let mut inner = self.0.inner.borrow_mut();
        inner.endpoints.get_mut(endpoint).is_some_and(|endpoint| endpoint.peer(peer).attempt == attempt)
    }

    fn abort(&self, endpoint: usize, peer: u32, reason: &str) {
        let connection = {
            let mut inner = self.0.inner.borrow_mut();
            let Some(endpoint) = inner.endpoints.get_mut(endpoint) else { return };
            match &endpoint.peer(peer).link {
                Link::Net { connection, .. } => Some(connection.clone()),
                _ => None,
            }
        };
        if let Some(connection) = connection {
            connection.abort(reason);
        }
    }

    /// An attempt to connect, or a connection, has failed for this reason.
    pub(super) fn failed_by(&self, engine: &Engine, endpoint: usize, peer: u32, error: &uct_net::Error) {
        self.failed(engine, endpoint, peer, errno_of(error), &error.to_string());
    }

    /// Ends all operations that wait for a peer.
    pub(super) fn failed(&self, engine: &Engine, endpoint: usize, peer: u32, errno: Errno, reason: &str) {
        let mut inner = self.0.inner.borrow_mut();
        let former = inner.fail(endpoint, peer, errno, reason);
        drop(inner);
        // Its end may call the sink.
        drop(former);
        engine.request_turn();
    }
}

impl Inner {
    /// Ends all operations that wait for a peer, and returns its connection.
    pub(super) fn fail(&mut self, endpoint: usize, peer: u32, errno: Errno, reason: &str) -> Option<Link> {
        let Inner { endpoints, shared, .. } = self;
        let endpoint = endpoints.get_mut(endpoint)?;
        let reason: Arc<str> = reason.into();
        let former = endpoint.fail(shared, peer, errno, &reason);
        endpoint.is_gone(peer);
        Some(former)
    }
}

impl Endpoint {
    pub(super) fn fail(&mut self, shared: &mut Shared, peer: u32, errno: Errno, reason: &Arc<str>) -> Link {
        let state = self.peer(peer);
        let link = std::mem::replace(&mut state.link, Link::Closed);
        state.attempt += 1;
        state.is_blocked = false;
        state.refused = None;
        state.held = 0;
        state.is_paused = false;
        state.has_paused = false;
        state.reads_at_once = false;
        let begun = state.begun.take();
        let placed = state.placed.take();
        let parked = std::mem::take(&mut state.parked);
        let jobs = std::mem::take(&mut state.jobs);
        state.streams.clear();
        let operations = std::mem::take(&mut state.operations);
        let arriving = std::mem::take(&mut state.arriving);
        for job in parked.into_iter().chain(jobs) {
            match job {
                Job::Copied(_, Some(ticket)) | Job::Message { ticket: Some(ticket), .. } => {
                    self.failed(&ticket, errno, Some(reason));
                }
                // Others are replies, or belong to operations.
                _ => {}
            }
        }
        for (_, Pending { ticket, kind, .. }) in operations {
            // With its registration: the program gets the memory back.
            drop(kind);
            self.failed(&ticket, errno, Some(reason));
        }
        for (_, arriving) in arriving {
            self.not_received(&arriving.target, arriving.is_tagged, errno, Some(reason));
        }
        let begun = match begun {
            Some(Begun { place: Place::Target(arriving), .. }) => Some(arriving),
            _ => None,
        };
        for arriving in begun.into_iter().chain(placed.and_then(Placed::into_message)) {
            self.not_received(&arriving.target, arriving.is_tagged, errno, Some(reason));
        }
        self.fail_readings(peer, errno, reason);
        for is_tagged in [true, false] {
            let failed = self
                .space(is_tagged)
                .fail_source(peer, |arrived| matches!(arrived, Arrived::Bytes { missing: 0, .. }));
            for posted in failed.receives {
                self.receive_failed(&posted, receive_flags(is_tagged), errno, Some(reason));
            }
            for message in failed.messages {
                let length = match message.payload {
                    Arrived::Bytes { bytes, missing, .. } => bytes.len() + missing,
                    Arrived::Request { .. } => 0,
                };
                self.release(shared, peer, length);
            }
            self.report_released(is_tagged);
        }
        link
    }
}

/// The error number that is nearest.
fn errno_of(error: &uct_net::Error) -> Errno {
    use ucs::Error as Status;
    use uct_net::Stage;

    if error.is_closed_by_peer() {
        return Errno::SHUT_DOWN;
    }
    match (error.stage, error.status) {
        (_, Status::TIMED_OUT | Status::ENDPOINT_TIMEOUT) => Errno::TIMED_OUT,
        (Stage::Dial | Stage::Handshake, Status::REJECTED) => Errno::REFUSED,
        (Stage::Dial, _) => Errno::REFUSED,
        (Stage::Connected | Stage::Close, _) => Errno::RESET,
        _ => Errno::UNREACHABLE,
    }
}
