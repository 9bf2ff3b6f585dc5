//! Put and get.

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use ucs::sync::fixed::{AtomicU64, Ordering};

use ucs::{Error, Result};

use super::am::held;
use super::packing::{PackBuffer, Packing};
use super::{Ep, EpInner};
use crate::completion::{Completion, Held, Posted};
use crate::latency::Kind;
use crate::md::{MemorySlice, RemoteKey};
use crate::worker::WorkerInner;

impl EpInner {
    /// Accounts for an operation that may stay in flight.
    #[inline]
    pub(super) fn posted<I>(
        &self,
        status: i32,
        completion: &Completion,
        kind: Kind,
        bytes: usize,
        key: Option<&RemoteKey>,
        held: impl FnOnce() -> I,
    ) -> Result<Posted>
    where
        I: IntoIterator<Item = Held>,
    {
        let posted = completion.started(status, key, held);
        completion.measure(posted, kind, self.iface.histograms());
        let counter = self.counters.of(kind);
        match posted {
            Ok(_) => counter.add(bytes),
            Err(_) => self.refused(status, counter, bytes)?,
        }
        posted
    }

    /// Any put but that of an aligned word of a window. Cold, which makes the path of that word three instructions shorter.
    #[cold]
    #[inline(never)]
    fn put_short(&self, data: &[u8], remote_address: u64, key: &RemoteKey) -> Result {
        if key.put_bytes(&self.gate, remote_address, data).is_some() {
            self.counters.put.add(data.len());
            return Ok(());
        }
        self.same_domain(key.domain())?;
        key.look_again();
        let slot = slot!(self.put_short);
        // SAFETY: the endpoint is alive, the data are valid for the call, the key is of the endpoint's domain.
        let status =
            unsafe { slot(self.raw.get(), data.as_ptr().cast(), data.len(), remote_address, key.raw()) };
        self.counted(status, &self.counters.put, data.len())
    }

    /// As [`EpInner::put_short`].
    #[cold]
    #[inline(never)]
    fn get_short(&self, buffer: &mut [u8], remote_address: u64, key: &RemoteKey) -> Result {
        if key.get_bytes(&self.gate, remote_address, buffer).is_some() {
            self.counters.get.add(buffer.len());
            return Ok(());
        }
        self.same_domain(key.domain())?;
        key.look_again();
        let slot = slot!(self.get_short);
        // SAFETY: the endpoint is alive, the buffer is valid for the call, the key is of the endpoint's domain.
        let status = unsafe {
            slot(self.raw.get(), buffer.as_mut_ptr().cast(), buffer.len(), remote_address, key.raw())
        };
        self.counted(status, &self.counters.get, buffer.len())
    }
}

impl Ep {
    /// Writes a slice to remote memory. Its bytes are taken inside the call, so it may be used again at once. Does not block.
    ///
    /// Where remote memory is reached directly (`self`, shared memory) that is one copy, of any length. Elsewhere it is
    /// [`Ep::put_short`] up to [`crate::OpLimits::max_short`], then [`Ep::put_bcopy`] up to [`crate::OpLimits::max_bcopy`].
    ///
    /// # Errors
    /// As [`Ep::put_short`]; `INVALID_PARAM` beyond both limits.
    #[inline]
    pub fn put_from(&self, source: &[u8], remote_address: u64, key: &RemoteKey) -> Result {
        let limits = &self.inner.iface.attributes().put;
        // What is beyond both limits is refused by `put_short`.
        if source.len() <= limits.max_short || source.len() > limits.max_bcopy {
            return self.put_short(source, remote_address, key);
        }
        self.put_packed(source, remote_address, key)
    }

    #[inline(never)]
    fn put_packed(&self, source: &[u8], remote_address: u64, key: &RemoteKey) -> Result {
        let pack = |buffer: &mut [u8]| {
            buffer[..source.len()].copy_from_slice(source);
            source.len()
        };
        self.put_bcopy(remote_address, key, pack).map(drop)
    }

