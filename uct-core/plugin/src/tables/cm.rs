//! The slots of a connection manager.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use ucs::{Error, Status};
use uct_abi::{
    UCT_OK, UctCm, UctCmAttr, UctCmConnectParams, UctCmData, UctCmEp, UctCmListenParams, UctCmListener,
    UctCmOps, UctCmParams, UctCmRequest, UctEmitFinding, UctSocketAddress, UctStatus, UctStr, UctText,
};

use super::bytes;
use super::iface::outcome;
use crate::cm::{CmConnect, CmData, CmEvents, CmParams, CmToken, CmUser, ConnectionManager};
use crate::failure::Failure;
use crate::guard;
use crate::host::Worker;
use crate::settings::Settings;

/// The table of a connection manager.
pub struct CmTables<C>(PhantomData<C>);

impl<C: ConnectionManager> CmTables<C> {
    /// The table.
    pub const OPS: UctCmOps = UctCmOps {
        size: size_of::<UctCmOps>(),
        open: Some(open::<C>),
        close: Some(close::<C>),
        query: Some(query::<C>),
        event_fd: Some(event_fd::<C>),
        progress: Some(progress::<C>),
        listen: Some(listen::<C>),
        listener_address: Some(listener_address::<C>),
        listener_destroy: Some(listener_destroy::<C>),
        connect: Some(connect::<C>),
        send: Some(send::<C>),
        accept: Some(accept::<C>),
        reject: Some(reject::<C>),
        notify: Some(notify::<C>),
        disconnect: Some(disconnect::<C>),
        ep_addresses: Some(ep_addresses::<C>),
        ep_destroy: Some(ep_destroy::<C>),
        diagnose: Some(diagnose::<C>),
    };
}

/// # Safety
/// `raw` came from `Rc::into_raw` of the type in a slot of this file, and is alive.
unsafe fn share<T>(raw: *mut T) -> Rc<T> {
    // SAFETY: the caller's promise.
    unsafe { Rc::increment_strong_count(raw.cast_const()) };
    // SAFETY: as above; this takes the count just added.
    unsafe { Rc::from_raw(raw.cast_const()) }
}

/// # Safety
/// `cm` came from `open`, and is open.
unsafe fn opened<C>(cm: *mut UctCm) -> Rc<C> {
    // SAFETY: `open` made the pointer with `Rc::into_raw`.
    unsafe { share(cm.cast::<C>()) }
}

/// # Safety
/// `ep` came from `connect` or `accept`, and is alive.
unsafe fn alive<C: ConnectionManager>(ep: *mut UctCmEp) -> Rc<C::Ep> {
    // SAFETY: `made` made the pointer with `Rc::into_raw`.
    unsafe { share(ep.cast::<C::Ep>()) }
}

