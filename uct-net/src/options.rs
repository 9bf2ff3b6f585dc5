//! What a program may choose for all of its connections.

use std::time::Duration;

use uct_core::select::{Operation, Request};

use crate::proto::proof::MIN_KEY;
use crate::proto::window::{MAX_WINDOW, MIN_WINDOW};

/// How a thread waits that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls for ever: lowest latency, one processor.
    Spin,
    /// Polls for so long after the last event, then sleeps. While a handshake is under way: for at least 100 µs.
    Adaptive(Duration),
    /// Sleeps at once.
    Sleep,
}

/// What a program may choose for all of its connections.
#[derive(Clone)]
pub struct NetOptions {
    /// How the thread waits. Default: [`Wait::Adaptive`] of 20 µs.
    pub wait: Wait,
    /// Bytes that a peer may send on one connection ahead of what the application took. 4 KiB to 1 GiB; default 1 MiB.
    pub window: u32,
    /// Longest message that is received. A longer one ends its connection. Default 64 MiB.
    pub max_message: usize,
    /// Callers that a listener has taken and `accept` has not returned yet; more wait in the system's queue. Default 128.
    pub max_half_open: usize,
    /// How long a peer has for each step of the handshake. Default 5 s.
    pub handshake_timeout: Duration,
    /// How long a lane has to carry its first message both ways before the next candidate is tried. Default 2 s.
    pub lane_timeout: Duration,
    /// How long [`crate::local::Connect`] takes at most, when no limit is given. Default 30 s.
    pub connect_timeout: Duration,
    /// A key that both sides have: each proves to the other that it knows it before any address is told. At least 16 bytes, random
    /// ones. It proves who is there and hides nothing: a host on the path reads and can change what follows. Default: none, and
    /// any process that reaches the listener may ask for a connection.
    pub shared_key: Option<Vec<u8>>,
    /// TLS for the handshake, and where messages may go then: [`crate::Tls`] says what is encrypted and what is not. The key above
    /// may be required as well. Default: none.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::Tls>,
    /// What transports are judged for. Default: a message of 8 bytes.
    pub request: Request,
}

impl Default for NetOptions {
    fn default() -> NetOptions {
        NetOptions {
            wait: Wait::Adaptive(Duration::from_micros(20)),
            window: 1 << 20,
            max_message: 64 << 20,
            max_half_open: 128,
            handshake_timeout: Duration::from_secs(5),
            lane_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(30),
            shared_key: None,
            #[cfg(feature = "tls")]
            tls: None,
            request: Request::new(Operation::AmShort, 8),
        }
    }
}

impl NetOptions {
    /// Which transports these options leave out, for a person.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().and_then(crate::Tls::limit);
        #[cfg(not(feature = "tls"))]
        None
    }

    /// What is out of range, for a person.
    pub(crate) fn problem(&self) -> Option<String> {
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&self.window) {
            return Some(format!(
                "window = {}: expected {MIN_WINDOW} to {MAX_WINDOW} bytes; it bounds what a peer may send unread",
                self.window
            ));
        }
        if self.max_half_open == 0 {
            return Some("max_half_open = 0: expected at least 1, or nobody can connect".to_owned());
        }
        if self.shared_key.as_ref().is_some_and(|key| key.len() < MIN_KEY) {
            return Some(format!(
                "shared_key: expected at least {MIN_KEY} bytes; shorter ones can be guessed"
            ));
        }
        #[cfg(feature = "tls")]
        if let Some(problem) = self.tls.as_ref().and_then(crate::Tls::problem) {
            return Some(problem);
        }
        None
    }
}

/// Without the key.
impl std::fmt::Debug for NetOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetOptions")
            .field("wait", &self.wait)
            .field("window", &self.window)
            .field("max_message", &self.max_message)
            .field("has_shared_key", &self.shared_key.is_some())
            .finish_non_exhaustive()
    }
}
