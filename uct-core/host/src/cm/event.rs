//! Events of a plugin's connection manager, until the application gets them.

use std::ffi::c_void;
use std::slice;

use ucs::{Error, Status};
use uct_abi::{
    UCT_CM_CONNECTED, UCT_CM_DISCONNECTED, UCT_CM_FAILED, UCT_CM_NOTIFIED, UCT_CM_REQUEST, UCT_CM_RESOLVED,
    UctCmEvent,
};

use super::CmInner;
use super::endpoint::{CmEvent, EpRecord};
use super::listener::ListenerRecord;
use crate::log;

/// The handler of all connection managers.
pub(super) unsafe extern "C" fn handle(argument: *mut c_void, event: *const UctCmEvent) {
    // SAFETY: the argument is the object that was opened with it, and lives until `close`.
    let cm = unsafe { &*argument.cast::<CmInner>() };
    // SAFETY: the event is valid for the call (`UctCmEvent`).
    let event = unsafe { &*event };
    // SAFETY: so are its data, which may be null where there are none.
    let data = unsafe { bytes(event.data, event.length) };
    // SAFETY: so are its strings.
    let device = unsafe { log::words(event.device) };
    // SAFETY: as above.
    let reason = unsafe { log::words(event.reason) };
    if event.kind == UCT_CM_REQUEST {
        // SAFETY: the user of a listener is its record, which lives until it was destroyed.
        let listener = unsafe { &*event.user.cast::<ListenerRecord>() };
        return listener.on_request(cm, event, data, device);
    }
    let addresses = || Some((event.local.get()?, event.peer.get()?));
    let event_of_ep = match event.kind {
        UCT_CM_RESOLVED => match addresses() {
            Some((local, peer)) => CmEvent::Resolved { local, peer, device },
            None => return,
        },
        UCT_CM_CONNECTED => CmEvent::Connected { private: data },
        UCT_CM_NOTIFIED => CmEvent::Notified,
        UCT_CM_DISCONNECTED => {
            let is_lost = Status::from_raw(event.status).is_error();
            CmEvent::Disconnected { reason: data, lost: is_lost.then_some(reason) }
        }
        UCT_CM_FAILED => {
            let error = Error::from_status(Status::from_raw(event.status));
            CmEvent::Failed { error, private: data, reason }
        }
        // A plugin that is newer than this host.
        _ => return,
    };
    // SAFETY: the user of an endpoint is its record, which lives until it was destroyed.
    let ep = unsafe { &*event.user.cast::<EpRecord>() };
    ep.on_event(cm, event_of_ep);
}

/// # Safety
/// `data` are readable for `length` bytes for `'a`; null is taken for nothing.
unsafe fn bytes<'a>(data: *const u8, length: usize) -> &'a [u8] {
    if data.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data, length) }
}
