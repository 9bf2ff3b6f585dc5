//! A net's objects and operations. All of it is under the lock of the net's engine.

mod connections;
mod flight;
mod line;
mod memory;
mod messages;
mod target;
mod transfers;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use uct_core::Memory;
use uct_net::local::{Message, RemoteMemory};
use uct_net::protocol::{Engine, Protocol};

use super::abi::*;
use super::events::Events;
use super::failure::{Failure, Outcome};
use super::handles::{Handle, Kind, Table, operation};
pub use connections::{Doorway, Link};
use flight::{Ending, Flight};
pub use memory::{Far, Part};
pub use target::Target;
pub use transfers::Transfer;

/// What an operation returns, as its event has it.
#[derive(Clone, Copy, Default)]
pub struct Done {
    length: u64,
    data: u64,
    result: u64,
}

/// The state of a net as its engine has it.
pub struct Installed(pub Rc<State>);

impl Protocol for Installed {
    /// Everything is done by futures, and in calls.
    fn turn(&self, _engine: &Engine) -> bool {
        false
    }
}

/// Numbers that no two objects or operations of a process share.
pub struct Counters {
    pub generations: AtomicU32,
    pub operations: AtomicU64,
}

/// See the module.
pub struct State {
    number: u8,
    counters: &'static Counters,
    events: Arc<Events>,
    links: RefCell<Table<Rc<Link>>>,
    doorways: RefCell<Table<Rc<Doorway>>>,
    /// In boxes: a program holds the addresses of their bytes.
    messages: RefCell<Table<Box<Message>>>,
    memories: RefCell<Table<Memory>>,
    remotes: RefCell<Table<RemoteMemory>>,
    /// Operations that have not ended.
    flights: RefCell<HashMap<u64, Rc<Flight>>>,
}

impl State {
    pub fn new(number: u8, counters: &'static Counters, events: Arc<Events>) -> Rc<State> {
        let generations = &counters.generations;
        Rc::new(State {
            number,
            counters,
            events,
            links: RefCell::new(Table::new(Kind::Connection, number, generations)),
            doorways: RefCell::new(Table::new(Kind::Listener, number, generations)),
            messages: RefCell::new(Table::new(Kind::Message, number, generations)),
            memories: RefCell::new(Table::new(Kind::Memory, number, generations)),
            remotes: RefCell::new(Table::new(Kind::Remote, number, generations)),
            flights: RefCell::default(),
        })
    }

    /// A connection. It stays while this is held.
    pub fn link(&self, handle: Handle) -> Outcome<Rc<Link>> {
        self.links.borrow().get(handle).cloned()
    }

    /// A listener.
    pub fn doorway(&self, handle: Handle) -> Outcome<Rc<Doorway>> {
        self.doorways.borrow().get(handle).cloned()
    }

    /// A number for an operation.
    fn next_op(&self) -> u64 {
        // SYNC: each gets another number, in whichever order.
        let number = self.counters.operations.fetch_add(1, Ordering::Relaxed);
        operation(self.number, number)
    }

    /// Whether it has started and not ended.
    pub fn is_in_flight(&self, op: u64) -> bool {
        self.flights.borrow().contains_key(&op)
    }

    /// Ends an operation early. False if it has ended.
    pub fn cancel(&self, op: u64) -> bool {
        let flight = self.flights.borrow().get(&op).cloned();
        flight.is_some_and(|flight| {
            flight.cancel(self);
            true
        })
    }

    /// An operation that ends inside of the call that starts it.
    fn ended_at_once(&self, kind: u32, user: u64, outcome: Outcome<Done>) -> u64 {
        let op = self.next_op();
        self.report(op, user, kind, outcome);
        op
    }

    /// As [`State::ended_at_once`], of a message that was sent.
    #[inline(always)]
    fn sent_at_once(&self, user: u64) -> u64 {
        let op = self.next_op();
        self.events.push(uct_event { op, user, kind: UCT_EV_SEND, ..uct_event::default() });
        op
    }

