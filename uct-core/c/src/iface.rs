//! Interfaces.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::slice;

use ucs::Error;
use uct_abi::{UCT_CAP_INTER_NODE, UctAtomicOps, UctOpLimits};
use uct_core::{Events, IfaceAddress, IfaceOptions};

use crate::call::{Outcome, at, guarded, not_opened, put, refuse, status, text};
use crate::md::Md;
use crate::types::{
    AmCap, AtomicCap, ErrorHandler, IfaceAttr, IfaceCap, IfaceParams, LinearFunc, PpnBandwidth, RmaCap,
};
use crate::worker::Worker;

/// `UCT_IFACE_PARAM_FIELD_*`.
const FIELD_OPEN_MODE: u64 = 1 << 1;
const FIELD_DEVICE: u64 = 1 << 2;
const FIELD_RX_HEADROOM: u64 = 1 << 5;
const FIELD_ERR_HANDLER_ARG: u64 = 1 << 6;
const FIELD_ERR_HANDLER: u64 = 1 << 7;
/// Those that have no effect: the mask of processors, statistics, flags of the handler, features.
const FIELDS_IGNORED: u64 = 1 << 0 | 1 << 4 | 1 << 8 | 1 << 18;
const FIELDS: u64 = FIELD_OPEN_MODE
    | FIELD_DEVICE
    | FIELD_RX_HEADROOM
    | FIELD_ERR_HANDLER_ARG
    | FIELD_ERR_HANDLER
    | FIELDS_IGNORED;
/// `UCT_IFACE_OPEN_MODE_DEVICE`.
const OPEN_MODE_DEVICE: u64 = 1 << 0;
/// `UCT_IFACE_FLAG_INTER_NODE`, which the boundary has elsewhere.
const FLAG_INTER_NODE: u64 = 1 << 54;
/// `UCT_IFACE_FLAG_EVENT_FD`.
const FLAG_EVENT_FD: u64 = 1 << 3;
/// `UCT_PROGRESS_SEND` and `UCT_PROGRESS_RECV`.
const PROGRESS: c_uint = 3;
/// Largest headroom.
const MAX_HEADROOM: usize = 1 << 16;

/// What is ahead of the headroom of a message: a pointer to the interface, for a message that is kept.
pub const OWNER: usize = size_of::<*const Iface>();

/// What the handle points to. It is open as long as the handle, its endpoints and kept messages have it.
pub struct Iface {
    pub inner: uct_core::Iface,
    pub worker: Rc<Worker>,
    /// As the program named it.
    pub md: *const Md,
    /// The program's part of the headroom.
    pub headroom: usize,
    pub on_failure: Option<Handler>,
    /// The kinds of progress that are enabled.
    progress: Cell<c_uint>,
}

/// The error handler of an interface.
#[derive(Clone, Copy)]
pub struct Handler {
    pub function: ErrorHandler,
    pub argument: *mut c_void,
}

impl Drop for Iface {
    fn drop(&mut self) {
        // The handlers refer to this value.
        self.inner.clear_am_handlers();
    }
}

impl Iface {
    /// The address of a peer.
    ///
    /// # Errors
    /// A pointer is null.
    ///
    /// # Safety
    /// Both are null, or have as many bytes as the addresses of this interface.
    pub unsafe fn peer(&self, device: *const u8, iface: *const u8) -> Outcome<IfaceAddress> {
        let attributes = self.inner.attributes();
        Ok(IfaceAddress {
            transport: self.inner.resource().transport.clone(),
            // SAFETY: the caller's promise.
            device: unsafe { part(device, attributes.device_addr_len, "dev_addr") }?,
            // SAFETY: the caller's promise.
            iface: unsafe { part(iface, attributes.iface_addr_len, "iface_addr") }?,
        })
    }

    /// As [`Iface::peer`], for an endpoint that is connected by its own address.
    ///
    /// # Errors
    /// The pointer is null.
    ///
    /// # Safety
    /// As [`Iface::peer`].
    pub unsafe fn peer_device(&self, device: *const u8) -> Outcome<IfaceAddress> {
        let transport = self.inner.resource().transport.clone();
        // SAFETY: the caller's promise.
        let device = unsafe { part(device, self.inner.attributes().device_addr_len, "dev_addr") }?;
        Ok(IfaceAddress { transport, device, iface: Vec::new() })
    }
}

