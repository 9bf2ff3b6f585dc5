//! The slots of an endpoint.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use ucs::{Error, Status};
use uct_abi::{
    UCT_ERR_IO_ERROR, UCT_SEND_SIGNALED, UctCmToken, UctCompletion, UctEp, UctEpOps, UctIov, UctPack,
    UctPendingReq, UctPurge, UctRkey, UctStatus, UctText, UctUnpack,
};

use super::bytes;
use super::iface::outcome;
use crate::atomic::{Atomic, Change, OldValue, Width};
use crate::attr::{AtomicOp, Flush};
use crate::cm::CmToken;
use crate::completion::Completion;
use crate::guard::{self, Answer};
use crate::iov::Iov;
use crate::memory::access::remove_host;
use crate::pack::{Pack, Unpack};
use crate::traits::{Endpoint, RkeyOf};

/// The table of an endpoint.
pub(crate) struct EpTables<E>(PhantomData<E>);

impl<E: Endpoint> EpTables<E> {
    /// The table.
    pub(crate) const OPS: UctEpOps = UctEpOps {
        size: size_of::<UctEpOps>(),
        destroy: Some(destroy::<E>),
        am_short: Some(am_short::<E>),
        am_short_iov: Some(am_short_iov::<E>),
        am_bcopy: Some(am_bcopy::<E>),
        am_zcopy: Some(am_zcopy::<E>),
        put_short: Some(put_short::<E>),
        put_bcopy: Some(put_bcopy::<E>),
        put_zcopy: Some(put_zcopy::<E>),
        get_short: Some(get_short::<E>),
        get_bcopy: Some(get_bcopy::<E>),
        get_zcopy: Some(get_zcopy::<E>),
        atomic32_post: Some(atomic32_post::<E>),
        atomic64_post: Some(atomic64_post::<E>),
        atomic32_fetch: Some(atomic32_fetch::<E>),
        atomic64_fetch: Some(atomic64_fetch::<E>),
        atomic32_cswap: Some(atomic32_cswap::<E>),
        atomic64_cswap: Some(atomic64_cswap::<E>),
        pending_add: Some(pending_add::<E>),
        pending_purge: Some(pending_purge::<E>),
        flush: Some(flush::<E>),
        fence: Some(fence::<E>),
        check: Some(check::<E>),
        get_address: Some(get_address::<E>),
        connect_to_ep: Some(connect_to_ep::<E>),
        cm_token: Some(cm_token::<E>),
    };
}

/// # Safety
/// `ep` came from `ep_create` of the interface whose endpoints are `E`, and is alive for `'a`.
#[inline(always)]
unsafe fn alive<'a, E>(ep: *mut UctEp) -> &'a E {
    // SAFETY: `ep_create` made the pointer with `Rc::into_raw`.
    unsafe { &*ep.cast::<E>() }
}

/// # Safety
/// `rkey` came from the memory domain of the endpoint's interface, and is live for `'a`.
#[inline(always)]
unsafe fn key<'a, E: Endpoint>(rkey: *mut UctRkey) -> &'a RkeyOf<E> {
    // SAFETY: keys are boxes of this type (`rkey_unpack`).
    unsafe { &*rkey.cast::<RkeyOf<E>>() }
}

/// The answer to a vector of more entries than the transport takes.
const TOO_MANY: UctStatus = Error::INVALID_PARAM.status().raw();

/// A vector, if it has no more entries than the transport takes.
///
/// # Safety
/// As [`Iov::new`].
#[inline(always)]
unsafe fn vector<'a, E: Endpoint>(iov: *const UctIov, count: usize) -> Option<Iov<'a>> {
    // SAFETY: the caller's promise.
    (count <= E::MAX_IOV).then(|| unsafe { Iov::new(iov, count) })
}

unsafe extern "C" fn destroy<E: Endpoint>(ep: *mut UctEp) {
    guard::or("destroy", (), || {
        // SAFETY: `ep_create` made the pointer with `Rc::into_raw`, and the host destroys once.
        let ep = unsafe { Rc::from_raw(ep.cast::<E>().cast_const()) };
        if E::AT_ONCE {
            remove_host(Rc::as_ptr(&ep).addr());
        } else if let Some(gate) = ep.gate() {
            gate.detach();
        }
        ep.destroy();
    });
}

