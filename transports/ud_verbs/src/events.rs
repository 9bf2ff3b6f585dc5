//! Events that the device reports of itself: failures, and changes of its port.

use uct_ib::verbs::AsyncEvent;

use crate::iface::UdIface;
use crate::link::core::Core;
use crate::link::lock::Guard;

impl UdIface {
    /// Reads the events of the device.
    #[cold]
    pub(crate) fn check_device(&self, guard: &Guard<'_, Core>) {
        while let Some(event) = self.events.next() {
            match event {
                AsyncEvent::DeviceFatal | AsyncEvent::CqError(_) => guard.with(|core| {
                    core.queue.broken.get_or_insert_with(|| format!("the device reports {event:?}"));
                }),
                AsyncEvent::QpFatal(qp) => guard.with(|core| {
                    if qp == core.queue.number() {
                        core.queue.broken.get_or_insert_with(|| {
                            "the device reports a fatal error of the queue pair".into()
                        });
                    }
                }),
                AsyncEvent::PortActive(port) | AsyncEvent::AddressChange(port) => guard.with(|core| {
                    core.refresh_port(&self.md.device.context, port);
                }),
                other => ucs::log::debug!(?other, "an event of the device"),
            }
        }
    }
}
