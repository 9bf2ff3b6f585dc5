//! Access to remote memory without the peer: loads and stores where it is mapped, otherwise copies by the kernel.
//!
//! Used by endpoints. Built on remote keys, channels and `cma`. [`ShmEp::reach`] chooses the path of every operation. A key whose segment the
//! peer lends is bound at its first operation, which returns `NO_RESOURCE` until the segment has arrived.

use uct_plugin::memory::Access;
use uct_plugin::{Error, Iov, MemoryAccess, Result};

use super::ShmEp;
use crate::iface::count;
use crate::io::cma::{Direction, Process};
use crate::link::blocked::BlockedOn;
use crate::link::connection::Connection;
use crate::link::remote::{Announced, PeerView, Reach, Rkey};

/// Remote memory that this side can access. No callback of the application's runs as long as this exists.
pub(super) enum Direct<'a> {
    /// It is mapped here.
    Mapped(Access<'a>),
    /// The kernel copies from and to this address of the process. The copy is announced to the peer as long as this exists.
    Kernel(Process, u64, Announced<'a>),
}

impl Direct<'_> {
    /// Writes the data to the memory.
    #[inline(always)]
    pub(super) fn write(self, data: &[u8]) -> Result {
        match self {
            Direct::Mapped(memory) => memory.write(0, data),
            Direct::Kernel(process, address, _announced) => {
                let source = data.as_ptr().cast_mut();
                // SAFETY: the kernel only reads from the data.
                unsafe { process.copy_block(Direction::Put, source, data.len(), address)? };
            }
        }
        Ok(())
    }

    /// Reads the memory into the buffer.
    #[inline(always)]
    pub(super) fn read(self, buffer: &mut [u8]) -> Result {
        match self {
            Direct::Mapped(memory) => memory.read(0, buffer),
            Direct::Kernel(process, address, _announced) => {
                let (target, length) = (buffer.as_mut_ptr(), buffer.len());
                // SAFETY: the buffer is writable.
                unsafe { process.copy_block(Direction::Get, target, length, address)? };
            }
        }
        Ok(())
    }

    /// Writes the vector's memory to the memory.
    #[inline(always)]
    pub(super) fn gather(self, iov: Iov<'_>) -> Result {
        match self {
            Direct::Mapped(memory) => memory.gather(iov),
            // SAFETY: the vector's memory is readable.
            Direct::Kernel(process, address, _announced) => unsafe {
                process.copy(Direction::Put, iov, address)?;
            },
        }
        Ok(())
    }

    /// Reads the memory into the vector's memory.
    ///
    /// # Safety
    ///
    /// The vector's memory is writable.
    #[inline(always)]
    pub(super) unsafe fn scatter(self, iov: Iov<'_>) -> Result {
        match self {
            // SAFETY: the caller's promise.
            Direct::Mapped(memory) => unsafe { memory.scatter(iov) },
            // SAFETY: the caller's promise.
            Direct::Kernel(process, address, _announced) => unsafe {
                process.copy(Direction::Get, iov, address)?;
            },
        }
        Ok(())
    }
}

/// The remote memory of an operation: address, length, and the right that it needs.
type Range = (u64, usize, MemoryAccess);

impl ShmEp {
    /// Checks an operation and finds the best path to its memory. `None`: the peer has to carry it out.
    #[inline(always)]
    pub(super) fn reach<'a>(
        &'a self,
        connection: &'a Connection,
        rkey: &Rkey,
        (address, length, access): Range,
    ) -> Result<Option<Direct<'a>>> {
        match rkey.reach(&self.iface.accessor, address, length, access)? {
            Reach::Direct(memory) => Ok(Some(Direct::Mapped(memory))),
            Reach::Remote => self.reach_unmapped(connection, rkey, (address, length, access)),
        }
    }

    /// As [`reach`](Self::reach), for a key that is not bound.
    #[inline(never)]
    fn reach_unmapped<'a>(
        &'a self,
        connection: &'a Connection,
        rkey: &Rkey,
        range: Range,
    ) -> Result<Option<Direct<'a>>> {
        let channel = &connection.channel;
        channel.poll_welcome();
        let Some(peer) = channel.view() else { return Err(self.blocked(BlockedOn::Welcome)) };
        if !rkey.is_live(&peer) {
            return Err(Error::INVALID_PARAM);
        }
        if rkey.has_segment()
            && let Some(segment) =
                channel.segment(rkey.proof(), rkey.length()).map_err(|on| self.blocked(on))?
        {
            rkey.bind(&peer, segment)?;
            count(&self.iface.counts.bound);
            let (address, length, access) = range;
            return match rkey.reach(&self.iface.accessor, address, length, access)? {
                Reach::Direct(memory) => Ok(Some(Direct::Mapped(memory))),
                // Another thread is about to finish binding the key.
                Reach::Remote => Err(self.blocked(BlockedOn::Segment(rkey.proof().0))),
            };
        }
        self.reach_by_kernel(connection, rkey, &peer, range.0)
    }

    fn reach_by_kernel<'a>(
        &self,
        connection: &'a Connection,
        rkey: &Rkey,
        peer: &PeerView<'_>,
        address: u64,
    ) -> Result<Option<Direct<'a>>> {
        let Some(process) = connection.channel.cma() else {
            count(&self.iface.counts.by_peer);
            return Ok(None);
        };
        let announced = connection.channel.announce(rkey.remote.secret).ok_or(Error::CONNECTION_RESET)?;
        // The registration may have ended before the announcement.
        if !rkey.is_live(peer) {
            return Err(Error::INVALID_PARAM);
        }
        count(&self.iface.counts.by_kernel);
        Ok(Some(Direct::Kernel(process, address, announced)))
    }
}
