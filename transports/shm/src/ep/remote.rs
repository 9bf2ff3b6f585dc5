//! Operations on remote memory that the peer carries out, on request through the ring.
//!
//! Used by endpoints, for memory that this side cannot access ([`super::direct`]). Built on the emulation.

use uct_plugin::rma::{Destination, Notify, Operation, Request};
use uct_plugin::{Atomic, Completion, Iov, Outcome, Result};

use super::ShmEp;
use crate::link::blocked::BlockedOn;
use crate::link::connection::Connection;
use crate::link::remote::Rkey;

impl ShmEp {
    /// Checks that a request can be sent, before data are packed for it.
    pub(super) fn find_room_for_request(&self, connection: &Connection) -> Result {
        self.find_window(connection)?;
        self.find_room(&connection.channel)
    }

    fn find_window(&self, connection: &Connection) -> Result {
        if connection.emulation().has_room() { Ok(()) } else { Err(self.blocked(BlockedOn::Window)) }
    }

    #[inline(never)]
    pub(super) fn remote_put_short(
        &self,
        connection: &Connection,
        data: &[u8],
        address: u64,
        rkey: &Rkey,
    ) -> Result {
        self.find_window(connection)?;
        let (channel, emulation) = (&connection.channel, connection.emulation());
        if data.len() > self.iface.limits.remote {
            emulation.put_copied(channel, self.member.number, data, (&rkey.remote, address));
            return Ok(());
        }
        let request = emulation.initiator.put(&rkey.remote, address, data.len())?;
        let fill = |target: *mut u8| {
            // SAFETY: `post` gives room for the data.
            unsafe { target.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        };
        let operation = Operation::Acknowledged(Notify::Nobody);
        self.post(connection, &request, operation, data.len(), fill)
    }

    pub(super) fn remote_put_zcopy(
        &self,
        connection: &Connection,
        iov: Iov<'_>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.find_window(connection)?;
        let (channel, emulation) = (&connection.channel, connection.emulation());
        let (what, notify) = ((&rkey.remote, address), completion.into());
        // SAFETY: the host keeps the memory valid until the completion, or until the endpoint is destroyed.
        unsafe { emulation.put_large(channel, self.member.number, iov, what, notify) };
        Ok(Outcome::InProgress)
    }

    #[inline(never)]
    pub(super) fn remote_get_short(
        &self,
        connection: &Connection,
        buffer: &mut [u8],
        address: u64,
        rkey: &Rkey,
    ) -> Result {
        let (channel, emulation) = (&connection.channel, connection.emulation());
        let is_outside_handlers = !self.iface.is_working.get() || self.iface.is_serving.get();
        let what = (&rkey.remote, address);
        emulation
            .get_ahead(channel, self.member.number, what, buffer, is_outside_handlers)
            .unwrap_or_else(|on| Err(self.blocked(on)))
    }

    pub(super) fn remote_get(
        &self,
        connection: &Connection,
        destination: Destination,
        length: usize,
        (rkey, address): (&Rkey, u64),
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.find_window(connection)?;
        let (channel, emulation) = (&connection.channel, connection.emulation());
        let what = (&rkey.remote, address);
        emulation.get(channel, self.member.number, destination, length, what, completion.into())?;
        Ok(Outcome::InProgress)
    }

    pub(super) fn remote_atomic(
        &self,
        connection: &Connection,
        atomic: Atomic,
        address: u64,
        rkey: &Rkey,
        operation: Operation,
    ) -> Result {
        self.find_window(connection)?;
        let request = connection.emulation().initiator.atomic(atomic, &rkey.remote, address, &operation)?;
        self.post(connection, &request, operation, 0, |_| ())
    }

    fn post(
        &self,
        connection: &Connection,
        request: &Request,
        operation: Operation,
        length: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result {
        let (channel, emulation) = (&connection.channel, connection.emulation());
        emulation
            .post(channel, self.member.number, request, operation, length, fill)
            .map_err(|on| self.blocked(on))
    }
}
