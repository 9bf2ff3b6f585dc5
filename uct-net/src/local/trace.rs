//! The span of a connection, at level debug, from the call or the caller's arrival on. A span inside it for each stage shows how long that
//! took, and which events are its own.
//!
//! Used by `connect` and `listen`. Built on `tracing`: without a subscriber that wants spans there are none.

use std::fmt::Display;

use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use super::conn::Spans;
use super::connection::Connection;
use crate::error::Result;

/// The span of a call.
pub(crate) fn calling(address: &str) -> Span {
    span("connect", address)
}

/// The span of a caller.
pub(crate) fn accepting(peer: &str) -> Span {
    span("accept", peer)
}

fn span(side: &str, peer: &str) -> Span {
    // It may outlive the application's span.
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
    connection.record("reason", display(reason));
}
