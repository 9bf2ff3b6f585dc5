//! Requests that wait for the application, and how many there may be.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use ucs::Error;
use uct_plugin::Result;

use crate::proto::cm::{self, Kind};
use ucs::admission::Source;

/// The clients of a listener that are neither accepted nor rejected. Any thread may consume a request.
pub(super) struct Pending {
    most: u32,
    most_of_source: u32,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: u32,
    of: HashMap<Source, u32>,
}

/// The place of one client.
pub(super) struct Place {
    pending: Arc<Pending>,
    source: Source,
}

impl Pending {
    /// With `cm_max_pending` and `cm_max_pending_per_source`.
    pub(super) fn new(most: u32, most_of_source: u32) -> Arc<Pending> {
        let most_of_source = if most_of_source == 0 { most.div_ceil(4) * 3 } else { most_of_source };
        Arc::new(Pending { most, most_of_source: most_of_source.min(most), counts: Mutex::default() })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no room for one more.
    pub(super) fn is_full(&self) -> bool {
        self.counts().all >= self.most
    }

    /// A place for a client; `None` if its source has too many.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let source = Source::of(address);
        let mut counts = self.counts();
        let of_source = counts.of.entry(source).or_default();
        if *of_source >= self.most_of_source {
            return None;
        }
        *of_source += 1;
        counts.all += 1;
        Some(Place { pending: Arc::clone(self), source })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.pending.counts();
        counts.all -= 1;
        if let Some(of_source) = counts.of.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                counts.of.remove(&self.source);
            }
        }
    }
}

/// A client's request.
pub(crate) struct TcpCmRequest {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    pub(super) _place: Place,
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
        let mut places: Vec<Place> = (0..3).map(|_| pending.admit(one).unwrap()).collect();
        assert!(pending.admit(one).is_none(), "three quarters of four");
        assert!(!pending.is_full());
        places.push(pending.admit(other).unwrap());
        assert!(pending.is_full());
        places.remove(0);
        assert!(!pending.is_full() && pending.admit(one).is_some());
    }
}
