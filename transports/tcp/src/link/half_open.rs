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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::proto::wire::HelloKind;

    /// An accepted socket of this source, and the peer's end of it.
    fn accepted(source: u8) -> ((Socket, SocketAddr), UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        ((Socket::from(ours), SocketAddr::from(([10, 0, 0, source], 7))), theirs)
    }

    /// Whether this side has closed a socket.
    fn is_closed(peer: &mut UnixStream) -> bool {
        peer.set_nonblocking(true).unwrap();
        peer.read(&mut [0]).is_ok_and(|read| read == 0)
    }

    fn hello() -> Hello {
        Hello {
            kind: HelloKind::Hello,
            features: 0,
            sender: 7,
            key: 3,
            token: 1,
            max_message: 1 << 16,
            refusal: None,
            in_use: false,
            wants_own: false,
            claim: None,
        }
    }

    #[test]
    fn numbers_follow_one_another_and_are_of_no_other_kind() {
        let mut list = HalfOpenList::new(4);
        assert_eq!([list.next_token(), list.next_token()], [HALF_OPEN + 1, HALF_OPEN + 2]);
        let last = FIRST_TOKEN - 1;
        list.next = last - HALF_OPEN - 1;
        assert_eq!([list.next_token(), list.next_token()], [last, HALF_OPEN]);
    }

    #[test]
    fn a_hello_is_whole_wherever_its_bytes_are_cut_and_what_is_none_is_told_at_once() {
        let bytes = hello().write();
        for cut in 0..=HELLO {
            for is_read_before in [false, true] {
                let mut list = HalfOpenList::new(4);
                let (socket, mut peer) = accepted(1);
                let first = if is_read_before { &bytes[..cut.min(HELLO - 1)] } else { &[] };
                list.add(5, socket, Deadline::NEVER, first, None);
                peer.write_all(&bytes[first.len()..cut.max(first.len())]).unwrap();
                if cut < HELLO {
                    assert!(list.receive(5).is_none() && list.len() == 1, "{cut} bytes");
                    peer.write_all(&bytes[cut.max(first.len())..]).unwrap();
                }
                let (one, verdict) = list.receive(5).expect("it is whole");
                assert!(matches!(verdict, Some(Ok(hello))
                    if (hello.kind, hello.sender, hello.key) == (HelloKind::Hello, 7, 3)));
                assert_eq!((one.address.port(), list.len()), (7, 0));
            }
        }
        let mut list = HalfOpenList::new(4);
        let [(one, mut foreign), (other, gone)] = [accepted(1), accepted(1)];
        list.add(1, one, Deadline::NEVER, &[], None);
        list.add(2, other, Deadline::NEVER, &[], None);
        foreign.write_all(b"GET / HTTP").unwrap();
        assert!(matches!(list.receive(1), Some((_, Some(Err(_))))));
        drop(gone);
        assert!(matches!(list.receive(2), Some((_, None))));
        assert!(list.receive(3).is_none() && list.len() == 0);
    }

    #[test]
    fn the_oldest_goes_when_all_places_are_taken_and_one_that_is_awaited_has_none() {
        let mut list = HalfOpenList::new(2);
        let awaited = ConnId::of_token(FIRST_TOKEN + 1);
        let mut peers: Vec<_> = (0..3)
            .map(|number| {
                let (socket, peer) = accepted(1);
                let conn = (number == 0).then_some(awaited);
                list.add(number, socket, Deadline::NEVER, &[], conn);
                if number < 2 {
                    assert!(!list.make_room(), "there is a place");
                }
                peer
            })
            .collect();
        assert!(list.make_room());
        assert_eq!(
            (peers.iter_mut().map(is_closed).collect::<Vec<_>>(), list.len()),
            (vec![false, true, false], 2)
        );
        assert!(!list.make_room(), "there is one now");
        assert!(list.drop_oldest() && !list.drop_oldest());
        assert_eq!(peers.iter_mut().map(is_closed).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn those_that_took_too_long_go_and_give_their_places_back() {
        let mut list = HalfOpenList::new(1);
        assert_eq!(list.next_deadline(), Deadline::NEVER);
        let awaited = ConnId::of_token(FIRST_TOKEN + 1);
        let mut peers = Vec::new();
        for (token, ticks, conn) in [(1, 300, None), (2, 200, Some(awaited)), (3, 400, Some(awaited))] {
            let (socket, peer) = accepted(1);
            list.add(token, socket, Deadline::at_ticks(ticks), &[], conn);
            peers.push(peer);
        }
        assert_eq!(list.next_deadline(), Deadline::at_ticks(200));
        assert_eq!((list.drop_expired(199).len(), list.len()), (0, 3));
        assert!(list.drop_expired(200) == [Some(awaited)]);
        assert_eq!(list.next_deadline(), Deadline::at_ticks(300));
        assert!(list.drop_expired(399) == [None]);
        assert_eq!(peers.iter_mut().map(is_closed).collect::<Vec<_>>(), [true, true, false]);
        assert!(!list.make_room(), "its place is free");
    }
}
