//! Accepts, counts and checks connections of peers, and repeats connecting to peers whose queue is full.
//!
//! Methods of the interface. Any process may connect and send anything. Half-open connections are therefore limited in number and time,
//! and there are limits for each process, for each other user, and for descriptors.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use ucs::clock::{self, Deadline};
use ucs::event_set::Events;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use uct_plugin::Error;

use crate::config::ShmConfig;
use crate::iface::{HALF_OPEN, LISTENER, ShmIface, TIMER};
use crate::io::socket::{self, Credentials, Line};
use crate::link::connection::Connection;
use crate::link::door::HalfOpen;
use crate::link::handshake::{Dial, HelloState};

/// Connections that are accepted from each listening socket in one round. There are at most two listening sockets.
const ACCEPTS: usize = 16;
/// How long the listener is paused when no descriptor is available for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time between two attempts to connect to a peer whose queue is full.
const AGAIN: Duration = Duration::from_millis(10);

/// How many connections peers have made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Crowd {
    all: usize,
    of_process: usize,
    of_user: usize,
}

impl Crowd {
    /// Whether there is room for one more of `peer`, if the process may have `files` descriptors and the connection is number
    /// `descriptor` of them.
    fn check(self, peer: Credentials, config: &ShmConfig, files: u64, descriptor: u64) -> Result<(), String> {
        let room = files.saturating_sub(config.reserved_descriptors.into());
        if descriptor >= room {
            return Err(format!(
                "the peer is near its limit of {files} open files (ulimit -n), of which it reserves \
                 UCT_SHM_RESERVED_DESCRIPTORS={}",
                config.reserved_descriptors
            ));
        }
        let within = |count: usize, limit: u32, share: u64, whose: &str, key: &str| {
            let limit = u64::from(limit).min(share);
            if (count as u64) < limit {
                return Ok(());
            }
            Err(format!("the peer has {count} connections of {whose}, its limit is {limit} ({key})"))
        };
        within(self.all, config.max_connections, u64::MAX, "others", "UCT_SHM_MAX_CONNECTIONS")?;
        // Processes whose ids are not visible cannot be distinguished.
        if peer.pid != 0 && peer.pid != std::process::id() {
            let key = "UCT_SHM_MAX_CONNECTIONS_PER_PROCESS, and a quarter of its descriptors";
            within(self.of_process, config.max_connections_per_process, room / 4, "this process", key)?;
        }
        if peer.uid != credentials().effective_uid {
            let key = "UCT_SHM_MAX_CONNECTIONS_PER_USER, and half of its descriptors";
            within(self.of_user, config.max_connections_per_user, room / 2, "this user", key)?;
        }
        Ok(())
    }
}

impl ShmIface {
    /// Accepts incoming connections.
    pub(crate) fn accept_peers(&self) -> u32 {
        let mut count = 0;
        for listening in self.listener.sockets() {
            for _ in 0..ACCEPTS {
                match socket::accept(listening) {
                    Ok(Some(socket)) => {
                        count += 1;
                        self.admit_connection(socket);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        self.rest(&error);
                        return count;
                    }
                }
            }
        }
        count
    }

    /// A new connection: checks the peer's process before its messages.
    fn admit_connection(&self, socket: OwnedFd) {
        let admitted = self.identity.admit(socket.as_fd(), None).and_then(|peer| {
            let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let descriptor = u64::try_from(socket.as_raw_fd()).unwrap_or(0);
            self.crowd(peer).check(peer, &self.config, files, descriptor).map(|()| peer)
        });
        match admitted {
            Ok(peer) => self.await_hello((socket, peer)),
            Err(reason) => self.identity.refuse(socket.as_fd(), &reason),
        }
    }

    /// Counts the connections of peers: all, and those of this process and of this user.
    fn crowd(&self, peer: Credentials) -> Crowd {
        let mut crowd = Crowd::default();
        let mut add = |one: Credentials| {
            crowd.all += 1;
            crowd.of_process += usize::from(one.pid == peer.pid);
            crowd.of_user += usize::from(one.uid == peer.uid);
        };
        self.table.accepted(&mut add);
        self.door.half_open.borrow().iter().for_each(|(_, one)| add(one.line.1));
        crowd
    }

