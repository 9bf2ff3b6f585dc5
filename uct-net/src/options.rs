//! The options of a network: of all connections of one `Net`.

use std::time::Duration;

use uct_host::select::{Operation, Request};

use crate::proto::handshake::auth::MIN_KEY;
use crate::proto::window::{MAX_WINDOW, MIN_WINDOW};

/// How a thread waits while nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls without end: lowest latency, and takes a whole processor.
    Spin,
    /// Polls for this time after the last event, then sleeps. While events come soon after it has fallen asleep, it polls longer, for up to 250 µs;
    /// if they then still come only when it sleeps, as where the peer waits for the same processor, in `local::Net::block_on` for 1 µs,
    /// with an attempt now and then. During a handshake it polls for at least 100 µs.
    Adaptive(Duration),
    /// Sleeps immediately. A wake-up takes some microseconds, often 20 or more.
    Sleep,
}

/// The options of a network: of all connections of one `Net`. `Net::new` refuses values out of range with an error.
#[derive(Clone)]
pub struct NetOptions {
    /// How the thread waits. Default: [`Wait::Adaptive`] of 20 µs.
    pub wait: Wait,
    /// Bytes that a peer may send on one connection before the application receives them. 4 KiB to 1 GiB; default 1 MiB.
    pub window: u32,
    /// Longest message that is received, in bytes. A longer one ends its connection. Default 64 MiB.
    pub max_message: usize,
    /// Callers that a listener has taken from the system and `accept` has not returned yet. If there are more, the oldest one that has not
    /// completed the first step of the handshake gives way, of the source with the most of them: at first after a second, and at once
    /// while ever more callers come. If there is none, callers wait in the system's queue. At least 1; default 128.
    pub max_half_open: usize,
    /// Connections that callers have opened, and are opening. Further callers are refused; none is ended for another one. Default 0: seven
    /// eighths of the descriptors that are left when the net is made, or a third of that with TLS; of the connections that are open, only
    /// those count then whose lane is the socket of the handshake, and each other transport has limits of its own.
    pub max_connections: usize,
    /// The same for one source: an IPv4 address, a /64 network of IPv6, a process of this user or another user at the other end of a Unix
    /// socket. Default 0: three quarters of `max_connections`.
    pub max_connections_per_source: usize,
    /// Descriptors of the process that stay free of callers. Default 32.
    pub reserved_descriptors: u32,
    /// Time limit for the peer in each step of the handshake. All steps of a caller together, TLS and the lanes that are tried aside, have twice this
    /// time before it is returned by `accept`, and again when it is accepted. Default 5 s.
    pub handshake_timeout: Duration,
    /// Time limit for a lane to carry its first message in both directions; then the next candidate is tried. Default 2 s.
    pub lane_timeout: Duration,
    /// Time limit of connecting as a whole, unless `Connect::within` sets one. Default 30 s.
    pub connect_timeout: Duration,
    /// A key that both sides have. Each proves to the other that it knows the key before any address is sent. At least 16 random
    /// bytes. The key authenticates the handshake and encrypts nothing: a host on the path can read it, and change what follows. Default: none; then
    /// any process that reaches the listener may request a connection.
    pub shared_key: Option<Vec<u8>>,
    /// TLS for the handshake, and the lanes that are permitted with it: [`crate::Tls`] documents what is encrypted and what is not.
    /// `shared_key` may be required as well. Default: none.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::Tls>,
    /// The operation and size for which selection compares the transports. Default: a message of 8 bytes.
    pub request: Request,
}

impl Default for NetOptions {
    fn default() -> NetOptions {
        NetOptions {
            wait: Wait::Adaptive(Duration::from_micros(20)),
            window: 1 << 20,
            max_message: 64 << 20,
            max_half_open: 128,
            max_connections: 0,
            max_connections_per_source: 0,
            reserved_descriptors: 32,
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
    /// Which transports these options exclude, as text.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().and_then(crate::Tls::limit);
        #[cfg(not(feature = "tls"))]
        None
    }

    /// Whether the handshake is inside TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether an interface may carry messages inside TLS only.
    pub(crate) fn wraps(&self, iface: &uct_host::Iface) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(|tls| tls.wraps(iface));
        #[cfg(not(feature = "tls"))]
        {
            let _ = iface;
            false
        }
    }

    /// What is out of range, as text.
    pub(crate) fn problem(&self) -> Option<String> {
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&self.window) {
            return Some(format!(
                "window = {}: expected {MIN_WINDOW} to {MAX_WINDOW} bytes; it bounds what a peer may send unread",
                self.window
            ));
        }
        if self.max_half_open == 0 {
            return Some("max_half_open = 0: expected at least 1; with 0 no caller could connect".to_owned());
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
