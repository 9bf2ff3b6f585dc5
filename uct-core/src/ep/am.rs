//! Sending active messages.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::{MaybeUninit, needs_drop};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{ptr, slice};

use ucs::{Error, Result, Status};
use uct_abi::{UCT_ERR_INVALID_PARAM, UCT_ERR_NO_RESOURCE, UctIov};

use super::{Ep, EpInner, SendFlags};
use crate::am::AmId;
use crate::completion::{Completion, Held, Posted};
use crate::md::MemorySlice;
use crate::stats::Counter;

/// Most entries of a vector; transports report their own limit, which is below.
pub(super) const MAX_IOV: usize = 64;

/// Room for the entries of a vector. Filling all of it would take longer than many an operation.
const NO_ENTRIES: [MaybeUninit<UctIov>; MAX_IOV] = [const { MaybeUninit::uninit() }; MAX_IOV];

impl EpInner {
    /// Counts an operation by its status and converts the status.
    #[inline]
    pub(super) fn counted(&self, status: i32, counter: &Counter, bytes: usize) -> Result {
        if status == uct_abi::UCT_OK {
            counter.add(bytes);
            return Ok(());
        }
        self.refused(status, counter, bytes)
    }

    #[cold]
    pub(super) fn refused(&self, status: i32, counter: &Counter, bytes: usize) -> Result {
        match status {
            UCT_ERR_NO_RESOURCE => self.counters.no_resource.set(self.counters.no_resource.get() + 1),
            UCT_ERR_INVALID_PARAM => self.log_invalid(counter, bytes),
            _ => {}
        }
        Err(Error::from_status(Status::from_raw(status)))
    }

    /// Counts a packed length, or an error in its place.
    #[inline]
    pub(super) fn counted_length(&self, answer: isize, counter: &Counter) -> Result<usize> {
        if answer >= 0 {
            counter.add(answer as usize);
            return Ok(answer as usize);
        }
        self.refused(answer as i32, counter, 0).map(|()| 0)
    }

    /// After a packed message that is empty or was refused: there may have been a panic.
    #[cold]
    #[inline(never)]
    fn packed_nothing(&self, answer: isize) -> Result<usize> {
        resume();
        self.counted_length(answer, &self.counters.am_bcopy)
    }

    /// The entries of a vector, in an array of the stack.
    #[inline]
    pub(super) fn with_iov<T>(
        &self,
        slices: &[MemorySlice],
        call: impl FnOnce(*const UctIov, usize, usize) -> Result<T>,
    ) -> Result<T> {
        if slices.len() > MAX_IOV {
            return Err(self.too_many(slices.len()));
        }
        let mut entries = NO_ENTRIES;
        let mut bytes = 0;
        for (entry, slice) in entries.iter_mut().zip(slices) {
            self.same_domain(slice.memory.domain())?;
            entry.write(slice.iov());
            bytes += slice.len();
        }
        call(entries.as_ptr().cast(), slices.len(), bytes)
    }

    /// Memory and keys are of use only to interfaces of their own memory domain.
    #[inline]
    pub(super) fn same_domain(&self, md: &crate::md::MemoryDomain) -> Result {
        if std::sync::Arc::ptr_eq(&md.inner, &self.md.inner) { Ok(()) } else { Err(self.other_domain(md)) }
    }
}

pub(super) fn held(slices: &[MemorySlice]) -> impl Iterator<Item = Held> {
    slices.iter().map(|slice| Held::Memory(slice.memory.clone()))
}

impl Ep {
    /// Sends 8 bytes of header and the payload, both copied. Limit: [`crate::OpLimits::max_short`] of payload.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; [`Error::INVALID_PARAM`] beyond the limit; the error of a failed endpoint.
    #[inline]
    pub fn am_short(&self, id: AmId, header: u64, payload: &[u8]) -> Result {
        let ep = &*self.inner;
        let slot = ep.am_short.get();
        // SAFETY: the endpoint is alive, and the payload valid for the call.
        let status = unsafe { slot(ep.raw.get(), id.get(), header, payload.as_ptr().cast(), payload.len()) };
        ep.counted(status, &ep.counters.am_short, size_of::<u64>() + payload.len())
    }

    /// Sends the gathered parts, copied; the first 8 bytes stand where [`Ep::am_short`] has its header.
    ///
    /// # Errors
    /// As [`Ep::am_short`]; the limit counts all bytes but the first 8.
    pub fn am_short_iov(&self, id: AmId, parts: &[&[u8]]) -> Result {
        let ep = &*self.inner;
        if parts.len() > MAX_IOV {
            return Err(ep.too_many(parts.len()));
        }
        let slot = slot!(ep.am_short_iov);
        let mut entries = NO_ENTRIES;
        for (entry, part) in entries.iter_mut().zip(parts) {
            entry.write(UctIov {
                buffer: part.as_ptr().cast_mut().cast(),
                length: part.len(),
                memh: std::ptr::null_mut(),
                stride: 0,
                count: 1,
            });
        }
        // SAFETY: the endpoint is alive; as many entries as there are parts were written, and the parts are valid for the
        // call and only read.
        let status = unsafe { slot(ep.raw.get(), id.get(), entries.as_ptr().cast(), parts.len()) };
        ep.counted(status, &ep.counters.am_short, parts.iter().map(|part| part.len()).sum())
    }

