//! The servers of a context: each shows what its workers have done to clients of another kind.
//!
//! Used by contexts, and by workers, which register with each server.

use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(feature = "prometheus")]
use super::prometheus;
use super::server::Server;
use super::workers::Workers;

/// What the keys `attach` and `prometheus` have started.
pub(crate) struct Servers {
    attach: Option<Arc<Server>>,
    #[cfg(feature = "prometheus")]
    metrics: Option<Arc<prometheus::Server>>,
}

impl Servers {
    /// Starts those that are wanted and not there. One that cannot start is a warning. Does not wait for clients. Without the feature
    /// `prometheus` no address is accepted as configuration.
    pub(crate) fn start(attach: bool, metrics: Option<SocketAddr>) -> Servers {
        let attach = attach.then(Server::shared).and_then(|server| {
            server
                .inspect_err(|error| {
                    ucs::log::warn!("attaching to this process is not possible (key attach): {error}")
                })
                .ok()
        });
        #[cfg(not(feature = "prometheus"))]
        debug_assert_eq!(metrics, None);
        #[cfg(feature = "prometheus")]
        let metrics = metrics.and_then(|address| {
            let server = prometheus::Server::shared(address);
            server
                .inspect(|server| ucs::log::info!("metrics are at http://{}/metrics", server.address()))
                .inspect_err(|error| ucs::log::warn!("no metrics are served (key prometheus): {error}"))
                .ok()
        });
        Servers {
            attach,
            #[cfg(feature = "prometheus")]
            metrics,
        }
    }

    /// Whether a client can see the workers of the context.
    pub(crate) fn is_any(&self) -> bool {
        self.workers().next().is_some()
    }

    /// The lists with which a worker registers.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Workers>> {
        let servers = self.attach.iter().map(|server| server.workers());
        #[cfg(feature = "prometheus")]
        let servers = servers.chain(self.metrics.iter().map(|server| server.workers()));
        servers
    }

    /// Where metrics are served.
    #[cfg(feature = "prometheus")]
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|server| server.address())
    }
}
