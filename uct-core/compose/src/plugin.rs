//! The objects of a plugin: its interface and endpoints, by the calls of their tables.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};
use std::rc::Rc;

use ucs::text::Visible;
use uct_plugin::abi::*;
use uct_plugin::{Completion, Error, Failure, Outcome, PeerAddress, Result, Status, attr};

use crate::relay::Relay;

/// A slot of a table, every one of which is there.
macro_rules! slot {
    ($ops:expr, $name:ident) => {
        $ops.$name.expect("the loader fills every slot")
    };
}

/// An open interface of a plugin; closed when dropped.
pub(crate) struct PluginIface {
    ops: &'static UctIfaceOps,
    ep_ops: &'static UctEpOps,
    raw: Cell<*mut UctIface>,
    attr: Cell<IfaceAttr>,
    /// An endpoint has failed since this was last asked.
    has_failed: Cell<bool>,
    /// What the plugin delivers to, until it is closed.
    _relay: Relay,
}

type IfaceAttr = uct_plugin::IfaceAttr;

/// An endpoint of a plugin; destroyed when dropped. No call of the plugin's is on the stack then.
pub(crate) struct PluginEp {
    iface: Rc<PluginIface>,
    raw: *mut UctEp,
    mark: Box<Mark>,
}

/// What identifies an endpoint to the plugin.
#[derive(Default)]
struct Mark(RefCell<Option<(Error, String)>>);

/// Room for a human-readable reason.
struct Reason {
    buffer: [u8; 512],
    text: UctText,
}

impl Reason {
    fn with(call: impl FnOnce(*mut UctText) -> UctStatus) -> Result<(), Failure> {
        let mut reason =
            Reason { buffer: [0; 512], text: UctText { data: null_mut(), capacity: 512, length: 0 } };
        reason.text.data = reason.buffer.as_mut_ptr();
        let status = Status::from_raw(call(&raw mut reason.text));
        let words = String::from_utf8_lossy(&reason.buffer[..reason.text.length.min(512)]);
        status.into_result().map_err(|error| Failure::new(error, Visible(&words).to_string()))
    }
}

fn outcome(status: UctStatus) -> Result<Outcome> {
    match status {
        UCT_INPROGRESS => Ok(Outcome::InProgress),
        other => Status::from_raw(other).into_result().map(|()| Outcome::Done),
    }
}

fn into_raw(completion: Option<Completion>) -> *mut UctCompletion {
    completion.map_or(null_mut(), Completion::into_raw)
}

impl PluginIface {
    /// Opens an interface on a plugin's domain; what the host passes goes on to the plugin but for handlers of messages and errors.
    ///
    /// # Safety
    /// As [`crate::open`], where `md` is the plugin's.
    pub(crate) unsafe fn open(
        md: *mut UctMd,
        transport: &UctTlOps,
        params: &UctIfaceParams,
        relay: Relay,
        reason: *mut UctText,
    ) -> Result<Rc<PluginIface>, UctStatus> {
        // SAFETY: the transport's tables are there for ever.
        let ops = unsafe { &*transport.iface_ops };
        // SAFETY: as above.
        let ep_ops = unsafe { &*transport.ep_ops };
        let iface = Rc::new(PluginIface {
            ops,
            ep_ops,
            raw: Cell::new(null_mut()),
            attr: Cell::new(attr::blank()),
            has_failed: Cell::new(false),
            _relay: relay,
        });
        let own = UctIfaceParams {
            am_handlers: iface._relay.as_ptr(),
            error_handler: failed,
            error_argument: Rc::as_ptr(&iface).cast_mut().cast(),
            // Messages have a head of this crate's, and are the application's only without it.
            am_placer: null(),
            ..*params
        };
        let mut raw = null_mut();
        // SAFETY: the caller's promise; handlers and argument live as long as the interface.
        let status = unsafe { slot!(transport, iface_open)(md, &raw const own, &raw mut raw, reason) };
        if status != UCT_OK {
            return Err(status);
        }
        iface.raw.set(raw);
        let mut attr = attr::blank();
        // SAFETY: the interface is open, and the table contains its size.
        match unsafe { slot!(ops, query)(raw, &raw mut attr) } {
            UCT_OK => iface.attr.set(attr),
            status => return Err(status),
        }
        Ok(iface)
    }

    /// The attributes of the plugin's interface.
    pub(crate) fn attributes(&self) -> IfaceAttr {
        self.attr.get()
    }

    pub(crate) fn device_address(&self, buffer: &mut [u8]) -> Result {
        // SAFETY: the interface is open, and the buffer as long as its attributes say.
        Status::from_raw(unsafe { slot!(self.ops, get_device_address)(self.raw.get(), buffer.as_mut_ptr()) })
            .into_result()
    }

