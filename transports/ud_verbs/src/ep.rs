//! An endpoint: the SDK's operations, carried out by its connection.

use std::ptr::NonNull;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::{MemoryAccess, RemoteKey};
use uct_plugin::rma::{Notify, Operation};
use uct_plugin::{
    Atomic, Completion, Endpoint, Error, Failure, Flush, Former, Iov, Outcome, Pack, Result, Unpack,
};

use crate::iface::UdIface;
use crate::link::conn::Conn;
use crate::md::OWN;
use crate::proto::addr::{EP_LENGTH, EpAddress};

/// An endpoint of `ud_verbs`.
pub(crate) struct UdEp {
    pub(crate) conn: Rc<Conn>,
    pub(crate) iface: Rc<UdIface>,
}

impl Endpoint for UdEp {
    type Iface = UdIface;
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

    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &RemoteKey) -> Result {
        self.conn.put_copied(data, remote_address, rkey)
    }

    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &RemoteKey) -> Result<usize> {
        self.conn.put_packed(pack, remote_address, rkey)
    }

    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.put_gathered(iov, remote_address, rkey, completion)
    }

    /// Reads and waits: progress runs inside, so handlers and completions may run too.
    ///
    /// A peer of this very process may be driven by this very thread, which would wait for itself: its memory is read
    /// here, once everything that was asked for before has been answered.
    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &RemoteKey) -> Result {
        let length = buffer.len();
        self.conn.may_get(length)?;
        if let Some(md) = OWN.find(rkey.identity) {
            rkey.check(remote_address, length, MemoryAccess::REMOTE_GET)?;
            if !self.conn.initiator.is_idle() {
                return Err(Error::NO_RESOURCE);
            }
            let (accessor, access) = (&self.iface.targets.accessor, MemoryAccess::REMOTE_GET);
            md.regions.access(accessor, rkey.place(), remote_address, length, access)?.read(0, buffer);
            return Ok(());
        }
        let wait = |done: &dyn Fn() -> bool| self.iface.wait_for(self.conn.connection, done);
        self.conn.get_blocking(buffer, remote_address, rkey, wait)
    }

    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.get_unpacked(unpack, length, remote_address, rkey, completion)
    }

    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.get_scattered(iov, remote_address, rkey, completion)
    }

    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &RemoteKey) -> Result {
        let operation = Operation::Acknowledged(Notify::Nobody);
        self.conn.atomic(atomic, remote_address, rkey, operation).map(drop)
    }

    fn atomic_fetch(
        &self,
        atomic: Atomic,
        former: Former,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.atomic(atomic, remote_address, rkey, Operation::Fetch(former, completion.into()))
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
