//! An endpoint: one queue pair, connected to one of the peer's.
//!
//! For: the host. Stands on `tx` (what is under way), `am`, `rma` and `atomic` (what can be sent), `flush`, and the
//! interface's queues.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_ib::verbs::{Access, Qp, RcConnect};
use uct_plugin::abi::UctPendingReq;
use uct_plugin::atomic::{Change, Width};
use uct_plugin::traits::EpUser;
use uct_plugin::{
    Atomic, AtomicOp, Completion, Endpoint, Error, Failure, Flush, Former, Iov, Outcome, Pack, PendingGroup,
    Result, Unpack,
};

use crate::atomic::Emulated;
use crate::iface::RcIface;
use crate::link::op::TxOp;
use crate::link::rkey::Rkey;
use crate::link::shared::Shared;
use crate::proto::addr::{EP_LENGTH, EpAddress};
use crate::proto::liveness::Pulse;
use crate::proto::outstanding::OutstandingQueue;
use crate::proto::send_queue::SendQueue;
use crate::proto::window::PeerWindow;

/// How often the kernel is asked to connect while it does not learn the peer's hardware address. Each time it waits for a
/// second, in which it asks about once; one lost packet must not be the end.
const RESOLVE_ATTEMPTS: u32 = 3;

/// A mark of an endpoint: pending requests may wait for it.
pub(crate) const WAITED_FOR: u8 = 1;
/// The host has destroyed it; it lives on until everything under way has ended.
const DESTROYED: u8 = 2;

/// An endpoint.
pub(crate) struct RcEp {
    pub(crate) qp: Qp,
    pub(crate) shared: Rc<Shared>,
    pub(crate) iface: Rc<RcIface>,
    pub(crate) queue: SendQueue,
    /// Its place in the interface's table.
    pub(crate) index: u32,
    /// How many messages the peer may send.
    pub(crate) window: PeerWindow,
    /// What the end of a work request has to look at: [`WAITED_FOR`] and [`DESTROYED`], mostly none.
    pub(crate) marks: Cell<u8>,
    /// It is in the interface's list of those that want anything that all share.
    pub(crate) is_starved: Cell<bool>,
    /// It is in the interface's list of those with something to do.
    pub(crate) is_deferred: Cell<bool>,
    pub(crate) pulse: Pulse,
    failure: Cell<Option<Error>>,
    pub(crate) outstanding: OutstandingQueue<TxOp>,
    pub(crate) emulated: RefCell<VecDeque<Emulated>>,
    /// A step of the first emulated atomic is under way, whose end will go on.
    pub(crate) is_stepping: Cell<bool>,
    pub(crate) group: PendingGroup,
    pub(crate) user: EpUser,
}

impl RcEp {
    /// An endpoint that is not connected yet.
    pub(crate) fn new(iface: &Rc<RcIface>, qp: Qp, index: u32, window: PeerWindow, user: EpUser) -> RcEp {
        RcEp {
            qp,
            shared: Rc::clone(&iface.shared),
            iface: Rc::clone(iface),
            queue: SendQueue::new(iface.shared.limits.tx_queue_len),
            index,
            window,
            marks: Cell::new(0),
            is_starved: Cell::new(false),
            is_deferred: Cell::new(false),
            pulse: Pulse::default(),
            failure: Cell::new(None),
            outstanding: OutstandingQueue::default(),
            emulated: RefCell::default(),
            is_stepping: Cell::new(false),
            group: PendingGroup::default(),
            user,
        }
    }

    /// The failure that ended it, if one did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get()
    }

    /// Lets nothing more be sent, for this reason; answers whether it was the first.
    pub(crate) fn shut(&self, error: Error) -> bool {
        if self.failure.get().is_some() {
            return false;
        }
        self.failure.set(Some(error));
        self.queue.shut();
        true
    }

    pub(crate) fn mark(&self, mark: u8) {
        self.marks.set(self.marks.get() | mark);
    }

    pub(crate) fn unmark(&self, mark: u8) {
        self.marks.set(self.marks.get() & !mark);
    }

    /// Whether the host has destroyed it.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.marks.get() & DESTROYED != 0
    }

    fn own_psn(&self) -> u32 {
        // Differs between the connections of a queue pair number, so that late packets of a former one are not taken.
        (self.qp.number().wrapping_mul(0x9e37_79b9) ^ self.shared.salt) & 0xff_ffff
    }

    fn connect(&self, device: &DeviceAddress, address: &EpAddress) -> Result<(), Failure> {
        let limits = &self.shared.limits;
        if (address.seg_size as usize) < limits.seg_size {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!(
                    "the peer's receive buffers have {} bytes, messages here {}: set the same seg_size in section \
                     rc_verbs on both sides",
                    address.seg_size, limits.seg_size
                ),
            ));
        }
        let port = self.iface.port.borrow();
        let vector =
            port.vector_to(device).map_err(|reason| Failure::new(Error::UNREACHABLE, reason.to_string()))?;
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        let connect = RcConnect {
            vector,
            remote_qp: address.qp,
            path_mtu: port.path_mtu(device).code(),
            receive_psn: address.psn,
            send_psn: self.own_psn(),
            max_reads_out: limits.max_reads_out.min(address.reads_in),
            max_reads_in: limits.max_reads_in,
            min_rnr_timer: limits.rnr_timer,
            timeout: limits.timeout,
            retry_count: limits.retry_count,
            rnr_retry: limits.rnr_retry,
        };
        self.qp.init_rc(port.port.number, port.pkey_index(), access)?;
        self.connect_qp(&connect, device)?;
        self.queue.connect(u32::from(address.window));
        tracing::debug!(
            qp = self.qp.number(),
            peer = address.qp,
            gid = %device.gid,
            window = address.window,
            "rc_verbs: connected"
        );
        Ok(())
    }
}

