//! Who can see what the workers of a context have done: the clients of the key `attach`, and the program itself.
//!
//! Used by contexts, and by workers, which register with each of them.

use std::sync::Arc;

use super::reply::Snapshot;
use super::server::Server;
use super::workers::Workers;

/// What the key `attach` and the program have asked for.
pub(crate) struct Observers {
    attach: Option<Arc<Server>>,
    program: Option<Arc<Workers>>,
}

impl Observers {
    /// Starts the server if it is wanted and not there. If it cannot start, that is a warning. Does not wait for clients.
    pub(crate) fn new(attach: bool, program: bool) -> Observers {
        let attach = attach.then(Server::shared).and_then(|server| {
            server
                .inspect_err(|error| {
                    ucs::log::warn!("attaching to this process is not possible (key attach): {error}")
                })
                .ok()
        });
        Observers { attach, program: program.then(|| Arc::new(Workers::new())) }
    }

    /// Whether anything can see the workers of the context.
    pub(crate) fn is_any(&self) -> bool {
        self.workers().next().is_some()
    }

    /// The lists with which a worker registers.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Workers>> {
        self.attach.iter().map(|server| server.workers()).chain(&self.program)
    }

    /// What the program sees. `None` if it has not asked for it, and in a forked child, whose parent has the workers.
    pub(crate) fn report(&self) -> Option<Snapshot> {
        self.program.as_ref()?.snapshot()
    }
}
