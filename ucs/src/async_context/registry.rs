//! What is registered, what is due, and what was missed: the context's data, without input or output.
//!
//! Used by `shared`, which keeps it under a mutex. Built on `handler`. Nothing else uses it.
//!
//! An entry is either *armed* (the kernel or the timer queue can report it) or not: from the moment something
//! happened until its handler has returned. That is what bounds a replay: an entry cannot be missed twice.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::RawFd;

use super::handler::{Callback, HandlerId, Schedule};
use super::ticks_after;
use crate::clock;
use crate::event_set::Events;

/// The context uses the numbers below for descriptors of its own.
pub(super) const FIRST_ID: u64 = 16;

/// See the module's documentation.
pub(super) struct Registry {
    next_id: u64,
    entries: HashMap<HandlerId, Entry>,
    /// Armed timers, by the tick at which they are due.
    timers: BTreeSet<(u64, HandlerId)>,
    /// Entries with something in `missed`, each once, in the order of their first event.
    missed: VecDeque<HandlerId>,
    /// The handler that runs, and the thread it runs on.
    pub(super) running: Option<(HandlerId, usize)>,
    pub(super) is_closed: bool,
    /// Registered descriptors.
    pub(super) fd_count: usize,
    /// The tick for which the timer descriptor is set; `u64::MAX` if it is not.
    pub(super) programmed: u64,
}

struct Entry {
    source: Source,
    /// `None` while it runs.
    callback: Option<Callback>,
    missed: Events,
}

/// What an entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Fd { fd: RawFd, events: Events },
    Timer(Timer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    schedule: Schedule,
    /// The tick at which it is due, while armed.
    due: Option<u64>,
    /// The tick at which it was due last.
    last: u64,
}

impl Registry {
    pub(super) fn new() -> Registry {
        Registry {
            next_id: FIRST_ID,
            entries: HashMap::new(),
            timers: BTreeSet::new(),
            missed: VecDeque::new(),
            running: None,
            is_closed: false,
            fd_count: 0,
            programmed: u64::MAX,
        }
    }

    /// A number for the next handler.
    pub(super) fn take_id(&mut self) -> HandlerId {
        let id = HandlerId(self.next_id);
        self.next_id += 1;
        id
    }

    pub(super) fn insert_fd(&mut self, id: HandlerId, fd: RawFd, events: Events, callback: Callback) {
        self.fd_count += 1;
        self.insert(id, Source::Fd { fd, events }, callback);
    }

    /// Adds a timer, armed.
    pub(super) fn insert_timer(&mut self, id: HandlerId, schedule: Schedule, callback: Callback) {
        self.insert(id, Source::Timer(Timer { schedule, due: None, last: 0 }), callback);
        self.start_timer(id, schedule);
    }

    fn insert(&mut self, id: HandlerId, source: Source, callback: Callback) {
        self.entries.insert(id, Entry { source, callback: Some(callback), missed: Events::empty() });
    }

    pub(super) fn source(&self, id: HandlerId) -> Option<Source> {
        self.entries.get(&id).map(|entry| entry.source)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn ids(&self) -> Vec<HandlerId> {
        self.entries.keys().copied().collect()
    }

    /// Whether the kernel may report the entry's descriptor.
    pub(super) fn is_armed(&self, id: HandlerId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.callback.is_some() && entry.missed.is_empty())
    }

    /// Changes what a descriptor waits for. `false` if it is no descriptor.
    pub(super) fn set_events(&mut self, id: HandlerId, wanted: Events) -> bool {
        match self.entries.get_mut(&id).map(|entry| &mut entry.source) {
            Some(Source::Fd { events, .. }) => {
                *events = wanted;
                true
            }
            _ => false,
        }
    }

