//! An endpoint: the SDK's operations, carried out by its connection.

use std::ptr::NonNull;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::atomic::{Change, Width};
use uct_plugin::rma::ByTransport;
use uct_plugin::{
    Atomic, AtomicOp, CmToken, Completion, Endpoint, Error, Failure, Flush, Iov, OldValue, Outcome, Pack,
    Result, Unpack,
};

use crate::iface::RcIface;
use crate::link::conn::{Conn, DESTROYED, HAS_PENDING};
use crate::link::rkey::Rkey;
use crate::proto::addr::{EP_LENGTH, EpAddress};

/// An endpoint.
pub(crate) struct RcEp {
    pub(crate) conn: Rc<Conn>,
    pub(crate) iface: Rc<RcIface>,
}

impl Endpoint for RcEp {
    type Iface = RcIface;
    type Remote = ByTransport;
    const ADDRESS_LENGTH: usize = EP_LENGTH;

    #[inline]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        self.conn.send_short(id, header, payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.conn.send_short_iov(id, iov)
    }

    #[inline]
    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        self.conn.send_bcopy(id, pack, signaled)
    }

    #[inline(always)]
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

    #[inline]
    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &Rkey) -> Result {
        self.conn.write_short(data, remote_address, rkey)
    }

    #[inline]
    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &Rkey) -> Result<usize> {
        self.conn.write_bcopy(pack, remote_address, rkey)
    }

    #[inline(always)]
    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.write_zcopy(iov, remote_address, rkey, completion)
    }

    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &Rkey) -> Result {
        self.conn.read_short(buffer, remote_address, rkey)
    }

    #[inline(always)]
    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.read_bcopy(unpack, length, remote_address, rkey, completion)
    }

    #[inline(always)]
    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.conn.read_zcopy(iov, remote_address, rkey, completion)
    }

    #[inline]
    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &Rkey) -> Result {
        match (atomic.width, atomic.change) {
            (Width::Bits64, Change::Op(AtomicOp::Add, value)) => self.conn.add64(value, remote_address, rkey),
            _ => self.conn.emulate(atomic, None, remote_address, rkey, None).map(drop),
        }
    }

    #[inline(always)]
    fn atomic_fetch(
        &self,
        atomic: Atomic,
        old: OldValue,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let Atomic { width, change } = atomic;
        match (width, change) {
            (Width::Bits64, Change::Op(AtomicOp::Add, value)) => {
                self.conn.fetch64(value, None, old, remote_address, rkey, completion)
            }
            (Width::Bits64, Change::CompareSwap { compare, swap }) => {
                self.conn.fetch64(swap, Some(compare), old, remote_address, rkey, completion)
            }
            // In pieces, so that it need not lie in memory where it is not emulated.
            (_, Change::Op(op, value)) => {
                self.conn.emulate_op((width, op, value), old, remote_address, rkey, completion)
            }
            _ => self.conn.emulate(atomic, Some(old), remote_address, rkey, completion),
        }
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        self.conn.status.check()?;
        if self.conn.has_room_for_message() && !self.conn.is_blocked.get() {
            return Err(Error::BUSY);
        }
        self.conn.set_flag(HAS_PENDING);
        // SAFETY: the caller's promise; the connection is in its `Rc` until the group is empty.
        unsafe { self.conn.shared.pending.add(&self.conn.group, request) };
        Ok(())
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        self.conn.shared.pending.purge(&self.conn.group, purge);
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.flush_with(flags, completion)
    }

    fn fence(&self) -> Result {
        self.conn.fence_here();
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.conn.check_peer(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&self.conn.address().pack());
        Ok(())
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        if let Some(error) = self.conn.failure() {
            return Err(Failure::from(error));
        }
        if self.conn.queue.is_connected() {
            return Err(Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected already"));
        }
        let device = DeviceAddress::parse(device_address)
            .map_err(|reason| Failure::new(Error::INVALID_ADDR, reason.to_string()))?;
        let address =
            EpAddress::parse(ep_address).map_err(|reason| Failure::new(Error::INVALID_ADDR, reason))?;
        self.conn.connect(&self.iface.port.borrow(), &device, &address)
    }

    fn cm_token(&self) -> Result<CmToken> {
        Ok(CmToken { qp_number: self.conn.qp.number(), has_srq: true })
    }

    fn destroy(self: Rc<Self>) {
        self.conn.status.close();
        self.conn.set_flag(DESTROYED);
        self.conn.shared.pending.purge(&self.conn.group, &mut |_| {});
        self.iface.reap(&self.conn);
    }
}
