//! What a worker reports to `uct_info --attach`, and to its program.

#![forbid(unsafe_code)]

use std::rc::{Rc, Weak};
use std::time::Instant;

use super::Worker;
use crate::attach::{Connections, WorkerReport};

impl Worker {
    /// Adds connections that a library has over this worker to its reports, as long as that is there. They are asked inside progress.
    pub fn report_connections(&self, connections: Weak<dyn Connections>) {
        let mut all = self.inner.connections.borrow_mut();
        all.retain(|connections| connections.strong_count() > 0);
        all.push(connections);
    }

    /// Lets other processes see the worker, if the configuration permits it, and the program, if it has asked for it.
    pub(super) fn offer(&self) {
        let offers = self.context().inner.observers.workers().filter_map(|workers| {
            let handle = self.handle();
            workers.register(move |reply| {
                let asked = Instant::now();
                let report = move |worker: &Worker| {
                    // The client may have gone.
                    let _ = reply.send(worker.report(asked));
                };
                handle.submit(report).is_ok()
            })
        });
        let _ = self.inner.offers.set(offers.collect());
    }

    fn report(&self, asked: Instant) -> WorkerReport {
        let worker = &*self.inner;
        let above: Vec<Rc<dyn Connections>> =
            worker.connections.borrow().iter().filter_map(Weak::upgrade).collect();
        let open: Vec<_> = worker.armed.borrow().iter().filter_map(Weak::upgrade).collect();
        WorkerReport {
            delay_ns: u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX),
            callbacks: worker.queue.len(),
            async_handlers: worker.engine.async_context.handler_count(),
            closing: worker.closing.borrow().len(),
            interfaces: open.iter().filter_map(|object| object.report()).collect(),
            connections: above.iter().flat_map(|connections| connections.connections()).collect(),
        }
    }
}
