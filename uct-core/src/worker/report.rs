//! What a worker reports to a process that attaches to this one.

#![forbid(unsafe_code)]

use std::rc::Weak;
use std::time::Instant;

use super::Worker;
use crate::attach::WorkerReport;

impl Worker {
    /// Lets other processes see the worker, if the configuration permits it.
    pub(super) fn offer(&self) {
        let Some(server) = &self.context().inner.server else { return };
        let handle = self.handle();
        let offer = server.workers().register(move |reply| {
            let asked = Instant::now();
            let report = move |worker: &Worker| {
                // The client may have gone.
                let _ = reply.send(worker.report(asked));
            };
            handle.submit(report).is_ok()
        });
        offer.into_iter().for_each(|offer| drop(self.inner.offer.set(offer)));
    }

    fn report(&self, asked: Instant) -> WorkerReport {
        let worker = &*self.inner;
        let open: Vec<_> = worker.armed.borrow().iter().filter_map(Weak::upgrade).collect();
        WorkerReport {
            delay_ns: u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX),
            callbacks: worker.queue.len(),
            async_handlers: worker.engine.async_context.handler_count(),
            closing: worker.closing.borrow().len(),
            interfaces: open.iter().filter_map(|object| object.report()).collect(),
        }
    }
}
