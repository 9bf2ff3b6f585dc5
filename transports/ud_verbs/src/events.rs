//! Events that the device reports of itself: failures, and changes of its port.

use uct_ib::verbs::AsyncEvent;

use crate::iface::UdIface;
use crate::link::core::Core;
use crate::link::lock::Guard;

impl UdIface {
    /// Reads the events of the device. The first that ends the interface is why it fails, whatever followed from it.
    #[cold]
    pub(crate) fn check_device(&self, guard: &Guard<'_, Core>) {
        let mut reason = None;
        while let Some(event) = self.events.next() {
            match event {
                AsyncEvent::PortActive(port) | AsyncEvent::AddressChange(port) => guard.with(|core| {
                    core.refresh_port(&self.md.device.context, port);
                }),
                other => match guard.with(|core| fatal(core, other)) {
                    Some(found) => _ = reason.get_or_insert(found),
                    None => ucs::log::debug!(?other, "an event of the device"),
                },
            }
        }
        if let Some(reason) = reason {
            guard.with(|core| core.set_broken(reason));
        }
    }
}

/// What an event says that ends the interface.
fn fatal(core: &Core, event: AsyncEvent) -> Option<&'static str> {
    let own = core.queue.number();
    match event {
        AsyncEvent::DeviceFatal => Some("the device failed or was removed"),
        AsyncEvent::CqError(cq) if core.queue.has_cq(cq) => {
            Some("a completion queue of the interface failed")
        }
        AsyncEvent::QpFatal(qp) if qp == own => Some("the device reports a fatal error of the queue pair"),
        AsyncEvent::QpPeerError(qp) if qp == own => {
            Some("the device reports an error of the queue pair that a peer caused")
        }
        _ => None,
    }
}
