//! Accepted sockets without a complete handshake. Any process can connect and send anything, so their number and time are limited.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use ucs::admission::{Limits, Places, Source};
use ucs::clock::Deadline;
use ucs::log::Limited;

use super::conn_id::{ConnId, FIRST_TOKEN};
use crate::proto::wire::{self, BadHello, HELLO, Hello};

/// The first number of a half-open connection in the event set; they end at [`FIRST_TOKEN`].
pub(crate) const HALF_OPEN: u64 = 1 << 31;

/// A connection without a complete handshake.
pub(crate) struct HalfOpen {
    pub(crate) socket: Socket,
    pub(crate) address: SocketAddr,
    hello: [u8; HELLO],
    have: usize,
    deadline: Deadline,
    /// The connection that waits for it, of an endpoint that was created over the socket. Without it, any peer may have called.
    pub(crate) conn: Option<ConnId>,
}

/// Those of an interface, the oldest first.
pub(crate) struct HalfOpenList {
    list: BTreeMap<u64, HalfOpen>,
    /// Those of them for which no connection waits.
    places: Places<u64>,
    next: u64,
    /// Until when the listeners rest.
    pub(crate) resting: Option<Deadline>,
    /// Lines about refused connections and about the rest; both come as often as unauthenticated peers like.
    pub(crate) refusals: Limited,
    pub(crate) rests: Limited,
}

impl HalfOpen {
    /// Reads received bytes. The outcome: incomplete, closed, or a hello.
    fn receive(&mut self) -> Option<Option<Result<Hello, BadHello>>> {
        match recv(&self.socket, &mut self.hello[self.have..], RecvFlags::empty()) {
            Ok((received, _)) if received > 0 => {
                self.have += received;
                match wire::check_start(&self.hello[..self.have]) {
                    Ok(()) if self.have < HELLO => None,
                    Ok(()) => Some(Some(Hello::read(&self.hello))),
                    Err(bad) => Some(Some(Err(bad))),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            _ => Some(None),
        }
    }
}

impl HalfOpenList {
    /// With `max_half_open`.
    pub(crate) fn new(most: u32) -> HalfOpenList {
        HalfOpenList {
            list: BTreeMap::new(),
            places: Places::new(Limits::shared(most as usize)),
            next: 0,
            resting: None,
            refusals: Limited::new(1),
            rests: Limited::new(1),
        }
    }

    /// A number in the event set for one more.
    pub(crate) fn next_token(&mut self) -> u64 {
        self.next = (self.next + 1) % (FIRST_TOKEN - HALF_OPEN);
        HALF_OPEN + self.next
    }

    /// `first` are bytes that were received already, less than a hello.
    pub(crate) fn add(
        &mut self,
        token: u64,
        (socket, address): (Socket, SocketAddr),
        deadline: Deadline,
        first: &[u8],
        conn: Option<ConnId>,
    ) {
        let mut hello = [0; HELLO];
        hello[..first.len()].copy_from_slice(first);
        if conn.is_none() {
            self.places.add(token, Source::of(address.ip()), Instant::now());
        }
        self.list.insert(token, HalfOpen { socket, address, hello, have: first.len(), deadline, conn });
    }

    /// Receives from one. It is removed when its handshake is complete or has failed; with its hello, if there is one.
    pub(crate) fn receive(&mut self, token: u64) -> Option<(HalfOpen, Option<Result<Hello, BadHello>>)> {
        let hello = self.list.get_mut(&token)?.receive()?;
        self.places.remove(token);
        Some((self.list.remove(&token)?, hello))
    }

    /// Drops the oldest one of the source that has the most if there are as many as there may be; returns whether it did.
    pub(crate) fn make_room(&mut self) -> bool {
        self.places.is_full() && self.drop_oldest()
    }

    /// Drops the oldest one of the source that has the most; false if there is none.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let oldest = self.places.give_way((Instant::now(), Duration::ZERO));
        oldest.is_some_and(|token| self.list.remove(&token).is_some())
    }

    /// Drops those that took too long; returns the connections that wait for them.
    pub(crate) fn drop_expired(&mut self, now: u64) -> Vec<Option<ConnId>> {
        let mut expired = Vec::new();
        self.list.retain(|token, one| {
            let is_late = one.deadline.expired_at(now);
            if is_late {
                self.places.remove(*token);
                expired.push(one.conn);
            }
            !is_late
        });
        expired
    }

    /// When the next one is due.
    pub(crate) fn next_deadline(&self) -> Deadline {
        self.list.values().map(|one| one.deadline).min().unwrap_or(Deadline::NEVER)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}
