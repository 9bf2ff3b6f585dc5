//! Completion queues and shared receive queues.

use std::ffi::{c_int, c_void};

use uct_ib_abi::*;

use super::convert;
use super::limits::{MAX_COMPLETIONS, MAX_PIECES, MAX_REQUESTS};
use super::objects::{Channel, Cq, Pd, Srq, admit, borrow, context, give, refused, take_back, zeroed};
use crate::driver::{CqTarget, EventTarget};
use crate::engine::Verb;

/// See `ibv_create_cq(3)`.
///
/// # Safety
/// The context is open; the channel lives, or is null.
pub unsafe extern "C" fn ibv_create_cq(
    pointer: *mut ibv_context,
    capacity: c_int,
    cookie: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's promise.
    let context = unsafe { context(pointer) };
    if !(1..=MAX_COMPLETIONS).contains(&capacity) || vector != 0 {
        return refused(libc::EINVAL);
    }
    if let Err(number) = admit(&context.driver, Verb::CreateCq) {
        return refused(number);
    }
    // SAFETY: the caller's promise.
    let notices = (!channel.is_null()).then(|| unsafe { borrow::<Channel>(channel) }.notices.clone());
    let mut public: ibv_cq = zeroed();
    let mut port = context.driver.lock();
    let id = port.device.create_cq(capacity as usize);
    (public.context, public.channel, public.cq_context) = (pointer, channel, cookie);
    (public.handle, public.cqe) = (id.0 as u32, capacity);
    let queue = give(Cq {
        public,
        driver: context.driver.clone(),
        id,
        channel: notices.clone(),
        events: context.events.clone(),
        completions: Default::default(),
        asynchronous: Default::default(),
    });
    let events = EventTarget { queue: context.events.clone(), object: queue.expose_provenance() };
    port.targets.cqs.insert(id, CqTarget { channel: notices, events });
    queue
}

/// See `ibv_destroy_cq(3)`: waits until every event that was taken is acknowledged.
///
/// # Safety
/// The queue is one of [`ibv_create_cq`], and nobody uses it later if this succeeds.
pub unsafe extern "C" fn ibv_destroy_cq(pointer: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise.
    let cq = unsafe { borrow::<Cq>(pointer) };
    let mut port = cq.driver.lock();
    if let Err(refusal) = port.device.destroy_cq(cq.id) {
        return convert::errno(refusal);
    }
    port.targets.cqs.remove(&cq.id);
    drop(port);
    let address = pointer.addr();
    if let Some(channel) = &cq.channel {
        channel.withdraw(|object| *object == address);
    }
    cq.events.withdraw(|(_, object)| *object == address);
    cq.completions.wait();
    cq.asynchronous.wait();
    // SAFETY: as above; it was in no list any more when the last was acknowledged.
    drop(unsafe { take_back::<Cq>(pointer) });
    0
}

/// See `ibv_poll_cq(3)`.
///
/// # Safety
/// The queue lives, and there is room for so many completions.
pub unsafe extern "C" fn poll_cq(pointer: *mut ibv_cq, room: c_int, places: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    let cq = unsafe { borrow::<Cq>(pointer) };
    let mut port = cq.driver.lock();
    if let Err(refusal) = port.device.check_plan(Verb::PollCq) {
        return -convert::errno(refusal);
    }
    let mut found = 0;
    let mut has_driven = false;
    while found < room {
        match port.device.poll_cq(cq.id) {
            Some(completion) => {
                let mut wc: ibv_wc = zeroed();
                convert::completion(&mut wc, &completion);
                // SAFETY: fewer were found than there is room for.
                let place = unsafe { places.add(found as usize) };
                // SAFETY: as above.
                unsafe { place.write(wc) };
                found += 1;
            }
            None if found == 0 && !std::mem::replace(&mut has_driven, true) => cq.driver.drive(&mut port),
            None => break,
        }
    }
    found
}

