//! Buffers of received messages, each with the room ahead of it that a keeper may write to.
//!
//! Used by interfaces that deliver from buffers of their own. Built on `ucs`'s pool: taking a buffer and giving it back cost a
//! few instructions each.

use std::ptr::NonNull;

use ucs::datastruct::mpool::{Mpool, MpoolParams};
use ucs::{Error, Result};

use super::ZeroedChunks;
use crate::am::Disposition;
use crate::failure::Failure;

/// A pool of buffers, aligned behind `rx_headroom` bytes, all of them initialised.
#[derive(Debug)]
pub struct MessagePool {
    pool: Mpool,
    headroom: usize,
}

impl MessagePool {
    /// At most `most` buffers of `size` bytes; `name` appears in the log.
    ///
    /// # Errors
    /// Sizes that no pool can have.
    pub fn new(name: &str, headroom: usize, size: usize, most: u32) -> Result<MessagePool, Failure> {
        let params = MpoolParams {
            align_offset: headroom,
            max_elems: most,
            elems_per_chunk: most.min(16),
            grow_factor: 2.0,
            ..MpoolParams::new(name, headroom.saturating_add(size))
        };
        let pool = Mpool::new(params, ZeroedChunks, ())
            .map_err(|error| Failure::new(Error::NO_MEMORY, error.to_string()))?;
        Ok(MessagePool { pool, headroom })
    }

    /// Passes a buffer to `body`, and takes it back unless `body` returns [`Disposition::Kept`]: then [`MessagePool::put`] returns it.
    /// `body` may use another one in the same way.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`] if all are out, or there is no memory; `body` was not called.
    #[inline]
    pub fn with_buffer(&self, body: impl FnOnce(NonNull<u8>) -> Disposition) -> Result {
        let buffer = self.get()?;
        if body(buffer) == Disposition::Consumed {
            // SAFETY: it is from `get`, and `body` did not keep it.
            unsafe { self.put(buffer) };
        }
        Ok(())
    }

    /// A buffer, with the headroom ahead of it; to be given back by [`MessagePool::put`].
    ///
    /// # Errors
    /// As [`MessagePool::with_buffer`].
    #[inline]
    pub fn get(&self) -> Result<NonNull<u8>> {
        let element = self.pool.get().ok_or(Error::NO_RESOURCE)?;
        // SAFETY: an element holds the headroom ahead of the message.
        Ok(unsafe { element.add(self.headroom) })
    }

    /// Takes a buffer back.
    ///
    /// # Safety
    /// `buffer` came from this pool, by [`MessagePool::get`] or kept by [`MessagePool::with_buffer`], was not given back before, and is
    /// not used afterwards.
    #[inline]
    pub unsafe fn put(&self, buffer: NonNull<u8>) {
        // SAFETY: undoes the addition of `get`.
        let element = unsafe { buffer.sub(self.headroom) };
        // SAFETY: the caller's promise.
        unsafe { self.pool.put(element) };
    }

    /// Bytes of a buffer.
    pub fn size(&self) -> usize {
        let params = self.pool.params();
        params.elem_size - params.align_offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_its_headroom_ahead_and_comes_back() {
        let pool = MessagePool::new("test", 24, 100, 2).unwrap();
        let (first, second) = (pool.get().unwrap(), pool.get().unwrap());
        assert_eq!(pool.get(), Err(Error::NO_RESOURCE));
        for buffer in [first, second] {
            assert!(buffer.cast::<u64>().is_aligned());
            // SAFETY: the headroom lies ahead of the buffer, in the same element.
            let start = unsafe { buffer.sub(24) };
            // SAFETY: headroom and buffer are this test's.
            unsafe { start.write_bytes(7, 124) };
        }
        // SAFETY: it came from `get` and is not used any more.
        unsafe { pool.put(first) };
        assert_eq!((pool.get(), pool.get()), (Ok(first), Err(Error::NO_RESOURCE)));
        for buffer in [first, second] {
            // SAFETY: as above.
            unsafe { pool.put(buffer) };
        }
    }

    #[test]
    fn a_borrowed_buffer_is_reused_unless_it_was_kept() {
        let pool = MessagePool::new("test", 8, 64, 3).unwrap();
        let with = |disposition| {
            let mut lent = None;
            pool.with_buffer(|buffer| {
                lent = Some(buffer);
                disposition
            })
            .map(|()| lent.unwrap())
        };
        let first = with(Disposition::Consumed).unwrap();
        assert_eq!(with(Disposition::Consumed), Ok(first));
        // One inside the other are two.
        pool.with_buffer(|outer| {
            assert_ne!(with(Disposition::Consumed), Ok(outer));
            Disposition::Consumed
        })
        .unwrap();
        let kept: Vec<_> = (0..3).map(|_| with(Disposition::Kept).unwrap()).collect();
        assert_eq!(with(Disposition::Consumed), Err(Error::NO_RESOURCE));
        for buffer in kept {
            // SAFETY: it was kept and is not used any more.
            unsafe { pool.put(buffer) };
        }
        with(Disposition::Consumed).unwrap();
    }

    #[test]
    fn a_size_that_nothing_can_have_is_a_failure() {
        assert!(MessagePool::new("test", usize::MAX, 1, 1).is_err());
    }
}
