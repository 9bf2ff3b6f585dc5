//! The parameters of a pool, and why it refuses them.
//!
//! For the code that makes a pool. No dependencies. `grow` turns the parameters into a layout.

use std::ffi::c_void;
use std::ptr::NonNull;

/// The shape of a pool. [`MpoolParams::new`] has the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct MpoolParams {
    /// For messages.
    pub name: String,
    /// Bytes of an element, at least 1.
    pub elem_size: usize,
    /// A power of two. Default 64.
    pub alignment: usize,
    /// Which byte of the element is aligned, 0 to `elem_size`. Default 0. The element's own address is aligned to it only
    /// as far as this offset is: keep it a multiple of 8 where a header with pointers precedes the aligned byte.
    pub align_offset: usize,
    /// Elements of the first chunk, at least 1. Default 128. A chunk has fewer where the quota or `max_chunk_size` say so,
    /// and more where its allocator gives more than was requested.
    pub elems_per_chunk: u32,
    /// Elements of all chunks together, at least 1; `u32::MAX`, the default, is no limit.
    pub max_elems: u32,
    /// Each chunk has this many times the elements of the one before, at least 1. Default 1.
    pub grow_factor: f64,
    /// Bytes of one chunk at most; at least enough for one element. Default 128 MiB.
    pub max_chunk_size: usize,
}

impl MpoolParams {
    /// Elements of `elem_size` bytes, everything else by default.
    pub fn new(name: impl Into<String>, elem_size: usize) -> MpoolParams {
        MpoolParams {
            name: name.into(),
            elem_size,
            alignment: 64,
            align_offset: 0,
            elems_per_chunk: 128,
            max_elems: u32::MAX,
            grow_factor: 1.0,
            max_chunk_size: 128 << 20,
        }
    }
}

/// Sees each element once when its chunk is made, and once when the pool is dropped.
pub trait ElementHooks {
    /// Prepares an element of a new chunk whose allocator attached `cookie`. It must not use the pool, and had better not
    /// panic: the chunk is lost then.
    ///
    /// # Safety
    ///
    /// `element` points to `elem_size` uninitialized bytes that no other code uses.
    unsafe fn init(&self, element: NonNull<u8>, cookie: *mut c_void) {
        _ = (element, cookie);
    }

    /// Ends an element that is in the free list as the pool is dropped.
    ///
    /// # Safety
    ///
    /// `element` went through `init` and is not in use, and this is its last use.
    unsafe fn cleanup(&self, element: NonNull<u8>) {
        _ = element;
    }
}

/// No hooks.
impl ElementHooks for () {}

/// Why there is no pool, or no further chunk.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MpoolError {
    /// A parameter that no pool can have.
    #[error("memory pool {pool}: {parameter} is {value}, expected {expected}")]
    Parameter {
        /// Name of the pool.
        pool: String,
        /// Field of [`MpoolParams`].
        parameter: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// All elements that the pool may have are allocated.
    #[error("memory pool {pool}: all {max_elems} elements are allocated; raise its limit or return elements")]
    Quota {
        /// Name of the pool.
        pool: String,
        /// Its limit.
        max_elems: u32,
    },
    /// The allocator has no chunk.
    #[error("memory pool {pool}: no chunk of {bytes} bytes: {error}")]
    Allocation {
        /// Name of the pool.
        pool: String,
        /// What was requested.
        bytes: usize,
        /// What the allocator returned.
        error: crate::Error,
    },
    /// The allocator gave less than was requested.
    #[error("memory pool {pool}: asked for a chunk of {bytes} bytes, its allocator gave {given}")]
    ShortChunk {
        /// Name of the pool.
        pool: String,
        /// What was requested.
        bytes: usize,
        /// What came.
        given: usize,
    },
    /// An init hook asked its own pool for elements.
    #[error("memory pool {pool}: an init hook must not use the pool that it is called from")]
    Reentered {
        /// Name of the pool.
        pool: String,
    },
}

impl From<MpoolError> for crate::Error {
    fn from(error: MpoolError) -> crate::Error {
        match error {
            MpoolError::Parameter { .. } | MpoolError::Reentered { .. } => crate::Error::INVALID_PARAM,
            MpoolError::Quota { .. } => crate::Error::EXCEEDS_LIMIT,
            MpoolError::Allocation { error, .. } => error,
            MpoolError::ShortChunk { .. } => crate::Error::NO_MEMORY,
        }
    }
}
