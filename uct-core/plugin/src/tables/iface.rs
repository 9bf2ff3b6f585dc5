//! The slots of an interface.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::rc::Rc;

use ucs::{Error, Status};
use uct_abi::{
    UCT_INPROGRESS, UCT_OK, UCT_SCOPE_DEVICE, UCT_SIDE_CALLED, UctCompletion, UctEmitCounter, UctEp,
    UctEpParams, UctIface, UctIfaceAttr, UctIfaceOps, UctStatus, UctText,
};

use super::{bytes, text};
use crate::attr::{Flush, Scope};
use crate::completion::{Completion, Outcome};
use crate::failure::{Failure, write_text};
use crate::guard;
use crate::memory::Host;
use crate::traits::{Endpoint, EpParams, EpUser, Iface, PeerAddress, SocketSide};

/// The table of an interface.
pub(crate) struct IfaceTables<I>(PhantomData<I>);

impl<I: Iface> IfaceTables<I> {
    /// The table.
    pub(crate) const OPS: UctIfaceOps = UctIfaceOps {
        size: size_of::<UctIfaceOps>(),
        close: Some(close::<I>),
        query: Some(query::<I>),
        get_device_address: Some(get_device_address::<I>),
        get_address: Some(get_address::<I>),
        is_reachable: Some(is_reachable::<I>),
        progress: Some(progress::<I>),
        ep_create: Some(ep_create::<I>),
        release: Some(release::<I>),
        event_fd: Some(event_fd::<I>),
        event_arm: Some(event_arm::<I>),
        flush: Some(flush::<I>),
        fence: Some(fence::<I>),
        counters: Some(counters::<I>),
        ep_adopt: Some(ep_adopt::<I>),
    };
}

/// # Safety
/// `iface` came from `iface_open` of the transport whose interfaces are `I`, and is open for `'a`.
#[inline(always)]
unsafe fn open<'a, I>(iface: *mut UctIface) -> &'a I {
    // SAFETY: `iface_open` made the pointer with `Rc::into_raw`.
    unsafe { &*iface.cast::<I>() }
}

const _: () =
    assert!(Outcome::Done as UctStatus == UCT_OK && Outcome::InProgress as UctStatus == UCT_INPROGRESS);

/// The status of an outcome: the number that it is, whichever it is.
#[inline(always)]
pub(super) fn outcome(result: ucs::Result<Outcome>) -> UctStatus {
    match result {
        Ok(outcome) => outcome as UctStatus,
        Err(error) => error.status().raw(),
    }
}

unsafe extern "C" fn close<I: Iface>(iface: *mut UctIface) {
    guard::or("close", (), || {
        // SAFETY: `iface_open` made the pointer with `Rc::into_raw`, and the host closes once.
        let iface = unsafe { Rc::from_raw(iface.cast::<I>().cast_const()) };
        iface.close();
    });
}

unsafe extern "C" fn query<I: Iface>(iface: *mut UctIface, attr: *mut UctIfaceAttr) -> UctStatus {
    guard::status("query", || {
        // SAFETY: the interface is open.
        let attributes = unsafe { open::<I>(iface) }.attributes();
        // SAFETY: `attr` is the host's and contains its size (`UctIfaceAttr`).
        let room = unsafe { (*attr).size }.min(size_of::<UctIfaceAttr>());
        // SAFETY: both tables hold `room` bytes.
        unsafe { attr.cast::<u8>().copy_from_nonoverlapping((&raw const attributes).cast(), room) };
        // SAFETY: as above; the size is how much was filled.
        unsafe { (*attr).size = room };
        UCT_OK
    })
}

unsafe extern "C" fn get_device_address<I: Iface>(iface: *mut UctIface, address: *mut u8) -> UctStatus {
    guard::status("get_device_address", || {
        // SAFETY: the interface is open.
        let iface = unsafe { open::<I>(iface) };
        let length = iface.attributes().device_addr_len;
        // SAFETY: the host offers as many bytes as the attributes name, initialised.
        let buffer = unsafe { std::slice::from_raw_parts_mut(address, length) };
        Status::from(iface.device_address(buffer)).raw()
    })
}

unsafe extern "C" fn get_address<I: Iface>(iface: *mut UctIface, address: *mut u8) -> UctStatus {
    guard::status("get_address", || {
        // SAFETY: the interface is open.
        let iface = unsafe { open::<I>(iface) };
        let length = iface.attributes().iface_addr_len;
        // SAFETY: the host offers as many bytes as the attributes name, initialised.
        let buffer = unsafe { std::slice::from_raw_parts_mut(address, length) };
        Status::from(iface.address(buffer)).raw()
    })
}