    /// Writes to remote memory; the bytes are copied. Limit: [`crate::OpLimits::max_short`], which is more than any slice has where remote
    /// memory is reached directly (`self`, shared memory).
    ///
    /// # Errors
    /// [`ucs::Error::NO_RESOURCE`]; `OUT_OF_RANGE` or `INVALID_PARAM` where address or key is known to be wrong, else
    /// the endpoint's flush or failure reports it; `INVALID_PARAM` beyond the limit or for a key of another domain.
    #[inline]
    pub fn put_short(&self, data: &[u8], remote_address: u64, key: &RemoteKey) -> Result {
        if let Ok(data) = <[u8; 8]>::try_from(data)
            && let Some(()) = self.put_word(data, remote_address, key)
        {
            return Ok(());
        }
        self.inner.put_short(data, remote_address, key)
    }

    /// Writes an aligned word of a window; `None` where there is none.
    #[inline]
    pub(crate) fn put_word(&self, data: [u8; 8], remote_address: u64, key: &RemoteKey) -> Option<()> {
        let ep = &*self.inner;
        // SYNC: a thread of the peer that sees the word sees what was put ahead of it.
        let store = |word: &AtomicU64| word.store(u64::from_ne_bytes(data), Ordering::Release);
        key.put_word(&ep.gate, remote_address, store)?;
        ep.counters.put.add_word();
        Some(())
    }

    /// Writes what `pack` produces, as in [`Ep::am_bcopy`], to remote memory. Over shared memory `pack` writes to a private buffer, which is
    /// then copied. Data that are in a slice already are copied once less by [`Ep::put_from`].
    ///
    /// # Errors
    /// As [`Ep::put_short`].
    #[inline]
    pub fn put_bcopy<F>(&self, remote_address: u64, key: &RemoteKey, pack: F) -> Result<usize>
    where
        F: FnOnce(&mut [u8]) -> usize,
    {
        let ep = &*self.inner;
        ep.same_domain(key.domain())?;
        let slot = slot!(ep.put_bcopy);
        let attributes = ep.iface.attributes();
        Packing::run(pack, &PackBuffer::new(attributes.put.max_bcopy, attributes), |packing| {
            // SAFETY: the endpoint is alive, callback and argument belong together, the key is of the domain.
            let answer =
                unsafe { slot(ep.raw.get(), Packing::<F>::write, packing, remote_address, key.raw()) };
            ep.counted_length(answer, &ep.counters.put)
        })
    }

    /// Writes memory to remote memory, in place: it is the transport's until the completion.
    ///
    /// # Errors
    /// As [`Ep::put_short`]; what is found wrong at the peer comes with the completion.
    #[inline]
    pub fn put_zcopy(
        &self,
        memory: &[MemorySlice],
        remote_address: u64,
        key: &RemoteKey,
        completion: &Completion,
    ) -> Result<Posted> {
        let ep = &*self.inner;
        ep.same_domain(key.domain())?;
        let slot = slot!(ep.put_zcopy);
        ep.with_iov(memory, |iov, count, bytes| {
            let begun = completion.begin();
            // SAFETY: the endpoint is alive; the vector is valid for the call, and memory and key until the
            // completion, which `started` holds them for.
            let status = unsafe { slot(ep.raw.get(), iov, count, remote_address, key.raw(), begun) };
            ep.posted(status, completion, Kind::Put, bytes, Some(key), || held(memory))
        })
    }

    /// Reads remote memory; done at return. Limit: [`crate::OpLimits::max_short`], which is more than any slice has where remote memory is reached
    /// directly (`self`, shared memory): the call for data that go into a slice. Where remote memory is not
    /// reached directly, it waits for the peer, for a time that the transport limits (`get_timeout` of `tcp` and `ud_verbs`, `peer_timeout` of
    /// `rc_verbs`), and makes progress of the interface meanwhile. One copy, where [`Ep::get_bcopy`] makes one and its closure often another.
    ///
    /// # Errors
    /// As [`Ep::put_short`]; `UNSUPPORTED`; `TIMED_OUT`.
    #[inline]
    pub fn get_short(&self, buffer: &mut [u8], remote_address: u64, key: &RemoteKey) -> Result {
        let ep = &*self.inner;
        if let Ok(place) = <&mut [u8; 8]>::try_from(&mut *buffer)
            // SYNC: what the peer wrote ahead of the word is there for the next get.
            && let Some(value) = key.get_word(&ep.gate, remote_address, |word| word.load(Ordering::Acquire))
        {
            *place = value.to_ne_bytes();
            ep.counters.get.add_word();
            return Ok(());
        }
        ep.get_short(buffer, remote_address, key)
    }