fn timeout(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

fn address(address: &UctSocketAddress) -> Result<SocketAddr, Failure> {
    let unknown = || format!("an address of family {}, expected IPv4 or IPv6", address.family);
    address.get().ok_or_else(|| Failure::new(Error::INVALID_ADDR, unknown()))
}

/// # Safety
/// The data are the host's and valid for `'a` (`UctCmData`).
unsafe fn data<'a>(data: *const UctCmData) -> CmData<'a> {
    // SAFETY: the caller's promise.
    let data = unsafe { &*data };
    // SAFETY: null, or a token that is valid as long (`UctCmData`).
    let token = unsafe { data.token.as_ref() };
    CmData {
        // SAFETY: as above.
        private: unsafe { bytes(data.data, data.length) },
        token: token.map(|token| CmToken { qp_number: token.qp_number, has_srq: token.has_srq != 0 }),
    }
}

/// Hands a new object over, or the reason why there is none.
///
/// # Safety
/// `place` is the host's place for the answer.
unsafe fn made<T, H>(result: Result<Rc<T>, Failure>, place: *mut *mut H, reason: *mut UctText) -> UctStatus {
    let (raw, status) = match result {
        Ok(made) => (Rc::into_raw(made).cast_mut().cast(), UCT_OK),
        Err(failure) => (ptr::null_mut(), failure.write(reason)),
    };
    // SAFETY: the caller's promise.
    unsafe { place.write(raw) };
    status
}

unsafe extern "C" fn open<C: ConnectionManager>(
    params: *const UctCmParams,
    cm: *mut *mut UctCm,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("cm_open", reason, || {
        ucs::log::forward::refresh();
        // SAFETY: the parameters are the host's and valid for the call (`UctCmParams`).
        let params = unsafe { &*params };
        // SAFETY: the worker outlives the connection manager (`UctCmParams`).
        let Some(worker) = (unsafe { Worker::new(params.worker) }) else {
            return Failure::new(Error::INVALID_PARAM, "the host passed no worker").write(reason);
        };
        // SAFETY: the host's values are valid for the call (`UctConfig`).
        let settings = unsafe { Settings::new(params.config) };
        // SAFETY: handler and argument are valid until `close` (`UctCmParams`), and requests go to the slots of this table.
        let events = unsafe { CmEvents::new(params.handler, params.argument) };
        // SAFETY: `cm` is the host's place for the answer.
        unsafe { made(C::open(CmParams { worker, settings, events }), cm, reason) }
    })
}

unsafe extern "C" fn close<C: ConnectionManager>(cm: *mut UctCm) {
    guard::or("cm_close", (), || {
        // SAFETY: `open` made the pointer with `Rc::into_raw`, and the host closes once.
        let cm = unsafe { Rc::from_raw(cm.cast::<C>().cast_const()) };
        cm.close();
    });
}

unsafe extern "C" fn query<C: ConnectionManager>(cm: *mut UctCm, attr: *mut UctCmAttr) -> UctStatus {
    guard::status("cm_query", || {
        // SAFETY: the connection manager is open.
        let attributes = unsafe { opened::<C>(cm) }.attributes();
        // SAFETY: `attr` is the host's and contains its size (`UctCmAttr`).
        let room = unsafe { (*attr).size }.min(size_of::<UctCmAttr>());
        // SAFETY: both tables hold `room` bytes.
        unsafe { attr.cast::<u8>().copy_from_nonoverlapping((&raw const attributes).cast(), room) };
        // SAFETY: as above; the size is how much was filled.
        unsafe { (*attr).size = room };
        UCT_OK
    })
}

unsafe extern "C" fn event_fd<C: ConnectionManager>(cm: *mut UctCm, fd: *mut i32) -> UctStatus {
    guard::status("cm_event_fd", || {
        // SAFETY: the connection manager is open.
        let result = unsafe { opened::<C>(cm) }.event_fd();
        Status::from(result.map(|descriptor| {
            // SAFETY: `fd` is the host's place for the answer.
            unsafe { fd.write(descriptor) };
        }))
        .raw()
    })
}

unsafe extern "C" fn progress<C: ConnectionManager>(cm: *mut UctCm) -> u32 {
    // SAFETY: the connection manager is open.
    guard::or("cm_progress", 0, || unsafe { opened::<C>(cm) }.progress())
}

unsafe extern "C" fn listen<C: ConnectionManager>(
    cm: *mut UctCm,
    params: *const UctCmListenParams,
    listener: *mut *mut UctCmListener,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("cm_listen", reason, || {
        // SAFETY: the parameters are the host's and valid for the call (`UctCmListenParams`).
        let params = unsafe { &*params };
        // SAFETY: the connection manager is open.
        let cm = unsafe { opened::<C>(cm) };
        let backlog = (params.backlog > 0).then_some(params.backlog);
        let result =
            address(&params.address).and_then(|place| cm.listen(CmUser::new(params.user), place, backlog));
        // SAFETY: `listener` is the host's place for the answer.
        unsafe { made(result, listener, reason) }
    })
}

unsafe extern "C" fn listener_address<C: ConnectionManager>(
    listener: *mut UctCmListener,
    address: *mut UctSocketAddress,
) -> UctStatus {
    guard::status("cm_listener_address", || {
        // SAFETY: `listen` made the pointer with `Rc::into_raw`, and the listener is not destroyed.
        let listener = unsafe { share(listener.cast::<C::Listener>()) };
        Status::from(C::listener_address(&listener).map(|own| {
            // SAFETY: `address` is the host's place for the answer.
            unsafe { address.write(own.into()) };
        }))
        .raw()
    })
}

unsafe extern "C" fn listener_destroy<C: ConnectionManager>(listener: *mut UctCmListener) {
    guard::or("cm_listener_destroy", (), || {
        // SAFETY: `listen` made the pointer with `Rc::into_raw`, and the host destroys once.
        let listener = unsafe { Rc::from_raw(listener.cast::<C::Listener>().cast_const()) };
        C::listener_destroy(listener);
    });
}

unsafe extern "C" fn connect<C: ConnectionManager>(
    cm: *mut UctCm,
    params: *const UctCmConnectParams,
    ep: *mut *mut UctCmEp,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("cm_connect", reason, || {
        // SAFETY: the parameters are the host's and valid for the call (`UctCmConnectParams`).
        let params = unsafe { &*params };
        // SAFETY: the connection manager is open.
        let cm = unsafe { opened::<C>(cm) };
        let result = address(&params.address).and_then(|place| {
            cm.connect(CmConnect {
                user: CmUser::new(params.user),
                address: place,
                source: params.source.get(),
                timeout: timeout(params.timeout),
            })
        });
        // SAFETY: `ep` is the host's place for the answer.
        unsafe { made(result, ep, reason) }
    })
}

unsafe extern "C" fn send<C: ConnectionManager>(ep: *mut UctCmEp, given: *const UctCmData) -> UctStatus {
    guard::status("cm_send", || {
        // SAFETY: the data are the host's and valid for the call.
        let data = unsafe { data(given) };
        // SAFETY: the endpoint is alive.
        Status::from(C::send(&unsafe { alive::<C>(ep) }, data)).raw()
    })
}

unsafe extern "C" fn accept<C: ConnectionManager>(
    cm: *mut UctCm,
    request: *mut UctCmRequest,
    user: *mut std::ffi::c_void,
    given: *const UctCmData,
    limit: u64,
    ep: *mut *mut UctCmEp,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("cm_accept", reason, || {
        // SAFETY: `CmEvents::report` made the pointer with `Box::into_raw`, and the host consumes it once.
        let request = *unsafe { Box::from_raw(request.cast::<C::Request>()) };
        // SAFETY: the connection manager is open.
        let cm = unsafe { opened::<C>(cm) };
        // SAFETY: the data are the host's and valid for the call.
        let result = cm.accept(request, CmUser::new(user), unsafe { data(given) }, timeout(limit));
        // SAFETY: `ep` is the host's place for the answer.
        unsafe { made(result, ep, reason) }
    })
}

unsafe extern "C" fn reject<C: ConnectionManager>(
    request: *mut UctCmRequest,
    data: *const u8,
    length: usize,
) -> UctStatus {
    guard::status("cm_reject", || {
        // SAFETY: `CmEvents::report` made the pointer with `Box::into_raw`, and the host consumes it once.
        let request = *unsafe { Box::from_raw(request.cast::<C::Request>()) };
        // SAFETY: the host's bytes are valid for the call.
        Status::from(C::reject(request, unsafe { bytes(data, length) })).raw()
    })
}

unsafe extern "C" fn notify<C: ConnectionManager>(ep: *mut UctCmEp) -> UctStatus {
    // SAFETY: the endpoint is alive.
    guard::status("cm_notify", || Status::from(C::notify(&unsafe { alive::<C>(ep) })).raw())
}

unsafe extern "C" fn disconnect<C: ConnectionManager>(
    ep: *mut UctCmEp,
    data: *const u8,
    length: usize,
) -> UctStatus {
    guard::status("cm_disconnect", || {
        // SAFETY: the host's bytes are valid for the call.
        let why = unsafe { bytes(data, length) };
        // SAFETY: the endpoint is alive.
        outcome(C::disconnect(&unsafe { alive::<C>(ep) }, why))
    })
}

unsafe extern "C" fn ep_addresses<C: ConnectionManager>(
    ep: *mut UctCmEp,
    local: *mut UctSocketAddress,
    peer: *mut UctSocketAddress,
) -> UctStatus {
    guard::status("cm_ep_addresses", || {
        // SAFETY: the endpoint is alive.
        let addresses = C::addresses(&unsafe { alive::<C>(ep) });
        Status::from(addresses.map(|(own, other)| {
            // SAFETY: both are the host's places for the answer.
            unsafe { local.write(own.into()) };
            // SAFETY: as above.
            unsafe { peer.write(other.into()) };
        }))
        .raw()
    })
}

unsafe extern "C" fn ep_destroy<C: ConnectionManager>(ep: *mut UctCmEp) {
    guard::or("cm_ep_destroy", (), || {
        // SAFETY: `connect` or `accept` made the pointer with `Rc::into_raw`, and the host destroys once.
        C::destroy(unsafe { Rc::from_raw(ep.cast::<C::Ep>().cast_const()) });
    });
}

unsafe extern "C" fn diagnose<C: ConnectionManager>(
    place: *const UctSocketAddress,
    emit: UctEmitFinding,
    context: *mut std::ffi::c_void,
) -> UctStatus {
    guard::status("cm_diagnose", || {
        // SAFETY: the address is the host's and valid for the call.
        let place = unsafe { &*place };
        let Ok(place) = address(place) else { return Error::INVALID_ADDR.status().raw() };
        let findings = C::diagnose(place).map(|findings| {
            for finding in findings {
                let status = finding.obstacle.map_or(Status::OK, Error::status).raw();
                let text = UctStr { data: finding.words.as_ptr(), length: finding.words.len() };
                // SAFETY: `emit` goes with its context and copies the text (`UctEmitFinding`).
                unsafe { emit(context, status, text) };
            }
        });
        Status::from(findings).raw()
    })
}
