//! What goes wrong between two programs, for a person: at which stage, with which peer, why, and what to try.

use std::fmt;

use ucs::Error as Status;

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The address was read or looked up.
    Resolve,
    /// The listener's socket was opened.
    Listen,
    /// The peer's listener was called.
    Dial,
    /// Both sides say what they have.
    Handshake,
    /// A transport was chosen.
    Choose,
    /// Endpoints were opened and a first message sent.
    Open,
    /// The connection is in use.
    Connected,
    /// The connection is closing or closed.
    Close,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Resolve => "resolve the address",
            Stage::Listen => "listen",
            Stage::Dial => "call the listener",
            Stage::Handshake => "handshake",
            Stage::Choose => "choose a transport",
            Stage::Open => "open a lane",
            Stage::Connected => "use the connection",
            Stage::Close => "close",
        })
    }
}

/// Why something between two programs failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage} ({peer}): {reason}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct Error {
    /// How far it came.
    pub stage: Stage,
    /// The peer, or the address that was given.
    pub peer: String,
    /// The status that comes nearest.
    pub status: Status,
    /// What happened, in the words of the system, the transport or the peer.
    pub reason: String,
    /// What to try.
    pub hint: Option<String>,
}

ucs::debug_as_display!(Error);

impl Error {
    pub(crate) fn new(
        stage: Stage,
        peer: impl Into<String>,
        status: Status,
        reason: impl Into<String>,
    ) -> Error {
        Error { stage, peer: peer.into(), status, reason: reason.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the operation ended because its time was over. The connection may live on.
    pub fn is_timeout(&self) -> bool {
        self.status == Status::TIMED_OUT
    }

    /// Whether the peer closed the connection in order.
    pub fn is_closed_by_peer(&self) -> bool {
        self.stage == Stage::Close && self.status == Status::NOT_CONNECTED
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        use std::io::ErrorKind::{
            AddrInUse, ConnectionRefused, ConnectionReset, NotConnected, Other, TimedOut,
        };
        let kind = match error.status {
            Status::TIMED_OUT | Status::ENDPOINT_TIMEOUT => TimedOut,
            Status::CONNECTION_RESET => ConnectionReset,
            Status::REJECTED => ConnectionRefused,
            Status::NOT_CONNECTED => NotConnected,
            Status::BUSY => AddrInUse,
            _ => Other,
        };
        std::io::Error::new(kind, error)
    }
}

/// The outcome of a call.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;
