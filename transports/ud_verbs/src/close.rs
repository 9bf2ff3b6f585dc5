//! The end of an interface: what was accepted is delivered if that is possible, and all buffers come back.

use std::time::Duration;

use crate::iface::UdIface;
use crate::link::core::Core;
use crate::link::lock::Guard;

impl UdIface {
    /// Closes: what was accepted is delivered if that is possible within `limit`, peers are notified, buffers are returned.
    pub(crate) fn finish(&self, limit: Duration) {
        let guard = self.shared.enter();
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let end = guard.with(|core| {
            core.clock.read();
            core.process_deferred();
            core.clock.now().plus(limit)
        });
        // Nothing is delivered any more: datagrams that arrive now only count as acknowledgements.
        while guard.with(|core| {
            core.clock.read();
            core.listen();
            core.table.handle_timeout(core.clock.now());
            core.transmit();
            !core.is_drained() && core.clock.now() < end && core.queue.broken.is_none()
        }) {
            self.collect_all(&guard);
            std::thread::sleep(Duration::from_micros(50));
        }
        guard.with(|core| {
            core.table.shutdown(core.clock.now());
            core.transmit();
        });
        self.collect_all(&guard);
        // Resets leave before the queue pair stops.
        let patience = limit.min(100_000_000);
        let end = guard.with(|core| core.clock.now().plus(patience));
        while guard.with(|core| {
            core.queue.reap();
            core.clock.read();
            core.queue.is_sending() && core.clock.now() < end
        }) {}
        guard.with(|core| core.stop(1_000_000_000));
        while let Some((completion, result)) = guard.with(Core::reap_zombie) {
            completion.complete(result);
        }
    }

    /// Fetches what is acknowledged or over on every connection.
    fn collect_all(&self, guard: &Guard<'_, Core>) {
        for id in guard.with(|core| core.table.ids().collect::<Vec<_>>()) {
            while let Some((completion, result)) = guard.with(|core| core.abandon(id)) {
                completion.complete(result);
            }
        }
    }
}
