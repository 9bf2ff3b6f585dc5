//! What carries out put, get and atomics of an endpoint ([`Endpoint::Remote`]): the transport itself, or the calling thread.
//!
//! Built on `memory`; `driver` has the third way, by messages.

use ucs::{Error, Result};

use crate::am::Disposition;
use crate::atomic::{Atomic, OldValue};
use crate::completion::{Completion, Outcome};
use crate::iov::Iov;
use crate::memory::{Access, MemoryAccess};
use crate::pack::{Pack, Unpack};
use crate::traits::{Endpoint, RemoteAccess, RkeyOf};

/// The transport: an operation that it does not implement is `UNSUPPORTED`.
#[derive(Debug)]
pub struct ByTransport;

impl<E: Endpoint> RemoteAccess<E> for ByTransport {}

/// The calling thread, in the region that [`Endpoint::region`] returns: all remote memory is memory of this process. Buffered copies
/// need [`Endpoint::buffers`].
#[derive(Debug)]
pub struct ByRegion;

impl<E: Endpoint> RemoteAccess<E> for ByRegion {
    #[inline]
    fn put_short(ep: &E, data: &[u8], address: u64, key: &RkeyOf<E>) -> Result {
        reach(ep, key, address, data.len(), MemoryAccess::REMOTE_PUT)?.write(0, data);
        Ok(())
    }

    fn put_bcopy(ep: &E, pack: Pack, address: u64, key: &RkeyOf<E>) -> Result<usize> {
        let buffers = ep.buffers().ok_or(Error::UNSUPPORTED)?;
        let mut result = Ok(0);
        buffers.with_buffer(|buffer| {
            // SAFETY: the pool's buffers are initialised and hold the `max_bcopy` (`buffers`).
            let length = unsafe { pack.write(buffer.as_ptr(), isize::MAX as usize) };
            result = length.and_then(|length| {
                // SAFETY: as above, and this call's alone.
                let packed = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), length) };
                reach(ep, key, address, length, MemoryAccess::REMOTE_PUT)?.write(0, packed);
                Ok(length)
            });
            Disposition::Consumed
        })?;
        result
    }

    fn put_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RkeyOf<E>,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        reach(ep, key, address, iov.total(), MemoryAccess::REMOTE_PUT)?.gather(iov);
        Ok(Outcome::Done)
    }

    #[inline]
    fn get_short(ep: &E, buffer: &mut [u8], address: u64, key: &RkeyOf<E>) -> Result {
        reach(ep, key, address, buffer.len(), MemoryAccess::REMOTE_GET)?.read(0, buffer);
        Ok(())
    }

    fn get_bcopy(
        ep: &E,
        unpack: Unpack,
        length: usize,
        address: u64,
        key: &RkeyOf<E>,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        let buffers = ep.buffers().ok_or(Error::UNSUPPORTED)?;
        if length > buffers.size() {
            return Err(Error::INVALID_PARAM);
        }
        let mut result = Ok(Outcome::Done);
        buffers.with_buffer(|buffer| {
            // SAFETY: the pool's buffers are initialised and hold as much, and this one is this call's.
            let copy = unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), length) };
            match reach(ep, key, address, length, MemoryAccess::REMOTE_GET) {
                Ok(source) => {
                    source.read(0, copy);
                    // The callback is the application's, and may end the registration.
                    drop(source);
                    unpack.read(copy);
                }
                Err(error) => result = Err(error),
            }
            Disposition::Consumed
        })?;
        result
    }

    fn get_zcopy(
        ep: &E,
        iov: Iov<'_>,
        address: u64,
        key: &RkeyOf<E>,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        let source = reach(ep, key, address, iov.total(), MemoryAccess::REMOTE_GET)?;
        // SAFETY: the memory of a get is writable.
        unsafe { source.scatter(iov) };
        Ok(Outcome::Done)
    }

    #[inline]
    fn atomic_post(ep: &E, atomic: Atomic, address: u64, key: &RkeyOf<E>) -> Result {
        change(ep, atomic, address, key).map(drop)
    }

    #[inline]
    fn atomic_fetch(
        ep: &E,
        atomic: Atomic,
        old: OldValue,
        address: u64,
        key: &RkeyOf<E>,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        let value = change(ep, atomic, address, key)?;
        // SAFETY: the operation ends with this call.
        unsafe { old.write(value) };
        Ok(Outcome::Done)
    }
}

/// Carries out an atomic on a region; returns the old value.
fn change<E: Endpoint>(ep: &E, atomic: Atomic, address: u64, key: &RkeyOf<E>) -> Result<u64> {
    let (region, accessor) = ep.region(key).ok_or(Error::UNSUPPORTED)?;
    region.atomic(accessor, atomic, address)
}

/// A region, checked and held, or what is wrong.
#[inline(always)]
fn reach<'a, E: Endpoint>(
    ep: &'a E,
    key: &'a RkeyOf<E>,
    address: u64,
    length: usize,
    access: MemoryAccess,
) -> Result<Access<'a>> {
    let (region, accessor) = ep.region(key).ok_or(Error::UNSUPPORTED)?;
    region.access(accessor, address, length, access)
}