unsafe extern "C" fn am_short<E: Endpoint>(
    ep: *mut UctEp,
    id: u8,
    header: u64,
    payload: *const c_void,
    length: usize,
) -> UctStatus {
    guard::status("am_short", || {
        // SAFETY: the host's payload is readable for the call, and never null.
        let payload = unsafe { slice::from_raw_parts(payload.cast::<u8>(), length) };
        // SAFETY: the endpoint is alive.
        Status::from(unsafe { alive::<E>(ep) }.am_short(id, header, payload)).raw()
    })
}

unsafe extern "C" fn am_short_iov<E: Endpoint>(
    ep: *mut UctEp,
    id: u8,
    iov: *const UctIov,
    count: usize,
) -> UctStatus {
    guard::status("am_short_iov", || {
        // SAFETY: the host's vector is valid for the call.
        let Some(iov) = (unsafe { vector::<E>(iov, count) }) else { return TOO_MANY };
        // SAFETY: the endpoint is alive.
        Status::from(unsafe { alive::<E>(ep) }.am_short_iov(id, iov)).raw()
    })
}

unsafe extern "C" fn am_bcopy<E: Endpoint>(
    ep: *mut UctEp,
    id: u8,
    pack: UctPack,
    argument: *mut c_void,
    flags: u32,
) -> isize {
    guard::or("am_bcopy", UCT_ERR_IO_ERROR as isize, || {
        let signaled = flags & UCT_SEND_SIGNALED != 0;
        // SAFETY: the endpoint is alive.
        unsafe { alive::<E>(ep) }.am_bcopy(id, Pack::new(pack, argument), signaled).into_raw()
    })
}

unsafe extern "C" fn am_zcopy<E: Endpoint>(
    ep: *mut UctEp,
    id: u8,
    header: *const c_void,
    header_length: usize,
    iov: *const UctIov,
    count: usize,
    flags: u32,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("am_zcopy", || {
        // SAFETY: the host's header is readable for the call, and never null.
        let header = unsafe { slice::from_raw_parts(header.cast::<u8>(), header_length) };
        // SAFETY: the host keeps the vector's memory valid until the completion.
        let Some(iov) = (unsafe { vector::<E>(iov, count) }) else { return TOO_MANY };
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the endpoint is alive.
        let ep = unsafe { alive::<E>(ep) };
        outcome(ep.am_zcopy(id, header, iov, flags & UCT_SEND_SIGNALED != 0, completion))
    })
}

unsafe extern "C" fn put_short<E: Endpoint>(
    ep: *mut UctEp,
    buffer: *const c_void,
    length: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
) -> UctStatus {
    guard::status("put_short", || {
        // SAFETY: the host's data are readable for the call, and never null.
        let data = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), length) };
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the endpoint is alive.
        Status::from(unsafe { alive::<E>(ep) }.put_short(data, remote_address, rkey)).raw()
    })
}

unsafe extern "C" fn put_bcopy<E: Endpoint>(
    ep: *mut UctEp,
    pack: UctPack,
    argument: *mut c_void,
    remote_address: u64,
    rkey: *mut UctRkey,
) -> isize {
    guard::or("put_bcopy", UCT_ERR_IO_ERROR as isize, || {
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the endpoint is alive.
        unsafe { alive::<E>(ep) }.put_bcopy(Pack::new(pack, argument), remote_address, rkey).into_raw()
    })
}

unsafe extern "C" fn put_zcopy<E: Endpoint>(
    ep: *mut UctEp,
    iov: *const UctIov,
    count: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("put_zcopy", || {
        // SAFETY: the host keeps the vector's memory valid until the completion.
        let Some(iov) = (unsafe { vector::<E>(iov, count) }) else { return TOO_MANY };
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the endpoint is alive.
        outcome(unsafe { alive::<E>(ep) }.put_zcopy(iov, remote_address, rkey, completion))
    })
}

