//! Gather and scatter lists.

use std::marker::PhantomData;
use std::slice;

use ucs::memory::copy_small;
use uct_abi::UctIov;

/// A vector of memory, each entry `count` blocks of `length` bytes that lie `stride` bytes apart.
#[derive(Clone, Copy)]
pub struct Iov<'a> {
    entries: &'a [UctIov],
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Iov<'a> {
    /// The host's vector. For the tables of [`crate::define_plugin!`], and for tests of a transport.
    ///
    /// # Safety
    /// `entries` are `count` entries whose memory stays valid until the operation has completed: at least for `'a`.
    #[inline(always)]
    pub unsafe fn new(entries: *const UctIov, count: usize) -> Iov<'a> {
        let entries = if count == 0 {
            &[]
        } else {
            // SAFETY: the caller's promise.
            unsafe { slice::from_raw_parts(entries, count) }
        };
        Iov { entries, memory: PhantomData }
    }

    /// The entries as they crossed the boundary.
    pub fn entries(&self) -> &'a [UctIov] {
        self.entries
    }

    /// Bytes in all.
    #[inline]
    pub fn total(&self) -> usize {
        if let [entry] = self.entries
            && entry.count == 1
        {
            return entry.length;
        }
        self.entries
            .iter()
            .map(|entry| entry.length.saturating_mul(entry.count as usize))
            .fold(0, usize::saturating_add)
    }

    /// The contiguous blocks, in order, as (first byte, length); empty ones are left out.
    pub fn blocks(&self) -> impl Iterator<Item = (*mut u8, usize)> + 'a {
        self.entries.iter().flat_map(|entry| {
            let count = if entry.length == 0 { 0 } else { entry.count as usize };
            (0..count).map(move |index| {
                (entry.buffer.cast::<u8>().wrapping_add(index.wrapping_mul(entry.stride)), entry.length)
            })
        })
    }

    /// Copies all bytes out, in order; returns how many.
    ///
    /// # Safety
    /// `destination` is writable for [`Iov::total`] bytes that are no part of the vector.
    #[inline]
    pub unsafe fn gather(&self, destination: *mut u8) -> usize {
        let mut offset = 0;
        let mut copy = |block: *const u8, length: usize| {
            // SAFETY: `offset` stays within the total, which the caller vouches for.
            let target = unsafe { destination.add(offset) };
            offset += length;
            // SAFETY: the block is readable (`Iov::new`), and the two do not overlap by the caller's promise.
            unsafe { copy_small(target, block, length) };
        };
        for entry in self.entries {
            // Without a multiplication in the usual case.
            if entry.count == 1 {
                copy(entry.buffer.cast(), entry.length);
            } else {
                Iov { entries: slice::from_ref(entry), memory: PhantomData }
                    .blocks()
                    .for_each(|(block, length)| copy(block, length));
            }
        }
        offset
    }

    /// Copies `length` bytes in, in order, as far as there is room; returns how many found room.
    ///
    /// # Safety
    /// `source` is readable for `length` bytes that are no part of the vector, and the vector's memory is writable, as
    /// that of a get is.
    #[inline]
    pub unsafe fn scatter(&self, source: *const u8, length: usize) -> usize {
        // SAFETY: the caller's promise, with the whole vector ahead.
        unsafe { self.scatter_at(0, source, length) }
    }

    /// As [`Iov::scatter`], leaving the first `skip` bytes of the vector alone.
    ///
    /// # Safety
    /// As [`Iov::scatter`].
    pub unsafe fn scatter_at(&self, mut skip: usize, source: *const u8, length: usize) -> usize {
        let mut offset = 0;
        for (block, room) in self.blocks() {
            if skip >= room {
                skip -= room;
                continue;
            }
            let part = (room - skip).min(length - offset);
            // SAFETY: `offset` stays within `length`, which the caller vouches for.
            let from = unsafe { source.add(offset) };
            // SAFETY: `skip` is below the length of the block.
            let to = unsafe { block.add(skip) };
            // SAFETY: both sides hold `part` bytes and do not overlap by the caller's promise.
            unsafe { to.copy_from_nonoverlapping(from, part) };
            skip = 0;
            offset += part;
            if offset == length {
                break;
            }
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn entry(buffer: &mut [u8], length: usize, stride: usize, count: u32) -> UctIov {
        UctIov { buffer: buffer.as_mut_ptr().cast(), length, memh: ptr::null_mut(), stride, count }
    }

    #[test]
    fn strided_blocks_are_gathered_in_order() {
        let mut matrix = *b"abcdefghijkl";
        let mut rest = *b"XY";
        let entries = [entry(&mut matrix, 2, 4, 3), entry(&mut rest, 2, 0, 1), entry(&mut [], 5, 5, 0)];
        // SAFETY: the entries point into arrays that live to the end of the test.
        let iov = unsafe { Iov::new(entries.as_ptr(), entries.len()) };
        assert_eq!(iov.total(), 8);
        let mut out = [0; 8];
        // SAFETY: `out` has the total length and is a separate array.
        assert_eq!(unsafe { iov.gather(out.as_mut_ptr()) }, 8);
        assert_eq!(&out, b"abefijXY");
    }

    #[test]
    fn scattering_at_an_offset_leaves_what_is_ahead_alone() {
        let mut matrix = *b"............";
        let entries = [entry(&mut matrix, 2, 4, 3)];
        // SAFETY: as above.
        let iov = unsafe { Iov::new(entries.as_ptr(), entries.len()) };
        // SAFETY: the source has three bytes and is separate.
        assert_eq!(unsafe { iov.scatter_at(1, b"123".as_ptr(), 3) }, 3);
        assert_eq!(&matrix, b".1..23......");
    }
}
