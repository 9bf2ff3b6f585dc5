//! The connection manager: one socket for each connection, over which private data go as frames (`proto::cm`).
//!
//! All that happens comes from one event set and one timer, in progress. Built on `CmState`, which keeps the order of events.

mod endpoint;
mod listener;
mod request;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use ucs::Error;
use ucs::clock::{self, Deadline};
use ucs::event_set::{EventBuffer, EventSet, Events, TimerFd};
use ucs::sys::{SystemError, net};
use uct_plugin::cm::{CmAttr, CmConnect, CmData, CmEvents, CmParams, CmUser};
use uct_plugin::{ConnectionManager, Failure, Outcome, Result};

use crate::config::TcpConfig;
use crate::proto::cm::MAX_DATA;
use endpoint::TcpCmEp;
use listener::TcpCmListener;
use request::TcpCmRequest;

/// Number of the timer in the event set; the others follow.
const TIMER: u64 = 0;
/// Events of one system call, and how often it is made in one progress.
const EVENTS: usize = 64;
const BATCHES: usize = 4;

/// An open connection manager of `tcp`.
pub(crate) struct TcpCm {
    config: TcpConfig,
    report: CmEvents<TcpCm>,
    events: EventSet,
    timer: TimerFd,
    /// When the timer is set to expire.
    next_tick: Cell<Deadline>,
    sources: RefCell<HashMap<u64, Rc<dyn Source>>>,
    deadlines: RefCell<BTreeSet<(Deadline, u64)>>,
    last: Cell<u64>,
    /// Devices by the addresses that connections have had.
    devices: RefCell<HashMap<IpAddr, String>>,
}

/// A socket in the event set, by its number.
trait Source {
    /// Something has happened; returns how many events were reported.
    fn on_events(self: Rc<Self>, cm: &Rc<TcpCm>, events: Events) -> u32;

    /// Its deadline has passed.
    fn on_deadline(self: Rc<Self>, cm: &Rc<TcpCm>) -> u32;

    /// Another one needs its place.
    fn give_way(self: Rc<Self>, _cm: &Rc<TcpCm>) {}
}

impl TcpCm {
    fn with(config: TcpConfig, report: CmEvents<TcpCm>) -> Result<Rc<TcpCm>, Failure> {
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        let cm = TcpCm {
            config,
            report,
            events: EventSet::new().map_err(system)?,
            timer: TimerFd::new().map_err(system)?,
            next_tick: Cell::new(Deadline::NEVER),
            sources: RefCell::default(),
            deadlines: RefCell::default(),
            last: Cell::new(TIMER),
            devices: RefCell::default(),
        };
        cm.events.add(&cm.timer, Events::READ, TIMER).map_err(system)?;
        Ok(Rc::new(cm))
    }

    fn config(&self) -> &TcpConfig {
        &self.config
    }

    /// A number for one more source.
    fn next_number(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Watches a socket.
    fn add(
        &self,
        number: u64,
        socket: impl AsFd,
        events: Events,
        source: Rc<dyn Source>,
    ) -> Result<(), SystemError> {
        self.events.add(socket, events, number)?;
        self.sources.borrow_mut().insert(number, source);
        Ok(())
    }

    /// A source without a socket, whose deadline is to come.
    fn add_unwatched(&self, number: u64, source: Rc<dyn Source>) {
        self.sources.borrow_mut().insert(number, source);
    }

    /// Changes what a socket is watched for.
    fn watch(&self, number: u64, socket: impl AsFd, events: Events) {
        if let Err(error) = self.events.modify(socket, events, number) {
            ucs::log::error!("{error}");
        }
    }

    /// Forgets a source. Its socket leaves the event set first, if it has one.
    fn forget(&self, number: u64) {
        self.sources.borrow_mut().remove(&number);
    }

    /// A source has to go for another one.
    fn give_way(self: &Rc<Self>, number: u64) {
        let source = self.sources.borrow().get(&number).cloned();
        if let Some(source) = source {
            source.give_way(self);
        }
    }

    fn unwatch(&self, socket: impl AsFd) {
        let _ = self.events.remove(socket);
    }

    /// Has progress call a source when `new` has passed, and not at `old`.
    fn set_deadline(&self, number: u64, old: Deadline, new: Deadline) {
        let mut deadlines = self.deadlines.borrow_mut();
        deadlines.remove(&(old, number));
        if new == Deadline::NEVER {
            return;
        }
        deadlines.insert((new, number));
        drop(deadlines);
        self.want_tick(new);
    }

    fn want_tick(&self, at: Deadline) {
        if at >= self.next_tick.get() {
            return;
        }
        // A timer that is set to zero would never expire.
        match self.timer.set(at.remaining().max(Duration::from_nanos(1))) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => ucs::log::error!("{error}"),
        }
    }