    pub(crate) fn address(&self, buffer: &mut [u8]) -> Result {
        // SAFETY: as above.
        Status::from_raw(unsafe { slot!(self.ops, get_address)(self.raw.get(), buffer.as_mut_ptr()) })
            .into_result()
    }

    pub(crate) fn is_reachable(&self, peer: PeerAddress<'_>, scope: u32) -> Result<(), Failure> {
        let (device, iface) = (peer.device, peer.iface);
        Reason::with(|reason| {
            // SAFETY: the interface is open; the bytes are valid for the call.
            unsafe {
                slot!(self.ops, is_reachable)(
                    self.raw.get(),
                    device.as_ptr(),
                    device.len(),
                    iface.as_ptr(),
                    iface.len(),
                    scope,
                    reason,
                )
            }
        })
    }

    pub(crate) fn progress(&self) -> u32 {
        // SAFETY: the interface is open.
        unsafe { slot!(self.ops, progress)(self.raw.get()) }
    }

    /// # Safety
    /// As `Iface::release`.
    pub(crate) unsafe fn release(&self, data: *mut u8) {
        // SAFETY: the interface is open; the caller's promise.
        unsafe { slot!(self.ops, release)(self.raw.get(), data.cast()) }
    }

    pub(crate) fn event_fd(&self) -> Result<RawFd> {
        let mut fd = -1;
        // SAFETY: the interface is open, and the place is ours.
        Status::from_raw(unsafe { slot!(self.ops, event_fd)(self.raw.get(), &raw mut fd) })
            .into_result()
            .map(|()| fd)
    }

    pub(crate) fn arm(&self, events: u32) -> Result {
        // SAFETY: the interface is open.
        Status::from_raw(unsafe { slot!(self.ops, event_arm)(self.raw.get(), events) }).into_result()
    }

    pub(crate) fn flush(&self, flags: u32) -> Result<Outcome> {
        // SAFETY: the interface is open; without a completion it is to be asked again.
        outcome(unsafe { slot!(self.ops, flush)(self.raw.get(), flags, null_mut()) })
    }

    pub(crate) fn fence(&self) -> Result {
        // SAFETY: the interface is open.
        Status::from_raw(unsafe { slot!(self.ops, fence)(self.raw.get(), 0) }).into_result()
    }

    /// Hands the plugin's counters to `each`.
    pub(crate) fn counters(&self, mut each: impl FnMut(&str, u64)) {
        unsafe extern "C" fn emit<F: FnMut(&str, u64)>(context: *mut c_void, name: UctStr, value: u64) {
            // SAFETY: the context is the closure below.
            let each = unsafe { &mut *context.cast::<F>() };
            // SAFETY: strings of a plugin are valid for the call.
            let name = unsafe { words(name) };
            each(&name, value);
        }
        fn emitter<F: FnMut(&str, u64)>(_: &F) -> UctEmitCounter {
            emit::<F>
        }
        let emit = emitter(&each);
        // SAFETY: the interface is open, and callback and context belong together.
        unsafe { slot!(self.ops, counters)(self.raw.get(), emit, (&raw mut each).cast()) };
    }

    /// Whether an endpoint has failed since this was last asked.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.replace(false)
    }
}

impl Drop for PluginIface {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            // SAFETY: it is open, and its endpoints, which hold it, are gone.
            unsafe { slot!(self.ops, close)(self.raw.get()) };
        }
    }
}

/// # Safety
/// The string is valid for the call.
unsafe fn words(text: UctStr) -> String {
    if text.data.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let words = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.data, text.length) });
    Visible(&words).to_string()
}

/// The plugin reports that an endpoint has failed; progress looks after it.
unsafe extern "C" fn failed(argument: *mut c_void, ep: *mut c_void, status: UctStatus, reason: UctStr) {
    // SAFETY: the interface that was opened with it, which lives until it is closed.
    let iface = unsafe { &*argument.cast::<PluginIface>() };
    // SAFETY: the mark that the endpoint was created with, which lives until it is destroyed.
    let mark = unsafe { &*ep.cast::<Mark>() };
    // SAFETY: strings of a plugin are valid for the call.
    let reason = unsafe { words(reason) };
    let error = Error::from_status(Status::from_raw(status));
    mark.0.borrow_mut().get_or_insert((error, reason));
    iface.has_failed.set(true);
}

