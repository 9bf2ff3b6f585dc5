//! What an endpoint is bound to.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{AddressVector, Counter, Queue, flags};

/// Queues, counters and addresses of an endpoint.
#[derive(Clone)]
pub struct Bindings {
    /// For sends, accesses of remote memory and atomic operations.
    pub transmit: Option<Arc<Queue>>,
    /// For received messages, and writes of peers that have data.
    pub receive: Option<Arc<Queue>>,
    /// Its peers.
    pub addresses: Arc<AddressVector>,
    /// Counters.
    pub counters: Counters,
}

/// Counters of an endpoint, each for one kind of operation.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "named as libfabric's flags")]
pub struct Counters {
    pub send: Option<Arc<Counter>>,
    pub receive: Option<Arc<Counter>>,
    pub read: Option<Arc<Counter>>,
    pub write: Option<Arc<Counter>>,
    pub remote_read: Option<Arc<Counter>>,
    pub remote_write: Option<Arc<Counter>>,
}

/// What an endpoint is opened with.
#[derive(Clone)]
pub struct EndpointOptions {
    /// The address to listen at; with port 0 the system chooses one. Its host is the one that peers call, not a wildcard.
    pub listen: SocketAddr,
    /// Queues, counters and addresses.
    pub bindings: Bindings,
}

impl Bindings {
    /// The counter of an operation with these flags.
    #[inline]
    pub(super) fn counter(&self, flags: u64) -> Option<&Counter> {
        let counters = &self.counters;
        let counter = if flags & flags::SEND != 0 {
            &counters.send
        } else if flags & flags::RECV != 0 {
            &counters.receive
        } else if flags & flags::WRITE != 0 {
            &counters.write
        } else if flags & flags::READ != 0 {
            &counters.read
        } else if flags & flags::REMOTE_WRITE != 0 {
            &counters.remote_write
        } else {
            &counters.remote_read
        };
        counter.as_deref()
    }
}
