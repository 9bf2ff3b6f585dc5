//! Our own contexts of the devices, and the queue pairs that connections have for want of one of the application's.
//!
//! A connection of rdma_cm is known by the number of its queue pair. A number that two connections give is refused by the peer,
//! and one that comes again soon as well, so that the queue pair of a connection that ended is kept for some seconds.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::units::Ternary;
use uct_ib::verbs::{Cq, Pd, Qp, QpCaps, QpConfig, QpKind};
use uct_ib::{IbConfig, component};
use uct_plugin::Failure;

/// How long the peer may remember the number of a queue pair. The kernel's is 2.1 to 2.3 s for paths of a few hops.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The devices that connections go over.
pub struct Devices {
    ib: IbConfig,
    fork_init: Ternary,
    open: RefCell<HashMap<String, Rc<Device>>>,
    /// Queue pairs of ended connections, the oldest first.
    ended: RefCell<VecDeque<(Deadline, Qp)>>,
}

/// An open device.
pub struct Device {
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    /// Most reads and atomics that a queue pair takes at once.
    pub max_reads: u8,
}

impl Devices {
    /// None is open.
    pub fn new(ib: IbConfig, fork_init: Ternary) -> Devices {
        Devices { ib, fork_init, open: RefCell::default(), ended: RefCell::default() }
    }

    /// The device of this name.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn get(&self, name: &str) -> Result<Rc<Device>, Failure> {
        if let Some(device) = self.open.borrow().get(name) {
            return Ok(Rc::clone(device));
        }
        let (device, pd) = component::open(self.ib.verbs()?, name, self.fork_init)?;
        // Nothing is posted, so nothing completes.
        let cq = Cq::new(&device.context, 1, None, 0)?;
        let max_reads = u8::try_from(device.context.attr().max_qp_rd_atom).unwrap_or(u8::MAX);
        let device = Rc::new(Device { pd, cq, max_reads });
        self.open.borrow_mut().insert(name.to_owned(), Rc::clone(&device));
        Ok(device)
    }

    /// Keeps the queue pair of an ended connection until its number may come again.
    pub fn retire(&self, qp: Qp) {
        self.ended.borrow_mut().push_back((Deadline::after(REMEMBERED), qp));
    }

    /// Drops the queue pairs whose numbers may come again.
    pub fn sweep(&self) {
        let mut ended = self.ended.borrow_mut();
        while ended.front().is_some_and(|(deadline, _)| deadline.expired()) {
            ended.pop_front();
        }
    }
}

impl Device {
    /// A queue pair that carries nothing: its number and its state represent the connection.
    ///
    /// # Errors
    /// The device has no more.
    pub fn new_qp(&self) -> Result<Qp, Failure> {
        let caps = QpCaps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let config = QpConfig { kind: QpKind::Rc, send_cq: &self.cq, recv_cq: &self.cq, srq: None, caps };
        Ok(Qp::new(&self.pd, &config)?)
    }
}