    /// Arms a timer for its schedule from now; an expiry that was not delivered is forgotten. `false` if it
    /// is no timer.
    pub(super) fn start_timer(&mut self, id: HandlerId, schedule: Schedule) -> bool {
        let Some(Entry { source: Source::Timer(timer), missed, .. }) = self.entries.get_mut(&id) else {
            return false;
        };
        *missed = Events::empty();
        if let Some(due) = timer.due.take() {
            self.timers.remove(&(due, id));
        }
        let (Schedule::Once(delay) | Schedule::Every(delay)) = schedule;
        let due = ticks_after(delay);
        *timer = Timer { schedule, due: Some(due), last: timer.last };
        self.timers.insert((due, id));
        true
    }

    /// Arms a periodic timer for its next period after its handler has returned, unless the handler has set
    /// it anew.
    pub(super) fn continue_timer(&mut self, id: HandlerId) {
        let Some(Entry { source: Source::Timer(timer), .. }) = self.entries.get_mut(&id) else { return };
        let (None, Schedule::Every(interval)) = (timer.due, timer.schedule) else { return };
        // The beat is kept as long as it can be; periods that have gone by are skipped.
        let on_the_beat = timer.last.saturating_add(clock::duration_to_ticks(interval));
        let due = if on_the_beat > clock::ticks() { on_the_beat } else { ticks_after(interval) };
        timer.due = Some(due);
        self.timers.insert((due, id));
    }

    /// When the next timer is due; `u64::MAX` without timers.
    pub(super) fn next_due(&self) -> u64 {
        self.timers.first().map_or(u64::MAX, |&(due, _)| due)
    }

    /// Takes a timer that is due at `now`, which disarms it.
    pub(super) fn take_due(&mut self, now: u64) -> Option<HandlerId> {
        let &(due, id) = self.timers.first().filter(|&&(due, _)| due <= now)?;
        self.timers.pop_first();
        if let Some(Entry { source: Source::Timer(timer), .. }) = self.entries.get_mut(&id) {
            timer.due = None;
            timer.last = due;
        }
        Some(id)
    }

    /// Puts events aside until the last unblock.
    pub(super) fn push_missed(&mut self, id: HandlerId, events: Events) {
        if let Some(entry) = self.entries.get_mut(&id) {
            if entry.missed.is_empty() {
                self.missed.push_back(id);
            }
            entry.missed |= events;
        }
    }

    /// Handlers that have been put aside.
    #[cfg(all(test, not(loom)))]
    pub(super) fn missed_count(&self) -> usize {
        self.missed.len()
    }

    /// Takes what was put aside first. A handler that has been removed or set anew since has nothing left.
    pub(super) fn pop_missed(&mut self) -> Option<(HandlerId, Events)> {
        while let Some(id) = self.missed.pop_front() {
            if let Some(entry) = self.entries.get_mut(&id) {
                let events = std::mem::take(&mut entry.missed);
                if !events.is_empty() {
                    return Some((id, events));
                }
            }
        }
        None
    }

    /// Takes the callback out in order to run it on the thread of `token`. `None` if the handler has been
    /// removed, runs already, or does not want any of these events any more.
    pub(super) fn begin(
        &mut self,
        id: HandlerId,
        events: Events,
        token: usize,
    ) -> Option<(Callback, Events)> {
        let entry = self.entries.get_mut(&id)?;
        let wanted = match entry.source {
            Source::Fd { events: wanted, .. } => events & (wanted | Events::ERROR),
            Source::Timer(_) => events & Events::TIMER,
        };
        if wanted.is_empty() {
            return None;
        }
        let callback = entry.callback.take()?;
        self.running = Some((id, token));
        Some((callback, wanted))
    }

    /// Gives the callback back after it ran. If the handler has been removed meanwhile, the caller keeps it.
    pub(super) fn end(&mut self, id: HandlerId, callback: Callback) -> Option<Callback> {
        match self.entries.get_mut(&id) {
            Some(entry) => {
                entry.callback = Some(callback);
                self.running = None;
                None
            }
            None => Some(callback),
        }
    }

