//! Operations on remote memory that is not mapped in this process: the key is bound late, the kernel copies, or the peer carries the
//! operation out.
//!
//! Used by endpoints. Built on channels, `cma` and the emulation. Each call first looks for a better path. The first operation of a key may
//! therefore return `NO_RESOURCE` while its segment is requested, and later ones are direct.

use uct_plugin::rma::{Destination, Notify, Operation, Request};
use uct_plugin::{Atomic, Completion, Endpoint, Error, Iov, MemoryAccess, Outcome, Result, Unpack};

use super::ShmEp;
use crate::iface::count;
use crate::io::cma::{Direction, Process};
use crate::link::blocked::BlockedOn;
use crate::link::connection::Connection;
use crate::link::remote::{Announced, Reach, Rkey};

/// How an operation on remote memory is carried out.
enum Path<'a> {
    /// Directly: the key is bound now.
    Direct,
    /// The kernel copies. The copy is announced to the peer as long as the second part exists.
    Kernel(Process, Announced<'a>),
    /// The peer carries it out, on request through the ring.
    Ring,
}

impl ShmEp {
    /// The best path to the memory of a key.
    #[inline(always)]
    fn path<'a>(&self, connection: &'a Connection, rkey: &Rkey) -> Result<Path<'a>> {
        // The usual case: nothing can be mapped, and the kernel copies.
        if let Some(process) = connection.channel.known_process()
            && !rkey.has_segment()
            && connection.channel.view().is_some_and(|peer| rkey.is_of(&peer))
            && let Some(announced) = connection.channel.announce(rkey.remote.secret)
            && connection.channel.view().is_some_and(|peer| rkey.is_live(&peer))
        {
            count(&self.iface.counts.by_kernel);
            return Ok(Path::Kernel(process, announced));
        }
        self.find_path(connection, rkey)
    }

    #[cold]
    #[inline(never)]
    fn find_path<'a>(&self, connection: &'a Connection, rkey: &Rkey) -> Result<Path<'a>> {
        connection.channel.look_for_welcome();
        let Some(peer) = connection.channel.view() else { return Err(self.blocked(BlockedOn::Welcome)) };
        if !rkey.is_live(&peer) {
            return Err(Error::INVALID_PARAM);
        }
        if rkey.has_segment() {
            let segment =
                connection.channel.segment(rkey.proof(), rkey.length()).map_err(|on| self.blocked(on))?;
            if let Some(segment) = segment {
                rkey.bind(&peer, segment)?;
                count(&self.iface.counts.bound);
                return Ok(Path::Direct);
            }
        }
        Ok(match connection.channel.cma() {
            Some(process) => {
                let announced =
                    connection.channel.announce(rkey.remote.secret).ok_or(Error::CONNECTION_RESET)?;
                // The registration may have ended before the announcement.
                if !rkey.is_live(&peer) {
                    return Err(Error::INVALID_PARAM);
                }
                count(&self.iface.counts.by_kernel);
                Path::Kernel(process, announced)
            }
            None => {
                count(&self.iface.counts.by_peer);
                Path::Ring
            }
        })
    }

    /// Checks that an operation on the key can start, before data are packed for it.
    pub(crate) fn prepare_remote(&self, connection: &Connection, rkey: &Rkey) -> Result {
        match self.path(connection, rkey)? {
            Path::Direct | Path::Kernel(..) => Ok(()),
            Path::Ring => {
                if !connection.emulation.has_room() {
                    return Err(self.blocked(BlockedOn::Window));
                }
                connection
                    .channel
                    .reserve(self.iface.limits.bulk)
                    .map(|block| connection.channel.lane.sender.cancel(block))
                    .map_err(|on| self.blocked(on))
            }
        }
    }

    #[inline(never)]
    pub(crate) fn remote_put_short(&self, data: &[u8], address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        match self.path(connection, rkey)? {
            Path::Direct => self.put_short(data, address, rkey),
            Path::Kernel(process, _announced) => {
                let source = data.as_ptr().cast_mut();
                // SAFETY: the kernel only reads from the data.
                unsafe { process.copy_block(Direction::Put, source, data.len(), address) }
            }
            Path::Ring => {
                if data.len() > self.iface.limits.remote {
                    if !connection.emulation.has_room() {
                        return Err(self.blocked(BlockedOn::Window));
                    }
                    connection.emulation.put_copied(
                        &connection.channel,
                        self.member.number,
                        data,
                        (&rkey.remote, address),
                    );
                    return Ok(());
                }
                let request = connection.emulation.initiator.put(&rkey.remote, address, data.len());
                let request = self.numbered(connection, request)?;
                let fill = |target: *mut u8| {
                    // SAFETY: `post` gives room for the data.
                    unsafe { target.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
                };
                let operation = Operation::Acknowledged(Notify::Nobody);
                connection
                    .emulation
                    .post(&connection.channel, self.member.number, &request, operation, data.len(), fill)
                    .map_err(|on| self.blocked(on))
            }
        }
    }

    pub(crate) fn remote_put_zcopy(
        &self,
        connection: &Connection,
        iov: Iov<'_>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        match self.path(connection, rkey)? {
            Path::Direct => self.put_zcopy(iov, address, rkey, completion),
            Path::Kernel(process, _announced) => {
                // SAFETY: the vector's memory is readable.
                unsafe { process.copy(Direction::Put, iov, address)? };
                Ok(Outcome::Done)
            }
            Path::Ring => {
                if !connection.emulation.has_room() {
                    return Err(self.blocked(BlockedOn::Window));
                }
                let (what, notify) = ((&rkey.remote, address), completion.into());
                // SAFETY: the host keeps the memory valid until the completion, or until the endpoint is destroyed.
                unsafe {
                    connection.emulation.put_large(&connection.channel, self.member.number, iov, what, notify)
                };
                Ok(Outcome::InProgress)
            }
        }
    }

    #[inline(never)]
    pub(crate) fn remote_get_short(&self, buffer: &mut [u8], address: u64, rkey: &Rkey) -> Result {
        let connection = self.enter()?;
        match self.path(connection, rkey)? {
            Path::Direct => self.get_short(buffer, address, rkey),
            Path::Kernel(process, _announced) => {
                // SAFETY: the buffer is writable.
                unsafe { process.copy_block(Direction::Get, buffer.as_mut_ptr(), buffer.len(), address) }
            }
            Path::Ring => {
                let what = (&rkey.remote, address);
                let is_current = !self.iface.is_working.get() || self.iface.is_serving.get();
                match connection.emulation.get_ahead(
                    &connection.channel,
                    self.member.number,
                    what,
                    buffer,
                    is_current,
                ) {
                    Ok(result) => result,
                    Err(on) => Err(self.blocked(on)),
                }
            }
        }
    }

    pub(crate) fn remote_get_bcopy(
        &self,
        connection: &Connection,
        unpack: Unpack,
        length: usize,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        match self.path(connection, rkey)? {
            Path::Direct => self.get_bcopy(unpack, length, address, rkey, completion),
            Path::Kernel(process, announced) => {
                self.iface.with_scratch(|scratch| {
                    let data = &mut scratch[..length];
                    // SAFETY: the buffer is writable.
                    unsafe { process.copy_block(Direction::Get, data.as_mut_ptr(), length, address)? };
                    drop(announced);
                    unpack.read(data);
                    Ok(Outcome::Done)
                })
            }
            Path::Ring => {
                self.get_by_ring(connection, Destination::unpack(unpack), length, (rkey, address), completion)
            }
        }
    }

    pub(crate) fn remote_get_zcopy(
        &self,
        connection: &Connection,
        iov: Iov<'_>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        match self.path(connection, rkey)? {
            Path::Direct => self.get_zcopy(iov, address, rkey, completion),
            Path::Kernel(process, _announced) => {
                // SAFETY: the vector's memory is writable, as that of a get is.
                unsafe { process.copy(Direction::Get, iov, address)? };
                Ok(Outcome::Done)
            }
            Path::Ring => {
                // SAFETY: the host keeps the memory valid until the completion, or until the endpoint is destroyed.
                let destination = unsafe { Destination::of_iov(iov) };
                self.get_by_ring(connection, destination, iov.total(), (rkey, address), completion)
            }
        }
    }

    fn get_by_ring(
        &self,
        connection: &Connection,
        destination: Destination,
        length: usize,
        (rkey, address): (&Rkey, u64),
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if !connection.emulation.has_room() {
            return Err(self.blocked(BlockedOn::Window));
        }
        let what = (&rkey.remote, address);
        connection.emulation.get(
            &connection.channel,
            self.member.number,
            destination,
            length,
            what,
            completion.into(),
        )?;
        Ok(Outcome::InProgress)
    }

    /// A request that the engine has numbered. Without a number it is blocked on the window.
    fn numbered(&self, connection: &Connection, request: Result<Request>) -> Result<Request> {
        if !connection.emulation.has_room() {
            return Err(self.blocked(BlockedOn::Window));
        }
        request
    }

    /// An atomic that the peer carries out, because its memory is not mapped in this process.
    pub(crate) fn atomic_by_ring(
        &self,
        connection: &Connection,
        atomic: Atomic,
        address: u64,
        rkey: &Rkey,
        operation: Operation,
    ) -> Result {
        let request = connection.emulation.initiator.atomic(atomic, &rkey.remote, address, &operation);
        let request = self.numbered(connection, request)?;
        connection
            .emulation
            .post(&connection.channel, self.member.number, &request, operation, 0, |_| ())
            .map_err(|on| self.blocked(on))
    }

    /// Carries an atomic out on mapped memory. Returns `None` if the peer has to do it.
    pub(crate) fn atomic_here(
        &self,
        connection: &Connection,
        atomic: Atomic,
        address: u64,
        rkey: &Rkey,
    ) -> Result<Option<u64>> {
        atomic.check_alignment(address)?;
        let reach =
            || rkey.reach(&self.iface.accessor, address, atomic.width.bytes(), MemoryAccess::REMOTE_ATOMIC);
        if let Reach::Direct(cell) = reach()? {
            return cell.atomic(atomic).map(Some);
        }
        match self.path(connection, rkey)? {
            Path::Direct => match reach()? {
                Reach::Direct(cell) => cell.atomic(atomic).map(Some),
                Reach::Remote => Ok(None),
            },
            Path::Kernel(..) | Path::Ring => Ok(None),
        }
    }
}
