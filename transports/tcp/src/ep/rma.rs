//! Put, get and atomics of an endpoint: requests that the peer's progress carries out (`uct_plugin::rma`).

use std::ptr::NonNull;

use ucs::Error;
use uct_plugin::memory::RemoteKey;
use uct_plugin::rma::{Destination, Notify, Operation, REQUEST_HEADER, Request, Waiter};
use uct_plugin::{Atomic, Completion, Iov, MemoryAccess, Outcome, Pack, Result, Unpack};

use super::TcpEp;
use crate::io::pieces::{Memory, Part};
use crate::link::connection::part::RequestHeads;
use crate::link::connection::{Conn, State};
use crate::md::OWN;
use crate::proto::wire::FRAME_HEADER;

/// Bytes ahead of the data of a put.
const HEADS: usize = FRAME_HEADER + REQUEST_HEADER;

impl TcpEp {
    /// The connection, if the peer serves remote memory access and no operation overtakes another.
    fn capable(&self) -> Result<&Conn> {
        let conn = self.sendable()?;
        if conn.state() == State::Established && !conn.serves_rma() {
            return Err(Error::UNSUPPORTED);
        }
        Ok(conn)
    }

    fn check_put(&self) -> Result {
        if self.iface.config.put_enable { Ok(()) } else { Err(Error::UNSUPPORTED) }
    }

    pub(super) fn put_copied(&self, data: &[u8], address: u64, key: &RemoteKey) -> Result {
        self.check_put()?;
        if data.len() > self.iface.shared.seg_size() {
            return Err(Error::INVALID_PARAM);
        }
        let request = self.capable()?.initiator.put(key, address, data.len())?;
        self.send_put(&request, Notify::Nobody, Memory::from(data))
    }

    /// Sends a put of data that are copied.
    fn send_put(&self, request: &Request, notify: Notify, data: impl Part) -> Result {
        let conn = self.capable()?;
        let heads = RequestHeads(request, request.length as usize);
        conn.send_frame(&self.iface.shared, (heads, data))?;
        conn.initiator.posted(self.member.owner, request, Operation::Acknowledged(notify));
        Ok(())
    }

    pub(super) fn put_packed(&self, pack: Pack, address: u64, key: &RemoteKey) -> Result<usize> {
        self.check_put()?;
        let conn = self.capable()?;
        conn.initiator.admit()?;
        let mut request = None;
        let length = conn.send_packed(&self.iface.shared, pack, |length| {
            let put = conn.initiator.put(key, address, length)?;
            Ok(put_heads(request.insert(put)))
        })?;
        if let Some(request) = request {
            conn.initiator.posted(self.member.owner, &request, Operation::Acknowledged(Notify::Nobody));
        }
        Ok(length)
    }

    pub(super) fn put_vector(
        &self,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.check_put()?;
        let length = iov.total();
        if length > self.iface.shared.max_message() || iov.entries().len() > self.iface.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        let conn = self.capable()?;
        let request = conn.initiator.put(key, address, length)?;
        if length <= self.iface.sendv_thresh {
            self.send_put(&request, completion.into(), iov)?;
        } else {
            conn.send_vector(&self.iface.shared, &put_heads(&request), iov, self.member.owner, None)?;
            conn.initiator.posted(self.member.owner, &request, Operation::Acknowledged(completion.into()));
        }
        Ok(Outcome::InProgress)
    }

    /// Reads and waits: progress runs inside, so handlers and completions may run too.
    ///
    /// A peer of this very process may be driven by this very thread, which would wait for itself: its memory is read here,
    /// behind everything that was asked for before.
    pub(super) fn get_blocking(&self, buffer: &mut [u8], address: u64, key: &RemoteKey) -> Result {
        if buffer.len() > self.iface.shared.seg_size() {
            return Err(Error::INVALID_PARAM);
        }
        self.capable()?;
        if self.iface.shared.agenda.is_packing() {
            // What would have to come does not come until the message is packed.
            return Err(Error::NO_RESOURCE);
        }
        let conn = self.connection()?.clone();
        if let Some(md) = OWN.find(key.identity) {
            key.check(address, buffer.len(), MemoryAccess::REMOTE_GET)?;
            if conn.has_unfinished() {
                return Err(Error::NO_RESOURCE);
            }
            let (accessor, access) = (self.iface.shared.accessor(), MemoryAccess::REMOTE_GET);
            md.regions.access(accessor, key.place(), address, buffer.len(), access)?.read(0, buffer);
            return Ok(());
        }
        let waiter = Waiter::default();
        let start = NonNull::from(&mut *buffer).cast();
        // SAFETY: the get has ended, or is abandoned, when this returns.
        let destination = unsafe { Destination::block(start, buffer.len()) };
        self.start_get(&conn, destination, buffer.len(), address, key, Notify::Waiter(waiter.clone()))?;
        let limit = self.iface.config.get_timeout.to_duration();
        let outcome = self.iface.wait_for(limit, || waiter.result().is_some());
        match waiter.result() {
            Some(result) => result,
            None => {
                conn.initiator.abandon(&waiter);
                outcome
            }
        }
    }

    pub(super) fn get_unpacked(
        &self,
        unpack: Unpack,
        length: usize,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if length > self.iface.shared.seg_size() {
            return Err(Error::INVALID_PARAM);
        }
        let conn = self.capable()?;
        self.start_get(conn, Destination::unpack(unpack), length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    pub(super) fn get_vector(
        &self,
        iov: Iov<'_>,
        address: u64,
        key: &RemoteKey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let length = iov.total();
        if length > self.iface.shared.max_message() || iov.entries().len() > self.iface.max_iov {
            return Err(Error::INVALID_PARAM);
        }
        let conn = self.capable()?;
        // SAFETY: the host keeps the memory of an operation valid and writable until it has ended.
        let destination = unsafe { Destination::of_iov(iov) };
        self.start_get(conn, destination, length, address, key, completion.into())?;
        Ok(Outcome::InProgress)
    }

    fn start_get(
        &self,
        conn: &Conn,
        destination: Destination,
        length: usize,
        address: u64,
        key: &RemoteKey,
        notify: Notify,
    ) -> Result {
        if let Some(error) = conn.error() {
            return Err(error);
        }
        conn.initiator.get(self.member.owner, destination, length, key, address, notify)?;
        conn.pump(&self.iface.shared);
        Ok(())
    }

    pub(super) fn atomic(
        &self,
        atomic: Atomic,
        address: u64,
        key: &RemoteKey,
        operation: Operation,
    ) -> Result {
        let conn = self.capable()?;
        let request = conn.initiator.atomic(atomic, key, address, &operation)?;
        conn.send_frame(&self.iface.shared, RequestHeads(&request, 0))?;
        conn.initiator.posted(self.member.owner, &request, operation);
        Ok(())
    }
}

/// The heads of a put, which has no operands.
fn put_heads(put: &Request) -> [u8; HEADS] {
    let mut heads = [0; HEADS];
    // SAFETY: as long as the heads of a put are.
    unsafe { RequestHeads(put, put.length as usize).write(&mut heads) };
    heads
}