/// # Safety
/// The pointer is null, or has so many bytes.
pub unsafe fn part(pointer: *const u8, length: usize, what: &str) -> Outcome<Vec<u8>> {
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let first = unsafe { at(pointer, what) }?;
    // SAFETY: as above.
    Ok(unsafe { slice::from_raw_parts(first, length) }.to_vec())
}

/// Writes an address.
///
/// # Safety
/// The place is null, or has room for it.
pub unsafe fn put_bytes(bytes: &[u8], place: *mut u8, what: &str) -> Outcome {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { at(place, what) }?;
    // SAFETY: as above.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// `uct_iface_open`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_open(
    md: *const Md,
    worker: *const Worker,
    params: *const IfaceParams,
    _config: *const c_void,
    handle: *mut *const Iface,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let domain = unsafe { at(md, "md") }?;
        // SAFETY: as above.
        unsafe { at(worker, "worker") }?;
        // SAFETY: as above.
        let params = unsafe { at(params, "params") }?;
        // SAFETY: as above.
        unsafe { put(handle, std::ptr::null(), "iface_p") }?;
        check(params)?;
        let has = |field| params.field_mask & field != 0;
        // SAFETY: as above, since the field is there.
        let transport = unsafe { text(params.tl_name, "mode.device.tl_name") }?;
        // SAFETY: as above.
        let device = unsafe { text(params.dev_name, "mode.device.dev_name") }?;
        let headroom = if has(FIELD_RX_HEADROOM) { params.rx_headroom } else { 0 };
        let argument = if has(FIELD_ERR_HANDLER_ARG) { params.err_handler_arg } else { std::ptr::null_mut() };
        let handler = params.err_handler.filter(|_| has(FIELD_ERR_HANDLER));
        let on_failure = handler.map(|function| Handler { function, argument });

        let resource = domain.resource(transport, device)?;
        // SAFETY: a handle of `uctc_worker_create`; the count that it has stays its own.
        unsafe { Rc::increment_strong_count(worker) };
        // SAFETY: as above; this takes the count just added.
        let worker = unsafe { Rc::from_raw(worker) };
        let options = IfaceOptions { rx_headroom: headroom + OWNER, progress: false };
        let inner = worker.inner.open_resource(resource, options).map_err(|error| not_opened(&error))?;
        let iface = Iface { inner, worker, md, headroom, on_failure, progress: Cell::new(0) };
        // SAFETY: as above.
        unsafe { put(handle, Rc::into_raw(Rc::new(iface)), "iface_p") }
    })
}

fn check(params: &IfaceParams) -> Outcome {
    let has = |field| params.field_mask & field != 0;
    if params.field_mask & !FIELDS != 0 {
        let reason = format_args!("fields {:#x} of uct_iface_params_t", params.field_mask & !FIELDS);
        return Err(refuse(Error::UNSUPPORTED, reason));
    }
    if has(FIELD_OPEN_MODE) && params.open_mode != OPEN_MODE_DEVICE {
        let reason = format_args!("open mode {:#x}: only UCT_IFACE_OPEN_MODE_DEVICE", params.open_mode);
        return Err(refuse(Error::UNSUPPORTED, reason));
    }
    if !has(FIELD_DEVICE) {
        return Err(refuse(Error::INVALID_PARAM, "uct_iface_open without UCT_IFACE_PARAM_FIELD_DEVICE"));
    }
    if has(FIELD_RX_HEADROOM) && params.rx_headroom > MAX_HEADROOM {
        let reason = format_args!("rx_headroom of {} bytes: at most {MAX_HEADROOM}", params.rx_headroom);
        return Err(refuse(Error::EXCEEDS_LIMIT, reason));
    }
    Ok(())
}

/// `uct_iface_close`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_close(iface: *const Iface) {
    if iface.is_null() {
        return;
    }
    // SAFETY: a handle, by the caller's promise.
    let iface = unsafe { Rc::from_raw(iface) };
    let worker = Rc::clone(&iface.worker);
    guarded((), || worker.close(Box::new(iface)));
}

/// `uct_iface_query`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_query(iface: *const Iface, attr: *mut IfaceAttr) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        unsafe { put(attr, attributes(&iface.inner), "iface_attr") }
    })
}

