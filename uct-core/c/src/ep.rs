//! Endpoints.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use ucs::Error;
use uct_abi::{UctEp, UctEpOps, UctPendingReq};
use uct_core::{EpFailure, raw};

use crate::call::{Outcome, at, guarded, put, refuse, refused, status};
use crate::iface::{Handler, Iface, part, put_bytes};
use crate::types::EpParams;

/// `UCT_EP_PARAM_FIELD_*`.
const FIELD_IFACE: u64 = 1 << 0;
const FIELD_DEV_ADDR: u64 = 1 << 2;
const FIELD_IFACE_ADDR: u64 = 1 << 3;
const FIELD_DEV_ADDR_LENGTH: u64 = 1 << 17;
const FIELD_IFACE_ADDR_LENGTH: u64 = 1 << 18;
/// Those that have no effect: user data, the index of a path.
const FIELDS_IGNORED: u64 = 1 << 1 | 1 << 12;
const FIELDS: u64 = FIELD_IFACE
    | FIELD_DEV_ADDR
    | FIELD_IFACE_ADDR
    | FIELD_DEV_ADDR_LENGTH
    | FIELD_IFACE_ADDR_LENGTH
    | FIELDS_IGNORED;

/// What the handle points to.
pub struct Ep {
    pub inner: uct_core::Ep,
    pub iface: Rc<Iface>,
    /// The handle, for the error handler, until it is destroyed.
    handle: Rc<Cell<*const Ep>>,
}

impl Ep {
    /// The slots of the transport, all of which are filled, and what they take.
    #[inline(always)]
    pub fn slots(&self) -> (&'static UctEpOps, *mut UctEp) {
        raw::ep(&self.inner)
    }
}

/// A slot of the table.
macro_rules! slot {
    ($ops:ident.$name:ident) => {{
        // SAFETY: the host fills every slot (`raw::ep`).
        unsafe { $ops.$name.unwrap_unchecked() }
    }};
}
pub(crate) use slot;

impl Drop for Ep {
    fn drop(&mut self) {
        unsafe extern "C" fn forget(_request: *mut UctPendingReq, _argument: *mut c_void) {}
        let (ops, ep) = self.slots();
        let purge = slot!(ops.pending_purge);
        // SAFETY: the endpoint is alive. The host would take the program's requests for its own.
        unsafe { purge(ep, forget, std::ptr::null_mut()) };
    }
}

/// `uct_ep_create`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_create(params: *const EpParams, place: *mut *const Ep) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let params = unsafe { at(params, "params") }?;
        // SAFETY: as above.
        unsafe { put(place, std::ptr::null(), "ep_p") }?;
        // SAFETY: as above.
        let ep = Box::into_raw(Box::new(unsafe { create(params) }?));
        // SAFETY: it was just made.
        unsafe { (*ep).handle.set(ep) };
        // SAFETY: as above.
        unsafe { put(place, ep.cast_const(), "ep_p") }
    })
}

/// # Safety
/// The parameters are as the header says.
unsafe fn create(params: &EpParams) -> Outcome<Ep> {
    let has = |field| params.field_mask & field != 0;
    if params.field_mask & !FIELDS != 0 {
        let reason = format_args!("fields {:#x} of uct_ep_params_t", params.field_mask & !FIELDS);
        return Err(refuse(Error::UNSUPPORTED, reason));
    }
    let iface = if has(FIELD_IFACE) { params.iface.cast::<Iface>() } else { std::ptr::null() };
    // SAFETY: the caller's promise.
    let open = unsafe { at(iface, "uct_ep_params_t.iface") }?;
    let attributes = open.inner.attributes();
    let is_other = has(FIELD_DEV_ADDR_LENGTH) && params.dev_addr_length != attributes.device_addr_len
        || has(FIELD_IFACE_ADDR_LENGTH) && params.iface_addr_length != attributes.iface_addr_len;
    if is_other {
        return Err(refuse(Error::INVALID_ADDR, "the address of a peer has another length than an own one"));
    }
    let peer = match (has(FIELD_DEV_ADDR), has(FIELD_IFACE_ADDR)) {
        (false, false) => None,
        // SAFETY: as above.
        (true, true) => Some(unsafe { open.peer(params.dev_addr, params.iface_addr) }?),
        _ => {
            return Err(refuse(
                Error::INVALID_PARAM,
                "an endpoint is created with both addresses, or neither",
            ));
        }
    };
    let handle = Rc::new(Cell::new(std::ptr::null()));
    let inner = match (&peer, open.on_failure) {
        (Some(peer), None) => open.inner.connect(peer),
        (Some(peer), Some(handler)) => open.inner.connect_with(peer, reporting(&handle, Some(handler))),
        (None, handler) => open.inner.create_ep(reporting(&handle, handler)),
    };
    let inner = inner.map_err(|error| refused(&error))?;
    // SAFETY: the handle of an open interface, whose count stays its own.
    unsafe { Rc::increment_strong_count(iface) };
    // SAFETY: as above; this takes the count just added.
    let iface = unsafe { Rc::from_raw(iface) };
    Ok(Ep { inner, iface, handle })
}

/// What is called when an endpoint has failed.
fn reporting(
    handle: &Rc<Cell<*const Ep>>,
    handler: Option<Handler>,
) -> impl FnOnce(EpFailure) + 'static + use<> {
    let handle = Rc::clone(handle);
    move |failure| match handler {
        Some(Handler { function, argument }) if !handle.get().is_null() => {
            // SAFETY: the program's function and argument, and a handle that is not destroyed.
            unsafe { function(argument, handle.get().cast_mut().cast(), failure.error.status().raw()) };
        }
        Some(_) => {}
        None if failure.error == Error::CONNECTION_RESET => {
            ucs::log::debug!("the peer of an endpoint is gone: {failure}");
        }
        None => ucs::log::error!("an endpoint failed: {failure}"),
    }
}

/// `uct_ep_destroy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_destroy(ep: *mut Ep) {
    if ep.is_null() {
        return;
    }
    // SAFETY: a handle, by the caller's promise.
    let ep = unsafe { Box::from_raw(ep) };
    ep.handle.set(std::ptr::null());
    let worker = Rc::clone(&ep.iface.worker);
    guarded((), || worker.close(ep));
}

/// `uct_ep_get_address`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_get_address(ep: *const Ep, addr: *mut u8) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let ep = unsafe { at(ep, "ep") }?;
        // SAFETY: as above.
        unsafe { put_bytes(&ep.inner.address()?, addr, "addr") }
    })
}

/// `uct_ep_connect_to_ep`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_ep_connect_to_ep(
    ep: *const Ep,
    device: *const u8,
    address: *const u8,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let ep = unsafe { at(ep, "ep") }?;
        // SAFETY: as above.
        let peer = unsafe { ep.iface.peer_device(device) }?;
        // SAFETY: as above.
        let address = unsafe { part(address, ep.iface.inner.attributes().ep_addr_len, "ep_addr") }?;
        ep.inner.connect_to_ep(&peer, &address).map_err(|error| refused(&error))
    })
}