unsafe extern "C" fn is_reachable<I: Iface>(
    iface: *mut UctIface,
    device_address: *const u8,
    device_address_length: usize,
    iface_address: *const u8,
    iface_address_length: usize,
    scope: u32,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("is_reachable", reason, || {
        // SAFETY: the host's bytes are valid for the call.
        let device = unsafe { bytes(device_address, device_address_length) };
        // SAFETY: as above.
        let address = unsafe { bytes(iface_address, iface_address_length) };
        let scope = if scope == UCT_SCOPE_DEVICE { Scope::Device } else { Scope::Network };
        let peer = PeerAddress { device, iface: address };
        // SAFETY: the interface is open.
        let iface = unsafe { open::<I>(iface) };
        match iface.is_reachable(peer, scope) {
            Ok(()) => UCT_OK,
            Err(words) => {
                write_text(reason, &words);
                let status = if iface.is_impeded(peer) { Error::REJECTED } else { Error::UNREACHABLE };
                status.status().raw()
            }
        }
    })
}

unsafe extern "C" fn progress<I: Iface>(iface: *mut UctIface) -> u32 {
    // SAFETY: the interface is open.
    guard::or("progress", 0, || unsafe { open::<I>(iface) }.progress())
}

/// The parameters of an endpoint. Those that a host of an older minor version does not have are null.
///
/// # Safety
/// They are readable for as many bytes as they say.
unsafe fn parameters(given: *const UctEpParams) -> UctEpParams {
    let mut params = UctEpParams {
        size: 0,
        user: ptr::null_mut(),
        device_address: ptr::null(),
        device_address_length: 0,
        iface_address: ptr::null(),
        iface_address_length: 0,
        gate: ptr::null_mut(),
        accesses: ptr::null_mut(),
    };
    // SAFETY: the size is the first field, which is always there.
    let size = unsafe { (*given).size }.min(size_of::<UctEpParams>());
    // SAFETY: both tables hold `size` bytes.
    unsafe { (&raw mut params).cast::<u8>().copy_from_nonoverlapping(given.cast(), size) };
    params
}

unsafe extern "C" fn ep_create<I: Iface>(
    iface: *mut UctIface,
    params: *const UctEpParams,
    ep: *mut *mut UctEp,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("ep_create", reason, || {
        // SAFETY: the parameters are the host's and valid for the call (`UctEpParams`).
        let params = unsafe { parameters(params) };
        let pointer = iface.cast::<I>().cast_const();
        // SAFETY: `iface_open` made the pointer with `Rc::into_raw`, and the interface is open.
        unsafe { Rc::increment_strong_count(pointer) };
        // SAFETY: as above; this takes the count just added.
        let iface = unsafe { Rc::from_raw(pointer) };
        // SAFETY: the host's bytes are valid for the call (`UctEpParams`).
        let peer = unsafe { peer(&params) };
        let made = iface.create_ep(EpParams { peer, user: EpUser(params.user) });
        // SAFETY: the parameters are the host's, and `ep` its place for the answer.
        unsafe { hand_over::<I>(made, &params, ep, reason) }
    })
}

/// The peer's address, if there is one.
///
/// # Safety
/// The parameters are the host's, and their bytes valid for `'a`.
unsafe fn peer<'a>(params: &UctEpParams) -> Option<PeerAddress<'a>> {
    if params.device_address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let device = unsafe { bytes(params.device_address, params.device_address_length) };
    // SAFETY: as above.
    let iface = unsafe { bytes(params.iface_address, params.iface_address_length) };
    Some(PeerAddress { device, iface })
}

/// Hands a new endpoint over, or the reason why there is none.
///
/// # Safety
/// The parameters are the host's, and `ep` its place for the answer.
unsafe fn hand_over<I: Iface>(
    made: Result<Rc<I::Ep>, Failure>,
    params: &UctEpParams,
    ep: *mut *mut UctEp,
    reason: *mut UctText,
) -> UctStatus {
    match made {
        Ok(made) => {
            let host = Host { gate: params.gate, accesses: params.accesses };
            if I::Ep::AT_ONCE {
                // SAFETY: they are valid until the endpoint is destroyed (`UctEpParams`), and `destroy` removes the counter.
                unsafe { host.open(Rc::as_ptr(&made).addr()) };
            } else if let Some(gate) = made.gate() {
                // SAFETY: as above, and `destroy` detaches.
                unsafe { gate.attach(host) };
            }
            let raw = Rc::into_raw(made).cast_mut().cast();
            // SAFETY: the caller's promise.
            unsafe { ep.write(raw) };
            UCT_OK
        }
        Err(failure) => {
            // SAFETY: as above.
            unsafe { ep.write(ptr::null_mut()) };
            failure.write(reason)
        }
    }
}