    /// Receives the hello of a new connection, now or later.
    fn await_hello(&self, line: Line) {
        match self.identity.receive_hello(line.0.as_fd(), line.1) {
            HelloState::Peer(hello, fds, rings, memory) => self.meet(line, &hello, &fds, &rings, memory),
            HelloState::Over => (),
            HelloState::Waiting => {
                if self.door.half_open.borrow().len() >= self.config.max_half_open as usize
                    && let Some(socket) = self.door.make_room()
                {
                    let _ = self.events.remove(socket);
                }
                let deadline = Deadline::after(self.config.hello_timeout.to_duration());
                let mut half_open = self.door.half_open.borrow_mut();
                let token = HALF_OPEN | half_open.vacant_key() as u64;
                if self.events.add(&line.0, Events::READ, token).is_ok() {
                    half_open.insert(HalfOpen { line, deadline });
                    self.door.want_tick(deadline);
                }
            }
        }
    }

    /// Receives the hello of a half-open connection, if it has arrived.
    pub(crate) fn take_hello(&self, number: usize) -> u32 {
        let state = match self.door.half_open.borrow().get(number) {
            Some(HalfOpen { line: (socket, peer), .. }) => self.identity.receive_hello(socket.as_fd(), *peer),
            None => return 0,
        };
        if matches!(state, HelloState::Waiting) {
            return 0;
        }
        let line = self.door.half_open.borrow_mut().remove(number).line;
        let _ = self.events.remove(&line.0);
        if let HelloState::Peer(hello, fds, rings, memory) = state {
            self.meet(line, &hello, &fds, &rings, memory);
        }
        1
    }

    /// Removes the listener, which stays readable, from the event set for some time. New connections wait in the kernel's queue.
    fn rest(&self, reason: &SystemError) {
        for listening in self.listener.sockets() {
            let _ = self.events.remove(listening);
        }
        let until = Deadline::after(ACCEPT_PAUSE);
        self.door.resting.set(Some(until));
        self.door.want_tick(until);
        if let Some(left_out) = self.door.rests.admit() {
            ucs::log::warn!("{reason}: peers wait until there is room{left_out}");
        }
    }

    /// Adds the listening sockets to the event set: when the interface is opened, and after a pause.
    pub(crate) fn listen(&self) -> Result<(), SystemError> {
        self.listener.sockets().try_for_each(|socket| self.events.add(socket, Events::READ, LISTENER))
    }

    /// Begins to connect. The first attempt is made now, and progress repeats it. The error describes why connecting is not possible.
    pub(crate) fn begin(
        &self,
        connection: &Rc<Connection>,
        mut dial: Dial,
    ) -> Result<(), uct_plugin::Failure> {
        if let Some(line) = self.identity.go_on(&mut dial)? {
            return self.stand(&connection.channel, line);
        }
        self.door.want_tick(Deadline::after(AGAIN));
        self.door.dials.borrow_mut().push((Rc::clone(connection), dial));
        Ok(())
    }

    /// Repeats connecting to peers whose queue was full. Returns whether some queues are still full.
    fn dial_again(&self, now: u64) -> bool {
        self.door.dials.borrow_mut().retain_mut(|(connection, dial)| {
            let channel = &connection.channel;
            if channel.broken().is_some() {
                return false;
            }
            match self.identity.go_on(dial) {
                Ok(Some(line)) => {
                    if let Err(failure) = self.stand(channel, line) {
                        channel.set_broken(failure.status, failure.reason);
                    }
                    false
                }
                Ok(None) if dial.deadline.expired_at(now) => {
                    let reason = format!(
                        "more peers want to connect there than it has room for; it has accepted none for \
                         UCT_SHM_CONNECT_TIMEOUT={}",
                        self.config.connect_timeout
                    );
                    channel.set_broken(Error::UNREACHABLE, reason);
                    false
                }
                Ok(None) => true,
                Err(failure) => {
                    channel.set_broken(failure.status, failure.reason);
                    false
                }
            }
        });
        !self.door.dials.borrow().is_empty()
    }

    /// The timer has expired: resumes the listener, closes late half-open connections, repeats connecting.
    pub(crate) fn tick(&self) {
        for connection in self.table.all() {
            connection.channel.trim(self.trim_timeout);
        }
        self.cache.trim(self.trim_timeout);
        self.door.timer.drain();
        self.door.next_tick.set(Deadline::NEVER);
        let now = clock::ticks();
        let mut next = Deadline::NEVER;
        if let Some(until) = self.door.resting.get() {
            if until.expired_at(now) {
                self.door.resting.set(None);
                if let Err(error) = self.listen() {
                    ucs::log::error!("connections cannot be accepted any more: {error}");
                }
            } else {
                next = until;
            }
        }
        self.door.half_open.borrow_mut().retain(|_, one| {
            if one.deadline.expired_at(now) {
                let _ = self.events.remove(&one.line.0);
                return false;
            }
            next = next.min(one.deadline);
            true
        });
        if self.dial_again(now) {
            next = next.min(Deadline::after(AGAIN));
        }
        self.door.want_tick(next);
    }

