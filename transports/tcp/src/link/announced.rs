//! Room for large messages that arrive: how much of it is taken, by which sources, and which connections wait.
//!
//! It knows connections by their numbers. A message that finds no room waits behind those of its source, and of two sources whose shares have
//! room the one whose message came first is served first. A source takes at most its share, so no source waits for another one's
//! messages as long as these are the only ones.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ucs::admission::Source;
use ucs::clock::Deadline;
use uct_plugin::rma::REQUEST_HEADER;

use super::conn_id::ConnId;
use crate::proto::wire::padded;

/// When connections that hold room for what does not come are looked for again: those that wait for room share one search.
pub(super) const SEARCH_AGAIN: Duration = Duration::from_millis(50);

/// The room of an interface.
pub(crate) struct Announced {
    most: usize,
    most_of_source: usize,
    taken: usize,
    sources: HashMap<Source, Share>,
    waiting: usize,
    /// Messages that have waited so far.
    numbers: u64,
    next_search: Deadline,
}

/// What a source has of it.
#[derive(Default)]
struct Share {
    taken: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    /// Lower ones came first, of whatever source.
    number: u64,
    conn: ConnId,
    bytes: usize,
}

/// Room that a message has taken. It goes back to `Shared::give_room`.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    source: Source,
    bytes: usize,
}

impl Announced {
    /// For messages of up to `max_message` bytes, with `max_announced` and `max_announced_per_source`.
    pub(super) fn new(most: usize, most_of_source: usize, max_message: usize) -> Announced {
        // The longest frame that is counted. Each of two sources can have one.
        let longest = padded(max_message + REQUEST_HEADER);
        let most = most.max(2 * longest);
        let most_of_source = match most_of_source {
            0 => most / 2,
            bytes => bytes.max(longest),
        };
        Announced {
            most,
            most_of_source,
            taken: 0,
            sources: HashMap::new(),
            waiting: 0,
            numbers: 0,
            next_search: Deadline::at_ticks(0),
        }
    }

    /// Takes room for a message of a connection, or has it wait.
    pub(super) fn ask(&mut self, conn: ConnId, source: Source, bytes: usize) -> Option<Room> {
        let of_source = self.sources.get(&source).map_or(0, |share| share.taken);
        if self.waiting == 0 && of_source + bytes <= self.most_of_source && self.taken + bytes <= self.most {
            return Some(self.take(source, bytes));
        }
        self.numbers += 1;
        self.waiting += 1;
        let waiting = Waiting { number: self.numbers, conn, bytes };
        self.sources.entry(source).or_default().waiting.push_back(waiting);
        None
    }

    fn take(&mut self, source: Source, bytes: usize) -> Room {
        self.taken += bytes;
        self.sources.entry(source).or_default().taken += bytes;
        Room { source, bytes }
    }

    /// The source whose first message has waited longest, of those whose shares have room for it.
    fn first_source(&self) -> Option<Source> {
        let first = self.sources.iter().filter_map(|(source, share)| {
            let first = share.waiting.front()?;
            (share.taken + first.bytes <= self.most_of_source).then_some((first.number, *source))
        });
        first.min().map(|(_, source)| source)
    }

    /// Takes room for the next message in turn, if there is enough.
    pub(super) fn serve(&mut self) -> Option<(ConnId, Room)> {
        if self.waiting == 0 {
            return None;
        }
        let source = self.first_source()?;
        let left = self.most - self.taken;
        let waiting = &mut self.sources.get_mut(&source)?.waiting;
        if waiting.front()?.bytes > left {
            return None;
        }
        let first = waiting.pop_front()?;
        self.waiting -= 1;
        Some((first.conn, self.take(source, first.bytes)))
    }

    pub(super) fn give(&mut self, room: Room) {
        self.taken -= room.bytes;
        if let Some(share) = self.sources.get_mut(&room.source) {
            share.taken -= room.bytes;
        }
        self.forget_unused(room.source);
    }

    /// A connection waits no more.
    pub(super) fn stop_waiting(&mut self, conn: ConnId, source: Source) {
        let Some(share) = self.sources.get_mut(&source) else { return };
        let before = share.waiting.len();
        share.waiting.retain(|waiting| waiting.conn != conn);
        self.waiting -= before - share.waiting.len();
        self.forget_unused(source);
    }

    fn forget_unused(&mut self, source: Source) {
        if self.sources.get(&source).is_some_and(|share| share.taken == 0 && share.waiting.is_empty()) {
            self.sources.remove(&source);
        }
    }

