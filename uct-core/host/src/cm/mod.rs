//! Connection managers: connections by socket address, with private data each way.
//!
//! For programs that bring their own connection set-up, as with UCX's `uct_cm_*`; `uct-net` is what most programs use. The page
//! `docs/cm.md` has the contract, and what is called when. Built on the calls of a plugin's component (`uct_abi::UctCmOps`).
//!
//! All events come from [`Worker::progress`]. A [`Request`] may be sent to another thread, and accepted there on another [`Cm`] of the
//! same component.

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/cm.md")]
pub struct Page;

mod endpoint;
mod event;
mod listener;

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{from_ref, null_mut};
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucs::datastruct::callbackq::CallbackId;
use ucs::stride::Countdown;
use ucs::{Error, Result, Status};
use uct_abi::{
    UctCm, UctCmAttr, UctCmData, UctCmOps, UctCmParams, UctCmToken, UctSocketAddress, UctStatus, UctStr,
};

use crate::context::Context;
use crate::error::{OpenError, Refused};
use crate::log;
use crate::reason::Reason;
use crate::worker::{Armed, Worker, WorkerInner};

pub use endpoint::{CmEp, CmEvent, ConnectOptions};
pub use listener::{Listener, Request};

/// Most calls of progress from one poll of a connection manager without recent events to the next: each poll is a system call.
const IDLE_ROUNDS: u32 = 256;
/// The same while there are events.
const BUSY_ROUNDS: u32 = 4;
/// Polls without an event after which it counts as idle.
const IDLE_LOOKS: u32 = 64;

/// A connection manager, open on a worker. Cheap to clone; it is closed when the last clone, listener and endpoint is gone.
#[derive(Clone)]
pub struct Cm {
    inner: Rc<CmInner>,
}

struct CmInner {
    ops: &'static UctCmOps,
    raw: Cell<*mut UctCm>,
    component: String,
    component_index: usize,
    attr: Cell<CmLimits>,
    worker: Rc<WorkerInner>,
    progress: Cell<Option<CallbackId>>,
    /// Calls of progress until the next look.
    rounds: Countdown,
    /// Polls without an event.
    looks: Cell<u32>,
    is_inside: Cell<bool>,
}

/// The largest lengths of private data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmLimits {
    /// With [`CmEp::send`].
    pub connect: usize,
    /// With [`Request::accept`].
    pub accept: usize,
    /// With [`Request::reject`].
    pub reject: usize,
    /// With [`CmEp::disconnect`].
    pub disconnect: usize,
}

/// What one side sends the other: private data and, where the transport has one, the token of the data endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct CmData<'a> {
    /// Private data; the peer gets exactly these bytes.
    pub private: &'a [u8],
    /// From [`crate::Ep::cm_token`].
    pub token: Option<CmToken>,
}

/// The data that a connection manager needs about an endpoint to connect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmToken {
    /// Number of its queue pair.
    pub qp_number: u32,
    /// Whether that receives from a shared receive queue.
    pub has_srq: bool,
}

impl<'a> From<&'a [u8]> for CmData<'a> {
    fn from(private: &'a [u8]) -> CmData<'a> {
        CmData { private, token: None }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for CmData<'a> {
    fn from(private: &'a [u8; N]) -> CmData<'a> {
        CmData { private, token: None }
    }
}

impl CmData<'_> {
    /// Runs a call with the data as the boundary has them.
    fn with<T>(&self, call: impl FnOnce(*const UctCmData) -> T) -> T {
        let token = self.token.map(|token| UctCmToken {
            size: size_of::<UctCmToken>(),
            qp_number: token.qp_number,
            has_srq: token.has_srq.into(),
        });
        let data = UctCmData {
            size: size_of::<UctCmData>(),
            data: self.private.as_ptr(),
            length: self.private.len(),
            token: token.as_ref().map_or(std::ptr::null(), from_ref),
        };
        call(&raw const data)
    }
}

/// What one step of a diagnosis found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The obstacle, if there is one.
    pub obstacle: Option<Error>,
    /// A line of text, with the remedy of an obstacle.
    pub words: String,
}

impl Context {
    /// Finds out what prevents connections of a component's connection manager to an address, of a peer or of this
    /// machine: a finding for each step, up to the first obstacle. Blocks for some seconds at most. A peer's program is not called.
    ///
    /// # Errors
    /// No component of that name has a connection manager; or it has no diagnosis.
    pub fn diagnose_cm(&self, component: &str, address: SocketAddr) -> Result<Vec<Finding>, OpenError> {
        let ops = self.cm_ops(component)?.1;
        let slot = ops.diagnose.expect("the loader fills every slot");
        let (address, mut findings) = (UctSocketAddress::from(address), Vec::new());
        // SAFETY: the address is ours, and `take_finding` goes with the list.
        let status = unsafe { slot(&raw const address, take_finding, (&raw mut findings).cast::<c_void>()) };
        Reason::new().check(status, "diagnose", || format!("connection manager {component}"))?;
        Ok(findings)
    }

