//! What a program binds to an endpoint before it enables it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::abi::*;
use crate::boundary::Outcome;
use crate::engine::{self, Bindings, Errno};

use super::address_vector::AddressVector;
use super::completion_queue::CompletionQueue;
use super::counter::Counter;

/// What was bound.
pub struct Setup {
    /// Where to listen.
    pub address: SocketAddr,
    pub vector: Option<Arc<AddressVector>>,
    pub transmit: Option<Direction>,
    pub receive: Option<Direction>,
    pub counters: Vec<(Arc<Counter>, u64)>,
}

/// The completions of one direction.
pub struct Direction {
    queue: Arc<CompletionQueue>,
    pub is_selective: bool,
}

impl Setup {
    pub fn new(address: SocketAddr) -> Setup {
        Setup { address, vector: None, transmit: None, receive: None, counters: Vec::new() }
    }

    /// Binds a queue for one direction or both.
    pub fn bind_queue(&mut self, queue: &Arc<CompletionQueue>, flags: u64) -> Outcome {
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 || flags & (FI_SEND | FI_RECV) == 0 {
            return Err(Errno(EBADFLAGS));
        }
        let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        for (flag, direction) in [(FI_SEND, &mut self.transmit), (FI_RECV, &mut self.receive)] {
            if flags & flag != 0 {
                if direction.is_some() {
                    return Err(Errno::INVALID);
                }
                *direction = Some(Direction { queue: Arc::clone(queue), is_selective });
            }
        }
        Ok(())
    }

    /// What the engine needs. Each direction that the program wants to use has a queue or a counter, else failures would be lost.
    pub fn bindings(&self, caps: u64) -> Outcome<Bindings> {
        let vector = self.vector.as_ref().ok_or(Errno(ENOAV))?;
        let counter = |flag| {
            let found = self.counters.iter().find(|(_, flags)| flags & flag != 0);
            found.map(|(counter, _)| Arc::clone(&counter.engine))
        };
        let counters = engine::Counters {
            send: counter(FI_SEND),
            receive: counter(FI_RECV),
            read: counter(FI_READ),
            write: counter(FI_WRITE),
            remote_read: counter(FI_REMOTE_READ),
            remote_write: counter(FI_REMOTE_WRITE),
        };
        let is_deaf = |direction: &Option<Direction>, flags: u64| {
            direction.is_none()
                && self.counters.iter().all(|(_, counted)| counted & flags == 0)
                && caps & flags != 0
        };
        if is_deaf(&self.transmit, FI_SEND | FI_READ | FI_WRITE) || is_deaf(&self.receive, FI_RECV) {
            return Err(Errno(ENOCQ));
        }
        let queue = |direction: &Option<Direction>| direction.as_ref().map(|it| Arc::clone(&it.queue.engine));
        Ok(Bindings {
            transmit: queue(&self.transmit),
            receive: queue(&self.receive),
            addresses: Arc::clone(&vector.engine),
            counters,
        })
    }
}