    /// Removes an entry. Returns where it was registered, and its callback unless that is running.
    pub(super) fn remove(&mut self, id: HandlerId) -> Option<(Source, Option<Callback>)> {
        let entry = self.entries.remove(&id)?;
        match entry.source {
            Source::Fd { .. } => self.fd_count -= 1,
            Source::Timer(timer) => {
                if let Some(due) = timer.due {
                    self.timers.remove(&(due, id));
                }
            }
        }
        Some((entry.source, entry.callback))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    fn nothing() -> Callback {
        Callback::Closure(Box::new(|_, _| {}))
    }

    #[test]
    fn no_number_is_given_twice_or_is_one_of_the_context_itself() {
        let mut registry = Registry::new();
        let numbers: Vec<u64> = (0..100).map(|_| registry.take_id().0).collect();
        assert!(numbers[0] >= FIRST_ID && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    }

    #[test]
    fn descriptors_and_handlers_are_counted_until_they_are_removed() {
        let mut registry = Registry::new();
        let ids = [registry.take_id(), registry.take_id(), registry.take_id()];
        registry.insert_fd(ids[0], 0, Events::READ, nothing());
        registry.insert_fd(ids[1], 1, Events::READ, nothing());
        registry.insert_timer(ids[2], Schedule::Once(Duration::ZERO), nothing());
        let mut counts = vec![(registry.len(), registry.fd_count)];
        counts.extend(ids.map(|id| {
            registry.remove(id).unwrap();
            (registry.len(), registry.fd_count)
        }));
        assert_eq!(counts, [(3, 2), (2, 1), (1, 0), (0, 0)]);
        assert_eq!(registry.next_due(), u64::MAX);
    }

    #[test]
    fn a_descriptor_is_not_armed_while_its_handler_runs_or_has_missed_something() {
        let mut registry = Registry::new();
        let id = registry.take_id();
        assert!(!registry.is_armed(id));
        registry.insert_fd(id, 0, Events::READ, nothing());
        assert!(registry.is_armed(id));
        let (callback, events) = registry.begin(id, Events::READ | Events::WRITE, 1).unwrap();
        assert_eq!(events, Events::READ, "it did not ask for more");
        assert!(!registry.is_armed(id));
        assert!(registry.end(id, callback).is_none());
        assert!(registry.is_armed(id));
        registry.push_missed(id, Events::READ);
        assert!(!registry.is_armed(id));
        assert_eq!(registry.pop_missed(), Some((id, Events::READ)));
        assert!(registry.is_armed(id));
        assert!(registry.begin(id, Events::WRITE, 1).is_none(), "nothing that it wants");
    }

    #[test]
    fn a_timer_keeps_its_beat_and_skips_what_has_gone_by() {
        let mut registry = Registry::new();
        let (id, hour) = (registry.take_id(), Duration::from_secs(3600));
        registry.insert_timer(id, Schedule::Every(hour), nothing());
        let first = registry.next_due();
        assert_eq!(registry.take_due(first - 1), None);
        assert_eq!(registry.take_due(first), Some(id));
        registry.continue_timer(id);
        let second = first + clock::duration_to_ticks(hour);
        assert_eq!(registry.next_due(), second, "the beat, whenever the handler returned");
    }

    #[test]
    fn a_timer_that_has_lost_its_beat_begins_anew() {
        let mut registry = Registry::new();
        let (id, interval) = (registry.take_id(), Duration::from_millis(1));
        registry.insert_timer(id, Schedule::Every(interval), nothing());
        registry.take_due(u64::MAX);
        if let Some(Entry { source: Source::Timer(timer), .. }) = registry.entries.get_mut(&id) {
            timer.last = 0;
        }
        let earliest = ticks_after(interval);
        registry.continue_timer(id);
        assert!((earliest..=ticks_after(interval)).contains(&registry.next_due()));
    }
}