    /// The calls of a component's connection manager, and the component's index.
    fn cm_ops(&self, component: &str) -> Result<(usize, &'static UctCmOps), OpenError> {
        let mut all = self.components();
        let found = all.find_map(|(index, it)| (it.name == component).then_some((index, it.cm_ops?)));
        found.ok_or_else(|| {
            let known = self.connection_managers().into_iter().map(str::to_owned).collect();
            OpenError::NoSuchCm { given: component.to_owned(), known }
        })
    }

    /// The components that have connection managers, by name.
    pub fn connection_managers(&self) -> Vec<&str> {
        let all = self.components();
        all.filter(|(_, component)| component.cm_ops.is_some()).map(|(_, it)| it.name.as_str()).collect()
    }
}

impl Worker {
    /// Opens the connection manager of a component: `tcp`.
    ///
    /// # Errors
    /// No component of that name has one; or the component's refusal.
    pub fn open_cm(&self, component: &str) -> Result<Cm, OpenError> {
        let context = &self.inner.context;
        let (component_index, ops) = context.cm_ops(component)?;
        self.inner.check_fork("open a connection manager", || component.to_owned())?;
        let inner = Rc::new(CmInner {
            ops,
            raw: Cell::new(null_mut()),
            component: component.to_owned(),
            component_index,
            attr: Cell::default(),
            worker: Rc::clone(&self.inner),
            progress: Cell::new(None),
            rounds: Countdown::default(),
            looks: Cell::new(0),
            is_inside: Cell::new(false),
        });
        inner.open(context)?;
        let watched = inner.event_fd().map_err(|error| inner.refused("open", error))?;
        self.inner.watch(watched).map_err(|error| OpenError::System {
            what: "watch the event descriptor of a connection manager",
            error: error.to_string(),
        })?;
        // SAFETY: `inner` does not move, and removes the callback as it is dropped.
        let id = unsafe { self.inner.add_progress(advance, Rc::as_ptr(&inner).cast_mut().cast()) };
        inner.progress.set(Some(id));
        let armed: Rc<dyn Armed> = Rc::clone(&inner) as _;
        self.inner.add_armed(Rc::downgrade(&armed));
        Ok(Cm { inner })
    }
}

impl Cm {
    /// The component that it belongs to.
    pub fn component(&self) -> &str {
        &self.inner.component
    }

    /// Its limits of private data.
    pub fn limits(&self) -> CmLimits {
        self.inner.attr.get()
    }

    /// The worker that drives it.
    pub fn worker(&self) -> Worker {
        Worker::of(&self.inner.worker)
    }

    /// Listens on an address; port 0 lets the system choose. `on_request` is called from progress for each client.
    ///
    /// # Errors
    /// [`Error::BUSY`]: the address is in use. [`Error::NO_DEVICE`]: no device has it. Others of the system's, with a remedy.
    pub fn listen(
        &self,
        address: SocketAddr,
        backlog: Option<u32>,
        on_request: impl FnMut(Request) + 'static,
    ) -> Result<Listener, Refused> {
        Listener::create(&self.inner, address, backlog, Box::new(on_request))
    }

    /// Begins to connect. `on_event` is called from progress; see [`CmEvent`] for the order. The first event is
    /// [`CmEvent::Resolved`], or a failure; [`CmEp::send`] is called then.
    ///
    /// # Errors
    /// An address that no connection can be made to, or from; the system's refusal.
    pub fn connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
        on_event: impl FnMut(&CmEp, CmEvent<'_>) + 'static,
    ) -> Result<CmEp, Refused> {
        CmEp::connect(&self.inner, address, options, Box::new(on_event))
    }
}

impl CmInner {
    fn open(&self, context: &Context) -> Result<(), Refused> {
        let (plugin, _) = context.component(self.component_index);
        let (mut raw, mut reason) = (null_mut(), Reason::new());
        let open = self.ops.open.expect("a mandatory slot");
        let status = context.with_values(plugin, |config| {
            let params = UctCmParams {
                size: size_of::<UctCmParams>(),
                worker: from_ref(&self.worker.engine).cast_mut().cast(),
                config,
                handler: event::handle,
                argument: from_ref(self).cast_mut().cast(),
            };
            // SAFETY: the slot goes with the table; the parameters are ours, and worker and argument live until `close`.
            unsafe { open(&raw const params, &raw mut raw, reason.as_mut()) }
        });
        reason.check(status, "open", || self.subject())?;
        self.raw.set(raw);
        let mut attr = UctCmAttr {
            size: size_of::<UctCmAttr>(),
            max_connect_data: 0,
            max_accept_data: 0,
            max_reject_data: 0,
            max_disconnect_data: 0,
        };
        let query = self.ops.query.expect("a mandatory slot");
        // SAFETY: it is open, and the table is ours and contains its size.
        let status = unsafe { query(raw, &raw mut attr) };
        Reason::new().check(status, "query", || self.subject())?;
        self.attr.set(CmLimits {
            connect: attr.max_connect_data,
            accept: attr.max_accept_data,
            reject: attr.max_reject_data,
            disconnect: attr.max_disconnect_data,
        });
        Ok(())
    }

