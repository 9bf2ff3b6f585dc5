//! One end of a connection that a connection manager makes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::rc::{Rc, Weak};
use std::time::Duration;

use ucs::{Error, Result, Status};
use uct_abi::{UCT_INPROGRESS, UctCmConnectParams, UctCmEp, UctCmRequest, UctSocketAddress, UctText};

use super::{Cm, CmData, CmInner, is_gone, nanoseconds};
use crate::completion::Posted;
use crate::error::Refused;
use crate::reason::Reason;

type OnEvent = Box<dyn FnMut(&CmEp, CmEvent<'_>)>;

/// How to connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// The address to connect from; its port is usually 0.
    pub source: Option<SocketAddr>,
    /// What the peer and the network may take for each stage: until [`CmEvent::Resolved`], and from [`CmEp::send`] to
    /// [`CmEvent::Connected`]. `None` is the connection manager's default.
    pub timeout: Option<Duration>,
}

/// What has happened. At the client: resolved, connected, disconnected. At the server: notified, disconnected. Each comes at most
/// once, a failure takes the place of the next one, and after a failure or a disconnect nothing follows.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// Client: the server's address leads somewhere. Call [`CmEp::send`].
    Resolved {
        /// The address of this side.
        local: SocketAddr,
        /// The server's.
        peer: SocketAddr,
        /// The device that leads there; empty where it is not known.
        device: &'a str,
    },
    /// Client: the server has accepted. Call [`CmEp::notify`].
    Connected {
        /// The server's private data.
        private: &'a [u8],
    },
    /// Server: the client is connected.
    Notified,
    /// The peer has disconnected, or was lost. Call [`CmEp::disconnect`] in response, or drop the endpoint.
    Disconnected {
        /// The peer's reason.
        reason: &'a [u8],
        /// Why it was lost, if it has not disconnected.
        lost: Option<&'a str>,
    },
    /// The connection was not established.
    Failed {
        /// [`Error::REJECTED`] only for an explicit reject. [`Error::NOT_CONNECTED`]: no program listens there.
        /// [`Error::CONNECTION_RESET`]: the peer has gone. [`Error::UNREACHABLE`]: no route. [`Error::TIMED_OUT`]: a stage took
        /// too long.
        error: Error,
        /// The private data of a reject.
        private: &'a [u8],
        /// Stage, address, the system's error, what to try.
        reason: &'a str,
    },
}

/// One end of a connection. Cheap to clone; it is destroyed when the last clone is gone, at any time. The peer is notified then, and no
/// event is reported afterwards.
#[derive(Clone)]
pub struct CmEp {
    inner: Rc<CmEpInner>,
}

struct CmEpInner {
    cm: Rc<CmInner>,
    raw: Cell<*mut UctCmEp>,
    record: Rc<EpRecord>,
}

/// What a plugin knows an endpoint by.
pub(super) struct EpRecord {
    ep: RefCell<Weak<CmEpInner>>,
    handler: RefCell<Option<OnEvent>>,
}

impl CmEp {
    pub(super) fn connect(
        cm: &Rc<CmInner>,
        address: SocketAddr,
        options: ConnectOptions,
        handler: OnEvent,
    ) -> Result<CmEp, Refused> {
        let subject = || format!("{} to {address}", cm.subject());
        cm.worker.check_fork("connect", subject)?;
        let slot = cm.ops.connect.expect("a mandatory slot");
        CmEp::create(cm, handler, "connect", subject, |user, ep, reason| {
            let params = UctCmConnectParams {
                size: size_of::<UctCmConnectParams>(),
                user,
                address: address.into(),
                source: options.source.map_or(UctSocketAddress::NONE, UctSocketAddress::from),
                timeout: nanoseconds(options.timeout),
            };
            // SAFETY: it is open; the parameters are ours, and the record lives until the endpoint is destroyed.
            unsafe { slot(cm.raw(), &raw const params, ep, reason) }
        })
    }

    /// # Safety
    /// The request is of the same component, and not consumed. It is afterwards.
    pub(super) unsafe fn accept(
        cm: &Rc<CmInner>,
        (request, peer): (*mut UctCmRequest, SocketAddr),
        data: &CmData<'_>,
        timeout: Option<Duration>,
        handler: OnEvent,
    ) -> Result<CmEp, Refused> {
        let slot = cm.ops.accept.expect("a mandatory slot");
        let subject = || format!("{}: the request of {peer}", cm.subject());
        CmEp::create(cm, handler, "accept", subject, |user, ep, reason| {
            data.with(|data| {
                // SAFETY: it is open; the caller's promise of the request; the rest is ours.
                unsafe { slot(cm.raw(), request, user, data, nanoseconds(timeout), ep, reason) }
            })
        })
    }

