//! Asynchronous events of an open device.
//!
//! For `events.rs`, which hands them to everyone on the device. Built on a context's descriptor.

use std::mem::MaybeUninit;

use super::Context;
use super::abi::*;

/// Something that happened to a device, a port or a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The port carries traffic again.
    PortActive(u8),
    /// The port went down.
    PortDown(u8),
    /// The device is gone or broken; everything on it fails.
    DeviceFatal,
    /// The queue pair of this number failed.
    QpFatal(u32),
    /// The queue pair of this number took a bad request from its peer, or a forbidden access.
    QpPeerError(u32),
    /// Data arrived on the queue pair of this number before the event that established the connection.
    Established(u32),
    /// No more buffers of a shared receive queue go to the queue pair of this number, which is in error.
    LastBufferTaken(u32),
    /// The completion queue of this identity ([`Cq::identity`](super::Cq::identity)) has overrun or broke.
    CqError(usize),
    /// The shared receive queue of this identity ([`Srq::identity`](super::Srq::identity)) broke.
    SrqError(usize),
    /// The shared receive queue of this identity has fewer buffers than its limit.
    SrqLimit(usize),
    /// The addresses of the port changed: its LID, a GID, a partition key, or the subnet manager requires registering again.
    AddressChange(u8),
    /// Another event, by its number.
    Other(i32),
}

impl Context {
    /// Takes and acknowledges the next asynchronous event; `None` if there is none now. Does not block.
    pub(crate) fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the place is valid.
        let failed = unsafe { (self.table().get_async_event)(self.as_ptr(), event.as_mut_ptr()) };
        if failed != 0 {
            return None;
        }
        // SAFETY: zeroed, and filled by the library.
        let mut event = unsafe { event.assume_init() };
        let decoded = decode(&event);
        // SAFETY: the event is acknowledged once, here. Queues cannot be destroyed before that, so `decode` could read
        // them; afterwards only numbers are kept.
        unsafe { (self.table().ack_async_event)(&mut event) };
        Some(decoded)
    }
}

fn decode(event: &ibv_async_event) -> AsyncEvent {
    match event.event_type {
        IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortActive(port(event)),
        IBV_EVENT_PORT_ERR => AsyncEvent::PortDown(port(event)),
        IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
        IBV_EVENT_QP_FATAL => AsyncEvent::QpFatal(qp_number(event)),
        IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpPeerError(qp_number(event)),
        IBV_EVENT_COMM_EST => AsyncEvent::Established(qp_number(event)),
        IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastBufferTaken(qp_number(event)),
        IBV_EVENT_CQ_ERR => AsyncEvent::CqError(cq_identity(event)),
        IBV_EVENT_SRQ_ERR => AsyncEvent::SrqError(srq_identity(event)),
        IBV_EVENT_SRQ_LIMIT_REACHED => AsyncEvent::SrqLimit(srq_identity(event)),
        IBV_EVENT_LID_CHANGE
        | IBV_EVENT_PKEY_CHANGE
        | IBV_EVENT_SM_CHANGE
        | IBV_EVENT_CLIENT_REREGISTER
        | IBV_EVENT_GID_CHANGE => AsyncEvent::AddressChange(port(event)),
        other => AsyncEvent::Other(other),
    }
}

/// For events of a port.
fn port(event: &ibv_async_event) -> u8 {
    // SAFETY: for this type the element is a port number.
    let port = unsafe { event.element.port_num };
    u8::try_from(port).unwrap_or(0)
}

/// For events of a completion queue.
fn cq_identity(event: &ibv_async_event) -> usize {
    // SAFETY: for this type the element is a completion queue.
    unsafe { event.element.cq }.addr()
}

/// For events of a shared receive queue.
fn srq_identity(event: &ibv_async_event) -> usize {
    // SAFETY: for this type the element is a shared receive queue.
    unsafe { event.element.srq }.addr()
}

/// For events of a queue pair.
fn qp_number(event: &ibv_async_event) -> u32 {
    // SAFETY: for this type the element is a queue pair.
    let qp = unsafe { event.element.qp };
    if qp.is_null() {
        return 0;
    }
    // SAFETY: the queue pair cannot be destroyed before the event is acknowledged, which is later.
    unsafe { (*qp).qp_num }
}
