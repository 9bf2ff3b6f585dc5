//! Closing an endpoint.

use std::time::Duration;

use uct_net::local::Connection;
use uct_net::protocol::Engine;

use super::super::Errno;
use super::State;
use super::link::Link;

/// How long the end of one connection may take.
const ENDING: Duration = Duration::from_secs(2);

impl State {
    /// The endpoint accepts no further calls.
    pub(in super::super) fn stop(&self, endpoint: usize) {
        let inner = self.0.inner.borrow();
        let stop = inner.endpoints.get(endpoint).map(|endpoint| endpoint.stop.clone());
        drop(inner);
        if let Some(stop) = stop {
            stop.stop();
        }
    }

    /// Ends the connections of an endpoint, in order.
    pub(in super::super) fn close(&self, engine: &Engine, endpoint: usize) {
        let connections = self.connections(endpoint);
        if let Some(endpoint) = self.0.inner.borrow_mut().endpoints.get_mut(endpoint) {
            endpoint.closing = Some(connections.len());
        }
        for connection in connections {
            let state = self.clone();
            engine.spawn(async move {
                let _ = connection.close().within(ENDING).await;
                let mut inner = state.0.inner.borrow_mut();
                if let Some(endpoint) = inner.endpoints.get_mut(endpoint) {
                    endpoint.closing = endpoint.closing.map(|left| left.saturating_sub(1));
                }
            });
        }
    }

    /// Whether all its peers have the ends of their connections.
    pub(in super::super) fn is_closed(&self, endpoint: usize) -> bool {
        let inner = self.0.inner.borrow();
        inner.endpoints.get(endpoint).is_none_or(|endpoint| endpoint.closing == Some(0))
    }

    fn connections(&self, endpoint: usize) -> Vec<Connection> {
        let inner = self.0.inner.borrow();
        let peers = inner.endpoints.get(endpoint).map(|endpoint| endpoint.peers.iter()).into_iter().flatten();
        let connection = |link: &Link| match link {
            Link::Net { connection, .. } => Some(connection.clone()),
            _ => None,
        };
        peers.filter_map(|peer| connection(&peer.link)).collect()
    }

    /// Removes an endpoint. What its peers in this domain wait for fails.
    pub(in super::super) fn remove(&self, endpoint: usize) -> bool {
        let mut inner = self.0.inner.borrow_mut();
        let Some(removed) = inner.endpoints.try_remove(endpoint) else { return false };
        let others: Vec<_> = inner
            .endpoints
            .iter()
            .flat_map(|(number, other)| {
                let peers = other.peers.iter().enumerate();
                peers.filter_map(move |(peer, state)| match state.link {
                    Link::Local { endpoint: to, .. } if to == endpoint => Some((number, peer as u32)),
                    _ => None,
                })
            })
            .collect();
        for (number, peer) in others {
            inner.fail(number, peer, Errno::SHUT_DOWN, "the endpoint was closed");
        }
        inner.shared.local.retain(|frame| frame.endpoint != endpoint);
        for retired in &mut inner.shared.retired {
            retired.ends.take_if(|(number, ..)| *number == endpoint);
        }
        drop(inner);
        drop(removed);
        true
    }
}
