//! A set of file descriptors to wait on, and the descriptors that wake a waiter: epoll, eventfd, timerfd.
//!
//! For threads that sleep until an event happens. Built on `rustix`. The async context, worker wake-up and
//! transports that own sockets use it.
//!
//! A child of a fork shares them with its parent, down to what was added and which events were fetched. There, removing, raising and lowering do
//! nothing, and the other calls are refused.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use bitflags::bitflags;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::memory::fork::{ForkGuard, Forked};
use crate::sys::SystemError;

mod wakeup;

pub use wakeup::{EventFd, TimerFd};

bitflags! {
    /// What to wait for, and what happened. The numbers are UCX's event set flags, and stay below 2³².
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Events: u32 {
        /// There is something to read, or the peer has closed its side.
        const READ = 1 << 0;
        /// There is room to write, or a connection attempt has ended.
        const WRITE = 1 << 1;
        /// An error or a hang-up. Reported whether or not it was requested.
        const ERROR = 1 << 2;
        /// Report a change once instead of a state for as long as it lasts.
        const EDGE_TRIGGERED = 1 << 3;
        /// A timer is due. Only the async context reports it.
        const TIMER = 1 << 4;
        /// Report once, then stay silent until modified.
        const ONE_SHOT = 1 << 5;
    }
}

/// One thing that happened: on the descriptor that was added with `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub events: Events,
    /// The number given when the descriptor was added.
    pub data: u64,
}

/// Room for the events of one [`EventSet::wait`], meant for the stack.
pub struct EventBuffer<const N: usize = 16>([epoll::Event; N]);

/// A set of descriptors to wait on. It is a descriptor itself, so it can be added to another set.
///
/// All calls may be made from several threads at once.
#[derive(Debug)]
pub struct EventSet {
    epoll: OwnedFd,
    fork: ForkGuard,
}

impl<const N: usize> EventBuffer<N> {
    /// An empty buffer.
    pub const fn new() -> EventBuffer<N> {
        EventBuffer(
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; N],
        )
    }
}

impl<const N: usize> Default for EventBuffer<N> {
    fn default() -> EventBuffer<N> {
        EventBuffer::new()
    }
}

impl EventSet {
    /// An empty set; closed on `exec`. Fails when the process or the system is out of descriptors.
    pub fn new() -> Result<EventSet, SystemError> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
            .map(|epoll| EventSet { epoll, fork: ForkGuard::new() })
            .map_err(|errno| SystemError::new("create an event set", errno).of_call("epoll_create1"))
    }

    /// Adds a descriptor. The caller removes it before closing it; one that is closed without leaves by itself, if
    /// no duplicate of it is open. A descriptor that is in the set already is `EEXIST`, a regular file
    /// `EPERM`.
    pub fn add(&self, fd: impl AsFd, events: Events, data: u64) -> Result<(), SystemError> {
        let fd = fd.as_fd();
        self.check("add a file descriptor to an event set")?;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(data), to_epoll(events))
            .map_err(|errno| failure("add", fd.as_raw_fd(), errno))
    }

    /// Changes what is waited for on a descriptor, and its number. Re-arms one that was added as
    /// [`Events::ONE_SHOT`].
    pub fn modify(&self, fd: impl AsFd, events: Events, data: u64) -> Result<(), SystemError> {
        let fd = fd.as_fd();
        self.check("modify a file descriptor in an event set")?;
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(data), to_epoll(events))
            .map_err(|errno| failure("modify", fd.as_raw_fd(), errno))
    }

    /// Removes a descriptor. An event of it that another thread has fetched already may still be delivered.
    pub fn remove(&self, fd: impl AsFd) -> Result<(), SystemError> {
        let fd = fd.as_fd();
        if self.fork.check().is_err() {
            // The parent waits for it still.
            return Ok(());
        }
        epoll::delete(&self.epoll, fd).map_err(|errno| failure("remove", fd.as_raw_fd(), errno))
    }

    /// Waits until something happens, `timeout` has passed (`None`: for ever), or a signal arrives; then the
    /// answer is empty. Zero does not wait. Waits are rounded up to whole milliseconds; for less, add a
    /// [`TimerFd`].
    ///
    /// Allocates nothing. What does not fit into `buffer` is reported by the next call.
    pub fn wait<'buffer, const N: usize>(
        &self,
        buffer: &'buffer mut EventBuffer<N>,
        timeout: Option<Duration>,
    ) -> Result<impl ExactSizeIterator<Item = Event> + use<'buffer, N>, SystemError> {
        // An edge that a child fetches is one that the parent never gets.
        self.check("wait on an event set")?;
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            // A kernel without epoll_pwait2 counts milliseconds in an int: a day is long enough to look
            // again.
            tv_sec: timeout.as_secs().min(86_400).cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let count = match epoll::wait(&self.epoll, buffer.0.as_mut_slice(), timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(SystemError::new("wait on an event set", errno)),
        };
        Ok(buffer.0[..count].iter().map(from_epoll))
    }

    /// Removes a descriptor known by its number only. The number need not be open any more.
    pub(crate) fn remove_raw(&self, fd: RawFd) -> Result<(), SystemError> {
        self.control_raw(libc::EPOLL_CTL_DEL, fd, Events::empty(), 0)
            .map_err(|errno| failure("remove", fd, errno))
    }

    /// As [`modify`](Self::modify), for a descriptor known by its number only.
    pub(crate) fn modify_raw(&self, fd: RawFd, events: Events, data: u64) -> Result<(), SystemError> {
        self.control_raw(libc::EPOLL_CTL_MOD, fd, events, data).map_err(|errno| failure("modify", fd, errno))
    }

    /// As [`add`](Self::add), for a descriptor known by its number only.
    pub(crate) fn add_raw(&self, fd: RawFd, events: Events, data: u64) -> Result<(), SystemError> {
        self.control_raw(libc::EPOLL_CTL_ADD, fd, events, data).map_err(|errno| failure("add", fd, errno))
    }

    fn control_raw(&self, operation: i32, fd: RawFd, events: Events, data: u64) -> Result<(), Errno> {
        if self.fork.check().is_err() {
            let is_removal = operation == libc::EPOLL_CTL_DEL;
            return if is_removal { Ok(()) } else { Err(Errno::INVAL) };
        }
        let mut event = libc::epoll_event { events: to_epoll(events).bits(), u64: data };
        // SAFETY: the call reads one `epoll_event`, which lives on this stack, and returns EBADF for a number
        // that is no open descriptor; it touches no other memory of ours.
        let answer = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        if answer == 0 {
            return Ok(());
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Err(Errno::from_raw_os_error(errno))
    }

    fn check(&self, operation: &'static str) -> Result<(), SystemError> {
        self.fork.check().map_err(|forked| of_parent(operation, forked))
    }
}

