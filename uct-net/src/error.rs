//! The error of a connection: stage, peer, status, reason and remedy.

use std::fmt;

use ucs::Error as Status;
use ucs::memory::fork::Forked;
use ucs::sys::net::BadAddress;

/// The stage of a connection at which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Parsing or resolving the address.
    Resolve,
    /// Opening the listener's socket.
    Listen,
    /// Calling the peer's listener.
    Dial,
    /// Exchanging interfaces, addresses and verdicts.
    Handshake,
    /// Allocating memory of a `Net`.
    Allocate,
    /// Choosing a transport.
    Choose,
    /// Opening endpoints and sending the first message in each direction.
    Open,
    /// Using the connection.
    Connected,
    /// Closing, or after the end.
    Close,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Resolve => "resolve the address",
            Stage::Listen => "listen",
            Stage::Dial => "call the listener",
            Stage::Handshake => "handshake",
            Stage::Allocate => "allocate memory",
            Stage::Choose => "choose a transport",
            Stage::Open => "open a lane",
            Stage::Connected => "use the connection",
            Stage::Close => "close",
        })
    }
}

/// The peer of an error that is no peer's.
pub(crate) const THIS_PROCESS: &str = "this process";

/// Why an operation between two programs failed. Prints itself as one line: stage, peer, reason, remedy.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage} ({peer}): {reason}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct Error {
    /// The stage at which it failed.
    pub stage: Stage,
    /// The peer's address, or the address that the application passed.
    pub peer: String,
    /// The nearest status; the table is in docs/errors.md.
    pub status: Status,
    /// What happened, as reported by the system, the transport or the peer.
    pub reason: String,
    /// What to do about it, if known.
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

    /// A call in a child of a fork with an object of its parent.
    pub(crate) fn forked(stage: Stage, peer: impl Into<String>, forked: Forked) -> Error {
        Error::new(stage, peer, Status::from(forked), forked.to_string())
    }

    /// An address of a form that is not known, or a name that is not found.
    pub(crate) fn unresolved(peer: &str, bad: BadAddress) -> Error {
        Error::new(Stage::Resolve, peer, Status::INVALID_ADDR, bad.reason).hint(bad.remedy)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the operation ended at its time limit. An established connection continues.
    pub fn is_timeout(&self) -> bool {
        self.status == Status::TIMED_OUT
    }

    /// Whether the peer has closed the connection, with everything delivered that it had sent.
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

/// The result of a call.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;
