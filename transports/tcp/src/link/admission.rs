//! Room for connections that peers open: how many there may be, of one source and in all, and which one makes room for another.
//!
//! It knows connections by their numbers. A connection that carried something is never ended for another one: a peer that
//! is idle keeps its own. One that carried nothing behind its handshake, for long enough, is.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use ucs::clock::{self, Deadline};

use super::conn_id::ConnId;
use crate::io::socket::descriptors;

/// When an unused connection is looked for again, after there was none.
const SEARCH_AGAIN: Duration = Duration::from_millis(100);

/// The connections that peers opened, and those of this side that no endpoint uses any more, which are left to their peers.
pub(crate) struct Accepted {
    most: usize,
    most_of_source: usize,
    conns: HashMap<ConnId, Entry>,
    sources: HashMap<Source, usize>,
    /// No connection that could make room was found until then.
    next_search: Cell<Deadline>,
}

/// Whether there is room for one more connection.
pub(crate) enum Vacancy {
    Free,
    /// There was none a moment ago.
    Full,
    /// One of these has to go, the oldest first.
    Candidates(Vec<ConnId>),
}

struct Entry {
    source: Source,
    since: u64,
}

impl Accepted {
    /// With `max_connections` and `max_connections_per_source`.
    pub(super) fn new(most: u32, most_of_source: u32) -> Accepted {
        let most = match most {
            0 => descriptors() / 8 * 7,
            most => most as usize,
        };
        let most_of_source = match most_of_source {
            0 => most.div_ceil(4) * 3,
            most => most as usize,
        };
        Accepted {
            most: most.max(1),
            most_of_source: most_of_source.max(1),
            conns: HashMap::new(),
            sources: HashMap::new(),
            next_search: Cell::new(Deadline::at_ticks(0)),
        }
    }

    /// Whether a source has as many as it may.
    fn is_at_limit(&self, source: Source) -> bool {
        self.sources.get(&source).is_some_and(|&count| count >= self.most_of_source)
    }

    pub(super) fn add(&mut self, id: ConnId, source: Source) {
        self.conns.insert(id, Entry { source, since: clock::ticks() });
        *self.sources.entry(source).or_default() += 1;
    }

    pub(super) fn remove(&mut self, id: ConnId) {
        let Some(entry) = self.conns.remove(&id) else { return };
        if let Some(count) = self.sources.get_mut(&entry.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&entry.source);
            }
        }
    }

    /// The source that lacks room for one more of `source`: itself, or the one that has the most.
    fn crowded(&self, source: Source, lacks_descriptors: bool) -> Option<Source> {
        if self.is_at_limit(source) {
            return Some(source);
        }
        if self.conns.len() < self.most && !lacks_descriptors {
            return None;
        }
        let most = self.sources.iter().max_by_key(|(_, count)| **count);
        Some(most.map_or(source, |(most, _)| *most))
    }

    /// Whether there is room for one more of `source`, and which of those older than `age` could make room.
    pub(super) fn vacancy(&self, source: Source, lacks_descriptors: bool, age: Duration) -> Vacancy {
        match self.crowded(source, lacks_descriptors) {
            None => Vacancy::Free,
            Some(_) if !self.next_search.get().expired() => Vacancy::Full,
            Some(crowded) => Vacancy::Candidates(self.of(crowded, age)),
        }
    }

    /// No connection that could make room was found.
    pub(super) fn search_later(&self) {
        self.next_search.set(Deadline::after(SEARCH_AGAIN));
    }

    /// Counts a connection of this side that is left to its peer, unless the peer has as many as it may.
    pub(super) fn leave(&mut self, id: ConnId, source: Source) -> bool {
        if self.conns.contains_key(&id) {
            return true;
        }
        let has_room = !self.is_at_limit(source);
        if has_room {
            self.add(id, source);
        }
        has_room
    }

    /// A connection goes on as another one.
    pub(super) fn rename(&mut self, id: ConnId, instead: ConnId) {
        if let Some(entry) = self.conns.remove(&id) {
            self.conns.insert(instead, entry);
        }
    }

    /// Those of a source that are older than `age`, the oldest first.
    fn of(&self, source: Source, age: Duration) -> Vec<ConnId> {
        let latest = clock::ticks().saturating_sub(clock::duration_to_ticks(age));
        let old = self.conns.iter().filter(|(_, entry)| entry.source == source && entry.since <= latest);
        let mut old: Vec<_> = old.map(|(id, entry)| (entry.since, *id)).collect();
        old.sort_unstable_by_key(|(since, _)| *since);
        old.into_iter().map(|(_, id)| id).collect()
    }
}

/// What shares limits: an IPv4 address, or the network of an IPv6 one, of which a host may have any number of addresses. As a number:
/// the network, or the address, which then is no network that anybody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source(u64);

impl Source {
    /// That of a peer whose address is not known, as of one that has gone.
    pub(crate) const UNKNOWN: Source = Source(0);

    pub(crate) fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V6(address) => Source((address.to_bits() >> 64) as u64),
            IpAddr::V4(address) => Source(address.to_bits().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::conn_id::FIRST_TOKEN;

    fn accepted(most: u32, of_source: u32) -> Accepted {
        Accepted::new(most, of_source)
    }

    fn id(number: u32) -> ConnId {
        ConnId::of_token(FIRST_TOKEN | u64::from(number))
    }

    #[test]
    fn a_source_is_an_address_or_the_network_of_one() {
        let source = |address: &str| Source::of(address.parse().unwrap());
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
        assert_eq!(source("fd00::1"), source("fd00::ffff:0:0:2"));
        assert_ne!(source("fd00:0:0:1::1"), source("fd00::1"));
    }

    #[test]
    fn a_source_at_its_limit_has_to_make_room_itself_and_all_have_to_at_theirs() {
        let mut accepted = accepted(5, 3);
        let [one, other] = [1, 2].map(|last| Source::of(IpAddr::from([10, 0, 0, last])));
        for number in 1..=3 {
            assert_eq!(accepted.crowded(one, false), None, "connection {number}");
            accepted.add(id(number), one);
        }
        assert_eq!(accepted.crowded(one, false), Some(one));
        assert_eq!(accepted.crowded(other, false), None);
        accepted.add(id(4), other);
        accepted.add(id(5), other);
        assert_eq!(accepted.crowded(other, false), Some(one), "the source that has the most");
        assert_eq!(accepted.of(one, Duration::ZERO), [id(1), id(2), id(3)], "the oldest first");
        assert_eq!(accepted.of(one, Duration::from_secs(60)), []);
        accepted.remove(id(2));
        assert_eq!(accepted.crowded(one, false), None);
        accepted.remove(id(5));
        assert_eq!(accepted.crowded(one, true), Some(one), "without descriptors");
    }

    #[test]
    fn by_default_one_source_cannot_take_all() {
        let accepted = accepted(0, 0);
        assert!(accepted.most < descriptors() && accepted.most_of_source < accepted.most);
    }
}