/// See `ibv_req_notify_cq(3)`.
///
/// # Safety
/// The queue lives.
pub unsafe extern "C" fn req_notify_cq(pointer: *mut ibv_cq, only_solicited: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let cq = unsafe { borrow::<Cq>(pointer) };
    let mut port = cq.driver.lock();
    port.device.arm_cq(cq.id, only_solicited != 0);
    // The application is about to sleep: the thread takes over.
    cq.driver.hand_over();
    0
}

/// See `ibv_create_srq(3)`.
///
/// # Safety
/// The domain lives, and `init` is valid.
pub unsafe extern "C" fn ibv_create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's promise.
    let pd = unsafe { borrow::<Pd>(domain) };
    // SAFETY: the caller's promise.
    let init = unsafe { &mut *init };
    if init.attr.max_wr == 0 || init.attr.max_wr > MAX_REQUESTS || init.attr.max_sge > MAX_PIECES {
        return refused(libc::EINVAL);
    }
    if let Err(number) = admit(&pd.driver, Verb::CreateSrq) {
        return refused(number);
    }
    // SAFETY: a domain's context is open as long as the domain lives.
    let context = unsafe { context(pd.public.context) };
    let mut port = pd.driver.lock();
    let id = match port.device.create_srq(pd.id, init.attr.max_wr as usize) {
        Ok(id) => id,
        Err(refusal) => return refused(convert::errno(refusal)),
    };
    let mut public: ibv_srq = zeroed();
    (public.context, public.srq_context, public.pd) = (pd.public.context, init.srq_context, domain);
    public.handle = id.0 as u32;
    let queue = give(Srq {
        public,
        driver: pd.driver.clone(),
        id,
        pieces: init.attr.max_sge.max(1) as usize,
        events: context.events.clone(),
        asynchronous: Default::default(),
    });
    let target = EventTarget { queue: context.events.clone(), object: queue.expose_provenance() };
    port.targets.srqs.insert(id, target);
    queue
}

/// See `ibv_modify_srq(3)`: arms the limit; a queue is not resized.
///
/// # Safety
/// The queue lives, and `attr` is valid.
pub unsafe extern "C" fn ibv_modify_srq(
    pointer: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let srq = unsafe { borrow::<Srq>(pointer) };
    if mask & IBV_SRQ_MAX_WR != 0 {
        return libc::EOPNOTSUPP;
    }
    if mask & IBV_SRQ_LIMIT == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let limit = unsafe { (*attr).srq_limit };
    convert::outcome(srq.driver.lock().device.set_srq_limit(srq.id, limit as usize))
}

/// See `ibv_query_srq(3)`.
///
/// # Safety
/// The queue lives, and `attr` is a place for the attributes.
pub unsafe extern "C" fn ibv_query_srq(pointer: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller's promise.
    let srq = unsafe { borrow::<Srq>(pointer) };
    let Some((capacity, limit)) = srq.driver.lock().device.query_srq(srq.id) else { return libc::EINVAL };
    let found = ibv_srq_attr { max_wr: capacity as u32, max_sge: srq.pieces as u32, srq_limit: limit as u32 };
    // SAFETY: the caller's promise.
    unsafe { attr.write(found) };
    0
}

/// See `ibv_destroy_srq(3)`.
///
/// # Safety
/// The queue is one of [`ibv_create_srq`], and nobody uses it later if this succeeds.
pub unsafe extern "C" fn ibv_destroy_srq(pointer: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's promise.
    let srq = unsafe { borrow::<Srq>(pointer) };
    let mut port = srq.driver.lock();
    if let Err(refusal) = port.device.destroy_srq(srq.id) {
        return convert::errno(refusal);
    }
    port.targets.srqs.remove(&srq.id);
    drop(port);
    let address = pointer.addr();
    srq.events.withdraw(|(_, object)| *object == address);
    srq.asynchronous.wait();
    // SAFETY: as above.
    drop(unsafe { take_back::<Srq>(pointer) });
    0
}
