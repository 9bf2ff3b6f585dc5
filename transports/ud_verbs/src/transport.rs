//! The SDK's view of the interface: addresses, endpoints, events, the way to close.

use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use uct_ib::{DeviceAddress, PortAddress};
use uct_plugin::abi::{UCT_EVENT_RECV, UCT_EVENT_SEND_COMP};
use uct_plugin::{
    Completion, Device, DeviceKind, EpParams, Error, Failure, Flush, Iface, IfaceAttr, IfaceParams, Outcome,
    PeerAddress, Result, Scope, Settings, Transport,
};

use crate::config::UdConfig;
use crate::ep::UdEp;
use crate::iface::UdIface;
use crate::link::conn::Conn;
use crate::link::core::Core;
use crate::link::flushes;
use crate::md::UdMd;
use crate::proto::ConnectError;
use crate::proto::addr::{IfaceAddress, origin};

/// The transport `ud_verbs`.
pub(crate) struct UdTransport;

impl Transport for UdTransport {
    const NAME: &'static str = "ud_verbs";
    type Md = UdMd;
    type Iface = UdIface;

    fn devices(md: &UdMd, settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let config = UdConfig::from_settings(settings)?;
        let context = &md.device.context;
        let mut devices = Vec::new();
        let mut refusal = None;
        for number in 1..=md.device.ports() {
            match PortAddress::new(context, number, config.port_preferences()) {
                Ok(_) => devices.push(Device {
                    name: format!("{}:{number}", context.device_name()),
                    kind: DeviceKind::Network,
                    numa_node: md.device.numa_node(),
                    is_software: md.device.is_software(),
                }),
                Err(error) => refusal = Some(Failure::from(error)),
            }
        }
        match refusal {
            Some(refusal) if devices.is_empty() => Err(refusal),
            _ => Ok(devices),
        }
    }

    fn open(md: &Arc<UdMd>, params: IfaceParams<'_>) -> Result<Rc<UdIface>, Failure> {
        UdIface::open(md, params)
    }
}

impl Iface for UdIface {
    type Md = UdMd;
    type Ep = UdEp;

    fn attributes(&self) -> IfaceAttr {
        self.attributes()
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&self.shared.enter().with(|core| core.paths.port.device_address().pack()));
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&IfaceAddress { qp: self.qp, identity: self.identity }.pack());
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String> {
        let device = DeviceAddress::parse(peer.device).map_err(|error| error.to_string())?;
        IfaceAddress::parse(peer.iface)?;
        self.shared.enter().with(|core| {
            if scope == Scope::Device && core.paths.port.device_address().gid != device.gid {
                return Err("the peer is on another port".to_owned());
            }
            core.paths.check(&device)
        })
    }

    #[inline]
    fn progress(&self) -> u32 {
        self.make_progress()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<UdEp>, Failure> {
        let guard = self.shared.enter();
        let made = guard.with(|core| {
            core.check()?;
            core.clock.read();
            let now = core.clock.now();
            let full = |error: ConnectError<Failure>| match error {
                ConnectError::Full(_) => Failure::new(Error::EXCEEDS_LIMIT, error.to_string()),
                ConnectError::Path(failure) => failure,
            };
            let Some(peer) = params.peer else {
                return core
                    .table
                    .create(now)
                    .map_err(|error| Failure::new(Error::EXCEEDS_LIMIT, error.to_string()));
            };
            let invalid = |reason: String| Failure::new(Error::INVALID_ADDR, reason);
            let device = DeviceAddress::parse(peer.device).map_err(|error| invalid(error.to_string()))?;
            let address = IfaceAddress::parse(peer.iface).map_err(invalid)?;
            let Core { table, paths, .. } = core;
            let origin = origin(&device, address.qp);
            table.connect(now, address.identity, origin, || paths.find(&device, address.qp)).map_err(full)
        });
        let id = made?;
        let conn = Rc::new(Conn::new(&self.shared, id, params.user));
        self.conns.insert(&conn);
        guard.with(Core::transmit);
        self.shared.add_work(&guard);
        Ok(Rc::new(UdEp { conn, iface: Rc::clone(self) }))
    }

    fn close(&self) {
        self.finish(self.linger);
        self.shared.timers.stop(&self.shared.enter());
    }

    unsafe fn release(&self, data: *mut u8) {
        // SAFETY: the host releases what a handler kept, once (`Iface::release`).
        self.shared.enter().with(|core| unsafe { core.release(data) });
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.shared.enter().with(|core| core.queue.channel.fd().as_raw_fd()))
    }

    fn arm(&self, events: u32) -> Result {
        let guard = self.shared.enter();
        guard.with(|core| {
            core.queue.channel.drain();
            if core.has_news() {
                return Err(Error::BUSY);
            }
            // No message is to be expected that they could ride on.
            core.table.acknowledge_now(core.clock.now());
            core.fill(16);
            core.transmit();
            // That sends have ended is nothing to wake the application for.
            if core.queue.should_reap() {
                core.queue.reap();
            }
            if core.has_pending_work() {
                return Err(Error::BUSY);
            }
            core.queue.arm(events & (UCT_EVENT_RECV | UCT_EVENT_SEND_COMP) == 0)?;
            // What came before arming is not announced.
            core.poll_device();
            if core.has_news() { Err(Error::BUSY) } else { Ok(()) }
        })?;
        self.shared.timers.prepare_sleep(&guard);
        Ok(())
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        flushes::start(&self.flushes, &self.conns, flags, completion)
    }

    fn fence(&self) -> Result {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (counters, malformed, connections) =
            self.shared.enter().with(|core| (core.table.counters(), core.malformed, core.table.len() as u64));
        let own = [
            ("connections", connections),
            ("resent", counters.resent),
            ("timeouts", counters.timeouts),
            ("acknowledgements", counters.acknowledgements),
            ("duplicates", counters.duplicates),
            ("reordered", counters.reordered),
            ("discarded", counters.discarded + malformed),
            ("failures", counters.failures),
        ];
        own.into_iter().chain(self.targets.served().counters()).collect()
    }
}