impl RcEp {
    /// Connects the queue pair. Blocks for [`RESOLVE_ATTEMPTS`] seconds if nobody answers for the peer's address.
    fn connect_qp(&self, connect: &RcConnect, device: &DeviceAddress) -> Result<(), Failure> {
        let mut attempt = 1;
        loop {
            match self.qp.connect_rc(connect) {
                Err(error) if error.is_timeout() && attempt < RESOLVE_ATTEMPTS => {
                    tracing::debug!(qp = self.qp.number(), gid = %device.gid, attempt, %error, "rc_verbs: asked again");
                    attempt += 1;
                }
                Err(error) if error.is_timeout() => {
                    return Err(Failure::new(
                        Error::TIMED_OUT,
                        format!(
                            "nobody answered for the peer's address {} when the kernel asked for it {attempt} times, a \
                             second each: see whether the peer is up and whether ARP or neighbour discovery reaches it \
                             ({error})",
                            device.gid
                        ),
                    ));
                }
                other => return other.map_err(Failure::from),
            }
        }
    }
}

impl Endpoint for RcEp {
    type Iface = RcIface;
    const ADDRESS_LENGTH: usize = EP_LENGTH;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        self.send_short(id, header, payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.send_short_iov(id, iov)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        self.send_bcopy(id, pack, signaled)
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
        self.send_zcopy(id, header, iov, signaled, completion)
    }

    #[inline(always)]
    fn put_short(&self, data: &[u8], remote_address: u64, rkey: &Rkey) -> Result {
        self.write_short(data, remote_address, rkey)
    }

    #[inline(always)]
    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &Rkey) -> Result<usize> {
        self.write_bcopy(pack, remote_address, rkey)
    }

    #[inline(always)]
    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.write_zcopy(iov, remote_address, rkey, completion)
    }

    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &Rkey) -> Result {
        self.read_short(buffer, remote_address, rkey)
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
        self.read_bcopy(unpack, length, remote_address, rkey, completion)
    }

    #[inline(always)]
    fn get_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.read_zcopy(iov, remote_address, rkey, completion)
    }

    #[inline(always)]
    fn atomic_post(&self, atomic: Atomic, remote_address: u64, rkey: &Rkey) -> Result {
        match (atomic.width, atomic.change) {
            (Width::Bits64, Change::Op(AtomicOp::Add, value)) => self.add64(value, remote_address, rkey),
            _ => self.emulate(atomic, None, remote_address, rkey, None).map(drop),
        }
    }

    #[inline(always)]
    fn atomic_fetch(
        &self,
        atomic: Atomic,
        former: Former,
        remote_address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let Atomic { width, change } = atomic;
        match (width, change) {
            (Width::Bits64, Change::Op(AtomicOp::Add, value)) => {
                self.fetch64(value, None, former, remote_address, rkey, completion)
            }
            (Width::Bits64, Change::CompareSwap { compare, swap }) => {
                self.fetch64(swap, Some(compare), former, remote_address, rkey, completion)
            }
            // In pieces, so that it need not lie in memory where it is not emulated.
            (_, Change::Op(op, value)) => {
                self.emulate_op((width, op, value), former, remote_address, rkey, completion)
            }
            _ => self.emulate(atomic, Some(former), remote_address, rkey, completion),
        }
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.has_room_for_message() && !self.is_starved.get() {
            return Err(Error::BUSY);
        }
        self.mark(WAITED_FOR);
        // SAFETY: the caller's promise; the endpoint is in its `Rc` until the group is empty.
        unsafe { self.shared.pending.add(&self.group, request) };
        Ok(())
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        self.shared.pending.purge(&self.group, purge);
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        self.flush_with(flags, completion)
    }

    fn fence(&self) -> Result {
        self.fence_here();
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.check_peer(completion)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        let limits = &self.shared.limits;
        let address = EpAddress {
            reads_in: limits.max_reads_in,
            window: self.window.size(),
            qp: self.qp.number(),
            psn: self.own_psn(),
            seg_size: limits.seg_size as u32,
        };
        buffer.copy_from_slice(&address.pack());
        Ok(())
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        if let Some(error) = self.failure() {
            return Err(Failure::from(error));
        }
        if self.queue.is_connected() {
            return Err(Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected already"));
        }
        let device = DeviceAddress::parse(device_address)
            .map_err(|reason| Failure::new(Error::INVALID_ADDR, reason.to_string()))?;
        let address =
            EpAddress::parse(ep_address).map_err(|reason| Failure::new(Error::INVALID_ADDR, reason))?;
        self.connect(&device, &address)
    }

    fn destroy(self: Rc<Self>) {
        self.mark(DESTROYED);
        self.shared.pending.purge(&self.group, &mut |_| {});
        let iface = Rc::clone(&self.iface);
        iface.bury(&self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_no_bigger_than_it_was() {
        assert!(size_of::<RcEp>() <= 208, "{} bytes", size_of::<RcEp>());
    }
}