    /// Reads `length` bytes of remote memory and hands them to `unpack`, once, ahead of the completion; not at all if
    /// the operation fails.
    ///
    /// # Errors
    /// As [`Ep::put_zcopy`].
    #[inline]
    pub fn get_bcopy<F>(
        &self,
        length: usize,
        remote_address: u64,
        key: &RemoteKey,
        completion: &Completion,
        unpack: F,
    ) -> Result<Posted>
    where
        F: FnOnce(&[u8]) + 'static,
    {
        let ep = &*self.inner;
        ep.same_domain(key.domain())?;
        let slot = slot!(ep.get_bcopy);
        let (owned, unpacking) =
            completion.own(Unpacking { unpack: Some(unpack), worker: Rc::clone(&ep.iface.worker) });
        let begun = completion.begin();
        // SAFETY: the endpoint is alive; callback and argument belong together, the argument lives until the completion.
        let status = unsafe {
            let argument = unpacking.as_ptr().cast();
            slot(ep.raw.get(), Unpacking::<F>::read, argument, length, remote_address, key.raw(), begun)
        };
        ep.posted(status, completion, Kind::Get, length, Some(key), || [Held::Unpack(owned)])
    }

    /// Reads remote memory into memory, in place: it is the transport's until the completion.
    ///
    /// # Errors
    /// As [`Ep::put_zcopy`]; [`Error::INVALID_PARAM`] for memory that is not [writable](crate::Memory::is_writable).
    #[inline]
    pub fn get_zcopy(
        &self,
        memory: &[MemorySlice],
        remote_address: u64,
        key: &RemoteKey,
        completion: &Completion,
    ) -> Result<Posted> {
        let ep = &*self.inner;
        ep.same_domain(key.domain())?;
        if !memory.iter().all(|slice| slice.memory.is_writable()) {
            return Err(Error::INVALID_PARAM);
        }
        let slot = slot!(ep.get_zcopy);
        ep.with_iov(memory, |iov, count, bytes| {
            let begun = completion.begin();
            // SAFETY: as in `put_zcopy`.
            let status = unsafe { slot(ep.raw.get(), iov, count, remote_address, key.raw(), begun) };
            ep.posted(status, completion, Kind::Get, bytes, Some(key), || held(memory))
        })
    }
}

/// An unpack closure that is passed through the transport.
struct Unpacking<F> {
    unpack: Option<F>,
    worker: Rc<WorkerInner>,
}

impl<F: FnOnce(&[u8])> Unpacking<F> {
    unsafe extern "C" fn read(argument: *mut c_void, data: *const c_void, length: usize) {
        // SAFETY: `get_bcopy` passes what the completion owns until the operation has ended.
        let unpacking = unsafe { &mut *argument.cast::<Unpacking<F>>() };
        let Some(unpack) = unpacking.unpack.take() else { return };
        // SAFETY: the transport hands over readable data for the call (`UctUnpack`).
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
        unpacking.worker.call_application(AssertUnwindSafe(|| unpack(data)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Context, Memory, Worker};

    fn open(bytes: Vec<u8>) -> (Worker, Ep, Memory, RemoteKey) {
        let context = Context::builder().sources(ucs::config::Sources::default()).build().unwrap();
        let worker = Worker::new(&context).unwrap();
        let iface = worker.open("self", "memory").unwrap();
        let ep = iface.connect(&iface.address().unwrap()).unwrap();
        let memory = iface.memory_domain().register(bytes, Access::ALL).unwrap();
        let key = iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
        (worker, ep, memory, key)
    }

    /// The long way of `put_from`, which `self` has no need of.
    #[test]
    fn a_slice_that_is_no_short_put_is_packed() {
        let (_worker, ep, memory, key) = open(vec![0; 4096]);
        let source: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        ep.put_packed(&source, memory.address() + 10, &key).unwrap();
        let expected = [&[0; 10][..], &source, &[0; 3086]].concat();
        assert_eq!(memory.to_vec(), expected);
        assert_eq!((ep.counters().put.operations, ep.counters().put.bytes), (1, 1000));
    }
}