fn attributes(iface: &uct_core::Iface) -> IfaceAttr {
    let own = iface.attributes();
    let inter_node = if own.capabilities & UCT_CAP_INTER_NODE != 0 { FLAG_INTER_NODE } else { 0 };
    let event_fd = if iface.event_fd().is_ok() { FLAG_EVENT_FD } else { 0 };
    let atomics = |ops: &UctAtomicOps| AtomicCap { op_flags: ops.post.into(), fop_flags: ops.fetch.into() };
    IfaceAttr {
        cap: IfaceCap {
            put: rma(&own.put),
            get: rma(&own.get),
            am: am(&own.am),
            atomic32: atomics(&own.atomic32),
            atomic64: atomics(&own.atomic64),
            flags: own.capabilities & !UCT_CAP_INTER_NODE | inter_node,
            event_flags: u64::from(own.events) | event_fd,
        },
        device_addr_len: own.device_addr_len,
        iface_addr_len: own.iface_addr_len,
        ep_addr_len: own.ep_addr_len,
        max_conn_priv: 0,
        overhead: own.overhead.value,
        bandwidth: PpnBandwidth {
            dedicated: own.bandwidth_dedicated.value,
            shared: own.bandwidth_shared.value,
        },
        latency: LinearFunc { c: own.latency.value, m: own.latency_growth },
        priority: u8::try_from(own.priority).unwrap_or(u8::MAX),
        max_num_eps: match usize::try_from(own.max_num_eps) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        },
        dev_num_paths: 1,
    }
}

fn rma(limits: &UctOpLimits) -> RmaCap {
    RmaCap {
        max_short: limits.max_short,
        max_bcopy: limits.max_bcopy,
        min_zcopy: limits.min_zcopy,
        max_zcopy: limits.max_zcopy,
        opt_zcopy_align: limits.opt_zcopy_align,
        align_mtu: limits.align_mtu,
        max_iov: limits.max_iov,
    }
}

fn am(limits: &UctOpLimits) -> AmCap {
    AmCap {
        // Here the header counts.
        max_short: limits.max_short.saturating_add(size_of::<u64>()),
        max_bcopy: limits.max_bcopy,
        min_zcopy: limits.min_zcopy,
        max_zcopy: limits.max_zcopy,
        opt_zcopy_align: limits.opt_zcopy_align,
        align_mtu: limits.align_mtu,
        max_hdr: limits.max_hdr,
        max_iov: limits.max_iov,
    }
}

/// `uct_iface_get_device_address`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_get_device_address(iface: *const Iface, addr: *mut u8) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        unsafe { put_bytes(&iface.inner.address()?.device, addr, "addr") }
    })
}

/// `uct_iface_get_address`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_get_address(iface: *const Iface, addr: *mut u8) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        unsafe { put_bytes(&iface.inner.address()?.iface, addr, "addr") }
    })
}

/// `uct_iface_is_reachable`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_is_reachable(
    iface: *const Iface,
    device: *const u8,
    address: *const u8,
) -> c_int {
    let reached = status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        let peer = unsafe { iface.peer(device, address) }?;
        iface.inner.is_reachable(&peer).map_err(|refused| {
            ucs::log::debug!("{refused}");
            refused.status
        })
    });
    c_int::from(reached == 0)
}

/// `uct_iface_progress_enable`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_progress_enable(iface: *const Iface, flags: c_uint) {
    // SAFETY: the caller's promise.
    let Some(iface) = (unsafe { iface.as_ref() }) else { return };
    let enabled = iface.progress.get() | flags & PROGRESS;
    if enabled != 0 && iface.progress.replace(enabled) == 0 {
        guarded((), || iface.inner.progress_enable());
    }
}

/// `uct_iface_progress_disable`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_progress_disable(iface: *const Iface, flags: c_uint) {
    // SAFETY: the caller's promise.
    let Some(iface) = (unsafe { iface.as_ref() }) else { return };
    let enabled = iface.progress.get() & !flags;
    if iface.progress.replace(enabled) != 0 && enabled == 0 {
        guarded((), || iface.inner.progress_disable());
    }
}

/// `uct_iface_event_fd_get`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_event_fd_get(iface: *const Iface, fd: *mut c_int) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        // SAFETY: as above.
        unsafe { put(fd, iface.inner.event_fd()?.as_raw_fd(), "fd_p") }
    })
}

/// `uct_iface_event_arm`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_event_arm(iface: *const Iface, events: c_uint) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let iface = unsafe { at(iface, "iface") }?;
        iface.inner.arm(Events::from_bits_truncate(events))
    })
}
