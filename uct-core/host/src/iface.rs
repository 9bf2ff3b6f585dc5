//! Interfaces: one transport on one device, open on a worker.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::ffi::c_void;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::rc::Rc;

use ucs::async_context::Mode;
use ucs::{Error, Result, Status};
use uct_abi::{
    UCT_COUNTER_SERVED_ATOMIC_BYTES, UCT_COUNTER_SERVED_ATOMICS, UCT_COUNTER_SERVED_GET_BYTES,
    UCT_COUNTER_SERVED_GETS, UCT_COUNTER_SERVED_PUT_BYTES, UCT_COUNTER_SERVED_PUTS,
    UCT_IFACE_ASYNC_IN_PROGRESS, UCT_SCOPE_NETWORK, UctEmitCounter, UctEpOps, UctIface, UctIfaceOps,
    UctIfaceParams, UctStatus, UctStr,
};

use crate::address::IfaceAddress;
use crate::am::{AmId, HandlerTable, Owned};
use crate::attach::{IfaceReport, LatencyReport, ObservedEps, Sent, TransportCounter};
use crate::attr::{Capabilities, Events, IfaceAttr, blank_iface};
use crate::completion::{Completion, Posted, flushed};
use crate::config::text;
use crate::ep::{EpRecord, Flush};
use crate::error::{OpenError, Refused};
use crate::latency::{Histograms, Latency};
use crate::log;
use crate::md::MemoryDomain;
use crate::reason::Reason;
use crate::resource::Resource;
use crate::stats::Count;
use crate::worker::driven::Driven;
use crate::worker::{Armed, Worker, WorkerInner};

/// How to open an interface.
#[derive(Clone, Debug)]
pub struct IfaceOptions {
    /// Bytes in front of received data that the application may write to after it has kept the message. Default 0.
    pub rx_headroom: usize,
    /// Whether the worker's progress drives the interface from the start. Default true; in UCX it has to be enabled.
    pub progress: bool,
}

impl Default for IfaceOptions {
    fn default() -> IfaceOptions {
        IfaceOptions { rx_headroom: 0, progress: true }
    }
}

/// One transport on one device, open on a worker. Cheap to clone; it is closed when the last clone, endpoint and kept
/// message is gone. A handler or callback that holds one of them keeps it open: see [`Iface::clear_am_handlers`].
#[derive(Clone)]
pub struct Iface {
    pub(crate) inner: Rc<IfaceInner>,
}

pub(crate) struct IfaceInner {
    pub(crate) ops: &'static UctIfaceOps,
    pub(crate) ep_ops: &'static UctEpOps,
    raw: Cell<*mut UctIface>,
    pub(crate) attr: OnceCell<IfaceAttr>,
    pub(crate) rx_headroom: usize,
    pub(crate) handlers: HandlerTable,
    pub(crate) worker: Rc<WorkerInner>,
    pub(crate) md: MemoryDomain,
    resource: Rc<Resource>,
    driven: Rc<Driven>,
    /// Counts the interfaces of the worker from 1.
    number: u64,
    /// Its endpoints, if the context has a server that shows them.
    observed: Option<ObservedEps>,
    /// If the key `latency_histograms` is on.
    histograms: Option<Rc<Histograms>>,
}

impl Worker {
    /// Opens the transport `transport` on the device `device`.
    ///
    /// # Errors
    /// No such transport or device (with the nearest names), excluded by the configuration, or refused.
    pub fn open(&self, transport: &str, device: &str) -> Result<Iface, OpenError> {
        let resource = self.inner.context.find(transport, device)?;
        self.open_resource(&resource, IfaceOptions::default())
    }

    /// Opens an interface on a resource.
    ///
    /// # Errors
    /// Excluded by the configuration, or refused by the transport.
    pub fn open_resource(&self, resource: &Resource, options: IfaceOptions) -> Result<Iface, OpenError> {
        if let Some((key, value)) = self.inner.context.excluded(resource) {
            return Err(OpenError::Excluded { resource: resource.to_string(), key, value });
        }
        self.inner.check_fork("open an interface", || resource.to_string())?;
        let iface = Iface::open(self, resource, options)?;
        self.watch(&iface)?;
        self.inner.install_handlers(&iface.inner);
        Ok(iface)
    }

