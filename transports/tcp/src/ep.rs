//! Endpoints: what an application calls. Each checks, puts a frame together where it is sent from, and hands it over.

mod rma;

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::rc::Rc;

use ucs::Error;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::{
    Completion, Endpoint, EpParams, EpStatus, Failure, Flush, Iov, Outcome, Pack, PendingGroup, Result,
    SocketSide,
};

use uct_plugin::memory::RemoteKey;
use uct_plugin::rma::{ByRequests, RemoteAccess};

use crate::iface::TcpIface;
use crate::link::connection::{Conn, State};
use crate::link::member::Member;
use crate::link::shared::MAX_HEADER;
use crate::proto::addr::{self, DeviceAddress, IfaceAddress};
use crate::proto::wire::{FRAME_HEADER, frame_header};

/// An endpoint of `tcp`.
pub(crate) struct TcpEp {
    iface: Rc<TcpIface>,
    conn: OnceCell<Rc<Conn>>,
    group: PendingGroup,
    member: Rc<Member>,
}

impl TcpEp {
    pub(crate) fn create(iface: &Rc<TcpIface>, params: EpParams<'_>) -> Result<Rc<TcpEp>, Failure> {
        let conn = match params.peer {
            None => None,
            Some(peer) => {
                let device = DeviceAddress::read(peer.device).map_err(invalid)?;
                let address = IfaceAddress::read(peer.iface).map_err(invalid)?;
                Some(iface.conn_to(&device, &address)?)
            }
        };
        Ok(TcpEp::with(iface, params, conn))
    }

    /// Over a socket that is connected already.
    pub(crate) fn create_over(
        iface: &Rc<TcpIface>,
        params: EpParams<'_>,
        socket: OwnedFd,
        side: SocketSide,
    ) -> Result<Rc<TcpEp>, Failure> {
        let peer = params.peer.ok_or_else(|| invalid("the peer's address is missing".to_owned()))?;
        let address = IfaceAddress::read(peer.iface).map_err(invalid)?;
        let conn = iface.conn_over(&address, socket, side)?;
        Ok(TcpEp::with(iface, params, Some(conn)))
    }

    fn with(iface: &Rc<TcpIface>, params: EpParams<'_>, conn: Option<Rc<Conn>>) -> Rc<TcpEp> {
        let ep = Rc::new(TcpEp {
            iface: Rc::clone(iface),
            conn: OnceCell::new(),
            group: PendingGroup::default(),
            member: Rc::new(Member { owner: iface.shared.next_owner(), status: EpStatus::new(params.user) }),
        });
        if let Some(conn) = conn {
            ep.bind(conn);
        }
        ep
    }

    fn bind(&self, conn: Rc<Conn>) {
        conn.attach(&self.iface.shared, Rc::downgrade(&self.member));
        // Only an endpoint without a connection gets one.
        let _ = self.conn.set(conn);
    }

    fn connection(&self) -> Result<&Rc<Conn>> {
        self.conn.get().ok_or(Error::NOT_CONNECTED)
    }

    /// The connection, if a send does not overtake what is queued.
    #[inline(always)]
    fn sendable(&self) -> Result<&Conn> {
        let Some(conn) = self.conn.get() else { return Err(Error::NOT_CONNECTED) };
        if conn.pending.must_wait(&self.group) {
            return Err(conn.error().unwrap_or(Error::NO_RESOURCE));
        }
        Ok(conn)
    }
}

fn invalid(reason: String) -> Failure {
    Failure::new(Error::INVALID_ADDR, reason)
}

