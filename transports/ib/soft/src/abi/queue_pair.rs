//! Queue pairs.

use std::ffi::c_int;

use uct_ib_abi::*;

use super::convert;
use super::limits::{MAX_INLINE, MAX_PIECES, MAX_REQUESTS};
use super::objects::{Cq, Pd, Qp, Srq, admit, borrow, context, give, refused, take_back, zeroed};
use crate::driver::EventTarget;
use crate::engine::{Capacity, Mask, QpConfig, QpKind, Verb};

/// See `ibv_create_qp(3)`.
///
/// # Safety
/// Domain and queues live, and `init` is valid.
pub unsafe extern "C" fn ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let pd = unsafe { borrow::<Pd>(domain) };
    // SAFETY: the caller's promise.
    let init = unsafe { &mut *init };
    let kind = match init.qp_type {
        IBV_QPT_RC => QpKind::Rc,
        IBV_QPT_UD => QpKind::Ud,
        _ => return refused(libc::EOPNOTSUPP),
    };
    let cap = &mut init.cap;
    let has_srq = !init.srq.is_null();
    if has_srq {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    if cap.max_send_wr > MAX_REQUESTS
        || cap.max_recv_wr > MAX_REQUESTS
        || cap.max_send_sge > MAX_PIECES
        || cap.max_recv_sge > MAX_PIECES
        || cap.max_inline_data > MAX_INLINE
        || init.send_cq.is_null()
        || init.recv_cq.is_null()
    {
        return refused(libc::EINVAL);
    }
    if let Err(number) = admit(&pd.driver, Verb::CreateQp) {
        return refused(number);
    }
    // SAFETY: the caller's promise.
    let send_cq = unsafe { borrow::<Cq>(init.send_cq) }.id;
    // SAFETY: the caller's promise.
    let receive_cq = unsafe { borrow::<Cq>(init.recv_cq) }.id;
    // SAFETY: the caller's promise.
    let srq = has_srq.then(|| unsafe { borrow::<Srq>(init.srq) }.id);
    let capacity = Capacity {
        sends: cap.max_send_wr as usize,
        receives: cap.max_recv_wr as usize,
        send_pieces: cap.max_send_sge as usize,
        receive_pieces: cap.max_recv_sge as usize,
        inline: cap.max_inline_data as usize,
    };
    let signals_all = init.sq_sig_all != 0;
    // SAFETY: a domain's context is open as long as the domain lives.
    let context = unsafe { context(pd.public.context) };
    let mut port = pd.driver.lock();
    let config = QpConfig { kind, pd: pd.id, send_cq, receive_cq, srq, capacity, signals_all };
    let number = match port.device.create_qp(config) {
        Ok(number) => number,
        Err(refusal) => return refused(convert::errno(refusal)),
    };
    let mut public: ibv_qp = zeroed();
    (public.context, public.qp_context, public.pd) = (pd.public.context, init.qp_context, domain);
    (public.send_cq, public.recv_cq, public.srq) = (init.send_cq, init.recv_cq, init.srq);
    (public.handle, public.qp_num, public.qp_type) = (number, number, init.qp_type);
    let pair = give(Qp {
        public,
        driver: pd.driver.clone(),
        events: context.events.clone(),
        asynchronous: Default::default(),
    });
    let target = EventTarget { queue: context.events.clone(), object: pair.expose_provenance() };
    port.targets.qps.insert(number, target);
    pair
}

/// See `ibv_modify_qp(3)`.
///
/// # Safety
/// The queue pair lives, and `attr` is valid.
pub unsafe extern "C" fn ibv_modify_qp(pointer: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let qp = unsafe { borrow::<Qp>(pointer) };
    // SAFETY: the caller's promise.
    let attr = unsafe { &*attr };
    let Some(mask) = Mask::from_bits(mask as u32) else { return libc::EINVAL };
    let Some(attributes) = convert::attributes(attr, mask) else { return libc::EINVAL };
    let mut port = qp.driver.lock();
    if let Err(refusal) = port.device.modify_qp(qp.public.qp_num, &attributes, mask) {
        return convert::errno(refusal);
    }
    if mask.contains(Mask::STATE) {
        // SAFETY: as the C library does, with the caller, who owns the queue pair.
        unsafe { (*pointer).state = attr.qp_state };
    }
    qp.driver.drive(&mut port);
    0
}

/// See `ibv_query_qp(3)`.
///
/// # Safety
/// The queue pair lives, and both places are valid.
pub unsafe extern "C" fn ibv_query_qp(
    pointer: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    let qp = unsafe { borrow::<Qp>(pointer) };
    let port = qp.driver.lock();
    let Some((attributes, config)) = port.device.query_qp(qp.public.qp_num) else { return libc::EINVAL };
    let capacity = config.capacity;
    let cap = ibv_qp_cap {
        max_send_wr: capacity.sends as u32,
        max_recv_wr: capacity.receives as u32,
        max_send_sge: capacity.send_pieces as u32,
        max_recv_sge: capacity.receive_pieces as u32,
        max_inline_data: capacity.inline as u32,
    };
    let mut found: ibv_qp_attr = zeroed();
    convert::fill(&mut found, attributes);
    found.cap = cap;
    let made = ibv_qp_init_attr {
        qp_context: qp.public.qp_context,
        send_cq: qp.public.send_cq,
        recv_cq: qp.public.recv_cq,
        srq: qp.public.srq,
        cap,
        qp_type: qp.public.qp_type,
        sq_sig_all: c_int::from(config.signals_all),
    };
    // SAFETY: the caller's promise.
    unsafe { (*pointer).state = found.qp_state };
    // SAFETY: the caller's promise.
    unsafe { attr.write(found) };
    // SAFETY: the caller's promise.
    unsafe { init.write(made) };
    0
}

/// See `ibv_destroy_qp(3)`: waits until every event that was taken is acknowledged.
///
/// # Safety
/// The queue pair is one of [`ibv_create_qp`], and nobody uses it later.
pub unsafe extern "C" fn ibv_destroy_qp(pointer: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise.
    let qp = unsafe { borrow::<Qp>(pointer) };
    let number = qp.public.qp_num;
    let mut port = qp.driver.lock();
    // What has arrived is answered: an adapter would have done so long before, and the peer may wait for it.
    qp.driver.drive(&mut port);
    if let Err(refusal) = port.device.destroy_qp(number) {
        return convert::errno(refusal);
    }
    port.targets.qps.remove(&number);
    drop(port);
    let address = pointer.addr();
    qp.events.withdraw(|(_, object)| *object == address);
    qp.asynchronous.wait();
    // SAFETY: as above.
    drop(unsafe { take_back::<Qp>(pointer) });
    0
}
