//! All other interfaces of the machine, open on the worker of a case (`UCT_TEST_OPEN=all`).
//!
//! For the ends of a case. Built on the API of applications. The host polls an interface that has had no event for long, while another
//! one had some, only now and then. Here one of the others has an event now and then, so the tested interface is in that state
//! whenever it has been quiet.

use std::cell::Cell;
use std::rc::Rc;

use uct_host::{AmId, Capabilities, DeviceKind, Ep, Error, Iface, IfaceOptions, Resource, Worker};

use crate::config::Config;

const ID: AmId = AmId::new(31).unwrap();

/// Calls of progress between two events of the busy interface: less than the 4096 that make others idle.
const INTERVAL: u32 = 1000;
/// Calls of progress after which the tested interface is idle.
const CALLS: u32 = 10_000;

/// Interfaces beside the tested one; none unless the run asks for them. They stay open for as long as this is there.
#[derive(Clone, Default)]
pub(crate) struct Beside(Option<Rc<Others>>);

struct Others {
    _idle: Vec<Iface>,
    /// From one of them to itself.
    busy: Ep,
    calls: Cell<u32>,
    /// Messages of the busy one that have arrived since they were last taken.
    received: Rc<Cell<u32>>,
}

impl Beside {
    /// Opens all interfaces but the tested one, network devices only where the run permits them, and makes the tested one idle.
    ///
    /// # Panics
    /// An interface does not open, or none can send to itself.
    pub(crate) fn open_all(worker: &Worker, tested: &Iface, config: &Config) -> Beside {
        let context = worker.context();
        let is_other = |resource: &&Resource| {
            let is_permitted =
                resource.kind != DeviceKind::Network || config.devices.contains(&resource.device);
            *resource != tested.resource() && is_permitted && context.excluded(resource).is_none()
        };
        let open = |resource| {
            let opened = worker.open_resource(resource, IfaceOptions::default());
            opened.unwrap_or_else(|error| panic!("{resource} beside {}: {error}", tested.resource()))
        };
        let idle: Vec<Iface> = context.resources().iter().filter(is_other).map(open).collect();
        let can_be_busy = |iface: &&Iface| {
            // What sends to itself alone delivers in the send, which is no event of progress.
            iface.resource().kind != DeviceKind::Myself
                && iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE | Capabilities::AM_SHORT)
        };
        let busy = idle.iter().find(can_be_busy).expect("an interface that can send to itself");
        let received = Rc::new(Cell::new(0));
        let counter = Rc::clone(&received);
        busy.set_am_handler(ID, move |_| counter.set(counter.get() + 1));
        let address = busy.address().unwrap_or_else(|error| panic!("no address: {error}"));
        let busy = busy.connect(&address).unwrap_or_else(|refused| panic!("{refused}"));
        let beside = Beside(Some(Rc::new(Others { _idle: idle, busy, calls: Cell::new(0), received })));
        let messages: u32 = (0..CALLS).map(|_| beside.progress(worker).1).sum();
        assert!(messages > 0, "the interface beside {} is not busy", tested.resource());
        beside
    }

    /// Calls progress; the events without and of the busy interface.
    pub(crate) fn progress(&self, worker: &Worker) -> (u32, u32) {
        let Some(others) = &self.0 else { return (worker.progress(), 0) };
        let calls = others.calls.get() + 1;
        others.calls.set(calls % INTERVAL);
        if calls == INTERVAL {
            match others.busy.am_short(ID, 0, &[]) {
                Ok(()) | Err(Error::NO_RESOURCE) => {}
                Err(error) => panic!("the busy interface: {error}"),
            }
        }
        let events = worker.progress();
        let own = others.received.take();
        (events.saturating_sub(own), own)
    }
}
