//! Requests that wait for the application, and how many there may be.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use ucs::Error;
use uct_plugin::Result;

use crate::proto::cm::{self, Kind};
use ucs::admission::{Limits, Patience, Places, Source, Vacancy};
use ucs::sys::descriptors;

/// The clients of a listener that are neither accepted nor rejected, by their numbers. One whose request has not arrived gives way to another
/// one. Any thread may consume a request.
pub(super) struct Pending(Mutex<Clients>);

struct Clients {
    places: Places<u64>,
    patience: Patience,
}

/// The place of one client.
pub(super) struct Place {
    pending: Arc<Pending>,
    number: u64,
}

impl Pending {
    /// With `cm_max_pending` and `cm_max_pending_per_source`.
    pub(super) fn new(most: u32, most_of_source: u32) -> Arc<Pending> {
        // Each has a descriptor.
        let most = (most as usize).min(descriptors::limit() / 8 * 7);
        let places = Places::new(Limits::new(most, most_of_source as usize));
        Arc::new(Pending(Mutex::new(Clients { places, patience: Patience::default() })))
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more client of some source can have a place now.
    pub(super) fn has_room(&self) -> bool {
        let (clients, now) = (&mut *self.clients(), Instant::now());
        if !clients.places.is_full() {
            return true;
        }
        let patience = clients.patience.at(now);
        clients.places.next_change(now, patience).is_some_and(|change| change <= now)
    }

    /// A place for a client, and the client that has to go for it. `None` if its source has too many, or if descriptors are short and none
    /// can go.
    pub(super) fn admit(
        self: &Arc<Self>,
        number: u64,
        address: IpAddr,
        is_short: bool,
    ) -> Option<(Place, Option<u64>)> {
        let (source, now) = (Source::of(address), Instant::now());
        let places = &mut self.clients().places;
        let goes = match places.ask(source, is_short, (now, Duration::ZERO), |_| true) {
            Vacancy::Free => None,
            Vacancy::Instead(other) => Some(other),
            Vacancy::None => return None,
        };
        places.add(number, source, now);
        Some((Place { pending: Arc::clone(self), number }, goes))
    }

    /// The client that has to go for the sake of its descriptor.
    pub(super) fn give_way(&self) -> Option<u64> {
        self.clients().places.give_way((Instant::now(), Duration::ZERO))
    }
}

impl Place {
    /// The client's request has arrived.
    pub(super) fn keep(&self) {
        self.pending.clients().places.keep(self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pending.clients().places.remove(self.number);
    }
}

/// A client's request.
pub(crate) struct TcpCmRequest {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    pub(super) place: Place,
}

impl TcpCmRequest {
    /// Sends the client the rejection.
    pub(super) fn reject(self, data: &[u8]) -> Result {
        let sent = self.check().and_then(|()| send_frame(&self.socket, &cm::write(Kind::Reject, data)));
        // A child of a fork may have the descriptor too.
        let _ = self.socket.shutdown(Shutdown::Both);
        sent
    }

    /// Whether the client is there.
    pub(super) fn check(&self) -> Result {
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            // It has nothing to send until it is accepted.
            _ => Err(Error::CONNECTION_RESET),
        }
    }
}

/// Sends a frame over a socket that has sent none before, and so has room for one.
pub(super) fn send_frame(socket: &Socket, frame: &[u8]) -> Result {
    match send(socket, frame, SendFlags::NOSIGNAL) {
        Ok(sent) if sent == frame.len() => Ok(()),
        _ => Err(Error::CONNECTION_RESET),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_room_for_others_and_gets_its_own_back() {
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let pending = Pending::new(4, 0);
        let admit = |number, address| pending.admit(number, address, false);
        let mut places: Vec<Place> = (0..3).map(|number| admit(number, one).unwrap().0).collect();
        places.iter().for_each(Place::keep);
        assert!(admit(3, one).is_none(), "three quarters of four");
        assert_eq!(pending.give_way(), None, "all have said something");
        let (silent, goes) = admit(4, other).unwrap();
        assert!(goes.is_none() && !pending.has_room(), "a silent client gets a moment");
        let (heard, goes) = admit(5, other).unwrap();
        assert_eq!(goes, Some(4), "all places are taken, and it has said nothing");
        heard.keep();
        assert!(!pending.has_room());
        places.remove(0);
        drop(silent);
        assert!(pending.has_room());
        let (last, _) = admit(6, one).unwrap();
        assert_eq!((pending.give_way(), pending.give_way()), (Some(6), None), "the silent one goes once");
        drop(last);
    }
}