    /// Another connection waits for what this one waited for.
    pub(super) fn wait_instead(&mut self, conn: ConnId, source: Source, instead: ConnId) {
        let Some(share) = self.sources.get_mut(&source) else { return };
        for waiting in share.waiting.iter_mut().filter(|waiting| waiting.conn == conn) {
            waiting.conn = instead;
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Begins a search for connections that hold room which others need. Otherwise: when to look again.
    pub(super) fn begin_search(&mut self, now: u64) -> Result<(), Deadline> {
        if self.waiting == 0 {
            return Err(Deadline::NEVER);
        }
        if !self.next_search.expired_at(now) {
            return Err(self.next_search);
        }
        self.next_search = Deadline::after(SEARCH_AGAIN);
        Ok(())
    }

    /// When a search may begin.
    pub(super) fn next_search(&self) -> Deadline {
        self.next_search
    }

    /// Whether others wait for room that this source has: all sources together have too much, or those that wait have.
    pub(super) fn is_needed(&self, source: Source) -> bool {
        self.first_source().is_some() || self.awaits(source)
    }

    /// Whether a message of this source waits.
    fn awaits(&self, source: Source) -> bool {
        self.sources.get(&source).is_some_and(|share| !share.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ucs::units::MemSize;

    use super::*;
    use crate::link::conn_id::FIRST_TOKEN;

    const MESSAGE: usize = 1 << 20;
    const LONGEST: usize = MESSAGE + REQUEST_HEADER;

    fn sources() -> [Source; 3] {
        [1, 2, 3].map(|last| Source::of(IpAddr::from([10, 0, 0, last])))
    }

    fn announced(most: &str, of_source: &str) -> Announced {
        let bytes = |text: &str| text.parse::<MemSize>().unwrap().to_usize();
        Announced::new(bytes(most), bytes(of_source), MESSAGE)
    }

    fn id(number: u32) -> ConnId {
        ConnId::of_token(FIRST_TOKEN | u64::from(number))
    }

    /// The connections that are served now, in order.
    fn served(announced: &mut Announced) -> Vec<(ConnId, Room)> {
        std::iter::from_fn(|| announced.serve()).collect()
    }

    fn ids(served: &[(ConnId, Room)]) -> Vec<ConnId> {
        served.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn a_source_has_half_of_the_room_unless_the_configuration_says_so_and_always_enough_for_one_message() {
        let limits = |most, of_source| {
            let announced = announced(most, of_source);
            (announced.most, announced.most_of_source)
        };
        assert_eq!(limits("1g", "0"), (1 << 30, 1 << 29));
        assert_eq!(limits("1g", "10m"), (1 << 30, 10 << 20));
        assert_eq!(limits("64k", "0"), (2 * LONGEST, LONGEST));
        assert_eq!(limits("1g", "64k"), (1 << 30, LONGEST));
    }

    #[test]
    fn a_source_at_its_share_waits_and_others_do_not() {
        let (mut announced, [a, b, _]) = (announced("8m", "0"), sources());
        let mut rooms: Vec<_> = (0..4).map(|number| announced.ask(id(number), a, MESSAGE).unwrap()).collect();
        assert_eq!(announced.ask(id(4), a, MESSAGE), None);
        assert_eq!(announced.ask(id(5), a, 1), None, "behind the one ahead, though there is room");
        assert_eq!(announced.ask(id(6), b, MESSAGE), None);
        assert_eq!(ids(&served(&mut announced)), [id(6)], "another source's does not wait for them");
        announced.give(rooms.remove(0));
        assert_eq!(ids(&served(&mut announced)), [id(4)]);
        announced.give(rooms.remove(0));
        assert_eq!(ids(&served(&mut announced)), [id(5)]);
    }

    #[test]
    fn who_waits_for_room_of_all_is_served_in_the_order_of_coming_whatever_the_source() {
        let (mut announced, [a, b, c]) = (announced("4m", "3m"), sources());
        let first = announced.ask(id(1), a, 3 * MESSAGE).unwrap();
        let second = announced.ask(id(2), b, MESSAGE).unwrap();
        for (number, source) in [(3, c), (4, b), (5, c), (6, b)] {
            assert_eq!(announced.ask(id(number), source, MESSAGE), None);
        }
        assert_eq!(announced.ask(id(7), c, 1), None);
        assert_eq!(ids(&served(&mut announced)), []);
        announced.give(second);
        assert_eq!(ids(&served(&mut announced)), [id(3)]);
        announced.stop_waiting(id(4), b);
        announced.give(first);
        assert_eq!(ids(&served(&mut announced)), [id(5), id(6), id(7)]);
        assert_eq!((announced.waiting, announced.taken), (0, 3 * MESSAGE + 1));
    }

    #[test]
    fn room_is_needed_of_a_source_that_waits_itself_and_of_all_while_another_could_be_served() {
        let (mut announced, [a, b, c]) = (announced("8m", "0"), sources());
        let needed = |announced: &Announced| [a, b, c].map(|source| announced.is_needed(source));
        assert_eq!(announced.begin_search(1), Err(Deadline::NEVER), "nobody waits");
        let _rooms: Vec<_> = (0..4).map(|number| announced.ask(id(number), a, MESSAGE).unwrap()).collect();
        assert_eq!(needed(&announced), [false; 3]);
        assert_eq!(announced.ask(id(4), a, MESSAGE), None);
        assert_eq!(needed(&announced), [true, false, false], "only its own would serve it");
        assert_eq!(announced.ask(id(5), b, 4 * MESSAGE), None);
        assert_eq!(needed(&announced), [true; 3], "room of any source would serve it");
        announced.stop_waiting(id(5), b);
        assert_eq!(needed(&announced), [true, false, false]);

        assert_eq!(announced.begin_search(1), Ok(()));
        assert_eq!(announced.begin_search(1), Err(announced.next_search()), "not again at once");
        assert_ne!(announced.next_search(), Deadline::NEVER);
        announced.stop_waiting(id(4), a);
        assert_eq!(
            (needed(&announced), announced.begin_search(u64::MAX)),
            ([false; 3], Err(Deadline::NEVER))
        );
    }

    #[test]
    fn sources_that_have_nothing_are_forgotten() {
        let (mut announced, [a, ..]) = (announced("4m", "0"), sources());
        let room = announced.ask(id(1), a, 2 * MESSAGE).unwrap();
        assert_eq!(announced.ask(id(2), a, MESSAGE), None);
        announced.stop_waiting(id(2), a);
        assert_eq!(announced.sources.len(), 1);
        announced.give(room);
        assert_eq!((announced.sources.len(), announced.taken, announced.waiting), (0, 0, 0));
    }
}