unsafe extern "C" fn get_short<E: Endpoint>(
    ep: *mut UctEp,
    buffer: *mut c_void,
    length: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
) -> UctStatus {
    guard::status("get_short", || {
        // SAFETY: the host's buffer is initialised and writable for the call, and never null.
        let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the endpoint is alive.
        Status::from(unsafe { alive::<E>(ep) }.get_short(buffer, remote_address, rkey)).raw()
    })
}

unsafe extern "C" fn get_bcopy<E: Endpoint>(
    ep: *mut UctEp,
    unpack: UctUnpack,
    argument: *mut c_void,
    length: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("get_bcopy", || {
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        let unpack = Unpack::new(unpack, argument);
        // SAFETY: the endpoint is alive.
        outcome(unsafe { alive::<E>(ep) }.get_bcopy(unpack, length, remote_address, rkey, completion))
    })
}

unsafe extern "C" fn get_zcopy<E: Endpoint>(
    ep: *mut UctEp,
    iov: *const UctIov,
    count: usize,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("get_zcopy", || {
        // SAFETY: the host keeps the vector's memory valid and writable until the completion.
        let Some(iov) = (unsafe { vector::<E>(iov, count) }) else { return TOO_MANY };
        // SAFETY: the key is live.
        let rkey = unsafe { key::<E>(rkey) };
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the endpoint is alive.
        outcome(unsafe { alive::<E>(ep) }.get_zcopy(iov, remote_address, rkey, completion))
    })
}

