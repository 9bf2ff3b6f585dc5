//! Cutting chunks into elements.
//!
//! Used by `Mpool::get` on an empty free list, and `reserve`. Built on `chunk` and `params`. Control path.

use std::cell::Cell;
use std::fmt::Display;
use std::ptr::NonNull;

use super::chunk::{Chunk, ChunkMemory};
use super::{HEADER, Header, Mpool, MpoolError, MpoolParams};

/// Where elements are in a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    elem_size: usize,
    alignment: usize,
    align_offset: usize,
    /// From one element to the next: a multiple of the alignment.
    stride: usize,
}

impl Layout {
    /// Checks the parameters.
    pub(super) fn new(params: &MpoolParams) -> Result<Layout, MpoolError> {
        let check = |is_right: bool, parameter: &'static str, value: &dyn Display, expected: String| {
            if is_right {
                return Ok(());
            }
            let pool = params.name.clone();
            Err(MpoolError::Parameter { pool, parameter, value: value.to_string(), expected })
        };
        let MpoolParams { elem_size, alignment, align_offset, grow_factor, .. } = *params;
        check(elem_size > 0, "elem_size", &elem_size, "at least 1".into())?;
        check(alignment.is_power_of_two(), "alignment", &alignment, "a power of two".into())?;
        let offset_limit = format!("0 to elem_size ({elem_size})");
        check(align_offset <= elem_size, "align_offset", &align_offset, offset_limit)?;
        check(params.elems_per_chunk > 0, "elems_per_chunk", &params.elems_per_chunk, "at least 1".into())?;
        check(params.max_elems > 0, "max_elems", &params.max_elems, "at least 1".into())?;
        let is_growth = grow_factor.is_finite() && grow_factor >= 1.0;
        check(is_growth, "grow_factor", &grow_factor, "a number of at least 1".into())?;

        let smallest = elem_size.checked_add(HEADER).and_then(|size| size.checked_add(alignment));
        let stride = elem_size.checked_add(HEADER).and_then(|size| size.checked_next_multiple_of(alignment));
        let (Some(smallest), Some(stride)) = (smallest, stride) else {
            let expected = "a size that, with its alignment, fits the address space".into();
            return Err(MpoolError::Parameter {
                pool: params.name.clone(),
                parameter: "elem_size",
                value: elem_size.to_string(),
                expected,
            });
        };
        let limit = format!("at least {smallest} for one element");
        check(params.max_chunk_size >= smallest, "max_chunk_size", &params.max_chunk_size, limit)?;
        Ok(Layout { elem_size, alignment, align_offset, stride })
    }

    /// Bytes that hold `elements` (at least 1) wherever they begin; `usize::MAX` if none do.
    fn size(&self, elements: u32) -> usize {
        let before_last = (elements as usize - 1).saturating_mul(self.stride);
        before_last.saturating_add(HEADER + self.elem_size + self.alignment)
    }

    /// The largest number of elements, up to `wanted`, for which `size` is at most `bytes`; at least 1.
    fn fit(&self, wanted: u32, bytes: usize) -> u32 {
        let beyond_first = bytes.saturating_sub(self.size(1)) / self.stride;
        u32::try_from(beyond_first.saturating_add(1)).unwrap_or(u32::MAX).min(wanted)
    }

    /// Offset of the first element in memory at `address`.
    fn first(&self, address: usize) -> usize {
        let aligned_byte = address.wrapping_add(HEADER).wrapping_add(self.align_offset);
        HEADER + (aligned_byte.wrapping_neg() & (self.alignment - 1))
    }

    /// How many elements are in `len` bytes, the first being at offset `first`.
    fn count(&self, first: usize, len: usize) -> usize {
        match len.checked_sub(first + self.elem_size) {
            None => 0,
            Some(beyond_first) => beyond_first / self.stride + 1,
        }
    }
}

impl Mpool {
    /// Adds one chunk, whose elements go to the head of the free list in the order of their addresses.
    pub(super) fn grow(&self) -> Result<(), MpoolError> {
        let cold = &*self.cold;
        let pool = || self.name().to_owned();
        let Some(_growing) = Growing::begin(&cold.growing) else {
            return Err(MpoolError::Reentered { pool: pool() });
        };
        let quota = match cold.params.max_elems {
            u32::MAX => u32::MAX - cold.elements.get(),
            limit => limit - cold.elements.get(),
        };
        if quota == 0 {
            return Err(MpoolError::Quota { pool: pool(), max_elems: cold.params.max_elems });
        }
        let wanted = cold.layout.fit(cold.next_chunk.get().min(quota), cold.params.max_chunk_size);
        let bytes = cold.layout.size(wanted);
        let memory = cold.allocator.alloc(bytes).map_err(|error| MpoolError::Allocation {
            pool: pool(),
            bytes,
            error,
        })?;
        if memory.len < bytes {
            // SAFETY: it has just been allocated and nothing uses it.
            unsafe { cold.allocator.free(memory) };
            return Err(MpoolError::ShortChunk { pool: pool(), bytes, given: memory.len });
        }
        let elements = self.cut(memory, quota);
        cold.elements.set(cold.elements.get() + elements);
        // The cast saturates, which is what is wanted.
        cold.next_chunk.set((f64::from(wanted) * cold.params.grow_factor).round() as u32);
        crate::log::debug!(pool = self.name(), elements, bytes = memory.len, "a memory pool has a new chunk");
        Ok(())
    }

    /// Makes elements of a chunk, at most `quota`; returns how many.
    fn cut(&self, memory: ChunkMemory, quota: u32) -> u32 {
        let layout = &self.cold.layout;
        let first = layout.first(memory.ptr.as_ptr().addr());
        let count = u32::try_from(layout.count(first, memory.len)).unwrap_or(u32::MAX).min(quota);
        let chunk = Box::into_raw(Box::new(Chunk { memory, elements: count, home: Cell::new(0) }));
        let mut next = self.free.get();
        for index in (0..count as usize).rev() {
            // SAFETY: `Layout::count` keeps every element, header included, inside the chunk.
            let element = unsafe { memory.ptr.add(first + index * layout.stride) };
            // SAFETY: as above; a header precedes every element.
            let header = unsafe { element.sub(HEADER) }.cast::<Header>();
            // SAFETY: the chunk is writable, and exclusive by the allocator's contract.
            unsafe { header.as_ptr().write_unaligned(Header { next, chunk }) };
            // SAFETY: `elem_size` bytes from here are in the chunk, and were not handed out yet.
            unsafe { self.cold.hooks.init(element, memory.cookie) };
            next = element.as_ptr();
        }
        // From here on the elements are the pool's; had a hook panicked, the chunk would be lost, but nothing dangles.
        self.cold.chunks.borrow_mut().extend(NonNull::new(chunk));
        self.free.set(next);
        count
    }
}

/// Keeps a pool from growing while it grows.
struct Growing<'a>(&'a Cell<bool>);

impl<'a> Growing<'a> {
    fn begin(flag: &'a Cell<bool>) -> Option<Growing<'a>> {
        // `then`, not `then_some`: one made in vain would clear the flag as it is dropped.
        (!flag.replace(true)).then(|| Growing(flag))
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