/// The refusal in a child of a fork.
fn of_parent(operation: &'static str, forked: Forked) -> SystemError {
    SystemError::new(operation, libc::EINVAL).advise(forked.to_string())
}

impl AsFd for EventSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for EventSet {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

fn failure(verb: &str, fd: RawFd, errno: Errno) -> SystemError {
    let error = SystemError::new(format!("{verb} file descriptor {fd} in an event set"), errno);
    match errno {
        Errno::EXIST => error.advise("it is in the set already: modify it"),
        Errno::NOENT => error.advise("it is not in the set: add it first"),
        Errno::PERM => error.advise("only sockets, pipes and the like can be waited for, not regular files"),
        Errno::NOSPC => error.advise("raise fs.epoll.max_user_watches"),
        _ => error,
    }
}

fn to_epoll(events: Events) -> epoll::EventFlags {
    let pairs = [
        (Events::READ, epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
        (Events::WRITE, epoll::EventFlags::OUT),
        (Events::ERROR, epoll::EventFlags::ERR | epoll::EventFlags::HUP),
        (Events::EDGE_TRIGGERED, epoll::EventFlags::ET),
        (Events::ONE_SHOT, epoll::EventFlags::ONESHOT),
    ];
    let wanted = pairs.into_iter().filter(|(flag, _)| events.contains(*flag));
    wanted.fold(epoll::EventFlags::empty(), |flags, (_, more)| flags | more)
}

fn from_epoll(event: &epoll::Event) -> Event {
    // The record is packed: copy the fields out before use.
    let (flags, data) = (event.flags, event.data);
    let mut events = Events::empty();
    let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::HUP;
    events.set(Events::READ, flags.intersects(read));
    events.set(Events::WRITE, flags.contains(epoll::EventFlags::OUT));
    events.set(Events::ERROR, flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP));
    Event { events, data: data.u64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fork::in_child;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const SHORT: Option<Duration> = Some(Duration::ZERO);
    const LONG: Option<Duration> = Some(Duration::from_secs(10));

    fn wait(set: &EventSet, timeout: Option<Duration>) -> Vec<Event> {
        set.wait(&mut EventBuffer::<4>::new(), timeout).unwrap().collect()
    }

    #[test]
    fn nothing_is_reported_until_something_happens_and_then_with_its_number() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let set = EventSet::new().unwrap();
        set.add(&far, Events::READ, u64::MAX - 1).unwrap();
        assert_eq!(wait(&set, SHORT), []);
        near.write_all(b"x").unwrap();
        let expected = Event { events: Events::READ, data: u64::MAX - 1 };
        assert_eq!(wait(&set, LONG), [expected]);
        assert_eq!(wait(&set, SHORT), [expected], "a level-triggered state lasts");
    }

    #[test]
    fn modify_changes_what_is_waited_for_and_remove_ends_it() {
        let (near, far) = UnixStream::pair().unwrap();
        let set = EventSet::new().unwrap();
        set.add(&far, Events::READ, 1).unwrap();
        set.modify(&far, Events::WRITE, 2).unwrap();
        assert_eq!(wait(&set, LONG), [Event { events: Events::WRITE, data: 2 }]);
        set.remove(&far).unwrap();
        assert_eq!(wait(&set, SHORT), []);
        drop(near);
    }

    #[test]
    fn an_edge_is_reported_once() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let set = EventSet::new().unwrap();
        set.add(&far, Events::READ | Events::EDGE_TRIGGERED, 1).unwrap();
        near.write_all(b"x").unwrap();
        assert_eq!(wait(&set, LONG).len(), 1);
        assert_eq!(wait(&set, SHORT), []);
    }

