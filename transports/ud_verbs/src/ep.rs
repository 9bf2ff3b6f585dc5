//! An endpoint: the SDK's operations, carried out by its connection.

use std::ptr::NonNull;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::{Accessor, Regions};
use uct_plugin::rma::{ByRequests, Initiator, Payload, RemoteLimits, Request, Requests};
use uct_plugin::{Completion, Endpoint, Error, Failure, Flush, Iov, Outcome, Pack, Result};

use crate::iface::UdIface;
use crate::link::conn::Conn;
use crate::link::emulation::{GET_HEADER, MAX_IOV, OWNER, PUT_HEADER, REQUEST};
use crate::md::OWN;
use crate::proto::addr::{EP_LENGTH, EpAddress};

/// An endpoint of `ud_verbs`.
pub(crate) struct UdEp {
    pub(crate) conn: Rc<Conn>,
    pub(crate) iface: Rc<UdIface>,
}

impl Endpoint for UdEp {
    type Iface = UdIface;
    type Remote = ByRequests;
    const ADDRESS_LENGTH: usize = EP_LENGTH;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        self.conn.send_short(id, header, payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.conn.send_short_iov(id, iov)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        self.conn.send_packed(id, 0, pack, signaled, |_, _| Ok(()))
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.send_zcopy(id, header, iov, signaled, completion)
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        // SAFETY: the caller's promise.
        unsafe { self.conn.add_pending(request) }
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        self.conn.shared.pending.purge(&self.conn.pending, purge);
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.flush(flags, completion)
    }

    fn fence(&self) -> Result {
        // The peer carries everything out in the order of sending.
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.check(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&self.conn.address().pack());
        Ok(())
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        let device = DeviceAddress::parse(device_address)
            .map_err(|error| Failure::new(Error::INVALID_ADDR, error.to_string()))?;
        let peer =
            EpAddress::parse(ep_address).map_err(|reason| Failure::new(Error::INVALID_ADDR, reason))?;
        self.conn.connect_to(&device, peer)
    }

    fn destroy(self: Rc<Self>) {
        self.iface.conns.forget(self.conn.connection);
        self.conn.close();
    }
}

impl Requests for UdEp {
    fn initiator(&self) -> Result<&Initiator> {
        Ok(&self.conn.initiator)
    }

    fn owner(&self) -> u32 {
        OWNER
    }

    fn remote_limits(&self) -> RemoteLimits {
        let message = self.conn.shared.limits.message;
        let (put, get) = (message - PUT_HEADER, message - GET_HEADER);
        RemoteLimits { put, get, vector: get, max_iov: MAX_IOV }
    }

    fn may_request(&self) -> Result {
        self.conn.may_send()
    }

    fn is_quiet(&self) -> bool {
        self.conn.initiator.is_idle()
    }

    fn send_request(&self, request: &Request, data: impl Payload) -> Result {
        self.conn.send_request(request, &data)
    }

    fn send_packed_request(&self, pack: Pack, head: impl FnOnce(usize) -> Result<Request>) -> Result<usize> {
        self.conn.send_packed(REQUEST, PUT_HEADER, pack, false, |place, length| {
            head(length)?.write(place);
            Ok(())
        })
    }

    fn pump(&self) {
        self.conn.pump();
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> Result {
        self.iface.wait_for(self.conn.connection, &done)
    }

    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result> {
        OWN.find(identity).map(|md| read(&md.regions, &self.iface.targets.accessor))
    }
}