    /// Sends what `pack` writes: it gets the transport's own buffer, of [`crate::OpLimits::max_bcopy`] bytes with
    /// arbitrary contents, and returns how many of them are the message. Returns that length.
    ///
    /// `pack` is called only if there is room. A panic of it is resumed here, after an empty message has gone out.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; the error of a failed endpoint.
    #[inline]
    pub fn am_bcopy<F>(&self, id: AmId, flags: SendFlags, pack: F) -> Result<usize>
    where
        F: FnOnce(&mut [u8]) -> usize,
    {
        let ep = &*self.inner;
        let mut packing = Packing::new(pack, ep.am_max_bcopy);
        let slot = slot!(ep.am_bcopy);
        // SAFETY: the endpoint is alive, and callback and argument belong together.
        let answer =
            unsafe { slot(ep.raw.get(), id.get(), Packing::<F>::write, packing.argument(), flags.bits()) };
        // As in `Packing::run`.
        if answer <= 0 {
            return ep.packed_nothing(answer);
        }
        ep.counters.am_bcopy.add(answer as usize);
        Ok(answer as usize)
    }

    /// Sends the gathered parts through the transport's buffer, all of them together at most [`crate::OpLimits::max_bcopy`] bytes. Returns
    /// their length.
    ///
    /// # Errors
    /// As [`Ep::am_bcopy`]; [`Error::INVALID_PARAM`] beyond the limit, and nothing is sent.
    pub fn am_bcopy_iov(&self, id: AmId, flags: SendFlags, parts: &[&[u8]]) -> Result<usize> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total > self.inner.am_max_bcopy {
            self.inner.log_invalid(&self.inner.counters.am_bcopy, total);
            return Err(Error::INVALID_PARAM);
        }
        self.am_bcopy(id, flags, |buffer| {
            let mut rest = buffer;
            for part in parts {
                let (room, behind) = rest.split_at_mut(part.len());
                room.copy_from_slice(part);
                rest = behind;
            }
            total
        })
    }

    /// Sends `header`, copied, and the memory, in place: it is the transport's until the completion.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; [`Error::INVALID_PARAM`] beyond [`crate::OpLimits::max_hdr`],
    /// [`crate::OpLimits::max_zcopy`] or [`crate::OpLimits::max_iov`], or for memory of another domain.
    #[inline]
    pub fn am_zcopy(
        &self,
        id: AmId,
        header: &[u8],
        memory: &[MemorySlice],
        flags: SendFlags,
        completion: &Completion,
    ) -> Result<Posted> {
        let ep = &*self.inner;
        let slot = slot!(ep.am_zcopy);
        ep.with_iov(memory, |iov, count, bytes| {
            let begun = completion.begin();
            // SAFETY: the endpoint is alive; header and vector are valid for the call, and the memory until the
            // completion, which `started` holds it for.
            let status = unsafe {
                slot(
                    ep.raw.get(),
                    id.get(),
                    header.as_ptr().cast(),
                    header.len(),
                    iov,
                    count,
                    flags.bits(),
                    begun,
                )
            };
            let posted = completion.started(status, None, || held(memory));
            match posted {
                Ok(_) => ep.counters.am_zcopy.add(header.len() + bytes),
                Err(_) => ep.refused(status, &ep.counters.am_zcopy, header.len() + bytes)?,
            }
            posted
        })
    }
}

/// A pack closure that is passed through the transport.
pub(super) struct Packing<F> {
    pack: Option<F>,
    capacity: usize,
}

thread_local! {
    /// The panic of a pack closure, on its way around the transport's frames. Not a part of the packing: most closures do not
    /// panic, and so need not know where to.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

impl<F: FnOnce(&mut [u8]) -> usize> Packing<F> {
    /// Has `call` pass the closure to the transport, and resumes its panic. `call` returns what was packed.
    #[inline]
    pub(super) fn run(
        pack: F,
        capacity: usize,
        call: impl FnOnce(*mut c_void) -> Result<usize>,
    ) -> Result<usize> {
        let answer = call(Packing::new(pack, capacity).argument());
        // After a panic the message is empty, or was not sent. So what most messages answer says that there was none.
        if !answer.is_ok_and(|length| length > 0) {
            resume();
        }
        answer
    }

    #[inline]
    fn new(pack: F, capacity: usize) -> Packing<F> {
        Packing { pack: Some(pack), capacity }
    }

    /// The argument of [`Packing::write`].
    #[inline]
    fn argument(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }

    pub(super) unsafe extern "C" fn write(destination: *mut c_void, argument: *mut c_void) -> usize {
        // SAFETY: `argument` is what a transport is given with this function.
        let packing = unsafe { &mut *argument.cast::<Packing<F>>() };
        // What needs no drop may stay where it was.
        let pack = if needs_drop::<F>() {
            packing.pack.take()
        } else {
            // SAFETY: a transport packs once (`UctPack`), so this is the only one that is used.
            unsafe { ptr::read(&raw const packing.pack) }
        };
        // SAFETY: as above: it was there.
        let pack = unsafe { pack.unwrap_unchecked() };
        let capacity = packing.capacity;
        // SAFETY: the transport offers initialised memory of at least `max_bcopy` bytes (`UctPack`).
        let buffer = unsafe { slice::from_raw_parts_mut(destination.cast::<u8>(), capacity) };
        let packed = catch_unwind(AssertUnwindSafe(|| {
            let length = pack(buffer);
            if length > capacity {
                beyond(length, capacity);
            }
            length
        }));
        packed.unwrap_or_else(keep)
    }
}

/// Keeps a panic for [`resume`]; the message is empty.
#[cold]
#[inline(never)]
fn keep(panic: Box<dyn Any + Send>) -> usize {
    PANIC.set(Some(panic));
    0
}

/// Goes on with a closure's panic, if there was one.
#[cold]
#[inline(never)]
fn resume() {
    if let Some(panic) = PANIC.take() {
        resume_unwind(panic);
    }
}

#[cold]
#[inline(never)]
fn beyond(length: usize, capacity: usize) -> ! {
    panic!("a pack closure answered {length} bytes for a buffer of {capacity}")
}
