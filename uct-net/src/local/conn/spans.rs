//! The spans of an established connection: `connection`, of its whole life, and in it `established`.
//!
//! Used by `Conn`. Built on `tracing`. Sends and receives touch no span.

use std::fmt::Display;

use tracing::field::display;
use tracing::{Span, debug_span};
use uct_core::Iface;

/// The spans, which close when this is dropped.
pub(crate) struct Spans {
    // Ahead of the span that it is in.
    _established: Span,
    connection: Span,
}

impl Spans {
    /// The handshake within `connection` is complete, over `iface`. `lane` is its name in the explanation.
    pub(crate) fn new(connection: &Span, iface: &Iface, lane: &str) -> Spans {
        let resource = iface.resource();
        connection.record("lane", lane);
        connection.record("transport", resource.transport.as_str());
        connection.record("device", resource.device.as_str());
        let established = debug_span!(parent: connection, "established");
        Spans { _established: established, connection: connection.clone() }
    }

    /// Notes why the connection ends.
    pub(crate) fn note_end(&self, reason: impl Display) {
        self.connection.record("reason", display(reason));
    }
}