    fn subject(&self) -> String {
        format!("connection manager {}", self.component)
    }

    fn refused(&self, operation: &'static str, status: Error) -> Refused {
        Refused { operation, subject: self.subject(), status, reason: String::new() }
    }

    fn raw(&self) -> *mut UctCm {
        self.raw.get()
    }

    fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut fd = -1;
        let slot = self.ops.event_fd.expect("a mandatory slot");
        // SAFETY: it is open, and the place of the answer is ours.
        Status::from_raw(unsafe { slot(self.raw(), &raw mut fd) }).into_result()?;
        if fd < 0 {
            return Err(Error::IO_ERROR);
        }
        // SAFETY: the descriptor stays open as long as the connection manager, which is borrowed.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Polls for events, and runs what is due.
    fn look(&self) -> u32 {
        if self.is_inside.replace(true) {
            return 0;
        }
        let slot = self.ops.progress.expect("a mandatory slot");
        // SAFETY: it is open, and not inside its handler.
        let count = unsafe { slot(self.raw()) };
        self.is_inside.set(false);
        let looks = if count > 0 { 0 } else { self.looks.get().saturating_add(1) };
        self.looks.set(looks);
        count
    }

    /// Counts a call of progress; returns whether it looks.
    fn is_look_due(&self) -> bool {
        self.rounds.is_over(if self.looks.get() < IDLE_LOOKS { BUSY_ROUNDS } else { IDLE_ROUNDS })
    }

    /// Something was begun: look again soon.
    fn expect_events(&self) {
        self.looks.set(0);
        self.rounds.end();
    }
}

/// Called by each progress of the worker.
unsafe extern "C" fn advance(argument: *mut c_void) -> u32 {
    let raw = argument.cast::<CmInner>().cast_const();
    // SAFETY: `open_cm` gave it, and it is removed before the object is gone.
    let is_due = unsafe { &*raw }.is_look_due();
    if !is_due {
        return 0;
    }
    // SAFETY: it lies in an `Rc`; a handler may drop the last other one.
    unsafe { Rc::increment_strong_count(raw) };
    // SAFETY: as above; this takes the count just added.
    let cm = unsafe { Rc::from_raw(raw) };
    cm.look()
}

impl Armed for CmInner {
    fn object(self: Rc<Self>) -> Rc<dyn std::any::Any> {
        self
    }

    fn arm_all(&self) -> Result {
        // The next progress is to look, whatever has happened by then.
        self.rounds.end();
        let fd = self.event_fd()?;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) {
            Ok(0) => Ok(()),
            _ => Err(Error::BUSY),
        }
    }
}

impl Drop for CmInner {
    fn drop(&mut self) {
        if let Some(id) = self.progress.take() {
            self.worker.remove_own_progress(id);
        }
        let raw = self.raw.get();
        if raw.is_null() {
            return;
        }
        if let Ok(fd) = self.event_fd() {
            self.worker.unwatch(fd);
        }
        let close = self.ops.close.expect("a mandatory slot");
        let worker = Rc::clone(&self.worker);
        self.worker.close(Box::new(move || {
            // SAFETY: listeners and endpoints hold the object, so none is left; no transport is on the stack.
            unsafe { close(raw) };
            drop(worker);
        }));
    }
}

impl fmt::Debug for Cm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cm").field(&self.inner.component).finish()
    }
}

fn nanoseconds(limit: Option<Duration>) -> u64 {
    limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1))
}

/// Private data that fit, or the refusal.
fn check_length(length: usize, most: usize, subject: impl FnOnce() -> String) -> Result<(), Refused> {
    if length <= most {
        return Ok(());
    }
    Err(Refused {
        operation: "send private data",
        subject: subject(),
        status: Error::EXCEEDS_LIMIT,
        reason: format!("{length} bytes, and at most {most} fit"),
    })
}

/// Takes a finding into the list that `context` is.
unsafe extern "C" fn take_finding(context: *mut c_void, status: UctStatus, text: UctStr) {
    // SAFETY: `diagnose_cm` passes its list.
    let findings = unsafe { &mut *context.cast::<Vec<Finding>>() };
    // SAFETY: the text is valid for the call (`UctEmitFinding`).
    let words = unsafe { log::words(text) }.to_owned();
    let status = Status::from_raw(status);
    findings.push(Finding { obstacle: status.is_error().then(|| Error::from_status(status)), words });
}

/// Whether an object is gone for the application, so that nothing is reported to it.
fn is_gone<T>(object: &Weak<T>) -> bool {
    object.strong_count() == 0
}