impl Endpoint for TcpEp {
    type Iface = TcpIface;
    type Remote = ByRequests;
    const ADDRESS_LENGTH: usize = addr::EP;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let iface = &*self.iface;
        if payload.len() > iface.shared.seg_size() - size_of::<u64>() {
            return Err(Error::INVALID_PARAM);
        }
        let frame = frame_header(id, size_of::<u64>() + payload.len());
        let head = [frame.to_ne_bytes(), header.to_ne_bytes()];
        self.sendable()?.send_frame(&iface.shared, head.as_flattened(), payload)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        if iov.total() > self.iface.shared.seg_size() {
            return Err(Error::INVALID_PARAM);
        }
        let head = frame_header(id, iov.total()).to_ne_bytes();
        self.sendable()?.send_frame(&self.iface.shared, &head, iov)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        self.sendable()?
            .send_packed(&self.iface.shared, pack, |length| Ok(frame_header(id, length).to_ne_bytes()))
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        _signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let iface = &*self.iface;
        let length = header.len().saturating_add(iov.total());
        if header.len() > MAX_HEADER
            || length > iface.shared.max_message()
            || iov.entries().len() > iface.max_iov
        {
            return Err(Error::INVALID_PARAM);
        }
        let conn = self.sendable()?;
        let mut head = [0; FRAME_HEADER + MAX_HEADER];
        let head = &mut head[..FRAME_HEADER + header.len()];
        head[..FRAME_HEADER].copy_from_slice(&frame_header(id, length).to_ne_bytes());
        head[FRAME_HEADER..].copy_from_slice(header);
        if iov.entries().first().is_some_and(|entry| entry.memh.is_null()) {
            // Slices of the application, valid for the call.
            return conn.send_gathered(&iface.shared, head, iov).map(|()| Outcome::Done);
        }
        if length <= iface.sendv_thresh {
            return conn.send_frame(&iface.shared, head, iov).map(|()| Outcome::Done);
        }
        conn.send_vector(&iface.shared, head, iov, self.member.owner, completion)
    }

    /// A short put is copied, a long one is sent from the memory of the vector.
    fn put_zcopy(
        &self,
        iov: Iov<'_>,
        remote_address: u64,
        rkey: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if iov.total() <= self.iface.sendv_thresh {
            return ByRequests::put_zcopy(self, iov, remote_address, rkey, completion);
        }
        self.put_in_place(iov, remote_address, rkey, completion)
    }

    fn get_short(&self, buffer: &mut [u8], remote_address: u64, rkey: &RemoteKey) -> Result {
        if self.iface.shared.agenda.is_packing() {
            // The response cannot arrive before the message is packed.
            return Err(Error::NO_RESOURCE);
        }
        ByRequests::get_short(self, buffer, remote_address, rkey)
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        let conn = self.connection()?;
        if let State::Closed(error) = conn.state() {
            return Err(error);
        }
        let has_room = conn.has_room(&self.iface.shared) && conn.initiator.admit().is_ok();
        if has_room && self.group.is_empty() {
            return Err(Error::BUSY);
        }
        // SAFETY: the caller's promise; the group is a part of this endpoint, which its requests are purged ahead of.
        unsafe { conn.pending.add(&self.group, request) };
        conn.note_pending(&self.iface.shared);
        Ok(())
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        if let Some(conn) = self.conn.get() {
            conn.pending.purge(&self.group, purge);
        }
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        let Some(conn) = self.conn.get() else { return Ok(Outcome::Done) };
        if flags.cancel {
            conn.cancel(&self.iface.shared, self.member.owner);
            return Ok(Outcome::Done);
        }
        if !self.group.is_empty() {
            return Err(conn.error().unwrap_or(Error::NO_RESOURCE));
        }
        conn.flush_for(&self.iface.shared, self.member.owner, completion)
    }

    fn fence(&self) -> Result {
        // A connection delivers in order, and a target carries out in order.
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        let conn = self.connection()?;
        if let Some(error) = conn.error() {
            return Err(error);
        }
        conn.probe(&self.iface.shared);
        let _ = completion;
        Ok(Outcome::Done)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.iface.address.write(&mut buffer[..addr::IFACE]);
        buffer[addr::IFACE..].copy_from_slice(&u64::from(self.member.owner).to_le_bytes());
        Ok(())
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        let device = DeviceAddress::read(device_address).map_err(invalid)?;
        let (address, _) = IfaceAddress::read_ep(ep_address).map_err(invalid)?;
        match self.conn.get() {
            None => {
                self.bind(self.iface.conn_to(&device, &address)?);
                Ok(())
            }
            Some(conn) if conn.destination() == Some(&address) => Ok(()),
            Some(_) => Err(Failure::new(Error::ALREADY_EXISTS, "the endpoint is connected to another peer")),
        }
    }

    fn destroy(self: Rc<Self>) {
        self.member.status.close();
        if let Some(conn) = self.conn.get() {
            conn.detach(&self.iface.shared, &self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_no_larger_than_ucxs() {
        assert!(size_of::<TcpEp>() <= 144, "{} bytes", size_of::<TcpEp>());
    }

    #[test]
    fn interfaces_and_connections_are_small() {
        assert!(size_of::<TcpIface>() <= 1264, "{} bytes", size_of::<TcpIface>());
        assert!(size_of::<Conn>() <= 496, "{} bytes", size_of::<Conn>());
    }
}
