//! Connections in their handshake: of peers whose hello has not arrived, and of this side to peers whose listen queue is full.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use slab::Slab;
use ucs::clock::Deadline;
use ucs::event_set::TimerFd;
use ucs::log::Limited;
use ucs::sys::SystemError;

use crate::io::socket::Line;
use crate::link::connection::Connection;
use crate::link::handshake::Dial;

/// A connection whose hello has not arrived.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(crate) line: Line,
    pub(crate) deadline: Deadline,
}

/// See the module.
pub(crate) struct Door {
    pub(crate) half_open: RefCell<Slab<HalfOpen>>,
    pub(crate) dials: RefCell<Vec<(Rc<Connection>, Dial)>>,
    /// Until when the listener is paused.
    pub(crate) resting: Cell<Option<Deadline>>,
    /// Log lines about the pause.
    pub(crate) rests: Limited,
    pub(crate) timer: TimerFd,
    pub(crate) next_tick: Cell<Deadline>,
}

impl Door {
    pub(crate) fn new() -> Result<Door, SystemError> {
        Ok(Door {
            half_open: RefCell::default(),
            dials: RefCell::default(),
            resting: Cell::new(None),
            rests: Limited::new(1),
            timer: TimerFd::new()?,
            next_tick: Cell::new(Deadline::NEVER),
        })
    }

    /// The timer, for the event set.
    pub(crate) fn timer(&self) -> &TimerFd {
        &self.timer
    }

    /// Closes all of them.
    pub(crate) fn close(&self) {
        self.half_open.borrow_mut().clear();
        self.dials.borrow_mut().clear();
    }

    /// Sets the timer to wake progress at this time, if not earlier.
    pub(crate) fn want_tick(&self, at: Deadline) {
        if at == Deadline::NEVER || at >= self.next_tick.get() {
            return;
        }
        match self.timer.set(at.remaining()) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => ucs::log::error!("{error}"),
        }
    }

    /// Removes the oldest connection of the process that has most of them.
    pub(crate) fn make_room(&self) -> Option<OwnedFd> {
        let mut half_open = self.half_open.borrow_mut();
        let mut counts = HashMap::new();
        for (_, one) in half_open.iter() {
            *counts.entry(one.line.1).or_insert(0usize) += 1;
        }
        let key = |one: &HalfOpen| (counts[&one.line.1], Reverse(one.deadline));
        let (number, _) = half_open.iter().max_by_key(|(_, one)| key(one))?;
        Some(half_open.remove(number).line.0)
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::io::socket::Credentials;

    /// Whether the timer wakes a sleeper within so many seconds.
    fn ticks(door: &Door, seconds: i64) -> bool {
        let mut fds = [PollFd::new(door.timer(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_earliest_tick_that_is_wanted_comes_and_a_later_one_does_not_put_it_off() {
        let hour = || Deadline::after(Duration::from_secs(3600));
        let soon = || Deadline::after(Duration::from_millis(5));
        let door = Door::new().unwrap();
        door.want_tick(Deadline::NEVER);
        assert!(!ticks(&door, 0) && door.next_tick.get() == Deadline::NEVER);
        door.want_tick(hour());
        assert!(door.next_tick.get() != Deadline::NEVER);
        door.want_tick(soon());
        assert!(ticks(&door, 60), "the later one was first");
        let door = Door::new().unwrap();
        door.want_tick(soon());
        door.want_tick(hour());
        door.want_tick(Deadline::NEVER);
        assert!(ticks(&door, 60), "the later one was last");
    }

    /// A process that connects again and again makes room of its own.
    #[test]
    fn the_oldest_connection_of_the_process_with_most_makes_room_for_another() {
        let door = Door::new().unwrap();
        assert!(door.make_room().is_none());
        let files: Vec<OwnedFd> = (0..6).map(|_| rustix::pipe::pipe().unwrap().0).collect();
        let numbers: Vec<_> = files.iter().map(|file| file.as_fd().as_raw_fd()).collect();
        // The first two processes have one that is older than all of the third.
        let all = files.into_iter().zip([(1, 10), (2, 20), (3, 40), (3, 30), (3, 50), (2, 60)]);
        for (file, (pid, seconds)) in all {
            let deadline = Deadline::after(Duration::from_secs(seconds));
            let line = (file, Credentials { pid, uid: 0 });
            door.half_open.borrow_mut().insert(HalfOpen { line, deadline });
        }
        let removed = |count: usize| -> Vec<usize> {
            let place =
                |file: OwnedFd| numbers.iter().position(|number| *number == file.as_raw_fd()).unwrap();
            // All stay open, so that no number is used again.
            let files: Vec<OwnedFd> = (0..count).map(|_| door.make_room().unwrap()).collect();
            files.into_iter().map(place).collect()
        };
        assert_eq!(removed(1), [3], "the third process has three");
        // Now the second and the third have two each, and that of the second is the oldest.
        assert_eq!(removed(1), [1]);
        assert_eq!(removed(2), [2, 0]);
        assert_eq!(door.half_open.borrow().len(), 2);
        door.close();
        assert!(door.make_room().is_none());
    }
}
