//! The spans of an established connection: `connection`, of its whole life, and in it `established`.
//!
//! Used by `Conn`. Built on `span`. Sends and receives touch no span.

use std::fmt::Display;

use tracing::debug_span;
use uct_host::Iface;

use super::super::span::Span;

/// The spans, which close when this is dropped.
pub(crate) struct Spans {
    // Ahead of the span that it is in.
    _established: Span,
    connection: Span,
}

impl Spans {
    /// The handshake within `connection` is complete, over `iface`. `lane` is its name in the explanation.
    pub(crate) fn new(connection: &Span, iface: &Iface, lane: &str) -> Spans {
        let (resource, lane) = (iface.resource().clone(), lane.to_owned());
        connection.with(move |span| {
            span.record("lane", lane);
            span.record("transport", resource.transport);
            span.record("device", resource.device);
        });
        let _established = connection.child(|| debug_span!("established"));
        Spans { _established, connection: connection.clone() }
    }

    /// Notes why the connection ends.
    pub(crate) fn note_end(&self, reason: impl Display) {
        self.connection.note_end(reason);
    }
}
