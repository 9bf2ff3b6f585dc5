//! Events: they are copied and acknowledged at once, so that no identifier ever waits for one.

use std::ffi::c_uint;
use std::sync::Arc;

use super::abi::*;
use super::channel::Channel;
use super::id::Id;
use super::{CmError, errno};

/// An event, with everything that it held.
#[derive(Debug)]
pub struct Event {
    /// The number that the identifier was made with: for a connection request that of the listener.
    pub key: usize,
    /// What happened.
    pub event: c_uint,
    /// Zero, a negative error number, or the reason of a rejection.
    pub status: i32,
    /// The peer's parameters. For a connection request, the response and a rejection.
    pub param: EventParam,
    /// The new identifier of a connection request.
    pub request: Option<Id>,
}

/// The parameters that the peer sent.
#[derive(Debug, Clone, Default)]
pub struct EventParam {
    /// Private data as they arrived: padded with zeros to the longest that fits.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer takes at once.
    pub responder_resources: u8,
    /// Reads and atomics that the peer issues at once.
    pub initiator_depth: u8,
}

impl Event {
    /// Takes the next event: copies it and acknowledges it. `None` if there is none now. Does not block.
    ///
    /// # Errors
    /// The failed call.
    pub fn take(channel: &Arc<Channel>) -> Result<Option<Event>, CmError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel lives, and `raw` is a place for a pointer.
        let failed = unsafe { (channel.table().get_cm_event)(channel.as_ptr(), &raw mut raw) };
        if failed != 0 {
            return match errno() {
                libc::EAGAIN | libc::EINTR => Ok(None),
                errno => Err(CmError::Call { call: "rdma_get_cm_event", errno }),
            };
        }
        // SAFETY: the event was taken above and is not acknowledged.
        let event = unsafe { Event::copy(channel, raw) };
        // SAFETY: the event was taken above, everything in it is copied, and it is acknowledged once.
        let failed = unsafe { (channel.table().ack_cm_event)(raw) };
        if failed != 0 {
            ucs::log::warn!(errno = errno(), "rdma_ack_cm_event failed");
        }
        Ok(Some(event))
    }

    /// # Safety
    /// The event is of this channel, and not acknowledged.
    unsafe fn copy(channel: &Arc<Channel>, raw: *const rdma_cm_event) -> Event {
        // SAFETY: the library filled the event, and it is valid until it is acknowledged.
        let raw = unsafe { &*raw };
        let is_request = raw.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        let owner = if is_request { raw.listen_id } else { raw.id };
        // SAFETY: an identifier is not destroyed while an event of it is not acknowledged.
        let context = unsafe { (*owner).context };
        let has_param = matches!(
            raw.event,
            RDMA_CM_EVENT_CONNECT_REQUEST
                | RDMA_CM_EVENT_CONNECT_RESPONSE
                | RDMA_CM_EVENT_ESTABLISHED
                | RDMA_CM_EVENT_REJECTED
        );
        Event {
            key: context as usize,
            event: raw.event,
            status: raw.status,
            // SAFETY: the event is not acknowledged, and is one that has parameters.
            param: if has_param { unsafe { param(&raw.conn) } } else { EventParam::default() },
            // SAFETY: a request's identifier is new, and nothing else owns it.
            request: is_request.then(|| unsafe { Id::adopt(channel, raw.id) }),
        }
    }
}

/// # Safety
/// It is the parameter of an event that has one, and is not acknowledged.
unsafe fn param(raw: &rdma_conn_param) -> EventParam {
    let private_data = if raw.private_data.is_null() || raw.private_data_len == 0 {
        Vec::new()
    } else {
        let length = usize::from(raw.private_data_len);
        // SAFETY: the library points at as many bytes, which are part of the event.
        unsafe { std::slice::from_raw_parts(raw.private_data.cast::<u8>(), length) }.to_vec()
    };
    EventParam {
        private_data,
        responder_resources: raw.responder_resources,
        initiator_depth: raw.initiator_depth,
    }
}