    /// An endpoint that `make` has the plugin make.
    fn create(
        cm: &Rc<CmInner>,
        handler: OnEvent,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        make: impl FnOnce(*mut std::ffi::c_void, *mut *mut UctCmEp, *mut UctText) -> i32,
    ) -> Result<CmEp, Refused> {
        let record =
            Rc::new(EpRecord { ep: RefCell::new(Weak::new()), handler: RefCell::new(Some(handler)) });
        let (mut raw, mut reason) = (null_mut(), Reason::new());
        let status = make(Rc::as_ptr(&record).cast_mut().cast(), &raw mut raw, reason.as_mut());
        reason.check(status, operation, subject)?;
        let inner = Rc::new(CmEpInner { cm: Rc::clone(cm), raw: Cell::new(raw), record });
        *inner.record.ep.borrow_mut() = Rc::downgrade(&inner);
        cm.expect_events();
        Ok(CmEp { inner })
    }

    /// The connection manager that it belongs to.
    pub fn cm(&self) -> Cm {
        Cm { inner: Rc::clone(&self.inner.cm) }
    }

    /// Client: sends the request with its private data, once, from [`CmEvent::Resolved`] on.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not resolved yet. [`Error::EXCEEDS_LIMIT`]: too much private data. [`Error::NOT_CONNECTED`]: failed.
    /// [`Error::INVALID_PARAM`]: sent before, a server, or a child of a fork.
    pub fn send<'a>(&self, data: impl Into<CmData<'a>>) -> Result {
        let (cm, data) = (self.check()?, data.into());
        if data.private.len() > cm.attr.get().connect {
            return Err(Error::EXCEEDS_LIMIT);
        }
        let slot = cm.ops.send.expect("a mandatory slot");
        // SAFETY: the endpoint is alive.
        let status = data.with(|data| unsafe { slot(self.raw(), data) });
        cm.expect_events();
        Status::from_raw(status).into_result()
    }

    /// Client: notifies the server, once, from [`CmEvent::Connected`] on.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not connected yet. [`Error::NOT_CONNECTED`]: failed or disconnected. [`Error::INVALID_PARAM`]: called before,
    /// a server, or a child of a fork.
    pub fn notify(&self) -> Result {
        let slot = self.check()?.ops.notify.expect("a mandatory slot");
        // SAFETY: the endpoint is alive.
        Status::from_raw(unsafe { slot(self.raw()) }).into_result()
    }

    /// Disconnects, with a reason for the peer, which gets [`CmEvent::Disconnected`]. Each side calls it once, the other one in
    /// response. [`Posted::Done`] the first time; [`Posted::InProgress`] if this side has before, and the peer has not yet.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not connected or notified yet. [`Error::NOT_CONNECTED`]: both sides have, or the connection has failed.
    /// [`Error::EXCEEDS_LIMIT`]: the reason is too long. [`Error::INVALID_PARAM`]: a child of a fork.
    pub fn disconnect(&self, reason: &[u8]) -> Result<Posted> {
        let cm = self.check()?;
        if reason.len() > cm.attr.get().disconnect {
            return Err(Error::EXCEEDS_LIMIT);
        }
        let slot = cm.ops.disconnect.expect("a mandatory slot");
        // SAFETY: the endpoint is alive; the bytes are ours and valid for the call.
        match unsafe { slot(self.raw(), reason.as_ptr(), reason.len()) } {
            UCT_INPROGRESS => Ok(Posted::InProgress),
            status => Status::from_raw(status).into_result().map(|()| Posted::Done),
        }
    }

    /// The addresses of this side and of the peer, as this side sees them.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not resolved yet.
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let slot = self.check()?.ops.ep_addresses.expect("a mandatory slot");
        let (mut local, mut peer) = (UctSocketAddress::NONE, UctSocketAddress::NONE);
        // SAFETY: the endpoint is alive; the places of the answer are ours.
        Status::from_raw(unsafe { slot(self.raw(), &raw mut local, &raw mut peer) }).into_result()?;
        local.get().zip(peer.get()).ok_or(Error::IO_ERROR)
    }

    fn check(&self) -> Result<&CmInner> {
        self.inner.cm.worker.check_process()?;
        Ok(&self.inner.cm)
    }

    fn raw(&self) -> *mut UctCmEp {
        self.inner.raw.get()
    }
}

impl EpRecord {
    /// Something has happened.
    pub(super) fn on_event(&self, cm: &CmInner, event: CmEvent<'_>) {
        let Some(inner) = self.ep.borrow().upgrade() else { return };
        let Some(mut handler) = self.handler.borrow_mut().take() else { return };
        let ep = CmEp { inner };
        cm.expect_events();
        cm.worker.call_application(|| {
            handler(&ep, event);
            // This may be the last handle, and the handler may hold the last one of anything else.
            drop(ep);
            if is_gone(&self.ep.borrow()) {
                drop(handler);
            } else {
                *self.handler.borrow_mut() = Some(handler);
            }
        });
    }
}

impl Drop for CmEpInner {
    fn drop(&mut self) {
        let handler = self.record.handler.try_borrow_mut().ok().and_then(|mut handler| handler.take());
        let (cm, raw, record) = (Rc::clone(&self.cm), self.raw.get(), Rc::clone(&self.record));
        self.cm.worker.close(Box::new(move || {
            let slot = cm.ops.ep_destroy.expect("a mandatory slot");
            // SAFETY: nothing holds the endpoint any more, and no transport is on the stack.
            unsafe { slot(raw) };
            drop((handler, record));
        }));
    }
}

impl fmt::Debug for CmEp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmEp").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}
