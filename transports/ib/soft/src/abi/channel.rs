//! Completion channels and asynchronous events.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uct_ib_abi::*;

use super::convert;
use super::objects::{Channel, Cq, Qp, Srq, admit, borrow, context, give, refused, set_errno, take_back};
use crate::driver::Notices;
use crate::engine::{Event, Verb};

/// See `ibv_create_comp_channel(3)`.
///
/// # Safety
/// The context is open.
pub unsafe extern "C" fn ibv_create_comp_channel(pointer: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller's promise.
    let context = unsafe { context(pointer) };
    if let Err(number) = admit(&context.driver, Verb::CreateChannel) {
        return refused(number);
    }
    match Notices::new() {
        Ok(notices) => give(Channel {
            public: ibv_comp_channel { context: pointer, fd: notices.descriptor(), refcnt: 0 },
            notices: Arc::new(notices),
        }),
        Err(error) => refused(error.raw_os_error().unwrap_or(libc::EMFILE)),
    }
}

/// See `ibv_destroy_comp_channel(3)`.
///
/// # Safety
/// The channel is one of [`ibv_create_comp_channel`], and nobody uses it later if this succeeds.
pub unsafe extern "C" fn ibv_destroy_comp_channel(pointer: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's promise.
    let channel = unsafe { borrow::<Channel>(pointer) };
    // Each completion queue on it has one.
    if Arc::strong_count(&channel.notices) > 1 {
        return libc::EBUSY;
    }
    // SAFETY: as above.
    drop(unsafe { take_back::<Channel>(pointer) });
    0
}

/// See `ibv_get_cq_event(3)`.
///
/// # Safety
/// The channel lives, and both places are valid.
pub unsafe extern "C" fn ibv_get_cq_event(
    pointer: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    cookie: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let channel = unsafe { borrow::<Channel>(pointer) };
    let taken = channel.notices.take(|address| {
        let found = std::ptr::with_exposed_provenance_mut::<ibv_cq>(address);
        // SAFETY: a queue withdraws its notices before it ends, which waits until this one is counted.
        unsafe { borrow::<Cq>(found) }.completions.take();
        found
    });
    let found = match taken {
        Ok(found) => found,
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
    };
    // SAFETY: the queue waits for the acknowledgement of what was counted before it ends.
    let cq = unsafe { borrow::<Cq>(found) };
    // SAFETY: the caller's promise.
    unsafe { queue.write(found) };
    // SAFETY: the caller's promise.
    unsafe { cookie.write(cq.public.cq_context) };
    0
}

/// See `ibv_ack_cq_events(3)`.
///
/// # Safety
/// The queue lives.
pub unsafe extern "C" fn ibv_ack_cq_events(pointer: *mut ibv_cq, count: u32) {
    // SAFETY: the caller's promise.
    unsafe { borrow::<Cq>(pointer) }.completions.acknowledge(u64::from(count));
}

/// See `ibv_get_async_event(3)`.
///
/// # Safety
/// The context is open, and `place` is one for an event.
pub unsafe extern "C" fn ibv_get_async_event(
    pointer: *mut ibv_context,
    place: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { context(pointer) };
    let taken = context.events.take(|(event, object)| {
        // SAFETY: an object withdraws its events before it ends, which waits until this one is counted.
        (event, unsafe { count(event, object) })
    });
    let (event, element) = match taken {
        Ok(taken) => taken,
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
    };
    // SAFETY: the caller's promise.
    unsafe { place.write(ibv_async_event { element, event_type: convert::event_type(event) }) };
    0
}

/// Counts an event with its object; returns what C reads.
///
/// # Safety
/// The object is of the kind that the event is about, and lives.
unsafe fn count(event: Event, object: usize) -> ibv_async_element {
    match event {
        Event::CqError(_) => {
            let cq = std::ptr::with_exposed_provenance_mut(object);
            // SAFETY: the caller's promise.
            unsafe { borrow::<Cq>(cq) }.asynchronous.take();
            ibv_async_element { cq }
        }
        Event::SrqError(_) | Event::SrqLimitReached(_) => {
            let srq = std::ptr::with_exposed_provenance_mut(object);
            // SAFETY: the caller's promise.
            unsafe { borrow::<Srq>(srq) }.asynchronous.take();
            ibv_async_element { srq }
        }
        _ if object != 0 => {
            let qp = std::ptr::with_exposed_provenance_mut(object);
            // SAFETY: the caller's promise.
            unsafe { borrow::<Qp>(qp) }.asynchronous.take();
            ibv_async_element { qp }
        }
        _ => ibv_async_element { port_num: 1 },
    }
}

/// See `ibv_ack_async_event(3)`.
///
/// # Safety
/// The event came from [`ibv_get_async_event`], and is acknowledged once.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's promise.
    let event = unsafe { &*event };
    let object = event.element;
    match event.event_type {
        IBV_EVENT_CQ_ERR => {
            // SAFETY: the type says which member it is.
            let cq = unsafe { object.cq };
            // SAFETY: the object waits for this call before it ends.
            unsafe { borrow::<Cq>(cq) }.asynchronous.acknowledge(1);
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: as above.
            let srq = unsafe { object.srq };
            // SAFETY: as above.
            unsafe { borrow::<Srq>(srq) }.asynchronous.acknowledge(1);
        }
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: as above.
            let qp = unsafe { object.qp };
            // SAFETY: as above.
            unsafe { borrow::<Qp>(qp) }.asynchronous.acknowledge(1);
        }
        _ => {}
    }
}