    fn watch(&self, iface: &Iface) -> Result<(), OpenError> {
        if let Ok(fd) = iface.event_fd() {
            let watched = self.inner.watch(fd);
            watched.map_err(|error| OpenError::System {
                what: "watch the event descriptor of an interface",
                error: error.to_string(),
            })?;
        }
        let inner: Rc<dyn Armed> = Rc::clone(&iface.inner) as _;
        self.inner.add_armed(Rc::downgrade(&inner));
        Ok(())
    }
}

impl Iface {
    fn open(worker: &Worker, resource: &Resource, options: IfaceOptions) -> Result<Iface, OpenError> {
        let context = worker.context();
        let md = context.memory_domain(resource)?;
        let number = worker.inner.opened.get() + 1;
        worker.inner.opened.set(number);
        let (plugin, component) = context.component(resource.component_index);
        let transport = &component.transports[resource.transport_index];
        let composed = uct_compose::tables();
        let is_composed = md.inner.is_composed();
        let inner = Rc::new(IfaceInner {
            ops: if is_composed { composed.iface } else { transport.iface_ops },
            ep_ops: if is_composed { composed.ep } else { transport.ep_ops },
            raw: Cell::new(std::ptr::null_mut()),
            attr: OnceCell::new(),
            rx_headroom: options.rx_headroom,
            handlers: HandlerTable::new(NonNull::from(&*worker.inner), context.inner.core.log_rate),
            worker: Rc::clone(&worker.inner),
            md,
            resource: Rc::new(resource.clone()),
            driven: Driven::new(&worker.inner),
            number,
            observed: context.inner.observers.is_any().then(ObservedEps::default),
            histograms: context.inner.core.latency_histograms.then(Rc::default),
        });
        let mut raw = std::ptr::null_mut();
        let mut reason = Reason::new();
        let open = transport.ops.iface_open.expect("the loader fills every slot");
        let status = context.with_values(plugin, |config| {
            let params = UctIfaceParams {
                size: size_of::<UctIfaceParams>(),
                worker: (&raw const worker.inner.engine).cast_mut().cast(),
                device: text(&resource.device),
                config,
                am_handlers: inner.handlers.as_ptr(),
                error_handler: failed,
                error_argument: std::ptr::null_mut(),
                rx_headroom: options.rx_headroom,
                flags: match worker.inner.engine.async_context.mode() {
                    Mode::Poll => UCT_IFACE_ASYNC_IN_PROGRESS,
                    Mode::Thread => 0,
                },
                iface: inner.driven.as_host_iface(),
                am_placer: inner.handlers.placer().as_ptr(),
            };
            let md = inner.md.inner.raw();
            if is_composed {
                // SAFETY: as below; the domain was made so, and the loader fills every slot.
                return unsafe { uct_compose::open(md, transport.ops, &params, &mut raw, reason.as_mut()) };
            }
            // SAFETY: the slot goes with the table, the domain is open; the parameters are ours: the worker and the
            // handler table live as long as the interface.
            unsafe { open(md, &raw const params, &raw mut raw, reason.as_mut()) }
        });
        reason.check(status, "open an interface", || resource.to_string())?;
        inner.raw.set(raw);

        let mut attr = blank_iface();
        let query = inner.ops.query.expect("the loader fills every slot");
        // SAFETY: the interface is open, and the table is ours and contains its size.
        let status = unsafe { query(raw, &raw mut attr) };
        Reason::new().check(status, "query the interface", || resource.to_string())?;
        let _ = inner.attr.set(attr);

        let iface = Iface { inner };
        if options.progress {
            iface.progress_enable();
        }
        Ok(iface)
    }

    /// Its capabilities, limits and costs.
    pub fn attributes(&self) -> &IfaceAttr {
        self.inner.attributes()
    }

    /// Whether any thread may use it, one at a time; otherwise only the thread of its worker.
    pub fn is_for_any_thread(&self) -> bool {
        self.attributes().flags & uct_abi::UCT_IFACE_ATTR_ANY_THREAD != 0
    }

    /// Whether a failed packing ([`crate::Ep::am_bcopy`]) sends nothing. Otherwise it sends an empty message, because the plugin, which is
    /// written in C, cannot take its buffer back.
    pub fn sends_nothing_after_failed_packing(&self) -> bool {
        self.attributes().flags & uct_abi::UCT_IFACE_ATTR_PACK_NONE != 0
    }