    #[test]
    fn a_peer_that_closes_is_an_error_and_readable() {
        let (near, far) = UnixStream::pair().unwrap();
        let set = EventSet::new().unwrap();
        set.add(&far, Events::READ, 1).unwrap();
        drop(near);
        assert_eq!(wait(&set, LONG)[0].events, Events::READ | Events::ERROR);
    }

    #[test]
    fn sets_nest() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (inner, outer) = (EventSet::new().unwrap(), EventSet::new().unwrap());
        inner.add(&far, Events::READ, 1).unwrap();
        outer.add(&inner, Events::READ, 7).unwrap();
        assert_eq!(wait(&outer, SHORT), []);
        near.write_all(b"x").unwrap();
        assert_eq!(wait(&outer, LONG)[0].data, 7);
    }

    #[test]
    fn more_events_than_room_come_with_the_next_call() {
        let pairs: Vec<_> = (0..6).map(|_| UnixStream::pair().unwrap()).collect();
        let set = EventSet::new().unwrap();
        for (index, (near, _)) in pairs.iter().enumerate() {
            set.add(near, Events::WRITE | Events::ONE_SHOT, index as u64).unwrap();
        }
        let mut seen: Vec<u64> =
            wait(&set, LONG).iter().chain(&wait(&set, LONG)).map(|event| event.data).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_empty_set_waits_as_long_as_it_was_told() {
        let start = Instant::now();
        assert_eq!(wait(&EventSet::new().unwrap(), Some(Duration::from_millis(30))), []);
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn a_child_of_a_fork_leaves_the_set_of_its_parent_as_it_is() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (set, flag, timer) = (EventSet::new().unwrap(), EventFd::new().unwrap(), TimerFd::new().unwrap());
        set.add(&far, Events::READ | Events::EDGE_TRIGGERED, 1).unwrap();
        set.add(&flag, Events::READ, 2).unwrap();
        set.add(&timer, Events::READ, 3).unwrap();
        near.write_all(b"x").unwrap();
        flag.signal();
        assert!(in_child(|| {
            let added = set.add(&near, Events::READ, 4);
            let is_refused = added.is_err_and(|error| error.errno == libc::EINVAL)
                && set.wait(&mut EventBuffer::<4>::new(), SHORT).is_err()
                && set.modify(&far, Events::WRITE, 5).is_err()
                && set.modify_raw(far.as_raw_fd(), Events::WRITE, 5).is_err()
                && timer.set(Duration::ZERO).is_err();
            let is_silent =
                set.remove(&far).is_ok() && set.remove_raw(flag.as_raw_fd()).is_ok() && !flag.drain();
            is_refused && is_silent
        }));
        let mut seen: Vec<u64> = wait(&set, LONG).iter().map(|event| event.data).collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
        assert!(flag.drain());
        assert!(in_child(|| {
            flag.signal();
            true
        }));
        assert!(!flag.drain(), "the child has raised the parent's flag");
    }

    #[test]
    fn mistakes_are_named() {
        let (near, _far) = UnixStream::pair().unwrap();
        let set = EventSet::new().unwrap();
        let missing = set.remove(&near).unwrap_err();
        assert!(missing.to_string().contains("not in the set"), "{missing}");
        set.add(&near, Events::READ, 1).unwrap();
        let twice = set.add(&near, Events::READ, 1).unwrap_err();
        assert_eq!(twice.errno, libc::EEXIST);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(set.add(&file, Events::READ, 1).unwrap_err().to_string().contains("regular files"));
        assert_eq!(set.remove_raw(-1).unwrap_err().errno, libc::EBADF);
    }
}