macro_rules! atomics {
    ($value:ty, $width:expr, $post:ident, $fetch:ident, $cswap:ident) => {
        unsafe extern "C" fn $post<E: Endpoint>(
            ep: *mut UctEp,
            op: u32,
            value: $value,
            remote_address: u64,
            rkey: *mut UctRkey,
        ) -> UctStatus {
            guard::status(stringify!($post), || {
                let op = AtomicOp::from_abi(op).filter(|op| *op != AtomicOp::Swap);
                let Some(op) = op else { return Error::UNSUPPORTED.status().raw() };
                let atomic = Atomic { width: $width, change: Change::Op(op, value.into()) };
                // SAFETY: the key is live.
                let rkey = unsafe { key::<E>(rkey) };
                // SAFETY: the endpoint is alive.
                Status::from(unsafe { alive::<E>(ep) }.atomic_post(atomic, remote_address, rkey)).raw()
            })
        }

        unsafe extern "C" fn $fetch<E: Endpoint>(
            ep: *mut UctEp,
            op: u32,
            value: $value,
            result: *mut $value,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus {
            guard::status(stringify!($fetch), || {
                let Some(op) = AtomicOp::from_abi(op) else { return Error::UNSUPPORTED.status().raw() };
                let atomic = Atomic { width: $width, change: Change::Op(op, value.into()) };
                // SAFETY: this function's own promises.
                unsafe { fetch::<E>(ep, atomic, result.cast(), remote_address, rkey, completion) }
            })
        }

        unsafe extern "C" fn $cswap<E: Endpoint>(
            ep: *mut UctEp,
            compare: $value,
            swap: $value,
            result: *mut $value,
            remote_address: u64,
            rkey: *mut UctRkey,
            completion: *mut UctCompletion,
        ) -> UctStatus {
            guard::status(stringify!($cswap), || {
                let change = Change::CompareSwap { compare: compare.into(), swap: swap.into() };
                let atomic = Atomic { width: $width, change };
                // SAFETY: this function's own promises.
                unsafe { fetch::<E>(ep, atomic, result.cast(), remote_address, rkey, completion) }
            })
        }
    };
}

atomics!(u32, Width::Bits32, atomic32_post, atomic32_fetch, atomic32_cswap);
atomics!(u64, Width::Bits64, atomic64_post, atomic64_fetch, atomic64_cswap);

/// # Safety
/// As a slot with these parameters.
#[inline(always)]
unsafe fn fetch<E: Endpoint>(
    ep: *mut UctEp,
    atomic: Atomic,
    result: *mut u8,
    remote_address: u64,
    rkey: *mut UctRkey,
    completion: *mut UctCompletion,
) -> UctStatus {
    // SAFETY: the host's place for the result is never null.
    let old = OldValue::new(atomic.width, unsafe { NonNull::new_unchecked(result) });
    // SAFETY: the key is live.
    let rkey = unsafe { key::<E>(rkey) };
    // SAFETY: the completion is null or counts this operation.
    let completion = unsafe { Completion::new(completion) };
    // SAFETY: the endpoint is alive.
    outcome(unsafe { alive::<E>(ep) }.atomic_fetch(atomic, old, remote_address, rkey, completion))
}

unsafe extern "C" fn pending_add<E: Endpoint>(ep: *mut UctEp, request: *mut UctPendingReq) -> UctStatus {
    guard::status("pending_add", || {
        let Some(request) = NonNull::new(request) else { return Error::INVALID_PARAM.status().raw() };
        // SAFETY: the endpoint is alive.
        let ep = unsafe { alive::<E>(ep) };
        // SAFETY: the request is the transport's until it was served or purged (`UctPendingReq`).
        Status::from(unsafe { ep.pending_add(request) }).raw()
    })
}

unsafe extern "C" fn pending_purge<E: Endpoint>(ep: *mut UctEp, purge: UctPurge, argument: *mut c_void) {
    guard::or("pending_purge", (), || {
        // SAFETY: the endpoint is alive.
        unsafe { alive::<E>(ep) }.pending_purge(&mut |request| {
            // SAFETY: the callback goes with its argument and takes a request that is no longer queued (`UctPurge`).
            unsafe { purge(request.as_ptr(), argument) }
        });
    });
}

unsafe extern "C" fn flush<E: Endpoint>(
    ep: *mut UctEp,
    flags: u32,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("flush", || {
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the endpoint is alive.
        outcome(unsafe { alive::<E>(ep) }.flush(Flush::from_abi(flags), completion))
    })
}

unsafe extern "C" fn fence<E: Endpoint>(ep: *mut UctEp, _flags: u32) -> UctStatus {
    // SAFETY: the endpoint is alive.
    guard::status("fence", || Status::from(unsafe { alive::<E>(ep) }.fence()).raw())
}

unsafe extern "C" fn check<E: Endpoint>(
    ep: *mut UctEp,
    _flags: u32,
    completion: *mut UctCompletion,
) -> UctStatus {
    guard::status("check", || {
        // SAFETY: the completion is null or counts this operation.
        let completion = unsafe { Completion::new(completion) };
        // SAFETY: the endpoint is alive.
        outcome(unsafe { alive::<E>(ep) }.check(completion))
    })
}

unsafe extern "C" fn get_address<E: Endpoint>(ep: *mut UctEp, address: *mut u8) -> UctStatus {
    guard::status("get_address", || {
        // SAFETY: the endpoint is alive.
        let ep = unsafe { alive::<E>(ep) };
        let length = ep.address_length();
        // SAFETY: the host offers as many bytes as the attributes name, initialised.
        let buffer = unsafe { slice::from_raw_parts_mut(address, length) };
        Status::from(ep.address(buffer)).raw()
    })
}

unsafe extern "C" fn connect_to_ep<E: Endpoint>(
    ep: *mut UctEp,
    device_address: *const u8,
    device_address_length: usize,
    ep_address: *const u8,
    ep_address_length: usize,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("connect_to_ep", reason, || {
        // SAFETY: the host's bytes are valid for the call.
        let device = unsafe { bytes(device_address, device_address_length) };
        // SAFETY: as above.
        let address = unsafe { bytes(ep_address, ep_address_length) };
        // SAFETY: the endpoint is alive.
        match unsafe { alive::<E>(ep) }.connect_to_ep(device, address) {
            Ok(()) => uct_abi::UCT_OK,
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn cm_token<E: Endpoint>(ep: *mut UctEp, token: *mut UctCmToken) -> UctStatus {
    guard::status("cm_token", || {
        // SAFETY: the endpoint is alive.
        Status::from(unsafe { alive::<E>(ep) }.cm_token().map(|own| {
            let CmToken { qp_number, has_srq } = own;
            let own = UctCmToken { size: size_of::<UctCmToken>(), qp_number, has_srq: has_srq.into() };
            // SAFETY: `token` is the host's place for the answer.
            unsafe { token.write(own) };
        }))
        .raw()
    })
}
