//! The span of a connection, at level debug, from the call or the caller's arrival on. A span inside it for each stage shows how long that
//! took, and which events are its own.
//!
//! Used by `connect` and `listen`. Built on `span`: without a subscriber that wants spans there are none.

use std::fmt::Display;

use tracing::debug_span;
use tracing::field::Empty;

use super::conn::Spans;
use super::connection::Connection;
use super::span::Span;
use crate::error::Result;

/// The span of a call.
pub(crate) fn calling(address: &str) -> Span {
    span("connect", address)
}

/// The span of a caller.
pub(crate) fn accepting(peer: &str) -> Span {
    span("accept", peer)
}

fn span(side: &'static str, peer: &str) -> Span {
    let peer = peer.to_owned();
    // It may outlive the application's span.
    Span::new(move || {
        debug_span!(
            parent: None,
            "connection",
            side,
            peer,
            lane = Empty,
            transport = Empty,
            device = Empty,
            reason = Empty
        )
    })
}

/// Notes what came of an attempt: the connection keeps its span, and a failure is the reason of the end.
pub(crate) fn outcome(connection: &Span, outcome: Result<Connection>) -> Result<Connection> {
    match &outcome {
        Ok(made) => {
            let spans = Spans::new(connection, made.iface(), &made.explanation().chosen);
            made.conn().keep_spans(spans);
        }
        Err(error) => note_end(connection, error),
    }
    outcome
}

/// Notes why there will be no connection.
pub(crate) fn note_end(connection: &Span, reason: impl Display) {
    connection.note_end(reason);
}
