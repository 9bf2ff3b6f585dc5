//! Listeners, and the requests of clients.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

use ucs::memory::fork::ForkGuard;
use ucs::{Error, Result, Status};
use uct_abi::{UctCmEvent, UctCmListenParams, UctCmListener, UctCmOps, UctCmRequest, UctSocketAddress};

use super::endpoint::{CmEp, CmEvent};
use super::{Cm, CmData, CmInner, check_length};
use crate::error::Refused;
use crate::reason::Reason;

type OnRequest = Box<dyn FnMut(Request)>;

/// Listens until it is dropped. No request is reported afterwards; requests that were reported stay valid.
pub struct Listener {
    cm: Rc<CmInner>,
    raw: *mut UctCmListener,
    record: Rc<ListenerRecord>,
}

/// What a plugin knows a listener by.
pub(super) struct ListenerRecord {
    handler: RefCell<Option<OnRequest>>,
    is_closed: Cell<bool>,
}

impl Listener {
    pub(super) fn create(
        cm: &Rc<CmInner>,
        address: SocketAddr,
        backlog: Option<u32>,
        handler: OnRequest,
    ) -> Result<Listener, Refused> {
        let subject = || format!("{} on {address}", cm.subject());
        cm.worker.check_fork("listen", subject)?;
        let record =
            Rc::new(ListenerRecord { handler: RefCell::new(Some(handler)), is_closed: Cell::new(false) });
        let params = UctCmListenParams {
            size: size_of::<UctCmListenParams>(),
            user: Rc::as_ptr(&record).cast_mut().cast(),
            address: address.into(),
            backlog: backlog.unwrap_or(0),
        };
        let (mut raw, mut reason) = (null_mut(), Reason::new());
        let slot = cm.ops.listen.expect("a mandatory slot");
        // SAFETY: it is open; the parameters are ours, and the record lives until the listener is destroyed.
        let status = unsafe { slot(cm.raw(), &raw const params, &raw mut raw, reason.as_mut()) };
        reason.check(status, "listen", subject)?;
        Ok(Listener { cm: Rc::clone(cm), raw, record })
    }

    /// Where it listens, with the port that was chosen.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> Result<SocketAddr> {
        let mut address = UctSocketAddress::NONE;
        let slot = self.cm.ops.listener_address.expect("a mandatory slot");
        // SAFETY: the listener is not destroyed, and the place of the answer is ours.
        Status::from_raw(unsafe { slot(self.raw, &raw mut address) }).into_result()?;
        address.get().ok_or(Error::IO_ERROR)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.record.is_closed.set(true);
        let handler = self.record.handler.try_borrow_mut().ok().and_then(|mut handler| handler.take());
        let (cm, raw, record) = (Rc::clone(&self.cm), self.raw, Rc::clone(&self.record));
        self.cm.worker.close(Box::new(move || {
            let slot = cm.ops.listener_destroy.expect("a mandatory slot");
            // SAFETY: nothing holds the listener any more, and no transport is on the stack.
            unsafe { slot(raw) };
            drop((handler, record));
        }));
    }
}

impl ListenerRecord {
    /// A client calls.
    pub(super) fn on_request(&self, cm: &CmInner, event: &UctCmEvent, data: &[u8], device: &str) {
        let (Some(local), Some(peer)) = (event.local.get(), event.peer.get()) else { return };
        let request = Request {
            ops: cm.ops,
            raw: event.request,
            component: cm.component.clone(),
            most: cm.attr.get().reject,
            local,
            peer,
            device: device.to_owned(),
            private: data.to_owned(),
            fork: ForkGuard::new(),
        };
        // Without a handler the request is dropped, which rejects the client.
        let Some(mut handler) = self.handler.borrow_mut().take() else { return };
        cm.worker.call_application(|| {
            handler(request);
            // What it holds may be the last handle of anything.
            if self.is_closed.get() {
                drop(handler);
            } else {
                *self.handler.borrow_mut() = Some(handler);
            }
        });
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// A client that waits to be accepted or rejected: at once or later, in this thread or another one. Dropping it rejects the client,
/// without private data. It outlives its listener.
pub struct Request {
    ops: &'static UctCmOps,
    /// Null once consumed.
    raw: *mut UctCmRequest,
    component: String,
    most: usize,
    local: SocketAddr,
    peer: SocketAddr,
    device: String,
    private: Vec<u8>,
    fork: ForkGuard,
}

// SAFETY: a request may be accepted and rejected by any thread (`UctCmOps`).
unsafe impl Send for Request {}

impl Request {
    /// The client's private data.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// The client's address, as this side sees it.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address that the client called.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The device that leads to the client; empty where it is not known.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Accepts, and makes this side's endpoint on `cm`, which may be another one than the listener's, of the same component.
    /// `on_event` is called from its progress: [`CmEvent::Notified`], or a failure, comes first. `timeout` is how long the
    /// client may take for that, `None` the connection manager's default.
    ///
    /// # Errors
    /// [`Error::CONNECTION_RESET`]: the client has gone. [`Error::EXCEEDS_LIMIT`]: too much private data.
    /// [`Error::INVALID_PARAM`]: a connection manager of another component, or a child of a fork. The request is consumed in any case.
    pub fn accept<'a>(
        mut self,
        cm: &Cm,
        data: impl Into<CmData<'a>>,
        timeout: Option<Duration>,
        on_event: impl FnMut(&CmEp, CmEvent<'_>) + 'static,
    ) -> Result<CmEp, Refused> {
        let data = data.into();
        let subject = || format!("{}: the request of {}", cm.inner.subject(), self.peer);
        cm.inner.worker.check_fork("accept", subject)?;
        if cm.inner.component != self.component {
            return Err(Refused {
                operation: "accept",
                subject: subject(),
                status: Error::INVALID_PARAM,
                reason: format!("it belongs to connection manager {}", self.component),
            });
        }
        check_length(data.private.len(), cm.inner.attr.get().accept, subject)?;
        let raw = std::mem::replace(&mut self.raw, null_mut());
        // SAFETY: the request was not consumed, and the component is the same.
        unsafe { CmEp::accept(&cm.inner, (raw, self.peer), &data, timeout, Box::new(on_event)) }
    }

    /// Rejects, with private data for the client.
    ///
    /// # Errors
    /// The client has gone. [`Error::EXCEEDS_LIMIT`]: too much private data. The request is consumed in any case.
    pub fn reject(mut self, private: &[u8]) -> Result {
        self.fork.check()?;
        if private.len() > self.most {
            return Err(Error::EXCEEDS_LIMIT);
        }
        self.consume(private)
    }

    fn consume(&mut self, private: &[u8]) -> Result {
        let raw = std::mem::replace(&mut self.raw, null_mut());
        let slot = self.ops.reject.expect("a mandatory slot");
        // SAFETY: the request was not consumed; the bytes are ours and valid for the call.
        Status::from_raw(unsafe { slot(raw, private.as_ptr(), private.len()) }).into_result()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // In a child it is the parent's to answer.
        if !self.raw.is_null() && self.fork.check().is_ok() {
            let _ = self.consume(&[]);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let private = self.private.len();
        f.debug_struct("Request").field("peer", &self.peer).field("private", &private).finish_non_exhaustive()
    }
}