    /// Whether long messages are offered to a placer ([`Iface::set_am_placer`]).
    pub fn places_messages(&self) -> bool {
        self.attributes().flags & uct_abi::UCT_IFACE_ATTR_AM_PLACES != 0
    }

    /// Its capabilities.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_retain(self.attributes().capabilities)
    }

    /// Its emulated capabilities: composed of other operations, with round trips, or carried out by the peer's processor.
    pub fn emulated(&self) -> Capabilities {
        Capabilities::from_bits_retain(self.attributes().emulated)
    }

    /// The transport and device it is open on.
    pub fn resource(&self) -> &Resource {
        &self.inner.resource
    }

    /// The memory domain for its zero-copy operations, put, get and atomics.
    pub fn memory_domain(&self) -> &MemoryDomain {
        &self.inner.md
    }

    /// The worker that drives it.
    pub fn worker(&self) -> Worker {
        Worker::of(&self.inner.worker)
    }

    /// Drops messages of `id` from now on.
    pub fn clear_am_handler(&self, id: AmId) {
        let removed = self.inner.handlers.clear(id);
        self.inner.drop_handlers(removed);
    }

    /// Removes all handlers, and drops what they hold. An endpoint that a handler holds would keep the interface open for ever.
    pub fn clear_am_handlers(&self) {
        let removed = self.inner.handlers.clear_all();
        self.inner.drop_handlers(removed);
    }

    /// Makes the worker's progress drive the interface.
    pub fn progress_enable(&self) {
        let inner = &self.inner;
        let progress = inner.ops.progress.expect("the loader fills every slot");
        // SAFETY: the slot is the transport's, and it is disabled ahead of `close`.
        unsafe { inner.driven.enable(progress, inner.raw()) }
    }

    /// Makes the worker's progress skip the interface.
    pub fn progress_disable(&self) {
        self.inner.driven.disable();
    }

    /// Its addresses, for a peer.
    ///
    /// # Errors
    /// The transport's error.
    pub fn address(&self) -> Result<IfaceAddress> {
        let inner = &self.inner;
        let attr = self.attributes();
        let mut device = vec![0; attr.device_addr_len];
        let slot = inner.ops.get_device_address.expect("the loader fills every slot");
        // SAFETY: the interface is open, and the buffer has the length that the attributes name.
        Status::from_raw(unsafe { slot(inner.raw(), device.as_mut_ptr()) }).into_result()?;
        let mut iface = vec![0; attr.iface_addr_len];
        let slot = inner.ops.get_address.expect("the loader fills every slot");
        // SAFETY: as above.
        Status::from_raw(unsafe { slot(inner.raw(), iface.as_mut_ptr()) }).into_result()?;
        Ok(IfaceAddress { transport: inner.resource.transport.clone(), device, iface })
    }

    /// Whether a peer can be reached, decided locally without traffic.
    ///
    /// # Errors
    /// The reason as text.
    pub fn is_reachable(&self, peer: &IfaceAddress) -> Result<(), Refused> {
        let inner = &self.inner;
        if peer.transport != inner.resource.transport {
            return Err(Refused {
                operation: "reach the peer",
                subject: inner.resource.to_string(),
                status: Error::UNREACHABLE,
                reason: format!("the address is one of transport {:?}", peer.transport),
            });
        }
        let mut reason = Reason::new();
        let slot = inner.ops.is_reachable.expect("the loader fills every slot");
        // SAFETY: the interface is open; the bytes are ours and valid for the call.
        let status = unsafe {
            slot(
                inner.raw(),
                peer.device.as_ptr(),
                peer.device.len(),
                peer.iface.as_ptr(),
                peer.iface.len(),
                UCT_SCOPE_NETWORK,
                reason.as_mut(),
            )
        };
        reason.check(status, "reach the peer", || inner.resource.to_string())
    }

    /// Flushes all endpoints: [`Posted::Done`] if nothing is outstanding, else the completion reports the end. Without a
    /// completion, [`Posted::InProgress`] means: make progress and call it again.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]: make progress and call it again. [`Error::INVALID_PARAM`] in a child of a fork.
    pub fn flush(&self, flags: Flush, completion: Option<&Completion>) -> Result<Posted> {
        self.inner.worker.check_process()?;
        let slot = self.inner.ops.flush.expect("the loader fills every slot");
        flushed(self.inner.histograms(), completion, |completion| {
            // SAFETY: the interface is open; the completion counts this operation or is null.
            unsafe { slot(self.inner.raw(), flags.bits(), completion) }
        })
    }

    /// Orders operations of all endpoints before and after it.
    ///
    /// # Errors
    /// The transport's error; [`Error::INVALID_PARAM`] in a child of a fork.
    pub fn fence(&self) -> Result {
        self.inner.worker.check_process()?;
        let slot = self.inner.ops.fence.expect("the loader fills every slot");
        // SAFETY: the interface is open.
        Status::from_raw(unsafe { slot(self.inner.raw(), 0) }).into_result()
    }

    /// A descriptor that becomes readable when an armed event happens.
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`] if the transport has none.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        self.inner.event_fd()
    }

    /// Arms for events: after success, the next one makes [`Iface::event_fd`] readable.
    ///
    /// # Errors
    /// [`Error::BUSY`] while events are unprocessed: progress and arm again. [`Error::INVALID_PARAM`] in a child of a fork.
    pub fn arm(&self, events: Events) -> Result {
        self.inner.arm(events)
    }

    /// Its number in reports: it counts the interfaces that its worker has opened, from 1.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Messages and bytes that were received.
    pub fn received(&self) -> Count {
        self.inner.handlers.received()
    }

    /// The times of its operations from post to completion: one entry for each kind that has had completions. Empty without the
    /// configuration key `latency_histograms`.
    pub fn latencies(&self) -> Vec<Latency> {
        self.inner.latencies()
    }

    /// The transport's own counters.
    pub fn transport_counters(&self) -> Vec<(String, u64)> {
        self.inner.transport_counters()
    }
}

impl IfaceInner {
    fn transport_counters(&self) -> Vec<(String, u64)> {
        unsafe extern "C" fn emit(context: *mut c_void, name: UctStr, value: u64) {
            // SAFETY: the context is the list below.
            let list = unsafe { &mut *context.cast::<Vec<(String, u64)>>() };
            // SAFETY: a string of a plugin is valid for the call.
            list.push((unsafe { log::words(name) }.to_owned(), value));
        }
        let mut list = Vec::<(String, u64)>::new();
        let slot = self.ops.counters.expect("the loader fills every slot");
        // SAFETY: the interface is open, and the list is ours.
        unsafe { slot(self.raw(), emit as UctEmitCounter, (&raw mut list).cast()) };
        list
    }

    fn latencies(&self) -> Vec<Latency> {
        self.histograms.as_ref().map(|histograms| histograms.latencies()).unwrap_or_default()
    }

    /// For the times of its operations.
    #[inline]
    pub(crate) fn histograms(&self) -> Option<&Rc<Histograms>> {
        self.histograms.as_ref()
    }

    /// Its endpoints, for reports.
    pub(crate) fn observed(&self) -> Option<&ObservedEps> {
        self.observed.as_ref()
    }

    /// Drops handlers that were taken away, as soon as none of them can be running.
    pub(crate) fn drop_handlers(&self, handlers: impl IntoIterator<Item = Box<dyn Owned>> + 'static) {
        self.worker.close(Box::new(move || handlers.into_iter().for_each(drop)));
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut UctIface {
        self.raw.get()
    }

    pub(crate) fn attributes(&self) -> &IfaceAttr {
        self.attr.get().expect("set as the interface was opened")
    }

    pub(crate) fn resource(&self) -> &Rc<Resource> {
        &self.resource
    }

    /// Another owner; every `IfaceInner` lies in an `Rc`.
    pub(crate) fn share(&self) -> Rc<IfaceInner> {
        let this: *const IfaceInner = self;
        // SAFETY: `Iface::open` alone makes the type, in an `Rc`.
        unsafe { Rc::increment_strong_count(this) };
        // SAFETY: as above; this takes the count just added.
        unsafe { Rc::from_raw(this) }
    }

    /// For an owner that is about to be gone. If it is the last one, and a transport is on the stack, the interface gets another one
    /// until none is: handlers that run use it.
    pub(crate) fn let_go(this: &Rc<IfaceInner>) {
        if Rc::strong_count(this) == 1 {
            let last = Rc::clone(this);
            this.worker.close(Box::new(move || drop(last)));
        }
    }

    pub(crate) fn arm(&self, events: Events) -> Result {
        self.worker.check_process()?;
        let slot = self.ops.event_arm.expect("the loader fills every slot");
        // SAFETY: the interface is open.
        Status::from_raw(unsafe { slot(self.raw(), events.bits()) }).into_result()
    }

    pub(crate) fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut fd = -1;
        let slot = self.ops.event_fd.expect("the loader fills every slot");
        // SAFETY: the interface is open, and the place of the answer is ours.
        Status::from_raw(unsafe { slot(self.raw(), &raw mut fd) }).into_result()?;
        if fd < 0 {
            return Err(Error::IO_ERROR);
        }
        // SAFETY: the descriptor stays open as long as the interface (`UctIfaceOps::event_fd`), which is borrowed.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Armed for IfaceInner {
    fn arm_all(&self) -> Result {
        self.arm(Events::from_bits_truncate(self.attributes().events))
    }

    fn object(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }

    fn report(&self) -> Option<IfaceReport> {
        let endpoints = self.observed()?;
        let (all, closed, received) =
            (endpoints.all(), endpoints.closed().endpoints, self.handlers.received());
        let sent = all.counters.iter().map(|(kind, count)| Sent {
            kind: kind.to_owned(),
            operations: count.operations,
            bytes: count.bytes,
        });
        let mut counters = self.transport_counters();
        let served = take_served(&mut counters);
        Some(IfaceReport {
            number: self.number,
            transport: self.resource.transport.clone(),
            device: self.resource.device.clone(),
            memory_domain: self.md.name().to_owned(),
            is_driven: self.driven.is_enabled(),
            endpoints: all.endpoints - closed,
            closed,
            failed: all.failed,
            pending_requests: endpoints.pending(),
            no_resource: all.counters.no_resource,
            sent: sent.collect(),
            received: received.operations,
            received_bytes: received.bytes,
            served,
            counters: counters.into_iter().map(|(name, value)| TransportCounter { name, value }).collect(),
            latencies: self.latencies().into_iter().map(LatencyReport::from).collect(),
        })
    }
}

/// Takes what the interface did for other processes out of its counters, if it counts that.
fn take_served(counters: &mut Vec<(String, u64)>) -> Option<Vec<Sent>> {
    let mut take = |wanted: &str| {
        let at = counters.iter().position(|(name, _)| name == wanted)?;
        Some(counters.remove(at).1)
    };
    let mut served = |kind: &str, operations, bytes| {
        Some(Sent { kind: kind.to_owned(), operations: take(operations)?, bytes: take(bytes)? })
    };
    let put = served("put", UCT_COUNTER_SERVED_PUTS, UCT_COUNTER_SERVED_PUT_BYTES)?;
    let get = served("get", UCT_COUNTER_SERVED_GETS, UCT_COUNTER_SERVED_GET_BYTES)?;
    let atomic = served("atomic", UCT_COUNTER_SERVED_ATOMICS, UCT_COUNTER_SERVED_ATOMIC_BYTES)?;
    Some(vec![put, get, atomic])
}

/// Called by a transport when an endpoint has failed.
unsafe extern "C" fn failed(_argument: *mut c_void, ep: *mut c_void, status: UctStatus, reason: UctStr) {
    // SAFETY: a string of a plugin is valid for the call.
    let reason = unsafe { log::words(reason) };
    // SAFETY: the record is the one given to `ep_create`, and lives until the endpoint is destroyed.
    let record = unsafe { &*ep.cast::<EpRecord>() };
    record.fail(Error::from_status(Status::from_raw(status)), reason);
}

impl Drop for Iface {
    fn drop(&mut self) {
        IfaceInner::let_go(&self.inner);
    }
}

impl Drop for IfaceInner {
    fn drop(&mut self) {
        self.driven.disable();
        let raw = self.raw.get();
        if raw.is_null() {
            return;
        }
        if let Ok(fd) = self.event_fd() {
            self.worker.unwatch(fd);
        }
        let close = self.ops.close.expect("the loader fills every slot");
        let parts = (self.handlers.take(), self.md.clone(), Rc::clone(&self.worker), Rc::clone(&self.driven));
        self.worker.close(Box::new(move || {
            // SAFETY: endpoints and kept messages hold the interface, so none is left; no transport is on the stack.
            unsafe { close(raw) };
            drop(parts);
        }));
    }
}

impl fmt::Debug for Iface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Iface").field(&self.inner.resource.to_string()).finish()
    }
}