    /// Adds the timer and the listening sockets to the event set.
    pub(crate) fn open_door(&self) -> Result<(), SystemError> {
        self.events.add(self.door.timer(), Events::READ, TIMER)?;
        self.listen()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use ucs::config::Defaults;

    use super::*;

    /// So many descriptors that their shares are no limit.
    const MANY: u64 = 1 << 32;

    fn config() -> ShmConfig {
        let config = ShmConfig::from_settings(&Defaults).unwrap();
        ShmConfig {
            max_connections: 30,
            max_connections_per_process: 10,
            max_connections_per_user: 20,
            reserved_descriptors: 64,
            ..config
        }
    }

    fn own() -> Credentials {
        Credentials { pid: std::process::id(), uid: credentials().effective_uid }
    }

    /// Another process of this user.
    fn other_process() -> Credentials {
        Credentials { pid: own().pid + 1, ..own() }
    }

    /// A process of another user, whose id is not visible, so that the limits of a user are the only ones.
    fn other_user() -> Credentials {
        Credentials { pid: 0, uid: own().uid + 1 }
    }

    /// Asserts that with the first crowd there is room for `peer`, and that with the second one it is refused for the reason `words`.
    fn assert_limit(peer: Credentials, files: u64, [last, full]: [Crowd; 2], words: &str) {
        assert_eq!(last.check(peer, &config(), files, 0), Ok(()), "{words}");
        let refused = full.check(peer, &config(), files, 0).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }

    #[test]
    fn connections_of_all_other_peers_are_limited() {
        let crowds = [29, 30].map(|all| Crowd { all, ..Crowd::default() });
        for peer in [own(), other_process(), other_user()] {
            assert_limit(
                peer,
                MANY,
                crowds,
                "30 connections of others, its limit is 30 (UCT_SHM_MAX_CONNECTIONS)",
            );
        }
    }

    #[test]
    fn connections_of_another_process_are_limited_in_number_and_to_a_quarter_of_the_descriptors() {
        let crowds = |most| [most - 1, most].map(|of_process| Crowd { of_process, ..Crowd::default() });
        let words = |most| {
            format!(
                "{most} connections of this process, its limit is {most} (UCT_SHM_MAX_CONNECTIONS_PER_PROCESS"
            )
        };
        assert_limit(other_process(), MANY, crowds(10), &words(10));
        assert_limit(other_process(), 64 + 39, crowds(9), &words(9));
        assert_limit(other_process(), 64 + 40, crowds(10), &words(10));
        // This process connects to itself, and processes without an id cannot be distinguished.
        for peer in [own(), Credentials { pid: 0, ..own() }] {
            assert_eq!(crowds(20)[1].check(peer, &config(), MANY, 0), Ok(()), "{peer}");
        }
    }

    #[test]
    fn connections_of_another_user_are_limited_in_number_and_to_half_of_the_descriptors() {
        let crowds = |most| [most - 1, most].map(|of_user| Crowd { of_user, ..Crowd::default() });
        let words = |most| {
            format!("{most} connections of this user, its limit is {most} (UCT_SHM_MAX_CONNECTIONS_PER_USER")
        };
        assert_limit(other_user(), MANY, crowds(20), &words(20));
        assert_limit(other_user(), 64 + 39, crowds(19), &words(19));
        assert_limit(other_user(), 64 + 40, crowds(20), &words(20));
        for peer in [own(), other_process()] {
            assert_eq!(crowds(20)[1].check(peer, &config(), MANY, 0), Ok(()), "{peer}");
        }
    }

    #[test]
    fn connections_leave_descriptors_free_for_the_process() {
        let check = |files, descriptor| Crowd::default().check(own(), &config(), files, descriptor);
        assert_eq!(check(1000, 1000 - 65), Ok(()));
        for (files, descriptor) in [(1000, 1000 - 64), (64, 0), (10, 0)] {
            let refused = check(files, descriptor).unwrap_err();
            assert!(refused.contains("UCT_SHM_RESERVED_DESCRIPTORS=64"), "{files}, {descriptor}: {refused}");
        }
    }
}
