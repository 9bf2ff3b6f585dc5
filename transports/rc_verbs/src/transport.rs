//! The SDK's view of the interface: addresses, endpoints, progress, the way to close.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use uct_ib::{DEVICE_ADDRESS_LENGTH, Port};
use uct_plugin::{
    Completion, Device, DeviceKind, EpParams, Error, Failure, Flush, Iface, IfaceAttr, IfaceParams, Outcome,
    PeerAddress, Result, Scope, Settings, Transport,
};

use crate::ep::RcEp;
use crate::iface::{FAREWELL, RcIface};
use crate::limits::attributes;
use crate::link::conn::Conn;
use crate::link::flushes;
use crate::md::RcMd;
use crate::proto::addr;

/// The transport `rc_verbs`.
pub(crate) struct RcTransport;

impl Transport for RcTransport {
    const NAME: &'static str = "rc_verbs";
    type Md = RcMd;
    type Iface = RcIface;

    fn devices(md: &RcMd, _settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let context = &md.device.context;
        let mut devices = Vec::new();
        let mut reasons = Vec::new();
        for number in 1..=md.device.ports() {
            match Port::query(context, number).and_then(|port| port.require_active()) {
                Ok(()) => devices.push(Device {
                    name: format!("{}:{number}", context.device_name()),
                    kind: DeviceKind::Network,
                    numa_node: md.device.numa_node(),
                    is_software: md.device.is_software(),
                }),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        if devices.is_empty() { Err(Failure::new(Error::NO_DEVICE, reasons.join("; "))) } else { Ok(devices) }
    }

    fn open(md: &Arc<RcMd>, params: IfaceParams<'_>) -> Result<Rc<RcIface>, Failure> {
        RcIface::open(md, params).map(Rc::new)
    }
}

impl Iface for RcIface {
    type Md = RcMd;
    type Ep = RcEp;

    fn attributes(&self) -> IfaceAttr {
        attributes(&self.shared.limits, &self.port.borrow())
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        let buffer: &mut [u8; DEVICE_ADDRESS_LENGTH] =
            buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
        *buffer = self.port.borrow().device_address().pack();
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&addr::IFACE);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        self.reach(peer)
    }

    #[inline(always)]
    fn progress(&self) -> u32 {
        self.make_progress()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<RcEp>, Failure> {
        if params.peer.is_some() {
            return Err(Failure::unsupported(
                "connecting to an interface (create the endpoint without a peer, then connect it to the peer's endpoint)",
            ));
        }
        let qp = self.new_qp()?;
        let window = self.shared.rx.join();
        let conn = Rc::new(Conn::new(&self.shared, qp, self.conns.next_index(), window, params.user));
        self.conns.insert(Rc::clone(&conn));
        Ok(Rc::new(RcEp { conn, iface: Rc::clone(self) }))
    }

    fn close(&self) {
        self.shared.agenda.run();
        let deadline = Instant::now() + self.shared.limits.linger;
        while self.conns.all().iter().any(|ep| !ep.may_close()) && Instant::now() < deadline {
            self.end_stashed();
            self.poll_tx();
            self.do_deferred();
            std::thread::yield_now();
        }
        for ep in self.conns.all() {
            ucs::log::debug!(qp = ep.qp.number(), "rc_verbs: closed with requests in flight");
            // The device releases the memory before the operations complete.
            if let Err(error) = ep.qp.reset() {
                ucs::log::warn!(%error, "rc_verbs: a queue pair does not stop");
            }
            // SAFETY: what was posted has ended with the reset, or with the device, which does nothing for a queue pair that it cannot
            // reset any more.
            unsafe { ep.abandon(Error::CANCELED) };
            self.conns.remove(&ep);
        }
        self.flushes.fail(Error::CANCELED);
        while let Some(since) = self.reaped.borrow().back().map(|(since, _)| *since)
            && Instant::now() < (since + FAREWELL).min(deadline)
        {
            self.poll_tx();
            std::thread::yield_now();
        }
        self.reaped.take();
        // No queue pair is left that could write to it.
        if let Some(sink) = self.shared.sink_buffer.take() {
            self.shared.buffers.put_small(sink);
        }
        // SAFETY: nor to what is posted.
        unsafe { self.shared.rx.ring.collect() };
    }

    unsafe fn release(&self, data: *mut u8) {
        let Some(data) = NonNull::new(data) else { return };
        // SAFETY: the host releases what a handler kept, once (`Iface::release`).
        let element = unsafe { self.shared.rx.ring.released(data) };
        self.shared.rx.ring.put(element);
        if !self.shared.rx.ring.fill(1) || self.shared.agenda.has_deferred() {
            self.shared.agenda.add_work();
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.wakeup.fd())
    }

    fn arm(&self, events: u32) -> Result {
        self.arm_for(events)
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        flushes::start(&self.flushes, &self.conns, &self.shared.agenda, flags, completion)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let eps = self.conns.all();
        let sum = |what: fn(&Conn) -> u64| eps.iter().map(|ep| what(ep)).sum::<u64>();
        vec![
            ("endpoints", eps.len() as u64),
            ("tx_under_way", sum(|ep| u64::from(ep.queue.under_way()))),
            ("tx_unsignaled", sum(|ep| u64::from(ep.queue.unsignaled_count()))),
            ("tx_credits", sum(|ep| u64::from(ep.queue.credits()))),
            ("tx_cq_available", u64::from(self.shared.cq_available.get())),
            ("emulated_atomics", sum(|ep| ep.emulated.borrow().len() as u64)),
            ("rx_posted", u64::from(self.shared.rx.ring.posted())),
            ("rx_windows", sum(|ep| u64::from(ep.window.size()))),
            ("rx_granted", sum(|ep| u64::from(ep.window.granted()))),
            ("credit_updates", self.shared.credit_updates.get()),
            ("read_bytes", self.shared.read_bytes.get()),
        ]
    }

    fn fence(&self) -> Result {
        for ep in self.conns.all() {
            ep.fence_here();
        }
        Ok(())
    }
}