    /// What the timer was set for.
    fn tick(self: &Rc<Self>) -> u32 {
        self.timer.drain();
        self.next_tick.set(Deadline::NEVER);
        let (now, mut count) = (clock::ticks(), 0);
        loop {
            let first = self.deadlines.borrow().first().copied();
            let Some((at, number)) = first else { return count };
            if !at.expired_at(now) {
                self.want_tick(at);
                return count;
            }
            self.deadlines.borrow_mut().remove(&(at, number));
            let source = self.sources.borrow().get(&number).cloned();
            count += source.map_or(0, |source| source.on_deadline(self));
        }
    }

    /// The device that has an address; empty if it is not known.
    fn device_of(&self, address: IpAddr) -> String {
        let address = address.to_canonical();
        if let Some(device) = self.devices.borrow().get(&address) {
            return device.clone();
        }
        let name = net::holder(address).ok().flatten().unwrap_or_default();
        if !name.is_empty() {
            self.devices.borrow_mut().insert(address, name.clone());
        }
        name
    }

    fn advance(self: &Rc<Self>) -> u32 {
        let mut count = 0;
        for _ in 0..BATCHES {
            let mut buffer = EventBuffer::<EVENTS>::new();
            let Ok(events) = self.events.wait(&mut buffer, Some(Duration::ZERO)) else { return count };
            let ready = events.len();
            for event in events {
                if event.data == TIMER {
                    count += self.tick();
                    continue;
                }
                let source = self.sources.borrow().get(&event.data).cloned();
                count += source.map_or(0, |source| source.on_events(self, event.events));
            }
            if ready < EVENTS {
                break;
            }
        }
        count
    }
}

impl ConnectionManager for TcpCm {
    type Listener = TcpCmListener;
    type Request = TcpCmRequest;
    type Ep = TcpCmEp;

    fn open(params: CmParams<'_, Self>) -> Result<Rc<TcpCm>, Failure> {
        TcpCm::with(TcpConfig::from_settings(&params.settings)?, params.events)
    }

    fn attributes(&self) -> CmAttr {
        CmAttr {
            size: size_of::<CmAttr>(),
            max_connect_data: MAX_DATA,
            max_accept_data: MAX_DATA,
            max_reject_data: MAX_DATA,
            max_disconnect_data: MAX_DATA,
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.events.as_raw_fd())
    }

    fn progress(self: &Rc<Self>) -> u32 {
        self.advance()
    }

    fn close(&self) {
        // Callers whose requests have not arrived.
        let left = self.sources.take();
        drop(left);
    }

    fn listen(
        self: &Rc<Self>,
        user: CmUser,
        address: SocketAddr,
        backlog: Option<u32>,
    ) -> Result<Rc<TcpCmListener>, Failure> {
        TcpCmListener::create(self, user, address, backlog)
    }

    fn listener_address(listener: &Rc<TcpCmListener>) -> Result<SocketAddr> {
        listener.address()
    }

    fn listener_destroy(listener: Rc<TcpCmListener>) {
        listener.destroy();
    }

    fn connect(self: &Rc<Self>, params: CmConnect) -> Result<Rc<TcpCmEp>, Failure> {
        TcpCmEp::connect(self, &params)
    }

    fn send(ep: &Rc<TcpCmEp>, data: CmData<'_>) -> Result {
        ep.send(data.private)
    }

    fn accept(
        self: &Rc<Self>,
        request: TcpCmRequest,
        user: CmUser,
        data: CmData<'_>,
        timeout: Option<Duration>,
    ) -> Result<Rc<TcpCmEp>, Failure> {
        TcpCmEp::accept(self, request, user, data.private, timeout)
    }

    fn reject(request: TcpCmRequest, data: &[u8]) -> Result {
        request.reject(data)
    }

    fn notify(ep: &Rc<TcpCmEp>) -> Result {
        ep.notify()
    }

    fn disconnect(ep: &Rc<TcpCmEp>, reason: &[u8]) -> Result<Outcome> {
        ep.disconnect(reason)
    }

    fn addresses(ep: &Rc<TcpCmEp>) -> Result<(SocketAddr, SocketAddr)> {
        ep.addresses()
    }

    fn destroy(ep: Rc<TcpCmEp>) {
        ep.destroy();
    }
}
