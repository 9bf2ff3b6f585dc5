//! The places of one kind, and which entry gives way to which.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::Source;

/// How many entries there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub most: usize,
    /// Of one source.
    pub most_of_source: usize,
}

impl Limits {
    /// At least one each; with 0 for a source, three quarters of all.
    pub fn new(most: usize, most_of_source: usize) -> Limits {
        let most = most.max(1);
        let most_of_source = if most_of_source == 0 { most.div_ceil(4) * 3 } else { most_of_source };
        Limits { most, most_of_source: most_of_source.min(most) }
    }

    /// As many as there may be of one source.
    pub fn shared(most: usize) -> Limits {
        Limits::new(most, usize::MAX)
    }
}

/// Entries and their sources. An entry is silent until [`Places::keep`] says otherwise, and a silent one that is old enough gives way: the
/// oldest one of the sources with the most entries, or of the new one's source if that has as many as it may.
///
/// A source below its limit gets a place as long as there is a silent entry, of whatever source, that is old enough. Each operation
/// takes time logarithmic in the number of entries, counted over the life of an entry.
#[derive(Debug)]
pub struct Places<K> {
    limits: Limits,
    entries: HashMap<K, Entry>,
    sources: HashMap<Source, Share<K>>,
    /// Silent entries that were never old enough to give way, the oldest first.
    young: BTreeMap<u64, K>,
    /// The sources with others of them, by their numbers of entries; of as many, by their oldest such entry: which addresses a source has
    /// decides nothing.
    crowded: BTreeSet<(usize, Reverse<u64>, Source)>,
    /// Entries so far.
    made: u64,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    /// Older ones have lower numbers.
    number: u64,
    since: Instant,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Young,
    Silent,
    Kept,
}

/// The entries of a source.
#[derive(Debug)]
struct Share<K> {
    count: usize,
    silent: BTreeMap<u64, K>,
}

impl<K> Share<K> {
    /// Its place among the sources with silent entries, if it has one.
    fn place(&self, source: Source) -> Option<(usize, Reverse<u64>, Source)> {
        let (&oldest, _) = self.silent.first_key_value()?;
        Some((self.count, Reverse(oldest), source))
    }
}

/// Whether there is a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Vacancy<K> {
    /// There is.
    Free,
    /// There is, because this one had to give way. It is no entry any more, and is to be closed.
    Instead(K),
    /// There is none: all entries are kept, or too young to give way.
    None,
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// Without entries.
    pub fn new(limits: Limits) -> Places<K> {
        Places {
            limits,
            entries: HashMap::new(),
            sources: HashMap::new(),
            young: BTreeMap::new(),
            crowded: BTreeSet::new(),
            made: 0,
        }
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there are as many as there may be.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limits.most
    }

    /// Whether an entry is counted.
    pub fn contains(&self, id: K) -> bool {
        self.entries.contains_key(&id)
    }

    /// Whether a source has as many entries as it may.
    pub fn is_at_limit(&self, source: Source) -> bool {
        self.sources.get(&source).is_some_and(|share| share.count >= self.limits.most_of_source)
    }

    /// A place for one more entry of a source. `is_short`: descriptors are, so that another entry has to go. `patience`: how long a silent
    /// entry keeps its place. `is_silent` is asked about an entry that is to give way; one that is not silent is kept for good.
    pub fn ask(
        &mut self,
        source: Source,
        is_short: bool,
        (now, patience): (Instant, Duration),
        is_silent: impl FnMut(K) -> bool,
    ) -> Vacancy<K> {
        let crowded = match self.is_at_limit(source) {
            true => Some(source),
            false if is_short || self.is_full() => None,
            false => return Vacancy::Free,
        };
        self.age(now, patience);
        self.oldest(crowded, is_silent).map_or(Vacancy::None, Vacancy::Instead)
    }

    /// The entry that gives way if there is need of its place or its descriptor. It is no entry any more, and is to be closed.
    pub fn give_way(&mut self, (now, patience): (Instant, Duration)) -> Option<K> {
        self.age(now, patience);
        self.oldest(None, |_| true)
    }

    /// When an entry gives way, unless it says something; a time that is over: one does now. `None`: all are kept.
    pub fn next_change(&self, now: Instant, patience: Duration) -> Option<Instant> {
        if !self.crowded.is_empty() {
            return Some(now);
        }
        let (_, oldest) = self.young.first_key_value()?;
        Some(self.entries.get(oldest)?.since + patience)
    }

    /// Counts an entry, which is silent so far.
    pub fn add(&mut self, id: K, source: Source, now: Instant) {
        self.remove(id);
        let number = self.made;
        self.made += 1;
        self.entries.insert(id, Entry { source, number, since: now, standing: Standing::Young });
        self.young.insert(number, id);
        self.change(source, |share| share.count += 1);
    }

    /// An entry does not give way any more.
    pub fn keep(&mut self, id: K) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (source, number) = (entry.source, entry.number);
        match std::mem::replace(&mut entry.standing, Standing::Kept) {
            Standing::Young => {
                self.young.remove(&number);
            }
            Standing::Silent => self.change(source, |share| {
                share.silent.remove(&number);
            }),
            Standing::Kept => {}
        }
    }

    /// An entry has gone.
    pub fn remove(&mut self, id: K) {
        self.keep(id);
        if let Some(entry) = self.entries.remove(&id) {
            self.change(entry.source, |share| share.count -= 1);
        }
    }

    /// An entry goes on as another one, which is none yet.
    pub fn rename(&mut self, id: K, instead: K) {
        let Some(entry) = self.entries.remove(&id) else { return };
        match entry.standing {
            Standing::Young => {
                self.young.insert(entry.number, instead);
            }
            Standing::Silent => {
                self.change(entry.source, |share| {
                    share.silent.insert(entry.number, instead);
                });
            }
            Standing::Kept => {}
        }
        self.entries.insert(instead, entry);
    }

    /// Those that have been silent for that long give way from now on.
    fn age(&mut self, now: Instant, patience: Duration) {
        while let Some((&number, &id)) = self.young.first_key_value() {
            let Some(entry) = self.entries.get_mut(&id) else { return };
            if now.saturating_duration_since(entry.since) < patience {
                return;
            }
            entry.standing = Standing::Silent;
            let source = entry.source;
            self.young.remove(&number);
            self.change(source, |share| {
                share.silent.insert(number, id);
            });
        }
    }

    /// Takes out the oldest silent entry of a source, or of those with the most entries.
    fn oldest(&mut self, source: Option<Source>, mut is_silent: impl FnMut(K) -> bool) -> Option<K> {
        loop {
            let source = source.or_else(|| self.crowded.last().map(|&(.., source)| source))?;
            let (_, &id) = self.sources.get(&source)?.silent.first_key_value()?;
            if is_silent(id) {
                self.remove(id);
                return Some(id);
            }
            self.keep(id);
        }
    }

    /// Changes what a source has, and its place among the others.
    fn change(&mut self, source: Source, change: impl FnOnce(&mut Share<K>)) {
        let share = self.sources.entry(source).or_insert_with(|| Share { count: 0, silent: BTreeMap::new() });
        if let Some(place) = share.place(source) {
            self.crowded.remove(&place);
        }
        change(share);
        if let Some(place) = share.place(source) {
            self.crowded.insert(place);
        }
        if share.count == 0 {
            self.sources.remove(&source);
        }
    }
}