    /// The end of an operation, for the program.
    fn report(&self, op: u64, user: u64, kind: u32, outcome: Outcome<Done>) {
        match outcome {
            Ok(Done { length, data, result }) => {
                self.events.push(uct_event { op, user, length, data, result, status: 0, kind });
            }
            Err(failure) => self.report_failure(op, user, kind, 0, failure),
        }
    }

    /// As [`State::report`], of one that has failed; `length` is that of a message that was too long.
    #[cold]
    fn report_failure(&self, op: u64, user: u64, kind: u32, length: u64, failure: Failure) {
        let status = failure.raw();
        self.events.push_failure(uct_event { op, user, length, data: 0, result: 0, status, kind }, failure);
    }

    /// An operation that waits in a line.
    fn add_flight(&self, flight: &Rc<Flight>) -> u64 {
        self.flights.borrow_mut().insert(flight.op, Rc::clone(flight));
        flight.op
    }

    /// An operation in flight has ended.
    fn end(&self, flight: &Flight, outcome: Outcome<Done>) {
        if self.flights.borrow_mut().remove(&flight.op).is_some() {
            self.report(flight.op, flight.user, flight.kind, outcome);
        }
    }

    /// Starts an operation: a future, which looks for itself whether it is cancelled. One that is ready at once needs
    /// no turn of the engine.
    fn start<F: Future<Output = Outcome<Done>> + 'static>(
        self: &Rc<State>,
        engine: &Engine,
        (kind, user): (u32, u64),
        work: impl FnOnce(Rc<Flight>) -> F,
    ) -> u64 {
        let flight = Rc::new(Flight::new(self.next_op(), user, kind));
        let mut work = Box::pin(work(Rc::clone(&flight)));
        let op = self.add_flight(&flight);
        let ending = Ending::new(self, flight);
        if let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            ending.end(outcome);
        } else {
            engine.spawn(async move { ending.end(work.await) });
        }
        op
    }

    /// As [`State::start`], of a future that may be dropped when it is cancelled.
    fn start_droppable<T: 'static>(
        self: &Rc<State>,
        engine: &Engine,
        of: (u32, u64),
        work: impl Future<Output = uct_net::Result<T>> + 'static,
        done: impl FnOnce(&State, T) -> Outcome<Done> + 'static,
    ) -> u64 {
        let state = Rc::clone(self);
        self.start(engine, of, |flight| async move {
            match flight.race(pin!(work)).await {
                Some(outcome) => done(&state, outcome?),
                None => Err(Failure::canceled("it was cancelled")),
            }
        })
    }

    /// Forgets what an event has returned.
    pub fn discard(&self, event: &uct_event) {
        match event.kind {
            UCT_EV_CONNECT | UCT_EV_ACCEPT => drop(self.remove(&self.links, event.result, Kind::Connection)),
            UCT_EV_LISTEN => drop(self.remove(&self.doorways, event.result, Kind::Listener)),
            UCT_EV_RECV | UCT_EV_NOTIFIED => drop(self.remove(&self.messages, event.result, Kind::Message)),
            UCT_EV_SHARED => drop(self.remove(&self.remotes, event.result, Kind::Remote)),
            _ => {}
        }
    }

    /// Takes an object out of its table. It is dropped when no table is borrowed.
    fn remove<T>(&self, table: &RefCell<Table<T>>, raw: u64, kind: Kind) -> Outcome<T> {
        table.borrow_mut().remove(Handle::parse(raw, kind)?)
    }

    /// Ends all operations and drops all objects; none of the program's memory is used afterwards.
    pub fn clear(&self) {
        let links: Vec<Rc<Link>> = self.links.borrow_mut().take_all().collect();
        links.iter().for_each(|link| link.close_lines(self));
        let doorways: Vec<Rc<Doorway>> = self.doorways.borrow_mut().take_all().collect();
        doorways.iter().for_each(|doorway| doorway.close(self));
        let messages: Vec<Box<Message>> = self.messages.borrow_mut().take_all().collect();
        drop((links, doorways, messages));
        let remotes: Vec<RemoteMemory> = self.remotes.borrow_mut().take_all().collect();
        let memories: Vec<Memory> = self.memories.borrow_mut().take_all().collect();
        drop((remotes, memories));
    }
}