unsafe extern "C" fn ep_adopt<I: Iface>(
    iface: *mut UctIface,
    params: *const UctEpParams,
    fd: i32,
    side: u32,
    first: *const u8,
    length: usize,
    ep: *mut *mut UctEp,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("ep_adopt", reason, || {
        let pointer = iface.cast::<I>().cast_const();
        // SAFETY: `iface_open` made the pointer with `Rc::into_raw`, and the interface is open.
        unsafe { Rc::increment_strong_count(pointer) };
        // SAFETY: as above; this takes the count just added.
        let iface = unsafe { Rc::from_raw(pointer) };
        // SAFETY: the host's descriptor is open for the call.
        let given = unsafe { BorrowedFd::borrow_raw(fd) };
        // The interface gets a descriptor of its own: the host's stays open if it refuses, however that comes about.
        let socket = match given.try_clone_to_owned() {
            Ok(socket) => socket,
            Err(error) => return Failure::system("duplicate the socket's descriptor", &error).write(reason),
        };
        let status = if params.is_null() {
            // SAFETY: the host's bytes are valid for the call.
            let first = unsafe { bytes(first, length) };
            iface.adopt(socket, first).map_or_else(|failure| failure.write(reason), |()| UCT_OK)
        } else {
            // SAFETY: the parameters are the host's and valid for the call (`UctEpParams`).
            let params = unsafe { parameters(params) };
            // SAFETY: so are their bytes.
            let peer = unsafe { peer(&params) };
            let side = if side == UCT_SIDE_CALLED { SocketSide::Called } else { SocketSide::Accepted };
            let made = iface.create_ep_over(EpParams { peer, user: EpUser(params.user) }, socket, side);
            // SAFETY: as above, and `ep` is the host's place for the answer.
            unsafe { hand_over::<I>(made, &params, ep, reason) }
        };
        if status == UCT_OK {
            // SAFETY: with success the descriptor is this side's to close.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        status
    })
}

unsafe extern "C" fn release<I: Iface>(iface: *mut UctIface, data: *mut c_void) {
    guard::or("release", (), || {
        // SAFETY: the interface is open.
        let iface = unsafe { open::<I>(iface) };
        // SAFETY: the host releases what a handler kept, once (`UctIfaceOps::release`).
        unsafe { iface.release(data.cast()) };
    });
}

unsafe extern "C" fn event_fd<I: Iface>(iface: *mut UctIface, fd: *mut i32) -> UctStatus {
    guard::status("event_fd", || {
        // SAFETY: the interface is open.
        let result = unsafe { open::<I>(iface) }.event_fd();
        Status::from(result.map(|descriptor| {
            // SAFETY: `fd` is the host's place for the answer.
            unsafe { fd.write(descriptor) };
        }))
        .raw()
    })
}

unsafe extern "C" fn event_arm<I: Iface>(iface: *mut UctIface, events: u32) -> UctStatus {
    // SAFETY: the interface is open.
    guard::status("event_arm", || Status::from(unsafe { open::<I>(iface) }.arm(events)).raw())
}

unsafe extern "C" fn flush<I: Iface>(
    iface: *mut UctIface,
    flags: u32,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("flush", || {
        // SAFETY: the completion is null or counts this operation (`UctCompletion`).
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the interface is open.
        outcome(unsafe { open::<I>(iface) }.flush(Flush::from_abi(flags), completion))
    })
}

unsafe extern "C" fn fence<I: Iface>(iface: *mut UctIface, _flags: u32) -> UctStatus {
    // SAFETY: the interface is open.
    guard::status("fence", || Status::from(unsafe { open::<I>(iface) }.fence()).raw())
}

unsafe extern "C" fn counters<I: Iface>(
    iface: *mut UctIface,
    emit: UctEmitCounter,
    context: *mut c_void,
) -> UctStatus {
    guard::status("counters", || {
        // SAFETY: the interface is open.
        for (name, value) in unsafe { open::<I>(iface) }.counters() {
            // SAFETY: `emit` goes with its context and copies the name.
            unsafe { emit(context, text(name), value) };
        }
        UCT_OK
    })
}