impl PluginEp {
    /// Creates an endpoint to a peer's interface, or one to be connected later.
    pub(crate) fn create(
        iface: &Rc<PluginIface>,
        peer: Option<PeerAddress<'_>>,
    ) -> Result<PluginEp, Failure> {
        let mark = Box::<Mark>::default();
        let params = UctEpParams {
            size: size_of::<UctEpParams>(),
            user: std::ptr::from_ref(&*mark).cast_mut().cast(),
            device_address: peer.map_or(null(), |peer| peer.device.as_ptr()),
            device_address_length: peer.map_or(0, |peer| peer.device.len()),
            iface_address: peer.map_or(null(), |peer| peer.iface.as_ptr()),
            iface_address_length: peer.map_or(0, |peer| peer.iface.len()),
            gate: null_mut(),
            accesses: null_mut(),
        };
        let mut raw = null_mut();
        Reason::with(|reason| {
            // SAFETY: the interface is open; the parameters are valid for the call, and the mark as long as the endpoint.
            unsafe { slot!(iface.ops, ep_create)(iface.raw.get(), &raw const params, &raw mut raw, reason) }
        })?;
        Ok(PluginEp { iface: Rc::clone(iface), raw, mark })
    }

    /// Why it has failed, if it has.
    pub(crate) fn failure(&self) -> Option<(Error, String)> {
        self.mark.0.borrow().clone()
    }

    pub(crate) fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let slot = slot!(self.iface.ep_ops, am_short);
        // SAFETY: the endpoint is alive, and the payload valid for the call.
        Status::from_raw(unsafe { slot(self.raw, id, header, payload.as_ptr().cast(), payload.len()) })
            .into_result()
    }

    pub(crate) fn am_short_iov(&self, id: u8, entries: &[UctIov]) -> Result {
        let slot = slot!(self.iface.ep_ops, am_short_iov);
        // SAFETY: the endpoint is alive, and the vector valid for the call.
        Status::from_raw(unsafe { slot(self.raw, id, entries.as_ptr(), entries.len()) }).into_result()
    }

    /// Sends what `fill` writes into the plugin's buffer, which holds its `max_bcopy`; `fill` returns the length.
    #[inline]
    pub(crate) fn am_bcopy<F: FnOnce(*mut u8) -> usize>(
        &self,
        id: u8,
        signaled: bool,
        fill: F,
    ) -> Result<usize> {
        unsafe extern "C" fn pack<F: FnOnce(*mut u8) -> usize>(
            buffer: *mut c_void,
            argument: *mut c_void,
        ) -> usize {
            // SAFETY: the argument is the place below, which nothing else uses meanwhile.
            let fill = unsafe { &mut *argument.cast::<Option<F>>() };
            fill.take().map_or(0, |fill| fill(buffer.cast()))
        }
        let mut fill = Some(fill);
        let flags = if signaled { UCT_SEND_SIGNALED } else { 0 };
        let slot = slot!(self.iface.ep_ops, am_bcopy);
        // SAFETY: the endpoint is alive, and callback and argument belong together.
        let answer = unsafe { slot(self.raw, id, pack::<F>, (&raw mut fill).cast(), flags) };
        usize::try_from(answer).map_err(|_| Error::from_status(Status::from_raw(answer as UctStatus)))
    }

    pub(crate) fn flush(&self, flags: u32) -> Result<Outcome> {
        // SAFETY: the endpoint is alive; without a completion it is to be asked again.
        outcome(unsafe { slot!(self.iface.ep_ops, flush)(self.raw, flags, null_mut()) })
    }

    pub(crate) fn fence(&self) -> Result {
        // SAFETY: the endpoint is alive.
        Status::from_raw(unsafe { slot!(self.iface.ep_ops, fence)(self.raw, 0) }).into_result()
    }

    pub(crate) fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        // SAFETY: the endpoint is alive; the completion counts this operation, or is null.
        outcome(unsafe { slot!(self.iface.ep_ops, check)(self.raw, 0, into_raw(completion)) })
    }

    pub(crate) fn address(&self, buffer: &mut [u8]) -> Result {
        // SAFETY: the endpoint is alive, and the buffer as long as the interface's attributes say.
        Status::from_raw(unsafe { slot!(self.iface.ep_ops, get_address)(self.raw, buffer.as_mut_ptr()) })
            .into_result()
    }

    pub(crate) fn connect_to_ep(&self, device: &[u8], ep: &[u8]) -> Result<(), Failure> {
        Reason::with(|reason| {
            // SAFETY: the endpoint is alive; the bytes are valid for the call.
            unsafe {
                slot!(self.iface.ep_ops, connect_to_ep)(
                    self.raw,
                    device.as_ptr(),
                    device.len(),
                    ep.as_ptr(),
                    ep.len(),
                    reason,
                )
            }
        })
    }
}

impl Drop for PluginEp {
    fn drop(&mut self) {
        // SAFETY: it is alive, and nothing of the host's is pending on it.
        unsafe { slot!(self.iface.ep_ops, destroy)(self.raw) };
    }
}
